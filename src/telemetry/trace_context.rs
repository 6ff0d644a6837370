//! W3C trace context: the caller's `traceparent` read, the one for a provider written, ids of our own spans.
//!
//! Only with tracing on: without it a caller's `traceparent` goes up as it came. A caller that says "not sampled" is obeyed: no
//! span is made, and its header goes up as it came, too.

use std::fmt::Write as _;

/// One operation's place in a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// The trace.
    pub trace_id: u128,
    /// The caller's span; 0: none, this one is the root.
    pub parent: u64,
    /// The operation's span.
    pub span_id: u64,
}

impl Trace {
    /// The place of an operation with the caller's header, if it sent one; `None`: the caller wants no spans. `random` draws 64
    /// bits.
    pub fn of(traceparent: Option<&str>, mut random: impl FnMut() -> u64) -> Option<Self> {
        // An id of zeros means "none" (a system without randomness gives zeros).
        let mut id = || random().max(1);
        match traceparent.and_then(parse) {
            Some((_, _, false)) => None,
            Some((trace_id, parent, true)) => Some(Self { trace_id, parent, span_id: id() }),
            // A header that is none is ignored, as the specification says.
            None => {
                let trace_id = (u128::from(id()) << 64) | u128::from(id());
                Some(Self { trace_id, parent: 0, span_id: id() })
            }
        }
    }

    /// The `traceparent` that names one of this trace's spans.
    pub fn header(&self, span_id: u64) -> String {
        let mut text = String::with_capacity(55);
        let _ = write!(text, "00-{:032x}-{span_id:016x}-01", self.trace_id);
        text
    }
}

/// Trace id, span id, and whether it is sampled.
fn parse(header: &str) -> Option<(u128, u64, bool)> {
    let hex = |text: &str, length: usize| {
        let fits = text.len() == length && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        fits.then(|| u128::from_str_radix(text, 16).ok()).flatten()
    };
    let mut parts = header.trim().split('-');
    let version = hex(parts.next()?, 2)?;
    let trace_id = hex(parts.next()?, 32).filter(|id| *id != 0)?;
    let span_id = u64::try_from(hex(parts.next()?, 16)?).ok().filter(|id| *id != 0)?;
    let flags = hex(parts.next()?, 2)?;
    // Version 0 has four parts; later ones may have more; 255 is none.
    let whole = parts.next().is_none();
    (version != 0xff && (version != 0 || whole)).then_some((trace_id, span_id, flags & 1 == 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_callers_trace_goes_on() {
        let trace = Trace::of(Some(PARENT), || 0xabc).unwrap();
        assert_eq!((trace.trace_id, trace.parent), (0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736, 0x00f0_67aa_0ba9_02b7));
        assert_eq!(trace.header(0xdef), "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000def-01");
        let not_sampled = PARENT.replace("-01", "-00");
        assert_eq!(Trace::of(Some(&not_sampled), || 1), None);
        let later_version = format!("{}-more", PARENT.replace("00-4", "01-4"));
        assert!(Trace::of(Some(&later_version), || 1).unwrap().parent != 0);
    }

    #[test]
    fn what_is_no_header_begins_a_trace() {
        let zeros = "00-00000000000000000000000000000000-00f067aa0ba902b7-01";
        let more = format!("{PARENT}-more");
        let upper = PARENT.to_ascii_uppercase();
        for header in [None, Some(""), Some("00"), Some(zeros), Some(&more), Some(&upper), Some("ff-1-1-01"), Some("é")]
        {
            let trace = Trace::of(header, || 0).unwrap();
            assert_eq!(trace.parent, 0, "{header:?}");
            assert!(trace.trace_id != 0 && trace.span_id != 0, "never an id of zeros");
        }
    }
}
