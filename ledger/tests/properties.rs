//! Properties over random documents, numbers and bytes. The model below keeps a document as plain Rust data with exact
//! decimals and can write it in many spellings; it shares no code with the crate.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests; clippy exempts only the test functions themselves"
)]

use std::collections::BTreeMap;

use proptest::prelude::*;
use rubicon_ledger::{
    Arguments, Canonical, MAX_BYTES, MAX_DIFFERENCES, MAX_POINTER_BYTES, Projection, Refusal, differs,
};

/// `digits × 10^exponent`, the digits as text (leading and trailing zeros allowed).
#[derive(Debug, Clone)]
struct Decimal {
    negative: bool,
    digits: String,
    exponent: i32,
}

#[derive(Debug, Clone)]
enum Model {
    Null,
    Bool(bool),
    Number(Decimal),
    Text(String),
    List(Vec<Model>),
    Map(BTreeMap<String, Model>),
}

/// A small generator for spellings, so that one seed is one spelling.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        // Knuth's MMIX multiplier; the high bits are good enough to vary spellings.
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % sides
    }
}

impl Decimal {
    /// The value alone: sign, digits without zeros at the ends, exponent.
    fn normal(&self) -> (bool, String, i64) {
        let digits = self.digits.trim_start_matches('0');
        let stripped = digits.trim_end_matches('0');
        if stripped.is_empty() {
            return (false, String::new(), 0);
        }
        (self.negative, stripped.to_owned(), i64::from(self.exponent) + (digits.len() - stripped.len()) as i64)
    }

    fn spell(&self, dice: &mut Dice) -> String {
        let (_, mut digits, mut exponent) = self.normal();
        if digits.is_empty() {
            digits.push('0');
        }
        for _ in 0..dice.roll(4) {
            digits.push('0');
            exponent -= 1;
        }
        let before = 1 + dice.roll(digits.len() as u64) as usize;
        let (whole, fraction) = digits.split_at(before);
        exponent += fraction.len() as i64;
        let sign = if self.negative { "-" } else { "" };
        let mut text = if dice.roll(3) == 0 || (whole.len() > 1 && whole.starts_with('0')) {
            exponent += whole.len() as i64;
            format!("{sign}0.{whole}{fraction}")
        } else if fraction.is_empty() {
            format!("{sign}{whole}")
        } else {
            format!("{sign}{whole}.{fraction}")
        };
        let e = if dice.roll(2) == 0 { 'e' } else { 'E' };
        match (exponent, dice.roll(3)) {
            (0, 0 | 1) => {}
            (_, 0) if exponent >= 0 => text += &format!("{e}+{exponent}"),
            (_, 1) if exponent >= 0 => text += &format!("{e}00{exponent}"),
            _ => text += &format!("{e}{exponent}"),
        }
        text
    }
}

impl Model {
    fn spell(&self, dice: &mut Dice, out: &mut String) {
        space(dice, out);
        match self {
            Self::Null => out.push_str("null"),
            Self::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
            Self::Number(number) => out.push_str(&number.spell(dice)),
            Self::Text(text) => spell_text(text, dice, out),
            Self::List(items) => {
                out.push('[');
                for (at, item) in items.iter().enumerate() {
                    if at > 0 {
                        out.push(',');
                    }
                    item.spell(dice, out);
                }
                out.push(']');
            }
            Self::Map(members) => {
                let mut members: Vec<_> = members.iter().collect();
                for at in (1..members.len()).rev() {
                    members.swap(at, dice.roll(at as u64 + 1) as usize);
                }
                out.push('{');
                for (at, (name, value)) in members.into_iter().enumerate() {
                    if at > 0 {
                        out.push(',');
                    }
                    space(dice, out);
                    spell_text(name, dice, out);
                    space(dice, out);
                    out.push(':');
                    value.spell(dice, out);
                }
                out.push('}');
            }
        }
        space(dice, out);
    }

