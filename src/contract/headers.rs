//! The request headers that mean something to the relay (SPEC section 4). Pure: header map in, values or the refusal out.
//!
//! A header with a bad value is an error (400) and never ignored: the caller asked for a limit and would not get it.
//! Headers of later capabilities are refused as `not_built_yet` where they would change the stream ([`NOT_BUILT`]). One asks for
//! nothing this build could break: `Rubicon-Resumable` (no workflow has `resume`, and the absent `Rubicon-Resume` says so).

use std::time::Duration;

use http::{HeaderMap, HeaderName};
use rubicon_ledger::RootId;

use crate::config::settings::SideEffects;
use crate::ids::OperationId;

/// What the headers ask for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Asked {
    /// `Rubicon-Workflow`.
    pub workflow: Option<String>,
    /// `Idempotency-Key`: the operation id.
    pub operation: Option<OperationId>,
    /// `Rubicon-Restart-Of`: the interrupted operation that this one replaces.
    pub restart_of: Option<OperationId>,
    /// `Rubicon-Root`: the user's action or agent run that this request belongs to.
    pub root: Option<RootId>,
    /// `Rubicon-Deadline-Ms`.
    pub deadline: Option<Duration>,
    /// `Rubicon-Max-Attempts`.
    pub max_attempts: Option<u32>,
    /// `Rubicon-Attempts-Used` plus the SDK's own count.
    pub attempts_used: u32,
    /// `Rubicon-Side-Effects`.
    pub side_effects: Option<SideEffects>,
    /// Values of the vendors' beta headers.
    pub betas: Vec<String>,
    /// The call is made by an SDK of the vendors' generator, which all official OpenAI and Anthropic ones are (`x-stainless-lang`), or
    /// by what is built on one.
    pub official_sdk: bool,
}

/// Why a header is refused: 400 with this code.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the header {header} {problem}")]
pub struct HeaderError {
    /// `invalid_header` or `not_built_yet`.
    pub code: &'static str,
    /// The header.
    pub header: &'static str,
    /// What is wrong with it.
    pub problem: &'static str,
}

/// Headers whose promise this build cannot keep.
pub const NOT_BUILT: [&str; 2] = ["rubicon-ids", "rubicon-marks"];

/// Reads them.
///
/// # Errors
/// At the first header with a bad value.
pub fn read(headers: &HeaderMap) -> Result<Asked, HeaderError> {
    for header in NOT_BUILT {
        // `Rubicon-Ids: 0` asks for nothing.
        if headers.get(header).is_some_and(|value| value != "0") {
            return Err(HeaderError { code: "not_built_yet", header, problem: "asks for what this build does not do" });
        }
    }
    let used = number(headers, "rubicon-attempts-used", 0)?.unwrap_or(0);
    // The OpenAI and Anthropic SDKs count their own retries here (STREAMS.md 2.4); each is an attempt already spent.
    let stainless = number(headers, "x-stainless-retry-count", 0)?.unwrap_or(0);
    Ok(Asked {
        workflow: one(headers, "rubicon-workflow")?.map(str::to_owned),
        operation: operation(headers, "idempotency-key")?,
        restart_of: operation(headers, "rubicon-restart-of")?,
        root: root(headers, "rubicon-root")?,
        deadline: number(headers, "rubicon-deadline-ms", 1)?.map(|ms| Duration::from_millis(u64::from(ms))),
        max_attempts: number(headers, "rubicon-max-attempts", 1)?,
        attempts_used: used.saturating_add(stainless),
        side_effects: match one(headers, "rubicon-side-effects")? {
            None => None,
            Some("none") => Some(SideEffects::None),
            Some("read_only") => Some(SideEffects::ReadOnly),
            Some("write_possible") => Some(SideEffects::WritePossible),
            Some(_) => return Err(bad("rubicon-side-effects", "must be none, read_only or write_possible")),
        },
        betas: betas(headers),
        official_sdk: headers.contains_key("x-stainless-lang"),
    })
}

fn bad(header: &'static str, problem: &'static str) -> HeaderError {
    HeaderError { code: "invalid_header", header, problem }
}

fn one<'a>(headers: &'a HeaderMap, name: &'static str) -> Result<Option<&'a str>, HeaderError> {
    let mut values = headers.get_all(HeaderName::from_static(name)).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(bad(name, "stands there twice"));
    }
    value.to_str().map(|text| Some(text.trim())).map_err(|_| bad(name, "must be visible ASCII"))
}

fn number(headers: &HeaderMap, name: &'static str, least: u32) -> Result<Option<u32>, HeaderError> {
    let Some(text) = one(headers, name)? else { return Ok(None) };
    match text.parse::<u32>() {
        Ok(number) if number >= least && text.bytes().all(|byte| byte.is_ascii_digit()) => Ok(Some(number)),
        _ if least == 0 => Err(bad(name, "must be a whole number")),
        _ => Err(bad(name, "must be a whole number of at least 1")),
    }
}

