//! Identity of tool executions.
