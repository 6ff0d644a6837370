//! Running a tool's HTTP endpoint, and asking about runs whose outcome is not known.
//!
//! `Claim → run (ledger-owned task) → sender (one request, one connection) → verdict → outcome on disk → answer`, and for what stays
//! unknown `reconcile → probe → Observe`. Knows no App: the ledger, the TLS settings and the tools are arguments.

pub mod answer;
pub mod base64;
pub mod probe;
pub mod progress;
pub mod reconcile;
pub mod run;
pub mod sender;
pub mod verdict;
