//! The arguments of `rubicon ledger`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::super::operator::{Connect, Failure};

const ABOUT: &str = "\
The ledger of tool executions: which ones are unknown, what was seen of them, and what a person
decides. Reading and changing go through the admin side of a running relay (--url, or --config for
its address); list, show, verify, journal, head and backup also read the file of a stopped one
(--file, or --config where no relay holds its file). Restoring is for a stopped one only.";

const EXAMPLES: &str = "\
An unknown execution, from finding to settling it:
  rubicon ledger list --state unknown
  rubicon ledger show ex_…
  rubicon ledger probe ex_…                                  ask the tool now, where it has a probe
  rubicon ledger resolve ex_… --outcome succeeded --external-reference ch_123 --reason \"seen at the bank\"
  rubicon ledger confirm ex_…                                the second person, where impact is high
  rubicon ledger release ex_… --reason \"…\"                   one new run of what did not execute

Every change is journaled with the operator's name and made against the version that was seen
(--version; without it, the present one). The token is an operator's ([[operator]] in the config);
it is sent over plain http to loopback only. Viewers read; operators probe, note, assign and
resolve; approvers also confirm, release, let through, back up and end a gap.

Colour and cut lines are for terminals only, and NO_COLOR is honoured.
Exit codes: 0 done, 1 the relay refused or was not reached, or the ledger is broken, 2 wrong usage.";

/// Arguments of `rubicon ledger`.
#[derive(Debug, Args)]
#[command(about = "Look into the ledger of tool executions, settle what is unknown, verify, back up")]
#[command(long_about = ABOUT, after_long_help = EXAMPLES)]
pub struct LedgerArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: LedgerCommand,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum LedgerCommand {
    /// Executions, oldest first
    List(ListArgs),
    /// One execution: timeline, evidence, similar ones, a suggested verdict
    Show(ShowArgs),
    /// Say how an unknown execution ended
    Resolve(ResolveArgs),
    /// As the second person, agree with a verdict that waits; or let run what awaits an approval
    Confirm(ConfirmArgs),
    /// One new run of what did not execute
    Release(ReleaseArgs),
    /// Let a near-duplicate that was held run, once
    LetThrough(LetThroughArgs),
    /// Ask the tool's probe now
    Probe(Changing),
    /// A remark for those who come after
    Note(NoteArgs),
    /// Say who looks after it
    Assign(AssignArgs),
    /// Walk along the journal and all records; exit 1 if anything does not hold
    Verify(VerifyArgs),
    /// The journal's entries: who did what, and why
    Journal(JournalArgs),
    /// The journal's end: keep it elsewhere, and `verify --head` finds a tail that was cut off
    Head(Place),
    /// A copy of the ledger, of a running relay or of a stopped one
    Backup(BackupArgs),
    /// Put a backup in place of a stopped relay's file; write claims are held until `end-gap`
    Restore(RestoreArgs),
    /// Say that what ran between the backup and its restoring is known
    EndGap(EndGapArgs),
}

/// A running relay or a stopped one's file.
#[derive(Debug, Args)]
pub struct Place {
    /// Where and as whom.
    #[command(flatten)]
    pub connect: Connect,
    /// The ledger's file, of a relay that does not run
    #[arg(long, value_name = "PATH", conflicts_with_all = ["url", "config"])]
    pub file: Option<PathBuf>,
}

/// `list`.
#[derive(Debug, Args)]
pub struct ListArgs {
    /// planned, started, succeeded, failed or unknown
    #[arg(long, value_parser = ["planned", "started", "succeeded", "failed", "unknown"])]
    pub state: Option<String>,
    /// Of this tool
    #[arg(long)]
    pub tool: Option<String>,
    /// Of this operation
    #[arg(long, value_name = "ID")]
    pub operation: Option<String>,
    /// Of this root
    #[arg(long)]
    pub root: Option<String>,
    /// Of this tenant
    #[arg(long)]
    pub tenant: Option<String>,
    /// Of the tools of this owner
    #[arg(long)]
    pub owner: Option<String>,
    /// Unchanged for so long: 90s, 15m, 2h, 3d (over the admin side)
    #[arg(long, value_name = "TIME")]
    pub older_than: Option<String>,
    /// Where to go on: the `next_cursor` of the page before
    #[arg(long)]
    pub cursor: Option<u64>,
    /// Executions a page, 1000 at most
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub limit: u16,
    /// Where.
    #[command(flatten)]
    pub place: Place,
}

impl ListArgs {
    /// The path of the admin side that lists them.
    pub(super) fn path(&self) -> String {
        let cursor = self.cursor.map(|cursor| cursor.to_string());
        let pairs = [
            ("state", &self.state),
            ("tool", &self.tool),
            ("operation", &self.operation),
            ("root", &self.root),
            ("tenant", &self.tenant),
            ("owner", &self.owner),
            ("older_than", &self.older_than),
            ("cursor", &cursor),
        ];
        let mut path = format!("/admin/v1/executions?limit={}", self.limit);
        for (name, value) in pairs {
            if let Some(value) = value {
                path.push_str(&format!("&{name}={}", super::remote::encoded(value)));
            }
        }
        path
    }
}

