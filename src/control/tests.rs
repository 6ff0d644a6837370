//! Switches, their order and their journal; what survives a restart; a disk that fails; who issued what.

mod disk;

use std::path::Path;

use super::journal::Verifier;
use super::table::Precondition;
use super::*;
use crate::ids::{RouteId, TenantId, WorkflowId};

const NOW: UnixMillis = UnixMillis(1_796_083_200_000);

fn route(name: &str) -> Subject {
    Subject::Route(RouteId::new(name))
}

fn request(subject: Subject, stop: bool, precondition: Precondition) -> Request {
    Request { subject, stop, by: "ana".to_owned(), reason: "drill".to_owned(), precondition, now: NOW }
}

fn memory() -> Control {
    Control::open(None, NOW).expect("a store in memory")
}

async fn kill(control: &Control, name: &str) -> Result<Done, Refused> {
    control.change(request(route(name), true, Precondition::Any)).await
}

async fn restore(control: &Control, name: &str, version: u64) -> Result<Done, Refused> {
    control.change(request(route(name), false, Precondition::Version(version))).await
}

#[tokio::test]
async fn a_route_is_killed_once_and_restored_by_its_version() {
    let control = memory();
    let killed = kill(&control, "a").await.expect("killed");
    assert!(killed.changed && killed.record.stopped);
    assert_eq!((killed.record.version, killed.record.by.as_str(), killed.record.since), (1, "ana", NOW));
    assert!(control.switches().killed.contains_key(&RouteId::new("a")));
    // Again: nothing changes, and the journal has no line of it.
    let again = kill(&control, "a").await.expect("still killed");
    assert_eq!((again.changed, again.record), (false, killed.record));
    assert_eq!(restore(&control, "a", 7).await, Err(Refused::Mismatch { version: 1 }));
    let restored = restore(&control, "a", 1).await.expect("restored");
    assert_eq!((restored.record.stopped, restored.record.version), (false, 2));
    assert!(control.switches().killed.is_empty());
    assert_eq!(restore(&control, "a", 1).await, Err(Refused::Mismatch { version: 2 }));
    assert!(!restore(&control, "a", 2).await.expect("is live").changed);
    let entries = control.entries(1, 10).expect("a journal");
    let told: Vec<_> =
        entries.iter().map(|e| (e.sequence, e.action.as_str(), e.from.as_str(), e.to.as_str())).collect();
    assert_eq!(told, [(1, "kill", "live", "killed"), (2, "restore", "killed", "live")]);
    assert_eq!(entries[0].subject, "route:a");
    assert_eq!((control.head().expect("a head").sequence, control.entries(2, 1).expect("one").len()), (2, 1));
    assert!(control.verify(None).expect("a verdict").ok);
}

