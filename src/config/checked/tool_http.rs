//! `endpoint`, `probe` and the rules of answers of a tool: what is spoken over HTTP.

use http::{HeaderName, Method};
use rubicon_ledger::Outcome;

use super::super::Sources;
use super::super::node::Node;
use super::super::problem::{Code, Problems};
use super::super::secret::Secret;
use super::super::settings::{ProbeSettings, ResultRule, ToolEndpoint};
use super::provider::FRAMING;
use super::{secrets, url};

/// Rules of one list; each is looked at for every answer.
const RULES_MAX: usize = 64;
/// Headers of one endpoint: what is longer is no request head any more.
const HEADERS_MAX: usize = 32;
/// What stands for the execution key in a probe's URL.
const KEY: &str = "{key}";

/// Beside [`FRAMING`] and its own `rubicon-` headers the relay sets this one itself.
const EXECUTION_KEY: &str = "idempotency-key";

/// `endpoint`.
pub(super) fn endpoint(tool: &Node, problems: &mut Problems<'_>, sources: &Sources<'_>) -> Option<ToolEndpoint> {
    let node = tool.table("endpoint")?;
    let headers = headers(node, problems, sources);
    let uri = address(tool, node, node.text("url")?, problems)?;
    let method = match node.text("method")? {
        "PUT" => Method::PUT,
        "PATCH" => Method::PATCH,
        "DELETE" => Method::DELETE,
        _ => Method::POST,
    };
    Some(ToolEndpoint { url: uri, method, headers })
}

/// `probe`.
pub(super) fn probe(tool: &Node, problems: &mut Problems<'_>, sources: &Sources<'_>) -> Option<ProbeSettings> {
    let node = tool.table("probe")?;
    let headers = headers(node, problems, sources);
    let rules = rules(node, "rules", problems);
    if node.is_tables("rules") && node.tables("rules").is_empty() {
        let message = "a probe without rules could only ever find it absent";
        problems.error(Code::InvalidValue, node.at_of("rules"), &node.key_of("rules"), message);
    }
    let text = node.text("url")?;
    let (at, key) = (node.at_of("url"), node.key_of("url"));
    let path = text.split_once("://").map_or("", |(_, rest)| rest.find(['/', '?']).map_or("", |cut| &rest[cut..]));
    if !path.contains(KEY) {
        let message = "must have `{key}` in its path or query: it asks about one execution";
        problems.error(Code::InvalidValue, at, &key, message);
        return None;
    }
    address(tool, node, &text.replace(KEY, "key"), problems)?;
    Some(ProbeSettings {
        url: text.to_owned(),
        headers,
        rules,
        absent_after: node.opt_millis("absent_after_ms"),
        agree: u32::try_from(node.int("agree")).unwrap_or(u32::MAX),
    })
}

fn address(tool: &Node, node: &Node, text: &str, problems: &mut Problems<'_>) -> Option<http::Uri> {
    let (at, key) = (node.at_of("url"), node.key_of("url"));
    match url::of_tool(text) {
        Err(refusal) => {
            problems.error(Code::InvalidValue, at, &key, refusal.0);
            None
        }
        Ok(uri) => {
            if uri.scheme_str() == Some("http") && !url::is_loopback(&uri) && !tool.flag("allow_plain_http") {
                let message =
                    "plain http sends arguments and keys in the clear; use https, or say `allow_plain_http = true`";
                problems.error(Code::PlainHttp, at, &key, message);
            }
            Some(uri)
        }
    }
}

fn headers(node: &Node, problems: &mut Problems<'_>, sources: &Sources<'_>) -> Vec<(HeaderName, Secret)> {
    let mut all: Vec<(HeaderName, Secret)> = Vec::new();
    for (name, field) in node.named("headers") {
        let Ok(header) = HeaderName::from_bytes(name.as_bytes()) else {
            problems.error(Code::InvalidValue, field.at, &field.key, "is not a header's name");
            continue;
        };
        let name = header.as_str();
        if FRAMING.contains(&name) || name == EXECUTION_KEY || name.starts_with("rubicon-") {
            let message =
                "the relay sets connection headers, those of the body, `idempotency-key` and rubicon-* itself";
            problems.error(Code::HeaderNotAllowed, field.at, &field.key, message);
            continue;
        }
        if all.iter().any(|(known, _)| *known == header) {
            problems.error(Code::Duplicate, field.at, &field.key, "this header stands here twice");
        }
        let Some(text) = field.own_text() else { continue };
        match secrets::header_value(text, is_credential(header.as_str()), sources) {
            Ok(value) => all.push((header, value)),
            Err((code, message)) => problems.error(code, field.at, &field.key, message),
        }
    }
    if all.len() > HEADERS_MAX {
        let message = format!("over {HEADERS_MAX} headers");
        problems.error(Code::OutOfRange, node.at_of("headers"), &node.key_of("headers"), message);
    }
    all
}

/// Whether a header's value lets its holder in, by its name.
fn is_credential(name: &str) -> bool {
    name.contains("authorization")
        || name.contains("cookie")
        || ["key", "token", "secret", "password"].iter().any(|end| name.ends_with(end))
}

/// `result_rules`, `probe.rules`.
pub(super) fn rules(node: &Node, name: &str, problems: &mut Problems<'_>) -> Vec<ResultRule> {
    let list = node.tables(name);
    if list.len() > RULES_MAX {
        let message = format!("over {RULES_MAX} rules");
        problems.error(Code::OutOfRange, node.at_of(name), &node.key_of(name), message);
    }
    list.iter().filter_map(|rule| one_rule(rule, problems)).collect()
}

fn one_rule(rule: &Node, problems: &mut Problems<'_>) -> Option<ResultRule> {
    let pointer = rule.text("pointer").and_then(|text| match text.parse() {
        Ok(pointer) => Some(pointer),
        Err(error) => {
            problems.error(Code::InvalidValue, rule.at_of("pointer"), &rule.key_of("pointer"), format!("{error}"));
            None
        }
    });
    if !rule.has("pointer") && !rule.has("status") {
        let message = "a rule needs a `pointer`, a `status`, or both: it would match every answer";
        problems.error(Code::MissingKey, rule.at, &rule.key_of("pointer"), message);
    }
    if rule.has("equals") && !rule.has("pointer") {
        let message = "`equals` needs a `pointer`: what must be equal?";
        problems.error(Code::MissingKey, rule.at_of("equals"), &rule.key_of("pointer"), message);
    }
    let outcome = match rule.text("outcome")? {
        "succeeded" => Outcome::Succeeded,
        "not_executed" => Outcome::NotExecuted,
        "executed_error" => Outcome::ExecutedError,
        _ => Outcome::Unknown,
    };
    let status = rule.opt_int("status").and_then(|status| u16::try_from(status).ok());
    Some(ResultRule { pointer, equals: rule.json("equals").cloned(), status, outcome })
}
