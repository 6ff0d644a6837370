//! What the whole room promises: every key is acted on or refused, every problem is reported with its place, no problem
//! carries a secret. One row a case.

mod every_key;
mod includes;
mod kinds;
mod problems;
mod splits;
mod tools;

use std::io;
use std::path::Path;

use crate::clock::UnixMillis;

use super::{Loaded, Problem, Sources, parse};

/// 2026-12-01T00:00:00Z.
pub(super) const NOW: UnixMillis = UnixMillis(1_796_083_200_000);

/// A config that uses every section once.
pub(super) const BASE: &str = r#"[server]

[log]

[[client]]
name = "web"
keys = ["env:WEB"]
workflows = ["w"]

[provider.p]
kind = "openai"
api_key = "env:KEY"

[provider.q]
kind = "openai-compatible"
base_url = "https://q.example/v1"

[route.main]
provider = "p"

[route.other]
provider = "q"

[workflow.w]
primary = "main"
equivalents = ["other"]

[[approval]]
workflow = "w"
route = "other"
purpose = "failover"

[telemetry]

[[operator]]
name = "ana"
token = "env:TOKEN_OF_ANA"
role = "viewer"

[tool.t]

[tool.t.endpoint]
url = "https://t.example/run"

[tool.t.probe]
url = "https://t.example/runs/{key}"

[[tool.t.probe.rules]]
status = 404
outcome = "not_executed"
"#;

pub(super) fn env(name: &str) -> Option<String> {
    match name {
        "EMPTY" => Some(String::new()),
        "SPACED" => Some("two words".into()),
        "SAME" | "WEB" => Some("client-key-one".into()),
        "UNSET" | "unset_123" => None,
        _ if name.starts_with("OTEL_") => None,
        _ => Some(format!("value-of-{name}")),
    }
}

pub(super) fn read(path: &Path) -> io::Result<String> {
    match path.to_str() {
        Some("folder/key.txt") => Ok("file-secret\n".into()),
        Some("folder/crlf.txt") => Ok("file-secret\r\n".into()),
        Some("folder/two.txt") => Ok("file-secret\n\n".into()),
        Some("folder/schema.json") => Ok(r#"{"type": "object", "properties": {"id": {}}, "required": ["id"]}"#.into()),
        Some("folder/empty.txt") => Ok("\n".into()),
        Some("folder/locked.txt") => Err(io::ErrorKind::PermissionDenied.into()),
        _ => Err(io::ErrorKind::NotFound.into()),
    }
}

pub(super) fn parsed(text: &str) -> Result<Loaded, Vec<Problem>> {
    let sources = Sources { folder: Path::new("folder"), env: &env, read: &read, now: NOW, terminal: false };
    parse(text, "t.toml", &sources)
}

/// Puts `lines` right below `header` in [`BASE`].
pub(super) fn with(header: &str, lines: &str) -> String {
    let header = format!("{header}\n");
    assert!(BASE.contains(&header), "{header}");
    BASE.replacen(&header, &format!("{header}{lines}\n"), 1)
}

/// `code line` of every problem.
pub(super) fn codes(list: &[Problem]) -> Vec<String> {
    list.iter().map(|problem| format!("{} {}", problem.code.name(), problem.line)).collect()
}

/// A pipe without a writer would be waited for for ever, a device may never end.
#[cfg(unix)]
#[test]
fn what_is_no_regular_file_is_refused_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let to_pipe = folder.path().join("link");
    std::os::unix::fs::symlink(&pipe, &to_pipe).unwrap();
    let config = folder.path().join("rubicon.toml");
    std::fs::write(&config, "[provider.p]\nkind = \"openai\"\napi_key = \"file:pipe\"\n[route.r]\nprovider = \"p\"\n[workflow.w]\nprimary = \"r\"\n").unwrap();
    for (path, code, why) in [
        (pipe, "config_unreadable", "it is not a regular file"),
        (to_pipe, "config_unreadable", "it is not a regular file"),
        (Path::new("/dev/zero").to_owned(), "config_unreadable", "it is not a regular file"),
        (folder.path().to_owned(), "config_unreadable", "it is a folder"),
        (config, "secret_unreadable", "it is not a regular file"),
    ] {
        let (send, answer) = std::sync::mpsc::channel();
        let file = path.clone();
        std::thread::spawn(move || send.send(super::load(&file, &env, NOW).map(|_| ())));
        let problems = answer.recv_timeout(std::time::Duration::from_secs(10)).expect("it hangs").unwrap_err();
        let found: Vec<_> = problems.iter().map(|problem| problem.code.name()).collect();
        assert_eq!(found, [code], "{}", path.display());
        assert!(problems[0].message.contains(why), "{}", problems[0].message);
    }
}
