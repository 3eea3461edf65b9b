//! How it went: an exit code, and for an error a sentence on what to do about it.

use std::io::ErrorKind;
use std::process::ExitCode;

use ledgerstone::Error;

use crate::args::Args;
use crate::interrupt::{self, Interrupted};
use crate::output::{json_text, say};

/// What a command that ran has to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Exit code 0.
    Done,
    /// Exit code 1: a key is not there, a row was left out, a check failed. The command has said which.
    Not,
}

/// Prints an error with its causes and its advice, and turns the outcome into the exit code.
pub(crate) fn report(result: anyhow::Result<Outcome>, args: &Args) -> ExitCode {
    let error = match result {
        Ok(Outcome::Done) => return ExitCode::SUCCESS,
        Ok(Outcome::Not) => return ExitCode::from(1),
        Err(error) => error,
    };
    if is_closed_pipe(&error) {
        return ExitCode::SUCCESS; // Who read our output has seen enough.
    }
    if args.json {
        let told = serde_json::json!({ "error": format!("{error:#}"), "advice": advice(&error) });
        say(json_text(&told).unwrap_or_default());
    } else {
        say(format_args!("ledgerstone: {error:#}"));
        if let Some(advice) = advice(&error) {
            say(format_args!("  {advice}"));
        }
    }
    ExitCode::from(if error.downcast_ref::<Interrupted>().is_some() { interrupt::EXIT_CODE } else { 2 })
}

fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| cause.downcast_ref::<std::io::Error>().is_some_and(|e| e.kind() == ErrorKind::BrokenPipe))
}

/// What to do, where the message does not say it already.
fn advice(error: &anyhow::Error) -> Option<&'static str> {
    let error = error.chain().find_map(|cause| cause.downcast_ref::<Error>())?;
    Some(match error {
        Error::NoSuchTable { .. } => "list the tables with: ledgerstone tables DIR; put and import make a new one",
        Error::Permission { .. } => {
            "changing an environment, or recovering it after a crash, needs write permission on its directory; reading one that was closed cleanly does not"
        }
        Error::Corrupt { .. } => {
            "look at all of the damage with: ledgerstone verify DIR; mend pages with: ledgerstone repair DIR --from BACKUP"
        }
        Error::Failed { .. } => "run the command again: opening recovers",
        _ => return None,
    })
}
