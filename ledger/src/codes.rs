//! Numbers for the words of a record, as they stand in stored rows and in hashed bytes. Never renumbered; a new word gets a new number.

use crate::record::{Effect, Failure, Flag, Impact, Outcome, Reconciliation, State};

/// A word with a number.
pub(crate) trait Code: Copy + 'static {
    /// The words, each with its number.
    const ALL: &'static [(Self, u8)];

    /// Its number.
    fn code(self) -> u8;

    /// The word with this number.
    fn of(code: u8) -> Option<Self> {
        Self::ALL.iter().find(|(_, number)| *number == code).map(|(word, _)| *word)
    }
}

macro_rules! codes {
    ($($name:ident { $($word:ident = $code:literal),+ })+) => {
        $(impl Code for $name {
            const ALL: &'static [(Self, u8)] = &[$((Self::$word, $code)),+];

            fn code(self) -> u8 {
                match self {
                    $(Self::$word => $code),+
                }
            }
        })+
    };
}

codes! {
    State { Planned = 1, Started = 2, Succeeded = 3, Failed = 4, Unknown = 5 }
    Failure { NotExecuted = 1, ExecutedError = 2 }
    Reconciliation { None = 1, Probing = 2, NeedsOperator = 3, PendingSecond = 4, Resolved = 5 }
    Effect { ReadOnly = 1, Write = 2 }
    Impact { Normal = 1, High = 2 }
    Flag {
        Unplanned = 1,
        ChangedArguments = 2,
        PlanIncomplete = 3,
        RootAmbiguous = 4,
        Superseded = 5,
        DoubleEffectSuspected = 6
    }
    Outcome { Succeeded = 1, NotExecuted = 2, ExecutedError = 3, Unknown = 4 }
}
