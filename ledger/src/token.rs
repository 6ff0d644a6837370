//! Lease and confirm tokens: rights that are handed out, and cannot be made up.
//!
//! In: the store's secret and what the right is bound to. Out: a text, or whether a text is that right. They are keyed digests, not
//! random numbers: nothing is stored, the same right is the same text after a crash, and the machine stays pure. Comparison takes the
//! same time wherever texts differ ([`blake3::Hash`] does that).

use std::sync::Arc;

use crate::key::{ExecutionKey, Fingerprint, Parts};

const LEASE_PREFIX: &str = "lt_";
const CONFIRM_PREFIX: &str = "ct_";

/// What a lease token is worth to a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// The right of the present epoch.
    Present,
    /// The right of an earlier one (or of this one in a history that a restored backup has lost).
    Older {
        /// Which.
        epoch: u32,
    },
    /// No right of this execution.
    Foreign,
}

/// The right to speak for one run: `lt_EPOCH_` and two digests, one over key and epoch (it still proves an older run when the claim
/// that had it is forgotten), one over the claim's name as well.
pub(crate) fn lease(secret: &[u8; 32], key: &ExecutionKey, epoch: u32, claim_id: Option<&str>) -> Arc<str> {
    let (run, claim) = lease_digests(secret, key, epoch, claim_id);
    Arc::from(format!("{LEASE_PREFIX}{epoch}_{run}{claim}"))
}

/// What this text is to a record with this key, epoch and claim.
pub(crate) fn standing(
    secret: &[u8; 32],
    key: &ExecutionKey,
    epoch: u32,
    claim_id: Option<&str>,
    text: &str,
) -> Standing {
    let Some((said, run, claim)) = parse_lease(text) else { return Standing::Foreign };
    let (wanted_run, wanted_claim) = lease_digests(secret, key, said, claim_id);
    if said > epoch || run != wanted_run {
        Standing::Foreign
    } else if said == epoch && claim == wanted_claim {
        Standing::Present
    } else {
        Standing::Older { epoch: said }
    }
}

fn lease_digests(
    secret: &[u8; 32],
    key: &ExecutionKey,
    epoch: u32,
    claim_id: Option<&str>,
) -> (blake3::Hash, blake3::Hash) {
    let parts = |version: &[u8]| Parts::keyed(secret, version).bytes(key.as_bytes()).number(u64::from(epoch));
    let claim = match claim_id {
        None => parts(b"lease-claim-v1").bytes(b"none"),
        Some(id) => parts(b"lease-claim-v1").bytes(b"some").bytes(id.as_bytes()),
    };
    (parts(b"lease-run-v1").finish().into(), claim.finish().into())
}

/// One spelling only: what is not written exactly as [`lease`] writes it is foreign.
fn parse_lease(text: &str) -> Option<(u32, blake3::Hash, blake3::Hash)> {
    let (epoch, digests) = text.strip_prefix(LEASE_PREFIX)?.split_once('_')?;
    let (run, claim) = digests.split_at_checked(64)?;
    let number: u32 = epoch.parse().ok()?;
    if number.to_string() != epoch {
        return None;
    }
    Some((number, unhex(run)?, unhex(claim)?))
}

/// What a confirmation is bound to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bond<'a> {
    /// Why it was asked for.
    pub(crate) why: &'static str,
    /// The other execution.
    pub(crate) similar: &'a ExecutionKey,
    /// Its words.
    pub(crate) similar_words: &'a Fingerprint,
    /// Its run.
    pub(crate) similar_epoch: u32,
    /// The words that would run.
    pub(crate) words: &'a Fingerprint,
    /// How often they ran: used once, the token is another one.
    pub(crate) epoch: u32,
}

/// The caller's right to say that it is meant.
pub(crate) fn confirm(secret: &[u8; 32], bond: &Bond<'_>) -> Arc<str> {
    Arc::from(format!("{CONFIRM_PREFIX}{}", confirm_digest(secret, bond)))
}

