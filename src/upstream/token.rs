//! A provider's token file is looked at again, beside the runtime's own threads.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::Instant;
use crate::config::settings::ProviderSettings;

/// How long an attempt waits for a look at a token's file. A local file is read in microseconds; a file system that hangs must
/// not hang requests, and the last good token is likely still good.
const LOOK_MAX: Duration = Duration::from_millis(250);

/// Looks at the token's file where that is due. Never fails; at most [`LOOK_MAX`] late. One look at a time is begun each second, by
/// one of the requests.
pub async fn refresh(provider: &ProviderSettings) {
    let Some(file) = provider.entra_token.as_ref().filter(|file| file.is_due(Instant::now())) else { return };
    let file = Arc::clone(file);
    let look = tokio::task::spawn_blocking(move || file.look());
    if tokio::time::timeout(LOOK_MAX, look).await.is_err() {
        tracing::warn!(provider = %provider.name, "the file of an entra_token takes long to read");
    }
}
