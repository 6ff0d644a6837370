//! The relay's promises, one file each, over real sockets: scripted providers on one side, a plain HTTP client on the other.
//! One binary, so that the workspace links once.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panicking")]

mod admin;
mod answers;
mod azure;
mod bad_input;
mod bedrock;
mod bounds;
mod budgets;
mod bytes;
mod capabilities;
mod child;
mod codex;
mod conditions;
mod control_cli;
mod cors;
mod cuts;
mod demo;
mod endings;
mod examples;
mod explain;
mod failures;
mod harness;
mod holds;
mod kill;
mod leaving;
mod lockstep;
mod operations;
mod operators;
mod passthrough;
mod plain_http;
mod raw;
mod refusals;
mod reload;
mod responses;
mod restart;
mod secrets;
mod setup;
mod slow;
mod smoke;
mod splits;
mod streams;
mod stuck;
