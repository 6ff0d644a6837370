//! What a provider said, in whatever shape, brought into one form that the rules can look at.
//!
//! In: an error body with its headers, or an in-stream fault. Out: [`Words`]: identifiers (types, codes, statuses,
//! reasons) and text (messages), both in lower case for matching, and [`Said`] for the caller, keys masked. All shapes are
//! read by one walk over the JSON that knows names of members and no provider: each new vendor invents a shape, few
//! invent a name. Only named members are read, because error bodies quote the request ("failed_generation", "input"),
//! and a prompt about billing is no word of billing. URLs are dropped before matching for the same reason: a link to a
//! billing page stands in many a message about rate limits. Not here: what the words mean (`rules`).

use http::HeaderMap;
use serde_json::Value;

use super::mask::mask;
use super::{ERROR_BODY_BYTES_MAX, Said};
use crate::protocol::signal::Fault;

/// Bytes of a message that pass on. A provider's message is a few sentences; the longest recorded one (a list of models)
/// has 900 bytes. Cut at a character.
pub(super) const MESSAGE_BYTES_MAX: usize = 2_000;

/// Bytes of a type, code or param that pass on.
pub(super) const NAME_BYTES_MAX: usize = 200;

/// Characters of a body that is not JSON that pass on as message and, for HTML, are looked at at all: a page's title and
/// heading say what happened, the rest is navigation.
pub(super) const PLAIN_CHARS_MAX: usize = 200;

/// Bytes of text that the rules look at; later text is not looked at. Eight messages of the longest kind.
const TEXT_BYTES_MAX: usize = 16 * 1024;

/// Bytes that are looked through for keys; what is cut off behind them never passes on, since masking shortens a message
/// from eight times its bound to below the bound only where nearly all of it was keys.
const MASKED_BYTES_MAX: usize = 8 * MESSAGE_BYTES_MAX;

/// Identifiers that the rules look at; Google's `details` is the richest shape and has about a dozen.
const IDS_MAX: usize = 64;

/// JSON values that are visited, and how deep: bodies that are larger than this are not error objects.
const VISITS_MAX: u32 = 512;
const DEPTH_MAX: u32 = 10;

/// Members whose value names the error.
const ID_MEMBERS: &[&str] =
    &["type", "code", "status", "reason", "error_type", "errortype", "error_code", "errorcode", "__type", "@type"];

/// Members whose text describes it. `raw`: OpenRouter's quotation of the provider below. `quotaId`: Google's QuotaFailure.
const TEXT_MEMBERS: &[&str] = &[
    "message",
    "msg",
    "error",
    "errors",
    "detail",
    "details",
    "title",
    "raw",
    "description",
    "error_description",
    "error_message",
    "quotaid",
    "quotametric",
];

/// Members that hold further error objects. `previous_errors` (OpenRouter) is left out: those are of other attempts.
const NESTING_MEMBERS: &[&str] =
    &["error", "errors", "detail", "details", "metadata", "innererror", "inner_error", "violations", "response", "raw"];

/// The provider's words, for the rules and for the caller.
#[derive(Debug, Default)]
pub(super) struct Words {
    /// For the caller.
    pub(super) said: Said,
    ids: Vec<String>,
    text: String,
    visits: u32,
}

impl Words {
    /// Reads the body of an error answer.
    pub(super) fn of_body(headers: &HeaderMap, body: &[u8]) -> Self {
        let body = body.get(..ERROR_BODY_BYTES_MAX).unwrap_or(body);
        let mut words = Self::default();
        match json_in(body) {
            Some(value) => {
                words.gather(&value, 0);
                words.said = said_of(&value);
            }
            None => words.gather_plain(body),
        }
        words.gather_headers(headers);
        words
    }

    /// Reads an in-stream fault.
    pub(super) fn of_fault(fault: &Fault, headers: &HeaderMap) -> Self {
        let mut words = Self::default();
        for id in [&fault.kind, &fault.code].into_iter().flatten() {
            words.add_id(id);
        }
        words.add_text(fault.message.as_deref().unwrap_or_default(), 0);
        words.gather_headers(headers);
        words.said = Said {
            kind: fault.kind.as_deref().and_then(name),
            code: fault.code.as_deref().and_then(name).map(Value::String),
            message: fault.message.as_deref().and_then(message),
            param: None,
        };
        words
    }

    /// Whether a type, code, status or reason is exactly `code` (given in lower case).
    pub(super) fn has_code(&self, code: &str) -> bool {
        self.ids.iter().any(|id| id == code)
    }

    /// Whether `part` (given in lower case) stands in a type, code, status or reason.
    pub(super) fn has_code_with(&self, part: &str) -> bool {
        self.ids.iter().any(|id| id.contains(part))
    }

