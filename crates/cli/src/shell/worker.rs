//! A transaction on a thread of its own, so that one that waits for a lock does not stop the shell.
//!
//! ```text
//!             ask                   the command ends
//!   Idle ──────────────▶ Running ──────────────────────▶ Answered ──▶ Idle
//!    ▲                     │ detach                          take
//!    │   the command ends, ▼ its answer is printed
//!    └────────────────── Detached
//! ```
//! A worker whose transaction has ended says so with its answer, and its thread ends.
//!
//! The worker called [`AUTO`] has no transaction of its own: each of its commands is one.

use std::collections::BTreeMap;
use std::io::Write;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use ledgerstone::{Environment, Error, IndexDef, IndexRange, Lsn, Savepoint, Skipped, TableTypes, Transaction, Xid};
use parking_lot::{Condvar, Mutex};
use serde_json::{Map, Value, json};

use super::answer::{Answer, Forms};
use super::command::{Data, Scan};
use super::outer;
use super::words::{Word, quote};
use crate::args::Args;
use crate::changes::{Types, change_json, item_text};
use crate::commands::{index_key_json, record_json};
use crate::index::index_json;
use crate::inspect::{stat_json, table_json};
use crate::interrupt;
use crate::opening::lend;
use crate::output::{Output, bytes_readable, counted};
use crate::text::{Part, Text, check_types, typed_key, typed_value};

/// The worker for commands outside of named transactions.
pub(crate) const AUTO: &str = "auto";

/// Records that a scan shows unless told otherwise.
const SCAN_COUNT_MAX: u64 = 1000;

/// The records that an answer may hold, as it is in memory until it is shown.
const ANSWER_BYTES_MAX: u64 = 1 << 30;

/// What a worker is to do.
#[derive(Debug)]
pub(crate) enum Job {
    Data(Data),
    Commit,
    Abort,
    Prepare(Vec<u8>),
    Stat,
    Changes {
        from: u64,
        limit: Option<u64>,
    },
    Checkpoint,
    Compact,
    Verify,
    /// A command of the command line, in the environment of this directory.
    Outer {
        args: Box<Args>,
        dir: PathBuf,
    },
}

/// Prints an answer that came late.
pub(crate) type Printer = Arc<dyn Fn(&str, &Answer) + Send + Sync>;

#[derive(Default)]
enum Step {
    #[default]
    Idle,
    Running,
    Detached(Printer),
    Answered(Answer),
}

/// One worker, as the shell sees it.
#[derive(Default)]
struct Slot {
    step: Step,
    /// Its transaction; none between two commands of [`AUTO`], and after the end.
    xid: Option<Xid>,
    has_ended: bool,
}

/// Where workers and shell meet.
#[derive(Default)]
pub(crate) struct Board {
    slots: Mutex<BTreeMap<String, Slot>>,
    changed: Condvar,
}

/// What a slot looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Seen {
    Idle,
    Running,
    Answered,
}

impl Board {
    pub(crate) fn add(&self, name: &str, xid: Option<Xid>) {
        self.slots.lock().insert(name.to_owned(), Slot { xid, ..Slot::default() });
    }

    pub(crate) fn remove(&self, name: &str) {
        self.slots.lock().remove(name);
    }

    pub(crate) fn has_ended(&self, name: &str) -> bool {
        self.slots.lock().get(name).is_none_or(|slot| slot.has_ended)
    }

    /// Every worker with what it does and its transaction.
    pub(crate) fn look(&self) -> Vec<(String, Seen, Option<Xid>)> {
        let seen = |slot: &Slot| match slot.step {
            Step::Idle => Seen::Idle,
            Step::Running | Step::Detached(_) => Seen::Running,
            Step::Answered(_) => Seen::Answered,
        };
        self.slots.lock().iter().map(|(name, slot)| (name.clone(), seen(slot), slot.xid)).collect()
    }

