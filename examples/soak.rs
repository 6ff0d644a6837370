//! Streams that are left or cut, by the ten thousand: does anything stay behind?
//!
//! `cargo run --release --example soak -- --streams 100000` starts two scripted providers and the relay in this process, lets
//! clients open streams and leave at random points in random ways (before the head, while held, after output; by close,
//! half-close, reset, and over HTTP/2 by resetting the stream), cuts some from the provider's side, and prints memory, descriptors,
//! tasks and permits at the start, after the warm-up, on the way and at the end. Exit code 1 if memory grew over the bound after the
//! warm-up, if anything else is left, or if a stream ended as it must not.
//!
//! The figures are of the whole process: relay, providers and clients together. The relay remembers up to 20,000 ended operations
//! for 15 minutes ([`rubicon::relay::operations::OPERATIONS_MAX`]), so the warm-up is at least that many streams where there are enough.
//! `tests/load/bounds.rs` runs a few hundred of them.

use std::fmt;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use clap::Parser;
use rubicon::clock::UnixMillis;
use rubicon::config::{self, Sources};
use rubicon::mock::{Answer, MockProvider, Rule, Script, chat, chat_text};
use rubicon::relay::operations::OPERATIONS_MAX;
use rubicon::serve::Server;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

/// Longer than anything here takes: what is not over by then hangs.
const PATIENCE: Duration = Duration::from_secs(30);

/// Connections a route may keep idle, which are no leak.
const KEPT_CONNECTIONS_MAX: u64 = 256;

/// What to do.
#[derive(Clone, Debug, Parser)]
#[command(about = "Opens streams and leaves them, and looks for what stays behind")]
pub struct Options {
    /// Streams in all, the warm-up included
    #[arg(long, default_value_t = 100_000)]
    pub streams: u64,
    /// Streams at once
    #[arg(long, default_value_t = 64)]
    pub concurrency: u64,
    /// Which random numbers
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// How much resident memory may grow after the warm-up, MiB (the allocator's fragments settle within some 100,000 streams)
    #[arg(long, default_value_t = 24)]
    pub bound_mib: u64,
}

/// How things stand.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sample {
    /// Streams so far.
    pub streams: u64,
    /// Resident memory, bytes.
    pub rss: u64,
    /// Open descriptors.
    pub fds: u64,
    /// Tasks of the runtime.
    pub tasks: u64,
    /// Permits that are taken.
    pub permits: u64,
    /// Connections between relay and providers.
    pub connections: u64,
}

/// What came of it.
#[derive(Debug)]
pub struct Report {
    /// Before the first stream.
    pub start: Sample,
    /// After the warm-up.
    pub warm: Sample,
    /// When all was over.
    pub end: Sample,
    /// How many streams ended in which way.
    pub ends: Vec<(&'static str, u64)>,
    /// What must not be, of the relay alone.
    pub leaks: Vec<String>,
    /// What must not be, of the process: means nothing where other things run in it.
    pub process_leaks: Vec<String>,
}

impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:>7} streams  RSS {:>6.1} MiB  fds {:>4}  tasks {:>4}  permits taken {:>3}  upstream connections {:>3}",
            self.streams,
            mib(self.rss),
            self.fds,
            self.tasks,
            self.permits,
            self.connections
        )
    }
}

#[allow(clippy::cast_precision_loss, reason = "for people")]
fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// The relay, its providers, and the ends of streams.
struct World {
    relay: Server,
    a: MockProvider,
    b: MockProvider,
    begun: AtomicU64,
    ends: [AtomicU64; ENDS.len()],
}

/// How a stream may end for its client.
const ENDS: [&str; 5] = ["left", "left, and the relay closed", "whole", "interrupted", "WRONG"];
const LEFT: usize = 0;
const CLOSED: usize = 1;
const WHOLE: usize = 2;
const INTERRUPTED: usize = 3;
const WRONG: usize = 4;

/// What the primary does, by the model's name.
const MODELS: [&str; 6] = ["no-head", "held", "shown", "cut", "cut-held", "whole"];

/// Models whose streams never end by themselves.
const ENDLESS: usize = 3;

