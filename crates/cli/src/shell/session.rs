//! The shell itself: which transactions are open, which is the current one, and who waits for whom.
//!
//! Z1. A command is given to the worker of its transaction. Then the shell waits until everything is at rest: each
//!     worker has its answer, or waits, directly or through others, for a transaction that only this shell can end. So
//!     what is answered depends on the commands alone, and not on how fast anything is. A command that is held up by
//!     the shell's own transactions never stops the shell.
//! Z2. A worker with an answer that nobody took, or with a command under way, takes no other.
//! Z3. A circle of waits is not a rest: it is found, and one of it gives way.
//! Z4. Ctrl-C stops the command and nothing else: its transaction stays as it was before. What cannot be stopped goes
//!     on in its worker, and the shell takes other commands.

use std::collections::{BTreeMap, BTreeSet};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ledgerstone::{Environment, Error, InDoubt, LockWait, Options, Sharing, TransactionOptions, Xid};
use serde_json::json;

use super::answer::{Answer, Mode};
use super::command::{COMMANDS, Command, Data, Line, OuterWord, Usage};
use super::outer;
use super::words::quote;
use super::worker::{AUTO, Board, Job, Printer, Seen, Worker};
use crate::interrupt;
use crate::opening::{DirArgs, Lending, lend, open_by};
use crate::outcome;
use crate::output::{Output, counted, say_note};
use crate::prepared::{id_json, in_doubt_json};
use crate::target::Target;

/// How long the board is waited for before the waits are looked at.
const MOMENT: Duration = Duration::from_millis(2);

/// How long a command may take to stop for Ctrl-C before the shell leaves it to itself.
const STOP_PERIOD: Duration = Duration::from_secs(1);

/// The name that `begin` gives without one.
const UNNAMED: &str = "t";

/// An open environment and its transactions.
pub(crate) struct Session {
    env: Environment,
    dir: PathBuf,
    cache: Option<u64>,
    board: Arc<Board>,
    workers: BTreeMap<String, Worker>,
    pub(crate) current: Option<String>,
    pub(crate) mode: Mode,
    has_timer: bool,
    /// Where answers go instead of the output.
    answers: Option<Target<'static>>,
    /// The answer at hand is that of `.output` itself, which belongs into no file.
    is_aside: bool,
    /// Somebody sees what goes to the output.
    has_terminal: bool,
    /// Set where late answers can be printed; without it they are asked for by `wait`.
    pub(crate) printer: Option<Printer>,
    /// Table names, as last seen, for completion.
    pub(crate) tables: BTreeSet<String>,
}

/// What is printed: data as it is, and then an answer, without a line ending.
pub(crate) struct Shown {
    data: Vec<u8>,
    text: String,
    /// The text is data, too: nothing in it is escaped.
    is_exact: bool,
}

impl From<String> for Shown {
    fn from(text: String) -> Shown {
        Shown { data: Vec::new(), text, is_exact: false }
    }
}

/// What the shell does next.
pub(crate) enum Next {
    Print(Shown, bool),
    /// The same, of a command that Ctrl-C has stopped.
    Interrupted(Shown),
    /// These words are a command of the command line, in that transaction.
    Outer(Option<String>, Vec<OuterWord>),
    /// The commands of that file come next.
    Read(String),
    Quit,
}

impl Session {
    pub(crate) fn open(at: &DirArgs, mode: Mode, output: &Output) -> anyhow::Result<Session> {
        let env = open_by(options(at.cache), &at.dir, output)?;
        let tables = env.table_names()?.into_iter().collect();
        Ok(Session {
            env,
            dir: at.dir.clone(),
            cache: at.cache,
            board: Arc::default(),
            workers: BTreeMap::new(),
            current: None,
            mode,
            has_timer: false,
            answers: None,
            is_aside: false,
            has_terminal: std::io::stdout().is_terminal(),
            printer: None,
            tables,
        })
    }

    /// Runs a line that was understood.
    pub(crate) fn run(&mut self, line: Line) -> Next {
        match line.command {
            Command::Read(file) => return Next::Read(file),
            Command::Outer(words) => return Next::Outer(line.at, words),
            _ => {}
        }
        let began = Instant::now();
        let _heeding = interrupt::heed();
        let answer = match self.answer(line) {
            Ok(Some(answer)) => answer,
            Ok(None) => return Next::Quit,
            Err(answer) => answer,
        };
        self.shown(&answer, began, interrupt::is_asked())
    }

