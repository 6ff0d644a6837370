//! What next? One controller owns all attempts of an operation: pure, with time and randomness as arguments.
//!
//! [`budget`] keeps what may still be spent, [`control`] decides after each failure, [`cost`] estimates and settles,
//! `retry_after` reads wait hints, `backoff` computes jitter.

pub mod backoff;
pub mod budget;
pub mod control;
pub mod cost;
pub mod retry_after;
