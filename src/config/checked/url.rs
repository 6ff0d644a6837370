//! `base_url` of a provider: what is accepted, and the one form in which the rest of the program sees it.

use super::super::settings::ProviderKind;

/// Why a `base_url` is refused.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Refusal(pub(super) String);

/// Scheme, authority and path, without a trailing slash (an empty path is `/` to [`http::Uri`]); `/v1` cut off for
/// anthropic, completed for azure-openai and bedrock. Never repeats the text: it may hold a password.
pub(super) fn base(kind: ProviderKind, text: &str) -> Result<http::Uri, Refusal> {
    let refuse = |why: &str| Err(Refusal(why.to_owned()));
    let Some((scheme, rest)) = text.split_once("://") else {
        return refuse("must begin with https:// (or http:// on loopback)");
    };
    if !matches!(scheme, "https" | "http") {
        return refuse("must begin with https:// (or http:// on loopback)");
    }
    let (authority, path) = rest.find(['/', '?', '#']).map_or((rest, ""), |cut| rest.split_at(cut));
    if authority.contains('@') {
        return refuse("must not hold a user or password; use `api_key`");
    }
    if path.contains(['?', '#']) {
        return refuse("must not have a query or a fragment");
    }
    let mut path = path.trim_end_matches('/');
    for (endpoint, known) in [("/chat/completions", "`/chat/completions`"), ("/messages", "`/v1/messages`")] {
        if path.ends_with(endpoint) {
            return refuse(&format!("leave out {known}: the relay adds the endpoint"));
        }
    }
    if kind == ProviderKind::Anthropic {
        path = path.strip_suffix("/v1").unwrap_or(path);
    }
    if path.contains("//") || path.split('/').any(|part| matches!(part, "." | "..")) {
        return refuse("its path must be plain");
    }
    let added = match added(kind, path) {
        Ok(added) => added,
        Err(why) => return refuse(why),
    };
    let uri: Option<http::Uri> = format!("{scheme}://{authority}{path}{added}").parse().ok();
    match uri {
        Some(uri) if uri.host().is_some_and(is_host) && uri.port_u16() != Some(0) => {
            let port_written = authority.rsplit(']').next().is_some_and(|after| after.contains(':'));
            if port_written && uri.port_u16().is_none() { refuse("its port is not a number") } else { Ok(uri) }
        }
        _ => refuse("is not scheme, host and path"),
    }
}

/// The address of a tool: scheme, host, path and query. Never repeats the text: a query may hold a key.
pub(super) fn of_tool(text: &str) -> Result<http::Uri, Refusal> {
    let refuse = |why: &str| Err(Refusal(why.to_owned()));
    let Some((scheme, rest)) = text.split_once("://").filter(|(scheme, _)| matches!(*scheme, "https" | "http")) else {
        return refuse("must begin with https:// (or http:// on loopback)");
    };
    let (authority, path) = rest.find(['/', '?', '#']).map_or((rest, ""), |cut| rest.split_at(cut));
    if authority.contains('@') {
        return refuse("must not hold a user or password; use `headers`");
    }
    if path.contains('#') {
        return refuse("must not have a fragment");
    }
    let mut parts = path.split('?').next().unwrap_or_default().split('/');
    if parts.any(|part| matches!(part, "." | "..")) || path.contains(['{', '}', '"', '\\', '^', '`', '|']) {
        return refuse("its path must be plain; other characters are percent-encoded");
    }
    let uri: Option<http::Uri> = format!("{scheme}://{authority}{path}").parse().ok();
    match uri {
        Some(uri) if uri.host().is_some_and(is_host) && uri.port_u16() != Some(0) => {
            let port_written = authority.rsplit(']').next().is_some_and(|after| after.contains(':'));
            if port_written && uri.port_u16().is_none() { refuse("its port is not a number") } else { Ok(uri) }
        }
        _ => refuse("is not scheme, host, path and query"),
    }
}

