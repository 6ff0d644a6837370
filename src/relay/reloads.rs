//! What is known of the loads of the configuration: for operators and metrics. Written by whoever reloads, read by anybody.

use serde::Serialize;

use crate::clock::UnixMillis;

/// Problems kept of a load that failed: enough to begin to mend it; the log has all.
const PROBLEMS_KEPT: usize = 50;

/// How the last loads went.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReloadStatus {
    /// 1 for the configuration of the start, one more for each that took its place.
    pub generation: u64,
    /// When the configuration in force was loaded; a later load that found nothing else counts.
    pub loaded_at: UnixMillis,
    /// Reloads of a good file, those that changed nothing included.
    pub reloads: u64,
    /// Reloads of a bad file.
    pub failures: u64,
    /// The last reload, where it failed: the file on the disk is not what is in force.
    pub failed: Option<FailedReload>,
    /// Keys whose new values wait for a restart.
    pub needs_restart: Vec<String>,
}

/// A reload that changed nothing, because the file is bad.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FailedReload {
    /// When.
    pub at: UnixMillis,
    /// `file:line: error: key: message [code]`, at most 50; no secret.
    pub problems: Vec<String>,
}

impl ReloadStatus {
    /// At the start.
    pub(super) fn new(loaded_at: UnixMillis) -> Self {
        Self { generation: 1, loaded_at, reloads: 0, failures: 0, failed: None, needs_restart: Vec::new() }
    }

    pub(super) fn loaded(&mut self, generation: u64, at: UnixMillis, needs_restart: Vec<String>) {
        let reloads = self.reloads + 1;
        *self = Self { generation, loaded_at: at, reloads, failures: self.failures, failed: None, needs_restart };
    }

    pub(super) fn failed(&mut self, at: UnixMillis, mut problems: Vec<String>) {
        problems.truncate(PROBLEMS_KEPT);
        self.failures += 1;
        self.failed = Some(FailedReload { at, problems });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_told_until_a_load_is_good() {
        let mut status = ReloadStatus::new(UnixMillis(1));
        status.failed(UnixMillis(2), (0..80).map(|at| format!("f:{at}: error")).collect());
        let failed = status.failed.clone().unwrap();
        assert_eq!((status.generation, status.loaded_at, status.failures), (1, UnixMillis(1), 1));
        assert_eq!((failed.at, failed.problems.len()), (UnixMillis(2), PROBLEMS_KEPT));
        status.loaded(2, UnixMillis(3), vec!["log.level".to_owned()]);
        let json = serde_json::to_value(&status).unwrap();
        let expected = serde_json::json!({ "generation": 2, "loaded_at": 3, "reloads": 1, "failures": 1, "failed": null,
            "needs_restart": ["log.level"] });
        assert_eq!(json, expected);
    }
}
