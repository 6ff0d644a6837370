//! `visible-output.md` out of the dialects' tables: the document that users read, and that CI compares with the event types
//! which the official SDKs declare (`tests/clients/sdk_types.py`).
//!
//! In: [`Dialect::table`], the rows by which the readers decide. Out: a section a dialect, a line a row, in the order in which they
//! are tried. The file is checked in, so that it can be read without building; the test below fails when it is stale and
//! rewrites it when `RUBICON_UPDATE_DOCS=1` is set. Built for tests only: the relay itself prints no documentation.

use std::fmt::Write as _;

use super::Dialect;
use super::signal::{Row, Show, VisibleKind};
use crate::boundary::hold::REASONING_BYTES_MAX;

const HEAD: &str = "# What counts as visible output\n\n\
Printed from the tables by which the relay decides (`src/protocol/*/table.rs`); do not edit\n\
(`RUBICON_UPDATE_DOCS=1 cargo test --lib protocol::doc`).\n\n\
*Visible* is whatever a client can show, store or act on. With the first such event an attempt is **committed**: what was held\n\
goes out in order, and no other attempt may answer from there on. Before it the events of an attempt are held back, so that a failure\n\
leaves no trace and another attempt can answer.\n\n\
- **Not known is visible.** An event, block or delta that no row names falls to the `*` row, and text that is not JSON counts as\n  \
output: a wrong guess in that direction costs a failover, in the other it doubles output.\n\
- **A tool that the provider runs commits before any text**, because to repeat the attempt would run it again. Where a row says\n  \
*may act* (code, shell, MCP), a failure from there on is `side_effect_uncertain`; after a look-up (a search, a fetch) it is\n  \
`partial_output`.\n\
- **Reasoning is visible** unless the workflow says `reasoning = \"hold\"`: then it is held like the lifecycle, within a limit of\n  \
{reasoning}, at which the attempt fails rather than show what it hides.\n\
- **The hold is bounded**: past `hold.max_events` or `hold.max_bytes` it is released and the attempt committed\n  \
(`hold_limit`). Pings and comments do not count, and never commit.\n\n\
Of several rows that fit, the first decides; `*` is any name that no row above has.\n";

/// The whole document.
fn render() -> String {
    let mut text = HEAD.replace("{reasoning}", &format!("{} MiB", REASONING_BYTES_MAX / (1024 * 1024)));
    for dialect in Dialect::ALL {
        let _ = write!(text, "\n## {}\n\n{}\n\n", dialect.name(), about(dialect));
        text.push_str("| event | sub | when | shows |\n| --- | --- | --- | --- |\n");
        for row in dialect.table() {
            let sub = if row.sub.is_empty() { "–".to_owned() } else { code(row.sub) };
            let when = row.when.split(": a fault").next().unwrap_or(row.when);
            let _ = writeln!(text, "| {} | {sub} | {when} | {} |", code(row.event), shows(row));
        }
    }
    text
}

/// What the columns mean in this dialect.
fn about(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::ChatCompletions => {
            "*event* is a member and where it stands: `delta.` in `choices[].delta` (and in `choices[].message`, which some providers\n\
send instead), `choice.` beside it, `chunk.` at top level; `data` is an event's text as a whole, `event` its `event:`\n\
line. A chunk shows what the most telling of its members shows. An unknown member is visible in `delta` only: beside it providers\n\
put notes of their own, which no client takes for output."
        }
        Dialect::AnthropicMessages => {
            "*event* is the event's `type`, *sub* the type of the block that starts or of the delta."
        }
        Dialect::Responses => {
            "*event* is the event's `type`, *sub* the type of its item or part. What comes as a whole after its deltas (`*.done`) counts\n\
where no delta came; where one did, the boundary is crossed already. Encrypted reasoning alone shows nothing.\n\
Items in the `output` of the response that `response.created`, `.queued` or `.in_progress` brings show what they show when they are\n\
added; in that of a failed one a tool that *may act* makes the failure `side_effect_uncertain`."
        }
    }
}

fn code(text: &str) -> String {
    format!("`{}`", text.replace('|', "\\|"))
}

/// The last column.
fn shows(row: &Row) -> String {
    if is_fault(row) {
        return "failure of the attempt".to_owned();
    }
    match row.show {
        Show::Preamble => "nothing: held".to_owned(),
        Show::Ping => "nothing: ping".to_owned(),
        Show::Visible(kind) => format!("**visible**: {}", kind_words(kind)),
        Show::Effect { may_act: true } => "**effect**: may act".to_owned(),
        Show::Effect { may_act: false } => "**effect**: look-up".to_owned(),
    }
}

/// Rows of error events: what they show is never asked (a test holds the readers to it).
fn is_fault(row: &Row) -> bool {
    row.event == "error" || row.when.contains("a fault")
}

fn kind_words(kind: VisibleKind) -> &'static str {
    match kind {
        VisibleKind::Text => "text",
        VisibleKind::Refusal => "refusal",
        VisibleKind::Reasoning => "reasoning",
        VisibleKind::ToolCall => "tool call",
        VisibleKind::Audio => "audio",
        VisibleKind::Image => "image",
        VisibleKind::Citation => "citation",
        VisibleKind::HostedResult => "result of a hosted tool",
        VisibleKind::Unknown => "not known",
        VisibleKind::NotJson => "not JSON",
    }
}

mod tests {
    use super::*;

    #[test]
    fn visible_output_md_is_what_the_tables_say() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/protocol/visible-output.md");
        let rendered = render();
        if std::env::var_os("RUBICON_UPDATE_DOCS").is_some_and(|value| value == "1") {
            std::fs::write(path, &rendered).unwrap();
        }
        let written = std::fs::read_to_string(path).unwrap();
        assert!(written == rendered, "visible-output.md is stale: run with RUBICON_UPDATE_DOCS=1");
    }

    #[test]
    fn every_row_has_a_line_of_four_cells_and_no_two_look_alike() {
        let rendered = render();
        let mut lines: Vec<&str> = rendered.lines().filter(|line| line.starts_with("| `")).collect();
        assert_eq!(lines.len(), Dialect::ALL.iter().map(|dialect| dialect.table().len()).sum::<usize>());
        for line in &lines {
            assert_eq!(line.matches(" | ").count(), 3, "{line}");
        }
        let sections = rendered.lines().filter(|line| line.starts_with("## ")).count();
        assert_eq!(sections, Dialect::ALL.len());
        lines.sort_unstable();
        let all = lines.len();
        lines.dedup();
        // `*`, `not JSON` and the like may stand in several dialects.
        assert!(all - lines.len() <= 8, "lines that say the same");
    }

    #[test]
    fn error_events_are_faults_for_the_readers_too() {
        for (dialect, name, data) in [
            (Dialect::AnthropicMessages, "error", r#"{"type":"error","error":{"type":"overloaded_error"}}"#),
            (Dialect::ChatCompletions, "error", r#"{"message":"flat"}"#),
            (Dialect::Responses, "", r#"{"type":"error","code":null,"message":"flat"}"#),
            (Dialect::Responses, "", r#"{"type":"response.failed","response":{}}"#),
            (Dialect::ChatCompletions, "", r#"{"error":{"message":"m"}}"#),
        ] {
            let reading = dialect.stream_reader(1).read(name.as_bytes(), data.as_bytes());
            assert!(reading.fault.is_some(), "{data}");
        }
        assert!(Dialect::ALL.iter().all(|dialect| dialect.table().iter().any(is_fault)));
    }
}
