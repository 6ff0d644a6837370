//! To which run (*root*) a request belongs, and whose results it carries (SPEC section 8, Root).
//!
//! In: the request's header, its body, and what was emitted to its tenant. Out: a [`Root`]. The decision is [`decide`]; the rest looks
//! emitted calls up, which may read the disk: on a thread that may block, only for requests that carry results, and not for ever. What
//! could not be looked up is told as a doubt (`root_ambiguous`), since a run that is not recognised is one whose calls may come twice.

use std::time::Duration;

use bytes::Bytes;
use rubicon_ledger::store::{Filter, Sighting, StoreError};
use rubicon_ledger::{Command, ExecutionKey, Flag, Ledger, RootId};

use crate::ids::{OperationId, TenantId};
use crate::protocol::Dialect;
use crate::protocol::words::{self, Returned};

/// How long a request waits for emitted calls to be looked up; over it they count as unreadable. A healthy disk takes milliseconds.
const LOOK_WAIT: Duration = Duration::from_secs(2);

/// The run that an operation belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root {
    /// Its name.
    pub id: RootId,
    /// Its request carried results of several roots or named another one than its results, or they could not be looked up.
    pub ambiguous: bool,
}

impl Root {
    /// What its executions are flagged with.
    #[must_use]
    pub fn flags(&self) -> Vec<Flag> {
        self.ambiguous.then_some(Flag::RootAmbiguous).into_iter().collect()
    }
}

/// What a request's results say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Inferred {
    says: Says,
    /// Executions whose result it carries and that nobody reported yet.
    pub(super) carried: Vec<ExecutionKey>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Says {
    /// Nothing: it carries no result of an emitted call.
    #[default]
    Nothing,
    /// All are of one run.
    One(RootId),
    /// They are of several.
    Several,
    /// Nobody knows: the store could not be read.
    Unknown,
}

/// Which run it is: that of the operation it restarts, else that of the header, else that of its results, else its own.
pub(super) fn decide(restarted: Option<RootId>, header: Option<RootId>, inferred: &Inferred, own: RootId) -> Root {
    let named = restarted.or(header.clone());
    let id = match (&named, &inferred.says) {
        (Some(named), _) => named.clone(),
        (None, Says::One(root)) => root.clone(),
        (None, _) => own,
    };
    let ambiguous = match &inferred.says {
        Says::Nothing => false,
        Says::One(root) => *root != id,
        Says::Several => true,
        // A name that was given is no doubt.
        Says::Unknown => named.is_none(),
    };
    Root { ambiguous: ambiguous || header.is_some_and(|header| header != id), id }
}

/// What the results that a request carries say, by the calls that were emitted to its tenant.
pub(super) async fn infer(ledger: &Ledger, tenant: &TenantId, dialect: Dialect, body: &Bytes) -> Inferred {
    if !dialect.may_have_results(body) {
        return Inferred::default();
    }
    let (ledger, tenant, body) = (ledger.clone(), tenant.clone(), body.clone());
    let look = tokio::task::spawn_blocking(move || {
        let returned = dialect.results(&body);
        let reader = ledger.reader();
        let inferred = read(&returned, tenant.as_str(), |digest| ledger.sighting(digest));
        let carried = inferred.carried.iter().filter_map(|key| reader.record(key).ok().flatten());
        let carried = carried.filter(|record| record.reported_at.is_none()).map(|record| record.key).collect();
        Inferred { carried, ..inferred }
    });
    match tokio::time::timeout(LOOK_WAIT, look).await {
        Ok(Ok(inferred)) => inferred,
        _ => Inferred { says: Says::Unknown, carried: Vec::new() },
    }
}

fn read(
    returned: &[Returned],
    tenant: &str,
    mut look: impl FnMut(&[u8; 16]) -> Result<Option<Sighting>, StoreError>,
) -> Inferred {
    let mut inferred = Inferred::default();
    for result in returned {
        match look(&result.digest(tenant)) {
            Ok(None) => {}
            Ok(Some(sighting)) => {
                inferred.carried.extend(sighting.key);
                inferred.says = match inferred.says {
                    Says::Nothing => Says::One(sighting.root),
                    Says::One(root) if root != sighting.root => Says::Several,
                    says => says,
                };
            }
            Err(error) => {
                tracing::warn!(%error, "emitted tool calls could not be looked up");
                return Inferred { says: Says::Unknown, ..inferred };
            }
        }
    }
    inferred
}

