//! What goes over the admin side only: paths, results, the backup of a running relay.

use std::io::{Read as _, Write as _};
use std::path::Path;

use http_body_util::BodyExt as _;
use serde_json::{Value, json};

use super::super::operator::{Client, Failure};
use super::args::{BackupArgs, EndGapArgs};
use super::copy;

/// A result may have the size of a tool's answer.
const RESULT_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// Hex digits of a hash.
const HASH_DIGITS: usize = 64;

/// A backup that sends nothing for so long has broken off.
const SILENCE_MAX: std::time::Duration = std::time::Duration::from_secs(60);

/// The path of an execution.
pub(super) fn path(key: &str) -> Result<String, Failure> {
    let known: Result<rubicon_ledger::ExecutionKey, _> = key.parse();
    match known {
        Ok(key) => Ok(format!("/admin/v1/executions/{key}")),
        Err(_) => Err(Failure::Usage("KEY: an execution's key is ex_ and 64 hex digits".to_owned())),
    }
}

/// The hash of a head.
pub(super) fn hash(text: &str) -> Result<String, Failure> {
    let text = text.to_ascii_lowercase();
    if text.len() == HASH_DIGITS && text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Ok(text);
    }
    Err(Failure::Usage("--head: the hash of a head is 64 hex digits".to_owned()))
}

/// A value in a query string.
pub(super) fn encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

/// The JSON of a result, byte for byte.
pub(super) fn result(path: &Path) -> Result<String, Failure> {
    let unreadable = |error: std::io::Error| Failure::Usage(format!("--result: {}: {error}", path.display()));
    let mut text = String::new();
    let reader: Box<dyn std::io::Read> = if path == Path::new("-") {
        Box::new(std::io::stdin().lock())
    } else {
        Box::new(std::fs::File::open(path).map_err(unreadable)?)
    };
    reader.take(RESULT_BYTES_MAX + 1).read_to_string(&mut text).map_err(unreadable)?;
    if text.len() as u64 > RESULT_BYTES_MAX {
        return Err(Failure::Usage(format!("--result: at most {RESULT_BYTES_MAX} bytes")));
    }
    if serde_json::from_str::<&serde_json::value::RawValue>(&text).is_err() {
        return Err(Failure::Usage("--result: not one JSON value (a text stands in quotes)".to_owned()));
    }
    Ok(text.trim().to_owned())
}

/// Ends the gap of a restored backup.
pub(super) async fn end_gap(end: &EndGapArgs) -> Result<Value, Failure> {
    let body = json!({ "reason": end.reason }).to_string();
    Ok(Client::new(&end.connect)?.post_unversioned("/admin/v1/gap/end", body).await?.body)
}

/// Reads a running relay's ledger into a file, and looks whether all of it came and holds.
pub(super) async fn backup(backup: &BackupArgs) -> Result<Value, Failure> {
    let client = Client::new(&backup.place.connect)?;
    let response = client.download("/admin/v1/ledger/backup").await?;
    let mut part = copy::Part::new(&backup.to)?;
    let mut body = response.into_body();
    loop {
        let frame = tokio::time::timeout(SILENCE_MAX, body.frame()).await;
        let frame = frame.map_err(|_| Failure::problem("the relay stopped sending its ledger"))?;
        let Some(frame) = frame else { break };
        let frame = frame.map_err(|_| Failure::problem("the relay broke off its ledger"))?;
        if let Some(bytes) = frame.data_ref() {
            part.file.write_all(bytes).map_err(|error| part.failed(&error))?;
        }
    }
    copy::finished(part, &backup.to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_into_a_url_is_encoded_and_what_is_no_key_refused() {
        assert_eq!(encoded("a b/ü&x"), "a%20b%2F%C3%BC%26x");
        assert!(path(&format!("ex_{}", "0".repeat(64))).is_ok());
        for bad in ["", "ex_1", "ex_../../x", &format!("ex_{}", "G".repeat(64))] {
            assert!(path(bad).is_err(), "{bad}");
        }
        assert!(hash(&"AB".repeat(32)).is_ok_and(|hash| hash == "ab".repeat(32)) && hash("ab").is_err());
    }
}
