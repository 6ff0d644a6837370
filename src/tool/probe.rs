//! Asking whether a run had its effect: what is sent, and when enough answers say the same.
//!
//! In: the tool's `probe`, an execution's key, answers. Out: the request, and from [`Agreement`] a verdict or none. A verdict needs a
//! rule that matches (LEDGER.md 12.8), or a 404 where the configuration states `absent_after_ms` and so says that absence means something
//! there: a 404 is also what a wrong URL answers, and would release a second run. "Absent" and every other *not executed* counts only
//! once that delay is over, since a system that is still busy with the call does not know it yet; and `agree` answers in a row must say
//! the same. A probe that failed says nothing and changes nothing.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Uri};
use rubicon_ledger::{ExecutionKey, Outcome};

use crate::config::settings::ProbeSettings;

use super::run::set;
use super::sender::{Order, Seen};
use super::verdict::{Judged, judge};

/// From the connect to the last byte of an answer. 10 s: a status query that takes longer is down.
pub const PROBE_TIMEOUT: Duration = Duration::from_secs(10);

/// An answer's body. 64 KiB: it is kept as evidence, each time.
pub const PROBE_BODY_BYTES_MAX: usize = 64 * 1024;

/// What one answer says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heard {
    /// A verdict.
    Says(Outcome),
    /// It is not known there yet.
    NotYet,
    /// No answer to go by: not whole, or of a server that failed.
    Nothing,
}

/// The question about an execution; none where the url is no url with the key in it.
#[must_use]
pub fn order(probe: &ProbeSettings, key: &ExecutionKey) -> Option<Order> {
    let url: Uri = probe.url.replace("{key}", &percent_encoded(&key.to_string())).parse().ok()?;
    let mut headers = HeaderMap::new();
    set(&mut headers, &probe.headers);
    Some(Order {
        url,
        method: Method::GET,
        headers,
        body: Bytes::new(),
        timeout: PROBE_TIMEOUT,
        body_max: PROBE_BODY_BYTES_MAX,
    })
}

/// All but RFC 3986's unreserved characters.
fn percent_encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

/// What an answer says.
#[must_use]
pub fn hear(probe: &ProbeSettings, seen: &Seen) -> Heard {
    let Some(whole) = seen.whole() else { return Heard::Nothing };
    // A server that failed tells nothing, whatever it says, unless a rule names its status.
    match judge(whole.status, whole.body, &probe.rules, whole.status < 500) {
        Judged::Rule(Outcome::Unknown) => Heard::NotYet,
        Judged::Rule(outcome) => Heard::Says(outcome),
        Judged::NoRule | Judged::NotJson if whole.status == 404 && probe.absent_after.is_some() => {
            Heard::Says(Outcome::NotExecuted)
        }
        Judged::NoRule | Judged::NotJson if whole.status < 500 => Heard::NotYet,
        Judged::NoRule | Judged::NotJson => Heard::Nothing,
    }
}

/// Counts answers that say the same, one after another.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Agreement {
    last: Option<Outcome>,
    times: u32,
}

impl Agreement {
    /// Hears one more answer, `since` the run was over as far as is known. The verdict, once enough agree.
    pub fn hear(&mut self, heard: Heard, since: Duration, probe: &ProbeSettings) -> Option<Outcome> {
        let outcome = match heard {
            Heard::Nothing => return None,
            Heard::Says(outcome) if outcome != Outcome::NotExecuted || since >= probe.absence_delay() => outcome,
            Heard::Says(_) | Heard::NotYet => {
                *self = Self::default();
                return None;
            }
        };
        self.times = if self.last == Some(outcome) { self.times.saturating_add(1) } else { 1 };
        self.last = Some(outcome);
        (self.times >= probe.agree.max(1)).then_some(outcome)
    }
}

#[cfg(test)]
mod tests {
    use super::super::progress::Counts;
    use super::super::verdict::{End, Framing};
    use super::*;
    use crate::config::settings::ResultRule;

    fn probe(agree: u32) -> ProbeSettings {
        ProbeSettings {
            url: "http://h/x?k={key}".to_owned(),
            headers: Vec::new(),
            rules: Vec::new(),
            absent_after: Some(Duration::from_secs(5)),
            agree,
        }
    }

