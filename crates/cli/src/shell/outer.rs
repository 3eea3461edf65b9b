//! The command line's commands in the shell: the same definitions and the same code, in the environment that is open,
//! and so without DIR.
//!
//! | command | how it runs |
//! | --- | --- |
//! | one that the shell has itself (`scan --hex`, `tables --count`) | in the current transaction, or in one of its own |
//! | another on this environment (`import`, `backup`) | when no transaction is open here: it could wait for it for ever |
//! | one that makes or mends an environment (`init`, `restore`) | in another directory, which is named |
//! | one that needs no environment (`bench`, `man`) | not here: the answer says what to type instead |

use std::ffi::OsString;
use std::path::Path;
use std::sync::LazyLock;
use std::time::Instant;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};

use super::answer::Answer;
use super::command::{COMMANDS, OuterWord};
use super::session::{Next, Session};
use super::worker::Job;
use crate::args::{Args, Command};
use crate::interrupt::{self, Interrupted};
use crate::outcome::{self, Outcome};
use crate::output::Output;

/// What makes, opens or mends an environment by itself: it names the directory.
const BY_NAME: [&str; 4] = ["init", "recover", "repair", "restore"];

/// What `index` begins with where it is written as on the command line.
pub(super) const INDEX_COMMANDS: [&str; 4] = ["create", "drop", "list", "lookup"];

/// A command, and a sentence about it.
#[derive(Debug)]
pub struct Outer {
    /// The first word.
    pub name: String,
    /// What it does.
    pub about: String,
}

/// The commands of the command line that the shell has, too, and has not itself.
#[must_use]
pub fn commands() -> &'static [Outer] {
    static ALL: LazyLock<Vec<Outer>> = LazyLock::new(|| {
        let about = |command: &clap::Command| command.get_about().map_or_else(String::new, ToString::to_string);
        let outer = |command: &clap::Command| Outer { name: command.get_name().to_owned(), about: about(command) };
        let is_here = |command: &&clap::Command| is_here(command) && !is_own(command.get_name());
        Args::command().get_subcommands().filter(is_here).map(outer).collect()
    });
    &ALL
}

/// The names of all that can be run here, of those that the shell has itself, too, and of all others.
static NAMES: LazyLock<(Vec<String>, Vec<String>)> = LazyLock::new(|| {
    let name = |command: &clap::Command| command.get_name().to_owned();
    let all = Args::command();
    let (here, elsewhere): (Vec<_>, Vec<_>) =
        all.get_subcommands().filter(|command| !command.is_hide_set()).partition(|command| is_here(command));
    (here.into_iter().map(name).collect(), elsewhere.into_iter().map(name).collect())
});

fn is_own(name: &str) -> bool {
    COMMANDS.iter().any(|own| own.name == name)
}

fn is_here(command: &clap::Command) -> bool {
    let of_its_commands = || command.get_subcommands().any(takes_place);
    let is_of_place = takes_place(command) || command.get_positionals().next().is_none() && of_its_commands();
    let name = command.get_name();
    !command.is_hide_set() && (BY_NAME.contains(&name) || is_of_place && !matches!(name, "shell" | "man"))
}

fn without_dot(name: &str) -> &str {
    name.strip_prefix('.').unwrap_or(name)
}

/// The one of the command line with that name, with or without a dot, if it can be run here.
pub(super) fn find(name: &str) -> Option<&'static str> {
    NAMES.0.iter().map(String::as_str).find(|known| *known == without_dot(name))
}

/// Whether it is a command of the command line that cannot be run here.
pub(super) fn is_elsewhere(name: &str) -> bool {
    NAMES.1.iter().any(|known| known == without_dot(name))
}

/// What is answered to such a command.
pub(super) fn not_here(name: &str) -> Answer {
    let name = without_dot(name);
    Answer::usage(format!(
        "{name} does not work on this environment: leave with quit, and type: ledgerstone {name} ..."
    ))
}

/// Whether the directory comes first.
fn takes_place(command: &clap::Command) -> bool {
    command.get_positionals().next().is_some_and(|first| first.get_id() == "dir")
}

/// What a command of the command line can be told, as an answer.
pub(super) fn help_answer(name: &str) -> Answer {
    Answer::Lines(help(name).lines().map(|line| (line.to_owned(), String::new())).collect())
}

fn help(name: &str) -> String {
    let mut all = Args::command();
    let text = all.find_subcommand_mut(name).map(|command| command.render_help().to_string());
    let text = text.unwrap_or_default();
    let place = match BY_NAME.contains(&name) {
        true => "The directory must be another than the one that the shell has open.",
        false => "The shell has DIR open already: leave it out.",
    };
    format!("{}\n{place}", text.trim_end())
}

