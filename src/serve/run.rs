//! `rubicon serve`: runs until a signal, then shuts down. A second signal ends the process at once.

use std::io;
use std::net::SocketAddr;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::config::settings::Settings;

use super::Server;

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

/// Serves until SIGTERM or SIGINT. `started` is told the addresses once it listens: the data plane's, and the admin side's if it is on.
///
/// # Errors
/// When the listener can't be bound, or signals can't be heard.
pub async fn run(settings: Settings, started: impl FnOnce(SocketAddr, Option<SocketAddr>)) -> io::Result<Ended> {
    let mut signals = Signals::listen()?;
    let server = Server::start(settings).await?;
    tracing::info!(address = %server.address(), "listening");
    started(server.address(), server.admin_address());
    signals.next().await;
    tokio::select! {
        () = server.shutdown() => Ok(Ended::Gracefully),
        () = signals.next() => Ok(Ended::AtOnce),
    }
}