fn primary() -> Script {
    let (held, shown) = (Answer::sse().step(chat::role()), Answer::sse().step(chat::role()).step(chat::delta("shown")));
    let answers = [
        Answer::new().hang(),
        held.clone().hang(),
        shown.clone().hang(),
        // A moment for the output to travel: a reset may overtake it.
        shown.delay_ms(5).abort_rst(),
        held.abort_rst(),
        chat_text(&["all", " of", " it"]),
    ];
    let rules = MODELS.iter().zip(answers).map(|(model, answer)| Rule::new(model).model(model).answer(answer));
    rules.fold(Script::default(), Script::rule)
}

impl World {
    async fn start() -> Result<Self, String> {
        let start = async |script| MockProvider::start(script).await.map_err(|error| error.to_string());
        let (a, b) = (start(primary()).await?, start(Script::one(chat_text(&["from b"]))).await?);
        // Events are made and written, only not into this program's own output.
        let events = std::env::temp_dir().join(format!("rubicon-soak-{}.jsonl", std::process::id()));
        let mut text = format!("[server]\nlisten = \"127.0.0.1:0\"\n[log]\nevents = \"file:{}\"\n", events.display());
        for (name, base) in [("a", a.base_url()), ("b", b.base_url())] {
            text += &format!(
                "[provider.{name}]\nkind = \"openai-compatible\"\nbase_url = \"{base}/v1\"\nterminal = \"strict\"\n\
                 [route.{name}]\nprovider = \"{name}\"\ncapabilities = [\"text\"]\n\
                 verified = {{ on = 2026-01-01, by = \"soak\" }}\n"
            );
        }
        text += "[workflow.w]\nprimary = \"a\"\nequivalents = [\"b\"]\nfailover = { enabled = true }\n\
                 [[approval]]\nworkflow = \"w\"\nroute = \"b\"\npurpose = \"failover\"\nby = \"soak\"\n";
        let sources = Sources {
            folder: std::path::Path::new(""),
            env: &|_| None,
            read: &|_| Err(std::io::ErrorKind::NotFound.into()),
            now: UnixMillis::now(),
            terminal: false,
        };
        let loaded = config::parse(&text, "soak", &sources).map_err(|problems| format!("{problems:?}"))?;
        let relay = Server::start(loaded.settings).await.map_err(|error| error.to_string())?;
        // It is open: what is written goes with the process.
        let _ = std::fs::remove_file(&events);
        Ok(Self { relay, a, b, begun: AtomicU64::new(0), ends: Default::default() })
    }

    fn sample(&self) -> Sample {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let rss = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix("kB"));
        let count = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
        Sample {
            streams: self.begun.load(Ordering::Relaxed),
            rss: rss.and_then(|kib| kib.trim().parse::<u64>().ok()).unwrap_or(0) * 1024,
            fds: count(std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count)),
            tasks: count(tokio::runtime::Handle::current().metrics().num_alive_tasks()),
            permits: count(self.relay.app().admission.in_flight()),
            connections: self.a.active_connections() + self.b.active_connections(),
        }
    }

    /// Waits until nothing is going on any more; what still is after [`PATIENCE`] is a leak.
    async fn settled(&self, before: &Sample) -> Sample {
        let quiet = async {
            loop {
                let now = self.sample();
                let extra = now.tasks.saturating_sub(before.tasks);
                if now.permits == 0 && self.relay.app().tasks.is_empty() && extra <= tasks_of(now.connections) {
                    return;
                }
                sleep(Duration::from_millis(20)).await;
            }
        };
        let _ = timeout(PATIENCE, quiet).await;
        self.sample()
    }
}

/// A kept connection has a task at either end and may have one that ends it in time.
fn tasks_of(connections: u64) -> u64 {
    3 * connections + 8
}

/// A small generator: which numbers matters little, that they come again with the same seed does.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % bound
    }

    fn pause(&mut self) -> Duration {
        Duration::from_micros(self.below(3000))
    }
}

fn body(model: &str) -> String {
    format!("{{\"model\":\"{model}\",\"stream\":true,\"messages\":[{{\"role\":\"user\",\"content\":\"hi\"}}]}}")
}