    /// Whether any message holds `text` (given in lower case).
    pub(super) fn has_text(&self, text: &str) -> bool {
        self.text.contains(text)
    }

    /// AWS names the error in a header (`Name:http://…`); Anthropic and OpenAI say in one whether a retry makes sense.
    fn gather_headers(&mut self, headers: &HeaderMap) {
        if let Some(kind) = headers.get("x-amzn-errortype").and_then(|value| value.to_str().ok()) {
            self.add_id(kind);
            if self.said.kind.is_none() {
                self.said.kind = name(bare_name(kind));
            }
        }
        if headers.get("x-should-retry").is_some_and(|value| value == "false") {
            self.add_id("x-should-retry=false");
        }
    }

    fn gather_plain(&mut self, body: &[u8]) {
        let text = String::from_utf8_lossy(body);
        if text.contains(|c: char| c.is_control() && !c.is_whitespace()) {
            return; // Compressed or binary: no words for anybody, and none to judge by.
        }
        let html = text.trim_start().starts_with('<');
        let plain = if html { without_tags(&text) } else { text.split_whitespace().collect::<Vec<_>>().join(" ") };
        let head: String = mask(clip(&plain, MASKED_BYTES_MAX)).chars().take(PLAIN_CHARS_MAX).collect();
        self.add_text(if html { &head } else { &plain }, DEPTH_MAX);
        self.said.message = Some(head).filter(|head| !head.is_empty());
    }

    fn gather(&mut self, value: &Value, depth: u32) {
        self.visits += 1;
        if depth > DEPTH_MAX || self.visits > VISITS_MAX {
            return;
        }
        match value {
            Value::Array(items) => items.iter().for_each(|item| self.gather(item, depth + 1)),
            Value::Object(members) => {
                for (key, member) in members {
                    let key = key.to_ascii_lowercase();
                    match member {
                        Value::String(text) if ID_MEMBERS.contains(&key.as_str()) => {
                            self.add_id(text);
                            // xAI writes sentences into `code`.
                            self.add_text(text, DEPTH_MAX);
                        }
                        Value::Number(number) if ID_MEMBERS.contains(&key.as_str()) => self.add_id(&number.to_string()),
                        Value::String(text) if TEXT_MEMBERS.contains(&key.as_str()) => self.add_text(text, depth),
                        Value::Array(_) | Value::Object(_) if NESTING_MEMBERS.contains(&key.as_str()) => {
                            self.gather(member, depth + 1);
                        }
                        _ => {}
                    }
                }
            }
            // An element of `errors` or `detail` that is a bare sentence, or a body that is one JSON string.
            Value::String(text) => self.add_text(text, depth),
            _ => {}
        }
    }

    fn add_id(&mut self, id: &str) {
        let id = bare_name(id.trim());
        if self.ids.len() < IDS_MAX && !id.is_empty() && id.len() <= NAME_BYTES_MAX {
            self.ids.push(id.to_ascii_lowercase());
        }
    }

    fn add_text(&mut self, text: &str, depth: u32) {
        let text = clip(text, ERROR_BODY_BYTES_MAX);
        // JSON as text: a gateway quotes the provider below (`metadata.raw`, or a whole body in `message`).
        let inner = text.trim_start();
        if depth < DEPTH_MAX
            && inner.starts_with(['{', '['])
            && let Ok(value) = serde_json::from_str::<Value>(inner)
        {
            self.gather(&value, depth + 1);
            return;
        }
        let mut rest = text;
        while !rest.is_empty() && self.text.len() < TEXT_BYTES_MAX {
            let (before, after) = rest.split_once("http").unwrap_or((rest, ""));
            let room = TEXT_BYTES_MAX - self.text.len();
            self.text.push_str(&clip(before, room).to_ascii_lowercase());
            let url = after.starts_with("://") || after.starts_with("s://");
            let end = if url { after.find(|c: char| c.is_whitespace() || "\"'`<>)".contains(c)) } else { Some(0) };
            rest = end.and_then(|end| after.get(end..)).unwrap_or_default();
        }
        self.text.push('\n');
    }
}

/// `com.amazon…#Name`, `Name:http://…` and `type.googleapis.com/google.rpc.Name` to `Name`.
fn bare_name(id: &str) -> &str {
    let id = id.rsplit_once('#').map_or(id, |(_, name)| name);
    let id = id.split_once(":http").map_or(id, |(name, _)| name);
    match id.strip_prefix("type.googleapis.com/") {
        Some(id) => id.rsplit_once('.').map_or(id, |(_, name)| name),
        None => id,
    }
}