    fn spelled(&self, seed: u64) -> String {
        let mut out = String::new();
        self.spell(&mut Dice(seed), &mut out);
        out
    }

    /// How many values there are, this one included.
    fn count(&self) -> usize {
        match self {
            Self::List(items) => 1 + items.iter().map(Self::count).sum::<usize>(),
            Self::Map(members) => 1 + members.values().map(Self::count).sum::<usize>(),
            _ => 1,
        }
    }

    /// Changes the `at`-th value (depth first) to a different one of the same or another type.
    fn mutate(&mut self, at: usize, dice: &mut Dice) {
        if at == 0 {
            match self {
                Self::Null => *self = Self::Bool(false),
                Self::Bool(value) if dice.roll(2) == 0 => *value = !*value,
                Self::Bool(_) => *self = Self::Null,
                Self::Number(number) if dice.roll(2) == 0 => {
                    // One more digit at the far end: the smallest change there is.
                    number.digits.push('1');
                    number.exponent -= 1;
                }
                Self::Number(number) => *self = Self::Text(number.digits.clone()),
                Self::Text(text) => text.push(if dice.roll(2) == 0 { ' ' } else { '\u{301}' }),
                Self::List(items) => items.push(Self::Null),
                Self::Map(members) => {
                    let fresh = (0..).map(|n| format!("new{n}")).find(|name| !members.contains_key(name));
                    members.insert(fresh.unwrap(), Self::Null);
                }
            }
            return;
        }
        let mut left = at - 1;
        let children: Vec<&mut Self> = match self {
            Self::List(items) => items.iter_mut().collect(),
            Self::Map(members) => members.values_mut().collect(),
            _ => Vec::new(),
        };
        for child in children {
            if left < child.count() {
                return child.mutate(left, dice);
            }
            left -= child.count();
        }
    }
}

fn space(dice: &mut Dice, out: &mut String) {
    for _ in 0..dice.roll(6).saturating_sub(3) {
        out.push([' ', '\t', '\n', '\r'][dice.roll(4) as usize]);
    }
}

fn spell_text(text: &str, dice: &mut Dice, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        if dice.roll(4) == 0 || c < ' ' || c == '"' || c == '\\' {
            for unit in c.encode_utf16(&mut [0; 2]) {
                let hex = format!("\\u{unit:04x}");
                out.push_str(&if dice.roll(2) == 0 { hex.to_uppercase().replace("\\U", "\\u") } else { hex });
            }
        } else {
            out.push(c);
        }
    }
    out.push('"');
}

fn decimal() -> impl Strategy<Value = Decimal> {
    let digits = prop_oneof!["[0-9]{1,4}", "[0-9]{15,25}", "[0-9]{1,60}"];
    let exponent = prop_oneof![Just(0), -30..30_i32, -5000..5000_i32];
    (any::<bool>(), digits, exponent).prop_map(|(negative, digits, exponent)| Decimal { negative, digits, exponent })
}

fn text() -> impl Strategy<Value = String> {
    // Few letters for near misses; controls, accents and both sides of the UTF-16 trap.
    prop_oneof!["[ab~/0 ]{0,4}", "[\u{0}-\u{ff}]{0,6}", "[a\u{e000}\u{fb33}\u{ffff}\u{10000}😀\u{d7ff}]{0,4}", ".{0,8}"]
}

fn model() -> impl Strategy<Value = Model> {
    let leaf = prop_oneof![
        Just(Model::Null),
        any::<bool>().prop_map(Model::Bool),
        decimal().prop_map(Model::Number),
        text().prop_map(Model::Text),
    ];
    leaf.prop_recursive(4, 40, 6, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..6).prop_map(Model::List),
            proptest::collection::btree_map(text(), inner, 0..6).prop_map(Model::Map),
        ]
    })
}

fn arguments() -> impl Strategy<Value = Model> {
    proptest::collection::btree_map(text(), model(), 0..5).prop_map(Model::Map)
}

