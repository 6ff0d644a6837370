//! What a client is told, and how fast, while a whole primary is out: figures for this machine.
//!
//! `cargo run --release --example outage` starts a primary that says 503, a secondary that may take twenty attempts of recovery
//! traffic at once, and the relay, in this process; 500 clients ask, all at once, several times over. It prints how many attempts a
//! request cost, the most that the secondary and the primary (its probes) were answering at one moment, and how long refusals took.
//! Then, with the secondary full, it times refusals one after another and 500 at once, and beside them the same clients at a server
//! that does nothing but say 503: on a busy machine the difference of the two is the relay's, the rest is the machine's. Exit code 1
//! if a bound of the configuration was passed; a slow machine is no failure.

use std::fmt;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use rubicon::clock::UnixMillis;
use rubicon::config::{self, Sources};
use rubicon::mock::{Answer, MockProvider, Rule, Script, chat};
use rubicon::serve::Server;
use tokio::net::TcpListener;
use tokio::time::{Instant, sleep, timeout};

/// What to do.
#[derive(Clone, Debug, Parser)]
#[command(
    about = "500 clients against a dead primary with a capped secondary: attempts, concurrency, times of refusals"
)]
struct Options {
    /// Clients, each with one request at a time
    #[arg(long, default_value_t = 500)]
    clients: u64,
    /// Requests of each
    #[arg(long, default_value_t = 6)]
    rounds: u64,
    /// `failover_limits.concurrency` of the secondary
    #[arg(long, default_value_t = 20)]
    cap: u64,
    /// Refusals timed one after another
    #[arg(long, default_value_t = 500)]
    alone: u64,
}

/// `server.retry.share`.
const SHARE: f64 = 0.2;

/// Connections of the clients, HTTP/2: with a socket each it would be about the machine's limits.
const CONNECTIONS: usize = 8;

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);

const BODY: &str = r#"{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"}]}"#;

/// What one request came to.
#[derive(Clone, Copy, Debug)]
struct Asked {
    status: u16,
    attempts: u64,
    took: Duration,
}

/// Times, sorted.
struct Times(Vec<Duration>);

impl Times {
    fn of(asked: impl Iterator<Item = Asked>) -> Self {
        let mut times: Vec<Duration> = asked.map(|asked| asked.took).collect();
        times.sort_unstable();
        Self(times)
    }

    fn at(&self, percent: usize) -> Duration {
        let last = self.0.len().saturating_sub(1);
        self.0.get((self.0.len() * percent / 100).min(last)).copied().unwrap_or_default()
    }
}

impl fmt::Display for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |percent| self.at(percent).as_secs_f64() * 1000.0;
        write!(
            f,
            "p50 {:>7.2} ms  p99 {:>7.2} ms  most {:>7.2} ms  ({} refusals)",
            ms(50),
            ms(99),
            ms(100),
            self.0.len()
        )
    }
}

/// Clients that neither retry nor follow.
fn clients() -> Result<Vec<reqwest::Client>, reqwest::Error> {
    let one = || reqwest::Client::builder().no_proxy().retry(reqwest::retry::never()).http2_prior_knowledge().build();
    (0..CONNECTIONS).map(|_| one()).collect()
}

async fn ask(client: reqwest::Client, url: String) -> Result<Asked, String> {
    let began = Instant::now();
    let sent = client.post(url).header("content-type", "application/json").body(BODY).send();
    let response = timeout(PATIENCE, sent).await.map_err(|_| "no head in time")?.map_err(|error| error.to_string())?;
    let status = response.status().as_u16();
    let attempts = response.headers().get("rubicon-attempts").and_then(|value| value.to_str().ok()?.parse().ok());
    let _ = timeout(PATIENCE, response.bytes()).await.map_err(|_| "no end in time")?;
    Ok(Asked { status, attempts: attempts.unwrap_or(0), took: began.elapsed() })
}

/// One request of every client, all at once.
async fn round(options: &Options, clients: &[reqwest::Client], url: &str) -> Result<Vec<Asked>, String> {
    let of = |n| usize::try_from(n).ok().and_then(|n: usize| clients.get(n % clients.len().max(1)).cloned());
    let asked: Vec<_> =
        (0..options.clients).filter_map(of).map(|client| tokio::spawn(ask(client, url.to_owned()))).collect();
    let mut all = Vec::new();
    for one in asked {
        all.push(one.await.map_err(|error| error.to_string())??);
    }
    Ok(all)
}

