//! The relay's promises, one file each, over real sockets: scripted providers on one side, a plain HTTP client on the other.
//! One binary, so that the workspace links once.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panicking")]

mod child;
mod harness;
mod leaving;
mod raw;
mod smoke;
