//! What an attempt costs: estimated before it, settled after it. US dollars.
//!
//! Estimates are rough on purpose and documented (SPEC Annex, Routing): input tokens are bytes of text / 4, output tokens the
//! request's own maximum, else the route's `max_output_tokens`, else 4096. A route without a price costs nothing.

use crate::config::settings::{Price, RouteSettings};
use crate::protocol::request::RequestFacts;
use crate::protocol::signal::Usage;

fn dollars(price: Price, input: u64, cached: u64, output: u64) -> f64 {
    #[allow(clippy::cast_precision_loss, reason = "token counts are far below 2^53")]
    let million = |tokens: u64| tokens as f64 / 1e6;
    million(input.saturating_sub(cached)) * price.input
        + million(cached.min(input)) * price.cached_input
        + million(output) * price.output
}

/// Output tokens of an attempt, estimated.
fn output_tokens(route: &RouteSettings, facts: &RequestFacts) -> u64 {
    // `n` choices are each generated up to the limit.
    facts.output_tokens(route.max_output_tokens).saturating_mul(u64::from(facts.choices.max(1)))
}

/// Input and output tokens of an attempt, estimated: what is counted against `tokens_per_minute` until the provider tells.
pub fn tokens(route: &RouteSettings, facts: &RequestFacts) -> u64 {
    facts.input_tokens().saturating_add(output_tokens(route, facts))
}

/// The estimate that is reserved before an attempt.
pub fn estimate(route: &RouteSettings, facts: &RequestFacts) -> f64 {
    let Some(price) = route.price else { return 0.0 };
    dollars(price, facts.input_tokens(), 0, output_tokens(route, facts))
}

/// What an attempt did cost, where its usage is known in full.
pub fn actual(route: &RouteSettings, usage: &Usage) -> Option<f64> {
    let price = route.price?;
    let (input, output) = (usage.input_tokens?, usage.output_tokens?);
    Some(dollars(price, input, usage.cached_input_tokens.unwrap_or(0), output))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::testing::settings;

    fn route(lines: &str) -> std::sync::Arc<RouteSettings> {
        let text = format!(
            "[provider.p]\nkind = \"openai-compatible\"\nbase_url = \"http://127.0.0.1:1/v1\"\n\
             [route.a]\nprovider = \"p\"\n{lines}\n[workflow.w]\nprimary = \"a\"\n"
        );
        settings(&text).routes.into_values().next().unwrap()
    }

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-12
    }

    #[test]
    fn estimates() {
        const PRICE: &str = "price = { input = 4.0, output = 10.0 }\n";
        let with_own = format!("{PRICE}max_output_tokens = 1000");
        // (route, bytes of text, the request's maximum, n, dollars)
        let rows = [
            ("", 4_000_000, Some(1_000_000), 1, 0.0),
            (PRICE, 4_000_000, Some(1_000_000), 1, 4.0 + 10.0),
            (PRICE, 0, Some(0), 1, 0.0),
            (PRICE, 3, None, 1, 4096.0 * 10.0 / 1e6),
            (PRICE, 4, None, 1, 4.0 / 1e6 + 4096.0 * 10.0 / 1e6),
            (with_own.as_str(), 0, None, 1, 0.01),
            (with_own.as_str(), 0, Some(10), 1, 0.0001),
            (with_own.as_str(), 0, Some(10), 3, 0.0003),
            (with_own.as_str(), 0, Some(10), 0, 0.0001),
        ];
        for (lines, text_bytes, max_output_tokens, choices, dollars) in rows {
            let facts = RequestFacts { text_bytes, max_output_tokens, choices, ..RequestFacts::default() };
            let found = estimate(&route(lines), &facts);
            assert!(close(found, dollars), "{lines} {facts:?}: {found}, not {dollars}");
        }
        let huge = RequestFacts { max_output_tokens: Some(u64::MAX), choices: u32::MAX, ..RequestFacts::default() };
        assert!(estimate(&route(PRICE), &huge).is_finite());
    }

    #[test]
    fn settlements() {
        let usage =
            |input, cached, output| Usage { input_tokens: input, cached_input_tokens: cached, output_tokens: output };
        let (m, own) = (Some(1_000_000), "price = { input = 4.0, cached_input = 1.0, output = 10.0 }");
        let rows = [
            (own, usage(m, None, m), Some(14.0)),
            (own, usage(m, Some(250_000), m), Some(3.0 + 0.25 + 10.0)),
            // Some providers count cached tokens beside the others: never less than nothing.
            (own, usage(m, Some(2_000_000), Some(0)), Some(1.0)),
            ("price = { input = 4.0, output = 10.0 }", usage(m, m, Some(0)), Some(4.0)),
            (own, usage(None, None, m), None),
            (own, usage(m, None, None), None),
            ("", usage(m, None, m), None),
        ];
        for (lines, usage, dollars) in rows {
            let found = actual(&route(lines), &usage);
            let same = match (found, dollars) {
                (Some(found), Some(dollars)) => close(found, dollars),
                (found, dollars) => found == dollars,
            };
            assert!(same, "{lines} {usage:?}: {found:?}, not {dollars:?}");
        }
    }
}
