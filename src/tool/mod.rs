//! A tool as the relay knows it: are these arguments its arguments, what do people see of a call, when is its content erased, what is the
//! JSON of an execution.
//!
//! In: the checked `[tool.NAME]` of the configuration, arguments and results as bytes, records of the ledger. Out: arguments that may be
//! claimed, or why not and where ([`arguments`]); one line for people ([`summary`]); documents without what operators must not see
//! ([`redact`]); an execution as it is shown ([`object`]). Knows no `App`, no caller and no HTTP route: claims and answers are the room
//! `executions`'.

pub mod arguments;
pub mod base64;
pub mod object;
pub mod redact;
pub mod summary;
