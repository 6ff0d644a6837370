//! All rules of an execution's life: one command against what is there makes what is to be written, and the answer. Pure.

use crate::command::{Command, Env, Reply};
use crate::store::{StoreError, View, Write};

/// What a command comes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// To be persisted, all or nothing, before the answer is given.
    pub writes: Vec<Write>,
    /// The answer.
    pub reply: Reply,
}

/// Decides.
///
/// # Errors
/// When the view cannot be read.
pub fn decide(command: &Command, view: &dyn View, env: &Env) -> Result<Decision, StoreError> {
    let _ = (command, view, env);
    Err(StoreError::Io("the machine is not here yet".to_owned()))
}