/// What a stream that was read to its end must have been.
fn judge(model: usize, seen: &str, clean: bool) -> usize {
    match (MODELS.get(model), clean) {
        (Some(&"cut"), false) if seen.contains("shown") && seen.contains("\"interrupted\"") => INTERRUPTED,
        (Some(&"cut-held"), true) if seen.contains("from b") && seen.contains("[DONE]") => WHOLE,
        (Some(&"whole"), true) if seen.contains("[DONE]") => WHOLE,
        _ => WRONG,
    }
}

async fn over_http1(world: &World, random: &mut Random, model: usize) -> std::io::Result<usize> {
    let mut stream = TcpStream::connect(world.relay.address()).await?;
    let body = body(MODELS.get(model).copied().unwrap_or_default());
    let length = body.len();
    let request =
        format!("POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: {length}\r\n\r\n{body}");
    let mut seen = Vec::with_capacity(4096);
    let mut way = random.below(3);
    let whole = model >= ENDLESS && random.below(2) == 0;
    match random.below(8) {
        _ if whole => {
            stream.write_all(request.replacen("\r\n\r\n", "\r\nconnection: close\r\n\r\n", 1).as_bytes()).await?;
            let read = timeout(PATIENCE, stream.read_to_end(&mut seen)).await;
            let seen = String::from_utf8_lossy(&seen);
            return Ok(read.map_or(WRONG, |read| judge(model, &seen, read.is_ok() && seen.ends_with("\r\n0\r\n\r\n"))));
        }
        0 => {
            // In the middle of its own request.
            let cut = usize::try_from(random.below(request.len() as u64)).unwrap_or(0);
            stream.write_all(request.as_bytes().get(..cut).unwrap_or_default()).await?;
            way = random.below(2);
        }
        1 => stream.write_all(request.as_bytes()).await?,
        2 if model >= ENDLESS - 1 => {
            stream.write_all(request.as_bytes()).await?;
            let _ = timeout(PATIENCE, stream.read_buf(&mut seen)).await;
        }
        _ => {
            stream.write_all(request.as_bytes()).await?;
            let _ = timeout(random.pause(), stream.read_buf(&mut seen)).await;
        }
    }
    match way {
        0 => Ok(LEFT),
        1 => stream.set_zero_linger().map(|()| LEFT),
        _ => {
            stream.shutdown().await?;
            // The relay notices, and ends its side as well.
            let ended = timeout(PATIENCE, stream.read_to_end(&mut seen)).await.is_ok();
            Ok(if ended { CLOSED } else { WRONG })
        }
    }
}

async fn over_http2(world: &World, client: &reqwest::Client, random: &mut Random, model: usize) -> usize {
    let body = body(MODELS.get(model).copied().unwrap_or_default());
    let url = format!("http://{}/v1/chat/completions", world.relay.address());
    let sending = client.post(url).header("content-type", "application/json").body(body).send();
    if model >= ENDLESS && random.below(2) == 0 {
        let mut seen = String::new();
        let read = async {
            let mut response = sending.await?;
            while let Some(chunk) = response.chunk().await? {
                seen += &String::from_utf8_lossy(&chunk);
            }
            Ok::<_, reqwest::Error>(())
        };
        let read = timeout(PATIENCE, read).await;
        return read.map_or(WRONG, |read| judge(model, &seen, read.is_ok()));
    }
    if let Ok(Ok(mut response)) = timeout(random.pause(), sending).await {
        let _ = timeout(random.pause(), response.chunk()).await;
    }
    LEFT
}

/// One of the clients that run side by side: takes streams until there are enough.
async fn client(world: Arc<World>, until: u64, seed: u64) {
    let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let http2 = reqwest::Client::builder().no_proxy().http2_prior_knowledge().retry(reqwest::retry::never()).build();
    while world.begun.fetch_add(1, Ordering::Relaxed) < until {
        let model = usize::try_from(random.below(MODELS.len() as u64)).unwrap_or(0);
        let end = match &http2 {
            Ok(http2) if random.below(4) == 0 => over_http2(&world, http2, &mut random, model).await,
            _ => over_http1(&world, &mut random, model).await.unwrap_or(WRONG),
        };
        if let Some(count) = world.ends.get(end) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }
    // The last look found nothing to do.
    world.begun.fetch_sub(1, Ordering::Relaxed);
}

