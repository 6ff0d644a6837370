//! What an attempt costs: estimated before it, settled after it. US dollars.
//!
//! Estimates are rough on purpose and documented (SPEC Annex, Routing): input tokens are bytes of text / 4, output tokens the
//! request's own maximum, else the route's `max_output_tokens`, else 4096. A route without a price costs nothing.

use crate::config::settings::{Price, RouteSettings};
use crate::protocol::request::RequestFacts;
use crate::protocol::signal::Usage;

/// Output tokens assumed where neither request nor route says.
pub const OUTPUT_TOKENS_ASSUMED: u64 = 4096;

/// Bytes of text a token, for estimates.
pub const BYTES_A_TOKEN: u64 = 4;

fn dollars(price: Price, input: u64, cached: u64, output: u64) -> f64 {
    #[allow(clippy::cast_precision_loss, reason = "token counts are far below 2^53")]
    let million = |tokens: u64| tokens as f64 / 1e6;
    million(input.saturating_sub(cached)) * price.input
        + million(cached.min(input)) * price.cached_input
        + million(output) * price.output
}

/// The estimate that is reserved before an attempt.
pub fn estimate(route: &RouteSettings, facts: &RequestFacts) -> f64 {
    let Some(price) = route.price else { return 0.0 };
    let output = facts.max_output_tokens.or(route.max_output_tokens).unwrap_or(OUTPUT_TOKENS_ASSUMED);
    // `n` choices are each generated up to the limit.
    let output = output.saturating_mul(u64::from(facts.choices.max(1)));
    dollars(price, facts.text_bytes / BYTES_A_TOKEN, 0, output)
}

/// What an attempt did cost, where its usage is known in full.
pub fn actual(route: &RouteSettings, usage: &Usage) -> Option<f64> {
    let price = route.price?;
    let (input, output) = (usage.input_tokens?, usage.output_tokens?);
    Some(dollars(price, input, usage.cached_input_tokens.unwrap_or(0), output))
}
