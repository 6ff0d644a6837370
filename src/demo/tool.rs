//! The demo's payment tool: a small HTTP server of "the bank" that counts what it really did, and forgets to say so when a scene wants it.
//!
//! In: `POST /{account}/pay`, which pays, once each time it is asked (it looks at no `Idempotency-Key`: so a second call is a second
//! payment, and the count shows it), and `GET /{account}/payments/{key}`, its status query by the key that the payment carried.
//! Out: how often each account paid. An account is a scene's name, so that no scene counts another's.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, State};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, StatusCode};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Payments that one account keeps; more are refused before they are made. The demo may stay up for long, and its scenes make two.
const PAYMENTS_MAX: usize = 1000;

/// How long a scene waits for a payment: as long as for an answer.
const PAID_MAX: Duration = Duration::from_secs(15);

/// When an account keeps its answer to itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Silent {
    Never,
    /// The first payment is made and never answered; later ones are.
    First,
    Always,
}

/// One account.
#[derive(Debug)]
struct Account {
    silent: Silent,
    /// The `Idempotency-Key` of each payment, in order.
    paid: Vec<String>,
}

type Accounts = BTreeMap<&'static str, Account>;

/// The running bank.
pub(super) struct Bank {
    address: SocketAddr,
    accounts: watch::Sender<Accounts>,
    serving: JoinHandle<()>,
}

impl Drop for Bank {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Bank {
    /// Opens accounts on a free port of loopback.
    pub(super) async fn start(accounts: &[(&'static str, Silent)]) -> Result<Self, String> {
        let listener = TcpListener::bind("127.0.0.1:0").await.map_err(|error| error.to_string())?;
        let address = listener.local_addr().map_err(|error| error.to_string())?;
        let open = |silent| Account { silent, paid: Vec::new() };
        let accounts = watch::Sender::new(accounts.iter().map(|(name, silent)| (*name, open(*silent))).collect());
        let router = Router::new()
            .route("/{account}/pay", post(pay))
            .route("/{account}/payments/{key}", get(status))
            .with_state(accounts.clone());
        let serving = tokio::spawn(async move {
            // It ends when it is aborted.
            let _ = axum::serve(listener, router).await;
        });
        Ok(Self { address, accounts, serving })
    }

    /// Where an account pays.
    pub(super) fn pays_at(&self, account: &str) -> String {
        format!("http://{}/{account}/pay", self.address)
    }

    /// Its status query, for a tool's `probe`.
    pub(super) fn asked_at(&self, account: &str) -> String {
        format!("http://{}/{account}/payments/{{key}}", self.address)
    }

    /// Payments made.
    pub(super) fn effects(&self, account: &str) -> usize {
        paid(&self.accounts.borrow(), account)
    }

    /// Waits until an account has paid so often.
    pub(super) async fn until_paid(&self, account: &str, times: usize) -> Result<(), String> {
        let mut accounts = self.accounts.subscribe();
        let paid = accounts.wait_for(|accounts| paid(accounts, account) >= times);
        let paid = timeout(PAID_MAX, paid).await.map_err(|_| "the tool was never called".to_owned())?;
        paid.map(drop).map_err(|error| error.to_string())
    }
}

fn paid(accounts: &Accounts, account: &str) -> usize {
    accounts.get(account).map_or(0, |account| account.paid.len())
}

/// Pays, and answers where it does.
async fn pay(
    State(accounts): State<watch::Sender<Accounts>>,
    Path(name): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    if serde_json::from_slice::<Value>(&body).is_err() {
        return json(StatusCode::BAD_REQUEST, &json!({ "error": "this is no JSON" }));
    }
    let key = headers.get("idempotency-key").and_then(|key| key.to_str().ok()).unwrap_or_default();
    let mut answered = None;
    accounts.send_if_modified(|accounts| {
        let Some(account) = accounts.get_mut(&*name) else { return false };
        if account.paid.len() >= PAYMENTS_MAX {
            return false;
        }
        account.paid.push(key.to_owned());
        let number = account.paid.len();
        let silent = account.silent == Silent::Always || (account.silent == Silent::First && number == 1);
        answered = Some((receipt(&name, number), silent));
        true
    });
    match answered {
        None => json(StatusCode::FORBIDDEN, &json!({ "error": "no such account, or it pays no more" })),
        Some((receipt, false)) => json(StatusCode::OK, &receipt),
        // The caller leaves; the payment stays made.
        Some((_, true)) => std::future::pending().await,
    }
}

/// What became of a payment.
async fn status(
    State(accounts): State<watch::Sender<Accounts>>,
    Path((name, key)): Path<(String, String)>,
) -> Response {
    let made = accounts.borrow().get(&*name).and_then(|account| account.paid.iter().position(|paid| *paid == key));
    match made {
        Some(index) => json(StatusCode::OK, &receipt(&name, index + 1)),
        None => json(StatusCode::NOT_FOUND, &json!({ "state": "unheard of" })),
    }
}

fn receipt(account: &str, number: usize) -> Value {
    json!({ "state": "paid", "payment": format!("{account}-{number}") })
}

fn json(status: StatusCode, body: &Value) -> Response {
    (status, [(CONTENT_TYPE, "application/json")], body.to_string()).into_response()
}