    /// An answer to a command that began then.
    pub(super) fn shown(&self, answer: &Answer, began: Instant, is_interrupted: bool) -> Next {
        let ms = self.has_timer.then(|| milliseconds(began.elapsed()));
        let wants_exact = self.mode == Mode::Csv && self.is_unseen();
        let exact = wants_exact.then(|| answer.exact_csv()).flatten();
        let (refused, exact) = exact.map_or((None, None), |exact| (exact.as_ref().err().cloned(), exact.ok()));
        let answer = refused.as_ref().unwrap_or(answer);
        let is_exact = exact.is_some();
        let text = exact.unwrap_or_else(|| answer.show(self.mode, ms.filter(|_| !self.is_data())));
        if self.is_data() {
            if let Some(note) = answer.cut_short() {
                say_note(note);
            }
            if let Some(ms) = ms {
                say_note(format_args!("{ms:.3} ms"));
            }
        }
        let shown = Shown { data: answer.data().to_vec(), text, is_exact };
        if is_interrupted { Next::Interrupted(shown) } else { Next::Print(shown, answer.is_error()) }
    }

    /// Lists and CSV are data, and nothing else is among it: no time, and no word that there is more.
    fn is_data(&self) -> bool {
        matches!(self.mode, Mode::List | Mode::Csv)
    }

    /// Answers go to a file or a program.
    fn is_unseen(&self) -> bool {
        self.answers.is_some() || !self.has_terminal
    }

    /// The limit of a command that shows records: data that nobody sees is whole.
    fn limit(&self, asked: Option<u64>) -> Option<u64> {
        asked.or_else(|| (self.is_data() && self.is_unseen()).then_some(u64::MAX))
    }

