//! The command line's commands in the shell: the same definitions, in the environment that is open, and so without DIR.
//!
//! A command that the shell has itself (`scan`, `verify`) is the shell's. Those that need the environment closed, or make one,
//! are not here.

use std::ffi::OsString;
use std::sync::LazyLock;
use std::time::Instant;

use clap::{CommandFactory, Parser};
use ledgerstone::Error;

use super::answer::{Answer, kind};
use super::command::COMMANDS;
use super::session::{Next, Session};
use crate::args::{Args, Command};
use crate::interrupt::Interrupted;
use crate::outcome::Outcome;
use crate::output::Output;

/// What opens, mends or makes an environment by itself, and what writes into another directory.
const ELSEWHERE: [&str; 5] = ["init", "man", "recover", "repair", "shell"];

/// A command, and a sentence about it.
#[derive(Debug)]
pub struct Outer {
    /// The first word.
    pub name: String,
    /// What it does.
    pub about: String,
}

/// The commands of the command line that the shell has, too.
#[must_use]
pub fn commands() -> &'static [Outer] {
    static ALL: LazyLock<Vec<Outer>> = LazyLock::new(|| {
        let is_here = |command: &&clap::Command| {
            let name = command.get_name();
            takes_place(command)
                && !command.is_hide_set()
                && !ELSEWHERE.contains(&name)
                && COMMANDS.iter().all(|own| own.name != name)
        };
        let about = |command: &clap::Command| command.get_about().map_or_else(String::new, ToString::to_string);
        let outer = |command: &clap::Command| Outer { name: command.get_name().to_owned(), about: about(command) };
        Args::command().get_subcommands().filter(is_here).map(outer).collect()
    });
    &ALL
}

/// The one with that name, with or without a dot.
pub(super) fn find(name: &str) -> Option<&'static Outer> {
    let name = name.strip_prefix('.').unwrap_or(name);
    commands().iter().find(|outer| outer.name == name)
}

/// Whether the directory comes first.
fn takes_place(command: &clap::Command) -> bool {
    command.get_positionals().next().is_some_and(|first| first.get_id() == "dir")
}

/// What it can be told, as the command line says it.
pub(super) fn help(outer: &Outer) -> String {
    let mut all = Args::command();
    let text = all.find_subcommand_mut(&outer.name).map(|command| command.render_help().to_string());
    let text = text.unwrap_or_default();
    format!("{}\nThe shell has DIR open already: leave it out.", text.trim_end())
}

/// Runs one: its words, the first of which [`find`] knows. It prints its data, and then the shell answers.
pub(super) fn run(session: &mut Session, words: &[String], output: &Output) -> Next {
    let began = Instant::now();
    let done = session.alone().and_then(|()| run_alone(session, words, output));
    let (answer, is_interrupted) = match done {
        Ok(Ok(Outcome::Done)) => (Answer::Done, false),
        Ok(Ok(Outcome::Not)) => {
            let message = "not everything was as asked; see above".to_owned();
            (Answer::Failed { kind: "not-all", message }, false)
        }
        Ok(Err(error)) => {
            let is_interrupted = error.is::<Interrupted>();
            let of = || error.chain().find_map(|cause| cause.downcast_ref::<Error>()).map_or("refused", kind);
            let kind = if is_interrupted { "interrupted" } else { of() };
            (Answer::Failed { kind, message: format!("{error:#}") }, is_interrupted)
        }
        Err(answer) => (answer, false),
    };
    session.shown(&answer, began, is_interrupted)
}

fn run_alone(session: &Session, words: &[String], output: &Output) -> Result<anyhow::Result<Outcome>, Answer> {
    let mut args = match Args::try_parse_from(line(session, words)) {
        Ok(args) => args,
        Err(error) => return Err(Answer::usage(error.to_string().trim_end().trim_start_matches("error: "))),
    };
    args.json |= session.is_json();
    args.quiet |= output.is_quiet;
    match &mut args.command {
        Command::Import(import) => {
            if words.first().is_some_and(|name| name.starts_with('.')) {
                std::mem::swap(&mut import.table.table, &mut import.file); // As sqlite3's shell has it: .import FILE TABLE
            }
            refuse_stdin(&import.file)?;
        }
        Command::Load(load) => refuse_stdin(&load.file)?,
        _ => {}
    }
    let beside = session
        .output(args.json, args.quiet)
        .map_err(|error| Answer::usage(format!("cannot write the answer: {error}")))?;
    let _lent = session.lend();
    let result = crate::run(&args, &beside);
    Ok(result.and_then(|outcome| Ok(beside.flush().map(|()| outcome)?)))
}

fn refuse_stdin(file: &str) -> Result<(), Answer> {
    match file {
        "-" => Err(Answer::usage("the shell itself reads standard input: name a file")),
        _ => Ok(()),
    }
}

/// The words as the command line wants them: with the directory.
fn line(session: &Session, words: &[String]) -> Vec<OsString> {
    let all = Args::command();
    let mut line: Vec<OsString> = vec!["ledgerstone".into()];
    let (mut command, mut is_placed) = (&all, false);
    for (no, word) in words.iter().enumerate() {
        let word = if no == 0 { word.strip_prefix('.').unwrap_or(word) } else { word };
        // `backup verify` names a place of its own, `prepared DIR list` does not.
        let sub = command.find_subcommand(word).filter(|_| no == 0 || command.is_args_conflicts_with_subcommands_set());
        match sub {
            Some(sub) if !is_placed => command = sub,
            _ if !is_placed && takes_place(command) => {
                line.push(session.dir().into());
                is_placed = true;
            }
            _ => {}
        }
        line.push(word.into());
    }
    if !is_placed && takes_place(command) {
        line.push(session.dir().into());
    }
    line
}
