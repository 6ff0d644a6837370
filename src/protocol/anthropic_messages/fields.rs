//! Members of JSON objects, read leniently and without copying.
//!
//! In: JSON text. Out: one object's members as raw slices ([`Raw`]), and the few questions that the dialect asks of one: is
//! it filled, is it a word, is it a count. Why raw: a relay must not fail on a member it has no use for, whatever its type;
//! nothing is unescaped unless it is looked at, so a lone surrogate inside text (half an emoji, cut by a delta) is no error;
//! and a 16 MiB delta costs a scan, not a copy. `null` reads as absent everywhere: providers write both.
//! Deliberately not here: what any member means.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error as _, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// One member as written, without the white space around it. `None`: absent or `null`.
pub(super) type Raw<'a> = Option<&'a RawValue>;

/// Reads `T`, a struct of [`Raw`] members. `None` where the value is not an object or names one of `T`'s members twice.
pub(super) fn object<'a, T: Deserialize<'a>>(raw: &'a RawValue) -> Option<T> {
    // serde also takes an array for a struct, by position; no provider means that.
    if !raw.get().starts_with('{') {
        return None;
    }
    serde_json::from_str(raw.get()).ok()
}

/// Something is in it: not `""`, `[]`, `{}` (with white space inside counts as filled: visible is the safe guess).
pub(super) fn filled(raw: Raw<'_>) -> bool {
    raw.is_some_and(|raw| !matches!(raw.get(), "\"\"" | "[]" | "{}"))
}

