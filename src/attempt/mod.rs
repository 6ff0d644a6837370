//! What next? One controller owns all attempts of an operation: pure, with time and randomness as arguments.
//!
//! [`budget`] keeps what may still be spent, [`control`] decides after each failure, [`left_out`] says why the others were not asked,
//! [`cost`] estimates and settles,
//! [`backoff`] computes jitter. How long a provider asks to wait is read by [`classify::retry_after`](crate::classify::retry_after).

pub mod backoff;
pub mod budget;
pub mod control;
pub mod cost;
pub mod left_out;