async fn run_until(world: &Arc<World>, options: &Options, until: u64) {
    let clients = (0..options.concurrency).map(|n| {
        let seed = options.seed.wrapping_add(until).wrapping_mul(1_000_003).wrapping_add(n);
        tokio::spawn(client(Arc::clone(world), until, seed))
    });
    for client in clients.collect::<Vec<_>>() {
        // A client that panicked shows in the count of ends.
        let _ = client.await;
    }
}

/// Runs it; `told` gets a line now and then.
///
/// # Errors
/// When nothing could be started.
pub async fn soak(options: &Options, told: &mut dyn FnMut(&str)) -> Result<Report, String> {
    let world = Arc::new(World::start().await?);
    let start = world.sample();
    told(&format!("start    {start}"));
    let forgetful = u64::try_from(OPERATIONS_MAX).unwrap_or(u64::MAX) + 5000;
    let warm_up = forgetful.min(options.streams / 2);
    run_until(&world, options, warm_up).await;
    let warm = world.settled(&start).await;
    told(&format!("warm     {warm}"));
    let steps = 5;
    for step in 1..=steps {
        run_until(&world, options, warm_up + (options.streams - warm_up) * step / steps).await;
        if step < steps {
            told(&format!("         {}", world.sample()));
        }
    }
    let end = world.settled(&start).await;
    told(&format!("end      {end}"));

    let ends: Vec<(&str, u64)> =
        ENDS.into_iter().zip(&world.ends).map(|(what, count)| (what, count.load(Ordering::Relaxed))).collect();
    let (mut leaks, mut process_leaks) = (Vec::new(), Vec::new());
    let mut leak = |bad: bool, what: String| {
        if bad {
            leaks.push(what);
        }
    };
    let wrong = ends.get(WRONG).map_or(0, |(_, count)| *count);
    let counted: u64 = ends.iter().map(|(_, count)| count).sum();
    leak(wrong > 0, format!("{wrong} streams ended as they must not"));
    leak(counted != options.streams, format!("{counted} of {} streams came to an end", options.streams));
    leak(end.permits > 0, format!("{} permits are still taken", end.permits));
    leak(!world.relay.app().tasks.is_empty(), format!("{} tasks of the relay go on", world.relay.app().tasks.len()));
    leak(end.connections > 2 * KEPT_CONNECTIONS_MAX, format!("{} upstream connections are open", end.connections));
    let extra = end.tasks.saturating_sub(start.tasks);
    leak(extra > tasks_of(end.connections), format!("{extra} tasks are left, for {} connections", end.connections));
    let fds = end.fds.saturating_sub(start.fds).saturating_sub(2 * end.connections);
    if fds > 8 {
        process_leaks.push(format!("{fds} descriptors are left beside those of kept connections"));
    }
    let grown = end.rss.saturating_sub(warm.rss);
    if grown > options.bound_mib << 20 {
        process_leaks.push(format!("memory grew by {:.1} MiB after the warm-up", mib(grown)));
    }
    Ok(Report { start, warm, end, ends, leaks, process_leaks })
}

#[tokio::main]
async fn main() -> ExitCode {
    let options = Options::parse();
    let began = Instant::now();
    println!("{} streams, {} at once, seed {}", options.streams, options.concurrency, options.seed);
    let report = match soak(&options, &mut |line| println!("{line}")).await {
        Ok(report) => report,
        Err(problem) => {
            eprintln!("soak: {problem}");
            return ExitCode::FAILURE;
        }
    };
    for (what, count) in &report.ends {
        println!("{count:>9} {what}");
    }
    let grown = (i128::from(report.end.rss) - i128::from(report.warm.rss)) / 1024;
    println!("memory since the warm-up: {grown:+} KiB (bound {} MiB); took {:.0?}", options.bound_mib, began.elapsed());
    let bad: Vec<&String> = report.leaks.iter().chain(&report.process_leaks).collect();
    for what in &bad {
        println!("LEAK: {what}");
    }
    println!("{}", if bad.is_empty() { "ok: nothing is left" } else { "not ok" });
    if bad.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
