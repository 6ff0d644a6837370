//! What is explained, of one config: words, numbers, order; and what cannot be.

use bytes::Bytes;

use super::*;
use crate::clock::Instant;
use crate::config::testing::{TODAY, settings};
use crate::gate::AllOpen;
use crate::plan::NobodyKnown;

const CONFIG: &str = r#"[provider.p]
kind = "openai-compatible"
base_url = "http://127.0.0.1:1/v1"
[provider.q]
kind = "openai-compatible"
base_url = "http://127.0.0.1:2/v1"
network = "private"
[route.main]
provider = "p"
[route.spare]
provider = "q"
model = "m-2"
region = "eu"
capabilities = ["text"]
price = { input = 1.0, output = 10.0 }
verified = { on = 2026-01-01 }
[route.other]
provider = "q"
capabilities = ["text", "tools"]
[workflow.w]
primary = "main"
equivalents = ["spare"]
alternates = ["other"]
failover = { enabled = true }
[[approval]]
workflow = "w"
route = "spare"
purpose = "failover"
"#;

fn explained(ask: &Ask) -> Result<Explanation, AskError> {
    let settings = settings(CONFIG);
    let world = World {
        approvals: &settings.approvals,
        gate: &AllOpen,
        now: TODAY,
        at: Instant::now(),
        draw: 0,
        issuers: &NobodyKnown,
    };
    let figures = |route: &RouteSettings, _: &Contract| {
        (Duration::from_millis(2000), if route.price.is_some() { 0.5 } else { 0.0 })
    };
    let no_call = |_: &Plan, _: &WorkflowSettings, contract: &Contract, _: &[(Duration, f64)]| {
        let reason = "attempts_exhausted";
        (contract.attempts_used >= contract.envelope.max_attempts).then(|| NoCall { reason, refused: Vec::new() })
    };
    explain(&settings, ask, &world, Judges { figures: &figures, no_call: &no_call })
}

#[test]
fn a_request_that_fits_and_one_that_does_not() {
    let fine = explained(&Ask::default()).unwrap();
    let names: Vec<_> = fine.candidates.iter().map(|one| (one.route.as_str(), &*one.role)).collect();
    assert_eq!(names, [("main", "primary"), ("spare", "equivalent")]);
    assert_eq!((fine.candidates[1].estimated_cost_usd, fine.candidates[1].needs_ms), (0.5, 2000));
    let whys: Vec<_> = fine.refused.iter().map(|one| (one.route.as_str(), &*one.role, one.why.as_str())).collect();
    assert_eq!(
        whys,
        [
            ("other", "alternate", "cross_model_disabled"),
            ("other", "alternate", "approval_missing"),
            ("other", "alternate", "verification_missing")
        ]
    );
    assert!(fine.eligible && fine.rejected.is_none());

    let request = Bytes::from_static(
        br#"{"model":"m","max_tokens":7,"messages":[{"role":"user","content":"12345678"}],"tools":[{"type":"function","function":{"name":"f"}}]}"#,
    );
    let tools = explained(&Ask {
        request: Some(request),
        headers: vec!["rubicon-max-attempts: 2".to_owned(), "Anthropic-Beta: x".to_owned()],
        ..Ask::default()
    })
    .unwrap();
    assert_eq!(tools.request.capabilities, ["beta:x", "text", "tools"]);
    assert_eq!((tools.request.max_output_tokens, tools.envelope.max_attempts), (Some(7), 2));
    assert_eq!(tools.candidates.len(), 1);
    let read: Explanation = serde_json::from_str(&serde_json::to_string(&tools).unwrap()).unwrap();
    assert_eq!(read, tools, "another process's answer is printed alike");
    let text = tools.to_string();
    for line in [
        "workflow w (version 1), chat-completions\n",
        "uses      beta:x, text, tools\n",
        "  1. main (primary)\n     provider p, model (the request's own), region (not stated), account p, network (not stated)\n",
        "refused:\n  spare (equivalent)\n    capability:beta:x: It does not state a capability",
        "    capability:tools: ",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
}

#[test]
fn what_the_relay_would_refuse_as_a_whole() {
    let asked = |body: &'static str, dialect: Option<&str>| {
        let ask = Ask {
            request: Some(Bytes::from_static(body.as_bytes())),
            dialect: dialect.map(str::to_owned),
            ..Ask::default()
        };
        let explanation = explained(&ask).unwrap();
        assert!(!explanation.eligible);
        explanation.rejected.unwrap().code
    };
    assert_eq!(asked(r#"{"messages":[]}"#, None), "model_missing");
    assert_eq!(asked(r#"{"model":"m","messages":[],"tools":[{"type":"mcp"}]}"#, None), "side_effects_not_allowed");
    assert_eq!(asked(r#"{"model":"m","messages":[]}"#, Some("anthropic-messages")), "dialect_not_supported");
}

#[test]
fn what_cannot_be_asked() {
    let rows = [
        (Ask { workflow: Some("v".to_owned()), ..Ask::default() }, "unknown_workflow"),
        (Ask { dialect: Some("morse".to_owned()), ..Ask::default() }, "unknown_dialect"),
        (Ask { headers: vec!["no colon".to_owned()], ..Ask::default() }, "invalid_header"),
        (Ask { headers: vec!["rubicon-max-attempts: none".to_owned()], ..Ask::default() }, "invalid_header"),
        (Ask { request: Some(Bytes::from_static(b"[]")), ..Ask::default() }, "invalid_json"),
    ];
    for (ask, code) in rows {
        assert_eq!(explained(&ask).unwrap_err().code, code, "{ask:?}");
    }
    let header = explained(&Ask { headers: vec!["secret-without-colon".to_owned()], ..Ask::default() }).unwrap_err();
    assert!(!header.message.contains("secret"), "{header}");
}

#[test]
fn a_workflow_is_named_once_and_a_wrong_name_is_told() {
    let ask = |workflow: Option<&str>, header: Option<&str>| {
        let headers = header.map(|name| format!("Rubicon-Workflow: {name}")).into_iter().collect();
        explained(&Ask { workflow: workflow.map(str::to_owned), headers, ..Ask::default() })
    };
    for (workflow, header, code, said) in [
        (None, None, None, ""),
        (Some("w"), Some("w"), None, ""),
        (None, Some("w"), None, ""),
        (Some("nope"), None, Some("unknown_workflow"), "There is no workflow `nope`."),
        (None, Some("nope"), Some("unknown_workflow"), "There is no workflow `nope`."),
        (Some("w"), Some("v"), Some("workflow_contradiction"), "`w` and, by the header Rubicon-Workflow, `v`"),
    ] {
        let told = ask(workflow, header);
        assert_eq!(told.as_ref().err().map(|error| error.code), code, "{workflow:?} {header:?}");
        assert!(told.err().is_none_or(|error| error.message.contains(said)), "{said}");
    }
}