/// Runs one: its words, the first of which [`find`] knows. It prints its data, and then the shell answers.
pub(super) fn run(session: &mut Session, at: Option<String>, words: &[OuterWord], output: &Output) -> Next {
    let began = Instant::now();
    let _heeding = interrupt::heed();
    let answer = run_heeding(session, at, words, output).unwrap_or_else(|refused| refused);
    session.shown(&answer, began, interrupt::is_asked())
}

fn run_heeding(
    session: &mut Session,
    at: Option<String>,
    words: &[OuterWord],
    output: &Output,
) -> Result<Answer, Answer> {
    let name = words.first().map_or("", |name| without_dot(&name.text));
    let is_import = words.first().is_some_and(|name| name.text == ".import");
    let words = &if is_import { sqlite_import(words)? } else { words.to_vec() };
    let mut args = parse(line(session, words), name)?;
    args.json |= session.is_json();
    args.quiet |= output.is_quiet;
    match &mut args.command {
        Command::Import(import) => {
            if is_import {
                std::mem::swap(&mut import.table.table, &mut import.file); // As sqlite3's shell has it: .import FILE TABLE
            }
            refuse_stdin(&import.file)?;
        }
        Command::Load(load) => refuse_stdin(&load.file)?,
        Command::Put(put) => refuse_stdin(&put.value)?,
        Command::Init(init) => refuse_open(session, &init.dir, name)?,
        Command::Recover(recover) => refuse_open(session, &recover.at.dir, name)?,
        Command::Repair(repair) => refuse_open(session, &repair.dir, name)?,
        Command::Restore(restore) => {
            refuse_stdin(&restore.backup.to_string_lossy())?;
            refuse_open(session, &restore.dir, name)?;
        }
        _ => {}
    }
    if is_own(name) && (at.is_some() || session.may_wait()) {
        return session.ask_for(at, Job::Outer { args: Box::new(args), dir: session.dir().to_owned() });
    }
    if at.is_some() {
        return Err(Answer::usage(format!("{name} is not run in a transaction: leave the @ out")));
    }
    if !BY_NAME.contains(&name) {
        session.alone()?;
    }
    let beside = session
        .output(args.json, args.quiet)
        .map_err(|error| Answer::usage(format!("cannot write the answer: {error}")))?;
    let _lent = session.lend();
    Ok(answer(run_whole(&args, &beside)))
}

/// Runs one, so that what it prints ends with a line.
pub(super) fn run_whole(args: &Args, output: &Output) -> anyhow::Result<Outcome> {
    let outcome = crate::run(args, output)?;
    output.end_line()?;
    output.flush()?;
    Ok(outcome)
}

/// What the shell answers when one has run.
pub(super) fn answer(result: anyhow::Result<Outcome>) -> Answer {
    match result {
        Ok(Outcome::Done) => Answer::Done,
        Ok(Outcome::Not) => {
            Answer::Failed { kind: "not-all", message: "not everything was as asked; see above".to_owned() }
        }
        // The kind says that it was interrupted.
        Err(error) => match error.chain().find_map(|cause| cause.downcast_ref::<Interrupted>()) {
            Some(Interrupted(how_far)) => Answer::Failed { kind: "interrupted", message: format!("stopped {how_far}") },
            None => Answer::Failed { kind: outcome::kind(&error), message: outcome::message(&error) },
        },
    }
}

/// Understands the words as the command line does. What is wrong comes as one line, without the usage, which names DIR.
fn parse(line: Vec<OsString>, name: &str) -> Result<Args, Answer> {
    Args::try_parse_from(line).map_err(|error| {
        if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand) {
            return help_answer(name);
        }
        let text = error.to_string();
        let lines = text.lines().map(str::trim).take_while(|line| !line.starts_with("Usage:"));
        let lines = lines.filter(|line| !line.is_empty() && !line.starts_with("For more information"));
        let text = lines.collect::<Vec<_>>().join(" ");
        Answer::usage(text.strip_prefix("error: ").unwrap_or(&text))
    })
}

