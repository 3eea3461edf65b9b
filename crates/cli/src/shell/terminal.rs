//! The shell at a terminal: lines edited, kept as history and completed; late answers printed above the prompt.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::FileHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{CompletionType, Config, Context, Editor, ExternalPrinter, Helper};

use super::answer::{Answer, Mode};
use super::command::COMMANDS;
use super::outer;
use super::session::{Next, Session};
use super::words::{Quotes, commands, quote};
use crate::interrupt::{self, Interrupted};
use crate::output::{Output, escaped};

const HISTORY_COUNT_MAX: usize = 10_000;

pub(super) fn run(session: &mut Session, output: &Output) -> anyhow::Result<()> {
    let config = Config::builder()
        .completion_type(CompletionType::List)
        .max_history_size(HISTORY_COUNT_MAX)?
        .history_ignore_space(true)
        .auto_add_history(true)
        .build();
    let mut editor: Editor<Words, FileHistory> = Editor::with_config(config)?;
    let mut history = history_file();
    if let Some(file) = &history {
        let _ = file.parent().map(std::fs::create_dir_all); // What fails here is told by the first line.
        let _ = editor.load_history(file); // There may be none yet.
    }
    let printer = Mutex::new(editor.create_external_printer()?);
    session.printer = Some(Arc::new(move |name: &str, answer: &Answer| {
        let mut printer = printer.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let data = String::from_utf8_lossy(answer.data());
        let shown = escaped(&format!("{name}: {data}{}\n", answer.show(Mode::Table, None)));
        let _ = printer.print(shown); // Nobody looks any more.
    }));
    let _heeding = interrupt::heed(); // So that none ends the shell.
    output.note("help lists the commands; leave with quit");
    loop {
        session.forget_ended();
        let names = session.names();
        editor.set_helper(Some(Words { tables: session.tables.iter().cloned().collect(), names }));
        let prompt = session.current.as_ref().map_or_else(|| "ledgerstone> ".to_owned(), |name| format!("{name}> "));
        let line = match editor.readline(&prompt) {
            Ok(line) => line,
            Err(ReadlineError::Interrupted) => continue,
            Err(ReadlineError::Eof) => break,
            Err(error) => return Err(error.into()),
        };
        interrupt::forget();
        // Line by line: a shell that is killed has kept what was typed.
        if let Some(file) = &history
            && let Err(error) = editor.append_history(file)
        {
            output.note(format_args!("the history is not kept in {}: {error}", file.display()));
            history = None;
        }
        if run_typed(session, &line, output)?.is_break() {
            break;
        }
    }
    session.printer = None;
    Ok(())
}

/// Runs the commands of a line, up to one that Ctrl-C stops. Breaks where the shell is left.
fn run_typed(session: &mut Session, line: &str, output: &Output) -> anyhow::Result<ControlFlow<()>> {
    for parsed in super::parse_all(line) {
        let shown = match parsed.map(|line| super::run_line(session, line, output)) {
            Ok(Next::Print(shown, _)) => shown,
            Ok(Next::Interrupted(shown)) => {
                session.print(&shown, output)?;
                break;
            }
            Ok(Next::Read(file)) => match super::read(session, &file, output, 0) {
                Ok(piped) if piped.has_quit => return Ok(ControlFlow::Break(())),
                Ok(_) => continue,
                Err(error) if error.is::<Interrupted>() => break,
                Err(error) => return Err(error),
            },
            Ok(Next::Outer(..) | Next::Quit) => return Ok(ControlFlow::Break(())),
            Err(what) => Answer::usage(what).show(session.mode, None).into(),
        };
        session.print(&shown, output)?;
    }
    Ok(ControlFlow::Continue(()))
}

/// Where the freedesktop.org specification puts what a program wants to keep.
fn history_file() -> Option<PathBuf> {
    let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from).filter(|dir| dir.is_absolute());
    let state = state.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".local/state")))?;
    Some(state.join("ledgerstone").join("history"))
}

/// What can be completed.
struct Words {
    tables: Vec<String>,
    names: Vec<String>,
}

impl Words {
    /// Where the word at `at` begins, and what it could become.
    fn candidates(&self, line: &str, at: usize) -> (usize, Vec<String>) {
        let before = line.get(..at).unwrap_or(line);
        let begin = before.len() - commands(before).last().map_or(0, |last| last.len());
        let start = before.rfind(char::is_whitespace).map_or(0, |blank| blank + 1);
        let (word, earlier) = (&before[start..], before[begin..start].split_whitespace().collect::<Vec<_>>());
        let matching =
            |words: &mut dyn Iterator<Item = String>| words.filter(|known| known.starts_with(word)).collect();
        let command: Vec<&str> = earlier.into_iter().filter(|word| !word.starts_with('@')).collect();
        let found = match command.as_slice() {
            [] if word.starts_with('@') => matching(&mut self.names.iter().map(|name| format!("@{name}"))),
            [] => matching(&mut command_names()),
            ["use" | "commit" | "abort" | "wait"] => matching(&mut self.names.iter().cloned()),
            ["help"] => matching(&mut command_names()),
            [".mode"] => matching(&mut Mode::ALL.iter().map(|mode| mode.name().to_owned())),
            [_] => matching(&mut self.tables.iter().map(|table| quote(table.as_bytes()))),
            ["scan", ..] => {
                let keywords = ["from", "to", "prefix", "reverse", "limit", "keys"];
                matching(&mut keywords.iter().map(|&word| word.to_owned()))
            }
            _ => Vec::new(),
        };
        (start, found)
    }
}

/// Those of the shell, and those of the command line.
fn command_names() -> impl Iterator<Item = String> {
    COMMANDS.iter().map(|usage| usage.name.to_owned()).chain(outer::commands().iter().map(|outer| outer.name.clone()))
}

impl Completer for Words {
    type Candidate = String;

    fn complete(&self, line: &str, at: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<String>)> {
        Ok(self.candidates(line, at))
    }
}

impl Hinter for Words {
    type Hint = String;
}

impl Highlighter for Words {}
impl Validator for Words {
    /// A quote that is open goes on in the next line.
    fn validate(&self, context: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        Ok(match Quotes::default().is_open_after(context.input()) {
            true => ValidationResult::Incomplete,
            false => ValidationResult::Valid(None),
        })
    }
}
impl Helper for Words {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_tables_and_names_are_completed() {
        let words = Words { tables: vec!["accounts".into(), "two words".into()], names: vec!["a".into(), "b".into()] };
        let check = |line: &str, start: usize, found: &[&str]| {
            assert_eq!(
                words.candidates(line, line.len()),
                (start, found.iter().map(|&w| w.to_owned()).collect()),
                "{line}"
            );
        };
        check("sc", 0, &["scan"]);
        check("get ac", 4, &["accounts"]);
        check("get \"t", 4, &["\"two words\""]);
        check("@", 0, &["@a", "@b"]);
        check("@a del a", 7, &["accounts"]);
        check("commit ", 7, &["a", "b"]);
        check("scan accounts r", 14, &["reverse"]);
        check(".mode j", 6, &["json"]);
        check("begin; get ac", 11, &["accounts"]);
    }
}