fn parse(text: &str) -> Canonical {
    Canonical::parse(text.as_bytes()).unwrap_or_else(|refused| panic!("{text}: {refused}"))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases.max(512), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_spelling_of_a_document_is_one_text(model in model(), one: u64, other: u64) {
        let (a, b) = (parse(&model.spelled(one)), parse(&model.spelled(other)));
        prop_assert_eq!(&a, &b);
        prop_assert!(differs(&a, &b).pointers.is_empty());
        let again = parse(a.as_str());
        prop_assert_eq!(again.as_str(), a.as_str());
        // An independent reader takes the text for JSON.
        prop_assert!(serde_json::from_str::<serde::de::IgnoredAny>(a.as_str()).is_ok());
    }

    #[test]
    fn any_change_of_a_value_changes_the_fingerprint(model in arguments(), at: prop::sample::Index, seed: u64) {
        let rule = Projection::default();
        let read = |model: &Model| rule.apply(&Arguments::parse(model.spelled(seed).as_bytes()).unwrap()).unwrap();
        let before = read(&model);
        let mut changed = model.clone();
        changed.mutate(at.index(model.count()), &mut Dice(seed));
        let after = read(&changed);
        prop_assert_ne!(before.fingerprint, after.fingerprint);
        prop_assert_ne!(before.slot, after.slot);
        let list = differs(&before.canonical, &after.canonical);
        prop_assert_eq!((list.pointers.len(), list.complete), (1, true), "one change is one pointer");
        let pointer = &list.pointers[0];
        prop_assert_ne!(before.canonical.get(pointer), after.canonical.get(pointer));
    }

    #[test]
    fn numbers_collide_if_and_only_if_their_values_are_equal(a in decimal(), b in decimal(), one: u64, other: u64) {
        let (x, y) = (parse(&a.spell(&mut Dice(one))), parse(&b.spell(&mut Dice(other))));
        prop_assert_eq!(x == y, a.normal() == b.normal(), "{} {}", x.as_str(), y.as_str());
    }

    /// Neighbours: same digits but for one place, or moved by a power of ten.
    #[test]
    fn neighbouring_numbers_never_collide(a in decimal(), place: prop::sample::Index, up: bool, shift in -2..=2_i32) {
        let mut b = a.clone();
        let at = place.index(b.digits.len());
        let digit = b.digits.as_bytes()[at] - b'0';
        let other = if up { (digit + 1) % 10 } else { (digit + 9) % 10 };
        b.digits.replace_range(at..=at, &other.to_string());
        b.exponent += shift;
        let (x, y) = (parse(&a.spell(&mut Dice(1))), parse(&b.spell(&mut Dice(2))));
        prop_assert_eq!(x == y, a.normal() == b.normal(), "{} {}", x.as_str(), y.as_str());
    }

    #[test]
    fn doubles_read_back_from_the_canonical_text(bits: u64) {
        let double = f64::from_bits(bits);
        prop_assume!(double.is_finite());
        let text = parse(&format!("{double:?}"));
        prop_assert_eq!(text.as_str().parse::<f64>().unwrap(), double);
    }

    #[test]
    fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        agrees_with_serde_json(&bytes)?;
    }

    #[test]
    fn random_json_like_bytes_never_panic(text in r#"[\[\]{}:,"\\u0-9aeE+.\- dDntrfls/]{0,24}"#) {
        agrees_with_serde_json(text.as_bytes())?;
    }

    #[test]
    fn damaged_documents_never_panic(
        model in model(), seed: u64, at: prop::sample::Index, byte: u8, cut: prop::sample::Index, how in 0..3_u8,
    ) {
        let mut bytes = model.spelled(seed).into_bytes();
        let at = at.index(bytes.len());
        match how {
            0 => bytes[at] = byte,
            1 => bytes.insert(at, byte),
            _ => bytes.truncate(cut.index(bytes.len())),
        }
        agrees_with_serde_json(&bytes)?;
    }
}

