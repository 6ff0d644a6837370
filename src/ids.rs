//! Names of things, each its own type, so that a route can never be passed where a workflow is meant.
//!
//! Cheap to clone (`Arc<str>`): they travel with every request. An [`OperationId`] the relay makes itself is unguessable
//! (128 random bits); one the caller chose (`Idempotency-Key`) is taken as it is.

use std::fmt;
use std::sync::Arc;

macro_rules! name_type {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Takes the name as it is; whoever reads it from outside has checked it.
            pub fn new(name: &str) -> Self {
                Self(Arc::from(name))
            }

            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0)
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                s.serialize_str(&self.0)
            }
        }
    };
}

name_type!(
    /// One logical request of the application, whatever it takes to answer it.
    OperationId
);
name_type!(
    /// A `[provider.NAME]`: an account at a vendor's endpoint.
    ProviderId
);
name_type!(
    /// A `[route.NAME]`: provider, model, region and account together.
    RouteId
);
name_type!(
    /// A `[workflow.NAME]`: what the application team owns.
    WorkflowId
);
name_type!(
    /// A `[[client]]`'s name: who calls.
    ClientId
);
name_type!(
    /// Whose data it is; several clients may share one.
    TenantId
);

impl OperationId {
    /// Makes an id from 128 random bits, which the caller draws (pure rooms own no random source).
    pub fn from_random(bits: u128) -> Self {
        Self::new(&format!("op_{bits:032x}"))
    }
}
