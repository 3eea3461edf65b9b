//! The `ledgerstone` command: translation between what people type and read, and the library.
//!
//! | what | where |
//! | --- | --- |
//! | what can be typed, in all | `args` |
//! | keys and values as text, hexadecimal, numbers; bytes shown readably | `text` |
//! | files of rows | `rows` (parsing), `import`, `export` |
//! | one command each | `commands`, `index`, `inspect`, `prepared`, `bench`, `probe`, `flash` |
//! | backup, restore, repair, archive; dump, load; changes | `media`, `dump`, `changes`; times in `time` |
//! | exit codes, and errors that say what to do | `outcome` |
//! | an environment opened, with its recovery shown | `opening` |
//! | help behind the options, and the manual pages | `help`, `man` |
//! | what the tab key offers | `complete` |
//! | Ctrl-C | `interrupt` |
//! | output for people and for programs | `output`, `progress`; files that appear whole: `target` |
//!
//! Exit codes: 0 done; 1 not found, or a check failed; 2 an error; 130 interrupted. This crate decides nothing about
//! data.
#![forbid(unsafe_code)]

pub mod args;
mod bench;
mod changes;
mod commands;
mod complete;
mod config;
mod dump;
mod export;
mod flash;
pub mod help;
mod import;
mod index;
mod inspect;
mod interrupt;
mod log;
mod man;
mod media;
mod opening;
mod outcome;
mod output;
mod prepared;
mod probe;
mod processes;
mod progress;
mod recover;
pub mod rows;
pub mod shell;
mod target;
mod text;
mod time;

use std::process::ExitCode;

use clap::FromArgMatches;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use args::{Args, Command};
use output::{Output, escaped, say_error};

/// Parses what was typed, runs it, and says how it went.
pub fn main() -> ExitCode {
    let args = parse(std::env::args_os()).unwrap_or_else(|error| not_understood(error));
    let output = Output::new(args.json, args.quiet);
    let result = run(&args, &output);
    let _ = output.flush(); // What was found before an error comes before it; a failure to write it is in the result.
    outcome::report(result)
}

/// Understands a command line, with all the help there is.
///
/// # Errors
/// What clap does not understand, or help, which was asked for.
pub fn parse<T: Into<std::ffi::OsString> + Clone>(words: impl IntoIterator<Item = T>) -> Result<Args, clap::Error> {
    let mut command = help::command();
    let matches = command.try_get_matches_from_mut(words).map_err(|error| without_hidden(error, &command))?;
    Args::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
}

/// An error that names no hidden command: clap lists and suggests them all.
fn without_hidden(mut error: clap::Error, command: &clap::Command) -> clap::Error {
    for kind in [ContextKind::ValidSubcommand, ContextKind::SuggestedSubcommand] {
        let shown = match error.remove(kind) {
            Some(ContextValue::Strings(names)) => {
                ContextValue::Strings(names.into_iter().filter(|name| !is_hidden(command, name)).collect())
            }
            Some(ContextValue::String(name)) if is_hidden(command, &name) => continue,
            Some(other) => other,
            None => continue,
        };
        error.insert(kind, shown);
    }
    error
}

/// Whether a command of that name is hidden, here or below.
fn is_hidden(command: &clap::Command, name: &str) -> bool {
    command.get_subcommands().any(|inner| inner.get_name() == name && inner.is_hide_set() || is_hidden(inner, name))
}

/// Says what is wrong with the arguments. Help that was asked for comes here, too: clap answers it with 0 and wrong
/// usage with 2, as we do.
fn not_understood(error: clap::Error) -> ! {
    let wants_json = std::env::args_os().take_while(|arg| arg != "--").any(|arg| arg == "--json");
    let is_object = wants_json && error.exit_code() != 0;
    if is_object {
        drop(Output::new(true, true)); // Errors are objects from now on.
    }
    if error.kind() == ErrorKind::InvalidUtf8 {
        let advice = "write keys and values that are not text in hexadecimal digits, and say --hex";
        say_error("an argument is not UTF-8", "usage", Some(advice));
        std::process::exit(2);
    }
    if is_object {
        let text = match error.kind() {
            // Its text would be the whole help.
            ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => no_subcommand(std::env::args()),
            _ => error.to_string(),
        };
        let text = text.split("\n\n").next().unwrap_or_default();
        let text = text.strip_prefix("error: ").unwrap_or(text);
        say_error(text, "usage", Some("see: ledgerstone help COMMAND"));
        std::process::exit(2);
    }
    // The same complaint about the same arguments, escaped: clap shows them as they are.
    let harmless = std::env::args().map(|arg| escaped(&arg));
    let error = parse(harmless).err().unwrap_or(error);
    if let Err(unwritten) = error.print()
        && error.exit_code() == 0
        && unwritten.kind() != std::io::ErrorKind::BrokenPipe
    {
        say_error(&outcome::message(&output::stdout_error(unwritten).into()), "io", None);
        std::process::exit(2);
    }
    std::process::exit(error.exit_code())
}

/// What is wrong with a command line that ends where one of several commands has to follow.
fn no_subcommand(words: impl Iterator<Item = String>) -> String {
    let (mut command, mut path) = (&help::command(), "ledgerstone".to_owned());
    for word in words.skip(1) {
        if let Some(inner) = command.find_subcommand(&word) {
            command = inner;
            path.extend([" ", &word]);
        }
    }
    let names = command.get_subcommands().filter(|inner| !inner.is_hide_set()).map(clap::Command::get_name);
    format!("{path} wants a command: {}", names.collect::<Vec<_>>().join(", "))
}

/// Runs a command.
pub(crate) fn run(args: &Args, output: &Output) -> anyhow::Result<outcome::Outcome> {
    match &args.command {
        Command::Init(args) => inspect::init(args, output),
        Command::Put(args) => commands::put(args, output),
        Command::Get(args) => commands::get(args, output),
        Command::Del(args) => commands::del(args, output),
        Command::Scan(args) => commands::scan(args, output),
        Command::Tables(args) => inspect::tables(args, output),
        Command::Rename(args) => index::rename(args, output),
        Command::Index { command } => index::run(command, output),
        Command::Import(args) => import::run(args, output),
        Command::Export(args) => export::run(args, output),
        Command::Stat(args) => inspect::stat(args, output),
        Command::Processes(args) => processes::run(args, output),
        Command::Verify(args) => inspect::verify(args, output),
        Command::Compact(args) => inspect::compact(args, output),
        Command::Checkpoint(args) => inspect::checkpoint(args, output),
        Command::Config(args) => config::run(args, output),
        Command::Prepared { command } => prepared::run(command, output),
        Command::Recover(args) => recover::run(args, output),
        Command::Log(args) => log::run(args, output),
        Command::Shell(args) => shell::run(args, output),
        Command::Backup(args) => media::backup(args, output),
        Command::Restore(args) => media::restore(args, output),
        Command::Repair(args) => media::repair(args, output),
        Command::Archive(args) => media::archive(args, output),
        Command::Dump(args) => dump::dump(args, output),
        Command::Load(args) => dump::load(args, output),
        Command::Changes(args) => changes::run(args, output),
        Command::Bench(args) => bench::run(args, output),
        Command::Probe(args) => probe::run(args, output),
        Command::Flash(args) => flash::run(args, output),
        Command::Man(args) => man::run(args, output),
        Command::Completions(args) => {
            output.bytes(complete::script(args.shell).as_bytes())?;
            output.flush()?;
            Ok(outcome::Outcome::Done)
        }
        Command::Complete(args) => complete::run(args, output),
    }
}
