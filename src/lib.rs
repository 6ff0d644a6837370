//! Rubicon: a streaming-aware relay between applications and LLM providers. (Code map to come.)

pub mod attempt;
pub mod boundary;
pub mod classify;
pub mod clock;
pub mod config;
pub mod contract;
pub mod ids;
pub mod mock;
pub mod plan;
pub mod protocol;
pub mod relay;
pub mod reply;
pub mod serve;
pub mod telemetry;
pub mod upstream;
pub mod wire;
