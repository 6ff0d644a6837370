//! The first-visible-output table of the Messages format: the one source by which [`stream`](super::stream) decides.
//!
//! In: an event's type, its sub-kind (block or delta type) and what was found in it. Out: what it shows. The first row
//! that fits decides, so named rows stand before `*`. What nobody declared is visible; a block that calls a tool by an unknown
//! kind may even act. Deliberately not here: reading JSON, usage, ends and faults.
//!
//! Every event, block and delta type that anthropic-python 2.14.0 declares (stable and beta) has a row; a test says so.

use crate::protocol::signal::VisibleKind::{
    Citation, HostedResult, NotJson, Reasoning, Refusal, Text, ToolCall, Unknown,
};
use crate::protocol::signal::{Row, Show, VisibleKind};

/// Applies whatever the event holds.
const ALWAYS: &str = "always";
/// The text, thinking, arguments, signature or citation that the kind carries is not empty.
pub(super) const FILLED: &str = "non-empty";
/// It is empty, null or absent.
pub(super) const EMPTY: &str = "empty";
/// A text block that starts without text but with citations.
pub(super) const CITED: &str = "empty, with citations";
/// A tool that the provider runs, by none of the names in the rows above.
const OTHERWISE: &str = "any other name";
/// Starts the words of a row for one tool name.
const NAMED: &str = "named ";

/// What the reader found in an event: one of the words above, or a hosted tool's name.
#[derive(Clone, Copy, Debug)]
pub(super) enum Seen<'a> {
    /// [`FILLED`], [`EMPTY`] or [`CITED`].
    Is(&'static str),
    /// The name of a tool that the provider runs.
    Named(&'a str),
}

impl Seen<'_> {
    fn fits(self, when: &str) -> bool {
        when == ALWAYS
            || match self {
                Self::Is(word) => word == when,
                Self::Named(name) => when == OTHERWISE || when.strip_prefix(NAMED) == Some(name),
            }
    }
}

const LOOKS_UP: Show = Show::Effect { may_act: false };
const MAY_ACT: Show = Show::Effect { may_act: true };

const fn row(event: &'static str, sub: &'static str, when: &'static str, show: Show) -> Row {
    Row { event, sub, when, show }
}

const fn visible(event: &'static str, sub: &'static str, when: &'static str, kind: VisibleKind) -> Row {
    row(event, sub, when, Show::Visible(kind))
}

const START: &str = "content_block_start";
const DELTA: &str = "content_block_delta";

