//! Rubicon: a streaming-aware relay between applications and LLM providers. (Code map to come.)

pub mod attempt;
pub mod classify;
pub mod clock;
pub mod config;
pub mod ids;
pub mod protocol;
pub mod reply;
pub mod wire;
