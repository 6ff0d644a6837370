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
//! stays with it are three rules. *One root a run* (`Rubicon-Root`): a retry of this run, with the same `AGENT_RUN`, meets the records of
//! the first try. *Claim, run, complete*: nothing runs without a claim that says `execute`. *Unknown is an answer*: the model is told the
//! ledger's own words and nobody calls the tool again. A stream that was interrupted is an error, and nothing of it is acted on.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "an example talks to a terminal")]

use std::error::Error;
use std::io::Write as _;

use eventsource_stream::Eventsource as _;
use futures_util::StreamExt as _;
use serde_json::{Value, json};

type Fails<T> = Result<T, Box<dyn Error>>;

/// Most turns of one run: a model that never comes to an end is stopped.
const TURNS_MAX: usize = 8;
/// Most tries of one call of the ledger, a second apart: both calls may be sent again as they are.
const TRIES_MAX: usize = 5;

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
        // Two runs that shared a root would share their refunds: it is drawn, not counted.
        let mut drawn = [0; 16];
        getrandom::fill(&mut drawn)?;
        let run = format!("run-{:032x}", u128::from_be_bytes(drawn));
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
        let arguments: Value = match serde_json::from_str(&call.arguments) {
            Ok(arguments) => arguments,
            Err(error) => return Ok(format!("the arguments are no JSON: {error}")),
        };
        let claim = json!({ "operation_id": operation, "root": self.root, "tool": call.name, "arguments": arguments,
            "tool_call_id": call.id, "claim_id": format!("{operation}:{}", call.id) });
        let told = self.post("/v1/executions", &claim).await?;
        match told["decision"].as_str().unwrap_or_default() {
            "execute" => {}
            // It ran before, in this run: what it answered then.
            "use_result" => return Ok(told["execution"]["result"].to_string()),
            // Not known, not meant, not allowed: the ledger says it in words that a model may read.
            _ => {
                let words = told["model_text"].as_str().or(told["error"]["message"].as_str());
                return Ok(words.unwrap_or("The tool was not run.").to_owned());
            }
        }
        let key = told["execution"]["key"].as_str().ok_or("no key")?;
        let done = match call.name.as_str() {
            "lookup_order" => Ok(json!({ "order": arguments["order"], "paid_cents": 4200, "state": "delivered" })),
            "refund_order" => self.refund(key, &arguments).map_err(|error| ("unknown", error.to_string())),
            other => Err(("not_executed", format!("This agent has no tool {other}."))),
        };
        let mut complete = json!({ "lease_token": told["lease_token"] });
        let result = match done {
            Ok(result) => {
                complete["outcome"] = json!("succeeded");
                complete["result"] = result.clone();
                result
            }
            // A real tool knows whether its failure came before or after the effect; the book does not, and says so.
            Err((outcome, error)) => {
                complete["outcome"] = json!(outcome);
                complete["error"] = json!({ "message": error });
                let unknown = "It is not known whether this took effect. Do not call it again.";
                json!({ "error": if outcome == "unknown" { unknown } else { &error } })
            }
        };
        // Until it is on record nobody is told: the same completion again is no second one.
        let told = self.post(&format!("/v1/executions/{key}/complete"), &complete).await?;
        match told.get("error").and_then(|error| error.get("code")) {
            Some(code) => Err(format!("the outcome could not be recorded: {code}").into()),
            None => Ok(result.to_string()),
        }
    }

    /// One call of the ledger, again where it says that the same call may be sent again, or says nothing.
    async fn post(&self, path: &str, body: &Value) -> Fails<Value> {
        let mut tries = 0;
        loop {
            tries += 1;
            let request = self.http.post(format!("{}{path}", self.url)).bearer_auth(&self.key).json(body);
            // A twin that runs is waited for.
            let told = async { request.header("prefer", "wait=10").send().await?.json::<Value>().await };
            match told.await {
                Ok(told) if told["retryable"] != true || tries == TRIES_MAX => return Ok(told),
                Err(error) if tries == TRIES_MAX => return Err(error.into()),
                _ => tokio::time::sleep(std::time::Duration::from_secs(1)).await,
            }
        }
    }

    /// The effect: a line in the book, under the execution's key.
    fn refund(&self, key: &str, arguments: &Value) -> Fails<Value> {
        let mut book = std::fs::OpenOptions::new().create(true).append(true).open(&self.book)?;
        writeln!(book, "{key} {} {}", arguments["order"], arguments["cents"])?;
        book.sync_data()?;
        Ok(json!({ "refunded": arguments["order"], "cents": arguments["cents"] }))
    }
}
