//! A tool as the relay knows it: are these arguments its arguments, what do people see of a call, when is its content erased, what is the
//! JSON of an execution; and running its HTTP endpoint, and asking about runs whose outcome is not known.
//!
//! In: the checked `[tool.NAME]` of the configuration, arguments and results as bytes, records of the ledger. Out: arguments that may be
//! claimed, or why not and where ([`arguments`]); one line for people ([`summary`]); documents without what operators must not see
//! ([`redact`]); an execution as it is shown ([`object`]); content that is erased when its
//! time is over ([`retention`]).
//! `Claim → run (ledger-owned task) → sender (one request, one connection) → verdict → outcome on disk → answer`, and for what stays
//! unknown `reconcile → probe → Observe`. Knows no `App`, no caller and no HTTP route (claims and answers are the room `executions`'): the
//! ledger, the TLS settings and the tools are arguments.

pub mod answer;
pub mod arguments;
pub mod base64;
pub mod object;
pub mod probe;
pub mod progress;
pub mod reconcile;
pub mod redact;
pub mod retention;
pub mod run;
pub mod sender;
pub mod summary;
pub mod verdict;
