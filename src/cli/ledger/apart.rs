//! What may read a ledger's file does it in a process of its own.
//!
//! The database under the ledger answers some kinds of damage with a panic while it already unwinds from another one, which aborts, or with
//! a buffer or a loop without an end. No code in the same process can make an error of that. So the program starts itself once more with
//! the same arguments ([`MARK`]), bounds that child's memory and time, and tells how it ended: exit code 1 and a sentence, where it was a
//! signal.

use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};
use serde_json::json;

use super::super::operator::{self, Failure};
use super::args::{LedgerCommand, Place};
use super::copy;
use crate::config::outside;

/// Set in the child. Somebody who sets it by hand reads the file in one process, without these bounds.
const MARK: &str = "RUBICON_LEDGER_APART";

/// Memory that is always enough: the database's cache of 128 MiB and a page of records with their results.
const MEMORY_MIN: u64 = 4 << 30;

/// Memory for each byte of the file: nothing keeps more than a part of it at once.
const MEMORY_PER_BYTE: u64 = 8;

/// Beside it.
const MEMORY_BESIDE: u64 = 1 << 30;

/// Seconds of processor time that are always enough.
const SECONDS_MIN: u64 = 600;

/// Bytes of the file that a second of processor time is given for: verifying took 33 s for 2 GiB (`ledger/README.md`).
const BYTES_A_SECOND: u64 = 1 << 20;

/// What a command is about to read, if it reads a file.
struct Reads<'a> {
    name: &'static str,
    json: bool,
    /// The ledger, where it is named.
    file: Option<PathBuf>,
    /// What it writes, under this name when it is whole.
    written: Option<&'a Path>,
}

fn reads(command: &LedgerCommand) -> Option<Reads<'_>> {
    let of = |name, place: &Place| {
        let connect = &place.connect;
        let named = connect.config.as_deref().filter(|_| connect.url.is_none());
        let file = place.file.clone().or_else(|| named.and_then(|config| outside::store_file(config).ok().flatten()));
        file.map(|file| Reads { name, json: connect.json, file: Some(file), written: None })
    };
    match command {
        LedgerCommand::List(list) => of("ledger list", &list.place),
        LedgerCommand::Show(show) => of("ledger show", &show.place),
        LedgerCommand::Verify(verify) => of("ledger verify", &verify.place),
        LedgerCommand::Journal(journal) => of("ledger journal", &journal.place),
        LedgerCommand::Head(place) => of("ledger head", place),
        // Also of a running relay: what came is looked through.
        LedgerCommand::Backup(backup) => {
            let file = of("", &backup.place).and_then(|reads| reads.file);
            let json = backup.place.connect.json;
            Some(Reads { name: "ledger backup", json, file, written: Some(&backup.to) })
        }
        LedgerCommand::Restore(restore) => {
            let file = Some(restore.from.clone());
            Some(Reads { name: "ledger restore", json: restore.json, file, written: None })
        }
        _ => None,
    }
}

/// Does it in a child; none: it is to be done here, since it reads no file or this is the child.
pub(super) fn run(command: &LedgerCommand) -> Option<ExitCode> {
    let reads = reads(command)?;
    let bytes = reads.file.as_deref().and_then(|file| fs::metadata(file).ok()).map(|found| found.len());
    if std::env::var_os(MARK).is_some() {
        // A backup that comes over the network has a size that nobody knows yet.
        if let Some(bytes) = bytes {
            bound(bytes);
        }
        return None;
    }
    let ended = std::env::current_exe().and_then(|own| {
        let mut child = Command::new(own).args(std::env::args_os().skip(1)).env(MARK, "1").spawn()?;
        Ok((child.id(), child.wait()?))
    });
    let failure = match ended {
        Ok((id, status)) => match status.code() {
            // 0 to 255: what the child has said is said.
            Some(code) => return Some(ExitCode::from(u8::try_from(code).unwrap_or(1))),
            None => {
                if let Some(to) = reads.written {
                    let _ = fs::remove_file(copy::part_path(to, id));
                }
                died(reads.file.as_deref(), status.signal().unwrap_or_default())
            }
        },
        Err(error) => Failure::problem(format!("a process to read the ledger in could not be started: {error}")),
    };
    Some(operator::told(reads.name, reads.json, Err(failure), |_| String::new()))
}

/// What it means that the child ended by a signal.
fn died(file: Option<&Path>, signal: i32) -> Failure {
    let names = [
        (Signal::ABORT, "an abort"),
        (Signal::SEGV, "a fault in memory (SIGSEGV)"),
        (Signal::BUS, "a fault in memory (SIGBUS)"),
        (Signal::XCPU, "a loop without an end"),
        (Signal::KILL, "being killed (SIGKILL)"),
    ];
    let named = names.iter().find(|(known, _)| known.as_raw() == signal).map(|(_, name)| *name);
    let subject = file.map_or_else(|| "the ledger".to_owned(), |file| file.display().to_string());
    let (code, message) = match named {
        Some(name) => ("broken", format!("{subject}: damaged: reading it ended in {name}")),
        // Somebody stopped it: that says nothing of the file.
        None => ("stopped", format!("{subject}: reading it was stopped by signal {signal}")),
    };
    let answer = json!({ "ok": false, "error": { "code": code, "message": message } });
    Failure::Problem { message, answer: Some(answer) }
}

/// Bounds memory and time of this process by the size of what it reads. Where a limit cannot be set it goes on without it.
fn bound(bytes: u64) {
    let memory = bytes.saturating_mul(MEMORY_PER_BYTE).saturating_add(MEMORY_BESIDE).max(MEMORY_MIN);
    let seconds = SECONDS_MIN.saturating_add(bytes / BYTES_A_SECOND);
    for (resource, most) in [(Resource::As, memory), (Resource::Cpu, seconds)] {
        let Rlimit { current, maximum } = getrlimit(resource);
        let most = current.map_or(most, |current| current.min(most));
        let most = maximum.map_or(most, |maximum| maximum.min(most));
        let _ = setrlimit(resource, Rlimit { current: Some(most), maximum });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_of_damage_is_told_as_damage_and_another_one_is_not() {
        for (signal, expected) in
            [(6, "broken"), (11, "broken"), (7, "broken"), (24, "broken"), (2, "stopped"), (15, "stopped")]
        {
            let Failure::Problem { message, answer } = died(Some(Path::new("f.redb")), signal) else {
                panic!("{signal}")
            };
            assert!(message.starts_with("f.redb: "), "{message}");
            assert_eq!(answer.expect("JSON")["error"]["code"], expected, "{signal}");
        }
    }
}
