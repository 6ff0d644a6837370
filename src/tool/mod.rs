//! A tool as the relay knows it: are these arguments its arguments, what do people see of a call, when is its content erased.
//!
//! In: the checked `[tool.NAME]` of the configuration, arguments and results as bytes. Out: arguments that may be claimed, or why not and
//! where ([`arguments`]); one line for people ([`summary`]); documents without what operators must not see ([`redact`]). Knows no `App`, no
//! caller and no HTTP route: claims and answers are the room `executions`'.

pub mod arguments;
pub mod redact;
pub mod summary;
