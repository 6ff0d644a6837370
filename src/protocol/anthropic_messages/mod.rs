//! TODO facts in prose.

pub mod fault;
pub mod reply;
pub mod request;
pub mod stream;
pub mod table;
pub mod usage;
