//! `rubicon-ledger`: no tool call with an effect runs twice, usable without the relay.
//!
//! A durable record for each intent: whoever wants to run a call claims it, one may, the others get the stored result, wait, or learn that the
//! outcome is unknown. The README tells what is guaranteed, what is not, and how a record lives; `examples/ledger.rs` runs it all.
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
//! | `record` | [`Record`]: what is kept of one execution |
//! | `command` | what may be asked, and what is answered |
//! | `machine` | [`decide`]: all rules, pure: command and what is there → writes and reply |
//! | `token` | lease, claim and confirm tokens: digests under the store's secret |
//! | `journal` | [`Entry`]s chained by hash, [`Head`] |
//! | `content` | the salted hashes by which entries hold what may be erased |
//! | `codes` | numbers for words, for bytes on a disk |
//! | [`store`] | where records live: the traits, in memory, in a redb file |
//! | `ledger` | [`Ledger`]: the handle, and the one thread that writes for all who wait |
//! | [`failpoint`] | where a test may end the process |
//!
//! Everything above `store` is pure: no clock, no random source, no file, no socket, no thread. Invariants: equal canonical texts are equal
//! values and the other way round; nothing is repaired, rounded, normalized or filled in; one claim of an intent may run until its outcome
//! is proven; no answer before its transition is on the disk; no input panics.
#![deny(missing_docs)]

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