/// The JSON of a body: the whole of it, or the data of its first event that is JSON (an error answer to a streaming
/// request may be framed as a stream).
fn json_in(body: &[u8]) -> Option<Value> {
    if let Ok(value) = serde_json::from_slice::<Value>(body) {
        return Some(value).filter(|value| value.is_object() || value.is_array() || value.is_string());
    }
    let lines = body.split(|&b| b == b'\n' || b == b'\r').filter(|line| !line.is_empty());
    let data = lines.take(64).filter_map(|line| line.strip_prefix(b"data:"));
    data.filter_map(|data| serde_json::from_slice::<Value>(data).ok()).find(Value::is_object)
}

/// Type, code, message and param of an error body, by the names that providers use for them.
fn said_of(value: &Value) -> Said {
    let top = value.as_array().and_then(|items| items.first()).unwrap_or(value);
    // `response.failed` keeps its error under `response`.
    let error = top.get("error").or_else(|| top.pointer("/response/error"));
    let object = error.filter(|error| error.is_object()).unwrap_or(top);
    let text = |key: &str| object.get(key).and_then(Value::as_str);
    let first_of = |keys: &[&str]| keys.iter().find_map(|key| text(key).filter(|text| !text.is_empty()));
    let bare = error.and_then(Value::as_str).or_else(|| top.as_str());
    let listed = ["/detail/0/msg", "/errors/0/message", "/errors/0", "/detail/0"];
    let told = || listed.iter().find_map(|at| object.pointer(at).and_then(Value::as_str));
    let said =
        bare.or_else(|| first_of(&["message", "Message", "msg", "detail", "error_message", "title"])).or_else(told);
    // `status` last: Google's `INVALID_ARGUMENT` stands there, others repeat the HTTP status.
    let kind = first_of(&["type", "error_type", "__type", "reason", "status"]).map(bare_name);
    Said {
        kind: kind.and_then(name),
        code: object.get("code").or_else(|| top.get("code")).and_then(scalar),
        message: said.and_then(message),
        param: object.get("param").and_then(scalar),
    }
}

/// A code or param as sent: text (masked, bounded) or a number; anything else is not one.
fn scalar(value: &Value) -> Option<Value> {
    match value {
        Value::String(text) => name(text).map(Value::String),
        Value::Number(_) | Value::Bool(_) => Some(value.clone()),
        _ => None,
    }
}

fn name(text: &str) -> Option<String> {
    let text = mask(clip(text, MASKED_BYTES_MAX));
    Some(clip(&text, NAME_BYTES_MAX).to_owned()).filter(|text| !text.is_empty())
}

fn message(text: &str) -> Option<String> {
    let text = mask(clip(text, MASKED_BYTES_MAX));
    Some(clip(&text, MESSAGE_BYTES_MAX).to_owned()).filter(|text| !text.is_empty())
}

/// The longest beginning of at most `max` bytes that ends at a character.
fn clip(text: &str, max: usize) -> &str {
    (max.saturating_sub(3)..=max).rev().find_map(|end| text.get(..end)).unwrap_or(text)
}

