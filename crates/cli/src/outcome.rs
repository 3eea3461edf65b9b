//! How it went: an exit code, and for an error a sentence on what to do about it.

use std::io::ErrorKind;
use std::process::ExitCode;

use ledgerstone::Error;

use crate::interrupt::{self, Interrupted};
use crate::output::say_error;

/// What a command that ran has to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Exit code 0.
    Done,
    /// Exit code 1: a key is not there, a row was left out, a check failed. The command has said which.
    Not,
}

/// Prints an error with its causes and its advice, and turns the outcome into the exit code.
pub(crate) fn report(result: anyhow::Result<Outcome>) -> ExitCode {
    let error = match result {
        Ok(Outcome::Done) => return ExitCode::SUCCESS,
        Ok(Outcome::Not) => return ExitCode::from(1),
        Err(error) => error,
    };
    if is_closed_pipe(&error) {
        return ExitCode::SUCCESS; // The reader of our output has seen enough.
    }
    say_error(&message(&error), kind(&error), advice(&error));
    ExitCode::from(if error.downcast_ref::<Interrupted>().is_some() { interrupt::EXIT_CODE } else { 2 })
}

/// One word for an error, for programs.
pub(crate) fn kind(error: &anyhow::Error) -> &'static str {
    let of = |cause: &(dyn std::error::Error + 'static)| {
        if cause.is::<Interrupted>() {
            return Some("interrupted");
        }
        match cause.downcast_ref::<Error>() {
            Some(error) => Some(error_kind(error)),
            None => cause.is::<std::io::Error>().then_some("io"),
        }
    };
    error.chain().find_map(of).unwrap_or("refused")
}

/// One word for an error of the library, for programs and scripts.
pub(crate) fn error_kind(error: &Error) -> &'static str {
    match error {
        Error::Deadlock { .. } => "deadlock",
        Error::LockTimeout { .. } => "lock-timeout",
        Error::LockRefused { .. } => "lock-refused",
        Error::SnapshotConflict { .. } => "snapshot-conflict",
        Error::SnapshotTooOld { .. } => "snapshot-too-old",
        Error::LockTableFull { .. } => "lock-table-full",
        Error::Finished => "finished",
        Error::KeyTooLarge { .. } | Error::ValueTooLarge { .. } => "too-large",
        Error::BadTableName { .. } => "bad-name",
        Error::NoSuchTable(_) => "no-such-table",
        Error::TableExists(_) => "table-exists",
        Error::KeyExists { .. } => "key-exists",
        Error::IndexKeyExists { .. } => "index-key-exists",
        Error::NoSuchIndex { .. } => "no-such-index",
        Error::IndexExists { .. } => "index-exists",
        Error::NotPrepared { .. } => "not-prepared",
        Error::NoSavepoint => "no-savepoint",
        Error::ReadOnly { .. } => "read-only",
        Error::Permission { .. } => "permission",
        Error::Failed { .. } => "failed",
        Error::Corrupt { .. } => "corrupt",
        Error::AlreadyOpen { .. } => "already-open",
        Error::CannotShare { .. } => "cannot-share",
        Error::NotAnEnvironment { .. } => "not-an-environment",
        Error::Disk(_) => "io",
        _ => "refused",
    }
}

/// What an error says, with its causes, but for those that it has said itself.
pub(crate) fn message(error: &anyhow::Error) -> String {
    let mut said = String::new();
    for cause in error.chain().map(|cause| without_numbers(&cause.to_string())) {
        if !said.contains(&cause) {
            said += if said.is_empty() { "" } else { ": " };
            said += &cause;
        }
    }
    said
}

/// A message without the system's numbers of errors: the words before each say the same.
pub(crate) fn without_numbers(message: &str) -> String {
    let mut parts = message.split(" (os error ");
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.split_once(')') {
            Some((number, rest)) if number.bytes().all(|c| c.is_ascii_digit()) => plain.push_str(rest),
            _ => plain.extend([" (os error ", part]),
        }
    }
    plain
}

/// The [`std::io::Error`] in an error of the library is not in the chain, only the source of that is. So the library's
/// error is asked for the kind.
fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let kind_of = |cause: &(dyn std::error::Error + 'static)| match cause.downcast_ref::<Error>() {
        Some(error) => error.io_kind(),
        None => cause.downcast_ref::<std::io::Error>().map(std::io::Error::kind),
    };
    error.chain().any(|cause| kind_of(cause) == Some(ErrorKind::BrokenPipe))
}

/// What to do, where the message does not say it already.
fn advice(error: &anyhow::Error) -> Option<&'static str> {
    let error = error.chain().find_map(|cause| cause.downcast_ref::<Error>())?;
    Some(match error {
        Error::NoSuchTable { .. } => "list the tables with: ledgerstone tables DIR; put and import make a new one",
        Error::Permission { .. } => {
            "changing an environment, or recovering it after a crash, needs write permission on its directory; reading one that was closed cleanly does not"
        }
        // What is missing or cut says itself what to do.
        Error::Corrupt { what } if what.starts_with("page ") => {
            "look at all of the damage with: ledgerstone verify DIR; mend pages with: ledgerstone repair DIR --from BACKUP"
        }
        Error::NoSuchIndex { .. } => "list the indexes with: ledgerstone index list DIR TABLE",
        Error::SettingsFile { .. } => "check the file with: ledgerstone config DIR --check",
        Error::Failed { .. } => "run the command again: opening recovers",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::{message, without_numbers};

    #[test]
    fn causes_are_said_once() {
        let gone = || std::io::Error::from(std::io::ErrorKind::NotFound);
        assert_eq!(message(&anyhow::Error::new(gone()).context("cannot read x")), "cannot read x: entity not found");
        let twice = anyhow::Error::new(gone()).context("cannot read x: entity not found; name another");
        assert_eq!(message(&twice), "cannot read x: entity not found; name another");
    }

    #[test]
    fn numbers_of_errors_are_left_out_and_nothing_else() {
        let check = |message: &str, plain: &str| assert_eq!(without_numbers(message), plain);
        check("cannot read x: No such file (os error 2)", "cannot read x: No such file");
        check("a (os error 2), b (os error 28): c", "a, b: c");
        check("a (os error x) b (os error 2", "a (os error x) b (os error 2");
    }
}