/// The rows, in the order in which they are tried.
pub const ROWS: &[Row] = &[
    // Deltas first: nine of ten events are deltas.
    visible(DELTA, "text_delta", FILLED, Text),
    row(DELTA, "text_delta", EMPTY, Show::Preamble),
    visible(DELTA, "thinking_delta", FILLED, Reasoning),
    // Hidden thinking (`display: "omitted"`) sends these, with a token estimate at most.
    row(DELTA, "thinking_delta", EMPTY, Show::Preamble),
    visible(DELTA, "input_json_delta", FILLED, ToolCall),
    // Every tool call starts with one.
    row(DELTA, "input_json_delta", EMPTY, Show::Preamble),
    visible(DELTA, "citations_delta", FILLED, Citation),
    row(DELTA, "citations_delta", EMPTY, Show::Preamble),
    // Not shown, but stored and sent back: it binds the conversation to this provider.
    visible(DELTA, "signature_delta", FILLED, Reasoning),
    row(DELTA, "signature_delta", EMPTY, Show::Preamble),
    visible(DELTA, "compaction_delta", FILLED, Text),
    row(DELTA, "compaction_delta", EMPTY, Show::Preamble),
    visible(DELTA, "*", ALWAYS, Unknown),
    // Lifecycle.
    row("message_start", "", EMPTY, Show::Preamble),
    // A gateway that sends content along with the start.
    visible("message_start", "", FILLED, Unknown),
    row("ping", "", ALWAYS, Show::Ping),
    row("content_block_stop", "", ALWAYS, Show::Preamble),
    // Filled: `stop_details.explanation`, a refusal's text for people.
    visible("message_delta", "", FILLED, Refusal),
    row("message_delta", "", EMPTY, Show::Preamble),
    row("message_stop", "", ALWAYS, Show::Preamble),
    // A fault; what it shows is never asked.
    row("error", "", ALWAYS, Show::Preamble),
    // Blocks of the model's own output.
    visible(START, "text", FILLED, Text),
    visible(START, "text", CITED, Citation),
    row(START, "text", EMPTY, Show::Preamble),
    visible(START, "thinking", FILLED, Reasoning),
    row(START, "thinking", EMPTY, Show::Preamble),
    visible(START, "redacted_thinking", ALWAYS, Reasoning),
    visible(START, "tool_use", ALWAYS, ToolCall),
    visible(START, "compaction", FILLED, Text),
    row(START, "compaction", EMPTY, Show::Preamble),
    // Which model speaks from here on (server-side fallback): lifecycle, as the model's name in `message_start`.
    row(START, "fallback", ALWAYS, Show::Preamble),
    // Tools that the provider runs.
    row(START, "server_tool_use", "named web_search", LOOKS_UP),
    row(START, "server_tool_use", "named web_fetch", LOOKS_UP),
    row(START, "server_tool_use", "named tool_search_tool_regex", LOOKS_UP),
    row(START, "server_tool_use", "named tool_search_tool_bm25", LOOKS_UP),
    // Asks another model.
    row(START, "server_tool_use", "named advisor", LOOKS_UP),
    row(START, "server_tool_use", "named code_execution", MAY_ACT),
    row(START, "server_tool_use", "named bash_code_execution", MAY_ACT),
    row(START, "server_tool_use", "named text_editor_code_execution", MAY_ACT),
    row(START, "server_tool_use", OTHERWISE, MAY_ACT),
    row(START, "mcp_tool_use", ALWAYS, MAY_ACT),
    // What an MCP server offers: as `mcp_list_tools` of the responses dialect, it does not cross.
    row(START, "mcp_tool_listing", ALWAYS, Show::Preamble),
    visible(START, "mcp_tool_result", ALWAYS, HostedResult),
    visible(START, "web_search_tool_result", ALWAYS, HostedResult),
    visible(START, "web_fetch_tool_result", ALWAYS, HostedResult),
    visible(START, "advisor_tool_result", ALWAYS, HostedResult),
    visible(START, "code_execution_tool_result", ALWAYS, HostedResult),
    visible(START, "bash_code_execution_tool_result", ALWAYS, HostedResult),
    visible(START, "text_editor_code_execution_tool_result", ALWAYS, HostedResult),
    visible(START, "tool_search_tool_result", ALWAYS, HostedResult),
    visible(START, "container_upload", ALWAYS, HostedResult),
    // A call of a kind that this build does not know: it may act.
    row(START, "*_tool_use", ALWAYS, MAY_ACT),
    visible(START, "*", ALWAYS, Unknown),
    // Vertex AI's own usage note (vercel/ai#13576); SDKs ignore it.
    row("vertex_event", "", ALWAYS, Show::Preamble),
    // Text completions (`/v1/complete`), still spoken by old gateways.
    visible("completion", "", FILLED, Text),
    row("completion", "", EMPTY, Show::Preamble),
    // OpenAI's end mark, which gateways add after `message_stop` or instead of it.
    row("[DONE]", "", ALWAYS, Show::Preamble),
    // `data:` with nothing behind it: clients dispatch nothing.
    row("no data", "", ALWAYS, Show::Preamble),
    visible("not JSON", "", ALWAYS, NotJson),
    visible("*", "", ALWAYS, Unknown),
];

/// What the first row that fits shows.
pub(super) fn show(event: &str, sub: &str, seen: Seen<'_>) -> Show {
    find(event, sub, seen).map_or(Show::Visible(Unknown), |row| row.show)
}