    /// Waits until a worker is done, or a moment.
    pub(crate) fn wait(&self, moment: Duration) {
        let mut slots = self.slots.lock();
        if slots.values().any(|slot| matches!(slot.step, Step::Running | Step::Detached(_))) {
            self.changed.wait_for(&mut slots, moment);
        }
    }

    /// The answer of a worker, if it is there.
    pub(crate) fn take(&self, name: &str) -> Option<Answer> {
        let mut slots = self.slots.lock();
        let slot = slots.get_mut(name)?;
        match std::mem::take(&mut slot.step) {
            Step::Answered(answer) => Some(answer),
            other => {
                slot.step = other;
                None
            }
        }
    }

    /// From now on the answer is printed when it comes; if it is there already, it is returned.
    pub(crate) fn detach(&self, name: &str, printer: Printer) -> Option<Answer> {
        if let Some(slot) = self.slots.lock().get_mut(name)
            && matches!(slot.step, Step::Running)
        {
            slot.step = Step::Detached(printer);
            return None;
        }
        self.take(name)
    }

    /// The opposite: the answer is to be taken.
    pub(crate) fn attach(&self, name: &str) {
        if let Some(slot) = self.slots.lock().get_mut(name)
            && matches!(slot.step, Step::Detached(_))
        {
            slot.step = Step::Running;
        }
    }

    fn begin(&self, name: &str) {
        if let Some(slot) = self.slots.lock().get_mut(name) {
            slot.step = Step::Running;
        }
    }

    fn set_xid(&self, name: &str, xid: Option<Xid>) {
        if let Some(slot) = self.slots.lock().get_mut(name) {
            slot.xid = xid;
        }
    }

    fn answer(&self, name: &str, answer: Answer, has_ended: bool) {
        let mut slots = self.slots.lock();
        let Some(slot) = slots.get_mut(name) else { return };
        slot.has_ended = has_ended;
        if has_ended || name == AUTO {
            slot.xid = None;
        }
        match std::mem::take(&mut slot.step) {
            Step::Detached(printer) => {
                drop(slots);
                printer(name, &answer);
            }
            _ => slot.step = Step::Answered(answer),
        }
        self.changed.notify_all();
    }
}

/// A running worker. Dropped: its transaction is rolled back when its last command has ended.
pub(crate) struct Worker {
    name: String,
    board: Arc<Board>,
    jobs: Option<Sender<Job>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Worker {
    /// Starts the worker of a transaction, or that of single commands.
    pub(crate) fn start(
        name: &str,
        env: &Environment,
        txn: Option<Transaction>,
        board: &Arc<Board>,
    ) -> std::io::Result<Worker> {
        let (jobs, inbox) = channel();
        board.add(name, txn.as_ref().map(Transaction::xid));
        let hands =
            Hands { name: name.to_owned(), env: env.clone(), board: Arc::clone(board), txn, savepoints: Vec::new() };
        let thread =
            std::thread::Builder::new().name(format!("transaction {name}")).spawn(move || hands.work(&inbox))?;
        Ok(Worker { name: name.to_owned(), board: Arc::clone(board), jobs: Some(jobs), thread: Some(thread) })
    }

    pub(crate) fn ask(&self, job: Job) {
        self.board.begin(&self.name);
        let is_sent = self.jobs.as_ref().is_some_and(|jobs| jobs.send(job).is_ok());
        if !is_sent {
            self.board.answer(&self.name, Answer::of(Err(Error::Finished)), true);
        }
    }

    /// Lets it end without waiting for it.
    pub(crate) fn dismiss(&mut self) {
        self.jobs = None;
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.dismiss();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // Its panic has been printed.
        }
        self.board.remove(&self.name);
    }
}

/// The thread's side.
struct Hands {
    name: String,
    env: Environment,
    board: Arc<Board>,
    txn: Option<Transaction>,
    savepoints: Vec<(String, Savepoint)>,
}

