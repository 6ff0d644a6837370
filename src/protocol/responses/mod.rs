//! OpenAI Responses: `POST /v1/responses`, as OpenAI and Azure serve it and as xAI, DeepSeek, Bedrock's `mantle` endpoint, OpenRouter,
//! LM Studio, GitHub Copilot and the ChatGPT backend of Codex repeat it.
//!
//! Facts, with where they are from (openai-python 3.57.0 types; STREAMS.md 1.4, 2.1, 2.2, 2.4, 2.5, 2.7; recordings):
//!
//! - Every event has an `event:` line, repeats its type in the JSON and is numbered (`sequence_number`, from 0). Proxies drop the line,
//!   so the JSON's `type` decides, and the line only where the JSON has none or the line says `error`.
//! - Order: `response.created`, `.queued`, `.in_progress`; an output item at a time `output_item.added`, its parts and deltas,
//!   `output_item.done`; then one of `response.completed`, `.incomplete`, `.failed`. Items may overlap (OpenRouter), and an item's
//!   id may change between its events (GitHub Copilot), so nothing here depends on which items are open.
//! - Output comes as deltas; a server may leave them out and send the `*.done` alone (LM Studio's arguments, OpenAI's
//!   answer after a picture), which is visible then, too. The table needs no memory for that: where deltas came first, the boundary is
//!   crossed already ([`table`]).
//! - A tool that the provider runs is told of by its item and by events of its own, by then it may already be running: an
//!   effect. Which tools there are on an MCP server (`mcp_list_tools`) is no output; a request to approve a call is.
//! - Encrypted reasoning and a compacted history show nothing that anybody could act on before the answer is whole: SPEC has the
//!   reasoning item that `output_item.added` brings before the boundary, encrypted content and all, so it is held in `.done`, too.
//! - The end is `response.completed`, or `response.incomplete`: a complete stream with a partial answer, whose reason is the
//!   finish reason. There is no sign of an end before it, so lenient is strict here; a `[DONE]` after it (OpenRouter) is
//!   tolerated. What `response.completed` repeats of the output was said before, and does not matter for the boundary.
//! - Errors are an `error` event (documented flat, in reality nested, from some both) and `response.failed`, often one after the other,
//!   before any output or in the middle; or a `response.completed` whose `status` or `error` says otherwise ([`fault`]).
//!   `response.cancelled` (in no schema, but a status is called so, and servers have sent it) is one, too: no answer follows. What the
//!   `output` of a failed response tells of counts: a tool that acted has acted, announced or not ([`output`]).
//! - `keepalive` is an event without a place in the schema, which OpenAI sends on long requests and every SDK has learnt to
//!   take in the middle of a stream: the relay's own keep-alive, too ([`reply`]), since Codex's idle timer runs on through comments. But
//!   before `response.created` the helpers of the official SDKs raise at it, so those get comments there.
//! - Ids of responses, conversations, items, files and containers and whatever is encrypted belong to one account: pins
//!   ([`request`]), and issued by answers (`pins`).

pub mod calls;
pub mod fault;
mod output;
mod pins;
#[cfg(test)]
mod recordings;
pub mod reply;
pub mod request;
pub(super) mod results;
pub mod stream;
pub mod table;
pub mod usage;
