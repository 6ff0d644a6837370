//! Slots, fingerprints and execution keys: what is part of them, the pinned digests, and the wrong keys that others
//! shipped (LEDGER.md section 11).

#![allow(clippy::unwrap_used, reason = "helpers of tests; clippy exempts only the test functions themselves")]

use rubicon_ledger::{
    Arguments, BadDigest, ExecutionKey, FINGERPRINT_CONTEXT, Fingerprint, KEY_CONTEXT, KeyParts, MAX_BYTES, Occurrence,
    OperationId, Pointer, Projected, Projection, Refusal, RootId, RunNumber, SLOT_CONTEXT, Slot, TenantId, ToolName,
    differs,
};

fn projection(key_fields: &[&str], ignore_fields: &[&str]) -> Projection {
    let pointers = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<Pointer>>();
    Projection::new(pointers(key_fields), pointers(ignore_fields)).unwrap()
}

fn apply(rule: &Projection, arguments: &str) -> Projected {
    rule.apply(&Arguments::parse(arguments.as_bytes()).unwrap()).unwrap()
}

fn key(tenant: &str, root: &str, tool: &str, slot: Slot, occurrence: u32, run: Option<u64>) -> ExecutionKey {
    KeyParts {
        tenant: &TenantId::new(tenant).unwrap(),
        root: &RootId::new(root).unwrap(),
        tool: &ToolName::new(tool).unwrap(),
        slot,
        occurrence: Occurrence(occurrence),
        run: run.map(RunNumber),
    }
    .key()
}

/// The bytes under each hash, put together here by hand from the table in `key.rs`.
fn by_hand(context: &str, parts: &[&[u8]]) -> [u8; 32] {
    let bytes: Vec<u8> = parts
        .iter()
        .flat_map(|part| (part.len() as u64).to_le_bytes().into_iter().chain(part.iter().copied()))
        .collect();
    blake3::derive_key(context, &bytes)
}

#[test]
fn digests_are_made_as_documented() {
    let text = r#"{"amount":5,"to":"acct_1"}"#;
    let all = apply(&Projection::default(), text);
    assert_eq!(*all.fingerprint.as_bytes(), by_hand(FINGERPRINT_CONTEXT, &[b"args-v1", text.as_bytes()]));
    assert_eq!(*all.slot.as_bytes(), by_hand(SLOT_CONTEXT, &[b"args-v1", b"all", text.as_bytes()]));

    let fields = apply(&projection(&["/to", "/amount"], &[]), text);
    let two = 2_u64.to_le_bytes();
    let parts: [&[u8]; 7] = [b"args-v1", b"fields", &two, b"/amount", b"5", b"/to", b"\"acct_1\""];
    assert_eq!(*fields.slot.as_bytes(), by_hand(SLOT_CONTEXT, &parts));
    assert_eq!(fields.fingerprint, all.fingerprint);

    let (occurrence, run) = (3_u64.to_le_bytes(), 9_u64.to_le_bytes());
    let mut parts: Vec<&[u8]> = vec![b"key-v1", b"t", b"r", b"pay", all.slot.as_bytes(), &occurrence, b"once"];
    assert_eq!(*key("t", "r", "pay", all.slot, 3, None).as_bytes(), by_hand(KEY_CONTEXT, &parts));
    parts.pop();
    parts.extend([b"run".as_slice(), &run]);
    assert_eq!(*key("t", "r", "pay", all.slot, 3, Some(9)).as_bytes(), by_hand(KEY_CONTEXT, &parts));
}