impl Hands {
    fn work(mut self, inbox: &Receiver<Job>) {
        for job in inbox {
            let result = self.job(job);
            // A deadlock rolls back.
            let is_lost = matches!(
                result,
                Err(Error::Deadlock { .. } | Error::LockRefused { .. } | Error::Finished | Error::Failed { .. })
            );
            let has_ended = self.name != AUTO && (self.txn.is_none() || is_lost);
            if has_ended {
                self.txn = None; // Before the answer: a reader of the answer may rely on the locks being free.
            }
            self.board.answer(&self.name, Answer::of(result), has_ended);
            if has_ended {
                return;
            }
        }
    }

    fn job(&mut self, job: Job) -> Result<Answer, Error> {
        match job {
            Job::Data(data) => match &self.txn {
                Some(txn) => run(txn, &mut self.savepoints, data),
                None => {
                    let txn = self.env.begin()?;
                    self.board.set_xid(&self.name, Some(txn.xid()));
                    let answer = run(&txn, &mut self.savepoints, data)?;
                    self.savepoints.clear();
                    txn.commit()?;
                    Ok(answer)
                }
            },
            Job::Commit => match self.txn.take() {
                Some(txn) => txn.commit().map(|_| Answer::Done),
                None => Err(Error::Finished),
            },
            Job::Abort => match self.txn.take() {
                Some(txn) => txn.abort().map(|()| Answer::Done),
                None => Err(Error::Finished),
            },
            Job::Prepare(id) => match self.txn.take() {
                Some(txn) => txn.prepare(&id).map(|_| Answer::Done), // It stays in doubt without its handle.
                None => Err(Error::Finished),
            },
            Job::Stat => {
                let told = stat_json(&self.env)?;
                Ok(Answer::Figures(members(told["stat"].clone())).with(told))
            }
            Job::Changes { from, limit } => changes(&self.env, from, limit),
            Job::Compact => {
                let report = self.env.compact_with(|_| interrupt::flow())?;
                let told = serde_json::to_value(report).unwrap_or_default();
                Ok(Answer::Figures(members(told.clone())).with(told))
            }
            Job::Checkpoint => {
                let lsn = self.env.checkpoint()?;
                Ok(Answer::Done.with(json!({ "checkpoint_lsn": lsn.0 })))
            }
            Job::Outer { args, dir } => self.outer(&args, &dir),
            Job::Verify => {
                let report = match self.env.verify_with(|_| interrupt::flow()) {
                    Err(Error::Cancelled) => return Ok(interrupted("stopped before the end; nothing was changed")),
                    report => report?,
                };
                let answer = match report.problems.first() {
                    None if report.skipped.is_empty() => Answer::Count(0),
                    None => {
                        let line =
                            |skipped: &Skipped| (skipped.place.clone(), format!("not verified; {}", skipped.why));
                        Answer::Lines(report.skipped.iter().map(line).collect())
                    }
                    Some(first) => {
                        let count = counted(report.problems.len() as u64, "problem");
                        let what = format!("{count}, the first in {}: {}", first.place, first.what);
                        Answer::Failed { kind: "corrupt", message: what }
                    }
                };
                Ok(answer.with(serde_json::to_value(report).unwrap_or_default()))
            }
        }
    }

    /// Runs a command of the command line as a part of the transaction, or in one of its own. Its data waits for the
    /// answer: until then others may print.
    fn outer(&mut self, args: &Args, dir: &Path) -> Result<Answer, Error> {
        let printed = Printed::default();
        let output = Output::to(Box::new(printed.clone()), args.json, args.quiet);
        let txn = self.txn.take().map(Rc::new);
        let lent = lend(dir, &self.env, txn.clone());
        let result = outer::run_whole(args, &output);
        drop((lent, output));
        self.txn = txn.and_then(Rc::into_inner);
        let result = match result.map_err(anyhow::Error::downcast::<Error>) {
            Err(Ok(error)) => return Err(error), // It may have ended the transaction.
            Err(Err(other)) => Err(other),
            Ok(outcome) => Ok(outcome),
        };
        let data = std::mem::take(&mut *printed.0.lock());
        Ok(Answer::Printed { data, then: Box::new(outer::answer(result)) })
    }
}

