//! Requests.
use crate::protocol::request::{RequestError, RequestFacts};
use bytes::Bytes;
/// TODO
pub fn read(_body: &Bytes) -> Result<RequestFacts, RequestError> {
    Ok(RequestFacts::default())
}
