//! The first-visible-output table of the Responses format: the one source by which [`stream`](super::stream) decides.
//!
//! In: an event's type, its sub-kind (the type of its item or part) and whether it brings content. Out: what it shows. The first row
//! that fits decides, so named rows stand before `*`. What nobody declared is visible; an item that calls a tool of an unknown kind may
//! even act. Deliberately not here: reading JSON, usage, ends and faults.
//!
//! Every event type of the schema of 2026-08-21, those that openai-python 3.57.0 declares on top, and the undocumented ones of the
//! recordings have a row; a test says so. Items stand once and apply to `output_item.added` and `.done` alike: an item that was never
//! announced is told of by the second alone.

use crate::protocol::signal::VisibleKind::{
    Audio, Citation, HostedResult, Image, NotJson, Reasoning, Refusal, Text, ToolCall, Unknown,
};
use crate::protocol::signal::{Row, Show, VisibleKind};

/// Applies whatever the event holds.
const ALWAYS: &str = "always";
/// The event brings content: a delta, a part or an item with something in it.
pub(super) const FILLED: &str = "non-empty";
/// It brings none.
pub(super) const EMPTY: &str = "empty";
/// The event is the provider's error event; what it shows has no meaning.
const FAULT: &str = "always: a fault, not a show";

pub(super) const ADDED: &str = "response.output_item.added";
const DONE: &str = "response.output_item.done";
const PART_ADDED: &str = "response.content_part.added";
const PART_DONE: &str = "response.content_part.done";

const LOOKS_UP: Show = Show::Effect { may_act: false };
const MAY_ACT: Show = Show::Effect { may_act: true };
const HELD: Show = Show::Preamble;

const fn row(event: &'static str, sub: &'static str, when: &'static str, show: Show) -> Row {
    Row { event, sub, when, show }
}

const fn shown(event: &'static str, kind: VisibleKind) -> Row {
    row(event, "", FILLED, Show::Visible(kind))
}

const fn empty(event: &'static str) -> Row {
    row(event, "", EMPTY, HELD)
}

const fn held(event: &'static str) -> Row {
    row(event, "", ALWAYS, HELD)
}

const fn looks_up(event: &'static str) -> Row {
    row(event, "", ALWAYS, LOOKS_UP)
}

const fn may_act(event: &'static str) -> Row {
    row(event, "", ALWAYS, MAY_ACT)
}

const fn part(event: &'static str, sub: &'static str, kind: VisibleKind) -> Row {
    row(event, sub, FILLED, Show::Visible(kind))
}

/// The rows, with those of items once for each of the two events that bring an item.
macro_rules! rows {
    (first { $($first:expr,)* } items { $(($sub:expr, $when:expr, $show:expr),)* } last { $($last:expr,)* }) => {
        /// The rows, in the order in which they are tried.
        pub const ROWS: &[Row] = &[
            $($first,)*
            $(row(ADDED, $sub, $when, $show),)*
            $(row(DONE, $sub, $when, $show),)*
            $($last,)*
        ];
    };
}

