//! `[telemetry]`: where spans go. The key wins over OpenTelemetry's own environment variables, which mean what they mean everywhere.

use super::super::Sources;
use super::super::node::Node;
use super::super::problem::{Code, Problems};
use super::super::settings::TelemetrySettings;
use super::origin;

/// What an OTLP/HTTP collector adds to its base URL for traces.
const TRACES_PATH: &str = "/v1/traces";

/// `[telemetry]`.
pub(super) fn telemetry(root: &Node, problems: &mut Problems<'_>, sources: &Sources<'_>) -> TelemetrySettings {
    let Some(node) = root.table("telemetry") else { return TelemetrySettings::default() };
    let set = |name: &str| (sources.env)(name).filter(|value| !value.trim().is_empty());
    let with_path = |base: String| format!("{}{TRACES_PATH}", base.trim_end_matches('/'));
    let found = if node.has("otlp_endpoint") {
        // What is wrong with it was said there.
        let Some(base) = origin::collector(root, problems) else { return TelemetrySettings::default() };
        Some(("", with_path(base)))
    } else if set("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true")) {
        None
    } else if let Some(url) = set("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") {
        Some(("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: ", url))
    } else {
        set("OTEL_EXPORTER_OTLP_ENDPOINT").map(|base| ("OTEL_EXPORTER_OTLP_ENDPOINT: ", with_path(base)))
    };
    let Some((origin, url)) = found else { return TelemetrySettings::default() };
    if !is_collector(&url) {
        // The text is not repeated: it may hold a password.
        let message = format!("{origin}expects http:// or https://, host and port of an OTLP/HTTP collector");
        let (at, key) = (node.at_of("otlp_endpoint"), node.key_of("otlp_endpoint"));
        // A variable is meant for all programs of a machine: one that fits ours ill must not keep it from serving.
        if origin.is_empty() {
            problems.error(Code::InvalidValue, at, &key, message);
        } else {
            problems.warning(Code::InvalidValue, at, &key, format!("{message}; there are no traces"));
        }
        return TelemetrySettings::default();
    }
    TelemetrySettings { otlp_traces_url: Some(url) }
}

fn is_collector(url: &str) -> bool {
    let Ok(uri) = url.parse::<http::Uri>() else { return false };
    let scheme = matches!(uri.scheme_str(), Some("http" | "https"));
    let authority = uri.authority().is_some_and(|authority| !authority.as_str().contains('@'));
    scheme && authority && uri.host().is_some_and(|host| !host.is_empty()) && uri.query().is_none()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::clock::UnixMillis;
    use crate::config::{Sources, parse};

    /// The URL, or what is complained of.
    fn url(table: &str, env: &[(&str, &str)]) -> Result<Option<String>, String> {
        let text = format!(
            "[provider.p]\nkind = \"openai-compatible\"\nbase_url = \"http://127.0.0.1:1/v1\"\n[route.a]\nprovider = \"p\"\n[workflow.w]\nprimary = \"a\"\n[telemetry]\n{table}"
        );
        let sources = Sources {
            folder: Path::new(""),
            env: &|name| env.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned()),
            read: &|_| Err(std::io::ErrorKind::NotFound.into()),
            now: UnixMillis(1_781_524_800_000),
            terminal: false,
        };
        match parse(&text, "t.toml", &sources) {
            Ok(loaded) => Ok(loaded.settings.telemetry.otlp_traces_url),
            Err(problems) => Err(problems.iter().map(|problem| problem.message.clone()).collect()),
        }
    }

    #[test]
    fn the_key_then_the_variables() {
        const KEY: &str = "otlp_endpoint = \"http://127.0.0.1:4318/\"";
        const ALL: &[(&str, &str)] = &[
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://traces.test/here"),
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "https://all.test"),
        ];
        let ours = Ok(Some("http://127.0.0.1:4318/v1/traces".to_owned()));
        assert_eq!(url(KEY, ALL), ours);
        assert_eq!(url(KEY, &[("OTEL_SDK_DISABLED", "true")]), ours, "who writes it here means it");
        assert_eq!(url("", ALL), Ok(Some("https://traces.test/here".to_owned())));
        assert_eq!(url("", &ALL[1..]), Ok(Some("https://all.test/v1/traces".to_owned())));
        assert_eq!(url("", &[ALL[1], ("OTEL_SDK_DISABLED", "True")]), Ok(None));
        assert_eq!(url("", &[("OTEL_EXPORTER_OTLP_ENDPOINT", "")]), Ok(None));
        assert_eq!(url("", &[]), Ok(None));
    }

    #[test]
    fn what_is_no_collector_is_refused_and_not_repeated() {
        for bad in ["127.0.0.1:4318", "grpc://h:4317", "http://", "http://u:secret@h:1", "http://h:1/?x=secret", "a b"]
        {
            let problem = url(&format!("otlp_endpoint = \"{bad}\""), &[]).unwrap_err();
            assert!(!problem.is_empty() && !problem.contains("secret"), "{bad}: {problem}");
        }
        assert_eq!(url("", &[("OTEL_EXPORTER_OTLP_ENDPOINT", "nonsense")]), Ok(None), "a warning");
    }
}