/// A string's value; borrowed where it has no escapes. `None` for other types and for what is not Unicode (lone surrogates).
pub(super) fn word(raw: Raw<'_>) -> Option<Cow<'_, str>> {
    let text = raw?.get();
    let inner = text.strip_prefix('"')?.strip_suffix('"')?;
    if inner.contains('\\') { serde_json::from_str(text).ok().map(Cow::Owned) } else { Some(Cow::Borrowed(inner)) }
}

/// Bytes of a string as written, quotes left out, escapes counted as they stand: good enough for an estimate. 0 for other types.
pub(super) fn text_bytes(raw: Raw<'_>) -> u64 {
    raw.filter(|raw| raw.get().starts_with('"')).map_or(0, |raw| size(raw.get()).saturating_sub(2))
}

/// Bytes of a value as written.
pub(super) fn size(text: &str) -> u64 {
    u64::try_from(text.len()).unwrap_or(u64::MAX)
}

/// A whole number, not negative; `12.0` counts as 12 (some gateways write all numbers as floats).
pub(super) fn count(raw: Raw<'_>) -> Option<u64> {
    let text = raw?.get();
    text.parse().ok().or_else(|| text.strip_suffix(".0")?.parse().ok())
}

/// The value is an array.
pub(super) fn is_array(raw: Raw<'_>) -> bool {
    raw.is_some_and(|raw| raw.get().starts_with('['))
}

/// At most `bytes_max` bytes of `text`, cut between characters.
pub(super) fn cut(text: &str, bytes_max: usize) -> &str {
    if text.len() <= bytes_max {
        return text;
    }
    let end = (0..=bytes_max).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    text.get(..end).unwrap_or_default()
}

/// Calls `visit` for each item of an array, one at a time (an array of millions is never collected); stops at its first error.
/// Returns false where the value is not an array.
///
/// # Errors
/// What `visit` returned.
pub(super) fn each<'a, E>(
    array: &'a RawValue,
    mut visit: impl FnMut(&'a RawValue) -> Result<(), E>,
) -> Result<bool, E> {
    struct Items<'f, F, E> {
        visit: &'f mut F,
        stopped: &'f mut Option<E>,
    }

    impl<'de, F: FnMut(&'de RawValue) -> Result<(), E>, E> Visitor<'de> for Items<'_, F, E> {
        type Value = ();

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an array")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
            while let Some(item) = seq.next_element()? {
                if let Err(error) = (self.visit)(item) {
                    *self.stopped = Some(error);
                    return Err(A::Error::custom("stopped by the visitor"));
                }
            }
            Ok(())
        }
    }

    impl<'de, F: FnMut(&'de RawValue) -> Result<(), E>, E> DeserializeSeed<'de> for Items<'_, F, E> {
        type Value = ();

        fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
            deserializer.deserialize_seq(self)
        }
    }

    let mut stopped = None;
    let mut json = serde_json::Deserializer::from_str(array.get());
    let read = Items { visit: &mut visit, stopped: &mut stopped }.deserialize(&mut json);
    match stopped {
        Some(error) => Err(error),
        None => Ok(read.is_ok()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Deserialize)]
    struct One<'a> {
        #[serde(borrow)]
        m: Raw<'a>,
    }

    fn with<T>(value: &str, ask: impl Fn(Raw<'_>) -> T) -> T {
        let text = format!("{{ \"other\":[1,{{\"m\":0}}], \"m\" : {value} }}");
        ask(serde_json::from_str::<One<'_>>(&text).unwrap().m)
    }

    #[test]
    fn filled_words_counts() {
        for (value, is_filled, a_word, a_count, bytes) in [
            ("null", false, None, None, 0),
            ("\"\"", false, Some(""), None, 0),
            ("[]", false, None, None, 0),
            ("{}", false, None, None, 0),
            ("0", true, None, Some(0), 0),
            ("12", true, None, Some(12), 0),
            ("12.0", true, None, Some(12), 0),
            ("12.5", true, None, None, 0),
            ("-1", true, None, None, 0),
            ("18446744073709551616", true, None, None, 0),
            ("\" \"", true, Some(" "), None, 1),
            ("\"a\\u0062\"", true, Some("ab"), None, 7),
            ("\"\\ud83d\"", true, None, None, 6),
            ("\"\\\"\"", true, Some("\""), None, 2),
            ("[0]", true, None, None, 0),
            ("false", true, None, None, 0),
        ] {
            assert_eq!(with(value, filled), is_filled, "{value}");
            assert_eq!(with(value, |raw| word(raw).map(Cow::into_owned)).as_deref(), a_word, "{value}");
            assert_eq!(with(value, count), a_count, "{value}");
            assert_eq!(with(value, text_bytes), bytes, "{value}");
        }
    }

    #[test]
    fn absent_is_null_and_twice_is_refused() {
        assert!(serde_json::from_str::<One<'_>>("{}").unwrap().m.is_none());
        let raw = |text: &str| RawValue::from_string(text.to_owned()).unwrap();
        assert!(object::<One<'_>>(&raw("{\"m\":1,\"m\":2}")).is_none());
        assert!(object::<One<'_>>(&raw("[1]")).is_none());
        assert!(object::<One<'_>>(&raw("\"m\"")).is_none());
    }

    #[test]
    fn each_visits_in_order_and_stops() {
        let raw = RawValue::from_string("[1, \"b\" ,[3],{\"d\":4}]".to_owned()).unwrap();
        let mut seen = Vec::new();
        let all = each::<()>(&raw, |item| {
            seen.push(item.get());
            Ok(())
        });
        assert_eq!(all, Ok(true));
        assert_eq!(seen, ["1", "\"b\"", "[3]", "{\"d\":4}"]);
        let mut left = 2;
        let stop = each(&raw, |item| {
            left -= 1;
            if left == 0 { Err(item.get()) } else { Ok(()) }
        });
        assert_eq!(stop, Err("\"b\""));
        let not = RawValue::from_string("{\"a\":1}".to_owned()).unwrap();
        assert_eq!(each::<()>(&not, |_| Ok(())), Ok(false));
    }

    #[test]
    fn cut_keeps_characters_whole() {
        assert_eq!(cut("ab", 8), "ab");
        assert_eq!(cut("aéb", 2), "a");
        assert_eq!(cut("aéb", 3), "aé");
    }
}
