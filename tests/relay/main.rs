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
mod child;
mod codex;
mod conditions;
mod control_cli;
mod cuts;
mod demo;
mod endings;
mod events;
mod examples;
mod failures;
mod harness;
mod holds;
mod kill;
mod leaving;
mod lockstep;
mod metrics;
mod operations;
mod operators;
mod outcome;
mod passthrough;
mod plain_http;
mod raw;
mod responses;
mod restart;
mod secrets;
mod setup;
mod slow;
mod smoke;
mod streams;
mod stuck;
mod traces;
mod watched;
