//! `server.cors_origins` and `telemetry.otlp_endpoint`: addresses of others. No message repeats them: they may hold a password.

use super::super::node::Node;
use super::super::problem::{Code, Problems};
use super::url;

/// `server.cors_origins`, in lower case, as browsers send an origin.
pub(super) fn all(root: &Node, server: &Node, problems: &mut Problems<'_>) -> Vec<String> {
    let key = server.key_of("cors_origins");
    let mut origins: Vec<String> = Vec::new();
    for item in server.items("cors_origins").unwrap_or_default() {
        match origin(&item.text) {
            Err(why) => problems.error(Code::InvalidValue, item.at, &key, why),
            Ok(origin) if origins.contains(&origin) => {
                problems.error(Code::Duplicate, item.at, &key, "this origin stands here twice");
            }
            Ok(origin) => {
                let is_local = origin.parse().is_ok_and(|uri| url::is_loopback(&uri));
                if root.tables("client").is_empty() && !is_local {
                    let message = "without any [[client]] pages of loopback origins only are served";
                    problems.warning(Code::CorsNotServed, item.at, &key, message);
                }
                origins.push(origin);
            }
        }
    }
    origins
}

/// RFC 6454 section 6.2: scheme, host, and a port that is not the scheme's own.
fn origin(text: &str) -> Result<String, &'static str> {
    const EXPECTED: &str = "expects one origin: scheme://host or scheme://host:port, without a path";
    if text.contains('*') {
        return Err("`*` is not an origin: name each; their pages act with their users' keys");
    }
    let text = text.to_ascii_lowercase();
    let (scheme, authority) = text.split_once("://").ok_or(EXPECTED)?;
    let scheme_fits = scheme.starts_with(|first: char| first.is_ascii_alphabetic())
        && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
    if !scheme_fits || authority.contains(['/', '?', '#', '@', ' ']) {
        return Err(EXPECTED);
    }
    let parsed: http::uri::Authority = authority.parse().map_err(|_| EXPECTED)?;
    let port_written = authority.rsplit(']').next().is_some_and(|after| after.contains(':'));
    match parsed.port_u16() {
        _ if parsed.host().is_empty() => Err(EXPECTED),
        None | Some(0) if port_written => Err("its port is not a number"),
        Some(443) if scheme == "https" => Err("leave out the scheme's own port: browsers do"),
        Some(80) if scheme == "http" => Err("leave out the scheme's own port: browsers do"),
        _ => Ok(text),
    }
}

/// `telemetry.otlp_endpoint`.
pub(super) fn collector(root: &Node, problems: &mut Problems<'_>) -> Option<String> {
    let node = root.table("telemetry")?;
    let text = node.text("otlp_endpoint")?;
    let (at, key) = (node.at_of("otlp_endpoint"), node.key_of("otlp_endpoint"));
    let mut refuse = |why: &str| problems.error(Code::InvalidValue, at, &key, why);
    let Some((scheme @ ("http" | "https"), rest)) = text.split_once("://") else {
        refuse("must begin with http:// or https://");
        return None;
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if authority.contains('@') || rest.contains(['?', '#']) {
        refuse("must not hold a user, a password, a query or a fragment");
        return None;
    }
    let port_written = authority.rsplit(']').next().is_some_and(|after| after.contains(':'));
    let uri: Option<http::Uri> = text.parse().ok();
    let is_good = |uri: &http::Uri| {
        uri.host().is_some_and(|host| !host.is_empty())
            && (!port_written || uri.port_u16().is_some_and(|port| port != 0))
    };
    let Some(uri) = uri.filter(is_good) else {
        refuse("is not scheme, host, port and path");
        return None;
    };
    if scheme == "http" && !url::is_loopback(&uri) {
        let message =
            "traces go over plain http: names of clients, workflows and routes, and times, but no content or key";
        problems.warning(Code::TracesInClear, at, &key, message);
    }
    Some(text.trim_end_matches('/').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins() {
        for (text, form) in [
            ("https://app.example", Some("https://app.example")),
            ("HTTPS://App.Example", Some("https://app.example")),
            ("http://localhost:3000", Some("http://localhost:3000")),
            ("http://[::1]:3000", Some("http://[::1]:3000")),
            ("https://app.example:8443", Some("https://app.example:8443")),
            ("http://app.example:443", Some("http://app.example:443")),
            ("chrome-extension://abcdef", Some("chrome-extension://abcdef")),
            ("https://app.example:443", None),
            ("http://app.example:80", None),
            ("https://app.example/", None),
            ("https://app.example/path", None),
            ("https://user@app.example", None),
            ("https://app.example?x", None),
            ("https://*.example", None),
            ("*", None),
            ("null", None),
            ("app.example", None),
            ("https://", None),
            ("https://app.example:", None),
            ("https://app.example:0", None),
            ("https://app.example:99999", None),
            ("https://a b", None),
            ("://a", None),
            ("", None),
        ] {
            assert_eq!(origin(text).ok().as_deref(), form, "{text}");
        }
    }
}
