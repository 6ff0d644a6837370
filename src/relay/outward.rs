//! From a failure to what the caller is told: status, message, code and the member `rubicon`. Pure.
//!
//! SPEC sections 6 and 7: a rejection of the request itself keeps the provider's status and words; every other failure of a
//! provider is `exhausted_status` (424), which no SDK retries by itself; an interruption is a frame in the stream.

use std::time::Duration;

use crate::attempt::control::Stop;
use crate::classify::{Class, Said, Verdict};
use crate::ids::{OperationId, RouteId};
use crate::plan::{self, Plan};
use crate::reply::{Outward, ProviderError, Refused, Rubicon, Status};

/// What all failures of one operation share.
#[derive(Clone, Debug)]
pub struct Facts<'a> {
    /// The operation.
    pub operation: &'a OperationId,
    /// Attempts made by this relay.
    pub attempts: u32,
    /// `[server] exhausted_status`.
    pub exhausted_status: u16,
    /// Routes that were refused, for clients that may see them.
    pub plan: Option<&'a Plan>,
    /// Candidates that the controller left out, each with its reason; told where `plan` is.
    pub left_out: &'a [(RouteId, plan::Refusal)],
}

/// Routes that did not serve and why, in the plan's order and then the controller's: one list for the caller, the operation and the
/// event line.
pub fn refusals(plan: &Plan, left_out: &[(RouteId, plan::Refusal)]) -> Vec<Refused> {
    let planned = plan.refused.iter().flat_map(|(route, reasons)| reasons.iter().map(move |why| (route, why)));
    let left_out = left_out.iter().map(|(route, why)| (route, why));
    planned.chain(left_out).map(|(route, why)| Refused { route: route.clone(), why: why.to_string() }).collect()
}

fn member(facts: &Facts<'_>, status: Status, reason: &str, class: Option<Class>) -> Rubicon {
    let refused = facts.plan.map_or_else(Vec::new, |plan| refusals(plan, facts.left_out));
    Rubicon {
        status,
        reason: reason.to_owned(),
        class,
        retryable: false,
        retry_after_ms: None,
        operation_id: Some(facts.operation.clone()),
        attempts: Some(facts.attempts),
        provider_status: None,
        provider_error: None,
        would_be_status: None,
        after: None,
        actions: None,
        unresolved_executions: None,
        executions: Vec::new(),
        refused,
    }
}

/// Whether the caller may sensibly send the same request again.
fn retryable(class: Class) -> bool {
    matches!(
        class,
        Class::TransportTransient
            | Class::RateLimited
            | Class::ProviderOverloaded
            | Class::ProviderServerError
            | Class::ModelUnavailable
            | Class::DeadlineExhausted
    )
}

/// A wait as `retry_after_ms` tells it.
pub fn millis(wait: Duration) -> u64 {
    u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)
}

fn provider_error(said: &Said) -> Option<ProviderError> {
    let code = said.code.as_ref().map(|code| code.as_str().map_or_else(|| code.to_string(), str::to_owned));
    (said.kind.is_some() || code.is_some()).then(|| ProviderError { kind: said.kind.clone(), code })
}

/// The failure of an operation that showed nothing.
pub fn refused(facts: &Facts<'_>, stop: Stop, class: Class, verdict: Option<&Verdict>) -> Outward {
    let nothing = Said::default();
    let said = verdict.map_or(&nothing, |verdict| &verdict.said);
    let provider_status = verdict.and_then(|verdict| verdict.provider_status);
    if matches!(class, Class::InvalidRequest | Class::Refusal) {
        return rejected(facts, class, said, provider_status);
    }
    let reason = if stop == Stop::Blocked { class.name() } else { stop.name() };
    let mut rubicon = member(facts, Status::Unavailable, reason, Some(class));
    rubicon.retryable = retryable(class) && stop != Stop::SideEffectUncertain;
    let wait = verdict.and_then(|verdict| verdict.retry_after).filter(|_| rubicon.retryable);
    rubicon.retry_after_ms = wait.map(millis);
    rubicon.provider_status = provider_status;
    rubicon.provider_error = provider_error(said);
    if class == Class::SideEffectUncertain {
        rubicon.actions = Some(vec!["reconcile"]);
        rubicon.unresolved_executions = Some(1);
    }
    let message = format!(
        "No answer could be had from a provider ({}{}); nothing was shown. {}",
        class.name(),
        if reason == class.name() { String::new() } else { format!(", {reason}") },
        advice(class),
    );
    Outward {
        status: facts.exhausted_status,
        code: Some(reason.into()),
        kind: None,
        param: None,
        message: message.trim_end().to_owned(),
        rubicon,
    }
}

fn advice(class: Class) -> &'static str {
    match class {
        Class::QuotaExhausted => "The provider account's quota or credit is used up: its owner must act.",
        Class::AuthenticationOrPermission => "The provider refused the relay's credentials: their owner must act.",
        Class::Ambiguous429 => "The provider said 429 and not why, so it was not asked again.",
        Class::SideEffectUncertain => "A tool run by the provider may have acted: find out before sending this again.",
        Class::DeadlineExhausted => "There was no time for another attempt.",
        Class::Unclassified => "The failure is of no known kind, so nothing was tried again.",
        _ => "",
    }
}

