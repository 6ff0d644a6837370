//! A relay whose event lines and metrics are looked at: lines go to a file of the test's own.

use std::collections::BTreeMap;
use std::time::Duration;

use rubicon::serve::Server;
use serde_json::Value;

/// Where one relay's lines go.
pub(crate) struct Lines {
    folder: tempfile::TempDir,
}

impl Lines {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("a folder") }
    }

    /// For the config.
    pub(crate) fn table(&self) -> String {
        format!("[log]\nevents = \"file:{}\"\n", self.folder.path().join("events.jsonl").display())
    }

    /// Everything written so far, as text.
    pub(crate) async fn text(&self, relay: &Server) -> String {
        relay.app().telemetry.flush().await;
        std::fs::read_to_string(self.folder.path().join("events.jsonl")).expect("the events' file")
    }

    /// All lines so far.
    pub(crate) async fn all(&self, relay: &Server) -> Vec<Value> {
        let text = self.text(relay).await;
        text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
    }

    /// The lines of one kind, once there are `count`; there must never be more.
    pub(crate) async fn of(&self, relay: &Server, event: &str, count: usize) -> Vec<Value> {
        let mut lines = Vec::new();
        for _ in 0..2000 {
            lines = self.all(relay).await;
            lines.retain(|line| line["event"] == event);
            if lines.len() >= count {
                break;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(lines.len(), count, "{event}: {lines:#?}");
        lines
    }

    /// The only request and its attempts.
    pub(crate) async fn one(&self, relay: &Server) -> (Value, Vec<Value>) {
        let request = self.of(relay, "request", 1).await.remove(0);
        let attempts = usize::try_from(request["attempts"].as_u64().expect("a count")).expect("few");
        (request, self.of(relay, "attempt", attempts).await)
    }
}

/// All samples: the line up to its value, and the value.
pub(crate) fn samples(relay: &Server) -> BTreeMap<String, f64> {
    let text = relay.app().telemetry.render_metrics();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let (name, value) = line.rsplit_once(' ').expect("a value");
            (name.to_owned(), value.parse().expect("a number"))
        })
        .collect()
}

/// The sum of all samples of a metric whose labels hold each of `labels` (`name="value"`).
pub(crate) fn sum(relay: &Server, metric: &str, labels: &[&str]) -> f64 {
    let of = |name: &str| name.split('{').next() == Some(metric) && labels.iter().all(|label| name.contains(label));
    samples(relay).iter().filter(|(name, _)| of(name)).map(|(_, value)| value).sum()
}
