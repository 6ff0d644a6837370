//! Where two canonical documents differ: the list that a 422 carries.
//!
//! In: two documents. Out: [`Differences`], the pointers of the smallest values that differ, in canonical order. Both
//! are walked once and in step, which their sorted members allow. Values are never quoted: the caller may not be allowed
//! to see the other side's.

use std::cmp::Ordering;

use crate::canonical::Canonical;
use crate::pointer::{MAX_POINTER_BYTES, Pointer, Step};
use crate::value::{Object, Value, utf16_order};

/// Most pointers that are listed; a person reads no more, and the answer stays small. Beyond it the list is cut and
/// says so.
pub const MAX_DIFFERENCES: usize = 64;

/// Most bytes of all listed pointers together, for documents with very long names. Beyond it the list is cut too.
const MAX_LIST_BYTES: usize = 16 * MAX_POINTER_BYTES;

/// The places where two documents differ.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Differences {
    /// The differing values, in canonical order: a member that only one side has, an element that only one side has, or
    /// a value that is another one. Pointers into arrays compare by position. A pointer over
    /// [`MAX_POINTER_BYTES`] gives way to its nearest ancestor, which differs as well.
    pub pointers: Vec<Pointer>,
    /// False where a bound cut the list: there may be more.
    pub complete: bool,
}

/// Lists where `a` and `b` differ; empty if and only if they are the same document.
#[must_use]
pub fn differs(a: &Canonical, b: &Canonical) -> Differences {
    let mut walk = Walk { path: Vec::new(), pointers: Vec::new(), list_bytes: 0, cut: false };
    walk.value(a.value(), b.value());
    Differences { pointers: walk.pointers, complete: !walk.cut }
}

struct Walk<'a> {
    path: Vec<Step<'a>>,
    pointers: Vec<Pointer>,
    list_bytes: usize,
    cut: bool,
}

impl<'a> Walk<'a> {
    fn value(&mut self, a: &'a Value, b: &'a Value) {
        match (a, b) {
            (Value::Object(a), Value::Object(b)) => self.object(a, b),
            (Value::Array(a), Value::Array(b)) => self.array(a, b),
            _ if a == b => {}
            _ => self.note(),
        }
    }

    fn object(&mut self, a: &'a Object, b: &'a Object) {
        let (mut left, mut right) = (a.iter().peekable(), b.iter().peekable());
        while !self.cut {
            let order = match (left.peek(), right.peek()) {
                (None, None) => return,
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some((x, _)), Some((y, _))) => utf16_order(x, y),
            };
            let one = if order == Ordering::Greater { None } else { left.next() };
            let other = if order == Ordering::Less { None } else { right.next() };
            let Some((name, _)) = one.or(other) else { return };
            self.path.push(Step::Name(name));
            self.pair(one.map(|(_, value)| value), other.map(|(_, value)| value));
            self.path.pop();
        }
    }

    fn array(&mut self, a: &'a [Value], b: &'a [Value]) {
        for at in 0..a.len().max(b.len()) {
            if self.cut {
                return;
            }
            self.path.push(Step::Index(at));
            self.pair(a.get(at), b.get(at));
            self.path.pop();
        }
    }

    fn pair(&mut self, a: Option<&'a Value>, b: Option<&'a Value>) {
        match (a, b) {
            (Some(a), Some(b)) => self.value(a, b),
            _ => self.note(),
        }
    }

    fn note(&mut self) {
        let (pointer, bytes) = Pointer::nearest(self.path.iter().copied(), MAX_POINTER_BYTES);
        if self.pointers.last() == Some(&pointer) {
            return; // one ancestor for several differences whose own pointers are too long
        }
        if self.pointers.len() == MAX_DIFFERENCES || self.list_bytes + bytes > MAX_LIST_BYTES {
            self.cut = true;
            return;
        }
        self.list_bytes += bytes;
        self.pointers.push(pointer);
    }
}
