//! What a command line needs of a config without loading it: an operator's shell has the operator's token and none of the relay's
//! secrets, so that a whole load would fail there.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use crate::clock::UnixMillis;

use super::checked::{ADMIN_LISTEN, STORE_FILE, secrets};
use super::secret::Secret;
use super::{CONFIG_BYTES_MAX, SECRET_BYTES_MAX, Sources, read_bounded, reason};

/// Where the config's relay has its admin side: `server.admin_listen`, or the default.
///
/// # Errors
/// A sentence: the file cannot be read, is no TOML, or says something else there.
pub fn admin_listen(path: &Path) -> Result<SocketAddr, String> {
    let shown = path.display();
    let text = read_bounded(path, CONFIG_BYTES_MAX).map_err(|error| format!("{shown}: {}", reason(&error)))?;
    let table: toml::Table = text.parse().map_err(|_| format!("{shown}: not TOML; `rubicon check` says where"))?;
    let Some(value) = table.get("server").and_then(|server| server.get("admin_listen")) else {
        return Ok(ADMIN_LISTEN);
    };
    let listen = value.as_str().and_then(|text| text.parse().ok());
    listen.ok_or_else(|| format!("{shown}: server.admin_listen is not an address and a port"))
}

/// Where the config's relay keeps its ledger: `server.store`, or the default; none where it keeps nothing on disk.
///
/// # Errors
/// A sentence: the file cannot be read, is no TOML, or says something else there.
pub fn store_file(path: &Path) -> Result<Option<PathBuf>, String> {
    let shown = path.display();
    let text = read_bounded(path, CONFIG_BYTES_MAX).map_err(|error| format!("{shown}: {}", reason(&error)))?;
    let table: toml::Table = text.parse().map_err(|_| format!("{shown}: not TOML; `rubicon check` says where"))?;
    let folder = path.parent().unwrap_or(Path::new(""));
    let Some(value) = table.get("server").and_then(|server| server.get("store")) else {
        return Ok(Some(folder.join(STORE_FILE)));
    };
    match value.as_str() {
        Some("memory") => Ok(None),
        Some(text) => match text.strip_prefix("redb:").filter(|path| !path.is_empty()) {
            Some(file) => Ok(Some(folder.join(file))),
            None => Err(format!("{shown}: server.store is not redb:PATH")),
        },
        None => Err(format!("{shown}: server.store is not a text")),
    }
}

/// Reads the secret that `env:NAME` or `file:PATH` names, as the config does.
///
/// # Errors
/// A sentence that does not repeat what was written.
pub fn secret(reference: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<Secret, String> {
    let sources = Sources {
        folder: Path::new(""),
        env,
        read: &|path| read_bounded(path, SECRET_BYTES_MAX),
        // Nothing here depends on the date.
        now: UnixMillis(0),
        terminal: false,
    };
    secrets::usable(reference, &sources).map_err(|(_, message)| message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listen(text: &str) -> Result<String, String> {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("rubicon.toml");
        std::fs::write(&path, text).expect("a file");
        admin_listen(&path).map(|address| address.to_string())
    }

    #[test]
    fn the_admin_address_is_read_without_any_secret() {
        let rest = "[provider.p]\nkind = \"openai\"\napi_key = \"env:NOT_SET_HERE\"\n";
        assert_eq!(listen(rest).as_deref(), Ok("127.0.0.1:8081"));
        assert_eq!(listen(&format!("[server]\nlisten = \"127.0.0.1:1\"\n{rest}")).as_deref(), Ok("127.0.0.1:8081"));
        assert_eq!(listen(&format!("[server]\nadmin_listen = \"[::1]:9\"\n{rest}")).as_deref(), Ok("[::1]:9"));
        for bad in ["[server]\nadmin_listen = 8081\n", "[server]\nadmin_listen = \"here\"\n", "[server\n"] {
            assert!(listen(bad).is_err(), "{bad}");
        }
        assert!(admin_listen(Path::new("no/such/file.toml")).is_err());
    }

    #[test]
    fn the_ledgers_file_is_where_the_relay_has_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("rubicon.toml");
        let file = |text: &str| {
            std::fs::write(&path, text).expect("a file");
            store_file(&path)
        };
        assert_eq!(file(""), Ok(Some(folder.path().join("data/rubicon.redb"))));
        assert_eq!(file("[server]\nstore = \"redb:x/y.redb\"\n"), Ok(Some(folder.path().join("x/y.redb"))));
        assert_eq!(file("[server]\nstore = \"redb:/x/y.redb\"\n"), Ok(Some(PathBuf::from("/x/y.redb"))));
        assert_eq!(file("[server]\nstore = \"memory\"\n"), Ok(None));
        for bad in ["[server]\nstore = \"postgres://x\"\n", "[server]\nstore = 1\n", "[server]\nstore = \"redb:\"\n"] {
            assert!(file(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn secrets_are_named_and_never_written() {
        let env = |name: &str| (name == "T").then(|| "t-1".to_owned());
        assert_eq!(secret("env:T", &env).expect("read").expose(), "t-1");
        for bad in ["env:U", "t-1", "file:no/such/file", ""] {
            let message = secret(bad, &env).expect_err(bad);
            assert!(!message.contains("t-1"), "{message}");
        }
    }
}
