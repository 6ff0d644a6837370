//! An [`Explanation`] for people: a few lines about the request, then the routes in order, then every reason against the others.

use std::fmt;

use super::{Explanation, Listed, Reason};

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stream = if self.request.stream { ", streamed" } else { "" };
        writeln!(f, "workflow {} (version {}), {}{stream}", self.workflow, self.version, self.dialect)?;
        self.request_lines(f)?;
        self.envelope_lines(f)?;
        if let Some(rejected) = &self.rejected {
            writeln!(f, "refused as a whole (400 {}): {}", rejected.code, rejected.message)?;
        }
        if let Some(no_call) = &self.no_call {
            writeln!(f, "no provider would be called ({} {}): {}", no_call.status, no_call.reason, no_call.message)?;
        }
        for share in &self.split {
            // A share is what an approval with this purpose gives.
            let named = |why: &String| match why.starts_with("approval_") {
                true => format!("{why} (purpose = \"planned\")"),
                false => why.clone(),
            };
            let whys: Vec<_> = share.why.iter().map(named).collect();
            let why = if whys.is_empty() { String::new() } else { format!(": {}", whys.join(", ")) };
            writeln!(
                f,
                "split     {} weight {}, {:.1} % of such requests{why}",
                share.route,
                share.weight,
                share.share * 100.0
            )?;
        }
        if self.candidates.is_empty() {
            let wait = self.retry_after_ms.map(|ms| format!("; the first may be asked again in {ms} ms"));
            writeln!(f, "no route is eligible{}", wait.unwrap_or_default())?;
        } else {
            writeln!(f, "routes, in this order:")?;
        }
        for (index, one) in self.candidates.iter().enumerate() {
            candidate(f, index + 1, one)?;
        }
        let mut last = None;
        for reason in &self.refused {
            if last.is_none() {
                writeln!(f, "refused:")?;
            }
            if last != Some(&reason.route) {
                writeln!(f, "  {} ({})", reason.route, reason.role)?;
            }
            last = Some(&reason.route);
            why(f, reason)?;
        }
        Ok(())
    }
}

impl Explanation {
    fn request_lines(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let uses = &self.request;
        writeln!(f, "uses      {}", uses.capabilities.join(", "))?;
        for (label, list) in
            [("requires ", &uses.required), ("hosted   ", &uses.hosted_tools), ("pinned   ", &uses.pins)]
        {
            if !list.is_empty() {
                writeln!(f, "{label} {}", list.join(", "))?;
            }
        }
        let output = uses.max_output_tokens.map_or("the route's".to_owned(), |tokens| tokens.to_string());
        writeln!(f, "tokens    about {} in, {output} out", uses.input_tokens)
    }

    fn envelope_lines(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let envelope = &self.envelope;
        write!(f, "envelope  {} ms, {} attempts", envelope.deadline_ms, envelope.max_attempts)?;
        if envelope.attempts_used > 0 {
            write!(f, " ({} spent above)", envelope.attempts_used)?;
        }
        if let Some(ms) = envelope.max_added_latency_ms {
            write!(f, ", {ms} ms added latency")?;
        }
        if let Some(usd) = envelope.max_cost_usd {
            write!(f, ", ${usd}")?;
        }
        writeln!(f, ", side effects {}", envelope.side_effects)?;
        let failover = &self.failover;
        let on = match (failover.off_by_operator, failover.enabled) {
            (true, _) => "switched off by an operator".to_owned(),
            (false, false) => "off".to_owned(),
            (false, true) => {
                let kinds = [(failover.equivalent, "equivalents"), (failover.cross_model, "another model")];
                let kinds: Vec<_> = kinds.iter().filter(|(on, _)| *on).map(|(_, kind)| *kind).collect();
                format!("to {}", if kinds.is_empty() { "nothing".to_owned() } else { kinds.join(" and ") })
            }
        };
        writeln!(f, "failover  {on}")
    }
}

fn candidate(f: &mut fmt::Formatter<'_>, number: usize, one: &Listed) -> fmt::Result {
    writeln!(f, "  {number}. {} ({})", one.route, one.role)?;
    writeln!(
        f,
        "     provider {}, model {}, region {}, account {}, network {}",
        one.provider,
        one.model.as_deref().unwrap_or("(the request's own)"),
        one.region.as_deref().unwrap_or("(not stated)"),
        one.account,
        one.network.as_deref().unwrap_or("(not stated)"),
    )?;
    writeln!(f, "     needs {} ms, about ${:.4}; {}", one.needs_ms, one.estimated_cost_usd, one.route_digest)
}

fn why(f: &mut fmt::Formatter<'_>, reason: &Reason) -> fmt::Result {
    writeln!(f, "    {}: {} {}", reason.why, reason.means, reason.remedy)
}