#[tokio::test]
async fn failover_switches_share_one_version() {
    let control = memory();
    let workflow = || Subject::WorkflowFailover(WorkflowId::new("w"));
    let all = control.change(request(Subject::Failover, true, Precondition::Any)).await.expect("disabled");
    let one = control.change(request(workflow(), true, Precondition::Any)).await.expect("disabled");
    assert_eq!((all.record.version, one.record.version), (1, 2));
    let switches = control.switches();
    assert!(switches.failover_off.is_some() && switches.workflow_failover_off.contains_key(&WorkflowId::new("w")));
    // By the document's version, and by the record's own, which did not change since.
    let enable = |subject, version| control.change(request(subject, false, Precondition::Version(version)));
    assert_eq!(enable(workflow(), 9).await, Err(Refused::Mismatch { version: 2 }));
    assert_eq!(enable(Subject::Failover, 2).await.expect("enabled").record.version, 3);
    assert_eq!(enable(workflow(), 2).await.expect("enabled").record.version, 4);
    assert_eq!(enable(workflow(), 2).await, Err(Refused::Mismatch { version: 4 }));
    assert!(control.switches().failover_off.is_none() && control.switches().workflow_failover_off.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_many_restores_by_one_version_exactly_one_wins() {
    let control = Arc::new(memory());
    for round in 0..20 {
        let version = kill(&control, "a").await.expect("killed").record.version;
        let all = (0..8).map(|_| {
            let control = Arc::clone(&control);
            tokio::spawn(async move { restore(&control, "a", version).await })
        });
        let mut won = 0;
        for task in all.collect::<Vec<_>>() {
            won += usize::from(task.await.expect("no panic").is_ok());
        }
        assert_eq!(won, 1, "round {round}");
    }
    assert_eq!(control.head().expect("a head").sequence, 40);
    assert!(control.verify(None).expect("a verdict").ok);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn changes_of_many_are_journaled_in_the_order_of_their_versions() {
    let control = Arc::new(memory());
    let all: Vec<_> = (0..100)
        .map(|index| {
            let control = Arc::clone(&control);
            tokio::spawn(async move { kill(&control, &format!("r{}", index % 50)).await.expect("killed") })
        })
        .collect();
    for task in all {
        assert!(task.await.expect("no panic").record.stopped);
    }
    assert_eq!(control.switches().killed.len(), 50);
    let verdict = control.verify(None).expect("a verdict");
    assert!(verdict.ok, "{verdict:?}");
    assert_eq!(verdict.entries, 50, "a repeated kill is no change");
}

fn chain(count: u64) -> Vec<Entry> {
    let mut previous = journal::GENESIS.to_owned();
    (1..=count)
        .map(|sequence| {
            let mut entry = Entry {
                sequence,
                at: NOW,
                by: "ana".to_owned(),
                action: "kill".to_owned(),
                subject: "route:a".to_owned(),
                from: "live".to_owned(),
                to: "killed".to_owned(),
                version: sequence,
                reason: "x".to_owned(),
                previous: previous.clone(),
                hash: String::new(),
            };
            entry.hash = entry.digest();
            previous.clone_from(&entry.hash);
            entry
        })
        .collect()
}

/// As read from the disk: key, and the entry if it can be read.
type Rows = Vec<(u64, Option<Entry>)>;

/// What somebody does to them.
type Harm = fn(&mut Rows);

fn walk(entries: &[(u64, Option<Entry>)], wanted: Option<String>) -> Verdict {
    let mut verifier = Verifier::new(wanted);
    let broken = entries.iter().find_map(|(key, entry)| verifier.take(*key, entry.as_ref()).err());
    verifier.finish(broken)
}

#[test]
fn a_broken_link_is_named() {
    let keyed = |entries: Vec<Entry>| entries.into_iter().map(|e| (e.sequence, Some(e))).collect::<Vec<_>>();
    let good = keyed(chain(5));
    assert!(walk(&good, None).ok);
    let last = good[4].1.clone().expect("an entry").hash;
    assert!(walk(&good, Some(last.clone())).ok);
    assert!(walk(&[], None).ok && walk(&[], Some(journal::GENESIS.to_owned())).ok);
    let rows: [(&str, u64, Harm); 6] = [
        ("missing", 3, |all| drop(all.remove(2))),
        ("unreadable", 3, |all| all[2].1 = None),
        ("renumbered", 3, |all| all[2].1.as_mut().expect("one").sequence = 9),
        ("changed", 3, |all| all[2].1.as_mut().expect("one").reason = "y".to_owned()),
        ("changed", 3, |all| all[2].1.as_mut().expect("one").by = "eve".to_owned()),
        // Somebody who also made the hash fit is found by the next entry.
        ("unlinked", 4, |all| {
            let entry = all[2].1.as_mut().expect("one");
            entry.reason = "y".to_owned();
            entry.hash = entry.digest();
        }),
    ];
    for (why, sequence, harm) in rows {
        let mut all = good.clone();
        harm(&mut all);
        let verdict = walk(&all, None);
        assert!(!verdict.ok);
        assert_eq!(verdict.broken.map(|broken| (broken.sequence, broken.why)), Some((sequence, why)));
        assert_eq!(verdict.entries, sequence - 1);
    }
    let cut = walk(&good[..4], Some(last));
    assert_eq!(cut.broken.map(|broken| (broken.sequence, broken.why)), Some((5, "cut_off")));
}

#[test]
fn parts_of_an_entry_cannot_be_shifted_into_each_other() {
    let entry = chain(1).remove(0);
    let shifted = Entry { by: "anak".to_owned(), action: "ill".to_owned(), ..entry.clone() };
    assert_ne!(entry.digest(), shifted.digest());
}

#[test]
fn subjects_are_read_as_they_are_written() {
    for subject in [route("a.b-c"), Subject::Failover, Subject::WorkflowFailover(WorkflowId::new("failover"))] {
        assert_eq!(Subject::parse(&subject.to_string()), Some(subject));
    }
    assert_eq!(Subject::parse("tool:x"), None);
    assert_eq!(Subject::parse("nothing"), None);
}

#[test]
fn who_issued_what_is_told_to_its_tenant_for_a_day() {
    let control = memory();
    let issuers = control.issuers();
    let (red, blue) = (TenantId::new("red"), TenantId::new("blue"));
    issuers.remember(&red, [1; 16], "acct-1", NOW);
    assert_eq!(issuers.account_of(&red, &[1; 16], NOW).as_deref(), Some("acct-1"));
    assert_eq!(issuers.account_of(&blue, &[1; 16], NOW), None, "another tenant's state is unknown");
    assert_eq!(issuers.account_of(&red, &[2; 16], NOW), None);
    let day = u64::try_from(issuers::KEPT.as_millis()).expect("small");
    assert!(issuers.account_of(&red, &[1; 16], UnixMillis(NOW.0 + day - 1)).is_some());
    assert_eq!(issuers.account_of(&red, &[1; 16], UnixMillis(NOW.0 + day)), None);
    // Seen again, by another account: the last one counts.
    issuers.remember(&red, [1; 16], "acct-2", NOW);
    assert_eq!(issuers.account_of(&red, &[1; 16], NOW).as_deref(), Some("acct-2"));
}

#[test]
fn rows_in_memory_are_bounded_whatever_comes() {
    let issuers = Issuers::new(Vec::new(), None, 100);
    let tenant = TenantId::new("t");
    for number in 0..1000_u64 {
        let mut digest = [0; 16];
        digest[..8].copy_from_slice(&number.to_be_bytes());
        issuers.remember(&tenant, digest, "acct", UnixMillis(NOW.0 + number));
        assert!(issuers.len() <= 100);
        assert!(issuers.account_of(&tenant, &digest, UnixMillis(NOW.0 + number)).is_some(), "the newest is there");
    }
    // One state, again and again by turns of two accounts: no order of its own grows.
    for number in 0..1000_u64 {
        issuers.remember(&tenant, [9; 16], if number % 2 == 0 { "x" } else { "y" }, UnixMillis(NOW.0 + 2000 + number));
    }
    assert!(issuers.ordered() <= 201, "{}", issuers.ordered());
}

#[test]
fn the_control_file_stands_beside_the_ledgers() {
    for (ledger, control) in [
        ("data/rubicon.redb", "data/rubicon-control.redb"),
        ("x.redb", "x-control.redb"),
        ("data/plain", "data/plain-control.redb"),
    ] {
        assert_eq!(store::control_path(Path::new(ledger)), Path::new(control));
    }
}
