//! One route's breaker: healthy, tripped, probing. Pure: `now` is an argument.
//!
//! N failures in a row trip it; after a cooldown one attempt, and one only, may go and see (a *probe*). If it shows something the
//! route is healthy, if it fails the cooldown doubles. In: who asks, and how attempts ended. Out: whether one may begin, and what
//! changed. Not here: limits (`limits.rs`), locks and names (`board.rs`), and what is done for a caller who may not begin.
//!
//! An attempt is judged by the period it began in (its [`Ticket`]): when five hundred fail together the first few trip the
//! breaker, and the rest say nothing that is new.

use std::time::Duration;

use crate::classify::Class;
use crate::clock::Instant;
use crate::config::settings::BreakerSettings;

/// A cooldown grows to so many times the configured one: a dead provider is asked once a minute by default, and is back in use
/// within a minute of its recovery.
pub const COOLDOWN_TIMES_MAX: u32 = 12;

/// While a probe is under way nobody knows when the next attempt may go: this is what is told.
pub const PROBE_HINT: Duration = Duration::from_secs(1);

/// What an operator sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum BreakerState {
    /// Attempts go.
    Healthy,
    /// None goes until the cooldown is over.
    Tripped,
    /// One is under way and decides.
    Probing,
}

impl BreakerState {
    /// The stable name, as in admin answers, logs and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Healthy => "healthy",
            Self::Tripped => "tripped",
            Self::Probing => "probing",
        }
    }
}

/// What an attempt's end says of its route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sign {
    /// The provider is there.
    Lives,
    /// It failed in a way that asking again at once does not cure.
    Fails,
    /// Nothing either way.
    Nothing,
}

/// What a failure of a class says. A provider that refuses a request, a key or a quota has answered, and lives; one whose model is
/// out, or whose answer is none, has proved neither.
pub fn sign(class: Class) -> Sign {
    match class {
        Class::TransportTransient | Class::RateLimited | Class::ProviderOverloaded | Class::ProviderServerError => {
            Sign::Fails
        }
        Class::InvalidRequest
        | Class::Refusal
        | Class::QuotaExhausted
        | Class::Ambiguous429
        | Class::AuthenticationOrPermission => Sign::Lives,
        Class::ModelUnavailable
        | Class::ContractFailure
        | Class::DeadlineExhausted
        | Class::PartialOutput
        | Class::SideEffectUncertain
        | Class::Unclassified => Sign::Nothing,
    }
}

/// An admitted attempt: in which period it began, and whether it is the probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    period: u64,
    probe: bool,
}

impl Ticket {
    /// Whether it is the one probe of a tripped route.
    pub fn is_probe(self) -> bool {
        self.probe
    }
}

/// What a report changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It has tripped, or a probe has failed.
    Tripped {
        /// When the next probe may go.
        until: Instant,
    },
    /// It is healthy again.
    Healed,
}

/// One route's breaker.
#[derive(Debug, Default)]
pub struct Breaker {
    /// Counts trips and recoveries, so that what began before the last one is known as old.
    period: u64,
    phase: Phase,
}

#[derive(Debug)]
enum Phase {
    Healthy { failures: u32 },
    Tripped { until: Instant, cooldown: Duration },
    Probing { until: Instant, cooldown: Duration },
}

impl Default for Phase {
    fn default() -> Self {
        Self::Healthy { failures: 0 }
    }
}

impl Breaker {
    /// What an operator sees.
    pub fn state(&self) -> BreakerState {
        match self.phase {
            Phase::Healthy { .. } => BreakerState::Healthy,
            Phase::Tripped { .. } => BreakerState::Tripped,
            Phase::Probing { .. } => BreakerState::Probing,
        }
    }

    /// Failures in a row so far, while healthy.
    pub fn failures(&self) -> u32 {
        match self.phase {
            Phase::Healthy { failures } => failures,
            Phase::Tripped { .. } | Phase::Probing { .. } => 0,
        }
    }

    /// Until when no attempt may begin; `None`: one may now.
    pub fn closed_until(&self, settings: &BreakerSettings, now: Instant) -> Option<Instant> {
        match self.phase {
            _ if settings.failures == 0 => None,
            Phase::Healthy { .. } => None,
            Phase::Tripped { until, .. } => (now < until).then_some(until),
            Phase::Probing { .. } => Some(now + PROBE_HINT),
        }
    }

    /// Begins an attempt; the first one after a cooldown is the probe. `even_if_tripped`: there is no other route, so this one may
    /// be asked all the same.
    ///
    /// # Errors
    /// Until when none may begin.
    pub fn admit(
        &mut self,
        settings: &BreakerSettings,
        even_if_tripped: bool,
        now: Instant,
    ) -> Result<Ticket, Instant> {
        if settings.failures == 0 && self.state() != BreakerState::Healthy {
            // A reload has switched it off.
            self.enter(Phase::default());
        }
        let closed = self.closed_until(settings, now);
        match (closed, &self.phase) {
            (None, Phase::Tripped { until, cooldown }) => {
                self.phase = Phase::Probing { until: *until, cooldown: *cooldown };
                Ok(Ticket { period: self.period, probe: true })
            }
            (Some(until), _) if !even_if_tripped => Err(until),
            _ => Ok(Ticket { period: self.period, probe: false }),
        }
    }

    /// The attempt has shown that the provider lives.
    pub fn succeeded(&mut self, ticket: Ticket) -> Option<Change> {
        match &mut self.phase {
            Phase::Healthy { failures } => {
                *failures = 0;
                None
            }
            // Only what began after the trip proves anything about now.
            Phase::Tripped { .. } | Phase::Probing { .. } if ticket.period == self.period => {
                self.enter(Phase::default());
                Some(Change::Healed)
            }
            Phase::Tripped { .. } | Phase::Probing { .. } => None,
        }
    }

    /// The attempt has failed. `retry_after`: what the provider asked for; it extends the cooldown, within its bound.
    pub fn failed(
        &mut self,
        ticket: Ticket,
        settings: &BreakerSettings,
        retry_after: Option<Duration>,
        now: Instant,
    ) -> Option<Change> {
        if ticket.period != self.period {
            return None;
        }
        let most = settings.cooldown.saturating_mul(COOLDOWN_TIMES_MAX);
        let cooldown = match &mut self.phase {
            Phase::Healthy { failures } => {
                *failures = failures.saturating_add(1);
                if settings.failures == 0 || *failures < settings.failures {
                    return None;
                }
                self.period += 1;
                settings.cooldown
            }
            Phase::Probing { cooldown, .. } if ticket.probe => cooldown.saturating_mul(2).min(most),
            // One that was let in because there was no other route: the probe decides.
            Phase::Tripped { .. } | Phase::Probing { .. } => return None,
        };
        let until = now + cooldown.max(retry_after.unwrap_or_default().min(most));
        self.phase = Phase::Tripped { until, cooldown };
        Some(Change::Tripped { until })
    }

    /// The attempt ended and says nothing (the client left, it was stopped, it was never reported): a probe may be made again.
    pub fn given_back(&mut self, ticket: Ticket) {
        if let Phase::Probing { until, cooldown } = self.phase
            && ticket.probe
            && ticket.period == self.period
        {
            self.phase = Phase::Tripped { until, cooldown };
        }
    }

    fn enter(&mut self, phase: Phase) {
        self.period += 1;
        self.phase = phase;
    }
}

#[cfg(test)]
mod tests;
