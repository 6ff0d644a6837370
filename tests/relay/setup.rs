//! A configuration under construction, for promises that need more than `harness::two`: any number of routes, alternates, clients,
//! and lines of one's own in each table. In: names and TOML lines. Out: the text of a config file.

use rubicon::mock::{Answer, MockProvider, Rule};
use serde_json::{Value, json};

use crate::harness::provider;

/// What a route is to the workflow `default`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Primary,
    Equivalent,
    Alternate,
}

struct Route {
    name: String,
    role: Role,
    /// Whose provider it uses; its own has its name.
    provider: String,
    base: Option<String>,
    kind: &'static str,
    /// What follows scheme, host and port.
    path: &'static str,
    provider_lines: String,
    route_lines: String,
    approved: bool,
}

/// The configuration: the first route is the primary.
#[derive(Default)]
pub(crate) struct Setup {
    routes: Vec<Route>,
    server_lines: String,
    workflow_lines: String,
    failover: String,
    tail: String,
}

impl Setup {
    /// A primary `a` at `base` (scheme, host and port).
    pub(crate) fn primary(base: impl Into<String>) -> Self {
        Self::default().add("a", Role::Primary, Some(base.into()), "a")
    }

    /// An approved equivalent with a provider of its own.
    pub(crate) fn equivalent(self, name: &str, at: &MockProvider) -> Self {
        self.add(name, Role::Equivalent, Some(at.base_url()), name)
    }

    /// An approved equivalent at the provider of another route.
    pub(crate) fn equivalent_of(self, name: &str, provider: &str) -> Self {
        self.add(name, Role::Equivalent, None, provider)
    }

    /// An approved alternate with a provider of its own.
    pub(crate) fn alternate(self, name: &str, at: &MockProvider) -> Self {
        self.add(name, Role::Alternate, Some(at.base_url()), name)
    }

    fn add(mut self, name: &str, role: Role, base: Option<String>, provider: &str) -> Self {
        self.routes.push(Route {
            name: name.to_owned(),
            role,
            provider: provider.to_owned(),
            base,
            kind: "openai-compatible",
            path: "/v1",
            provider_lines: String::new(),
            route_lines: String::new(),
            approved: true,
        });
        self
    }

    fn last(&mut self) -> &mut Route {
        self.routes.last_mut().expect("a route")
    }

    /// The kind of the provider of the route added last, and the path of its base URL; such a route speaks what its kind does.
    pub(crate) fn kind(mut self, kind: &'static str, path: &'static str) -> Self {
        (self.last().kind, self.last().path) = (kind, path);
        self
    }

    /// Lines under the provider of the route added last.
    pub(crate) fn with_provider(mut self, lines: &str) -> Self {
        self.last().provider_lines += &format!("{lines}\n");
        self
    }

    /// Lines under the route added last (inline tables: `price = {…}`).
    pub(crate) fn with_route(mut self, lines: &str) -> Self {
        self.last().route_lines += &format!("{lines}\n");
        self
    }

    /// The route added last has no approval.
    pub(crate) fn unapproved(mut self) -> Self {
        self.last().approved = false;
        self
    }

    /// Lines under `[server]`.
    pub(crate) fn server(mut self, lines: &str) -> Self {
        self.server_lines += &format!("{lines}\n");
        self
    }

    /// Lines under `[workflow.default]`.
    pub(crate) fn workflow(mut self, lines: &str) -> Self {
        self.workflow_lines += &format!("{lines}\n");
        self
    }

    /// Replaces `enabled = true, cross_model = true`.
    pub(crate) fn failover(mut self, members: &str) -> Self {
        members.clone_into(&mut self.failover);
        self
    }

    /// Whole tables at the end (clients).
    pub(crate) fn tables(mut self, text: &str) -> Self {
        self.tail += &format!("{text}\n");
        self
    }

    /// The config file.
    pub(crate) fn text(&self) -> String {
        let mut text = format!("[server]\nlisten = \"127.0.0.1:0\"\n{}", self.server_lines);
        // With tools the store is on disk by default, and these relays have no folder of their own.
        if self.tail.contains("[tool.") && !self.server_lines.contains("store =") {
            text += "store = \"memory\"\n";
        }
        for route in &self.routes {
            if let Some(base) = &route.base {
                let compatible = route.kind == "openai-compatible" && !route.provider_lines.contains("terminal =");
                let terminal = if compatible { "terminal = \"strict\"\n" } else { "" };
                text += &format!(
                    "[provider.{}]\nkind = \"{}\"\nbase_url = \"{base}{}\"\n{terminal}{}",
                    route.name, route.kind, route.path, route.provider_lines
                );
            }
            let compatible = route.kind == "openai-compatible";
            let dialects = if compatible {
                "dialects = [\"chat-completions\", \"anthropic-messages\", \"responses\"]\n"
            } else {
                ""
            };
            text += &format!(
                "[route.{}]\nprovider = \"{}\"\n{dialects}\
                 capabilities = [\"text\", \"tools\", \"reasoning\", \"mcp\", \"web_search\", \"beta:mcp-client-2025-04-04\"]\n\
                 verified = {{ on = 2026-01-01 }}\n{}",
                route.name, route.provider, route.route_lines
            );
        }
        let names = |role: Role| {
            let of_role = self.routes.iter().filter(|route| route.role == role);
            of_role.map(|route| format!("\"{}\"", route.name)).collect::<Vec<_>>().join(", ")
        };
        let failover = if self.failover.is_empty() { "enabled = true, cross_model = true" } else { &self.failover };
        text += &format!(
            "[workflow.default]\nprimary = \"a\"\nequivalents = [{}]\nalternates = [{}]\nfailover = {{ {failover} }}\n{}",
            names(Role::Equivalent),
            names(Role::Alternate),
            self.workflow_lines
        );
        for route in self.routes.iter().filter(|route| route.approved && route.role != Role::Primary) {
            let purpose = if route.role == Role::Alternate { "cross_model" } else { "failover" };
            text +=
                &format!("[[approval]]\nworkflow = \"default\"\nroute = \"{}\"\npurpose = \"{purpose}\"\n", route.name);
        }
        text + &self.tail
    }
}

/// `base_url`s of primaries that nobody listens on. The port stays bound to the end of the process without ever listening: one that was
/// given back would be another test's before it is asked for.
pub(crate) async fn refused_base() -> String {
    let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
    socket.bind("127.0.0.1:0".parse().expect("an address")).expect("a port");
    let base = format!("http://{}", socket.local_addr().expect("an address"));
    std::mem::forget(socket);
    base
}

/// A provider with one answer for everything.
pub(crate) async fn always(answer: Answer) -> MockProvider {
    provider(Rule::new("all").answer(answer)).await
}

/// An OpenAI error object.
pub(crate) fn error(message: &str, kind: &str, code: Value) -> Value {
    json!({ "error": { "message": message, "type": kind, "param": null, "code": code } })
}

/// A 503 with a word of overload: proof that nothing ran.
pub(crate) fn overloaded() -> Answer {
    Answer::json_error(503, error("The engine is currently overloaded", "overloaded_error", Value::Null))
}

/// A 500: the request may have run.
pub(crate) fn server_error() -> Answer {
    Answer::json_error(500, error("Internal error", "server_error", Value::Null))
}

/// A 429 that is known to be temporary, with a header that says how long.
pub(crate) fn limited(header: &str, value: &str) -> Answer {
    Answer::json_error(429, error("Rate limit reached", "requests", json!("rate_limit_exceeded"))).header(header, value)
}