/// What is accepted is JSON for serde_json too and reads back unchanged; what only serde_json accepts is one of the
/// things that are refused on purpose.
fn agrees_with_serde_json(bytes: &[u8]) -> Result<(), TestCaseError> {
    let theirs = serde_json::from_slice::<serde::de::IgnoredAny>(bytes).is_ok();
    match Canonical::parse(bytes) {
        Ok(canonical) => {
            prop_assert!(theirs, "accepted here only: {:?}", String::from_utf8_lossy(bytes));
            prop_assert_eq!(Canonical::parse(canonical.as_bytes()), Ok(canonical));
        }
        Err(refused) => {
            prop_assert!(refused.pointer.to_string().len() <= MAX_POINTER_BYTES);
            let on_purpose = matches!(
                refused.kind,
                Refusal::DuplicateName
                    | Refusal::LoneSurrogate
                    | Refusal::InvalidUtf8
                    | Refusal::NumberOutOfRange
                    | Refusal::NumberTooLong
            );
            prop_assert!(!theirs || on_purpose, "{}: {:?}", refused, String::from_utf8_lossy(bytes));
        }
    }
    Ok(())
}

/// Each shape at the size limit. Quadratic work would be some 10^12 steps, hours; linear work is well under a second even
/// in a debug build, so the bound is loose enough for a busy machine.
#[test]
#[expect(clippy::disallowed_methods, reason = "a test that measures real time")]
fn the_largest_documents_of_every_shape_take_linear_time() {
    let fill = |open: &str, item: &str, close: &str| {
        let count = (MAX_BYTES - open.len() - close.len()) / item.len();
        format!("{open}{}{close}", item.repeat(count))
    };
    let members = |name: &dyn Fn(usize) -> String, count: usize| {
        let list: Vec<String> = (0..count).map(|n| format!("\"{}\":0", name(n))).collect();
        format!("{{{}}}", list.join(","))
    };
    let prefix = "p".repeat(1000);
    let rows: Vec<(&str, String, Option<Refusal>)> = vec![
        ("zeros", fill("[", "0,", "0]"), None),
        ("empty arrays", fill("[", "[],", "0]"), None),
        ("empty objects", fill("[", "{},", "0]"), None),
        ("many members", members(&|n| format!("{n:x}"), 90_000), None),
        ("many members backwards", members(&|n| format!("{:x}", 90_000 - n), 90_000), None),
        ("long shared prefixes", members(&|n| format!("{prefix}{n}"), 1000), None),
        ("one name", fill("{", "\"\":0,", "\"\":0}"), Some(Refusal::DuplicateName)),
        ("open brackets", fill("", "[", ""), Some(Refusal::TooDeep)),
        ("open objects", fill("", "{\"\":", ""), Some(Refusal::TooDeep)),
        ("wide at the deepest", fill(&"[".repeat(64), "0,", &format!("0{}", "]".repeat(64))), None),
        ("unicode escapes", fill("\"", "\\u0041", "\""), None),
        ("surrogate pairs", fill("\"", "\\ud83d\\ude00", "\""), None),
        ("short escapes", fill("\"", "\\n", "\""), None),
        ("characters of three bytes", fill("\"", "€", "\""), None),
        ("no end of string", fill("\"", "a", ""), Some(Refusal::Truncated)),
        ("only white space", fill("", " ", ""), Some(Refusal::Truncated)),
        ("digits", fill("", "7", ""), Some(Refusal::NumberTooLong)),
        ("zeros behind", fill("1.", "0", ""), None),
        ("zeros before", fill("0.", "0", "1"), Some(Refusal::NumberOutOfRange)),
        ("exponent", fill("1e", "9", ""), Some(Refusal::NumberOutOfRange)),
        ("exponent zeros", fill("1e", "0", "1"), None),
        ("numbers of the longest kind", fill("[", &format!("0.{},", "7".repeat(1024)), "0]"), None),
        ("numbers that grow", fill("[", "1e20,", "0]"), Some(Refusal::TooLarge)),
    ];
    for (shape, text, refusal) in rows {
        assert!(text.len() <= MAX_BYTES, "{shape}");
        let start = std::time::Instant::now();
        let result = Canonical::parse(text.as_bytes());
        assert_eq!(result.as_ref().err().map(|refused| refused.kind), refusal, "{shape}");
        if let Ok(canonical) = result {
            let other = Canonical::parse(text.replace(":0,", ":1,").replace(",0,", ",1,").as_bytes());
            assert!(other.is_ok_and(|other| differs(&canonical, &other).pointers.len() <= MAX_DIFFERENCES), "{shape}");
        }
        assert!(start.elapsed().as_secs() < 20, "{shape} took {:?}", start.elapsed());
    }
}

