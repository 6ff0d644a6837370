//! Error objects.
use crate::protocol::signal::Fault;
/// TODO
pub fn of_body(_body: &[u8]) -> Option<Fault> {
    None
}