/// `show`.
#[derive(Debug, Args)]
pub struct ShowArgs {
    /// The execution's key
    #[arg(value_name = "KEY")]
    pub key: String,
    /// Of a file: show arguments, results and evidence, too, with nothing taken out (a file knows no `redact`)
    #[arg(long, requires = "file")]
    pub content: bool,
    /// Where.
    #[command(flatten)]
    pub place: Place,
}

/// What all changes of one execution have.
#[derive(Debug, Args)]
pub struct Changing {
    /// The execution's key
    #[arg(value_name = "KEY")]
    pub key: String,
    /// The version that was looked at; another one by now: nothing is changed [default: the present one]
    #[arg(long, value_name = "N")]
    pub version: Option<u64>,
    /// Where and as whom.
    #[command(flatten)]
    pub connect: Connect,
}

/// `resolve`.
#[derive(Debug, Args)]
pub struct ResolveArgs {
    /// Which.
    #[command(flatten)]
    pub changing: Changing,
    /// How it ended
    #[arg(long, value_parser = ["succeeded", "not_executed", "executed_error"])]
    pub outcome: String,
    /// Why; the journal keeps it
    #[arg(long, value_name = "TEXT")]
    pub reason: String,
    /// The other system's name for what was done
    #[arg(long, value_name = "TEXT")]
    pub external_reference: Option<String>,
    /// What the tool would have answered, JSON, kept byte for byte; `-` reads standard input
    #[arg(long, value_name = "FILE")]
    pub result: Option<PathBuf>,
}

impl ResolveArgs {
    /// The body; a result goes in as it is.
    pub(super) fn body(&self) -> Result<String, Failure> {
        let mut body = json!({ "outcome": self.outcome, "reason": self.reason });
        if let Some(reference) = &self.external_reference {
            body["external_reference"] = Value::from(reference.as_str());
        }
        let mut body = body.to_string();
        if let Some(path) = &self.result {
            let result = super::remote::result(path)?;
            body.truncate(body.len() - 1);
            body.push_str(&format!(",\"result\":{result}}}"));
        }
        Ok(body)
    }
}

/// `confirm`.
#[derive(Debug, Args)]
pub struct ConfirmArgs {
    /// Which.
    #[command(flatten)]
    pub changing: Changing,
    /// Why; the journal keeps it
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
}

/// `release`.
#[derive(Debug, Args)]
pub struct ReleaseArgs {
    /// Which.
    #[command(flatten)]
    pub changing: Changing,
    /// Why; the journal keeps it
    #[arg(long, value_name = "TEXT")]
    pub reason: String,
}

/// `let-through`.
#[derive(Debug, Args)]
pub struct LetThroughArgs {
    /// Which.
    #[command(flatten)]
    pub changing: Changing,
    /// The fingerprint of the claim that was held
    #[arg(long, value_name = "FP")]
    pub fingerprint: String,
    /// Why; the journal keeps it
    #[arg(long, value_name = "TEXT")]
    pub reason: String,
}

/// `note`.
#[derive(Debug, Args)]
pub struct NoteArgs {
    /// Which.
    #[command(flatten)]
    pub changing: Changing,
    /// One line; the journal keeps it
    #[arg(long, value_name = "TEXT")]
    pub text: String,
}

/// `assign`.
#[derive(Debug, Args)]
pub struct AssignArgs {
    /// Which.
    #[command(flatten)]
    pub changing: Changing,
    /// Who; without it: nobody
    #[arg(long, value_name = "NAME")]
    pub to: Option<String>,
}

/// `verify`.
#[derive(Debug, Args)]
pub struct VerifyArgs {
    /// The hash of a head that was kept elsewhere: it must be in the journal
    #[arg(long, value_name = "HASH")]
    pub head: Option<String>,
    /// Where.
    #[command(flatten)]
    pub place: Place,
}

/// `journal`.
#[derive(Debug, Args)]
pub struct JournalArgs {
    /// The first entry's number
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub from: u64,
    /// Entries, 1000 at most
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub limit: u16,
    /// Where.
    #[command(flatten)]
    pub place: Place,
}

/// `backup`.
#[derive(Debug, Args)]
pub struct BackupArgs {
    /// The file to write; there must be none
    #[arg(long, value_name = "PATH")]
    pub to: PathBuf,
    /// Where.
    #[command(flatten)]
    pub place: Place,
}

/// `restore`.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("target").required(true).args(["config", "file"]))]
pub struct RestoreArgs {
    /// The backup
    #[arg(long, value_name = "PATH")]
    pub from: PathBuf,
    /// The relay's config file, for the ledger's file
    #[arg(short, long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The ledger's file
    #[arg(long, value_name = "PATH")]
    pub file: Option<PathBuf>,
    /// Why; the journal keeps it
    #[arg(long, value_name = "TEXT")]
    pub reason: String,
    /// Who; the journal keeps it
    #[arg(long, value_name = "NAME", default_value = "shell")]
    pub by: String,
    /// A ledger that is there already is moved aside (`….replaced-N`), never deleted
    #[arg(long)]
    pub force: bool,
    /// Print JSON, for programs
    #[arg(long)]
    pub json: bool,
}

/// `end-gap`.
#[derive(Debug, Args)]
pub struct EndGapArgs {
    /// Why; the journal keeps it
    #[arg(long, value_name = "TEXT")]
    pub reason: String,
    /// Where and as whom.
    #[command(flatten)]
    pub connect: Connect,
}
