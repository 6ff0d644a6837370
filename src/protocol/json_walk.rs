//! Looking into JSON that is already known to be valid, without building anything.
//!
//! In: the text of one JSON value ([`valid`] proves that it is one). Out: its members, elements or leaves, as slices of the text.
//! Why not serde types or a `Value`: a reader looks at every event of every stream and needs three or four members of it, must
//! see *every* name (an unknown one may be visible), must take any type anywhere without failing, and must not fail at a lone
//! surrogate (`"\ud83d"` in one event, `"\ude00"` in the next: FIELD_CASES F41). Nothing here allocates, save
//! [`walk`]'s path, or recurses; text that is not valid JSON after all yields less, never a panic. Names are compared as
//! written: in a provider's answer one with escapes in it is simply a name that is not known; a request, whose writer may want a
//! name not to be known, goes through [`plain_names`] first. Deliberately not here: what a member means.

use std::borrow::Cow;

use memchr::memchr2;
use serde_json::value::RawValue;

/// Steps of a path that [`walk`] keeps. Messages, parts and their innards use six; below it leaves are still visited, with the
/// path of the 24th level.
pub const DEPTH_MAX: usize = 24;

/// The step of a path that stands for any element of an array.
pub const ELEMENT: &str = "[]";

/// `data` as text without the white space around it, if it is exactly one JSON value in UTF-8.
pub fn valid(data: &[u8]) -> Option<&str> {
    serde_json::from_slice::<&RawValue>(data).ok().map(RawValue::get)
}

/// The members of an object, in order: name as written (without quotes) and value. Nothing for any other value.
pub fn members(json: &str) -> impl Iterator<Item = (&str, &str)> {
    Items::of(json, b'{')
}

/// The elements of an array, in order. Nothing for any other value.
pub fn elements(json: &str) -> impl Iterator<Item = &str> {
    Items::of(json, b'[').map(|(_, value)| value)
}

/// The last member called `name`, of an object.
pub fn member<'a>(json: &'a str, name: &str) -> Option<&'a str> {
    members(json).filter(|(each, _)| *each == name).map(|(_, value)| value).last()
}

/// Whether there is nothing in it: `null`, `""`, and arrays and objects with nothing but such leaves. Numbers and booleans
/// are something.
pub fn is_empty(json: &str) -> bool {
    Tokens { json, at: 0 }.all(|token| !matches!(token, Token::Leaf(leaf) if leaf != "null" && leaf != "\"\""))
}

/// A string's content, unescaped; as written where an escape stands for half a character. `None` for any other value.
pub fn text(json: &str) -> Option<Cow<'_, str>> {
    let inner = json.strip_prefix('"')?.strip_suffix('"')?;
    if memchr::memchr(b'\\', inner.as_bytes()).is_none() {
        return Some(Cow::Borrowed(inner));
    }
    Some(serde_json::from_str::<String>(json).map_or(Cow::Borrowed(inner), Cow::Owned))
}

/// Bytes of a string's content in UTF-8 once unescaped (a half of a surrogate pair counts as two); 0 for any other value.
pub fn text_bytes(json: &str) -> u64 {
    let Some(inner) = json.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) else { return 0 };
    let bytes = inner.as_bytes();
    let (mut count, mut at) = (bytes.len(), 0);
    while let Some(found) = bytes.get(at..).and_then(|rest| memchr::memchr(b'\\', rest)) {
        let escape = at + found;
        let (written, meant) = match bytes.get(escape + 1) {
            Some(b'u') => (6, inner.get(escape + 2..escape + 6).map_or(1, code_unit_bytes)),
            _ => (2, 1),
        };
        count = count.saturating_sub(written - meant);
        at = escape + written;
    }
    count as u64
}

/// UTF-8 bytes of the code unit written as four hex digits.
fn code_unit_bytes(hex: &str) -> usize {
    match u16::from_str_radix(hex, 16) {
        Ok(0..=0x7f) => 1,
        Ok(0x80..=0x7ff | 0xd800..=0xdfff) => 2,
        _ => 3,
    }
}

/// Visits every leaf (string, number, boolean, null; raw, as written) in order, with the path to it: names as written, and
/// [`ELEMENT`] for arrays.
pub fn walk<'a>(json: &'a str, mut visit: impl FnMut(&[&'a str], &'a str)) {
    let mut path: Vec<&'a str> = Vec::with_capacity(DEPTH_MAX);
    let mut below = 0_usize;
    for token in (Tokens { json, at: 0 }) {
        match token {
            Token::Open if path.len() == DEPTH_MAX => below += 1,
            Token::Open => path.push(ELEMENT),
            Token::Close if below > 0 => below -= 1,
            Token::Close => drop(path.pop()),
            Token::Name(name) if below == 0 => {
                if let Some(step) = path.last_mut() {
                    *step = name;
                }
            }
            Token::Name(_) => {}
            Token::Leaf(leaf) => visit(&path, leaf),
        }
    }
}

