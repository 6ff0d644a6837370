//! Files that `serve` will need: can they be had? Told as far as can be seen without making or changing anything.
//!
//! In: the paths of the control store, of the ledger and of the event lines. Out: problems. What is not seen here (a full disk, another owner of the
//! store) `serve` says when it starts.

use std::fs::{self, OpenOptions};
use std::path::Path;

use crate::config::settings::{EventsTo, StoreSettings};
use crate::config::{Code, Severity};
use crate::control::store::control_path;

use super::Finder;

/// File systems of the kernel, which keep no files of ours.
const KERNELS: [&str; 2] = ["/proc", "/sys"];

pub(super) fn find(finder: &mut Finder<'_>) {
    let settings = &finder.loaded.settings;
    if let StoreSettings::Redb(path) = &settings.server.store {
        if let Some(why) = unusable(path).filter(|_| !settings.tools.is_empty()) {
            let message = format!("{}: the ledger cannot be used: {why}", path.display());
            finder.push(Severity::Error, Code::StoreUnusable, "server.store".to_owned(), message);
        }
        let path = control_path(path);
        let empty = fs::metadata(&path).is_ok_and(|found| found.is_file() && found.len() == 0);
        let why = if empty { Some("it is empty: its switches are lost".to_owned()) } else { unusable(&path) };
        if let Some(why) = why {
            let message = format!("{}: the control store cannot be used: {why}", path.display());
            finder.push(Severity::Error, Code::StoreUnusable, "server.store".to_owned(), message);
        }
    }
    if let EventsTo::File(path) = &settings.log.events
        && let Some(why) = unusable(path)
    {
        let message = format!("{}: event lines cannot be written: {why}", path.display());
        finder.push(Severity::Error, Code::EventsUnusable, "log.events".to_owned(), message);
    }
}

/// Why no file can be written there, if that can be seen.
fn unusable(path: &Path) -> Option<String> {
    let shown = |path: &Path| if path.as_os_str().is_empty() { ".".to_owned() } else { path.display().to_string() };
    if KERNELS.iter().any(|kernels| path.starts_with(kernels)) {
        return Some("it is in a file system of the kernel".to_owned());
    }
    if let Ok(found) = fs::metadata(path) {
        if !found.is_file() {
            return Some("it exists and is not a regular file".to_owned());
        }
        // Opening alone changes nothing of a regular file.
        return OpenOptions::new().append(true).open(path).err().map(|error| error.to_string());
    }
    // Missing folders are made; the nearest that is there must be one, and take something new.
    for folder in path.ancestors().skip(1) {
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        match fs::metadata(folder) {
            Ok(found) if !found.is_dir() => return Some(format!("{} is no folder", shown(folder))),
            Ok(found) if found.permissions().readonly() => return Some(format!("{} is read-only", shown(folder))),
            Ok(_) => return None,
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => return Some(error.to_string()),
            Err(_) => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_be_seen_is_told_and_nothing_is_made() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "x").unwrap();
        assert_eq!(unusable(&file), None);
        assert_eq!(unusable(&folder.path().join("new/and/deep/file")), None);
        assert_eq!(unusable(Path::new("no-such-folder/file")), None);
        for bad in [
            folder.path(),
            &file.join("below"),
            Path::new("/dev/null"),
            Path::new("/dev/null/x"),
            Path::new("/proc/x/y"),
        ] {
            assert!(unusable(bad).is_some(), "{}", bad.display());
        }
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
        assert_eq!(fs::read(&file).unwrap(), b"x");
    }
}