fn find(event: &str, sub: &str, seen: Seen<'_>) -> Option<&'static Row> {
    ROWS.iter().find(|row| fits(row.event, event) && fits(row.sub, sub) && seen.fits(row.when))
}

/// `*` alone fits everything, `*_end` whatever ends so, every other word itself.
fn fits(pattern: &str, word: &str) -> bool {
    pattern.strip_prefix('*').map_or(pattern == word, |end| word.ends_with(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Event, block and delta types of anthropic-python 2.14.0: `RawMessageStreamEvent`, `RawContentBlockStartEvent`'s union,
    /// `RawContentBlockDelta` and their beta siblings, plus `ping` and `error`, which its decoder treats before the types.
    const EVENTS: &[&str] = &[
        "message_start",
        "message_delta",
        "message_stop",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "ping",
        "error",
    ];
    const BLOCKS: &[&str] = &[
        "text",
        "thinking",
        "redacted_thinking",
        "tool_use",
        "server_tool_use",
        "web_search_tool_result",
        "web_fetch_tool_result",
        "advisor_tool_result",
        "code_execution_tool_result",
        "bash_code_execution_tool_result",
        "text_editor_code_execution_tool_result",
        "tool_search_tool_result",
        "mcp_tool_use",
        "mcp_tool_result",
        "container_upload",
        "compaction",
        "fallback",
        "mcp_tool_listing",
    ];
    const DELTAS: &[&str] =
        &["text_delta", "input_json_delta", "citations_delta", "thinking_delta", "signature_delta", "compaction_delta"];

    #[test]
    fn every_declared_type_has_a_row_of_its_own() {
        let has = |event: &str, sub: &str| ROWS.iter().any(|row| row.event == event && (row.sub == sub || sub == "?"));
        for event in EVENTS {
            assert!(has(event, "?"), "{event}");
        }
        for block in BLOCKS {
            assert!(has(START, block), "{block}");
        }
        for delta in DELTAS {
            assert!(has(DELTA, delta), "{delta}");
        }
    }

    #[test]
    fn no_row_stands_behind_one_that_takes_all_of_its_events() {
        for (at, row) in ROWS.iter().enumerate() {
            let name = row.when.strip_prefix(NAMED);
            let seen = match (row.when, name) {
                (_, Some(name)) => Seen::Named(name),
                (OTHERWISE, _) => Seen::Named("a name in no row"),
                (ALWAYS, _) => Seen::Is(FILLED),
                (word, _) => Seen::Is(word),
            };
            let sub = row.sub.replace('*', "some_new");
            let event = row.event.replace('*', "some_new");
            assert_eq!(find(&event, &sub, seen), Some(row), "row {at}");
        }
    }

    #[test]
    fn rows_are_distinct() {
        for (at, row) in ROWS.iter().enumerate() {
            let again = ROWS.iter().skip(at + 1).any(|r| (r.event, r.sub, r.when) == (row.event, row.sub, row.when));
            assert!(!again, "{row:?}");
        }
    }

    #[test]
    fn the_unknown_is_visible_and_an_unknown_call_may_act() {
        for (event, sub, show_) in [
            ("message_moved", "", Show::Visible(Unknown)),
            ("", "", Show::Visible(Unknown)),
            (START, "hologram", Show::Visible(Unknown)),
            (START, "", Show::Visible(Unknown)),
            (START, "robot_tool_use", MAY_ACT),
            (DELTA, "hologram_delta", Show::Visible(Unknown)),
            (DELTA, "", Show::Visible(Unknown)),
        ] {
            assert_eq!(show(event, sub, Seen::Is(EMPTY)), show_, "{event} {sub}");
        }
        assert_eq!(show(START, "server_tool_use", Seen::Named("")), MAY_ACT);
        assert_eq!(show(START, "server_tool_use", Seen::Named("web_search")), LOOKS_UP);
    }
}
