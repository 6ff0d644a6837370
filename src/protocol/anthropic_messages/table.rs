//! The table.
use crate::protocol::signal::Row;
/// TODO
pub const ROWS: &[Row] = &[];
