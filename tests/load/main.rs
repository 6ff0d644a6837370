//! The promises that take hundreds of connections, hundreds of megabytes, or a processor to themselves: one at a time, in a binary of
//! their own, so that they starve neither each other nor the tests that measure time. What they share with `tests/relay` is its.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panicking")]

mod bounds;
mod frames;
mod kill;
mod outage;
mod reload;
mod slow;

#[allow(dead_code, reason = "shared with tests/relay, which uses all of it")]
#[path = "../relay/child.rs"]
mod child;
#[allow(dead_code, reason = "shared with tests/relay, which uses all of it")]
#[path = "../relay/harness.rs"]
mod harness;
#[allow(dead_code, reason = "shared with tests/relay, which uses all of it")]
#[path = "../relay/operators.rs"]
mod operators;
#[allow(dead_code, reason = "shared with tests/relay, which uses all of it")]
#[path = "../relay/raw.rs"]
mod raw;
#[allow(dead_code, reason = "shared with tests/relay, which uses all of it")]
#[path = "../relay/reloader.rs"]
mod reloader;
#[allow(dead_code, reason = "shared with tests/relay, which uses all of it")]
#[path = "../relay/setup.rs"]
mod setup;
#[allow(dead_code, reason = "shared with tests/relay, which uses all of it")]
#[path = "../relay/streams.rs"]
mod streams;

use tokio::sync::{Mutex, MutexGuard};

/// Whose turn it is. Each test has a runtime of its own; this lock needs none.
static TURN: Mutex<()> = Mutex::const_new(());

/// Waits for this test's turn, which lasts until the guard is dropped. The first line of every test here.
pub(crate) async fn turn() -> MutexGuard<'static, ()> {
    harness::many_descriptors();
    TURN.lock().await
}