/// The provider refused the request itself: its status, message, type, code and param pass unchanged. A status that SDKs
/// answer with retries of their own (a 429 that says "this request alone is too large") becomes 400: the AI SDK looks at
/// nothing else (STREAMS.md 2.4). `provider_status` tells the original.
fn rejected(facts: &Facts<'_>, class: Class, said: &Said, provider_status: Option<u16>) -> Outward {
    let passes = |status: &u16| (400..500).contains(status) && !matches!(status, 408 | 409 | 425 | 429);
    let status = provider_status.filter(passes).unwrap_or(400);
    let mut rubicon = member(facts, Status::Rejected, class.name(), Some(class));
    rubicon.provider_status = provider_status;
    rubicon.provider_error = provider_error(said);
    Outward {
        status,
        code: said.code.clone(),
        kind: said.kind.clone(),
        param: said.param.clone(),
        message: said.message.clone().unwrap_or_else(|| "The provider refused the request.".to_owned()),
        rubicon,
    }
}

/// A committed stream that failed: the frame that is sent before the abort.
pub struct Interruption<'a> {
    /// Events of the accepted attempt that were sent.
    pub after: u64,
    /// A hosted tool may have acted.
    pub acted: bool,
    /// What happened, a short phrase.
    pub what: &'a str,
    /// The provider's words and status, where it sent some.
    pub verdict: Option<&'a Verdict>,
}

/// The interruption frame's content.
pub fn interrupted(facts: &Facts<'_>, interruption: &Interruption<'_>) -> Outward {
    let class = if interruption.acted { Class::SideEffectUncertain } else { Class::PartialOutput };
    let mut rubicon = member(facts, Status::Interrupted, class.name(), Some(class));
    rubicon.refused.clear();
    rubicon.after = Some(interruption.after);
    rubicon.actions = Some(vec![if interruption.acted { "reconcile" } else { "restart" }]);
    rubicon.unresolved_executions = Some(u32::from(interruption.acted));
    let said = interruption.verdict.map(|verdict| &verdict.said);
    rubicon.provider_error = said.and_then(provider_error);
    rubicon.provider_status = interruption.verdict.and_then(|verdict| verdict.provider_status);
    let words = said.and_then(|said| said.message.as_deref());
    let message = match words {
        Some(words) => format!("The answer was interrupted: {}.", words.trim_end().trim_end_matches('.')),
        None => format!("The answer was interrupted: {}.", interruption.what),
    };
    let advice = if interruption.acted {
        "A tool run by the provider may have acted: find out before anything is sent again."
    } else {
        "What was shown is incomplete; nothing was sent again."
    };
    Outward {
        status: facts.exhausted_status,
        code: Some("rubicon_interrupted".into()),
        kind: None,
        param: None,
        message: format!("{message} {advice}"),
        rubicon,
    }
}

/// The operation has executions in the ledger that may have acted and whose outcome is not known.
pub fn with_executions(mut failure: Outward, executions: u32) -> Outward {
    if executions > 0 {
        let known = failure.rubicon.unresolved_executions.unwrap_or(0);
        failure.rubicon.unresolved_executions = Some(known.saturating_add(executions));
        failure.rubicon.actions = Some(vec!["reconcile"]);
        failure.rubicon.retryable = false;
    }
    failure
}

/// Somebody stopped the operation (`DELETE`), or the relay is shutting down. `after` is given once something was shown.
pub fn stopped(facts: &Facts<'_>, by_shutdown: bool, after: Option<u64>, uncertain: bool) -> Outward {
    let (status, code, message) = if by_shutdown {
        // A 503 is sent again by every SDK, which must not happen where a tool may have acted.
        let status = if uncertain { facts.exhausted_status } else { 503 };
        (status, "shutting_down", "The relay is shutting down.")
    } else {
        (409, "stopped", "The operation was stopped.")
    };
    let kind = match after {
        Some(_) if by_shutdown => Status::Interrupted,
        None if by_shutdown => Status::Unavailable,
        _ => Status::Stopped,
    };
    let mut rubicon = member(facts, kind, code, None);
    rubicon.refused.clear();
    rubicon.after = after;
    rubicon.retryable = by_shutdown && after.is_none() && !uncertain;
    if uncertain {
        rubicon.class = Some(Class::SideEffectUncertain);
        rubicon.actions = Some(vec!["reconcile"]);
        rubicon.unresolved_executions = Some(1);
    } else {
        rubicon.actions = after.map(|_| vec!["restart"]);
    }
    Outward { status, code: Some(code.into()), kind: None, param: None, message: message.to_owned(), rubicon }
}

/// A refusal by the relay itself, before any provider was asked.
pub fn own(status: u16, code: &str, message: String, operation: Option<&OperationId>) -> Outward {
    let shed = matches!(status, 429 | 503);
    let unavailable = shed || status >= 500;
    Outward {
        status,
        code: Some(code.into()),
        kind: None,
        param: None,
        message,
        rubicon: Rubicon {
            status: if unavailable { Status::Unavailable } else { Status::Rejected },
            reason: code.to_owned(),
            class: None,
            retryable: shed,
            retry_after_ms: shed.then_some(SHED_RETRY_AFTER.as_secs() * 1000),
            operation_id: operation.cloned(),
            attempts: Some(0),
            provider_status: None,
            provider_error: None,
            would_be_status: None,
            after: None,
            actions: None,
            unresolved_executions: None,
            executions: Vec::new(),
            refused: Vec::new(),
        },
    }
}

/// What a shed request is told to wait.
pub const SHED_RETRY_AFTER: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