    #[test]
    fn answers_agree_in_a_row_and_absence_counts_after_its_delay() {
        use Heard::{NotYet, Nothing, Says};
        use Outcome::{NotExecuted, Succeeded};
        type Row = (&'static str, u32, &'static [(Heard, u64)], Option<Outcome>);
        let rows: &[Row] = &[
            ("one is enough", 1, &[(Says(Succeeded), 0)], Some(Succeeded)),
            ("none asked for is one", 0, &[(Says(Succeeded), 0)], Some(Succeeded)),
            ("absent before the delay", 1, &[(Says(NotExecuted), 4)], None),
            ("absent after it", 1, &[(Says(NotExecuted), 5)], Some(NotExecuted)),
            ("the early one does not count", 2, &[(Says(NotExecuted), 4), (Says(NotExecuted), 5)], None),
            ("two after it", 2, &[(Says(NotExecuted), 5), (Says(NotExecuted), 6)], Some(NotExecuted)),
            ("two of two kinds", 2, &[(Says(NotExecuted), 5), (Says(Succeeded), 6)], None),
            ("a row is broken", 2, &[(Says(Succeeded), 5), (NotYet, 6), (Says(Succeeded), 7)], None),
            (
                "a failed one changes nothing",
                2,
                &[(Says(Succeeded), 5), (Nothing, 6), (Says(Succeeded), 7)],
                Some(Succeeded),
            ),
        ];
        for (what, agree, answers, wanted) in rows {
            let mut agreement = Agreement::default();
            let mut last = None;
            for (heard, seconds) in *answers {
                last = agreement.hear(*heard, Duration::from_secs(*seconds), &probe(*agree));
            }
            assert_eq!(last, *wanted, "{what}");
        }
    }

    fn answered(status: u16, body: &'static str) -> Seen {
        Seen {
            end: End::Complete,
            address: None,
            counts: Counts::default(),
            request_complete: true,
            closed_ms: 1,
            status: Some(status),
            content_type: None,
            retry_after: None,
            body: Bytes::from_static(body.as_bytes()),
            framing: Framing::Told,
            error: None,
        }
    }

    #[test]
    fn a_404_is_absent_only_where_the_configuration_says_so() {
        use Heard::{NotYet, Nothing, Says};
        use Outcome::{NotExecuted, Succeeded};
        let none = Vec::new;
        let rule = |status, pointer: Option<&str>, outcome| {
            vec![ResultRule { pointer: pointer.map(|text| text.parse().unwrap()), equals: None, status, outcome }]
        };
        let stated = Some(Duration::ZERO);
        let rows = [
            ("not stated", None, none(), answered(404, "{}"), NotYet),
            ("stated", stated, none(), answered(404, "{}"), Says(NotExecuted)),
            ("a rule for it", None, rule(Some(404), None, NotExecuted), answered(404, "x"), Says(NotExecuted)),
            ("a rule against it", stated, rule(Some(404), None, Outcome::Unknown), answered(404, ""), NotYet),
            ("a rule that does not match", None, rule(None, Some("/s"), Succeeded), answered(404, "{}"), NotYet),
            ("no JSON, not stated", None, rule(None, Some("/s"), Succeeded), answered(404, "x"), NotYet),
            ("no JSON, stated", stated, rule(None, Some("/s"), Succeeded), answered(404, "x"), Says(NotExecuted)),
            ("410 is no 404", stated, none(), answered(410, "{}"), NotYet),
            ("a server that failed", stated, none(), answered(500, "{}"), Nothing),
        ];
        for (what, absent_after, rules, seen, wanted) in rows {
            assert_eq!(hear(&ProbeSettings { absent_after, rules, ..probe(1) }, &seen), wanted, "{what}");
        }
        let cut = Seen { end: End::Broken, ..answered(404, "{}") };
        assert_eq!(hear(&ProbeSettings { absent_after: stated, ..probe(1) }, &cut), Nothing);
    }

    #[test]
    fn a_rule_alone_waits_for_the_delay_of_its_own() {
        let probe = ProbeSettings { absent_after: None, ..probe(1) };
        for (seconds, wanted) in [(59, None), (60, Some(Outcome::NotExecuted))] {
            let heard = Heard::Says(Outcome::NotExecuted);
            assert_eq!(Agreement::default().hear(heard, Duration::from_secs(seconds), &probe), wanted, "{seconds}");
        }
    }

    #[test]
    fn the_key_is_percent_encoded() {
        let key = ExecutionKey::from_bytes([7; 32]);
        let order = order(&probe(1), &key).expect("a url");
        let query = order.url.query().unwrap_or_default();
        assert_eq!(query, format!("k={}", percent_encoded(&key.to_string())));
        assert_eq!(percent_encoded("a:/ é~"), "a%3A%2F%20%C3%A9~");
    }
}
