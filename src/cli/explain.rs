//! `rubicon explain`: which routes would serve a request, in what order, and why not the others.
//!
//! Offline from the config and a request file, with nothing closed; with `--url` the living relay is asked, whose kill switches,
//! breakers and limits count. Both make and print the same [`Explanation`].

use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use bytes::Bytes;
use clap::Args;
use serde_json::Value;

use crate::attempt::budget::NEED_WITHOUT_DATA;
use crate::attempt::cost;
use crate::clock::{Instant, UnixMillis};
use crate::config;
use crate::gate::AllOpen;
use crate::plan::explain::{Ask, Explanation, Judges, explain};
use crate::plan::{NobodyKnown, World};

use super::operator::{self, Client, Connect, Failure};

const ABOUT: &str = "\
Says which routes may serve a request of a workflow, in the order in which they would be tried, and
every reason against the others, by the names of src/plan/refusals.md. Reads the config only and
calls nobody: as if no route were killed, tripped or full. With --url the running relay is asked
through its admin side (`GET /admin/v1/explain`), and what is closed there counts.";

const CODES: &str = "\
Exit codes: 0 a route would be called, 1 none is eligible or affordable, or the config or the request
has errors.";

/// The largest request read: the default of `[server] max_body_bytes`.
const REQUEST_BYTES_MAX: u64 = 32 << 20;

/// Arguments of `rubicon explain`.
#[derive(Debug, Args)]
#[command(about = "Say which routes would serve a request, in what order, and why not the others")]
#[command(long_about = ABOUT, after_long_help = CODES)]
pub struct ExplainArgs {
    /// The config file
    #[arg(short, long, value_name = "FILE", default_value = "rubicon.toml")]
    pub config: PathBuf,
    /// The workflow [default: the only one, or what a `Rubicon-Workflow` header names]
    #[arg(short, long, value_name = "NAME")]
    pub workflow: Option<String>,
    /// A request body as an application sends it, `-` for standard input [default: a streamed line of text]
    #[arg(short, long, value_name = "FILE")]
    pub request: Option<PathBuf>,
    /// The request's dialect: chat-completions, responses, anthropic-messages [default: the primary's first]
    #[arg(short, long, value_name = "DIALECT")]
    pub dialect: Option<String>,
    /// A request header, `Name: value`; may be given again
    #[arg(short = 'H', long = "header", value_name = "K: V")]
    pub headers: Vec<String>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
    /// Ask the running relay whose admin side is at this address, instead of reading the config
    #[arg(long, value_name = "URL", conflicts_with = "config")]
    pub url: Option<String>,
    /// With --url, the operator's token: env:NAME or file:PATH
    #[arg(long, value_name = "REF", default_value = "env:RUBICON_TOKEN", requires = "url")]
    pub token: String,
}

/// Explains to stdout.
pub async fn run(args: &ExplainArgs) -> ExitCode {
    let (mut out, mut errors) = (io::stdout(), io::stderr());
    if let Some(url) = &args.url {
        let answer = living(args, url).await;
        let none = answer.as_ref().is_ok_and(|answer| answer.get("eligible") == Some(&Value::Bool(false)));
        let code = operator::told("explain", args.json, answer, |answer| {
            // What an older or newer relay answers is shown as it is.
            serde_json::from_value::<Explanation>(answer.clone())
                .map_or_else(|_| format!("{answer:#}\n"), |explanation| explanation.to_string())
        });
        return if none { ExitCode::FAILURE } else { code };
    }
    offline(args, &super::environment, UnixMillis::now(), &mut io::stdin(), (&mut out, &mut errors))
}

/// Asks the running relay.
async fn living(args: &ExplainArgs, url: &str) -> Result<Value, Failure> {
    let asked = ask(args, &mut io::stdin()).map_err(Failure::Usage)?;
    let connect = Connect { url: Some(url.to_owned()), config: None, token: args.token.clone(), json: args.json };
    let headers = asked.headers.join("\n");
    let pairs = [
        ("workflow", asked.workflow.as_deref()),
        ("dialect", asked.dialect.as_deref()),
        ("header", Some(headers.as_str()).filter(|headers| !headers.is_empty())),
    ];
    let mut path = String::from("/admin/v1/explain");
    for (index, (name, value)) in pairs.into_iter().filter_map(|(name, value)| Some((name, value?))).enumerate() {
        let _ = write!(path, "{}{name}={}", if index == 0 { '?' } else { '&' }, encoded(value));
    }
    Ok(Client::new(&connect)?.get_with(&path, asked.request.unwrap_or_default()).await?.body)
}

/// Percent-encoded but for what is unreserved (RFC 3986, 2.3).
fn encoded(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

/// Explains, offline. `input` is read where the request is `-`.
pub fn offline(
    args: &ExplainArgs,
    env: &dyn Fn(&str) -> Option<String>,
    now: UnixMillis,
    input: &mut dyn Read,
    (out, errors): (&mut dyn Write, &mut dyn Write),
) -> ExitCode {
    // Nobody can be told that an output is gone.
    let mut complain = |text: &str| drop(writeln!(errors, "rubicon explain: {text}"));
    let loaded = match config::load(&args.config, env, now) {
        Ok(loaded) => loaded,
        Err(problems) => {
            problems.iter().for_each(|problem| complain(&problem.to_string()));
            return ExitCode::FAILURE;
        }
    };
    let ask = match ask(args, input) {
        Ok(ask) => ask,
        Err(error) => {
            complain(&error);
            return ExitCode::FAILURE;
        }
    };
    let approvals = &loaded.settings.approvals;
    let world = World { approvals, gate: &AllOpen, now, at: Instant::now(), draw: 0, issuers: &NobodyKnown };
    let figures = |route: &config::settings::RouteSettings, contract: &crate::contract::Contract| {
        (NEED_WITHOUT_DATA, cost::estimate(route, &contract.facts))
    };
    let judges = Judges { figures: &figures, no_call: &crate::relay::explain::no_call };
    match explain(&loaded.settings, &ask, &world, judges) {
        Ok(explanation) => {
            // A reader that went away changes nothing about the answer.
            let _ = if args.json {
                serde_json::to_writer(&mut *out, &explanation).map_err(io::Error::from).and_then(|()| writeln!(out))
            } else {
                write!(out, "{explanation}")
            };
            if explanation.eligible { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            complain(&format!("{} [{}]", error.message, error.code));
            ExitCode::FAILURE
        }
    }
}

/// What the arguments ask.
///
/// # Errors
/// A sentence, when the request cannot be read.
pub fn ask(args: &ExplainArgs, input: &mut dyn Read) -> Result<Ask, String> {
    let request = match &args.request {
        None => None,
        Some(path) if path == Path::new("-") => Some(whole(input, "standard input")?),
        Some(path) => {
            let shown = path.display().to_string();
            let mut file = std::fs::File::open(path).map_err(|error| format!("{shown}: {error}"))?;
            Some(whole(&mut file, &shown)?)
        }
    };
    Ok(Ask { workflow: args.workflow.clone(), dialect: args.dialect.clone(), headers: args.headers.clone(), request })
}

fn whole(from: &mut dyn Read, name: &str) -> Result<Bytes, String> {
    let mut bytes = Vec::new();
    let read = from.take(REQUEST_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(|error| format!("{name}: {error}"))?;
    if read as u64 > REQUEST_BYTES_MAX {
        return Err(format!("{name}: over {REQUEST_BYTES_MAX} bytes"));
    }
    Ok(Bytes::from(bytes))
}

#[cfg(test)]
mod tests;