/// What is put behind a path. AzureOpenAI takes the resource and adds `/openai`; the v1 endpoint lies below it. The hosts of
/// Bedrock have several endpoints, of which the root is none that is spoken here.
fn added(kind: ProviderKind, path: &str) -> Result<&'static str, &'static str> {
    let last = path.rsplit('/').next().unwrap_or_default();
    match kind {
        ProviderKind::AzureOpenAi if path.contains("/openai/deployments") => {
            Err("leave out `/openai/deployments/…`: the deployment's name is the route's `model`")
        }
        ProviderKind::AzureOpenAi => Ok(match last {
            "v1" => "",
            "openai" => "/v1",
            _ => "/openai/v1",
        }),
        ProviderKind::Bedrock => match last {
            "v1" => Ok(""),
            "openai" | "anthropic" => Ok("/v1"),
            _ => Err("its path must be that of a compatible endpoint: `/openai/v1`, `/v1` or `/anthropic/v1`"),
        },
        ProviderKind::OpenAi | ProviderKind::Anthropic | ProviderKind::OpenAiCompatible => Ok(""),
    }
}

fn is_host(host: &str) -> bool {
    !host.is_empty() && host != "[]"
}

/// Whether the host is this machine: `localhost`, 127.0.0.0/8 or `[::1]`.
pub(super) fn is_loopback(uri: &http::Uri) -> bool {
    let host = uri.host().unwrap_or_default();
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost")
        || bare.parse::<std::net::IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
}

