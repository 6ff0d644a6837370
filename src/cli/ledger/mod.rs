//! `rubicon ledger`: the ledger from a shell, over the admin side of a running relay, or of a stopped one by its file.
//!
//! In: what to do. Out: tables for people, the relay's JSON for programs. Changes go over the admin side only: they need an operator's
//! name. What only reads also reads a file that no relay holds.

mod apart;
mod args;
mod copy;
mod file;
mod print;
mod remote;
mod screen;

use std::process::ExitCode;

use http::header::HeaderValue;
use serde_json::{Value, json};

pub use args::LedgerArgs;

use super::operator::{self, Client, Failure};
use args::{Changing, LedgerCommand, Place};
use file::Where;
use screen::Screen;

/// Does it.
pub async fn run(args: LedgerArgs) -> ExitCode {
    if let Some(code) = apart::run(&args.command) {
        return code;
    }
    let screen = Screen::of_stdout();
    match args.command {
        LedgerCommand::List(list) => {
            let json = list.place.connect.json;
            let outcome = self::list(&list).await;
            operator::told("ledger list", json, outcome, |body| print::list(screen, body))
        }
        LedgerCommand::Show(show) => {
            let json = show.place.connect.json;
            let outcome = self::show(&show).await;
            operator::told("ledger show", json, outcome, |body| print::whole(screen, body))
        }
        LedgerCommand::Resolve(resolve) => {
            let made = resolve.body().map(|body| (&resolve.changing, "resolve", body));
            changed(screen, "ledger resolve", &resolve.changing, made).await
        }
        LedgerCommand::Confirm(confirm) => {
            let body = confirm.reason.as_ref().map_or_else(|| json!({}), |reason| json!({ "reason": reason }));
            changed(screen, "ledger confirm", &confirm.changing, Ok((&confirm.changing, "confirm", body.to_string())))
                .await
        }
        LedgerCommand::Release(release) => {
            let body = json!({ "reason": release.reason }).to_string();
            changed(screen, "ledger release", &release.changing, Ok((&release.changing, "release", body))).await
        }
        LedgerCommand::LetThrough(through) => {
            let body = json!({ "fingerprint": through.fingerprint, "reason": through.reason }).to_string();
            let made = Ok((&through.changing, "confirm-claim", body));
            changed(screen, "ledger let-through", &through.changing, made).await
        }
        LedgerCommand::Probe(probe) => {
            changed(screen, "ledger probe", &probe, Ok((&probe, "probe", "{}".to_owned()))).await
        }
        LedgerCommand::Note(note) => {
            let body = json!({ "text": note.text }).to_string();
            changed(screen, "ledger note", &note.changing, Ok((&note.changing, "notes", body))).await
        }
        LedgerCommand::Assign(assign) => {
            let body = json!({ "to": assign.to }).to_string();
            changed(screen, "ledger assign", &assign.changing, Ok((&assign.changing, "assign", body))).await
        }
        LedgerCommand::Verify(verify) => {
            let json = verify.place.connect.json;
            let outcome = self::verify(&verify).await;
            let broken = matches!(&outcome, Ok(body) if !operator::flag(body, "ok"));
            let code = operator::told("ledger verify", json, outcome, |body| print::verdict(screen, body));
            if broken { ExitCode::FAILURE } else { code }
        }
        LedgerCommand::Journal(journal) => {
            let json = journal.place.connect.json;
            let outcome = self::journal(&journal).await;
            operator::told("ledger journal", json, outcome, |body| print::journal(screen, body))
        }
        LedgerCommand::Head(place) => {
            let json = place.connect.json;
            operator::told("ledger head", json, head(&place).await, |body| print::head(screen, body))
        }
        LedgerCommand::Backup(backup) => {
            let json = backup.place.connect.json;
            let outcome = self::backup(&backup).await;
            operator::told("ledger backup", json, outcome, |body| print::backup(screen, body))
        }
        LedgerCommand::Restore(restore) => {
            operator::told("ledger restore", restore.json, copy::restore(&restore), |body| {
                print::restored(screen, body)
            })
        }
        LedgerCommand::EndGap(end) => {
            let outcome = remote::end_gap(&end).await;
            operator::told("ledger end-gap", end.connect.json, outcome, |_| {
                "the gap is ended: write claims run again\n".to_owned()
            })
        }
    }
}

/// A change of one execution, and how it stands then.
async fn changed(
    screen: Screen,
    command: &str,
    changing: &Changing,
    made: Result<(&Changing, &str, String), Failure>,
) -> ExitCode {
    let outcome = match made {
        Ok((changing, verb, body)) => change(changing, verb, body).await,
        Err(failure) => Err(failure),
    };
    operator::told(command, changing.connect.json, outcome, |body| print::changed(screen, body))
}

async fn change(changing: &Changing, verb: &str, body: String) -> Result<Value, Failure> {
    let client = Client::new(&changing.connect)?;
    let path = remote::path(&changing.key)?;
    // The version that was looked at; without one, the present one: then only who comes in between is noticed.
    let seen = match changing.version {
        Some(version) => Some(HeaderValue::from(version)),
        None => client.get(&path).await?.etag,
    };
    let seen = seen.ok_or_else(|| Failure::problem("the relay did not tell a version"))?;
    Ok(client.post_raw(&format!("{path}/{verb}"), seen, body).await?.body)
}

async fn list(list: &args::ListArgs) -> Result<Value, Failure> {
    match file::place(&list.place)? {
        Where::Relay => Ok(Client::new(&list.place.connect)?.get(&list.path()).await?.body),
        Where::File(store) => file::list(&store, list),
    }
}

async fn show(show: &args::ShowArgs) -> Result<Value, Failure> {
    match file::place(&show.place)? {
        Where::Relay => Ok(Client::new(&show.place.connect)?.get(&remote::path(&show.key)?).await?.body),
        Where::File(store) => file::show(&store, show),
    }
}

async fn verify(verify: &args::VerifyArgs) -> Result<Value, Failure> {
    let head = verify.head.as_deref().map(remote::hash).transpose()?;
    match file::place(&verify.place)? {
        Where::Relay => {
            let query = head.map(|head| format!("?head={head}")).unwrap_or_default();
            let client = Client::new(&verify.place.connect)?;
            Ok(client.get_slow(&format!("/admin/v1/journal/verify{query}")).await?.body)
        }
        Where::File(store) => file::verify(&store, head.as_deref()),
    }
}

async fn journal(journal: &args::JournalArgs) -> Result<Value, Failure> {
    match file::place(&journal.place)? {
        Where::Relay => {
            let path = format!("/admin/v1/journal?from={}&limit={}", journal.from, journal.limit);
            Ok(Client::new(&journal.place.connect)?.get(&path).await?.body)
        }
        Where::File(store) => file::journal(&store, journal),
    }
}

async fn head(place: &Place) -> Result<Value, Failure> {
    match file::place(place)? {
        Where::Relay => Ok(Client::new(&place.connect)?.get("/admin/v1/journal/head").await?.body),
        Where::File(store) => file::head(&store),
    }
}

async fn backup(backup: &args::BackupArgs) -> Result<Value, Failure> {
    match file::place(&backup.place)? {
        Where::Relay => remote::backup(backup).await,
        Where::File(store) => copy::backup(store, backup),
    }
}