/// The relay and its two providers.
struct World {
    relay: Server,
    a: MockProvider,
    b: MockProvider,
}

impl World {
    /// `b` answers with `answer`.
    async fn start(options: &Options, answer: Answer) -> Result<Self, String> {
        let start = async |script| MockProvider::start(script).await.map_err(|error| error.to_string());
        let error = serde_json::json!({ "error": { "message": "The engine is currently overloaded", "type": "overloaded_error",
            "param": null, "code": null } });
        let dead = Answer::new().delay_ms(20).then(Answer::json_error(503, error));
        let a = start(Script::default().rule(Rule::new("a").answer(dead))).await?;
        let b = start(Script::default().rule(Rule::new("b").answer(answer))).await?;
        let mut text = format!(
            "[server]\nlisten = \"127.0.0.1:0\"\nretry = {{ share = {SHARE}, min_per_second = 0 }}\n[log]\nevents = \"off\"\n"
        );
        let limits = format!("failover_limits = {{ concurrency = {} }}", options.cap);
        let breaker = "breaker = { failures = 10, cooldown_ms = 100 }".to_owned();
        for (name, base, lines) in [("a", a.base_url(), breaker), ("b", b.base_url(), limits)] {
            text += &format!(
                "[provider.{name}]\nkind = \"openai-compatible\"\nbase_url = \"{base}/v1\"\nterminal = \"strict\"\n\
                 [route.{name}]\nprovider = \"{name}\"\ncapabilities = [\"text\"]\n\
                 verified = {{ on = 2026-01-01, by = \"outage\" }}\n{lines}\n"
            );
        }
        text += "[workflow.w]\nprimary = \"a\"\nequivalents = [\"b\"]\nfailover = { enabled = true }\n\
                 [[approval]]\nworkflow = \"w\"\nroute = \"b\"\npurpose = \"failover\"\nby = \"outage\"\n";
        let sources = Sources {
            folder: std::path::Path::new(""),
            env: &|_| None,
            read: &|_| Err(std::io::ErrorKind::NotFound.into()),
            now: UnixMillis::now(),
            terminal: false,
        };
        let loaded = config::parse(&text, "outage", &sources).map_err(|problems| format!("{problems:?}"))?;
        let relay = Server::start(loaded.settings).await.map_err(|error| error.to_string())?;
        Ok(Self { relay, a, b })
    }

    fn url(&self) -> String {
        format!("http://{}/v1/chat/completions", self.relay.address())
    }
}

/// A server that reads a request and says 503: what a refusal costs on this machine with no relay in it.
async fn reference() -> Result<String, String> {
    let listener = TcpListener::bind("127.0.0.1:0").await.map_err(|error| error.to_string())?;
    let address = listener.local_addr().map_err(|error| error.to_string())?;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let service = hyper::service::service_fn(async |request: http::Request<hyper::body::Incoming>| {
                let _ = http_body_util::BodyExt::collect(request.into_body()).await;
                let mut response = http::Response::new(http_body_util::Full::new(bytes::Bytes::from_static(b"{}")));
                *response.status_mut() = http::StatusCode::SERVICE_UNAVAILABLE;
                Ok::<_, std::convert::Infallible>(response)
            });
            tokio::spawn(async move {
                let executor = hyper_util::rt::TokioExecutor::new();
                let io = hyper_util::rt::TokioIo::new(stream);
                hyper_util::server::conn::auto::Builder::new(executor).serve_connection(io, service).await
            });
        }
    });
    Ok(format!("http://{address}/"))
}

