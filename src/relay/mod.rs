//! Drives one client request; the only room that sees all the others.
//!
//! `handler.rs` takes the request in (`auth.rs`, `intake.rs`, contract), `operation.rs` runs its attempts, `stream.rs` and `answer.rs` are
//! one attempt each (streamed, whole; `read.rs` and `waits.rs` are what they read and wait with), `emit.rs` joins the driver to the
//! response body (`endpoints.rs` is everything that generates nothing, `executions.rs` an operation's part of the ledger, `passthrough.rs` what goes to a provider as it is, `outcome.rs`
//! takes the application's word on an answer), `client_body.rs` writes that body and aborts it where it must, over `transport.rs` and `client_io.rs`, the
//! client's connection. `passage.rs` asks the gate before every attempt and tells it what came of it. `roots.rs` says to which run a
//! request belongs, `seat.rs` notes the tool calls of its answer, `restart.rs` asks before an operation is replaced. `report.rs` notes
//! what happens and tells it (`told.rs`: of requests that came to no attempt), `outward.rs` says what a caller is told. `app.rs` holds
//! what outlives a request (`ledger.rs` opens the ledger for it): `operations.rs`,
//! `idempotency.rs`, `observe.rs`, `reloads.rs`, `admission.rs` (who may come in; `memory.rs` measures for it).

pub mod admission;
pub mod answer;
pub mod app;
pub mod auth;
pub mod client_body;
pub mod client_io;
pub mod emit;
pub mod endpoints;
pub mod executions;
pub mod explain;
pub mod handler;
pub mod idempotency;
pub mod intake;
mod issued;
pub mod ledger;
pub mod members;
pub mod memory;
pub mod observe;
pub mod operation;
pub mod operations;
pub mod outcome;
pub mod outward;
mod passage;
pub mod passthrough;
mod read;
pub mod reloads;
mod report;
mod restart;
pub mod roots;
mod seat;
pub mod secrets;
pub mod stream;
pub mod told;
pub mod transport;
mod waits;
