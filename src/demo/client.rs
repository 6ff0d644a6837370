//! The demo's client: sends one request as an application would, reads the stream event by event and says what it saw.
//!
//! It knows just enough of the dialects to tell text, tool arguments and error frames apart; it never retries (a scene may
//! make it, to break a rule on purpose).

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client as Http;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;
use tokio::time::timeout;

use crate::wire::sse::{BlockKind, SseLimits, SseSplitter};

/// No scene takes longer.
const SCENE_MAX: Duration = Duration::from_secs(15);

/// A stub's event and a JSON answer are small.
const LIMITS: SseLimits = SseLimits { line_bytes_max: 1 << 20, event_bytes_max: 1 << 20 };

/// How a response ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// The body's proper end.
    Clean,
    /// The connection was aborted.
    Aborted,
}

/// What the client saw.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) status: u16,
    pub(super) recovery: String,
    pub(super) attempts: String,
    pub(super) operation: String,
    pub(super) text: String,
    pub(super) arguments: String,
    /// The id of a tool call, as Chat Completions has it.
    pub(super) call: String,
    /// The error of a JSON answer or of a frame in the stream.
    pub(super) error: Option<Value>,
    pub(super) ended: Ended,
}

impl Seen {
    /// A member of `rubicon`, wherever the dialect puts it.
    pub(super) fn rubicon(&self, name: &str) -> Value {
        let error = self.error.clone().unwrap_or_default();
        let member = if error["rubicon"].is_object() { &error["rubicon"] } else { &error["error"]["rubicon"] };
        member[name].clone()
    }
}

/// A JSON answer of the ledger's calls, on either side.
#[derive(Clone, Debug)]
pub(super) struct Told {
    pub(super) status: u16,
    /// `Idempotent-Replayed`.
    pub(super) replayed: String,
    /// `Rubicon-Execution-Key`.
    pub(super) key: String,
    /// `ETag`.
    pub(super) etag: String,
    pub(super) body: Value,
}

impl Told {
    /// The ledger's decision; empty where the tool's own answer came.
    pub(super) fn decision(&self) -> &str {
        self.body["decision"].as_str().unwrap_or_default()
    }
}

/// An operator's credentials for a change, and the version that was seen.
#[derive(Clone, Copy, Debug)]
pub(super) struct AsOperator<'a> {
    pub(super) token: &'a str,
    pub(super) if_match: &'a str,
}

/// The client.
pub(super) struct Client {
    http: Http<HttpConnector, Full<Bytes>>,
    base: String,
}

impl Client {
    pub(super) fn new(base: String) -> Self {
        Self { http: Http::builder(TokioExecutor::new()).retry_canceled_requests(false).build_http(), base }
    }

    /// `POST`s `body` and reads the answer to its end.
    pub(super) async fn post(&self, path: &str, body: &Value) -> Result<Seen, String> {
        let request = Request::builder()
            .method(Method::POST)
            .uri(format!("{}{path}", self.base))
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(body.to_string())))
            .map_err(|error| error.to_string())?;
        timeout(SCENE_MAX, self.read(request)).await.map_err(|_| "the answer took too long".to_owned())?
    }

    /// `POST`s `body` to one of the ledger's calls; to the admin side's with an operator's credentials.
    pub(super) async fn ledger(
        &self,
        path: &str,
        body: &Value,
        operator: Option<AsOperator<'_>>,
    ) -> Result<Told, String> {
        let mut request = Request::builder()
            .method(Method::POST)
            .uri(format!("{}{path}", self.base))
            .header("content-type", "application/json");
        if let Some(AsOperator { token, if_match }) = operator {
            request = request.header("authorization", format!("Bearer {token}")).header("if-match", if_match);
        }
        let request = request.body(Full::new(Bytes::from(body.to_string()))).map_err(|error| error.to_string())?;
        let response = timeout(SCENE_MAX, self.http.request(request)).await.map_err(|_| "too long".to_owned())?;
        let (head, body) = response.map_err(|error| error.to_string())?.into_parts();
        let header =
            |name: &str| head.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
        let body = timeout(SCENE_MAX, body.collect()).await.map_err(|_| "too long".to_owned())?;
        let body = body.map_err(|error| error.to_string())?.to_bytes();
        Ok(Told {
            status: head.status.as_u16(),
            replayed: header("idempotent-replayed"),
            key: header("rubicon-execution-key"),
            etag: header("etag"),
            body: serde_json::from_slice(&body).map_err(|error| error.to_string())?,
        })
    }

    /// `GET`s a JSON document.
    pub(super) async fn get(&self, path: &str) -> Result<Value, String> {
        let uri = format!("{}{path}", self.base).parse().map_err(|_| "not a path".to_owned())?;
        let response = timeout(SCENE_MAX, self.http.get(uri)).await.map_err(|_| "too long".to_owned())?;
        let body = response.map_err(|error| error.to_string())?.into_body().collect().await;
        serde_json::from_slice(&body.map_err(|error| error.to_string())?.to_bytes()).map_err(|error| error.to_string())
    }

    async fn read(&self, request: Request<Full<Bytes>>) -> Result<Seen, String> {
        let response = self.http.request(request).await.map_err(|error| error.to_string())?;
        let header = |name: &str| {
            response.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
        };
        let mut seen = Seen {
            status: response.status().as_u16(),
            recovery: header("rubicon-recovery"),
            attempts: header("rubicon-attempts"),
            operation: header("rubicon-operation-id"),
            text: String::new(),
            arguments: String::new(),
            call: String::new(),
            error: None,
            ended: Ended::Clean,
        };
        let streamed = header("content-type").starts_with("text/event-stream");
        let mut body = response.into_body();
        let mut splitter = SseSplitter::new(LIMITS);
        let mut whole = Vec::new();
        while let Some(frame) = body.frame().await {
            let Ok(frame) = frame else {
                seen.ended = Ended::Aborted;
                break;
            };
            let Ok(data) = frame.into_data() else { continue };
            if !streamed {
                whole.extend_from_slice(&data);
                continue;
            }
            splitter.push(data);
            while let Some(block) = splitter.next_block().map_err(|error| error.to_string())? {
                if block.kind == BlockKind::Event {
                    note(&mut seen, &block.data());
                }
            }
        }
        if !streamed {
            let json: Value = serde_json::from_slice(&whole).unwrap_or_default();
            if json["error"].is_object() {
                seen.error = Some(json);
            }
        }
        Ok(seen)
    }
}

/// Takes text, tool arguments or an error out of one event of any dialect.
fn note(seen: &mut Seen, data: &[u8]) {
    let Ok(event) = serde_json::from_slice::<Value>(data) else { return };
    if event["error"].is_object() {
        seen.error = Some(event);
        return;
    }
    let text = [&event["choices"][0]["delta"]["content"], &event["delta"]["text"]];
    let arguments =
        [&event["choices"][0]["delta"]["tool_calls"][0]["function"]["arguments"], &event["delta"]["partial_json"]];
    if event["type"] == "response.output_text.delta" {
        seen.text.extend(event["delta"].as_str());
    }
    seen.call.extend(event["choices"][0]["delta"]["tool_calls"][0]["id"].as_str());
    seen.text.extend(text.iter().filter_map(|value| value.as_str()));
    seen.arguments.extend(arguments.iter().filter_map(|value| value.as_str()));
}