/// Whether the host is a vendor's own, which answers nobody without a credential. A gateway in front of one may keep the key itself.
pub(super) fn is_vendors_own(uri: &http::Uri) -> bool {
    const HOSTS: &[&str] = &["api.openai.com", "api.anthropic.com"];
    const BELOW: &[&str] =
        &[".api.openai.com", ".openai.azure.com", ".services.ai.azure.com", ".cognitiveservices.azure.com"];
    let host = uri.host().unwrap_or_default().trim_end_matches('.').to_ascii_lowercase();
    let bedrock = |part: &str| part.starts_with("bedrock-");
    let amazon = [".amazonaws.com", ".amazonaws.com.cn", ".api.aws"].iter().any(|end| host.ends_with(end));
    HOSTS.contains(&host.as_str())
        || BELOW.iter().any(|end| host.ends_with(end))
        || (amazon && host.split('.').any(bedrock))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ProviderKind::{Anthropic, AzureOpenAi, Bedrock, OpenAi, OpenAiCompatible};

    #[test]
    fn vendors_own_hosts() {
        for (host, own) in [
            ("api.openai.com", true),
            ("API.OpenAI.com.", true),
            ("eu.api.openai.com", true),
            ("api.anthropic.com", true),
            ("r.openai.azure.com", true),
            ("r.services.ai.azure.com", true),
            ("r.cognitiveservices.azure.com", true),
            ("bedrock-runtime.eu-west-1.amazonaws.com", true),
            ("bedrock-mantle.eu-west-1.api.aws", true),
            ("openai.example.com", false),
            ("api.openai.com.example", false),
            ("notapi.openai.com", false),
            ("s3.amazonaws.com", false),
            ("bedrock-runtime.example", false),
            ("127.0.0.1:8080", false),
        ] {
            assert_eq!(is_vendors_own(&format!("https://{host}/v1").parse().unwrap()), own, "{host}");
        }
    }

    #[test]
    fn accepted_forms() {
        for (kind, text, form) in [
            (OpenAi, "https://api.openai.com/v1", "https://api.openai.com/v1"),
            (OpenAi, "https://api.openai.com/v1/", "https://api.openai.com/v1"),
            (Anthropic, "https://api.anthropic.com", "https://api.anthropic.com/"),
            (Anthropic, "https://api.anthropic.com/v1", "https://api.anthropic.com/"),
            (Anthropic, "https://gateway.example/anthropic/v1/", "https://gateway.example/anthropic"),
            (OpenAiCompatible, "http://127.0.0.1:11434/v1", "http://127.0.0.1:11434/v1"),
            (OpenAiCompatible, "http://[::1]:9/v1beta/openai", "http://[::1]:9/v1beta/openai"),
            (AzureOpenAi, "https://r.openai.azure.com", "https://r.openai.azure.com/openai/v1"),
            (AzureOpenAi, "https://r.openai.azure.com/", "https://r.openai.azure.com/openai/v1"),
            (AzureOpenAi, "https://r.openai.azure.com/openai", "https://r.openai.azure.com/openai/v1"),
            (AzureOpenAi, "https://r.openai.azure.com/openai/v1/", "https://r.openai.azure.com/openai/v1"),
            (AzureOpenAi, "https://r.services.ai.azure.com", "https://r.services.ai.azure.com/openai/v1"),
            (AzureOpenAi, "https://gateway.example/azure", "https://gateway.example/azure/openai/v1"),
            (AzureOpenAi, "https://gateway.example/azure/v1", "https://gateway.example/azure/v1"),
            (
                Bedrock,
                "https://bedrock-runtime.eu-west-1.amazonaws.com/openai/v1",
                "https://bedrock-runtime.eu-west-1.amazonaws.com/openai/v1",
            ),
            (Bedrock, "https://bedrock-mantle.eu-west-1.api.aws/v1/", "https://bedrock-mantle.eu-west-1.api.aws/v1"),
            (Bedrock, "http://127.0.0.1:9/anthropic", "http://127.0.0.1:9/anthropic/v1"),
            (Bedrock, "http://127.0.0.1:9/anthropic/v1", "http://127.0.0.1:9/anthropic/v1"),
            (Bedrock, "http://127.0.0.1:9/openai/", "http://127.0.0.1:9/openai/v1"),
        ] {
            assert_eq!(base(kind, text).map(|uri| uri.to_string()), Ok(form.to_owned()), "{text}");
        }
    }

    #[test]
    fn refused_forms_and_no_echo() {
        for text in [
            "api.openai.com/v1",
            "ftp://api.openai.com",
            "https://",
            "https:///v1",
            "https://user:SECRET@host/v1",
            "https://host/v1?key=SECRET",
            "https://host?key=SECRET",
            "https://host/v1#SECRET",
            "https://host/v1/chat/completions",
            "https://host/v1/messages/",
            "https://host:SECRET/v1",
            "https://host:0/v1",
            "https://host/a/../b",
            "https://ho st/v1",
        ] {
            let refusal = base(OpenAi, text).expect_err(text);
            assert!(!refusal.0.contains("SECRET"), "{text}");
        }
    }

    #[test]
    fn endpoints_that_are_not_spoken() {
        for (kind, text) in [
            (AzureOpenAi, "https://r.openai.azure.com/openai/deployments/d"),
            (AzureOpenAi, "https://r.openai.azure.com/openai/deployments/d/chat/completions"),
            (AzureOpenAi, "https://r.openai.azure.com/openai/v1?api-version=preview"),
            (Bedrock, "https://bedrock-runtime.eu-west-1.amazonaws.com"),
            (Bedrock, "https://bedrock-runtime.eu-west-1.amazonaws.com/model/m/converse-stream"),
            (Bedrock, "https://bedrock-mantle.eu-west-1.api.aws/anthropic/v1/messages"),
        ] {
            base(kind, text).expect_err(text);
        }
    }

    #[test]
    fn loopback_hosts() {
        for (text, loopback) in [
            ("http://localhost:1", true),
            ("http://127.8.9.1", true),
            ("http://[::1]:2", true),
            ("http://[::ffff:127.0.0.1]", true),
            ("http://10.0.0.1", false),
            ("http://localhost.example.com", false),
            ("http://127.0.0.1.example.com", false),
        ] {
            assert_eq!(is_loopback(&text.parse().unwrap()), loopback, "{text}");
        }
    }
}
