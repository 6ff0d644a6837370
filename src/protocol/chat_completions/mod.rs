//! OpenAI Chat Completions, and everything that speaks it (STREAMS.md 1.3, 1.7).
//!
//! Facts that the files here rest on:
//!
//! - An event is a `data:` line with one JSON chunk and, from a few servers, an `event: error` line above an error. Comments come
//!   between (OpenRouter, Featherless). The end is `data: [DONE]`, which Perplexity, Writer, TGI, Nscale and some routers never
//!   send, and which Snowflake sends without any finish reason: so an end is a finish reason for every choice *and* `[DONE]`, and a
//!   lenient provider's end is the first half of that.
//! - With `n` over 1 the choices' chunks are mixed, in one event (Mistral) or several, and finish one by one. Finish reasons are
//!   words of the provider's (`end_turn`, `eos_token`, `eos`), may come twice (Together, OpenRouter), and after them still come empty
//!   deltas, usage, filter results.
//! - What shows something stands in `choices[].delta`; each compatible server has members of its own there. What a server adds to the
//!   chunk or the choice is description (filter results, timings, citations of what the text says).
//! - An error may come as the first event of a 200, in the middle, with a last chunk around it (OpenRouter), before a `[DONE]`
//!   (OpenAI), or as the whole 200 body.
//! - Usage is a running total in some streams, in the last chunk or an extra one in others, and absent in many.
//! - Provider-run tools have no events of their own here (Groq's `executed_tools` come with the delta that follows them): what a
//!   request declares (`hosted.rs`) is all that is known before the answer.

pub mod calls;
pub mod fault;
pub(super) mod hosted;
mod pins;
#[cfg(test)]
mod recordings;
pub mod reply;
pub mod request;
pub(super) mod results;
pub mod stream;
pub mod table;
pub mod usage;