    /// The directory that is open.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(super) fn is_json(&self) -> bool {
        self.mode == Mode::Json
    }

    /// Lends the environment to commands of the command line.
    pub(super) fn lend(&self) -> Lending {
        lend(&self.dir, &self.env, None)
    }

    /// Where a command of the command line writes: where answers go.
    pub(super) fn output(&mut self, is_json: bool, is_quiet: bool) -> std::io::Result<Output> {
        match &mut self.answers {
            Some(file) => Ok(Output::to(Box::new(file.share()?), is_json, is_quiet)),
            None => Ok(Output::new(is_json, is_quiet)),
        }
    }

    /// Whether a command could wait for a transaction that ends only here: one that is open by name, or one in doubt.
    pub(super) fn may_wait(&mut self) -> bool {
        self.forget_ended();
        !self.names().is_empty() || !self.env.in_doubt().is_empty()
    }

    /// Asks the worker of this transaction, or of the current one.
    pub(super) fn ask_for(&mut self, at: Option<String>, job: Job) -> Result<Answer, Answer> {
        let name = at.or_else(|| self.current.clone());
        self.ask(name, job)
    }

    /// Refuses what would wait for transactions of this shell, which end only here.
    pub(super) fn alone(&mut self) -> Result<(), Answer> {
        self.forget_ended();
        let open = self.names();
        match open.is_empty() {
            true => Ok(()),
            false => Err(Answer::usage(format!("transactions are open ({}); end them first", open.join(", ")))),
        }
    }

    /// An answer, or an answer that refuses; `None` to leave.
    fn answer(&mut self, Line { at, command }: Line) -> Result<Option<Answer>, Answer> {
        let named = |name: Option<String>| name.or_else(|| at.clone());
        let answer = match command {
            Command::Data(mut data) => {
                if let Data::Scan(scan) | Data::Lookup { scan, .. } = &mut data {
                    scan.limit = self.limit(scan.limit);
                }
                let name = at.or_else(|| self.current.clone()).filter(|name| name != AUTO);
                if name.is_none() && matches!(data, Data::Savepoint(_) | Data::RollbackTo(_) | Data::Release(_)) {
                    let message =
                        "a savepoint is a point of a transaction, and none is the current one; begin it".into();
                    return Err(Answer::Failed { kind: "no-such-transaction", message });
                }
                let answer = self.ask(name, Job::Data(data.clone()))?;
                self.note_tables(&data, &answer);
                answer
            }
            Command::Begin { name, how } => {
                let name = named(name).unwrap_or_else(|| UNNAMED.to_owned());
                let options = TransactionOptions {
                    durability: how.durability,
                    lock_timeout: how.timeout,
                    isolation: how.isolation,
                    read_only: how.is_read_only,
                };
                self.begin(&name, options)?
            }
            Command::Commit(name) => self.end(named(name), Job::Commit)?,
            Command::Abort(name) => self.end(named(name), Job::Abort)?,
            Command::Prepare(id) => self.end(at, Job::Prepare(id))?,
            Command::InDoubt => self.in_doubt(),
            Command::Decide { id, commits } => self.decide(&id, commits),
            Command::Use(name) => {
                if let Some(name) = &name {
                    self.worker(name)?;
                }
                self.current = name;
                Answer::Done
            }
            Command::Transactions => self.transactions(),
            Command::Wait(name) => self.wait(named(name))?,
            Command::Stat => self.ask(Some(AUTO.into()), Job::Stat)?,
            Command::Changes { from, limit } => {
                let limit = self.limit(limit);
                self.ask(Some(AUTO.into()), Job::Changes { from, limit })?
            }
            Command::Compact => self.ask(Some(AUTO.into()), Job::Compact)?,
            Command::Checkpoint => self.ask(Some(AUTO.into()), Job::Checkpoint)?,
            Command::Verify => self.ask(Some(AUTO.into()), Job::Verify)?,
            Command::Open(dir) => self.change(&dir)?,
            Command::Output(name) => {
                self.is_aside = true;
                let refuse = |error: anyhow::Error| Answer::usage(outcome::message(&error));
                self.keep_answers().map_err(refuse)?;
                self.answers = name.as_deref().map(Path::new).map(Target::file).transpose().map_err(refuse)?;
                Answer::Done
            }
            Command::Mode(mode) => {
                self.mode = mode;
                Answer::Done
            }
            Command::Timer(is_on) => {
                self.has_timer = is_on;
                Answer::Done
            }
            Command::Help(about) => help(about),
            Command::HelpOuter(name) => outer::help_answer(&name),
            Command::Elsewhere(name) => outer::not_here(&name),
            Command::Quit | Command::Read(_) | Command::Outer(_) => return Ok(None), // The others are not asked here.
        };
        Ok(Some(answer))
    }

    /// What was written for `.output` gets its name.
    fn keep_answers(&mut self) -> anyhow::Result<()> {
        self.answers.take().map_or(Ok(()), Target::finish)
    }

    /// Shows an answer, or writes it where `.output` has said.
    pub(crate) fn print(&mut self, shown: &Shown, output: &Output) -> std::io::Result<()> {
        match self.answers.as_mut().filter(|_| !std::mem::take(&mut self.is_aside)) {
            Some(file) => {
                file.writer().write_all(&shown.data)?;
                writeln!(file.writer(), "{}", shown.text)
            }
            None => {
                output.bytes(&shown.data)?;
                match shown.is_exact {
                    true => output.bytes(shown.text.as_bytes()).and_then(|()| output.bytes(b"\n"))?,
                    false => output.line(&shown.text)?,
                }
                output.flush() // A program at the other end of a pipe waits for it.
            }
        }
    }

    fn worker(&self, name: &str) -> Result<&Worker, Answer> {
        self.workers.get(name).ok_or_else(|| Answer::Failed {
            kind: "no-such-transaction",
            message: format!("there is no transaction {name}; begin it"),
        })
    }

    fn begin(&mut self, name: &str, options: TransactionOptions) -> Result<Answer, Answer> {
        if name == AUTO {
            return Err(Answer::usage(format!(
                "{AUTO} is the name of commands outside of transactions; choose another"
            )));
        }
        if self.workers.contains_key(name) {
            return Err(Answer::Failed {
                kind: "transaction-exists",
                message: format!("transaction {name} is open already"),
            });
        }
        let txn = self.env.begin_with(options).map_err(|error| Answer::of(Err(error)))?;
        let worker = Worker::start(name, &self.env, Some(txn), &self.board).map_err(no_thread)?;
        self.workers.insert(name.to_owned(), worker);
        self.current = Some(name.to_owned());
        Ok(Answer::Done)
    }

    /// Gives a worker a job and waits for everything to be at rest (Z1).
    fn ask(&mut self, name: Option<String>, job: Job) -> Result<Answer, Answer> {
        let name = name.unwrap_or_else(|| AUTO.to_owned());
        if name == AUTO && !self.workers.contains_key(AUTO) {
            let worker = Worker::start(AUTO, &self.env, None, &self.board).map_err(no_thread)?;
            self.workers.insert(AUTO.to_owned(), worker);
        }
        let worker = self.worker(&name)?;
        if self.board.look().iter().any(|(other, seen, _)| *other == name && *seen != Seen::Idle) {
            return Err(busy(&name)); // Z2
        }
        worker.ask(job);
        self.rest();
        Ok(self.collect(&name))
    }

    fn end(&mut self, name: Option<String>, job: Job) -> Result<Answer, Answer> {
        let Some(name) = name.or_else(|| self.current.clone()) else {
            return Err(Answer::Failed {
                kind: "no-such-transaction",
                message: "no transaction is the current one; name it".into(),
            });
        };
        if name == AUTO {
            return Err(Answer::usage("each command outside of transactions ends by itself"));
        }
        self.ask(Some(name), job)
    }

    fn wait(&mut self, name: Option<String>) -> Result<Answer, Answer> {
        let name = name.or_else(|| self.current.clone()).unwrap_or_else(|| AUTO.to_owned());
        self.worker(&name)?;
        self.board.attach(&name);
        loop {
            match self.board.look().into_iter().find(|(other, ..)| *other == name) {
                Some((_, Seen::Running, _)) if interrupt::is_asked() => return Ok(self.collect(&name)),
                Some((_, Seen::Running, _)) => self.board.wait(MOMENT),
                Some((_, Seen::Answered, _)) => {
                    self.rest();
                    return Ok(self.collect(&name));
                }
                _ => {
                    return Err(Answer::Failed {
                        kind: "nothing-to-wait-for",
                        message: format!("{name} has no command under way"),
                    });
                }
            }
        }
    }

    /// The answer of a worker, or that it waits. A transaction that has ended is forgotten.
    fn collect(&mut self, name: &str) -> Answer {
        let detached = match (self.board.take(name), &self.printer) {
            (Some(answer), _) => Some(answer),
            (None, Some(printer)) => self.board.detach(name, Arc::clone(printer)),
            (None, None) => None,
        };
        let Some(answer) = detached else {
            return if interrupt::is_asked() { goes_on(name) } else { self.waiting(name) };
        };
        self.forget_ended();
        answer
    }

    /// The names of open transactions.
    pub(crate) fn names(&self) -> Vec<String> {
        self.workers.keys().filter(|name| *name != AUTO).cloned().collect()
    }

    /// Forgets transactions that have ended and whose answers were taken.
    pub(crate) fn forget_ended(&mut self) {
        let idle: Vec<String> =
            self.board.look().into_iter().filter(|(_, seen, _)| *seen == Seen::Idle).map(|(name, ..)| name).collect();
        for name in idle {
            if self.board.has_ended(&name) {
                self.workers.remove(&name);
                self.current.take_if(|current| *current == name);
            }
        }
    }

    /// Waits until each worker is done, or held up by a transaction that only we can end (Z1).
    fn rest(&self) {
        let mut asked_at = None;
        loop {
            if interrupt::is_asked() && asked_at.get_or_insert_with(Instant::now).elapsed() > STOP_PERIOD {
                return;
            }
            let seen = self.board.look();
            if seen.iter().all(|(_, seen, _)| *seen != Seen::Running) {
                return;
            }
            self.board.wait(MOMENT);
            let waits = self.env.lock_waits();
            let seen = self.look();
            if seen.iter().all(|(_, step, xid)| *step != Seen::Running || is_held_up(*xid, &seen, &waits)) {
                return;
            }
        }
    }

    /// The workers, and the transactions in doubt: they hold their locks until somebody decides them.
    fn look(&self) -> Vec<(String, Seen, Option<Xid>)> {
        let in_doubt = self.env.in_doubt();
        let in_doubt = in_doubt.iter().map(|found| (quote(&found.global_id), Seen::Idle, Some(found.xid)));
        self.board.look().into_iter().chain(in_doubt).collect()
    }

    fn in_doubt(&self) -> Answer {
        let found = self.env.in_doubt();
        let line = |found: &InDoubt| {
            (quote(&found.global_id), format!("transaction {}, {}", found.xid, counted(found.lock_count, "lock")))
        };
        let objects: Vec<_> = found.iter().map(in_doubt_json).collect();
        Answer::Lines(found.iter().map(line).collect()).with(json!({ "records": objects }))
    }

    /// Decides a transaction in doubt. Not in a worker: any of them may be waiting for it.
    fn decide(&self, id: &[u8], commits: bool) -> Answer {
        let decided = match commits {
            true => self.env.commit_in_doubt(id).map(drop),
            false => self.env.abort_in_doubt(id),
        };
        self.rest(); // Z1
        Answer::of(decided.map(|()| Answer::done(id_json(id).into(), true)))
    }

    fn waiting(&self, name: &str) -> Answer {
        let (seen, waits) = (self.look(), self.env.lock_waits());
        let xid = seen.iter().find(|(other, ..)| other == name).and_then(|(.., xid)| *xid);
        let own = waits_of(xid, &seen, &waits);
        let mut waits_for: Vec<String> = own.iter().map(|wait| name_of(wait.waits_for, &seen)).collect();
        waits_for.dedup();
        let what = own.first().map_or_else(String::new, |wait| format!("{} on {}", wait.mode, wait.what));
        if waits_for.is_empty() {
            waits_for.push("others".into()); // It has gone on meanwhile, or waits for no lock.
        }
        Answer::Waiting { who: name.to_owned(), waits_for, what }
    }

    fn transactions(&self) -> Answer {
        let (seen, waits) = (self.look(), self.env.lock_waits());
        let line = |(name, step, xid): &(String, Seen, Option<Xid>)| {
            let blockers: Vec<String> =
                waits_of(*xid, &seen, &waits).iter().map(|wait| name_of(wait.waits_for, &seen)).collect();
            let current = if self.current.as_ref() == Some(name) { ", current" } else { "" };
            let text = match step {
                Seen::Running if !blockers.is_empty() => format!("waits for {}{current}", blockers.join(", ")),
                Seen::Running => format!("runs a command{current}"),
                Seen::Answered => format!("has an answer: wait {name}{current}"),
                Seen::Idle => format!("open{current}"),
            };
            (name.clone(), text)
        };
        let is_open =
            |(name, step, _): &&(String, Seen, Option<Xid>)| *step != Seen::Idle || self.names().contains(name);
        Answer::Lines(seen.iter().filter(is_open).map(line).collect())
    }

    fn change(&mut self, dir: &str) -> Result<Answer, Answer> {
        self.alone()?;
        self.workers.clear();
        let dir = PathBuf::from(dir);
        if outer::is_open(self, &dir) {
            return Err(Answer::usage(format!("{} is the environment that is open here", dir.display())));
        }
        let refuse = |error: Error| Answer::of(Err(error));
        let env = options(self.cache).open(&dir).map_err(refuse)?;
        env.wait_rolled_back().map_err(refuse)?;
        let old = std::mem::replace(&mut self.env, env);
        old.close().map_err(refuse)?;
        self.dir = dir;
        self.tables = self.env.table_names().map_err(refuse)?.into_iter().collect();
        Ok(Answer::Done)
    }

    fn note_tables(&mut self, data: &Data, answer: &Answer) {
        match (data, answer.for_people()) {
            (Data::Tables, Answer::Names(names)) => self.tables = names.iter().cloned().collect(),
            (Data::Create(table), Answer::Done) => {
                self.tables.insert(table.clone());
            }
            (Data::Drop(table), Answer::Done) => {
                self.tables.remove(table);
            }
            _ => {}
        }
    }

    /// Rolls open transactions back and closes; says which were open.
    pub(crate) fn close(mut self) -> anyhow::Result<Vec<String>> {
        let kept = self.keep_answers();
        self.forget_ended();
        let open = self.names();
        // All at once: those that wait get on when the others roll back.
        self.workers.values_mut().for_each(Worker::dismiss);
        self.workers.clear();
        self.env.close()?;
        kept.map(|()| open)
    }
}