/// Marks executions as reported. Behind the request, which does not wait for it: nothing depends on it.
pub(super) async fn report(ledger: Ledger, carried: Vec<ExecutionKey>) {
    for key in carried {
        if ledger.submit(Command::Reported { key }).await.is_err() {
            return; // The next turn carries them again.
        }
    }
}

/// The root of an operation that this process may have forgotten: from the calls that it emitted, else from its executions. Blocks on the
/// disk. `None`: it did neither, or was its own root.
///
/// # Errors
/// When the store cannot be read.
pub fn kept(ledger: &Ledger, tenant: &TenantId, operation: &OperationId) -> Result<Option<RootId>, StoreError> {
    let digest = words::of_operation(tenant.as_str(), operation.as_str());
    if let Some(sighting) = ledger.sighting(&digest)? {
        return Ok(Some(sighting.root));
    }
    let Some(filter) = of_operation(tenant, operation) else { return Ok(None) };
    Ok(ledger.reader().list(&filter, 1)?.records.into_iter().next().map(|record| record.root))
}

/// An operation's executions. `None`: the ledger would not take such names, so it has none.
pub(super) fn of_operation(tenant: &TenantId, operation: &OperationId) -> Option<Filter> {
    let tenant = rubicon_ledger::TenantId::new(tenant.as_str()).ok()?;
    let operation = rubicon_ledger::OperationId::new(operation.as_str()).ok()?;
    Some(Filter { tenant: Some(tenant), operation: Some(operation), ..Filter::default() })
}

#[cfg(test)]
mod tests {
    use rubicon_ledger::UnixMillis;

    use super::*;
    use crate::protocol::words::Shown;

    fn root(name: &str) -> RootId {
        RootId::new(name).unwrap()
    }

    #[test]
    fn who_names_the_run() {
        use Says::{Nothing, One, Several, Unknown};
        let name = |name: &str| (!name.is_empty()).then(|| root(name));
        for (restarted, header, says, expected, ambiguous) in [
            ("", "", Nothing, "own", false),
            ("", "h", Nothing, "h", false),
            ("", "", One(root("r")), "r", false),
            ("", "h", One(root("r")), "h", true),
            ("", "r", One(root("r")), "r", false),
            ("", "", Several, "own", true),
            ("", "h", Several, "h", true),
            ("", "", Unknown, "own", true),
            ("", "h", Unknown, "h", false),
            ("old", "", Nothing, "old", false),
            ("old", "h", Nothing, "old", true),
            ("old", "old", One(root("old")), "old", false),
            ("old", "", One(root("r")), "old", true),
        ] {
            let inferred = Inferred { says, carried: Vec::new() };
            let decided = decide(name(restarted), name(header), &inferred, root("own"));
            let told = (decided.id.as_str(), decided.ambiguous);
            assert_eq!(told, (expected, ambiguous), "{restarted:?} {header:?} {inferred:?}");
        }
    }

    fn returned(id: &str) -> Returned {
        Returned { id: id.to_owned(), shown: Shown::Response("resp".to_owned()) }
    }

    #[test]
    fn results_of_one_run_name_it_and_of_several_none() {
        let seen = |id: &str, name: &str| {
            let operation = rubicon_ledger::OperationId::new("op").unwrap();
            let digest = returned(id).digest("t");
            Sighting { digest, root: root(name), operation, key: None, at: UnixMillis(1) }
        };
        let known = [seen("a", "r"), seen("b", "r"), seen("c", "s")];
        let says = |ids: &[&str], tenant: &str| {
            let returned: Vec<_> = ids.iter().map(|id| returned(id)).collect();
            let look = |digest: &[u8; 16]| Ok(known.iter().find(|known| known.digest == *digest).cloned());
            read(&returned, tenant, look).says
        };
        assert_eq!(says(&["a", "x", "b"], "t"), Says::One(root("r")));
        assert_eq!(says(&["a", "c", "b"], "t"), Says::Several);
        assert_eq!(says(&["x"], "t"), Says::Nothing);
        assert_eq!(says(&["a", "b"], "t2"), Says::Nothing, "another tenant's calls are nobody's");
        let broken = read(&[returned("a")], "t", |_| Err(StoreError::Io("gone".to_owned())));
        assert_eq!(broken.says, Says::Unknown);
    }
}
