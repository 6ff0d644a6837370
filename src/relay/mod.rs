//! Drives one client request; the only room that sees all the others.
//!
//! `handler.rs` takes the request in (auth, limits, contract), `operation.rs` runs its attempts, `stream.rs` and `answer.rs` are
//! one attempt each (streamed, whole), `incoming.rs` reads a provider's body, `emit.rs` joins the driver to the response body,
//! `client_body.rs` writes that and aborts it where it must (`transport.rs`: once the last frame is out), `outward.rs` says what
//! a caller is told. `operations.rs`, `idempotency.rs` and `observe.rs` are what outlives a request.

pub mod answer;
pub mod app;
pub mod auth;
pub mod client_body;
pub mod emit;
pub mod handler;
pub mod idempotency;
mod incoming;
pub mod observe;
pub mod operation;
pub mod operations;
pub mod outward;
pub mod stream;
pub mod transport;
