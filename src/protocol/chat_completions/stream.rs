//! Stream.
use crate::protocol::signal::{Ending, Reading, Show, StreamReader, Usage};
/// TODO
#[derive(Debug)]
pub struct Reader {}
impl Reader {
    /// TODO
    pub fn new(_choices: u32) -> Self {
        Self {}
    }
}
impl StreamReader for Reader {
    fn read(&mut self, _name: &[u8], _data: &[u8]) -> Reading {
        Reading::of(Show::Preamble)
    }
    fn ending(&self) -> Ending {
        Ending::Open
    }
    fn usage(&self) -> Usage {
        Usage::default()
    }
    fn finish_reason(&self) -> Option<&str> {
        None
    }
    fn served_model(&self) -> Option<&str> {
        None
    }
}