/// Whether this text is that right.
pub(crate) fn confirms(secret: &[u8; 32], bond: &Bond<'_>, text: &str) -> bool {
    text.strip_prefix(CONFIRM_PREFIX).and_then(unhex).is_some_and(|given| given == confirm_digest(secret, bond))
}

fn confirm_digest(secret: &[u8; 32], bond: &Bond<'_>) -> blake3::Hash {
    Parts::keyed(secret, b"confirm-v1")
        .bytes(bond.why.as_bytes())
        .bytes(bond.similar.as_bytes())
        .bytes(bond.similar_words.as_bytes())
        .number(u64::from(bond.similar_epoch))
        .bytes(bond.words.as_bytes())
        .number(u64::from(bond.epoch))
        .finish()
        .into()
}

/// A digest in hex, of any case.
fn unhex(text: &str) -> Option<blake3::Hash> {
    blake3::Hash::from_hex(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: [u8; 32] = [7; 32];

    fn key(n: u8) -> ExecutionKey {
        ExecutionKey::from_bytes([n; 32])
    }

    #[test]
    fn a_lease_token_is_bound_to_all_of_it() {
        let token = lease(&SECRET, &key(1), 2, Some("a"));
        assert_eq!(token, lease(&SECRET, &key(1), 2, Some("a")));
        let standing = |secret: &[u8; 32], k, epoch, claim| standing(secret, &key(k), epoch, claim, &token);
        assert_eq!(standing(&SECRET, 1, 2, Some("a")), Standing::Present);
        assert_eq!(standing(&SECRET, 1, 3, Some("b")), Standing::Older { epoch: 2 });
        assert_eq!(standing(&SECRET, 1, 2, Some("b")), Standing::Older { epoch: 2 });
        assert_eq!(standing(&SECRET, 1, 2, None), Standing::Older { epoch: 2 });
        assert_eq!(standing(&SECRET, 1, 1, Some("a")), Standing::Foreign);
        assert_eq!(standing(&SECRET, 2, 2, Some("a")), Standing::Foreign);
        assert_eq!(standing(&[8; 32], 1, 2, Some("a")), Standing::Foreign);
    }

    #[test]
    fn other_texts_are_foreign() {
        let token = lease(&SECRET, &key(1), 2, None);
        let rows = [
            String::new(),
            "lt_".to_owned(),
            token.replace("lt_2", "lt_02"),
            token.replace("lt_2", "lt_+2"),
            token.replace("lt_2", "lt_1"),
            format!("{token}0"),
            token[..token.len() - 1].to_owned(),
            token.replace("lt_", "ct_"),
            format!("lt_2_{}é", "0".repeat(63)),
        ];
        for text in rows {
            assert_eq!(standing(&SECRET, &key(1), 2, None, &text), Standing::Foreign, "{text}");
        }
    }

    #[test]
    fn a_confirm_token_is_bound_to_all_of_it() {
        let (similar, words, other) = (key(1), Fingerprint::from_bytes([2; 32]), Fingerprint::from_bytes([3; 32]));
        let bond = Bond {
            why: "similar",
            similar: &similar,
            similar_words: &other,
            similar_epoch: 1,
            words: &words,
            epoch: 0,
        };
        let token = confirm(&SECRET, &bond);
        assert!(confirms(&SECRET, &bond, &token));
        assert!(!confirms(&[8; 32], &bond, &token));
        let elsewhere = key(9);
        let rows = [
            Bond { why: "after_error", ..bond },
            Bond { similar: &elsewhere, ..bond },
            Bond { similar_words: &words, ..bond },
            Bond { similar_epoch: 2, ..bond },
            Bond { words: &other, ..bond },
            Bond { epoch: 1, ..bond },
        ];
        for row in rows {
            assert!(!confirms(&SECRET, &row, &token), "{row:?}");
        }
        assert!(!confirms(&SECRET, &bond, ""));
    }
}
