//! The ledger's scenes: a payment whose answer is lost, one that the model words anew, one whose relay is killed in the middle.
//!
//! In: the stage (the demo's relay, its bank, its model). Out: a [`Tale`]: lines for people, facts for programs, and the first thing that
//! was not as it must be. As in the other scenes, breaking one changes what happens and never what is expected: a payment is made
//! once, by the bank's own count. A tale goes on after something was wrong, so that the count is told.

use std::time::Duration;

use serde_json::{Value, json};

use crate::clock::Instant;
use crate::mock::{MockProvider, Rule, chat_tool_call};

use super::child::{Child, Folder};
use super::client::{AsOperator, Client};
use super::setup;
use super::tale::Tale;
use super::tool::{Bank, Silent};

/// How long the probe may take to find out.
const SETTLED_MAX: Duration = Duration::from_secs(15);

/// How often the record is looked at meanwhile.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The account of the lines to try: it pays and never says so.
pub(super) const BY_HAND: &str = "by-hand";

/// One scene of the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LedgerScene {
    ToolTimeout,
    RewordedPayment,
    Kill9,
}

/// What a scene is played with.
pub(super) struct Stage<'a> {
    /// The demo's relay.
    pub(super) base: String,
    pub(super) bank: &'a Bank,
    pub(super) provider: &'a MockProvider,
    /// The operator's token.
    pub(super) token: &'a str,
    pub(super) broken: bool,
}

impl LedgerScene {
    pub(super) const ALL: [Self; 3] = [Self::ToolTimeout, Self::RewordedPayment, Self::Kill9];

    /// The name for `--break`, and of its account at the bank.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::ToolTimeout => "tool-timeout",
            Self::RewordedPayment => "reworded-payment",
            Self::Kill9 => "kill-9",
        }
    }

    /// One line for the narration.
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::ToolTimeout => "A payment is made and its answer lost: unknown, then found, and never paid again",
            Self::RewordedPayment => "The model's next turn words the same payment anew: it is refused, not paid twice",
            Self::Kill9 => "kill -9 while a payment is under way: after the restart it is unknown, and paid once",
        }
    }

    /// The accounts that the bank opens, with that of the lines to try.
    pub(super) fn accounts() -> [(&'static str, Silent); 4] {
        [
            (Self::ToolTimeout.name(), Silent::First),
            (Self::RewordedPayment.name(), Silent::Never),
            (Self::Kill9.name(), Silent::First),
            (BY_HAND, Silent::Always),
        ]
    }

    /// What the model says, where it is asked: the same payment turn after turn, in other words.
    pub(super) fn model() -> Rule {
        let name = Self::RewordedPayment.name();
        let says = |reason: &str| {
            let rest = format!(",\"amount\":\"12.50\",\"reason\":\"{reason}\"}}");
            chat_tool_call("pay", &["{\"invoice\":\"INV-7\"", &rest])
        };
        Rule::new(name)
            .model(name)
            .answer(says("Refund for order A-1042"))
            .answer(says("Order A-1042: refund, as asked"))
    }

    /// Plays it; whatever is not even an answer ends it.
    pub(super) async fn play(self, stage: &Stage<'_>) -> Tale {
        let mut tale = Tale::default();
        let played = match self {
            Self::ToolTimeout => tool_timeout(stage, &mut tale).await,
            Self::RewordedPayment => reworded(stage, &mut tale).await,
            Self::Kill9 => kill_9(stage, &mut tale).await,
        };
        if let Err(problem) = played {
            tale.must(false, &format!("an answer, but {problem}"));
        }
        tale.effects(stage.bank.effects(self.name()));
        tale
    }
}

/// A wish of a user that no model is asked about.
fn payment(root: &str) -> Value {
    json!({ "root": root, "arguments": { "invoice": "INV-1042", "amount": "12.50" } })
}

