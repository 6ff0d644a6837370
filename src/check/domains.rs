//! Both sides of a failover going down together: one provider, one account, one host, one declared failure domain.
//!
//! Warnings and no errors (SPEC Annex: "`check` warns when both sides of a failover share one"): such a failover still helps with what
//! is one route's alone.

use crate::config::settings::{ProviderSettings, WorkflowSettings};
use crate::config::{Code, Severity};

use super::Finder;
use super::failover::Candidate;

pub(super) fn find(workflow: &WorkflowSettings, on: &[&Candidate<'_>], finder: &mut Finder<'_>) {
    let primary = &workflow.primary.provider;
    if !on.is_empty() && on.iter().all(|one| one.route.provider.name == primary.name) {
        let message = format!(
            "every failover route is at the primary's provider `{}`: its outage takes them all, and none is asked when a model is out",
            primary.name
        );
        let key = format!("workflow.{}.failover.enabled", workflow.name);
        return finder.push(Severity::Warning, Code::SharedProvider, key, message);
    }
    for one in on {
        let Some(shared) = shared(primary, &one.route.provider) else { continue };
        let message = format!(
            "route `{}` and the primary share {shared}: when it is down, this failover is down too",
            one.route.name
        );
        let key = format!("workflow.{}.{}", workflow.name, one.list);
        finder.push(Severity::Warning, Code::SharedDomain, key, message);
    }
}

/// What two providers share.
fn shared(one: &ProviderSettings, other: &ProviderSettings) -> Option<String> {
    if one.name == other.name {
        return Some(format!("the provider `{}`", one.name));
    }
    if let Some(domain) = one.depends_on.iter().find(|domain| other.depends_on.contains(domain)) {
        return Some(format!("the failure domain `{domain}` (`depends_on`)"));
    }
    if one.account == other.account {
        return Some("the account".to_owned());
    }
    let host = |provider: &ProviderSettings| provider.base_url.authority().map(|at| at.as_str().to_ascii_lowercase());
    (host(one).is_some() && host(one) == host(other)).then(|| "the host".to_owned())
}
