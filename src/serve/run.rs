//! `rubicon serve`: runs until a signal, then shuts down. A second signal ends the process at once. SIGHUP loads the configuration
//! anew ([`super::reload`]).

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::config::settings::Settings;

use super::Server;
use super::reload::Reload;

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// All phases of the shutdown were gone through.
    Gracefully,
    /// A second signal cut the shutdown short.
    AtOnce,
}

struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn listen() -> io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// A request in flight has two sockets, the client's and the provider's; the rest is for listeners, files and idle connections.
const DESCRIPTORS_BESIDE: u64 = 512;

/// Raises the soft limit of open descriptors to what `max_in_flight` may need (systems start processes with 1024), as far as the hard
/// limit lets it, and says so where that is too little: then connections would wait unaccepted before anything is shed.
fn enough_descriptors(max_in_flight: usize) {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let needed = u64::try_from(max_in_flight).unwrap_or(u64::MAX).saturating_mul(2).saturating_add(DESCRIPTORS_BESIDE);
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current.is_none_or(|current| current >= needed) {
        return;
    }
    let wanted = maximum.map_or(needed, |maximum| maximum.min(needed));
    let raised = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum }).is_ok();
    if !raised || wanted < needed {
        let limit = if raised { Some(wanted) } else { current };
        tracing::warn!(
            limit,
            needed,
            "fewer descriptors than `max_in_flight` may need: raise the limit, or lower the key"
        );
    }
}

/// Serves until SIGTERM or SIGINT, and loads anew as `reload` says; not during a shutdown. `started` is told the addresses once it
/// listens: the data plane's, and the admin side's if it is on.
///
/// # Errors
/// When the listener can't be bound, or signals can't be heard.
pub async fn run(
    settings: Settings,
    reload: Reload,
    started: impl FnOnce(SocketAddr, Option<SocketAddr>),
) -> io::Result<Ended> {
    // Heard from here on: one that comes before the relay listens would end the process.
    let (mut signals, hangups) = (Signals::listen()?, signal(SignalKind::hangup())?);
    enough_descriptors(settings.server.max_in_flight);
    let server = Server::start(settings).await?;
    tracing::info!(address = %server.address(), "listening");
    started(server.address(), server.admin_address());
    tokio::select! {
        () = signals.next() => {}
        () = reload.run(Arc::clone(server.app()), hangups) => signals.next().await,
    }
    tokio::select! {
        () = server.shutdown() => Ok(Ended::Gracefully),
        () = signals.next() => Ok(Ended::AtOnce),
    }
}
