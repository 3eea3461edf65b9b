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
//! comments are not commands. A command of the command line prints its data first, as it does there. It goes on after
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
use std::io::{BufReader, IsTerminal, Read};

use anyhow::Context;

use crate::interrupt::Interrupted;
use crate::opening::DirArgs;
use crate::outcome::Outcome;
use crate::output::Output;
use crate::rows::Lines;
use answer::Answer;
use session::{Next, Session};

/// The longest line: a value of 64 MiB in hexadecimal digits, and something for the rest.
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

/// Answers line by line.
fn pipe(session: &mut Session, input: impl Read, output: &Output, depth: u32) -> anyhow::Result<Piped> {
    let mut lines = Lines::new(BufReader::with_capacity(1 << 16, input), LINE_BYTES_MAX);
    let mut piped = Piped { had_error: false, has_quit: false };
    while let Some(line) = lines.next().context("cannot read the commands")? {
        let text = line.bytes.ok_or_else(|| format!("the line is longer than {LINE_BYTES_MAX} bytes"));
        let text = text.and_then(|bytes| {
            String::from_utf8(bytes).map_err(|_| "the line is not UTF-8; write bytes as x'00ff'".into())
        });
        let parsed = text.and_then(|text| command::parse(&text).map_err(|error| error.to_string()));
        let (shown, is_error) = match parsed {
            Ok(None) => continue,
            Ok(Some(line)) => match run_line(session, line, output) {
                Next::Print(shown, is_error) => (shown, is_error),
                Next::Interrupted(shown) => {
                    session.print(&shown, output)?;
                    return Err(Interrupted("in a command; those behind it were not run".into()).into());
                }
                Next::Read(file) => {
                    let read = read(session, &file, output, depth)?;
                    piped.had_error |= read.had_error;
                    piped.has_quit = read.has_quit;
                    if piped.has_quit {
                        break;
                    }
                    continue;
                }
                Next::Outer(..) | Next::Quit => {
                    piped.has_quit = true;
                    break;
                }
            },
            Err(what) => (Answer::usage(what).show(session.mode, None).into(), true),
        };
        piped.had_error |= is_error;
        session.print(&shown, output)?;
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
        Err(error) => format!("cannot read {name}: {error}"),
    };
    let shown = Answer::usage(refused).show(session.mode, None);
    session.print(&shown.into(), output)?;
    Ok(Piped { had_error: true, has_quit: false })
}