/// The outage itself; returns what must not be.
async fn outage(options: &Options) -> Result<Vec<String>, String> {
    let slow = Answer::sse().step(chat::role()).step(chat::delta("from b")).delay_ms(20);
    let world = World::start(options, slow.step(chat::finish("stop")).step(chat::done())).await?;
    let clients = clients().map_err(|error| error.to_string())?;
    let (mut all, mut probes) = (Vec::new(), 0);
    for number in 0..options.rounds {
        all.extend(round(options, &clients, &world.url()).await?);
        if number > 0 {
            probes = probes.max(world.a.most_answering());
        }
        world.a.reset();
    }
    let requests = options.clients * options.rounds;
    let attempts: u64 = all.iter().map(|asked| asked.attempts).sum();
    let served = all.iter().filter(|asked| asked.status == 200).count();
    let refused = Times::of(all.iter().copied().filter(|asked| asked.status != 200 && asked.attempts == 0));
    #[allow(clippy::cast_precision_loss, reason = "for people")]
    let ratio = attempts as f64 / requests as f64;
    println!(
        "outage: {requests} requests of {} clients, {} at a time; {served} served",
        options.clients, options.clients
    );
    println!("  attempts a request      {ratio:.3} (bound {:.1})", 1.0 + SHARE);
    println!("  most at the secondary   {} (bound {})", world.b.most_answering(), options.cap);
    println!("  most probes at once     {probes} (bound 1)");
    println!("  refused without a call  {refused}");
    let mut bad = Vec::new();
    if ratio > 1.0 + SHARE {
        bad.push(format!("{ratio:.3} attempts a request"));
    }
    if world.b.most_answering() > options.cap {
        bad.push(format!("{} at once at the secondary", world.b.most_answering()));
    }
    if probes > 1 {
        bad.push(format!("{probes} probes at once"));
    }
    world.relay.shutdown().await;
    Ok(bad)
}

/// Refusals with the secondary full, beside a bare 503; each way in turns, so that both meet the same machine.
async fn refusals(options: &Options) -> Result<(), String> {
    let long = Answer::sse().step(chat::role()).step(chat::delta("from b")).gate("end");
    let world = World::start(options, long.step(chat::finish("stop")).step(chat::done())).await?;
    let clients = clients().map_err(|error| error.to_string())?;
    let Some(first) = clients.first().cloned() else { return Err("no client".to_owned()) };
    let url = world.url();
    let held: Vec<_> = clients
        .iter()
        .cycle()
        .zip(0..options.cap * 3)
        .map(|(client, _)| tokio::spawn(ask(client.clone(), url.clone())))
        .collect();
    let full = async {
        while world.b.stats().at_gates < options.cap {
            // Those that were refused while the breaker still counted are made up for.
            tokio::spawn(ask(first.clone(), url.clone()));
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, full).await.map_err(|_| "the secondary does not fill up")?;
    let bare = reference().await?;
    let is_shed = |asked: &Asked| asked.status != 200 && asked.attempts == 0;
    let (mut alone, mut alone_bare, mut crowd, mut crowd_bare) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..options.alone {
        alone.push(ask(first.clone(), url.clone()).await?);
        alone_bare.push(ask(first.clone(), bare.clone()).await?);
    }
    for _ in 0..options.rounds {
        crowd.extend(round(options, &clients, &url).await?);
        crowd_bare.extend(round(options, &clients, &bare).await?);
    }
    for (what, relay, bare) in [("one after another", alone, alone_bare), ("all at once", crowd, crowd_bare)] {
        let (relay, bare) = (Times::of(relay.into_iter().filter(is_shed)), Times::of(bare.into_iter()));
        let more = |percent| relay.at(percent).as_secs_f64() / bare.at(percent).as_secs_f64();
        println!("refusals, {what}:");
        println!("  relay      {relay}");
        println!("  bare 503   {bare}");
        println!("  ratio      p50 {:>7.2}     p99 {:>7.2}", more(50), more(99));
    }
    world.b.open_gate("end", usize::try_from(options.cap * 4).unwrap_or(usize::MAX));
    for one in held {
        one.abort();
    }
    world.relay.shutdown().await;
    Ok(())
}

#[tokio::main]
async fn main() -> ExitCode {
    let options = Options::parse();
    let run = async {
        let bad = outage(&options).await?;
        refusals(&options).await?;
        Ok::<_, String>(bad)
    };
    match run.await {
        Ok(bad) if bad.is_empty() => ExitCode::SUCCESS,
        Ok(bad) => {
            println!("not ok: {}", bad.join(", "));
            ExitCode::FAILURE
        }
        Err(problem) => {
            eprintln!("outage: {problem}");
            ExitCode::FAILURE
        }
    }
}
