//! An agent with two tools, as an application would write it: one looks an order up, one pays money back.
//!
//! ```text
//! cargo run --example agent -- "Please refund order 1001"
//! ```
//!
//! `RUBICON_URL` (`http://127.0.0.1:8080`) and `RUBICON_KEY` say where the relay is; `examples/agent/rubicon.toml` is a configuration for it.
//! The book of refunds (`AGENT_BOOK`, `refunds.txt`) stands for the payment system.
//!
//! What the relay takes off its hands: failover before the first output, one end to each stream, and the record of what each tool did. What
//! stays with it are three rules. *One root a run* (`Rubicon-Root`): a retry of this run meets the records of the first try. *Claim, run,
//! complete*: nothing runs without a claim that says `execute`. *Unknown is an answer*: the model is told the ledger's own words and
//! nobody calls the tool again.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "an example talks to a terminal")]

use std::error::Error;
use std::io::Write as _;

use eventsource_stream::Eventsource as _;
use futures_util::StreamExt as _;
use serde_json::{Value, json};

type Fails<T> = Result<T, Box<dyn Error>>;

/// Most turns of one run: a model that never comes to an end is stopped.
const TURNS_MAX: usize = 8;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Fails<()> {
    let wish = std::env::args().nth(1).unwrap_or_else(|| "Please refund order 1001".to_owned());
    let agent = Agent::new()?;
    println!("run {}", agent.root);
    println!("{}", agent.run(&wish).await?);
    Ok(())
}

struct Agent {
    http: reqwest::Client,
    url: String,
    key: String,
    model: String,
    /// This run. A second try of it (`AGENT_RUN`) has the same one.
    root: String,
    book: String,
}

/// One tool call, put together from its pieces.
#[derive(Default)]
struct Call {
    id: String,
    name: String,
    arguments: String,
}

fn or(name: &str, default: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| default.to_owned())
}

fn tools() -> Value {
    let order = json!({ "type": "string", "description": "the order's number" });
    json!([
        { "type": "function", "function": { "name": "lookup_order", "description": "What is known of an order.",
            "parameters": { "type": "object", "properties": { "order": order }, "required": ["order"] } } },
        { "type": "function", "function": { "name": "refund_order", "description": "Pays money back. Once an order.",
            "parameters": { "type": "object", "required": ["order", "cents"],
                "properties": { "order": order, "cents": { "type": "integer" }, "reason": { "type": "string" } } } } },
    ])
}

impl Agent {
    fn new() -> Fails<Self> {
        let run = format!("run-{}-{}", std::process::id(), uptime_nanos()?);
        Ok(Self {
            // No timeout for the whole: a stream may take minutes. The relay's own bounds end it.
            http: reqwest::Client::builder().connect_timeout(std::time::Duration::from_secs(5)).build()?,
            url: or("RUBICON_URL", "http://127.0.0.1:8080"),
            key: or("RUBICON_KEY", "none"),
            model: or("AGENT_MODEL", "agent"),
            root: or("AGENT_RUN", &run),
            book: or("AGENT_BOOK", "refunds.txt"),
        })
    }

    async fn run(&self, wish: &str) -> Fails<String> {
        let mut messages = vec![json!({ "role": "user", "content": wish })];
        for _ in 0..TURNS_MAX {
            let (operation, text, calls) = self.ask(&messages).await?;
            if calls.is_empty() {
                return Ok(text);
            }
            let said = |call: &Call| {
                json!({ "id": call.id, "type": "function",
                    "function": { "name": call.name, "arguments": call.arguments } })
            };
            let said: Vec<Value> = calls.iter().map(said).collect();
            messages.push(json!({ "role": "assistant", "content": text, "tool_calls": said }));
            for call in &calls {
                let result = self.execute(&operation, call).await?;
                println!("{}({}) → {result}", call.name, call.arguments);
                messages.push(json!({ "role": "tool", "tool_call_id": call.id, "content": result }));
            }
        }
        Err("the model never came to an end".into())
    }