/// Where a command prints in memory.
#[derive(Clone, Default)]
struct Printed(Arc<Mutex<Vec<u8>>>);

impl Write for Printed {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn members(object: Value) -> Map<String, Value> {
    if let Value::Object(members) = object { members } else { Map::new() }
}

fn run(txn: &Transaction, savepoints: &mut Vec<(String, Savepoint)>, data: Data) -> Result<Answer, Error> {
    match data {
        Data::Tables => {
            let names = txn.table_names()?;
            let object = |name: &String| Ok(table_json(&txn.bytes(name)?));
            let objects = names.iter().map(object).collect::<Result<Vec<_>, Error>>()?;
            Ok(Answer::Names(names).with(json!({ "records": objects })))
        }
        Data::Create(table) => txn.create_table(&table).map(|_| Answer::Done),
        Data::Drop(table) => txn.drop_table(&table).map(|()| Answer::Done),
        Data::Rename { table, new } => {
            txn.rename_table(&table, &new)?;
            Ok(Answer::done(json!({ "table": table, "new": new }), true))
        }
        Data::Indexes(table) => {
            let shown = |index: &IndexDef| {
                let keys = format!("{}{}", index.keys(), if index.is_unique() { " unique" } else { "" });
                (index.name().as_bytes().to_vec(), Some(keys.into_bytes()))
            };
            let found = txn.bytes(&table)?;
            let records = found.indexes().iter().map(shown).collect();
            let objects: Vec<Value> = found.indexes().iter().map(|index| index_json(&table, index)).collect();
            let answer = Answer::Records { records, has_more: false, forms: Box::new(Forms::PLAIN) };
            Ok(answer.with(json!({ "more": false, "records": objects })))
        }
        Data::Index { table, index, keys, is_unique } => {
            let index = IndexDef::new(index, keys);
            let index = if is_unique { index.unique() } else { index };
            match txn.create_index_with(&table, &index, |_| interrupt::flow()) {
                Err(Error::Cancelled) => Ok(interrupted("stopped; no index was made")),
                made => made.map(|()| Answer::done(index_json(&table, &index), true)),
            }
        }
        Data::Unindex { table, index } => {
            txn.drop_index(&table, &index)?;
            Ok(Answer::done(json!({ "table": table, "index": index }), true))
        }
        Data::Lookup { index, scan } => lookup(txn, &index, &scan),
        Data::Put { table, key, value, must_be_new } => {
            let table = txn.bytes(&table)?;
            let record = || {
                let (key, value) = (key_of_word(table.types(), &key)?, value_of_word(table.types(), &value)?);
                check_types(table.types(), &key, &value).map(|()| (key, value))
            };
            let (key, value) = match record() {
                Ok(record) => record,
                Err(message) => return Ok(wrong_type(message)),
            };
            if must_be_new {
                table.insert_new(&key, &value)?
            } else {
                table.put(&key, &value)?
            }
            Ok(Answer::done(record_json(&Text::of_table(&table), &key, None), true))
        }
        Data::Get { table, key, for_update } => {
            let table = txn.bytes(&table)?;
            let key = match key_of_word(table.types(), &key) {
                Ok(key) => key,
                Err(message) => return Ok(wrong_type(message)),
            };
            let value = if for_update { table.get_for_update(&key)? } else { table.get(&key)? };
            let text = Text::of_table(&table);
            let mut told = record_json(&text, &key, value.as_deref());
            Ok(match value {
                Some(value) => Answer::Value(value, text).with(told),
                None => {
                    told["value"] = Value::Null;
                    Answer::NotThere.with(told)
                }
            })
        }
        Data::Del { table, key } => {
            let table = txn.bytes(&table)?;
            match key_of_word(table.types(), &key) {
                Ok(key) => Ok(Answer::done(record_json(&Text::of_table(&table), &key, None), table.delete(&key)?)),
                Err(message) => Ok(wrong_type(message)),
            }
        }
        Data::Scan(scan) => records(txn, &scan),
        Data::Count(table) => count(txn, &table),
        Data::Savepoint(name) => {
            savepoints.push((name, txn.savepoint()?));
            Ok(Answer::Done)
        }
        Data::RollbackTo(name) => {
            let at = find(savepoints, &name)?;
            txn.rollback_to(savepoints[at].1)?;
            savepoints.truncate(at + 1);
            Ok(Answer::Done)
        }
        Data::Release(name) => {
            let at = find(savepoints, &name)?;
            txn.release(savepoints[at].1)?;
            savepoints.truncate(at);
            Ok(Answer::Done)
        }
    }
}

/// The changes of the commits behind an LSN, a record each: the commit's LSN, and what changed.
fn changes(env: &Environment, from: u64, limit: Option<u64>) -> Result<Answer, Error> {
    let mut types = Types::of(env)?;
    let mut feed = env.changes(Lsn(from))?;
    let (mut records, mut objects, mut count, mut has_more) = (Vec::new(), Vec::new(), 0, false);
    let mut byte_count = 0;
    while let Some(commit) = feed.next()? {
        if interrupt::is_asked() {
            return Ok(stopped(records.len() as u64));
        }
        if count == limit.unwrap_or(SCAN_COUNT_MAX) {
            has_more = limit.is_none();
            break;
        }
        count += u64::from(commit.is_last);
        for item in &commit.items {
            types.learn(item);
            let text = types.of_item(item);
            let line = item_text(item, &text, " ", quote).into_bytes();
            byte_count += line.len() as u64;
            if byte_count > ANSWER_BYTES_MAX {
                return Ok(too_large(records.len() as u64, ANSWER_BYTES_MAX));
            }
            records.push((commit.lsn.to_string().into_bytes(), Some(line)));
            objects.push(change_json(&commit, item, &text));
        }
    }
    let answer = Answer::Records { records, has_more, forms: Box::new(Forms::Line) };
    Ok(answer.with(json!({ "more": has_more, "records": objects })))
}

/// Record by record, so that it can be stopped.
fn count(txn: &Transaction, table: &str) -> Result<Answer, Error> {
    let mut count = 0;
    for record in txn.bytes(table)?.range(..)? {
        if interrupt::is_asked() {
            return Ok(stopped(count));
        }
        record?;
        count += 1;
    }
    Ok(Answer::Count(count))
}

/// A word as a key of a table of these types: text is a number where they say so, other words are bytes.
fn key_of_word(types: &TableTypes, word: &Word) -> Result<Vec<u8>, String> {
    typed_or_bytes(word, |text| typed_key(types, text))
}

/// The same of a value.
fn value_of_word(types: &TableTypes, word: &Word) -> Result<Vec<u8>, String> {
    typed_or_bytes(word, |text| typed_value(types, text))
}

fn typed_or_bytes(word: &Word, typed: impl FnOnce(&str) -> Option<Result<Vec<u8>, String>>) -> Result<Vec<u8>, String> {
    let text = str::from_utf8(&word.bytes).ok().filter(|_| word.is_text);
    text.and_then(typed).unwrap_or_else(|| Ok(word.bytes.clone()))
}

fn wrong_type(message: String) -> Answer {
    Answer::Failed { kind: "wrong-type", message }
}

fn too_large(count: u64, bytes_max: u64) -> Answer {
    let message = format!(
        "the answer is longer than {} after {}; say limit N, or export the table",
        bytes_readable(bytes_max),
        counted(count, "record")
    );
    Answer::Failed { kind: "too-large", message }
}

fn stopped(count: u64) -> Answer {
    interrupted(&format!("stopped after {count} records"))
}

fn interrupted(message: &str) -> Answer {
    Answer::Failed { kind: "interrupted", message: message.to_owned() }
}

/// The newest savepoint of that name.
fn find(savepoints: &[(String, Savepoint)], name: &str) -> Result<usize, Error> {
    savepoints.iter().rposition(|(known, _)| known == name).ok_or(Error::NoSavepoint)
}

/// Records by an index: with `keys` index keys and keys, otherwise keys and values.
fn lookup(txn: &Transaction, index: &str, scan: &Scan) -> Result<Answer, Error> {
    let table = txn.bytes(&scan.table)?;
    let index = table.index(index)?;
    let (text, keys) = (Text::of_table(&table), Text::of_index_keys(index.key_type()));
    let mut ranges = Vec::new();
    if let Some(prefix) = &scan.prefix {
        match prefix_of_word(&keys, prefix) {
            Ok(prefix) => ranges.push(index.prefix(&prefix)?),
            Err(message) => return Ok(wrong_type(message)),
        }
    } else {
        match parts_of_words(&keys, scan) {
            Ok(parts) => {
                for (from, to) in &parts {
                    ranges.push(index.range((from.as_ref().map(Vec::as_slice), to.as_ref().map(Vec::as_slice)))?);
                }
            }
            Err(message) => return Ok(wrong_type(message)),
        }
    }
    let mut objects = Vec::new();
    let mut told = |index_key: &[u8], key: &[u8], value: Option<&[u8]>| {
        let mut object = record_json(&text, key, value);
        index_key_json(&keys, index_key, &mut object);
        objects.push(object);
    };
    let answer = if scan.keys_only {
        let mut entries = ranges.into_iter().flatten();
        let forms = Forms::Entry { index: keys.clone(), table: text.clone() };
        limited(scan, forms, |is_reverse| {
            let entry = if is_reverse { entries.next_back() } else { entries.next() };
            Some(entry?.map(|(index_key, key)| {
                told(&index_key, &key, None);
                (index_key, Some(key))
            }))
        })?
    } else {
        let mut records = ranges.into_iter().flat_map(IndexRange::records);
        limited(scan, Forms::Record(text.clone()), |is_reverse| {
            let record = if is_reverse { records.next_back() } else { records.next() };
            Some(record?.map(|(index_key, key, value)| {
                told(&index_key, &key, Some(&value));
                (key, Some(value))
            }))
        })?
    };
    let Answer::Records { records, has_more, .. } = &answer else { return Ok(answer) };
    objects.truncate(records.len()); // It may have looked whether there is more.
    let json = json!({ "more": has_more, "records": objects });
    Ok(answer.with(json))
}

/// The parts of an index that a command asks for: words in double quotes and typed ones are bytes, others are of the
/// index's type.
fn parts_of_words(keys: &Text, scan: &Scan) -> Result<Vec<Part>, String> {
    let [is, from, to] = [&scan.is, &scan.from, &scan.to].map(|word| word.as_ref().map(text_of).transpose());
    if let (Ok(is), Ok(from), Ok(to)) = (is, from, to) {
        return keys.index_parts(is, from, to);
    }
    let bytes = |word: &Option<Word>| {
        word.as_ref().map(|word| text_of(word).map_or_else(Ok, |text| keys.key(text))).transpose()
    };
    Ok(vec![match bytes(&scan.is)? {
        Some(key) => (Bound::Included(key.clone()), Bound::Included(key)),
        None => (
            bytes(&scan.from)?.map_or(Bound::Unbounded, Bound::Included),
            bytes(&scan.to)?.map_or(Bound::Unbounded, Bound::Excluded),
        ),
    }])
}

/// A word that is text, or its bytes.
fn text_of(word: &Word) -> Result<&str, Vec<u8>> {
    str::from_utf8(&word.bytes).ok().filter(|_| word.is_text).ok_or_else(|| word.bytes.clone())
}

/// The bytes that keys are to begin with.
fn prefix_of_word(text: &Text, word: &Word) -> Result<Vec<u8>, String> {
    text_of(word).map_or_else(Ok, |prefix| text.prefix(prefix))
}

fn records(txn: &Transaction, scan: &Scan) -> Result<Answer, Error> {
    let table = txn.bytes(&scan.table)?;
    let mut range = match &scan.prefix {
        Some(prefix) => match prefix_of_word(&Text::of_table(&table), prefix) {
            Ok(prefix) => table.prefix(&prefix)?,
            Err(message) => return Ok(wrong_type(message)),
        },
        None => {
            let bound = |word: &Option<Word>| word.as_ref().map(|word| key_of_word(table.types(), word)).transpose();
            let (from, to) = match bound(&scan.from).and_then(|from| Ok((from, bound(&scan.to)?))) {
                Ok(bounds) => bounds,
                Err(message) => return Ok(wrong_type(message)),
            };
            let from = from.as_deref().map_or(Bound::Unbounded, Bound::Included);
            let to = to.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
            table.range((from, to))?
        }
    };
    let shown = |record: Result<(Vec<u8>, Vec<u8>), Error>| {
        record.map(|(key, value)| (key, (!scan.keys_only).then_some(value)))
    };
    let forms = Forms::Record(Text::of_table(&table));
    limited(scan, forms, |is_reverse| if is_reverse { range.next_back() } else { range.next() }.map(shown))
}

/// As many as the command asks for.
fn limited(
    scan: &Scan,
    forms: Forms,
    next: impl FnMut(bool) -> Option<Result<(Vec<u8>, Option<Vec<u8>>), Error>>,
) -> Result<Answer, Error> {
    limited_to(ANSWER_BYTES_MAX, scan, forms, next)
}

fn limited_to(
    bytes_max: u64,
    scan: &Scan,
    forms: Forms,
    mut next: impl FnMut(bool) -> Option<Result<(Vec<u8>, Option<Vec<u8>>), Error>>,
) -> Result<Answer, Error> {
    let limit = scan.limit.unwrap_or(SCAN_COUNT_MAX);
    let (mut records, mut byte_count) = (Vec::new(), 0);
    while (records.len() as u64) < limit {
        if interrupt::is_asked() {
            return Ok(stopped(records.len() as u64));
        }
        let Some(record) = next(scan.is_reverse) else {
            return Ok(Answer::Records { records, has_more: false, forms: Box::new(forms) });
        };
        let (key, value) = record?;
        byte_count += (key.len() + value.as_ref().map_or(0, Vec::len)) as u64;
        if byte_count > bytes_max {
            return Ok(too_large(records.len() as u64, bytes_max));
        }
        records.push((key, value));
    }
    // Only a limit that nobody asked for needs to be told.
    let has_more = scan.limit.is_none() && next(scan.is_reverse).transpose()?.is_some();
    Ok(Answer::Records { records, has_more, forms: Box::new(forms) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_memory_should_not_hold_is_refused_and_never_cut() {
        let scan = Scan { limit: Some(u64::MAX), ..Scan::default() };
        let answer = |count: usize| {
            let mut records = vec![(b"k".to_vec(), Some(b"123".to_vec())); count].into_iter();
            limited_to(8, &scan, Forms::PLAIN, |_| records.next().map(Ok)).unwrap()
        };
        assert!(matches!(answer(2), Answer::Records { records, has_more: false, .. } if records.len() == 2));
        let Answer::Failed { kind, message } = answer(3) else { panic!("it is cut") };
        assert_eq!(kind, "too-large");
        assert_eq!(message, "the answer is longer than 8 B after 2 records; say limit N, or export the table");
    }
}