/// The text with every name, at any depth, written without escapes, and those that spell one of `known` in other letters
/// ([`spelt_as`]) written as it. Values stay. Borrowed, as almost always, where nothing had to change; a name that can't do without escapes
/// stays as it is.
pub fn plain_names<'a>(json: &'a str, known: &[&str]) -> Cow<'a, str> {
    let mut tokens = Tokens { json, at: 0 };
    let (mut out, mut copied) = (String::new(), 0);
    while let Some(token) = tokens.next() {
        let Token::Name(name) = token else { continue };
        let Some(plain) = plain_name(name, known) else { continue };
        // The tokens stand just past the name's closing quote.
        let end = tokens.at.saturating_sub(1);
        out.push_str(json.get(copied..end.saturating_sub(name.len())).unwrap_or_default());
        out.push_str(&plain);
        copied = end;
    }
    if copied == 0 {
        return Cow::Borrowed(json);
    }
    out.push_str(json.get(copied..).unwrap_or_default());
    Cow::Owned(out)
}

/// What to write for `name`, if anything else than `name`.
fn plain_name(name: &str, known: &[&str]) -> Option<String> {
    if !name.bytes().any(|b| b == b'\\' || b.is_ascii_uppercase() || !b.is_ascii()) {
        return None;
    }
    let meant: Cow<'_, str> = if name.contains('\\') {
        Cow::Owned(serde_json::from_str(&format!("\"{name}\"")).ok()?)
    } else {
        Cow::Borrowed(name)
    };
    let plain = known.iter().find(|known| spelt_as(known, &meant)).map_or(&*meant, |known| known);
    let needs_escapes = |c: char| c < ' ' || matches!(c, '"' | '\\');
    (plain != name && !plain.contains(needs_escapes)).then(|| plain.to_owned())
}

/// Whether `name` is `known` (ASCII) in any letters, as Go's `encoding/json` compares: without case, and with the two letters of
/// Unicode that fold into ASCII.
pub fn spelt_as(known: &str, name: &str) -> bool {
    let folded = name.chars().map(|c| match c {
        '\u{17f}' => 's',
        '\u{212a}' => 'k',
        c => c.to_ascii_lowercase(),
    });
    folded.eq(known.chars().map(|c| c.to_ascii_lowercase()))
}

enum Token<'a> {
    Open,
    Close,
    Name(&'a str),
    Leaf(&'a str),
}

struct Tokens<'a> {
    json: &'a str,
    at: usize,
}

impl<'a> Iterator for Tokens<'a> {
    type Item = Token<'a>;

    fn next(&mut self) -> Option<Token<'a>> {
        let bytes = self.json.as_bytes();
        let start = past_blanks(bytes, self.at);
        match bytes.get(start)? {
            b'{' | b'[' => {
                self.at = start + 1;
                Some(Token::Open)
            }
            b'}' | b']' => {
                self.at = start + 1;
                Some(Token::Close)
            }
            _ => {
                let end = value_end(bytes, start);
                self.at = end;
                let value = self.json.get(start..end)?;
                let colon = past_white(bytes, end);
                if value.starts_with('"') && bytes.get(colon) == Some(&b':') {
                    return value.get(1..value.len() - 1).map(Token::Name);
                }
                Some(Token::Leaf(value))
            }
        }
    }
}

struct Items<'a> {
    json: &'a str,
    at: usize,
    named: bool,
}

impl<'a> Items<'a> {
    fn of(json: &'a str, open: u8) -> Self {
        let start = past_white(json.as_bytes(), 0);
        let at = if json.as_bytes().get(start) == Some(&open) { start + 1 } else { json.len() };
        Self { json, at, named: open == b'{' }
    }
}

impl<'a> Iterator for Items<'a> {
    type Item = (&'a str, &'a str);

    fn next(&mut self) -> Option<Self::Item> {
        let bytes = self.json.as_bytes();
        let mut start = past_blanks(bytes, self.at);
        let mut name = "";
        if self.named && bytes.get(start) == Some(&b'"') {
            let end = string_end(bytes, start);
            name = self.json.get(start + 1..end.saturating_sub(1))?;
            start = past_blanks(bytes, end);
        }
        if matches!(bytes.get(start)?, b'}' | b']') {
            return None;
        }
        let end = value_end(bytes, start);
        self.at = end;
        Some((name, self.json.get(start..end)?))
    }
}

fn past_white(bytes: &[u8], mut at: usize) -> usize {
    while matches!(bytes.get(at), Some(b' ' | b'\t' | b'\r' | b'\n')) {
        at += 1;
    }
    at
}

