//! The `ledgerstone` command.
fn main() {}