fn options(cache: Option<u64>) -> Options {
    cache.into_iter().fold(Environment::options().create(false).sharing(Sharing::AsFound), Options::cache_bytes)
}

/// What a running worker waits for. `xid` is `None` for a command of the whole environment, whose transactions are its
/// own: then these are the waits that are nobody else's.
fn waits_of<'w>(xid: Option<Xid>, seen: &[(String, Seen, Option<Xid>)], waits: &'w [LockWait]) -> Vec<&'w LockWait> {
    let is_ours = |waiter: Xid| seen.iter().any(|(.., other)| *other == Some(waiter));
    let is_of_it = |wait: &&LockWait| xid.map_or_else(|| !is_ours(wait.waiter), |xid| wait.waiter == xid);
    waits.iter().filter(is_of_it).collect()
}

/// Whether a running worker waits, directly or through others, for a transaction that is idle here, in no circle (Z3).
/// `xid` is `None` for a command of the whole environment: then it is one of the waiters that are nobody else's.
fn is_held_up(xid: Option<Xid>, seen: &[(String, Seen, Option<Xid>)], waits: &[LockWait]) -> bool {
    let mut open: Vec<Xid> = match xid {
        Some(xid) => vec![xid],
        None => waits_of(None, seen, waits).iter().map(|wait| wait.waiter).collect(),
    };
    let start = open.clone();
    let (mut met, mut reaches_idle) = (BTreeSet::new(), false);
    while let Some(waiter) = open.pop() {
        for wait in waits.iter().filter(|wait| wait.waiter == waiter) {
            let next = wait.waits_for;
            if start.contains(&next) {
                return false;
            }
            reaches_idle |= seen.iter().any(|(_, step, other)| *other == Some(next) && *step != Seen::Running);
            if met.insert(next.0) {
                open.push(next);
            }
        }
    }
    reaches_idle
}