/// Past white space and the marks between values.
fn past_blanks(bytes: &[u8], mut at: usize) -> usize {
    while matches!(bytes.get(at), Some(b' ' | b'\t' | b'\r' | b'\n' | b',' | b':')) {
        at += 1;
    }
    at
}

/// Just past the string that begins at `at`.
fn string_end(bytes: &[u8], at: usize) -> usize {
    let mut from = at + 1;
    while let Some(found) = bytes.get(from..).and_then(|rest| memchr2(b'"', b'\\', rest)) {
        if bytes.get(from + found) == Some(&b'"') {
            return from + found + 1;
        }
        from += found + 2;
    }
    bytes.len()
}

/// Just past the value that begins at `at`; always further than `at`.
fn value_end(bytes: &[u8], at: usize) -> usize {
    match bytes.get(at) {
        Some(b'"') => string_end(bytes, at),
        Some(b'{' | b'[') => {
            let (mut depth, mut from) = (0_usize, at);
            while let Some(byte) = bytes.get(from) {
                match byte {
                    b'"' => {
                        from = string_end(bytes, from);
                        continue;
                    }
                    b'{' | b'[' => depth += 1,
                    b'}' | b']' => {
                        depth -= 1;
                        if depth == 0 {
                            return from + 1;
                        }
                    }
                    _ => {}
                }
                from += 1;
            }
            bytes.len()
        }
        _ => {
            let rest = bytes.get(at + 1..).unwrap_or_default();
            let ends = |b: &u8| matches!(b, b',' | b':' | b'}' | b']' | b' ' | b'\t' | b'\r' | b'\n' | b'"');
            at + 1 + rest.iter().position(ends).unwrap_or(rest.len())
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    #[test]
    fn members_and_elements_are_slices_in_order() {
        let json = " {\"a\" : {\"x\":\"}\"} , \"b\\\"\":[1 ,\"],\" , {}],\"a\":-1.5e3,\"\": true }";
        let all: Vec<_> = members(json).collect();
        assert_eq!(all, [("a", "{\"x\":\"}\"}"), ("b\\\"", "[1 ,\"],\" , {}]"), ("a", "-1.5e3"), ("", "true")]);
        assert_eq!(elements(all[1].1).collect::<Vec<_>>(), ["1", "\"],\"", "{}"]);
        assert_eq!(member(json, "a"), Some("-1.5e3"));
        assert_eq!(member(json, "c"), None);
        for other in ["[]", "{}", "null", "\"{}\"", "7", ""] {
            assert_eq!(members(other).count() + elements(other).count(), 0, "{other}");
        }
        assert_eq!(members("[1]").count() + elements("{\"a\":1}").count(), 0);
    }

    #[test]
    fn emptiness_looks_all_the_way_down() {
        for nothing in ["null", "\"\"", "[]", "{}", "[null]", "{\"a\":null,\"b\":{\"c\":[\"\"]}}", " [ ] "] {
            assert!(is_empty(nothing), "{nothing}");
        }
        for something in ["0", "false", "\" \"", "[0]", "{\"a\":{\"b\":\"x\"}}", "\"null\"", "[[],\"a\"]"] {
            assert!(!is_empty(something), "{something}");
        }
    }

    #[test]
    fn texts_and_their_length() {
        for (json, meant, bytes) in [
            ("\"\"", "", 0),
            ("\"aé\"", "aé", 3),
            ("\"a\\n\\\"\\\\\"", "a\n\"\\", 4),
            ("\"\\u0041\\u00e9\\u4f60\"", "Aé你", 6),
            ("\"\\ud83d\\ude00\"", "😀", 4),
            ("\"\\ud83d\"", "\\ud83d", 2),
        ] {
            assert_eq!(text(json).as_deref(), Some(meant), "{json}");
            assert_eq!(text_bytes(json), bytes, "{json}");
        }
        assert_eq!((text("1"), text("null"), text_bytes("12")), (None, None, 0));
    }

    #[test]
    fn a_walk_gives_paths_and_stays_bounded() {
        let mut seen = Vec::new();
        walk("[{\"a\":[1,{\"b\":\"x\"}],\"c\":null},\"y\"]", |path, leaf| {
            seen.push(format!("{} {leaf}", path.join(".")))
        });
        assert_eq!(seen, ["[].a.[] 1", "[].a.[].b \"x\"", "[].c null", "[] \"y\""]);

        let deep = format!("{}\"x\"{}", "{\"k\":[".repeat(50_000), "]}".repeat(50_000));
        let mut lengths = Vec::new();
        walk(&deep, |path, _| lengths.push(path.len()));
        assert_eq!(lengths, [DEPTH_MAX]);
        let back = format!("[{deep},{{\"after\":1}}]");
        let mut last = String::new();
        walk(&back, |path, _| last = path.join("."));
        assert_eq!(last, "[].after", "coming up from below the bound finds the way back");
    }

    #[test]
    fn only_one_whole_value_is_valid() {
        assert_eq!(valid(b" \n{\"a\":\"\\ud83d\"} "), Some("{\"a\":\"\\ud83d\"}"));
        for bad in [&b""[..], b"{", b"[DONE]", b"{} {}", b"\xff", b"\"\xff\"", b"{\"a\":1}x"] {
            assert_eq!(valid(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn names_are_made_plain_and_values_are_not() {
        const KNOWN: &[&str] = &["type", "tools", "kind"];
        for (json, plain) in [
            (r#"{"t\u0079pe":"t\u0079pe"}"#, r#"{"type":"t\u0079pe"}"#),
            (r#"[{"a":{"TYPE" : "Type"}},{"Other":1}]"#, r#"[{"a":{"type" : "Type"}},{"Other":1}]"#),
            (
                r#"{"\u006fther":1,"x":["\u0054ool\u017f",{"\u212aind":2}]}"#,
                r#"{"other":1,"x":["\u0054ool\u017f",{"kind":2}]}"#,
            ),
            ("{\"tool\u{17f}\":1}", r#"{"tools":1}"#),
            (
                r#"{"a\"b":1,"a\u0022":2,"\n":3,"\ud800":4,"a\/b":5}"#,
                r#"{"a\"b":1,"a\u0022":2,"\n":3,"\ud800":4,"a/b":5}"#,
            ),
        ] {
            assert_eq!(plain_names(json, KNOWN), plain);
        }
        for same in [r#"{"type":"Type","x":{"kind":"\\"},"Unlike":1,"\u00e9\"":1}"#, "[]", "7", "", "{\"Ty", "\"Type\""]
        {
            assert!(matches!(plain_names(same, KNOWN), Cow::Borrowed(_)), "{same}");
        }
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            "[a\"\\\\{}\\[\\]:, \\n😀]{0,6}".prop_map(Value::from),
        ];
        leaf.prop_recursive(5, 64, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                prop::collection::btree_map("[a-c\"\\\\:]{0,3}", inner, 0..6)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    fn leaves(value: &Value) -> Vec<String> {
        match value {
            Value::Array(items) => items.iter().flat_map(leaves).collect(),
            Value::Object(map) => map.values().flat_map(leaves).collect(),
            other => vec![other.to_string()],
        }
    }

    /// The tree with every `a` called `A`.
    fn renamed(value: &Value) -> Value {
        let name = |name: &String| if name == "a" { "A".to_owned() } else { name.clone() };
        match value {
            Value::Array(items) => items.iter().map(renamed).collect(),
            Value::Object(map) => map.iter().map(|(key, value)| (name(key), renamed(value))).collect(),
            other => other.clone(),
        }
    }

    proptest! {
        /// serde_json's own tree is the oracle.
        #[test]
        fn agrees_with_a_parsed_tree(value in any_json(), pretty in any::<bool>()) {
            let json = if pretty { serde_json::to_string_pretty(&value).unwrap() } else { value.to_string() };
            let mut seen = Vec::new();
            walk(&json, |_, leaf| seen.push(leaf.to_owned()));
            prop_assert_eq!(seen, leaves(&value));
            // Names of the tree have no escapes but needed ones; and `A` is read as the `a` that it was.
            prop_assert_eq!(&*plain_names(&json, &["a"]), &*json);
            let renamed = renamed(&value).to_string();
            let plain: Value = serde_json::from_str(&plain_names(&renamed, &["a"])).unwrap();
            prop_assert_eq!(&plain, &value);
            match &value {
                Value::Object(map) => {
                    let ours: Vec<_> = members(&json).map(|(_, v)| serde_json::from_str::<Value>(v).unwrap()).collect();
                    prop_assert_eq!(ours, map.values().cloned().collect::<Vec<_>>());
                }
                Value::Array(items) => {
                    let ours: Vec<_> = elements(&json).map(|v| serde_json::from_str::<Value>(v).unwrap()).collect();
                    prop_assert_eq!(&ours, items);
                }
                Value::String(s) => prop_assert_eq!(text_bytes(&json), s.len() as u64),
                _ => {}
            }
        }

        /// Not valid JSON after all: less, never a panic or an endless loop.
        #[test]
        fn garbage_ends(json in "[{}\\[\\]\":,\\\\ a1é]{0,40}") {
            walk(&json, |_, _| {});
            let _ = plain_names(&json, &["a"]);
            let _ = (members(&json).count(), elements(&json).count(), is_empty(&json), text(&json), text_bytes(&json));
        }
    }
}
