//! Golden data for canonical documents: RFC 8785's published cases as our own fixtures, what must and must not collide,
//! and every refusal with its pointer. Where exact numbers part from RFC 8785, the row says so.

#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests; clippy exempts only the test functions themselves"
)]

use rubicon_ledger::{Arguments, Canonical, MAX_BYTES, MAX_DEPTH, MAX_POINTER_BYTES, Pointer, Refusal, differs};

/// The one way in for every row of this file.
#[track_caller]
fn check(input: &str, expected: &str) {
    let canonical = Canonical::parse(input.as_bytes()).unwrap_or_else(|refused| panic!("{input}: {refused}"));
    assert_eq!(canonical.as_str(), expected, "{input}");
    let again = Canonical::parse(canonical.as_bytes()).expect("a canonical text is readable");
    assert_eq!(again, canonical, "reading {expected} gives it back");
}

#[track_caller]
fn refused(input: &[u8], kind: Refusal, pointer: &str) {
    let shown = String::from_utf8_lossy(&input[..input.len().min(80)]).into_owned();
    let refused = Canonical::parse(input).map(|c| c.as_str().to_owned()).expect_err(&shown);
    assert_eq!((refused.kind, refused.pointer.to_string().as_str()), (kind, pointer), "{shown}");
    assert!(refused.offset <= input.len(), "{shown}");
}

/// RFC 8785 section 3.2.3: the order is that of UTF-16 code units, so the emoji goes before the Hebrew letter.
#[test]
fn member_order_of_the_rfc() {
    let input = "{\"\\u20ac\":\"Euro Sign\",\"\\r\":\"Carriage Return\",\"\\ufb33\":\"Hebrew Letter Dalet With Dagesh\",\
                 \"1\":\"One\",\"\\ud83d\\ude00\":\"Emoji: Grinning Face\",\"\\u0080\":\"Control\",\
                 \"\\u00f6\":\"Latin Small Letter O With Diaeresis\"}";
    check(
        input,
        "{\"\\r\":\"Carriage Return\",\"1\":\"One\",\"\u{80}\":\"Control\",\"ö\":\"Latin Small Letter O With Diaeresis\",\
         \"€\":\"Euro Sign\",\"😀\":\"Emoji: Grinning Face\",\"\u{fb33}\":\"Hebrew Letter Dalet With Dagesh\"}",
    );
}

/// RFC 8785 section 3.2.2. Its sample has `333333333.33333329`, which a double rounds to `333333333.3333333`; the exact
/// value is kept here, and this is the only place of the sample that differs.
#[test]
fn primitive_values_of_the_rfc() {
    let input = r#"{
        "numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
        "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
        "literals": [null, true, false]
    }"#;
    check(
        input,
        r#"{"literals":[null,true,false],"numbers":[333333333.33333329,1e+30,4.5,0.002,1e-27],"string":"€$\u000f\nA'B\"\\\\\"/"}"#,
    );
}

