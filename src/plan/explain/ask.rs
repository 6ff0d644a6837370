//! What somebody asks to have explained: a workflow, a dialect, request headers and a body, read as the data plane reads them.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::config::settings::{Settings, WorkflowSettings};
use crate::config::shown;
use crate::contract::{Contract, Endpoint, headers};
use crate::protocol::Dialect;

/// The question.
#[derive(Clone, Debug, Default)]
pub struct Ask {
    /// The workflow; absent: what the headers name, or the only one.
    pub workflow: Option<String>,
    /// The dialect by name; absent: the first that the workflow's primary speaks.
    pub dialect: Option<String>,
    /// Request headers, `K: V` each.
    pub headers: Vec<String>,
    /// The request body; absent: the smallest request of the dialect.
    pub request: Option<Bytes>,
}

/// Why nothing can be explained.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct AskError {
    /// A stable code: `unknown_workflow`, `workflow_contradiction`, `unknown_dialect`, `invalid_header`, or the request reader's own.
    pub code: &'static str,
    /// A sentence, without any content of the request.
    pub message: String,
}

fn error(code: &'static str, message: impl Into<String>) -> AskError {
    AskError { code, message: message.into() }
}

impl Ask {
    /// Workflow and contract.
    pub(super) fn read<'s>(&self, settings: &'s Settings) -> Result<(&'s WorkflowSettings, Contract), AskError> {
        let asked = headers::read(&self.header_map()?).map_err(|bad| error(bad.code, format!("{bad}.")))?;
        if let (Some(named), Some(header)) = (&self.workflow, &asked.workflow)
            && named != header
        {
            let message = format!(
                "The workflow is named twice, and differently: {} and, by the header Rubicon-Workflow, {}.",
                shown(named),
                shown(header)
            );
            return Err(error("workflow_contradiction", message));
        }
        let workflow = workflow(settings, self.workflow.as_deref().or(asked.workflow.as_deref()))?;
        let dialect = self.dialect_of(workflow)?;
        let body = self.request.clone().unwrap_or_else(|| smallest(dialect));
        let mut facts = dialect.read_request(&body).map_err(|bad| error(bad.code, bad.message))?;
        if self.request.is_none() && facts.model.is_none() {
            // Whoever asks without a request does not ask about the model.
            facts.model = Some((workflow.models.first().cloned().unwrap_or_else(|| "any".to_owned()), 0..0));
        }
        Ok((workflow, Contract::new(Endpoint::of(dialect), facts, workflow.envelope, &asked)))
    }

    fn header_map(&self) -> Result<HeaderMap, AskError> {
        let mut map = HeaderMap::new();
        for line in &self.headers {
            let parsed = line.split_once(':').and_then(|(name, value)| {
                let name = HeaderName::from_bytes(name.trim().to_ascii_lowercase().as_bytes()).ok()?;
                Some((name, HeaderValue::from_str(value.trim()).ok()?))
            });
            // The line is not repeated: it may carry a credential.
            let (name, value) =
                parsed.ok_or_else(|| error("invalid_header", "A header must be written `Name: value`."))?;
            map.append(name, value);
        }
        Ok(map)
    }

    fn dialect_of(&self, workflow: &WorkflowSettings) -> Result<Dialect, AskError> {
        let first = workflow.primary.dialects.first().copied().unwrap_or(Dialect::ChatCompletions);
        let Some(name) = &self.dialect else { return Ok(first) };
        Dialect::ALL.into_iter().find(|dialect| dialect.name() == name).ok_or_else(|| {
            let known = Dialect::ALL.map(Dialect::name).join(", ");
            error("unknown_dialect", format!("There is no such dialect; there are: {known}."))
        })
    }
}

fn workflow<'s>(settings: &'s Settings, named: Option<&str>) -> Result<&'s WorkflowSettings, AskError> {
    let found = match named {
        Some(name) => settings.workflows.values().find(|workflow| workflow.name.as_str() == name),
        None if settings.workflows.len() == 1 => settings.workflows.values().next(),
        None => None,
    };
    found.map(AsRef::as_ref).ok_or_else(|| {
        let known: Vec<_> = settings.workflows.keys().map(|name| name.as_str()).collect();
        let wrong = named.map(|name| format!("There is no workflow {}. ", shown(name))).unwrap_or_default();
        error("unknown_workflow", format!("{wrong}Name one of the workflows: {}.", known.join(", ")))
    })
}

/// A request that uses text and nothing else.
fn smallest(dialect: Dialect) -> Bytes {
    Bytes::from_static(match dialect {
        Dialect::ChatCompletions | Dialect::AnthropicMessages => {
            br#"{"stream":true,"messages":[{"role":"user","content":"hi"}]}"#.as_slice()
        }
        Dialect::Responses => br#"{"stream":true,"input":"hi"}"#,
    })
}
