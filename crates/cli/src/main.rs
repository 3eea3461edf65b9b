//! The `ledgerstone` command; everything is in the library beside it, where it can be tested.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    ledgerstone_cli::main()
}
