//! Whether a JSON Pointer can name something in arguments that fit a schema.
//!
//! In: a schema that compiled, a pointer. Out: [`Found`]. A key field that can never be there makes a tool that nobody can run, and one that
//! may be absent makes calls that are refused; both are seen when the config is loaded. Where a schema leaves it open (`patternProperties`,
//! `additionalProperties` written down, no `properties` at all) anything can be there.

use rubicon_ledger::Pointer;
use serde_json::Value;

/// Schemas looked at for one pointer. Real ones are tens; where it is reached the rest counts as open.
const LOOKS_MAX: usize = 10_000;

/// What a schema says of a pointer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// Arguments that fit always have it.
    Required,
    /// They may have it.
    Optional,
    /// It is no property of the schema; those that are, at the place where the pointer leaves it.
    Nowhere(Vec<String>),
}

/// Looks a pointer up.
pub(super) fn find(schema: &Value, pointer: &Pointer) -> Found {
    let mut looks = LOOKS_MAX;
    let mut here = vec![schema];
    let mut always = true;
    for token in pointer.tokens() {
        let mut all = Vec::new();
        for part in here {
            spread(schema, part, &mut all, &mut looks);
        }
        always &= all.iter().any(|part| requires(part, token, &mut looks));
        let next: Vec<&Value> = all.iter().flat_map(|part| below(part, token)).collect();
        if next.is_empty() {
            if looks == 0 || all.iter().all(|part| !is_closed(part)) || all.iter().any(|part| is_open(part)) {
                return Found::Optional;
            }
            let known = all.iter().filter_map(|part| part.get("properties")?.as_object());
            return Found::Nowhere(known.flat_map(|properties| properties.keys().cloned()).collect());
        }
        here = next;
    }
    if always { Found::Required } else { Found::Optional }
}

/// A schema and all that apply, or may apply, to the same value.
fn spread<'s>(root: &'s Value, part: &'s Value, all: &mut Vec<&'s Value>, looks: &mut usize) {
    if *looks == 0 {
        return;
    }
    *looks -= 1;
    all.push(part);
    if let Some(target) = target(root, part) {
        spread(root, target, all, looks);
    }
    for several in ["allOf", "anyOf", "oneOf"] {
        for one in part.get(several).and_then(Value::as_array).into_iter().flatten() {
            spread(root, one, all, looks);
        }
    }
    for one in ["if", "then", "else"].iter().filter_map(|name| part.get(name)) {
        spread(root, one, all, looks);
    }
}

fn target<'s>(root: &'s Value, part: &Value) -> Option<&'s Value> {
    root.pointer(part.get("$ref")?.as_str()?.strip_prefix('#')?)
}

fn requires(part: &Value, name: &str, looks: &mut usize) -> bool {
    if *looks == 0 {
        return false;
    }
    *looks -= 1;
    let of = |list: &str| part.get(list).and_then(Value::as_array);
    of("required").is_some_and(|list| list.iter().any(|one| one == name))
        || ["anyOf", "oneOf"].iter().any(|several| {
            of(several).is_some_and(|list| !list.is_empty() && list.iter().all(|one| requires(one, name, looks)))
        })
}

/// The schemas of a member or element.
fn below<'s>(part: &'s Value, token: &str) -> Vec<&'s Value> {
    let mut found: Vec<&Value> = part.get("properties").and_then(|all| all.get(token)).into_iter().collect();
    if let Ok(index) = token.parse::<usize>() {
        let items = ["prefixItems", "items"].iter().filter_map(|name| part.get(name)?.as_array()?.get(index));
        found.extend(items);
        found.extend(["items", "additionalItems"].iter().filter_map(|name| part.get(name)).filter(|of| of.is_object()));
    }
    found
}

/// Whether it lists what may be there.
fn is_closed(part: &Value) -> bool {
    part.get("properties").is_some() || part.get("additionalProperties") == Some(&Value::Bool(false))
}

/// Whether it says that more than it lists may be there.
fn is_open(part: &Value) -> bool {
    part.get("patternProperties").is_some()
        || part.get("additionalProperties").is_some_and(|more| *more != Value::Bool(false))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_schema_says_of_a_pointer() {
        let money = json!({"type": "object", "properties": {"value": {}, "unit": {}}, "required": ["value"]});
        let order = json!({
            "type": "object",
            "properties": {
                "id": {"type": "string"}, "note": {"type": "string"}, "amount": {"$ref": "#/$defs/money"}, "any": {"type": "object"},
                "lines": {"type": "array", "items": {"properties": {"sku": {}}, "required": ["sku"]}}
            },
            "required": ["id", "amount"],
            "additionalProperties": false,
            "$defs": {"money": money}
        });
        let either = json!({"anyOf": [
            {"properties": {"card": {}, "iban": {}}, "required": ["card"]}, {"properties": {"card": {}}, "required": ["card"]}
        ]});
        let open = json!({"properties": {"a": {}}, "additionalProperties": {"type": "string"}});
        let all = json!({"allOf": [{"properties": {"a": {}}, "required": ["a"]}, {"properties": {"b": {}}}]});
        for (schema, pointer, found) in [
            (&order, "/id", Found::Required),
            (&order, "/note", Found::Optional),
            (&order, "/amount/value", Found::Required),
            (&order, "/amount/unit", Found::Optional),
            (&order, "/amount/valeu", Found::Nowhere(vec!["unit".into(), "value".into()])),
            (&order, "/any/thing/below", Found::Optional),
            (&order, "/lines/0/sku", Found::Optional),
            (&order, "/lines/0/sky", Found::Nowhere(vec!["sku".into()])),
            (&either, "/card", Found::Required),
            (&either, "/iban", Found::Optional),
            (&either, "/bic", Found::Nowhere(vec!["card".into(), "iban".into(), "card".into()])),
            (&open, "/b", Found::Optional),
            (&all, "/a", Found::Required),
            (&all, "/b", Found::Optional),
            (&json!(true), "/x", Found::Optional),
            (&json!({"type": "object"}), "/x", Found::Optional),
            (&json!({"additionalProperties": false}), "/x", Found::Nowhere(vec![])),
        ] {
            assert_eq!(find(schema, &pointer.parse().unwrap()), found, "{pointer} in {schema}");
        }
    }
}
