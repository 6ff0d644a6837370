//! Anthropic Messages: `POST /v1/messages` and `/v1/messages/count_tokens`, as Anthropic serves them and as Vertex AI, Bedrock's
//! `mantle` endpoint and gateways repeat them.
//!
//! Facts, with where they are from (anthropic-python 2.14.0 types; platform.claude.com streaming and errors pages; STREAMS.md
//! 1.5, 2.1, 2.2, 2.4, 2.7; recordings):
//!
//! - Order: `message_start`; a block at a time `content_block_start`, deltas, `content_block_stop`; one or more `message_delta`
//!   (stop reason, cumulative usage); `message_stop`. `ping` and `error` anywhere.
//! - Every event has an `event:` line and repeats its type in the JSON. Proxies drop the line, so the JSON's `type` decides and
//!   the line only where the JSON has none; one exception: the official SDKs raise on `event: error` whatever the data says.
//! - `message_start` comes before any work; the first deltas of a tool call and of hidden thinking are empty. Visible starts at
//!   the first filled one ([`table`]).
//! - A tool that the provider runs comes as `server_tool_use` or `mcp_tool_use`, by then it may already be running: an effect.
//!   Which ones may act on the world is told by the block's `name` (`web_search`, `code_execution` …).
//! - Token counts in `message_delta` are totals that replace those of `message_start` (tool loops raise the input count), and
//!   `input_tokens` leaves out what was written to or read from the cache ([`usage`]).
//! - Errors are `{"type":"error","error":{"type","message"}}`, with the status of the HTTP answer or inside a 200 stream;
//!   `overloaded_error` there stands for 529. A machine's code, if any, is `error.details.error_code`.
//! - Compatible servers leave out `message_stop`, or end with `data: [DONE]`; a stop reason was seen then ([`Ending::Finished`]
//!   for providers with `terminal = "lenient"`).
//! - The SDKs drop `ping` before the application sees it, with any extra members, so it is the keep-alive ([`reply`]).
//! - `signature` (thinking), `redacted_thinking`, `encrypted_content`, file and container ids are bound to the account that
//!   issued them: pins ([`request`]).
//!
//! `fields` and `blocks` are this folder's own helpers: JSON members read without copying, and the walk over content blocks.
//!
//! [`Ending::Finished`]: crate::protocol::signal::Ending::Finished

mod blocks;
pub mod calls;
pub mod fault;
mod fields;
#[cfg(test)]
mod golden;
mod pins;
pub mod reply;
pub mod request;
pub(super) mod results;
pub mod stream;
pub mod table;
pub mod usage;
