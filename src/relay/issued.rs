//! State that an answer issued (response ids, encrypted reasoning, signatures …) is remembered with the account that holds it, so that
//! the next turn goes where its state is.
//!
//! Noted *before* the event that carries it goes to the client: a fast client's next turn must not meet a relay that does not know
//! yet. Digests only, by tenant, bounded and for a day: [`control::issuers`](crate::control::issuers).

use std::sync::Arc;

use crate::clock::UnixMillis;
use crate::config::settings::{ProviderSettings, Settings};
use crate::control::issuers::Issuers;
use crate::ids::TenantId;
use crate::plan::pins;
use crate::plan::{Plan, Refusal};
use crate::protocol::pin::Pin;

use super::operation::Run;

/// What is remembered for one tenant at one moment.
#[derive(Debug)]
pub(super) struct OfTenant<'a> {
    issuers: &'a Issuers,
    tenant: &'a TenantId,
    now: UnixMillis,
}

impl<'a> OfTenant<'a> {
    pub(super) fn new(issuers: &'a Issuers, tenant: &'a TenantId, now: UnixMillis) -> Self {
        Self { issuers, tenant, now }
    }
}

impl pins::Issuers for OfTenant<'_> {
    fn account_of(&self, pin: &Pin) -> Option<Arc<str>> {
        self.issuers.account_of(self.tenant, &pin.digest, self.now)
    }
}

/// Where all routes are of one account, everything is its own and nothing needs remembering.
fn has_several_accounts(settings: &Settings, account: &str) -> bool {
    settings.providers.values().any(|provider| provider.account != account)
}

/// The field of state that the workflow's primary does not hold: the request goes on with what another account began.
pub(super) fn begun_elsewhere(plan: &Plan, primary: &crate::ids::RouteId) -> Option<&'static str> {
    let (_, reasons) = plan.refused.iter().find(|(route, _)| route == primary)?;
    reasons.iter().find_map(|reason| if let Refusal::Pinned(field) = reason { Some(*field) } else { None })
}

impl Run {
    /// Notes what an answer of `provider` issued.
    pub(super) fn remember(&self, provider: &ProviderSettings, issued: &[Pin]) {
        if issued.is_empty() || !has_several_accounts(&self.job.current.settings, &provider.account) {
            return;
        }
        let now = UnixMillis::now();
        for pin in issued.iter().filter(|pin| !pin.is_nameless()) {
            self.job.app.control.issuers().remember(&self.job.operation.tenant, pin.digest, &provider.account, now);
        }
    }
}