/// Stored keys must be found again by every later build: a change here needs a new version tag and a migration.
#[test]
fn digests_are_pinned() {
    let all = apply(&Projection::default(), r#"{"to":"acct_1","amount":5.0}"#);
    let fields = apply(&projection(&["/to"], &[]), r#"{"to":"acct_1","amount":5.0}"#);
    let printed = [
        all.fingerprint.to_string(),
        all.slot.to_string(),
        fields.slot.to_string(),
        key("support", "op_1", "refund_order", all.slot, 0, None).to_string(),
        key("support", "op_1", "look_up", all.slot, 0, Some(1)).to_string(),
    ];
    assert_eq!(printed, PINNED);
}

const PINNED: [&str; 5] = [
    "fp_5f88bdd628199c5ebc2e3f7d884a2cb3f22bc8003e14f59ac323435fa3fb18f7",
    "sl_dc131fb8bea3a7df6021c95815b25986d806b595607571992c84f4ab568b510e",
    "sl_8aa7dbfd4e2307daadfea742365fd771f7ce2eb9c0855c7e7acd485e1530924a",
    "ex_3d5421e3f9bbd84098232c0f9043f774f0c8a6d5933aec702b65ed531e36ff1b",
    "ex_6a712669c5e273596bc4fd41ff94cd188f5eceae6b0b53577c4623e86a08a58c",
];

#[test]
fn every_part_is_part_of_the_key() {
    let slot = apply(&Projection::default(), "{}").slot;
    let other = apply(&Projection::default(), r#"{"a":null}"#).slot;
    let keys = [
        key("t", "r", "x", slot, 0, None),
        key("u", "r", "x", slot, 0, None),
        key("t", "s", "x", slot, 0, None),
        key("t", "r", "y", slot, 0, None),
        key("t", "r", "X", slot, 0, None),
        key("t", "r", "x", other, 0, None),
        key("t", "r", "x", slot, 1, None),
        key("t", "r", "x", slot, 0, Some(0)),
        key("t", "r", "x", slot, 0, Some(1)),
        // Parts do not borrow from their neighbours.
        key("tr", "x", "x", slot, 0, None),
        key("t", "rx", "x", slot, 0, None),
        key("t", "r", "xx", slot, 0, None),
        // Nor does order come out in the wash.
        key("r", "t", "x", slot, 0, None),
    ];
    let distinct: std::collections::BTreeSet<_> = keys.iter().collect();
    assert_eq!(distinct.len(), keys.len());
    assert_eq!(keys[0], key("t", "r", "x", slot, 0, None), "and nothing else is");
}

/// KeeperHub#1877: the model rewords one free-text argument. Same slot, other fingerprint, and the pointer that says so.
#[test]
fn a_reworded_payment_meets_its_first_record() {
    let rule = projection(&["/invoice", "/amount"], &[]);
    let first = apply(&rule, r#"{"invoice":"R-7","amount":10.50,"reason":"monthly fee"}"#);
    let again = apply(&rule, r#"{"reason":"fee for the month","amount":1.05e1,"invoice":"R-7"}"#);
    assert_eq!(first.slot, again.slot);
    assert_ne!(first.fingerprint, again.fingerprint);
    let list = differs(&first.canonical, &again.canonical);
    assert_eq!((list.pointers, list.complete), (vec!["/reason".parse().unwrap()], true));
    assert_ne!(first.slot, apply(&rule, r#"{"invoice":"R-8","amount":10.5,"reason":"monthly fee"}"#).slot);

    // With the wording ignored it is the same execution.
    let deaf = projection(&["/invoice"], &["/reason", "/trace/id"]);
    let (a, b) = (apply(&deaf, r#"{"invoice":1,"reason":"a"}"#), apply(&deaf, r#"{"invoice":1,"reason":"b"}"#));
    assert_eq!((a.slot, a.fingerprint), (b.slot, b.fingerprint));
    assert_eq!(a.canonical.as_str(), r#"{"invoice":1}"#);
}

/// json-canonicalization#20: two 64-bit ids beyond 2^53 are two accounts.
#[test]
fn two_large_ids_never_share_a_key() {
    for rule in [Projection::default(), projection(&["/to"], &[])] {
        let a = apply(&rule, r#"{"to":9007199254740992}"#);
        let b = apply(&rule, r#"{"to":9007199254740993}"#);
        let text = apply(&rule, r#"{"to":"9007199254740993"}"#);
        assert_ne!(a.slot, b.slot);
        assert_ne!(a.fingerprint, b.fingerprint);
        assert_ne!(b.slot, text.slot);
    }
}

#[test]
fn a_missing_key_field_is_refused_and_null_is_not_missing() {
    let rule = projection(&["/to/id", "/items/1"], &[]);
    let rows = [
        (r#"{"to":{"id":1},"items":[1,2]}"#, None),
        (r#"{"to":{"id":null},"items":[1,null]}"#, None),
        (r#"{"to":{"id":1},"items":[1]}"#, Some("/items/1")),
        (r#"{"to":{},"items":[1,2]}"#, Some("/to/id")),
        (r#"{"to":null,"items":[1,2]}"#, Some("/to/id")),
        (r#"{"to":"id","items":{"1":2}}"#, Some("/to/id")),
        ("{}", Some("/items/1")),
    ];
    for (arguments, missing) in rows {
        let result = rule.apply(&Arguments::parse(arguments.as_bytes()).unwrap());
        let refused = result.err().map(|refused| (refused.kind, refused.pointer.to_string()));
        assert_eq!(refused, missing.map(|pointer| (Refusal::KeyFieldMissing, pointer.to_owned())), "{arguments}");
    }
    let present = apply(&projection(&["/a"], &[]), r#"{"a":null}"#);
    assert_ne!(present.slot, apply(&projection(&["/a"], &[]), r#"{"a":"null"}"#).slot);
}

#[test]
fn ignored_fields_leave_everything_else_as_it_was() {
    let rows: &[(&[&str], &str, &str)] = &[
        (&["/b"], r#"{"a":1,"b":2}"#, r#"{"a":1}"#),
        (&["/nothing", "/a/b/c", "/l/7", "/l/x", "/l/-"], r#"{"a":1,"l":[1]}"#, r#"{"a":1,"l":[1]}"#),
        (&["/a/b"], r#"{"a":{"b":1},"b":1}"#, r#"{"a":{},"b":1}"#),
        (&["/a", "/a/b"], r#"{"a":{"b":1},"c":1}"#, r#"{"c":1}"#),
        (&["/a~1b", "/m~0n"], r#"{"a/b":1,"m~n":2,"a":{"b":3}}"#, r#"{"a":{"b":3}}"#),
        // Elements keep their places, so several removals do not shift each other.
        (&["/l/0", "/l/1"], r#"{"l":["x","y","z"]}"#, r#"{"l":[null,null,"z"]}"#),
        (&["/l/0/t"], r#"{"l":[{"t":1,"u":2},{"t":3}]}"#, r#"{"l":[{"u":2},{"t":3}]}"#),
        // `0` is an index in an array and a name in an object.
        (&["/o/0"], r#"{"o":{"0":1,"00":2}}"#, r#"{"o":{"00":2}}"#),
    ];
    for (ignore_fields, arguments, expected) in rows {
        let rule = projection(&[], ignore_fields);
        let once = apply(&rule, arguments);
        assert_eq!(once.canonical.as_str(), *expected, "{arguments}");
        assert_eq!(apply(&rule, once.canonical.as_str()), once, "a second projection changes nothing");
        assert_eq!(once.fingerprint, apply(&Projection::default(), expected).fingerprint);
    }
}

/// The `null` in place of an ignored element may be longer than the element.
#[test]
fn a_projection_stays_within_the_size_limit() {
    let arguments = format!(r#"{{"l":[1],"s":"{}"}}"#, "x".repeat(MAX_BYTES - 16));
    assert_eq!(arguments.len(), MAX_BYTES);
    let refused = projection(&[], &["/l/0"]).apply(&Arguments::parse(arguments.as_bytes()).unwrap()).unwrap_err();
    assert_eq!(refused.kind, Refusal::TooLarge);
}

#[test]
fn the_order_of_key_fields_does_not_matter_but_their_names_do() {
    let arguments = r#"{"a":"x","b":"y","c":"x"}"#;
    let slot = |fields: &[&str]| apply(&projection(fields, &[]), arguments).slot;
    assert_eq!(slot(&["/a", "/b"]), slot(&["/b", "/a"]));
    let distinct: std::collections::BTreeSet<_> =
        [slot(&["/a"]), slot(&["/c"]), slot(&["/b"]), slot(&["/a", "/b"]), slot(&["/a", "/c"]), slot(&[])].into();
    assert_eq!(distinct.len(), 6);
    // An ignored part of a key field makes no difference to the slot.
    let rule = projection(&["/pay"], &["/pay/note"]);
    let (a, b) = (apply(&rule, r#"{"pay":{"to":1,"note":"a"}}"#), apply(&rule, r#"{"pay":{"to":1,"note":"b"}}"#));
    assert_eq!(a.slot, b.slot);
}

#[test]
fn printed_forms_read_back_in_one_spelling_only() {
    let slot = apply(&Projection::default(), "{}").slot;
    let key = key("t", "r", "x", slot, 0, None);
    let text = key.to_string();
    assert!(text.starts_with("ex_") && text.len() == 67, "{text}");
    assert_eq!(text.parse(), Ok(key));
    assert_eq!(ExecutionKey::from_bytes(*key.as_bytes()), key);
    assert_eq!(slot.to_string().parse(), Ok(slot));
    assert_eq!(serde_json::to_string(&key).unwrap(), format!("\"{text}\""));
    assert_eq!(serde_json::from_str::<ExecutionKey>(&format!("\"{text}\"")).unwrap(), key);
    let wrong = [
        text.to_uppercase(),
        text.replace("ex_", ""),
        text.replace("ex_", "sl_"),
        format!("{text}0"),
        text[..66].to_owned(),
        format!("{} ", &text[..66]),
        format!("ex_{}", "é".repeat(32)),
        format!("ex_+{}", "0".repeat(63)),
        String::new(),
    ];
    for text in wrong {
        assert_eq!(text.parse::<ExecutionKey>(), Err(BadDigest { prefix: "ex_" }), "{text}");
    }
    assert!(slot.to_string().parse::<Fingerprint>().is_err(), "a slot is no fingerprint");
}

#[test]
fn an_operation_can_be_its_own_root() {
    let operation = OperationId::new("op_1").unwrap();
    assert_eq!(RootId::from(operation), RootId::new("op_1").unwrap());
}

#[test]
fn pointers_and_names_pass_through_serde_checked() {
    assert_eq!(serde_json::from_str::<Pointer>("\"/a~1b\"").unwrap().tokens().collect::<Vec<_>>(), ["a/b"]);
    assert!(serde_json::from_str::<Pointer>("\"a\"").is_err());
    assert_eq!(serde_json::to_string(&"/a~1b".parse::<Pointer>().unwrap()).unwrap(), "\"/a~1b\"");
    assert!(serde_json::from_str::<TenantId>("\"\"").is_err());
    assert_eq!(serde_json::from_str::<ToolName>("\"pay\"").unwrap().as_str(), "pay");
    assert_eq!(serde_json::to_string(&Occurrence(2)).unwrap(), "2");
}
