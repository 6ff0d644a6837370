//! What differs between two loads is named, what only a restart changes is kept, and no relay is opened by a reload.

use super::super::tests::{BASE, parsed, with};
use super::*;

fn loaded(text: &str) -> Loaded {
    parsed(text).unwrap_or_else(|problems| panic!("{problems:#?}"))
}

fn differs(old: &Loaded, new: &Loaded) -> Changes {
    changes(&old.settings, old.secrets, new)
}

#[test]
fn what_differs_is_named() {
    let old = loaded(BASE);
    assert!(differs(&old, &loaded(BASE)).is_empty());
    assert!(differs(&old, &loaded(&format!("# a comment\n{BASE}"))).is_empty());
    for (text, names) in [
        (with("[server]", "max_in_flight = 7"), vec!["server"]),
        (with("[route.other]", "model = \"m\""), vec!["route.other", "workflow.w"]),
        (with("[provider.q]", "network = \"private\""), vec!["provider.q", "route.other", "workflow.w"]),
        (with("[[client]]", "show_routes = true"), vec!["client.web"]),
        (with("[tool.t]", "max_runs = 1"), vec!["tool.t"]),
        (with("[tool.t.probe]", "agree = 7"), vec!["tool.t"]),
        (with("[[approval]]", "until = 2027-01-01"), vec!["approval"]),
        (BASE.replace("[[client]]", "[[client]]\nname = \"b\"\nkeys = [\"env:B\"]\n[[client]]"), vec!["client.b"]),
        (BASE.replace("\"web\"", "\"www\""), vec!["client.web", "client.www"]),
    ] {
        assert_eq!(differs(&old, &loaded(&text)).names, names, "{text}");
    }
    let mut many = BASE.to_owned();
    for at in 0..60 {
        many += &format!("[route.r{at}]\nprovider = \"p\"\n");
    }
    let names = differs(&old, &loaded(&many)).names;
    assert_eq!((names.len(), names.last().map(String::as_str)), (NAMES_MAX + 1, Some("… and 20 more")));
}

#[test]
fn a_changed_secret_is_seen_and_not_shown() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rubicon.toml");
    std::fs::write(&path, BASE.replace("env:WEB", "file:web.key")).unwrap();
    let load = |key: &str, env: &'static str| {
        std::fs::write(folder.path().join("web.key"), key).unwrap();
        super::super::load(&path, &|_| Some(env.to_owned()), super::super::tests::NOW).unwrap()
    };
    let old = load("first", "a-value-of-the-environment");
    assert!(differs(&old, &load("first", "a-value-of-the-environment")).is_empty());
    assert_eq!(differs(&old, &load("second", "a-value-of-the-environment")).names, ["secrets"]);
    assert_eq!(differs(&old, &load("first", "another-value-of-it")).names, ["secrets"]);
}

#[test]
fn what_only_a_restart_changes_stays_and_is_named() {
    let running = loaded(BASE).settings;
    let text = with(
        "[server]",
        "listen = \"127.0.0.1:9\"\nadmin_listen = \"127.0.0.1:7\"\nmetrics_open = true\nstore = \"redb:x\"\nmax_in_flight = 3",
    )
    .replace("[telemetry]", "[telemetry]\notlp_endpoint = \"http://127.0.0.1:4318\"")
    .replace("[log]", "[log]\nlevel = \"debug\"\nformat = \"text\"\nevents = \"off\"");
    let mut new = loaded(&text);
    let warnings = keep_what_needs_a_restart(&running, &mut new).unwrap();
    let keys: Vec<(&str, usize)> = warnings.iter().map(|problem| (problem.key.as_str(), problem.line)).collect();
    let expected = [
        ("server.listen", 2),
        ("server.admin_listen", 3),
        ("server.store", 5),
        ("log.format", 10),
        ("log.level", 9),
        ("log.events", 11),
        ("telemetry.otlp_endpoint", 42),
    ];
    assert_eq!(keys, expected);
    assert!(warnings.iter().all(|problem| problem.severity == Severity::Warning && problem.code == Code::NeedsRestart));
    assert_eq!(new.settings.server.max_in_flight, 3);
    let running = Loaded { settings: running, ..loaded(BASE) };
    assert_eq!(differs(&running, &new).names, ["server"], "what was kept is no change");
}

/// Each file is good on its own; together they would open the relay to whoever reaches it.
#[test]
fn clients_are_not_taken_from_a_relay_that_listens_beyond_loopback() {
    let running = loaded(&with("[server]", "listen = \"0.0.0.0:8080\"")).settings;
    let text = BASE.replacen("[[client]]\nname = \"web\"\nkeys = [\"env:WEB\"]\nworkflows = [\"w\"]\n", "", 1);
    let refused = keep_what_needs_a_restart(&running, &mut loaded(&text)).unwrap_err();
    assert_eq!((refused.severity, refused.code), (Severity::Error, Code::ListenNotLoopback));
}
