//! What each kind of provider takes and is by default; passthrough paths.

use super::super::problem::Problem;
use super::super::settings::{ProviderKind, Settings, Terminal};
use super::{codes, parsed};
use crate::protocol::Dialect;

fn text(provider: &str, route: &str, workflow: &str) -> String {
    format!(
        "[provider.p]\n{provider}\n[route.r]\nprovider = \"p\"\n{route}\n[workflow.w]\nprimary = \"r\"\n{workflow}\n"
    )
}

fn settings(provider: &str) -> Result<Settings, Vec<Problem>> {
    parsed(&text(provider, "", "")).map(|loaded| {
        assert!(loaded.warnings.is_empty(), "{:?}", loaded.warnings);
        loaded.settings
    })
}

#[test]
fn bases_dialects_and_ends_by_kind() {
    use Dialect::{AnthropicMessages, ChatCompletions, Responses};
    const KEY: &str = "api_key = \"env:KEY\"";
    let rows: [(&str, ProviderKind, &str, &[Dialect], Terminal); 4] = [
        (
            "kind = \"azure-openai\"\nbase_url = \"https://r.openai.azure.com\"",
            ProviderKind::AzureOpenAi,
            "https://r.openai.azure.com/openai/v1",
            &[ChatCompletions, Responses],
            Terminal::Strict,
        ),
        (
            "kind = \"bedrock\"\nbase_url = \"https://bedrock-runtime.eu-west-1.amazonaws.com/openai/v1\"",
            ProviderKind::Bedrock,
            "https://bedrock-runtime.eu-west-1.amazonaws.com/openai/v1",
            &[ChatCompletions],
            Terminal::Lenient,
        ),
        (
            "kind = \"bedrock\"\nbase_url = \"https://bedrock-mantle.eu-west-1.api.aws/anthropic\"",
            ProviderKind::Bedrock,
            "https://bedrock-mantle.eu-west-1.api.aws/anthropic/v1",
            &[AnthropicMessages],
            Terminal::Lenient,
        ),
        (
            "kind = \"bedrock\"\nbase_url = \"https://bedrock-mantle.eu-west-1.api.aws/v1\"\nterminal = \"strict\"",
            ProviderKind::Bedrock,
            "https://bedrock-mantle.eu-west-1.api.aws/v1",
            &[ChatCompletions],
            Terminal::Strict,
        ),
    ];
    for (provider, kind, base, dialects, terminal) in rows {
        // A gateway in front of it may keep the key itself.
        let gateway = provider.replace("r.openai.azure.com", "gateway.example").replace("bedrock-", "gateway-");
        for (provider, key) in [(provider.to_owned(), KEY), (gateway, "")] {
            let base = if key.is_empty() {
                base.replace("r.openai.azure.com", "gateway.example").replace("bedrock-", "gateway-")
            } else {
                base.to_owned()
            };
            let settings = settings(&format!("{provider}\n{key}")).unwrap_or_else(|found| panic!("{found:#?}"));
            let route = settings.routes.values().next().unwrap();
            assert_eq!(route.dialects, dialects, "{provider}");
            let found = &route.provider;
            assert_eq!((found.kind, found.terminal), (kind, terminal), "{provider}");
            assert_eq!(found.base_url.to_string(), base);
            assert_eq!(found.credential().is_some(), !key.is_empty());
        }
    }
}

#[test]
fn mistakes_by_kind() {
    const AZURE: &str = "kind = \"azure-openai\"\nbase_url = \"https://r.openai.azure.com\"";
    const MANTLE: &str = "kind = \"bedrock\"\nbase_url = \"https://bedrock-mantle.eu-west-1.api.aws/anthropic\"";
    let with = |provider: &str, line: &str| format!("{provider}\n{line}");
    for (provider, expected) in [
        ("kind = \"azure-openai\"".to_owned(), &["missing_key 1"][..]),
        ("kind = \"bedrock\"".to_owned(), &["missing_key 1"]),
        (
            "kind = \"bedrock\"\nbase_url = \"https://bedrock-runtime.x.amazonaws.com\"".to_owned(),
            &["base_url_invalid 3"],
        ),
        (with(AZURE, "entra_token = \"file:key.txt\""), &[]),
        (with(AZURE, "entra_token = \"file:key.txt\"\napi_key = \"env:KEY\""), &["credential_twice 4"]),
        (with(AZURE, "entra_token = \"env:KEY\""), &["secret_inline 4"]),
        (with(AZURE, "entra_token = \"eyJ0\""), &["secret_inline 4"]),
        (with(AZURE, "entra_token = \"file:\""), &["secret_inline 4"]),
        (with(AZURE, "entra_token = \"file:none.txt\""), &["secret_unreadable 4"]),
        (with(AZURE, "entra_token = \"file:empty.txt\""), &["secret_empty 4"]),
        (with(MANTLE, "entra_token = \"file:key.txt\""), &["invalid_value 4"]),
        ("kind = \"gemini\"".to_owned(), &["not_built_yet 2"]),
    ] {
        let found = parsed(&text(&provider, "", "")).map_or_else(|found| codes(&found), |_| Vec::new());
        assert_eq!(found, expected, "{provider}");
    }
    for (provider, dialect, spoken) in [
        (AZURE, "chat-completions", true),
        (AZURE, "anthropic-messages", false),
        (MANTLE, "anthropic-messages", true),
        (MANTLE, "chat-completions", false),
    ] {
        let found = parsed(&text(&with(provider, "api_key = \"env:KEY\""), &format!("dialects = [\"{dialect}\"]"), ""));
        assert_eq!(found.is_ok(), spoken, "{provider} {dialect}");
        if let Err(found) = found {
            assert_eq!(codes(&found), ["dialect_not_spoken 7"]);
        }
    }
}

#[test]
fn passthrough_paths() {
    const OPENAI: &str = "kind = \"openai\"\napi_key = \"env:KEY\"";
    for (paths, expected) in [
        (r#"["/v1/files", "/v1/files/*", "/v1/responses", "/v1/responses/{id}"]"#, &[][..]),
        ("[]", &[]),
        (r#"["/v1/files", "/v1/files"]"#, &["duplicate 9"]),
        (r#"["/v2/files"]"#, &["invalid_value 9"]),
        (r#"["/v1/*"]"#, &["invalid_value 9"]),
        (r#"["/v1/models"]"#, &["passthrough_shadows 9"]),
        (r#"["/v1/messages/*", "/v1/chat/*"]"#, &["passthrough_shadows 9", "passthrough_shadows 9"]),
        ("\"/v1/files\"", &["wrong_type 9"]),
    ] {
        let loaded = parsed(&text(OPENAI, "", &format!("passthrough = {paths}")));
        let found = loaded.map_or_else(|found| codes(&found), |_| Vec::new());
        assert_eq!(found, expected, "{paths}");
    }
    let long = "/v1/messages/0123456789abcdefghij0123456789";
    for path in ["/v1/messages/{id}", "/v1/models", long, "/v1/operations/*"] {
        let list =
            parsed(&text(OPENAI, "", &format!("passthrough = [\"{path}\"]"))).map(|_| ()).err().unwrap_or_default();
        let shadows = list.iter().filter(|problem| problem.code.name() == "passthrough_shadows");
        shadows.for_each(|problem| assert!(problem.message.contains(&format!("`{path}`")), "{problem}"));
    }
}
