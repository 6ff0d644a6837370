//! Wait hints.