async fn tool_timeout(stage: &Stage<'_>, tale: &mut Tale) -> Result<(), String> {
    let client = Client::new(stage.base.clone());
    let mut call = payment(LedgerScene::ToolTimeout.name());
    let first = tale.answer(client.ledger("/v1/tools/charge", &call, None)).await?;
    tale.must(first.status == 409 && first.decision() == "reconcile", "409 reconcile: its outcome is not known");

    let (began, path) = (Instant::now(), format!("/v1/executions/{}", first.key));
    let found = loop {
        let record = client.get(&path).await?;
        if record["state"] != "unknown" || began.elapsed() > SETTLED_MAX {
            break record;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    };
    let took = began.elapsed().as_millis();
    tale.line(
        "probe",
        &format!("the relay asked the bank for the payment of that key: {} after {took} ms", found["state"]),
    );
    tale.must(found["state"] == "succeeded", "the status query to find it paid");
    tale.record(&found);

    if stage.broken {
        call["occurrence"] = 1.into();
    }
    let retry = tale.answer(client.ledger("/v1/tools/charge", &call, None)).await?;
    tale.must(retry.status == 200 && retry.replayed == "true", "the agent's retry to get the stored result, replayed");
    tale.must(retry.body == found["result"], "the bank's own words as that result");
    Ok(())
}

async fn reworded(stage: &Stage<'_>, tale: &mut Tale) -> Result<(), String> {
    let client = Client::new(stage.base.clone());
    let tool = json!({ "type": "function", "function": { "name": "pay", "description": "Pays an invoice",
        "parameters": { "type": "object" } } });
    let mut request = json!({ "model": LedgerScene::RewordedPayment.name(), "stream": true, "tools": [tool],
        "messages": [{ "role": "user", "content": "Refund order A-1042." }] });
    let mut answers = Vec::new();
    for turn in ["turn one", "turn two"] {
        let seen = client.post("/v1/chat/completions", &request).await?;
        tale.line(turn, &format!("the model calls pay {}", seen.arguments));
        let arguments: Value = serde_json::from_str(&seen.arguments).map_err(|error| error.to_string())?;
        let claim = json!({ "operation_id": seen.operation, "tool_call_id": seen.call, "arguments": arguments });
        let told = tale.answer(client.ledger("/v1/tools/pay", &claim, None)).await?;
        // What an agent sends back to the model: its call and the result of it.
        let call = json!({ "id": seen.call, "type": "function",
            "function": { "name": "pay", "arguments": seen.arguments } });
        if let Some(messages) = request["messages"].as_array_mut() {
            messages.push(json!({ "role": "assistant", "content": null, "tool_calls": [call] }));
            messages.push(json!({ "role": "tool", "tool_call_id": seen.call, "content": told.body.to_string() }));
        }
        answers.push(told);
    }
    let [first, second] = &answers[..] else { return Err("there were not two".to_owned()) };
    tale.must(first.status == 200, "the first payment to be made");
    tale.must(second.status == 422 && second.decision() == "conflict", "422 conflict: it is on record in other words");
    tale.must(second.body["differs"] == json!(["/reason"]), "the pointer to what differs, /reason");
    tale.record(&client.get(&format!("/v1/executions/{}", first.key)).await?);
    Ok(())
}

async fn kill_9(stage: &Stage<'_>, tale: &mut Tale) -> Result<(), String> {
    let (name, path) = (LedgerScene::Kill9.name(), "/v1/tools/transfer");
    let folder = Folder::new()?;
    let start = async |store: &str| {
        Child::start(&folder, &setup::child_text(stage.provider, stage.bank, store), stage.token).await
    };
    let child = start("first").await?;
    let client = Client::new(child.base.clone());
    let call = payment(name);
    let killed = async {
        stage.bank.until_paid(name, 1).await?;
        child.kill();
        Ok::<(), String>(())
    };
    let (lost, killed) = tokio::join!(client.ledger(path, &call, None), killed);
    killed?;
    tale.line("kill -9", "the bank has paid, its answer is not there yet, and the relay is gone");
    tale.line("client saw", "the connection break, and no answer");
    tale.must(lost.is_err(), "no answer from a relay that was killed");

    let store = if stage.broken { "second" } else { "first" };
    let child = start(store).await?;
    tale.line("restart", &format!("over the {} store", if stage.broken { "wrong" } else { "same" }));
    let client = Client::new(child.base.clone());
    let again = tale.answer(client.ledger(path, &call, None)).await?;
    tale.must(again.status == 409 && again.decision() == "reconcile", "409 reconcile: its outcome is not known");
    if again.status != 409 {
        return Ok(());
    }
    let admin = Client::new(child.admin.clone());
    let verdict = json!({ "outcome": "succeeded", "external_reference": "kill-9-1", "reason": "seen at the bank",
        "result": { "state": "paid", "payment": "kill-9-1" } });
    let resolve = format!("/admin/v1/executions/{}/resolve", again.key);
    let operator = AsOperator { token: stage.token, if_match: &again.etag };
    let resolved = admin.ledger(&resolve, &verdict, Some(operator)).await?;
    tale.line("operator", &format!("HTTP {}: succeeded, \"seen at the bank\"", resolved.status));
    tale.must(resolved.status == 200, "the operator's verdict to be taken");
    let retry = tale.answer(client.ledger(path, &call, None)).await?;
    tale.must(retry.status == 200 && retry.replayed == "true", "the retry to get the stored result, replayed");
    tale.must(retry.body == verdict["result"], "what the operator put there as that result");
    tale.record(&client.get(&format!("/v1/executions/{}", again.key)).await?);
    Ok(())
}