rows! {
    first {
        // Deltas first: nine of ten events are deltas.
        shown("response.output_text.delta", Text),
        empty("response.output_text.delta"),
        shown("response.reasoning_summary_text.delta", Reasoning),
        empty("response.reasoning_summary_text.delta"),
        shown("response.reasoning_text.delta", Reasoning),
        empty("response.reasoning_text.delta"),
        shown("response.function_call_arguments.delta", ToolCall),
        empty("response.function_call_arguments.delta"),
        shown("response.custom_tool_call_input.delta", ToolCall),
        empty("response.custom_tool_call_input.delta"),
        shown("response.refusal.delta", Refusal),
        empty("response.refusal.delta"),
        shown("response.audio.delta", Audio),
        empty("response.audio.delta"),
        shown("response.audio.transcript.delta", Audio),
        empty("response.audio.transcript.delta"),
        // Lifecycle. Items in the response that they bring show what they show when they are added.
        held("response.created"),
        held("response.queued"),
        held("response.in_progress"),
        held("response.compaction.compacting"),
        // The ends: what they repeat was said before.
        held("response.completed"),
        held("response.incomplete"),
        row("response.failed", "", FAULT, HELD),
        row("response.cancelled", "", FAULT, HELD),
        row("error", "", FAULT, HELD),
        // OpenAI's own keep-alive, in no schema; and the one of gateways.
        row("keepalive", "", ALWAYS, Show::Ping),
        row("ping", "", ALWAYS, Show::Ping),
        // Content that may never have come as a delta.
        shown("response.output_text.done", Text),
        empty("response.output_text.done"),
        shown("response.refusal.done", Refusal),
        empty("response.refusal.done"),
        shown("response.reasoning_text.done", Reasoning),
        empty("response.reasoning_text.done"),
        shown("response.reasoning_summary_text.done", Reasoning),
        empty("response.reasoning_summary_text.done"),
        shown("response.function_call_arguments.done", ToolCall),
        empty("response.function_call_arguments.done"),
        shown("response.custom_tool_call_input.done", ToolCall),
        empty("response.custom_tool_call_input.done"),
        held("response.audio.done"),
        held("response.audio.transcript.done"),
        shown("response.output_text.annotation.added", Citation),
        empty("response.output_text.annotation.added"),
        // Parts.
        part(PART_ADDED, "output_text", Text),
        part(PART_ADDED, "refusal", Refusal),
        part(PART_ADDED, "reasoning_text", Reasoning),
        part(PART_ADDED, "*", Unknown),
        row(PART_ADDED, "*", EMPTY, HELD),
        part(PART_DONE, "output_text", Text),
        part(PART_DONE, "refusal", Refusal),
        part(PART_DONE, "reasoning_text", Reasoning),
        part(PART_DONE, "*", Unknown),
        row(PART_DONE, "*", EMPTY, HELD),
        part("response.reasoning_summary_part.added", "*", Reasoning),
        row("response.reasoning_summary_part.added", "*", EMPTY, HELD),
        part("response.reasoning_summary_part.done", "*", Reasoning),
        row("response.reasoning_summary_part.done", "*", EMPTY, HELD),
        // Tools that the provider runs and that look something up, or make a picture.
        looks_up("response.file_search_call.in_progress"),
        looks_up("response.file_search_call.searching"),
        looks_up("response.file_search_call.completed"),
        looks_up("response.web_search_call.in_progress"),
        looks_up("response.web_search_call.searching"),
        looks_up("response.web_search_call.completed"),
        looks_up("response.image_generation_call.in_progress"),
        looks_up("response.image_generation_call.generating"),
        row("response.image_generation_call.partial_image", "", ALWAYS, Show::Visible(Image)),
        looks_up("response.image_generation_call.completed"),
        // Tools that the provider runs and that may act.
        may_act("response.code_interpreter_call.in_progress"),
        may_act("response.code_interpreter_call.interpreting"),
        may_act("response.code_interpreter_call.completed"),
        may_act("response.code_interpreter_call_code.delta"),
        may_act("response.code_interpreter_call_code.done"),
        may_act("response.mcp_call.in_progress"),
        may_act("response.mcp_call.completed"),
        may_act("response.mcp_call.failed"),
        may_act("response.mcp_call_arguments.delta"),
        may_act("response.mcp_call_arguments.done"),
        may_act("response.shell_call_command.added"),
        may_act("response.shell_call_command.delta"),
        may_act("response.shell_call_command.done"),
        // What a command printed says that it ran.
        may_act("response.shell_call_output_content.delta"),
        may_act("response.shell_call_output_content.done"),
        // In no schema, but recorded.
        may_act("response.apply_patch_call_operation_diff.delta"),
        may_act("response.apply_patch_call_operation_diff.done"),
        // Which tools an MCP server offers.
        held("response.mcp_list_tools.in_progress"),
        held("response.mcp_list_tools.completed"),
        held("response.mcp_list_tools.failed"),
    }
    items {
        ("message", FILLED, Show::Visible(Text)),
        ("message", EMPTY, HELD),
        ("reasoning", FILLED, Show::Visible(Reasoning)),
        // Encrypted content at most.
        ("reasoning", EMPTY, HELD),
        ("compaction", ALWAYS, HELD),
        ("mcp_list_tools", ALWAYS, HELD),
        // Calls that the application answers.
        ("function_call", ALWAYS, Show::Visible(ToolCall)),
        ("custom_tool_call", ALWAYS, Show::Visible(ToolCall)),
        ("mcp_approval_request", ALWAYS, Show::Visible(ToolCall)),
        // Tools that look something up, or make a picture.
        ("web_search_call", ALWAYS, LOOKS_UP),
        ("file_search_call", ALWAYS, LOOKS_UP),
        ("image_generation_call", ALWAYS, LOOKS_UP),
        ("tool_search_call", ALWAYS, LOOKS_UP),
        // Tools that may act, whoever runs them.
        ("mcp_call", ALWAYS, MAY_ACT),
        ("code_interpreter_call", ALWAYS, MAY_ACT),
        ("computer_call", ALWAYS, MAY_ACT),
        ("shell_call", ALWAYS, MAY_ACT),
        ("local_shell_call", ALWAYS, MAY_ACT),
        ("apply_patch_call", ALWAYS, MAY_ACT),
        // A program of the model's that calls tools.
        ("program", ALWAYS, MAY_ACT),
        // What tools said.
        ("function_call_output", ALWAYS, Show::Visible(HostedResult)),
        ("custom_tool_call_output", ALWAYS, Show::Visible(HostedResult)),
        ("computer_call_output", ALWAYS, Show::Visible(HostedResult)),
        ("shell_call_output", ALWAYS, Show::Visible(HostedResult)),
        ("local_shell_call_output", ALWAYS, Show::Visible(HostedResult)),
        ("apply_patch_call_output", ALWAYS, Show::Visible(HostedResult)),
        ("tool_search_output", ALWAYS, Show::Visible(HostedResult)),
        ("program_output", ALWAYS, Show::Visible(HostedResult)),
        ("additional_tools", ALWAYS, Show::Visible(HostedResult)),
        ("mcp_approval_response", ALWAYS, Show::Visible(HostedResult)),
        // A call of a kind that this build does not know: it may act.
        ("*_call", ALWAYS, MAY_ACT),
        ("*", ALWAYS, Show::Visible(Unknown)),
    }
    last {
        // The end mark of chat-completions, which OpenRouter adds.
        held("[DONE]"),
        // `data:` with nothing behind it: clients dispatch nothing.
        held("no data"),
        row("not JSON", "", ALWAYS, Show::Visible(NotJson)),
        row("*", "", ALWAYS, Show::Visible(Unknown)),
    }
}

/// What the first row that fits shows.
pub(super) fn show(event: &str, sub: &str, seen: &str) -> Show {
    find(event, sub, seen).map_or(Show::Visible(Unknown), |row| row.show)
}

fn find(event: &str, sub: &str, seen: &str) -> Option<&'static Row> {
    let applies = |row: &&Row| {
        fits(row.event, event) && fits(row.sub, sub) && (row.when == seen || matches!(row.when, ALWAYS | FAULT))
    };
    ROWS.iter().find(applies)
}

/// `*` alone fits everything, `*_end` whatever ends so, every other word itself.
fn fits(pattern: &str, word: &str) -> bool {
    pattern.strip_prefix('*').map_or(pattern == word, |end| word.ends_with(end))
}

#[cfg(test)]
mod tests;
