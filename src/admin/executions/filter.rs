//! Which executions are meant: the same names in a query string and in the body of a bulk change.

use rubicon_ledger::store::Filter;
use rubicon_ledger::{OperationId, RootId, State, TenantId, ToolName, UnixMillis};
use serde_json::{Map, Value};

use super::super::answer::Problem;

/// The names, as in a query string.
pub(super) const NAMES: [&str; 7] = ["state", "tool", "operation", "root", "tenant", "owner", "older_than"];

const STATES: [State; 5] = [State::Planned, State::Started, State::Succeeded, State::Failed, State::Unknown];

/// Reads a filter; `get` gives the text under a name.
pub(super) fn filter<'t>(get: impl Fn(&str) -> Option<&'t str>, now: UnixMillis) -> Result<Filter, Problem> {
    let wrong = |message: String| Problem::new(400, "invalid_query", message);
    let bad_name = |name: &'static str| move |why| wrong(format!("`{name}`: {why}."));
    let state = match get("state") {
        None => None,
        Some(text) => {
            let found = STATES.into_iter().find(|state| state.name() == text);
            let names = || STATES.map(State::name).join(", ");
            Some(found.ok_or_else(|| wrong(format!("`state` is one of {}.", names())))?)
        }
    };
    let changed_before = match get("older_than") {
        None => None,
        Some(text) => {
            let help = "`older_than` is a time like 90s, 15m, 2h, 3d or 500ms; a bare number is milliseconds.";
            let millis = duration_ms(text).ok_or_else(|| wrong(help.to_owned()))?;
            Some(UnixMillis(now.0.saturating_sub(millis)))
        }
    };
    Ok(Filter {
        tenant: get("tenant").map(TenantId::new).transpose().map_err(bad_name("tenant"))?,
        state,
        tool: get("tool").map(ToolName::new).transpose().map_err(bad_name("tool"))?,
        operation: get("operation").map(OperationId::new).transpose().map_err(bad_name("operation"))?,
        root: get("root").map(RootId::new).transpose().map_err(bad_name("root"))?,
        owner: get("owner").map(Into::into),
        changed_before,
        after: 0,
    })
}

/// The filter of a bulk change: an object with the same names, of which one at least must be there.
pub(super) fn from_body(value: Option<&Value>, now: UnixMillis) -> Result<(Filter, Map<String, Value>), Problem> {
    let invalid = |message: String| Problem::new(400, "invalid_body", message);
    let Some(Value::Object(members)) = value else {
        return Err(invalid("`filter` is an object: {\"state\": \"unknown\", \"tool\": …}.".to_owned()));
    };
    let mut texts: Vec<(&str, String)> = Vec::new();
    for (name, value) in members {
        if !NAMES.contains(&name.as_str()) {
            return Err(invalid(format!("`filter` knows {}.", NAMES.join(", "))));
        }
        match value {
            Value::String(text) if !text.is_empty() => texts.push((name, text.clone())),
            Value::Number(number) if name == "older_than" => texts.push((name, number.to_string())),
            _ => return Err(invalid(format!("`filter.{name}` must be a text."))),
        }
    }
    if texts.is_empty() {
        return Err(invalid("An empty filter would mean every execution: name a state, a tool, …".to_owned()));
    }
    let get = |name: &str| texts.iter().find(|(known, _)| *known == name).map(|(_, text)| text.as_str());
    Ok((filter(get, now)?, members.clone()))
}

/// `90s`, `15m`, `2h`, `3d`, `500ms`; a bare number is milliseconds.
fn duration_ms(text: &str) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at_checked(digits)?;
    let factor: u64 = match unit {
        "" | "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(factor)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn durations_have_a_unit_or_are_milliseconds() {
        for (text, millis) in [
            ("0", Some(0)),
            ("1500", Some(1500)),
            ("500ms", Some(500)),
            ("90s", Some(90_000)),
            ("15m", Some(900_000)),
            ("2h", Some(7_200_000)),
            ("3d", Some(259_200_000)),
            ("", None),
            ("h", None),
            ("-1s", None),
            ("1.5h", None),
            ("1w", None),
            ("1 h", None),
            ("99999999999999999999", None),
            ("999999999999999999d", None),
        ] {
            assert_eq!(duration_ms(text), millis, "{text:?}");
        }
    }

    #[test]
    fn a_filter_is_read_and_a_wrong_one_refused() {
        let now = UnixMillis(100_000);
        let read = |pairs: &'static [(&'static str, &'static str)]| {
            filter(|name| pairs.iter().find(|(known, _)| *known == name).map(|(_, text)| *text), now)
        };
        let found = read(&[("state", "unknown"), ("tool", "pay"), ("owner", "ops"), ("older_than", "90s")]);
        let found = found.expect("a filter");
        assert_eq!((found.state, found.changed_before), (Some(State::Unknown), Some(UnixMillis(10_000))));
        assert_eq!((found.tool.expect("a tool").as_str(), found.owner.as_deref()), ("pay", Some("ops")));
        assert_eq!(read(&[("older_than", "999d")]).expect("a filter").changed_before, Some(UnixMillis(0)));
        for bad in [[("state", "lost")], [("tool", "a\nb")], [("older_than", "soon")]] {
            assert!(filter(|name| (bad[0].0 == name).then_some(bad[0].1), now).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_bulk_change_names_what_it_means() {
        let now = UnixMillis(100_000);
        let good = json!({ "state": "unknown", "older_than": 5000 });
        let (filter, echo) = from_body(Some(&good), now).expect("a filter");
        assert_eq!((filter.changed_before, Value::Object(echo)), (Some(UnixMillis(95_000)), good.clone()));
        for bad in [json!({}), json!(null), json!([]), json!({ "stat": "unknown" }), json!({ "tool": 1 })] {
            assert!(from_body(Some(&bad), now).is_err(), "{bad}");
        }
        assert!(from_body(None, now).is_err());
    }
}