/// The options that sqlite3's `.import` has, as ours. The first line names the columns here, so it is not a row, with
/// `--skip 1` or without.
fn sqlite_import(words: &[OuterWord]) -> Result<Vec<OuterWord>, Answer> {
    let names_columns = words.iter().any(|word| word.text.starts_with("--columns") && !word.is_quoted);
    let (mut ours, mut words) = (Vec::new(), words.iter());
    while let Some(word) = words.next() {
        match word.text.as_str() {
            "--csv" | "-csv" if !word.is_quoted => {
                ours.extend(["--format", "csv"].map(|text| OuterWord { text: text.into(), is_quoted: false }));
            }
            "--skip" | "-skip" if !word.is_quoted => match words.next().map(|count| count.text.as_str()) {
                Some("1") if !names_columns => {}
                _ => {
                    return Err(Answer::usage(
                        "the first line names the columns, and every other is a row: leave --skip out, or say --skip 1 without --columns",
                    ));
                }
            },
            _ => ours.push(word.clone()),
        }
    }
    Ok(ours)
}

fn refuse_stdin(file: &str) -> Result<(), Answer> {
    match file {
        "-" => Err(Answer::usage("the shell itself reads standard input: name a file")),
        _ => Ok(()),
    }
}

/// Whether that is the directory of the environment that is open here.
pub(super) fn is_open(session: &Session, dir: &Path) -> bool {
    matches!((dir.canonicalize(), session.dir().canonicalize()), (Ok(named), Ok(open)) if named == open)
}

fn refuse_open(session: &Session, dir: &Path, name: &str) -> Result<(), Answer> {
    if !is_open(session, dir) {
        return Ok(());
    }
    let dir = dir.display();
    Err(Answer::usage(match name {
        "init" => format!("{dir} is an environment already, the one that is open here"),
        "restore" => format!("{dir} is the environment that is open here: name a new directory to restore into"),
        "recover" => format!("{dir} is open here, and was recovered when it was opened"),
        _ => format!("{dir} is open here: leave with quit, and type: ledgerstone {name} {dir} ..."),
    }))
}

/// The words as the command line wants them: with the directory. A quoted word that looks like an option is the value
/// of the option before it, or comes behind `--`.
fn line(session: &Session, words: &[OuterWord]) -> Vec<OsString> {
    let all = Args::command();
    let mut line: Vec<OsString> = vec!["ledgerstone".into()];
    let (mut command, mut is_placed, mut is_value, mut all_behind) = (&all, false, false, false);
    let mut behind: Vec<OsString> = Vec::new();
    for (no, OuterWord { text, is_quoted }) in words.iter().enumerate() {
        let word = if no == 0 { without_dot(text) } else { text };
        // A minus alone is standard input, and one before a digit makes a number.
        let looks_like_option = word.strip_prefix('-').is_some_and(|rest| !rest.is_empty() && !is_number(rest));
        if std::mem::take(&mut is_value) {
            match line.last_mut().filter(|_| *is_quoted && word.starts_with('-')) {
                Some(option) => option.push(format!("={word}")),
                None => line.push(word.into()),
            }
            continue;
        }
        is_placed |= BY_NAME.contains(&word) && no == 0;
        // The directory comes behind the commands of a command: `index list DIR`.
        let sub = command.find_subcommand(word).filter(|_| !is_quoted);
        match sub {
            Some(sub) if !is_placed => command = sub,
            _ if !is_placed && takes_place(command) => {
                line.push(session.dir().into());
                is_placed = true;
            }
            _ => {}
        }
        if word == "--" && !is_quoted && !all_behind {
            all_behind = true;
        } else if looks_like_option && !is_quoted && !all_behind {
            is_value = takes_value(command, word);
            line.push(word.into());
        } else if *is_quoted && word.starts_with('-') || all_behind || !behind.is_empty() {
            behind.push(word.into());
        } else {
            line.push(word.into());
        }
    }
    if !is_placed && takes_place(command) {
        line.push(session.dir().into());
    }
    if !behind.is_empty() {
        line.push("--".into());
        line.extend(behind);
    }
    line
}

fn is_number(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_digit())
}

/// Whether the word is an option whose value is the next one.
fn takes_value(command: &clap::Command, word: &str) -> bool {
    let is_it = |arg: &&clap::Arg| match word.strip_prefix("--") {
        Some(long) => arg.get_long() == Some(long),
        None => arg.get_short().is_some_and(|short| word == format!("-{short}")),
    };
    command.get_arguments().find(is_it).is_some_and(|arg| arg.get_action().takes_values())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell::Mode;

    #[test]
    fn an_interrupted_command_says_so_once() {
        let error = anyhow::Error::new(Interrupted("after 7 records".into())).context("record 8");
        let said = answer(Err(error)).show(Mode::Plain, None);
        assert_eq!(said, "error interrupted: stopped after 7 records");
    }
}
