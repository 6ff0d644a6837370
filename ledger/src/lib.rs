//! `rubicon-ledger`: the identity of tool executions, usable without the relay.
//!
//! The question it answers: is this call the one that was made before? Arguments as a model or client wrote them become
//! one canonical text; a tool's rule says which part of it makes the *slot* (which intent) and which the *fingerprint* (in
//! which words); tenant, root, tool, slot and occurrence make the *execution key*. Everything here is pure: no clock,
//! no random source, no file, no socket. The records, their states and their store are not here yet.
//!
//! In reading order:
//!
//! | module | one line |
//! | --- | --- |
//! | `canonical` | bytes → [`Canonical`] document, [`Arguments`] |
//! | `parse` | the strict reader: what is refused, and where |
//! | `number` | numbers by their exact decimal value, and their one text |
//! | `value` | the tree, UTF-16 member order, RFC 8785 text |
//! | `pointer` | JSON Pointers (RFC 6901) |
//! | `project` | `key_fields`, `ignore_fields` → [`Projected`] |
//! | `differs` | where two documents differ, as pointers |
//! | `ids` | names that a key is made of |
//! | `key` | [`Slot`], [`Fingerprint`], [`ExecutionKey`] and the exact bytes that are hashed |
//! | `error` | every way to be refused |
//!
//! Invariants: equal canonical texts are equal values and the other way round; reading a canonical text gives it back
//! unchanged; nothing is repaired, rounded, normalized or filled in; no input panics, and time is linear in the input up to
//! the logarithm of sorting.

mod canonical;
mod codes;
mod command;
mod content;
mod differs;
mod error;
pub mod failpoint;
mod ids;
mod journal;
mod key;
mod ledger;
mod machine;
mod number;
mod parse;
mod pointer;
mod project;
mod record;
pub mod store;
mod token;
mod value;

pub use canonical::{Arguments, Canonical};
pub use command::{
    Change, Changed, Claim, Claimed, Command, Complete, Denied, Env, Heartbeat, IfMatch, Observe, Plan, Planning,
    Remark, Reply, ToolRule, Verb, WhyConfirm,
};
pub use differs::{Differences, MAX_DIFFERENCES, differs};
pub use error::{BadDigest, BadName, BadPointer, BadProjection, Refusal, Refused};
pub use ids::{MAX_NAME_BYTES, Occurrence, OperationId, RootId, RunNumber, TenantId, ToolName};
pub use journal::{Draft, Entry, GENESIS, Head, Verifier};
pub use key::{ExecutionKey, FINGERPRINT_CONTEXT, Fingerprint, KEY_CONTEXT, KeyParts, SLOT_CONTEXT, Slot};
pub use ledger::{
    BEHIND_MAX, Ledger, MAX_WAITERS, Observer, Options, QUEUE_MAX, Stats, Transition, Unavailable, Waiter,
};
pub use machine::{Decision, decide};
pub use number::{MAX_DIGITS, MAX_EXPONENT, Number};
pub use parse::{MAX_BYTES, MAX_DEPTH};
pub use pointer::{MAX_POINTER_BYTES, Pointer};
pub use project::{MAX_FIELDS, Projected, Projection};
pub use record::{
    Effect, Evidence, Failure, Flag, Impact, Lease, Outcome, Owner, Pending, Reconciliation, Record, Settlement, State,
    ToolResult, UnixMillis,
};
pub use value::{Object, Value};

/// The README's example is compiled and run with the tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
