//! Usage.
use crate::protocol::Answer;
/// TODO
pub fn of_answer(_body: &[u8]) -> Answer {
    Answer::default()
}