/// 1–255 visible ASCII characters; the quotes of a structured-field string (IETF draft Idempotency-Key) are taken off.
fn operation(headers: &HeaderMap, name: &'static str) -> Result<Option<OperationId>, HeaderError> {
    let Some(text) = one(headers, name)? else { return Ok(None) };
    let text = text.strip_prefix('"').and_then(|inner| inner.strip_suffix('"')).unwrap_or(text);
    if is_visible(text) { Ok(Some(OperationId::new(text))) } else { Err(bad(name, VISIBLE)) }
}

/// 1–255 visible ASCII characters, taken as they are: claims name the root in JSON, where quotes would be part of it.
fn root(headers: &HeaderMap, name: &'static str) -> Result<Option<RootId>, HeaderError> {
    let Some(text) = one(headers, name)? else { return Ok(None) };
    let root = is_visible(text).then(|| RootId::new(text).ok()).flatten();
    root.map(Some).ok_or_else(|| bad(name, VISIBLE))
}

const VISIBLE: &str = "must be 1 to 255 visible ASCII characters";

fn is_visible(text: &str) -> bool {
    (1..=255).contains(&text.len()) && text.bytes().all(|byte| (0x21..=0x7e).contains(&byte))
}

fn betas(headers: &HeaderMap) -> Vec<String> {
    let mut values: Vec<String> = ["anthropic-beta", "openai-beta"]
        .iter()
        .flat_map(|name| headers.get_all(*name).iter())
        .filter_map(|value| value.to_str().ok())
        .flat_map(|text| text.split(','))
        .map(|value| value.trim().to_owned())
        .filter(|value| !value.is_empty())
        .collect();
    values.sort();
    values.dedup();
    values
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn map(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(HeaderName::from_static(name), HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    #[test]
    fn values() {
        let asked = read(&map(&[
            ("rubicon-workflow", "support"),
            ("idempotency-key", "\"order-7\""),
            ("rubicon-restart-of", "order-6"),
            ("rubicon-deadline-ms", "1500"),
            ("rubicon-max-attempts", "2"),
            ("rubicon-attempts-used", "1"),
            ("x-stainless-retry-count", "2"),
            ("rubicon-side-effects", "none"),
            ("anthropic-beta", "b, a"),
            ("anthropic-beta", "a"),
            ("openai-beta", "c"),
            ("rubicon-resumable", "1"),
            ("rubicon-root", "run-1"),
            ("rubicon-ids", "0"),
            ("x-stainless-lang", "python"),
        ]))
        .unwrap();
        assert_eq!(
            asked,
            Asked {
                workflow: Some("support".to_owned()),
                operation: Some(OperationId::new("order-7")),
                restart_of: Some(OperationId::new("order-6")),
                root: Some(RootId::new("run-1").unwrap()),
                deadline: Some(Duration::from_millis(1500)),
                max_attempts: Some(2),
                attempts_used: 3,
                side_effects: Some(SideEffects::None),
                betas: ["a", "b", "c"].map(str::to_owned).to_vec(),
                official_sdk: true,
            }
        );
        assert_eq!(read(&HeaderMap::new()).unwrap(), Asked::default());
    }

    #[test]
    fn bad_values_are_refused() {
        let long = "x".repeat(256);
        let rows: &[&[(&'static str, &str)]] = &[
            &[("rubicon-deadline-ms", "0")],
            &[("rubicon-deadline-ms", "-1")],
            &[("rubicon-deadline-ms", "1.5")],
            &[("rubicon-deadline-ms", "+5")],
            &[("rubicon-deadline-ms", "99999999999999")],
            &[("rubicon-deadline-ms", "")],
            &[("rubicon-max-attempts", "0")],
            &[("rubicon-max-attempts", "many")],
            &[("rubicon-attempts-used", "x")],
            &[("x-stainless-retry-count", "x")],
            &[("rubicon-side-effects", "all")],
            &[("idempotency-key", "")],
            &[("rubicon-root", "")],
            &[("rubicon-root", "a b")],
            &[("rubicon-root", &long)],
            &[("rubicon-root", "a"), ("rubicon-root", "b")],
            &[("idempotency-key", "a b")],
            &[("idempotency-key", &long)],
            &[("idempotency-key", "a"), ("idempotency-key", "b")],
        ];
        for row in rows {
            assert_eq!(read(&map(row)).map_err(|error| error.code), Err("invalid_header"), "{row:?}");
        }
        for header in NOT_BUILT {
            assert_eq!(read(&map(&[(header, "1")])).map_err(|error| error.code), Err("not_built_yet"));
        }
    }
}