    /// One model call: its operation, text and tool calls. An interrupted stream is an error, and nothing of it is acted on.
    async fn ask(&self, messages: &[Value]) -> Fails<(String, String, Vec<Call>)> {
        let body = json!({ "model": self.model, "stream": true, "messages": messages, "tools": tools() });
        let request = self.http.post(format!("{}/v1/chat/completions", self.url)).bearer_auth(&self.key);
        let response = request.header("rubicon-root", &self.root).json(&body).send().await?;
        let operation = response.headers().get("rubicon-operation-id").and_then(|id| id.to_str().ok());
        let operation = operation.unwrap_or_default().to_owned();
        if !response.status().is_success() {
            return Err(format!("{}: {}", response.status(), response.text().await?).into());
        }
        let (mut text, mut calls, mut ended) = (String::new(), Vec::<Call>::new(), false);
        let mut events = response.bytes_stream().eventsource();
        while let Some(event) = events.next().await {
            let data = event?.data;
            if data == "[DONE]" {
                ended = true;
                break;
            }
            let chunk: Value = serde_json::from_str(&data)?;
            if let Some(error) = chunk.get("error") {
                return Err(format!("interrupted: {error}").into());
            }
            let delta = &chunk["choices"][0]["delta"];
            text.push_str(delta["content"].as_str().unwrap_or_default());
            for piece in delta["tool_calls"].as_array().into_iter().flatten() {
                let at = usize::try_from(piece["index"].as_u64().unwrap_or_default())?;
                if at > calls.len() {
                    return Err("a tool call without its predecessors".into());
                }
                if at == calls.len() {
                    calls.push(Call::default());
                }
                let call = &mut calls[at];
                call.id.push_str(piece["id"].as_str().unwrap_or_default());
                call.name.push_str(piece["function"]["name"].as_str().unwrap_or_default());
                call.arguments.push_str(piece["function"]["arguments"].as_str().unwrap_or_default());
            }
        }
        if ended { Ok((operation, text, calls)) } else { Err("the stream was cut".into()) }
    }

    /// Claim, run, complete. Answers with what the model is to be told.
    async fn execute(&self, operation: &str, call: &Call) -> Fails<String> {
        let arguments: Value = serde_json::from_str(&call.arguments)?;
        let claim = json!({ "operation_id": operation, "root": self.root, "tool": call.name, "arguments": arguments,
            "tool_call_id": call.id, "claim_id": format!("{operation}:{}", call.id) });
        let (_, told) = self.post("/v1/executions", &claim, Some("wait=10")).await?;
        match told["decision"].as_str().unwrap_or_default() {
            "execute" => {}
            // It ran before, in this run: the same bytes.
            "use_result" => return Ok(told["execution"]["result"].to_string()),
            // Not known, not meant, not allowed: the ledger says it in words that a model may read.
            _ => {
                let words = told["model_text"].as_str().or(told["error"]["message"].as_str());
                return Ok(words.unwrap_or("the tool was not run").to_owned());
            }
        }
        let key = told["execution"]["key"].as_str().ok_or("no key")?;
        let done = match call.name.as_str() {
            "lookup_order" => Ok(json!({ "order": arguments["order"], "paid_cents": 4200, "state": "delivered" })),
            "refund_order" => self.refund(key, &arguments),
            other => Err(format!("no tool {other}").into()),
        };
        let mut complete = json!({ "lease_token": told["lease_token"] });
        let result = match done {
            Ok(result) => {
                complete["outcome"] = json!("succeeded");
                complete["result"] = result.clone();
                result
            }
            // A real tool knows whether its failure came before or after the effect; this one does not, and says so.
            Err(error) => {
                complete["outcome"] = json!("unknown");
                complete["error"] = json!({ "message": error.to_string() });
                json!({ "error": "outcome not known; do not call again" })
            }
        };
        // Until it is on record nobody is told: the same completion again is no second one.
        for _ in 0..5 {
            let (status, _) = self.post(&format!("/v1/executions/{key}/complete"), &complete, None).await?;
            if status == 200 {
                return Ok(result.to_string());
            }
            tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        }
        Err("the outcome could not be recorded".into())
    }

    async fn post(&self, path: &str, body: &Value, prefer: Option<&str>) -> Fails<(u16, Value)> {
        let mut request = self.http.post(format!("{}{path}", self.url)).bearer_auth(&self.key).json(body);
        if let Some(prefer) = prefer {
            request = request.header("prefer", prefer);
        }
        let response = request.send().await?;
        Ok((response.status().as_u16(), response.json().await?))
    }

    /// The effect: a line in the book, under the execution's key.
    fn refund(&self, key: &str, arguments: &Value) -> Fails<Value> {
        let mut book = std::fs::OpenOptions::new().create(true).append(true).open(&self.book)?;
        writeln!(book, "{key} {} {}", arguments["order"], arguments["cents"])?;
        book.sync_data()?;
        Ok(json!({ "refunded": arguments["order"], "cents": arguments["cents"] }))
    }
}

/// A number that two runs of this machine do not share.
fn uptime_nanos() -> Fails<String> {
    let text = std::fs::read_to_string("/proc/uptime").unwrap_or_default();
    Ok(text.split_whitespace().next().unwrap_or("0").replace('.', ""))
}
