//! Bytes to frames: pure, incremental, bounded; knows no provider.

pub mod sse;
pub mod sse_out;
