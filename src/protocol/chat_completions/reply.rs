//! Replies.
use crate::reply::Outward;
use bytes::Bytes;
/// TODO
pub fn error_body(_failure: &Outward) -> Bytes {
    Bytes::new()
}
/// TODO
pub fn error_frame(_failure: &Outward) -> Bytes {
    Bytes::new()
}
/// TODO
pub fn keepalive(_ids: bool) -> Bytes {
    Bytes::from_static(b": keep-alive\n\n")
}