/// The classes of the RFC authors' own test files: arrays, structures, french, unicode, weird, values.
#[test]
fn cases_like_the_reference_test_files() {
    let rows = [
        // arrays: order and nesting stay, objects inside are sorted
        (r#"[56, {"d": true, "10": null, "1": [ ]}]"#, r#"[56,{"1":[],"10":null,"d":true}]"#),
        // structures: sorting goes all the way down; the empty name comes first; names sort as text, not as numbers
        (
            r#"{"1": {"f": {"f": "hi", "F": 5}, "\n": 56.0}, "10": {}, "": "empty", "a": {}, "111": [{"e": "yes", "E": "no"}], "A": {}}"#,
            r#"{"":"empty","1":{"\n":56,"f":{"F":5,"f":"hi"}},"10":{},"111":[{"E":"no","e":"yes"}],"A":{},"a":{}}"#,
        ),
        // french: accents sort by code unit, not by any locale
        (
            r#"{"peach": "la pêche", "péché": "le péché", "pêche": "l'action", "sin": 1}"#,
            r#"{"peach":"la pêche","péché":"le péché","pêche":"l'action","sin":1}"#,
        ),
        // unicode: no normalization
        ("{\"Unnormalized\":\"A\\u030a\"}", "{\"Unnormalized\":\"A\u{30a}\"}"),
        // weird: markup, controls, surrogate pairs
        (
            r#"{"</script>": "\u003c", "\ud83d\ude02": "\u007f", "\u0080": "\u0000\u001F", "\ufb33": "\u2028"}"#,
            "{\"</script>\":\"<\",\"\u{80}\":\"\\u0000\\u001f\",\"😂\":\"\u{7f}\",\"\u{fb33}\":\"\u{2028}\"}",
        ),
        // values: every escape that has a short form uses it, in lower case
        (
            r#""\b\t\n\f\r\"\\\/\u0008\u0009\u000A\u000C\u000D\u0022\u005C\u002F""#,
            r#""\b\t\n\f\r\"\\/\b\t\n\f\r\"\\/""#,
        ),
        // top level of any type, white space around
        (" \t\r\n null \n", "null"),
        ("true", "true"),
        ("\"\"", "\"\""),
        ("[ ]", "[]"),
        ("{ }", "{}"),
        // noncharacters and the replacement character are characters like others
        (r#""\uffff\ufffd\ufeff""#, "\"\u{ffff}\u{fffd}\u{feff}\""),
    ];
    for (input, expected) in rows {
        check(input, expected);
    }
}

/// RFC 8785 appendix B: IEEE bits and their text. The double's shortest text has our form unchanged, and so has any
/// other spelling of that decimal value. (NaN and Infinity have no JSON text at all.)
#[test]
fn number_samples_of_appendix_b() {
    let rows: [(u64, &str); 24] = [
        (0x0000_0000_0000_0000, "0"),
        (0x8000_0000_0000_0000, "0"),
        (0x0000_0000_0000_0001, "5e-324"),
        (0x8000_0000_0000_0001, "-5e-324"),
        (0x7fef_ffff_ffff_ffff, "1.7976931348623157e+308"),
        (0xffef_ffff_ffff_ffff, "-1.7976931348623157e+308"),
        (0x4340_0000_0000_0000, "9007199254740992"),
        (0xc340_0000_0000_0000, "-9007199254740992"),
        (0x4430_0000_0000_0000, "295147905179352830000"),
        (0x44b5_2d02_c7e1_4af5, "9.999999999999997e+22"),
        (0x44b5_2d02_c7e1_4af6, "1e+23"),
        (0x44b5_2d02_c7e1_4af7, "1.0000000000000001e+23"),
        (0x444b_1ae4_d6e2_ef4e, "999999999999999700000"),
        (0x444b_1ae4_d6e2_ef4f, "999999999999999900000"),
        (0x444b_1ae4_d6e2_ef50, "1e+21"),
        (0x3eb0_c6f7_a0b5_ed8c, "9.999999999999997e-7"),
        (0x3eb0_c6f7_a0b5_ed8d, "0.000001"),
        (0x41b3_de43_5555_5553, "333333333.3333332"),
        (0x41b3_de43_5555_5554, "333333333.33333325"),
        (0x41b3_de43_5555_5555, "333333333.3333333"),
        (0x41b3_de43_5555_5556, "333333333.3333334"),
        (0x41b3_de43_5555_5557, "333333333.33333343"),
        (0xbecb_f647_612f_3696, "-0.0000033333333333333333"),
        (0x4314_3ff3_c1cb_0959, "1424953923781206.2"),
    ];
    for (bits, expected) in rows {
        let double = f64::from_bits(bits);
        check(&serde_json::to_string(&double).unwrap(), expected);
        check(expected, expected);
    }
    for literal in ["NaN", "Infinity"] {
        refused(literal.as_bytes(), Refusal::Syntax, "");
    }
    refused(b"-Infinity", Refusal::Syntax, "");
}

#[test]
fn pairs_that_must_collide() {
    let rows = [
        ("[1,1,1,1]", "[1.0,1e0,10E-1,0.1e+1]"),
        ("[0,0,0]", "[-0,0.0,-0.0e-7]"),
        ("100000000000000000000", "1E20"),
        ("1e400", "10E+399"),
        ("9007199254740993", "9007199254740993.000"),
        ("0.1", "1.00e-1"),
        (r#"{"a":1,"b":2}"#, r#" { "b" : 2.0 , "a" : 1 } "#),
        (r#"{"é":"/"}"#, r#"{"\u00E9":"\/"}"#),
        (r#""😀""#, r#""\uD83D\uDE00""#),
    ];
    for (a, b) in rows {
        let (a, b) = (Canonical::parse(a.as_bytes()).unwrap(), Canonical::parse(b.as_bytes()).unwrap());
        assert_eq!(a, b);
        assert!(differs(&a, &b).pointers.is_empty());
    }
}

#[test]
fn pairs_that_must_not_collide() {
    let rows = [
        // What doubles would fold together.
        ("9007199254740992", "9007199254740993"),
        ("18446744073709551615", "18446744073709551616"),
        ("1", "1.0000000000000001"),
        ("0.1", "0.1000000000000000055511151231257827"),
        ("333333333.33333329", "333333333.3333333"),
        ("295147905179352825856", "295147905179352830000"),
        ("0", "1e-400"),
        ("-1", "1"),
        // Types.
        ("1", "\"1\""),
        ("null", "\"null\""),
        ("[]", "{}"),
        ("false", "null"),
        // Null is not absence.
        (r#"{"a":null}"#, "{}"),
        ("[null]", "[]"),
        // Strings are as they are.
        ("\"é\"", "\"e\\u0301\""),
        ("\" a\"", "\"a\""),
        ("\"a  b\"", "\"a b\""),
        ("\"A\"", "\"a\""),
        ("\"1\"", "\"1.0\""),
        // Order matters in arrays, nesting everywhere.
        ("[1,2]", "[2,1]"),
        ("[[1],2]", "[1,[2]]"),
        (r#"{"a":{"b":1}}"#, r#"{"a":1,"b":1}"#),
        (r#"{"a,\"b\":1":2}"#, r#"{"a":1,"b":2}"#),
    ];
    for (left, right) in rows {
        let (a, b) = (Canonical::parse(left.as_bytes()).unwrap(), Canonical::parse(right.as_bytes()).unwrap());
        assert_ne!(a.as_str(), b.as_str(), "{left} {right}");
        assert!(!differs(&a, &b).pointers.is_empty(), "{left} {right}");
    }
}

/// Features of `serde_json` can make numbers beyond a double parse and print as something else; others refuse or round
/// them. Here each keeps its own text, in a document as at the top.
#[test]
fn numbers_beyond_a_double_are_never_altered() {
    let rows = [
        ("1E400", "1e+400"),
        ("1E401", "1e+401"),
        ("-1E400", "-1e+400"),
        ("1.7976931348623157e308", "1.7976931348623157e+308"),
        ("1.7976931348623159e308", "1.7976931348623159e+308"),
        ("1e-400", "1e-400"),
        ("4.9e-324", "4.9e-324"),
        ("5e-324", "5e-324"),
        ("123456789012345678901234567890", "1.2345678901234567890123456789e+29"),
    ];
    let texts: std::collections::BTreeSet<_> = rows.iter().map(|(_, text)| text).collect();
    assert_eq!(texts.len(), rows.len());
    for (literal, expected) in rows {
        check(literal, expected);
        check(&format!("{{\"n\":[{literal}]}}"), &format!("{{\"n\":[{expected}]}}"));
    }
}

#[test]
fn refusals_name_their_place() {
    let rows: &[(&[u8], Refusal, &str)] = &[
        // Duplicate names: at any depth, after unescaping, whatever the values.
        (br#"{"a":1,"a":1}"#, Refusal::DuplicateName, "/a"),
        (br#"{"a":1,"b":2,"\u0061":3}"#, Refusal::DuplicateName, "/a"),
        (br#"{"x":[0,{"":1,"":2}]}"#, Refusal::DuplicateName, "/x/1/"),
        (br#"{"a/b":{"m~n":{"c":{},"c":[]}}}"#, Refusal::DuplicateName, "/a~1b/m~0n/c"),
        ("{\"é\":1,\"\\u00e9\":2}".as_bytes(), Refusal::DuplicateName, "/é"),
        // Surrogates: alone, in the wrong order, before something else; in a name they point at the object.
        (br#"{"a":["\ud800"]}"#, Refusal::LoneSurrogate, "/a/0"),
        (br#"{"a":"\udc00\ud800"}"#, Refusal::LoneSurrogate, "/a"),
        (br#"{"a":"\ud83dx"}"#, Refusal::LoneSurrogate, "/a"),
        (br#"{"a":"\ud83d\n"}"#, Refusal::LoneSurrogate, "/a"),
        (br#"{"a":"\ud83d\u0041"}"#, Refusal::LoneSurrogate, "/a"),
        (br#"{"a":"\ud83d\ud83d\ude00"}"#, Refusal::LoneSurrogate, "/a"),
        (br#"{"o":{"\udfff":1}}"#, Refusal::LoneSurrogate, "/o"),
        // Bytes that are not UTF-8, inside strings, in names and outside.
        (b"{\"a\":\"x\xff\"}", Refusal::InvalidUtf8, "/a"),
        (b"{\"a\":\"\xed\xa0\x80\"}", Refusal::InvalidUtf8, "/a"),
        (b"{\"a\":\"\xc0\xaf\"}", Refusal::InvalidUtf8, "/a"),
        (b"{\"a\":\"\xe2\x82\"}", Refusal::InvalidUtf8, "/a"),
        (b"{\"\xf8\":1}", Refusal::InvalidUtf8, ""),
        (b"{\"a\":\xff}", Refusal::InvalidUtf8, "/a"),
        (b"\xef\xbb\xbf{}", Refusal::Syntax, ""),
        // Strings.
        (b"{\"a\":\"x\ny\"}", Refusal::ControlCharacter, "/a"),
        (b"{\"a\":\"\x00\"}", Refusal::ControlCharacter, "/a"),
        (br#"{"a":"\x41"}"#, Refusal::BadEscape, "/a"),
        (br#"{"a":"\u00g0"}"#, Refusal::BadEscape, "/a"),
        (br#"{"a":"\u+041"}"#, Refusal::BadEscape, "/a"),
        // Numbers.
        (br#"{"n":[1e10000]}"#, Refusal::NumberOutOfRange, "/n/0"),
        (br#"{"n":1e999999999}"#, Refusal::NumberOutOfRange, "/n"),
        (br#"{"n":-1e-999999999}"#, Refusal::NumberOutOfRange, "/n"),
        (br#"{"n":01}"#, Refusal::Syntax, ""),
        (br#"{"n":+1}"#, Refusal::Syntax, "/n"),
        (br#"{"n":.5}"#, Refusal::Syntax, "/n"),
        (br#"{"n":5.}"#, Refusal::Syntax, "/n"),
        (br#"{"n":0x10}"#, Refusal::Syntax, ""),
        (br#"{"n":NaN}"#, Refusal::Syntax, "/n"),
        // Structure.
        (b"[1,]", Refusal::Syntax, "/1"),
        (b"[,1]", Refusal::Syntax, "/0"),
        (b"[1 2]", Refusal::Syntax, ""),
        (br#"{"a":1,}"#, Refusal::Syntax, ""),
        (br#"{a:1}"#, Refusal::Syntax, ""),
        (br#"{'a':1}"#, Refusal::Syntax, ""),
        (br#"{"a" 1}"#, Refusal::Syntax, ""),
        (br#"{"a":tRue}"#, Refusal::Syntax, "/a"),
        (b"/**/{}", Refusal::Syntax, ""),
        (b"[1}", Refusal::Syntax, ""),
        ("[1\u{a0}]".as_bytes(), Refusal::Syntax, ""),
        (b"{}{}", Refusal::TrailingData, ""),
        (b"{} x", Refusal::TrailingData, ""),
        (b"01", Refusal::TrailingData, ""),
        (b"nullnull", Refusal::TrailingData, ""),
        (b"{}\0", Refusal::TrailingData, ""),
        // A tool call that was cut.
        (b"", Refusal::Truncated, ""),
        (b"  ", Refusal::Truncated, ""),
        (br#"{"a""#, Refusal::Truncated, ""),
        (br#"{"a":"#, Refusal::Truncated, "/a"),
        (br#"{"a":[1,"#, Refusal::Truncated, "/a/1"),
        (br#"{"a":{"b":"c"#, Refusal::Truncated, "/a/b"),
        (br#"{"a":"\u00"#, Refusal::Truncated, "/a"),
        (br#"{"a":"\ud83d"#, Refusal::Truncated, "/a"),
        (br#"{"a":"\ud83d\"#, Refusal::Truncated, "/a"),
        (br#"{"a":"\ud83d\u"#, Refusal::Truncated, "/a"),
        (b"{\"a\":\"\xe2\x82", Refusal::Truncated, "/a"),
        (br#"{"a":tr"#, Refusal::Truncated, "/a"),
        (br#"{"a":-"#, Refusal::Truncated, "/a"),
        (br#"{"a":1"#, Refusal::Truncated, ""),
    ];
    for (input, kind, pointer) in rows {
        refused(input, *kind, pointer);
    }
}

#[test]
fn depth_is_bounded() {
    let nested = |depth: usize| format!("{}1{}", "[".repeat(depth), "]".repeat(depth));
    let objects = |depth: usize| format!("{}1{}", r#"{"a":"#.repeat(depth), "}".repeat(depth));
    check(&nested(MAX_DEPTH), &nested(MAX_DEPTH));
    check(&objects(MAX_DEPTH), &objects(MAX_DEPTH));
    refused(nested(MAX_DEPTH + 1).as_bytes(), Refusal::TooDeep, &"/0".repeat(MAX_DEPTH));
    refused(objects(MAX_DEPTH + 1).as_bytes(), Refusal::TooDeep, &"/a".repeat(MAX_DEPTH));
}

#[test]
fn size_is_bounded_both_ways() {
    let string = |length: usize| format!("\"{}\"", "x".repeat(length - 2));
    check(&string(MAX_BYTES), &string(MAX_BYTES));
    refused(string(MAX_BYTES + 1).as_bytes(), Refusal::TooLarge, "");
    // White space counts: the bound is on what has to be read.
    refused(format!("{}1", " ".repeat(MAX_BYTES)).as_bytes(), Refusal::TooLarge, "");
    // `1e20,` is 5 bytes and becomes 22: the text is over the limit although the input is not.
    let growing = format!("[{}1]", "1e20,".repeat(MAX_BYTES / 10));
    assert!(growing.len() < MAX_BYTES);
    refused(growing.as_bytes(), Refusal::TooLarge, "");
}

#[test]
fn a_pointer_in_a_refusal_is_bounded() {
    let long = "n".repeat(2 * MAX_POINTER_BYTES);
    refused(format!(r#"{{"a":{{"{long}":[1,1e99999]}}}}"#).as_bytes(), Refusal::NumberOutOfRange, "/a");
}

#[test]
fn arguments_are_an_object() {
    for input in ["[]", "null", "\"{}\"", "1"] {
        let refused = Arguments::parse(input.as_bytes()).expect_err(input);
        assert_eq!((refused.kind, refused.pointer), (Refusal::NotAnObject, Pointer::root()), "{input}");
        assert!(Canonical::parse(input.as_bytes()).is_ok(), "{input} is a document all the same");
    }
    let arguments = Arguments::parse(br#"{ "b": 1.0, "a": null }"#).unwrap();
    assert_eq!(arguments.canonical().as_str(), r#"{"a":null,"b":1}"#);
}

#[test]
fn messages_quote_no_values() {
    for input in [r#"{"card":"4111 secret" x}"#, r#"{"card":4111secret}"#, r#"{"card":"4111secret\q"}"#] {
        let message = Canonical::parse(input.as_bytes()).expect_err(input).to_string();
        assert!(!message.contains("4111") && !message.contains("secret"), "{message}");
    }
}

#[test]
fn codes_are_distinct_words() {
    let kinds = [
        Refusal::TooLarge,
        Refusal::TooDeep,
        Refusal::Syntax,
        Refusal::Truncated,
        Refusal::TrailingData,
        Refusal::InvalidUtf8,
        Refusal::LoneSurrogate,
        Refusal::BadEscape,
        Refusal::ControlCharacter,
        Refusal::DuplicateName,
        Refusal::NumberOutOfRange,
        Refusal::NumberTooLong,
        Refusal::NotAnObject,
        Refusal::KeyFieldMissing,
    ];
    let codes: std::collections::BTreeSet<_> = kinds.iter().map(|kind| kind.code()).collect();
    assert_eq!(codes.len(), kinds.len());
    assert!(
        codes
            .iter()
            .all(|code| code.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_'))
    );
}
