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
