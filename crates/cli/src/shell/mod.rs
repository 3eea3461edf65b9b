//! `shell`: commands typed or piped, several named transactions at once.
//!
//! | to | go to |
//! | --- | --- |
//! | take a line apart, quote a word | `words` |
//! | see every command, parse a line | `command` |
//! | see how answers look | `answer` |
//! | see how transactions run beside each other | `session`, `worker` |
//! | use what the command line has | `outer` |
//! | edit lines | `terminal` |
//!
//! From a pipe each command is answered by exactly one line, in order (modes `plain` and `json`); blank lines and
//! comments have no answer. A line has one command, or several with a `;` between them. A quote that is open at its end
//! goes on in the next. A command of the command line prints its data first, as it does there. The shell goes on after
//! an error, and the exit code says whether there was one: 0 none, 1 some command failed, 2 the shell itself could not
//! go on.

mod answer;
pub mod command;
pub mod outer;
mod session;
mod terminal;
pub mod words;
mod worker;

pub use answer::Mode;

use std::fs::File;
use std::io::{BufRead, BufReader, IsTerminal, Read};

use anyhow::{Context, bail};

use crate::interrupt::Interrupted;
use crate::opening::DirArgs;
use crate::outcome::{Outcome, without_numbers};
use crate::output::Output;
use crate::rows::Lines;
use answer::Answer;
use session::{Next, Session};
use words::Quotes;

/// The longest command: a value of 64 MiB in hexadecimal digits, and something for the rest.
const LINE_BYTES_MAX: usize = (128 << 20) + (1 << 20);

pub(crate) fn run(args: &DirArgs, output: &Output) -> anyhow::Result<Outcome> {
    let is_terminal = std::io::stdin().is_terminal();
    let mode = match (output.is_json, is_terminal) {
        (true, _) => Mode::Json,
        (false, true) => Mode::Table,
        (false, false) => Mode::Plain,
    };
    let mut session = Session::open(args, mode, output)?;
    let ran = if is_terminal {
        terminal::run(&mut session, output).map(|()| false)
    } else {
        pipe(&mut session, std::io::stdin().lock(), output, 0).map(|piped| piped.had_error)
    };
    let open = session.close()?;
    if !open.is_empty() {
        output.note(format_args!("rolled back, because they were open at the end: {}", open.join(", ")));
    }
    Ok(if ran? { Outcome::Not } else { Outcome::Done })
}

/// How deep files of commands may read each other.
const READ_DEPTH_MAX: u32 = 8;

/// How commands went that were not typed.
struct Piped {
    had_error: bool,
    has_quit: bool,
}

/// Runs a line that was understood. The answer is never [`Next::Outer`].
fn run_line(session: &mut Session, line: command::Line, output: &Output) -> Next {
    match session.run(line) {
        Next::Outer(at, words) => outer::run(session, at, &words, output),
        next => next,
    }
}

/// Lines that belong together: a quote that is open at the end of a line goes on in the next.
struct Gathered {
    bytes: Vec<u8>,
    line_count: u64,
    /// The input ended inside the quote.
    is_open: bool,
}

/// The next line, with those that belong to it; `None` at the end of the input.
///
/// # Errors
/// What cannot be read, and a command that is too long: where its quotes end is not known, so what follows could be a
/// part of it.
fn gather<R: BufRead>(lines: &mut Lines<R>) -> anyhow::Result<Option<Gathered>> {
    let (mut quotes, mut gathered) = (Quotes::default(), Gathered { bytes: Vec::new(), line_count: 0, is_open: true });
    while gathered.is_open {
        let Some(line) = lines.next().context("cannot read the commands")? else { break };
        let fits = |bytes: &Vec<u8>| gathered.bytes.len() + bytes.len() <= LINE_BYTES_MAX;
        let Some(bytes) = line.bytes.filter(fits) else {
            bail!("a command is longer than {LINE_BYTES_MAX} bytes; it and those behind it were not run");
        };
        gathered.is_open = quotes.is_open_after(&String::from_utf8_lossy(&bytes));
        gathered.line_count += 1;
        gathered.bytes.extend(bytes);
    }
    Ok((gathered.line_count > 0).then_some(gathered))
}

impl Gathered {
    /// What is said of the lines behind an open quote goes to the command that the quote is in, the last one.
    fn parse(self) -> Vec<Result<command::Line, String>> {
        let Ok(text) = String::from_utf8(self.bytes) else {
            return vec![Err("the line is not UTF-8; write bytes as x'00ff'".to_owned())];
        };
        let mut parsed: Vec<_> = parse_all(&text).collect();
        if let Some(Err(error)) = parsed.last_mut().filter(|_| self.is_open) {
            match self.line_count - 1 {
                0 => {}
                1 => *error += "; the line behind it was not run",
                behind => *error += &format!("; the {behind} lines behind it were not run"),
            }
        }
        parsed
    }
}

/// The commands of a line, or what is wrong with each.
fn parse_all(line: &str) -> impl Iterator<Item = Result<command::Line, String>> {
    let parsed = words::commands(line).into_iter().map(command::parse);
    parsed.filter_map(|parsed| parsed.map_err(|error| error.to_string()).transpose())
}

/// Answers command by command.
fn pipe(session: &mut Session, input: impl Read, output: &Output, depth: u32) -> anyhow::Result<Piped> {
    let mut lines = Lines::new(BufReader::with_capacity(1 << 16, input), LINE_BYTES_MAX);
    let mut piped = Piped { had_error: false, has_quit: false };
    while let Some(gathered) = gather(&mut lines)? {
        for parsed in gathered.parse() {
            let (shown, is_error) = match parsed.map(|line| run_line(session, line, output)) {
                Ok(Next::Print(shown, is_error)) => (shown, is_error),
                Ok(Next::Interrupted(shown)) => {
                    session.print(&shown, output)?;
                    return Err(Interrupted("in a command; those behind it were not run".into()).into());
                }
                Ok(Next::Read(file)) => {
                    let read = read(session, &file, output, depth)?;
                    piped.had_error |= read.had_error;
                    piped.has_quit = read.has_quit;
                    if piped.has_quit {
                        return Ok(piped);
                    }
                    continue;
                }
                Ok(Next::Outer(..) | Next::Quit) => {
                    piped.has_quit = true;
                    return Ok(piped);
                }
                Err(what) => (Answer::usage(what).show(session.mode, None).into(), true),
            };
            piped.had_error |= is_error;
            session.print(&shown, output)?;
        }
    }
    Ok(piped)
}

/// The commands of a file; one that cannot be read is an answer.
fn read(session: &mut Session, name: &str, output: &Output, depth: u32) -> anyhow::Result<Piped> {
    let opened = File::open(name).and_then(|file| file.metadata().map(|about| (file, about.is_dir())));
    let refused = match opened {
        Ok((_, true)) => format!("cannot read {name}: it is a directory"),
        Ok(_) if depth == READ_DEPTH_MAX => format!("{name} is read by too many files that read each other"),
        Ok((file, false)) => return pipe(session, file, output, depth + 1),
        Err(error) => without_numbers(&format!("cannot read {name}: {error}")),
    };
    let shown = Answer::usage(refused).show(session.mode, None);
    session.print(&shown.into(), output)?;
    Ok(Piped { had_error: true, has_quit: false })
}
