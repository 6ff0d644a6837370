//! `passthrough` of a workflow: which paths go to the primary as they are.
//!
//! In: a pattern of the configuration. Out: a [`Pattern`] that a request's path is held against, segment by segment as it was
//! written (an encoded slash parts nothing). Pure. Deliberately not here: what is done with a request that fits
//! (`relay::passthrough`).

/// Segments of a pattern. The longest path of OpenAI's API has eight.
const SEGMENTS_MAX: usize = 16;

/// A path pattern below `/v1/`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    text: String,
    /// The segments after `v1`.
    segments: Vec<Segment>,
    /// It ends in `/*`: one or more further segments.
    rest: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Segment {
    Literal(String),
    /// `{name}`: any one.
    Any,
}

/// What the relay serves itself, or will: a pattern may not take any of it. The second member: everything below it, too.
const OWN: &[(&str, bool)] = &[
    ("/v1/chat/completions", false),
    ("/v1/messages", false),
    ("/v1/messages/count_tokens", false),
    ("/v1/models", false),
    ("/v1/operations", true),
    ("/v1/executions", true),
    ("/v1/tools", true),
    ("/v1/jobs", true),
];

impl Pattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// A sentence that says what is wrong with it, without any of its text.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let Some(below) = text.strip_prefix("/v1/") else { return Err("must begin with /v1/") };
        let (below, rest) = match below.strip_suffix("/*") {
            Some(below) => (below, true),
            None => (below, false),
        };
        let segments: Result<Vec<Segment>, _> = below.split('/').map(segment).collect();
        let segments = segments?;
        if segments.len() > SEGMENTS_MAX {
            return Err("has too many segments");
        }
        Ok(Self { text: text.to_owned(), segments, rest })
    }

    /// As written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether a request's path, as it was sent, fits.
    pub fn matches(&self, path: &str) -> bool {
        let Some(below) = path.strip_prefix("/v1/") else { return false };
        let mut parts = below.split('/');
        let fits = self.segments.iter().all(|segment| match (segment, parts.next()) {
            (Segment::Literal(literal), Some(part)) => literal == part,
            (Segment::Any, Some(part)) => !part.is_empty(),
            (_, None) => false,
        });
        let mut more = parts.peekable();
        fits && more.peek().is_some() == self.rest && more.all(|part| !part.is_empty())
    }

    /// A path that the relay serves itself and that the pattern would take. `/v1/responses` is none: it stands for background
    /// requests, which the relay does not serve.
    pub fn shadows(&self) -> Option<&'static str> {
        OWN.iter().find(|(own, below)| self.matches(own) || (*below && self.may_lie_below(own))).map(|(own, _)| *own)
    }

    /// Whether some path that fits lies below `own`, which is one segment below `/v1/`.
    fn may_lie_below(&self, own: &str) -> bool {
        let first = own.trim_start_matches("/v1/");
        let long = self.rest || self.segments.len() > 1;
        long && match self.segments.first() {
            Some(Segment::Literal(literal)) => literal == first,
            Some(Segment::Any) | None => true,
        }
    }
}

fn segment(text: &str) -> Result<Segment, &'static str> {
    if let Some(name) = text.strip_prefix('{') {
        let name = name.strip_suffix('}').unwrap_or_default();
        let named = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        return if named { Ok(Segment::Any) } else { Err("a segment in braces is {name}, of letters, digits and _") };
    }
    if text.is_empty() || matches!(text, "." | "..") {
        return Err("its segments must be plain and not empty");
    }
    if text == "*" {
        return Err("`*` stands for the rest, so it can only be the last segment, behind another one");
    }
    if !text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~:@".contains(&byte)) {
        return Err("its segments are of letters, digits and -._~:@, or {name}");
    }
    Ok(Segment::Literal(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fits() {
        for (pattern, fits, fits_not) in [
            (
                "/v1/embeddings",
                &["/v1/embeddings"][..],
                &["/v1/embeddings/", "/v1/embeddings/x", "/v1/Embeddings", "/v2/embeddings", "/v1/%65mbeddings", "/v1"]
                    [..],
            ),
            (
                "/v1/responses/{id}",
                &["/v1/responses/resp_1", "/v1/responses/a%2Fb", "/v1/responses/%2e%2e"],
                &["/v1/responses", "/v1/responses/", "/v1/responses/a/b"],
            ),
            (
                "/v1/responses/{id}/cancel",
                &["/v1/responses/r/cancel"],
                &["/v1/responses/r", "/v1/responses//cancel", "/v1/responses/r/cancel/x"],
            ),
            (
                "/v1/conversations/*",
                &["/v1/conversations/c", "/v1/conversations/c/items/i"],
                &["/v1/conversations", "/v1/conversations/", "/v1/conversations/c/", "/v1/conversations//c"],
            ),
            ("/v1/a/{b}/*", &["/v1/a/b/c"], &["/v1/a/b", "/v1/a", "/v1/x/b/c"]),
            ("/v1/models/m:predict", &["/v1/models/m:predict"], &["/v1/models/m"]),
        ] {
            let pattern = Pattern::parse(pattern).unwrap();
            assert_eq!(pattern.shadows(), None, "{}", pattern.as_str());
            for path in fits {
                assert!(pattern.matches(path), "{} {path}", pattern.as_str());
            }
            for path in fits_not {
                assert!(!pattern.matches(path), "{} {path}", pattern.as_str());
            }
        }
    }

    #[test]
    fn what_is_no_pattern() {
        for text in [
            "",
            "/",
            "/v1",
            "/v1/",
            "/v1/*",
            "v1/files",
            "/v2/files",
            "https://evil.test/v1/files",
            "/v1//files",
            "/v1/files/",
            "/v1/files/..",
            "/v1/./files",
            "/v1/files?x=1",
            "/v1/files#x",
            "/v1/*/files",
            "/v1/files/*/x",
            "/v1/files*",
            "/v1/{",
            "/v1/{}",
            "/v1/{a b}",
            "/v1/{id}x",
            "/v1/fi%6ces",
            "/v1/fi les",
            "/v1/ä",
        ] {
            assert!(Pattern::parse(text).is_err(), "{text}");
        }
        assert!(Pattern::parse(&format!("/v1{}", "/x".repeat(SEGMENTS_MAX + 1))).is_err());
    }

    #[test]
    fn what_the_relay_serves_itself_can_not_be_taken() {
        for (text, own) in [
            ("/v1/chat/completions", Some("/v1/chat/completions")),
            ("/v1/chat/*", Some("/v1/chat/completions")),
            ("/v1/{a}/{b}", Some("/v1/chat/completions")),
            ("/v1/{a}/*", Some("/v1/chat/completions")),
            ("/v1/messages/{id}", Some("/v1/messages/count_tokens")),
            ("/v1/messages/*", Some("/v1/messages/count_tokens")),
            ("/v1/{a}", Some("/v1/messages")),
            ("/v1/models", Some("/v1/models")),
            ("/v1/operations/{id}", Some("/v1/operations")),
            ("/v1/jobs/x/y", Some("/v1/jobs")),
            ("/v1/{a}/items/x", Some("/v1/operations")),
            ("/v1/messages/batches", None),
            ("/v1/messages/batches/*", None),
            ("/v1/chat/completions/{id}", None),
            ("/v1/models/{id}", None),
            ("/v1/responses", None),
            ("/v1/responses/{id}", None),
            ("/v1/responses/*", None),
            ("/v1/jobsite", None),
        ] {
            assert_eq!(Pattern::parse(text).unwrap().shadows(), own, "{text}");
        }
    }
}
