//! What output items show, one by one and as the `output` of a response.
//!
//! In: an item, a part, or a response object. Out: the words by which [`table`](super::table) is asked, or the most telling of what it
//! answers. A response that is only beginning may hold items already (a stream that is picked up, a server that sends them
//! nowhere else), and one that failed tells what ran before it did. Deliberately not here: events.

use std::borrow::Cow;

use super::table::{self, ADDED, EMPTY, FILLED};
use crate::protocol::json_walk::{elements, is_empty, member, members, text};
use crate::protocol::signal::{Show, VisibleKind};

/// The `type` of an item or a part.
pub(super) fn kind_of(json: &str) -> Cow<'_, str> {
    member(json, "type").and_then(text).unwrap_or_default()
}

/// An item's type, and whether it has content already.
pub(super) fn item(item: &str) -> (Cow<'_, str>, bool) {
    let kind = kind_of(item);
    let holds = |name: &str| member(item, name).is_some_and(are_parts_filled);
    let filled = match &*kind {
        "message" => holds("content"),
        "reasoning" => holds("summary") || holds("content"),
        _ => true,
    };
    (kind, filled)
}

/// A list of parts, one of which says something; or anything else with something in it.
fn are_parts_filled(parts: &str) -> bool {
    if parts.starts_with('[') { elements(parts).any(is_part_filled) } else { !is_empty(parts) }
}

/// A part says something beside its type.
pub(super) fn is_part_filled(part: &str) -> bool {
    if !part.starts_with('{') {
        return !is_empty(part);
    }
    members(part).any(|(name, value)| name != "type" && !is_empty(value))
}

/// What the `output` of a response shows: as if each of its items had just been announced, the most telling one.
pub(super) fn shown(response: &str) -> Show {
    let output = member(response, "output").unwrap_or_default();
    if !output.starts_with('[') {
        return if is_empty(output) { Show::Preamble } else { Show::Visible(VisibleKind::Unknown) };
    }
    let each = elements(output).map(|one| {
        let (kind, filled) = item(one);
        table::show(ADDED, &kind, if filled { FILLED } else { EMPTY })
    });
    each.max_by_key(|show| weight(*show)).unwrap_or(Show::Preamble)
}

/// The `output` of a response, or of the one that an event or a body brings, tells of a tool of the provider's that may have acted.
pub(super) fn tells_of_acting(json: &str) -> bool {
    let response = member(json, "response").filter(|response| response.starts_with('{')).unwrap_or(json);
    shown(response) == Show::Effect { may_act: true }
}

/// What outweighs what: an effect is worse than text; reasoning may be declared invisible, so anything visible tells more.
fn weight(show: Show) -> u8 {
    match show {
        Show::Preamble | Show::Ping => 0,
        Show::Visible(VisibleKind::Reasoning) => 1,
        Show::Visible(_) => 2,
        Show::Effect { may_act: false } => 3,
        Show::Effect { may_act: true } => 4,
    }
}
