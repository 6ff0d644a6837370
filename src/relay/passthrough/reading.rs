//! What is read of a request that passes through: whether its path stays where it stands, which model it names, and the wish for an
//! answer in the background. Pure; a body is edited in one member at most and else stays as it came.

use bytes::Bytes;
use http::HeaderMap;
use http::request::Parts;

use crate::config::settings::WorkflowSettings;
use crate::protocol::json_object;
use crate::protocol::request::{RequestFacts, with_model};
use crate::relay::intake;

/// Whether every segment stays where it stands, once decoded, at a server that takes encoded slashes, backslashes or parameters for
/// what they are not.
pub(super) fn is_plain(path: &str) -> bool {
    let plain = |segment: &str| {
        decoded(segment).is_some_and(|bytes| {
            let step = |part: &[u8]| {
                let name = part.split(|byte| *byte == b';').next().unwrap_or_default();
                matches!(name, b"." | b"..")
            };
            !bytes.is_empty()
                && !bytes.iter().any(u8::is_ascii_control)
                && !bytes.split(|byte| matches!(byte, b'/' | b'\\')).any(step)
        })
    };
    path.strip_prefix('/').is_some_and(|path| path.split('/').all(plain))
}

/// Percent-decoded, once.
fn decoded(segment: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(segment.len());
    let mut rest = segment.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || char::from(rest.next()?).to_digit(16);
        bytes.push(u8::try_from(digit()? * 16 + digit()?).ok()?);
    }
    Some(bytes)
}

/// A model's name and where it stands in the body.
pub(super) type Model = (String, std::ops::Range<usize>);

/// The `model` of a JSON body, if it names one, once.
pub(super) fn model_of(headers: &HeaderMap, body: &Bytes) -> Option<Model> {
    if !intake::is_json(headers) {
        return None;
    }
    let object = json_object::members(body).ok()?;
    let mut named = object.all("model");
    match (named.next(), named.next()) {
        (Some(member), None) => Some((serde_json::from_str(member.value.get()).ok()?, member.range.clone())),
        _ => None,
    }
}

/// A name of the workflow's own means nothing to the provider: there the route's stands for it. Any other model passes as it is.
pub(super) fn own_model(body: Bytes, model: Option<Model>, workflow: &WorkflowSettings) -> Bytes {
    match (model, &workflow.primary.model) {
        (Some((name, range)), Some(own)) if is_of(workflow, &name) => {
            with_model(&body, &RequestFacts { model: Some((name, range)), ..RequestFacts::default() }, own)
        }
        _ => body,
    }
}

/// Whether a model's name is one of the workflow's own.
pub(super) fn is_of(workflow: &WorkflowSettings, model: &str) -> bool {
    workflow.models.iter().any(|name| name == model) || workflow.name.as_str() == model
}

/// The path whose background requests may pass; the others are the relay's own.
pub(super) const RESPONSES: &str = "/v1/responses";

/// For a request of [`RESPONSES`] that asks for an answer in the background: the same body without that wish. By it the request is
/// judged like any other (its workflow, its tools); it is not what is sent.
pub(in crate::relay) fn foreground(parts: &Parts, body: &Bytes) -> Option<Bytes> {
    if parts.uri.path() != RESPONSES {
        return None;
    }
    let object = json_object::members(body).ok()?;
    let wishes = object.members.iter().filter(|member| member.name.eq_ignore_ascii_case("background"));
    let wishes: Vec<_> = wishes.filter(|member| member.value.get() == "true").collect();
    let mut edited = Vec::with_capacity(body.len() + wishes.len());
    let mut copied = 0;
    for wish in &wishes {
        edited.extend_from_slice(body.get(copied..wish.range.start)?);
        edited.extend_from_slice(b"false");
        copied = wish.range.end;
    }
    edited.extend_from_slice(body.get(copied..)?);
    (!wishes.is_empty()).then(|| edited.into())
}

/// The body with the route's model, inserted where it names none.
pub(super) fn routed(body: &Bytes, own: &str) -> Bytes {
    let Ok(object) = json_object::members(body) else { return body.clone() };
    let named = object
        .last("model")
        .and_then(|member| Some((serde_json::from_str::<String>(member.value.get()).ok()?, member.range.clone())));
    let facts = RequestFacts {
        model: named,
        insert_at: object.insert_at,
        empty: object.members.is_empty(),
        ..RequestFacts::default()
    };
    with_model(body, &facts, own)
}