fn name_of(xid: Xid, seen: &[(String, Seen, Option<Xid>)]) -> String {
    let name = seen.iter().find(|(.., other)| *other == Some(xid)).map(|(name, ..)| name.clone());
    name.unwrap_or_else(|| format!("transaction {}", xid.0))
}

fn goes_on(name: &str) -> Answer {
    Answer::Failed {
        kind: "interrupted",
        message: format!("the command cannot be stopped where it is, and goes on; ask for its answer: wait {name}"),
    }
}

fn busy(name: &str) -> Answer {
    Answer::Failed {
        kind: "busy",
        message: format!("{name} has a command under way; take its answer first: wait {name}"),
    }
}

fn no_thread(error: std::io::Error) -> Answer {
    Answer::Failed { kind: "refused", message: format!("no thread for the transaction: {error}") }
}

/// Divided once, so that it has no more digits than the clock gives.
fn milliseconds(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1e6
}

fn help(about: Option<&'static Usage>) -> Answer {
    let line = |usage: &Usage| {
        let mut what = usage.about.to_owned();
        if about.is_some() && outer::find(usage.name).is_some() {
            what += &format!(" With options it is that of the command line: {} --help shows them.", usage.name);
        }
        (usage.usage.to_owned(), what)
    };
    let mut lines: Vec<_> =
        COMMANDS.iter().filter(|usage| about.is_none_or(|about| about.name == usage.name)).map(line).collect();
    if about.is_none() {
        lines
            .extend(outer::commands().iter().map(|outer| (format!("{} ...", outer.name), format!("{}.", outer.about))));
        lines.push(("@NAME COMMAND".into(), "Run one command in that transaction.".into()));
        lines.push((
            "'a b' \"a\\n\" x'00ff' u64:7".into(),
            "Keys and values with blanks, with escapes, in hexadecimal digits, as numbers.".into(),
        ));
    }
    Answer::Usage(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(waiter: u64, waits_for: u64) -> LockWait {
        let (mode, what) = ("X".into(), "key".into());
        LockWait { waiter: Xid(waiter), waits_for: Xid(waits_for), mode, table: None, what, is_held_up: false }
    }

    #[test]
    fn only_who_waits_for_an_idle_transaction_of_ours_is_held_up() {
        let seen = |steps: &[(u64, Seen)]| {
            steps.iter().map(|(xid, step)| (format!("t{xid}"), *step, Some(Xid(*xid)))).collect::<Vec<_>>()
        };
        let all = seen(&[(1, Seen::Idle), (2, Seen::Running), (3, Seen::Running), (4, Seen::Answered)]);
        let check = |xid: u64, waits: &[LockWait]| is_held_up(Some(Xid(xid)), &all, waits);
        assert!(!check(2, &[]), "it runs");
        assert!(check(2, &[wait(2, 1)]));
        assert!(check(2, &[wait(2, 3), wait(3, 4)]), "through another, for one whose answer nobody took");
        assert!(!check(2, &[wait(2, 9)]), "for a stranger, which will end by itself");
        assert!(!check(2, &[wait(2, 3), wait(3, 2), wait(2, 1)]), "a deadlock will be ended");
        assert!(is_held_up(None, &all, &[wait(9, 1)]), "a command of the whole environment");
    }

    #[test]
    fn times_have_no_more_digits_than_the_clock() {
        for nanos in (0..1_000).chain((1..1_000).map(|n| n * 1_000_003)) {
            let text = json!(milliseconds(Duration::from_nanos(nanos))).to_string();
            assert!(text.len() <= nanos.to_string().len().max(6) + 2, "{nanos} ns are {text} ms");
        }
    }
}