#[test]
fn the_list_of_differences_is_bounded_and_says_so() {
    let list = |fill: u8, count: usize| parse(&format!("[{}]", vec![fill.to_string(); count].join(",")));
    let full = differs(&list(1, MAX_DIFFERENCES), &list(2, MAX_DIFFERENCES));
    assert_eq!((full.pointers.len(), full.complete), (MAX_DIFFERENCES, true));
    let cut = differs(&list(1, MAX_DIFFERENCES + 1), &list(2, MAX_DIFFERENCES + 1));
    assert_eq!((cut.pointers, cut.complete), (full.pointers, false));
    // Two differences below a name that is too long for a pointer are one, at its object.
    let name = "n".repeat(MAX_POINTER_BYTES);
    let long = |x: u8| parse(&format!(r#"{{"o":{{"{name}":{{"a":{x},"b":{x}}}}}}}"#));
    let found = differs(&long(1), &long(2));
    assert_eq!((found.pointers, found.complete), (vec!["/o".parse().unwrap()], true));
    // Long pointers fill the list sooner.
    let names: Vec<String> = (0..40).map(|n| format!("{n:02}{}", "n".repeat(MAX_POINTER_BYTES - 3))).collect();
    let wide = |x: u8| {
        let members: Vec<String> = names.iter().map(|name| format!("\"{name}\":{x}")).collect();
        parse(&format!("{{{}}}", members.join(",")))
    };
    let found = differs(&wide(1), &wide(2));
    assert_eq!((found.pointers.len(), found.complete), (16, false));
}

#[test]
fn differences_are_the_smallest_values_that_differ() {
    let rows: &[(&str, &str, &[&str])] = &[
        ("1", "2", &[""]),
        ("{}", "[]", &[""]),
        (r#"{"a":1}"#, r#"{"a":1.0}"#, &[]),
        (r#"{"a":1}"#, r#"{"a":2}"#, &["/a"]),
        (r#"{"a":null}"#, "{}", &["/a"]),
        (r#"{"a":1,"c":1}"#, r#"{"b":1,"c":1,"d":1}"#, &["/a", "/b", "/d"]),
        (r#"{"a":{"b":[1,{"c":1}]}}"#, r#"{"a":{"b":[1,{"c":2}]}}"#, &["/a/b/1/c"]),
        (r#"{"l":[1,2,3]}"#, r#"{"l":[1,9]}"#, &["/l/1", "/l/2"]),
        (r#"{"a/b":1,"m~n":1}"#, r#"{"a/b":2,"m~n":2}"#, &["/a~1b", "/m~0n"]),
        (r#"{"a":{"b":1}}"#, r#"{"a":1}"#, &["/a"]),
    ];
    for (a, b, expected) in rows {
        for (a, b) in [(a, b), (b, a)] {
            let list = differs(&parse(a), &parse(b));
            let found: Vec<String> = list.pointers.iter().map(ToString::to_string).collect();
            assert_eq!((found, list.complete), (expected.iter().map(ToString::to_string).collect(), true), "{a} {b}");
        }
    }
}
