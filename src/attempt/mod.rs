//! One attempt at one route: when it may start, what it may cost, how long to wait before the next.
pub mod backoff;
pub mod retry_after;