#[cfg(test)]
mod tests {
    use http::Request;
    use http::header::{CONTENT_TYPE, HeaderValue};

    use super::*;

    #[test]
    fn paths_that_stay_where_they_are() {
        for (path, plain) in [
            ("/v1/files", true),
            ("/v1/files/a%2Fb", true),
            ("/v1/files/a%20b..c", true),
            ("/v1/files/...", true),
            ("/v1/files/%252e%252e", true),
            ("/v1/models/m:x@y", true),
            ("/v1/files/..", false),
            ("/v1/files/.", false),
            ("/v1/files/%2e%2E", false),
            ("/v1/files/.%2e", false),
            ("/v1/files/x%2f..%2fy", false),
            ("/v1/files/%2e%2e%5cadmin", false),
            ("/v1/files/..;x=1", false),
            ("/v1/files/..\\admin", false),
            ("/v1/files/%00", false),
            ("/v1/files/a%0d%0ab", false),
            ("/v1/files/%", false),
            ("/v1/files/%zz", false),
            ("/v1//files", false),
            ("/v1/files/", false),
            ("", false),
            ("*", false),
        ] {
            assert_eq!(is_plain(path), plain, "{path}");
        }
    }

    #[test]
    fn a_wish_for_the_background_is_taken_out_for_judging_only() {
        let at = |path: &str| Request::builder().uri(path).body(()).unwrap().into_parts().0;
        for (path, body, judged) in [
            ("/v1/responses", r#"{"background":true,"model":"m"}"#, Some(r#"{"background":false,"model":"m"}"#)),
            ("/v1/responses?x=1", r#"{"a":1, "background" : true}"#, Some(r#"{"a":1, "background" : false}"#)),
            ("/v1/responses", r#"{"b\u0061ckground":true}"#, Some(r#"{"b\u0061ckground":false}"#)),
            (
                "/v1/responses",
                r#"{"background":true,"x":"true","Background":true}"#,
                Some(r#"{"background":false,"x":"true","Background":false}"#),
            ),
            ("/v1/responses", r#"{"background":false}"#, None),
            ("/v1/responses", r#"{"background":null,"metadata":{"background":true}}"#, None),
            ("/v1/responses", r#"{"background":"true"}"#, None),
            ("/v1/responses", "[true]", None),
            ("/v1/chat/completions", r#"{"background":true}"#, None),
        ] {
            let found = foreground(&at(path), &Bytes::from_static(body.as_bytes()));
            assert_eq!(found.as_deref(), judged.map(str::as_bytes), "{body}");
        }
        for (body, sent) in [
            (r#"{"background":true,"model":"alias"}"#, r#"{"background":true,"model":"own"}"#),
            (r#"{"background":true}"#, r#"{"model":"own","background":true}"#),
        ] {
            assert_eq!(routed(&Bytes::from_static(body.as_bytes()), "own"), sent);
        }
    }

    #[test]
    fn the_model_of_a_body() {
        let json: HeaderMap =
            [(CONTENT_TYPE, HeaderValue::from_static("application/json; charset=utf-8"))].into_iter().collect();
        let form: HeaderMap = [(CONTENT_TYPE, HeaderValue::from_static("multipart/form-data"))].into_iter().collect();
        for (headers, body, model) in [
            (&json, r#"{"model":"m"}"#, Some("m")),
            (&json, r#"{"input":"x","model":"m"}"#, Some("m")),
            (&json, r#"{"model":"m","model":"n"}"#, None),
            (&json, r#"{"model":7}"#, None),
            (&json, r#"{"input":{"model":"m"}}"#, None),
            (&json, "", None),
            (&json, "[]", None),
            (&form, r#"{"model":"m"}"#, None),
        ] {
            let found = model_of(headers, &Bytes::from_static(body.as_bytes()));
            assert_eq!(found.as_ref().map(|found| found.0.as_str()), model, "{body}");
        }
    }
}
