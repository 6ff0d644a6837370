//! Parse, load, run, exit code.
fn main() {}