/// The text of a page: tags, scripts and styles left out, white space folded. One pass.
fn without_tags(page: &str) -> String {
    /// One more than `/script`.
    const TAG_BYTES: usize = 8;
    let mut out = String::new();
    let mut rest = page;
    let mut silent: Option<&str> = None;
    while let Some((text, after)) = rest.split_once('<') {
        if silent.is_none() {
            out.push_str(text);
            out.push(' ');
        }
        // No further than the longest name that matters: looking for the end of every `<` would be quadratic.
        let tag = clip(after, TAG_BYTES).split(|c: char| c.is_whitespace() || c == '>').next().unwrap_or_default();
        match silent {
            Some(closing) if tag.eq_ignore_ascii_case(closing) => silent = None,
            Some(_) => {
                rest = after;
                continue;
            }
            None if tag.eq_ignore_ascii_case("script") => silent = Some("/script"),
            None if tag.eq_ignore_ascii_case("style") => silent = Some("/style"),
            None => {}
        }
        rest = after.split_once('>').map_or("", |(_, after)| after);
    }
    if silent.is_none() {
        out.push_str(rest);
    }
    out.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn said(body: &str) -> Said {
        Words::of_body(&HeaderMap::new(), body.as_bytes()).said
    }

    #[test]
    fn said_in_every_shape() {
        // (body, type, code, message, param)
        type Row = (&'static str, Option<&'static str>, Option<Value>, Option<&'static str>, Option<Value>);
        let rows: &[Row] = &[
            (
                r#"{"error":{"message":"m","type":"t","param":"p","code":"c"}}"#,
                Some("t"),
                Some(json!("c")),
                Some("m"),
                Some(json!("p")),
            ),
            (r#"{"error":{"message":"m","type":"t","param":null,"code":null}}"#, Some("t"), None, Some("m"), None),
            (r#"{"type":"error","error":{"type":"t","message":"m"}}"#, Some("t"), None, Some("m"), None),
            (
                r#"{"error":{"code":404,"message":"m","status":"NOT_FOUND"}}"#,
                Some("NOT_FOUND"),
                Some(json!(404)),
                Some("m"),
                None,
            ),
            (r#"[{"error":{"code":404,"message":"m"}}]"#, None, Some(json!(404)), Some("m"), None),
            (r#"{"code":"c","error":"m"}"#, None, Some(json!("c")), Some("m"), None),
            (r#"{"error":"m","error_type":"t"}"#, Some("t"), None, Some("m"), None),
            (r#"{"detail":"m"}"#, None, None, Some("m"), None),
            (r#"{"detail":[{"type":"x","msg":"m"}]}"#, None, None, Some("m"), None),
            (r#"{"title":"t1","detail":"m","status":402}"#, None, None, Some("m"), None),
            (r#"{"code":401,"reason":"t","message":"m"}"#, Some("t"), Some(json!(401)), Some("m"), None),
            (r#"{"__type":"com.amazon.x#T","Message":"m"}"#, Some("T"), None, Some("m"), None),
            (
                r#"{"type":"response.failed","response":{"error":{"code":"c","message":"m"}}}"#,
                None,
                Some(json!("c")),
                Some("m"),
                None,
            ),
            (
                "event: error\ndata: {\"error\":{\"message\":\"m\",\"type\":\"t\"}}\n\n",
                Some("t"),
                None,
                Some("m"),
                None,
            ),
            (r#"  "m"  "#, None, None, Some("m"), None),
            ("upstream  request\ntimeout", None, None, Some("upstream request timeout"), None),
            (
                "<html><title>401 A</title><style>p{}</style><script>if(a<b){x}</script><p>b</html>",
                None,
                None,
                Some("401 A b"),
                None,
            ),
            ("<", None, None, None, None),
            ("", None, None, None, None),
            ("{}", None, None, None, None),
            ("17", None, None, Some("17"), None),
        ];
        for (body, kind, code, message, param) in rows {
            let want = Said {
                kind: kind.map(str::to_owned),
                code: code.clone(),
                message: message.map(str::to_owned),
                param: param.clone(),
            };
            assert_eq!(said(body), want, "{body}");
        }
    }

    #[test]
    fn words_come_from_named_members_only_and_not_from_links() {
        let words = |body: &str| Words::of_body(&HeaderMap::new(), body.as_bytes());
        let quoted = words(r#"{"error":{"message":"bad","failed_generation":"billing","input":{"message":"quota"}}}"#);
        assert!(quoted.has_text("bad") && !quoted.has_text("billing") && !quoted.has_text("quota"));
        let linked =
            words(r#"{"error":{"message":"Slow. See https://x.test/billing, or (http://y.test/quota) httpd today"}}"#);
        assert!(!linked.has_text("billing") && !linked.has_text("quota") && linked.has_text("d today"));
        let nested = words(
            r#"{"error":{"message":"m","metadata":{"raw":"{\"error\":{\"code\":\"deep\",\"message\":\"down\"}}"}}}"#,
        );
        assert!(nested.has_code("deep") && nested.has_text("down"));
        let google = words(
            r#"{"error":{"details":[{"@type":"type.googleapis.com/google.rpc.QuotaFailure","violations":[{"quotaId":"PerDay"}]}]}}"#,
        );
        assert!(google.has_code("quotafailure") && google.has_text("perday"));
    }

    #[test]
    fn bounds() {
        let long = "ü".repeat(5_000);
        let message = said(&json!({"error": {"message": long, "type": long, "code": long}}).to_string());
        assert_eq!(message.message.map(|m| m.len()), Some(MESSAGE_BYTES_MAX));
        assert_eq!(message.kind.map(|m| m.len()), Some(NAME_BYTES_MAX));
        assert_eq!(said(&long).message.map(|m| m.chars().count()), Some(PLAIN_CHARS_MAX));
        let many = json!(vec![json!({"message": "x".repeat(1_000), "code": "y"}); 2_000]).to_string();
        let words = Words::of_body(&HeaderMap::new(), many.as_bytes());
        assert!(words.text.len() <= TEXT_BYTES_MAX + 1 && words.ids.len() <= IDS_MAX);
    }
}
