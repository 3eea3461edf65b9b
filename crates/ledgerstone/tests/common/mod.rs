//! What the tests of faults share: small environments, a script with a model of its commits, and a watchdog.
#![allow(dead_code)] // Each test file uses its own part.

pub mod changes;
pub mod levels;
pub mod media;
pub mod number;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use ledgerstone::{Durability, Environment, Error, LockWait, Options};
use ledgerstone_disk::{Disk, Open, SimDisk};

/// An environment that meets its limits soon: 64 frames, segments of 64 KiB.
pub fn tiny() -> Options {
    Environment::options()
        .cache_bytes(64 * 4096)
        .page_count_max(1 << 14)
        .log_segment_bytes(64 << 10)
        .log_buffer_bytes(128 << 10)
        .lock_count_max(4096)
        .transaction_count_max(16)
        .lock_timeout(Duration::from_secs(5))
}

pub fn open(disk: &SimDisk) -> Result<Environment, Error> {
    tiny().open_on(Arc::new(disk.clone()))
}

pub fn key(n: u64) -> Vec<u8> {
    n.to_be_bytes().to_vec()
}

/// Runs `f` in a thread of its own and fails if it does not come back.
pub fn within<T: Send + 'static>(seconds: u64, what: &str, f: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, wait) = channel();
    let thread = std::thread::spawn(move || {
        let _ = done.send(f());
    });
    match wait.recv_timeout(Duration::from_secs(seconds)) {
        Ok(value) => {
            let _ = thread.join();
            value
        }
        Err(RecvTimeoutError::Timeout) => panic!("{what}: no answer after {seconds} s"),
        Err(RecvTimeoutError::Disconnected) => match thread.join() {
            Err(panic) => std::panic::resume_unwind(panic),
            Ok(()) => unreachable!("a thread that ends in order has sent its value"),
        },
    }
}

/// Looks at who waits for whom until `is_so` says yes, or `thread` is done.
pub fn look_until<T>(env: &Environment, thread: &JoinHandle<T>, is_so: impl Fn(&[LockWait]) -> bool) {
    while !thread.is_finished() && !is_so(&env.lock_waits()) {
        std::thread::yield_now();
    }
}

/// A table's records.
pub type Records = BTreeMap<Vec<u8>, Vec<u8>>;
/// All tables, by name.
pub type State = BTreeMap<String, Records>;

/// What is in an environment now.
pub fn read(env: &Environment) -> Result<State, Error> {
    let txn = env.begin()?;
    let mut state = State::new();
    for name in txn.table_names()? {
        let records = txn.bytes(&name)?.range(..)?.collect::<Result<_, _>>()?;
        state.insert(name, records);
    }
    txn.commit_with(Durability::Volatile)?;
    Ok(state)
}

/// Fails unless every structure is whole.
pub fn assert_sound(env: &Environment, what: &str) {
    let report = env.verify().unwrap_or_else(|error| panic!("{what}: verify: {error}"));
    assert!(report.problems.is_empty(), "{what}: {:?}", report.problems);
}

/// The commits of a run, oldest first, each with the state after it.
#[derive(Debug, Clone)]
pub struct Told {
    /// The first is the empty environment.
    pub states: Vec<State>,
    /// Commits up to this one, by index, were acknowledged as durable.
    pub durable: usize,
    /// The last one failed: it may or may not be there.
    pub last_is_unsure: bool,
    /// What was refused, in order.
    pub errors: Vec<String>,
}

impl Default for Told {
    fn default() -> Told {
        Told { states: vec![State::new()], durable: 0, last_is_unsure: false, errors: Vec::new() }
    }
}

impl Told {
    pub fn last(&self) -> &State {
        &self.states[self.states.len() - 1]
    }

    /// Fails unless `found` is a prefix of the commits that covers what was acknowledged. With `all`, nothing but an
    /// unsure commit may be missing.
    pub fn assert_kept(&self, found: &State, all: bool, what: &str) {
        let low = match all {
            true => self.states.len() - 1 - usize::from(self.last_is_unsure),
            false => self.durable,
        };
        if self.states[low..].contains(found) {
            return;
        }
        let at = self.states.iter().rposition(|state| state == found);
        let shape = |state: &State| state.iter().map(|(name, t)| (name.clone(), t.len())).collect::<Vec<_>>();
        panic!(
            "{what}: found {:?} (commit {at:?}), expected one of {low}..{}, the last {:?}; refused: {:?}",
            shape(found),
            self.states.len(),
            shape(self.last()),
            self.errors
        );
    }

    fn note(&mut self, what: &str, error: &Error) {
        assert!(!matches!(error, Error::Panicked(_)), "{what}: {error}");
        assert!(!error.to_string().is_empty());
        self.errors.push(format!("{what}: {error}"));
    }

    fn commit(
        &mut self,
        env: &Environment,
        what: &str,
        durability: Durability,
        change: impl FnOnce(&ledgerstone::Transaction, &mut State) -> Result<(), Error>,
    ) {
        let mut after = self.last().clone();
        let txn = match env.begin() {
            Ok(txn) => txn,
            Err(error) => return self.note(what, &error),
        };
        if let Err(error) = change(&txn, &mut after) {
            self.note(what, &error);
            if let Err(error) = txn.abort() {
                self.note("abort", &error);
            }
            return;
        }
        match txn.commit_with(durability) {
            Ok(committed) => {
                assert!(!self.last_is_unsure, "{what}: a commit after one that failed");
                self.states.push(after);
                if durability == Durability::Sync || committed.ticket.is_durable() {
                    self.durable = self.states.len() - 1;
                }
            }
            // Refused before anything was written, and rolled back.
            Err(error @ Error::ReadOnly { .. }) => self.note(what, &error),
            Err(error) => {
                if env.is_failed() && !self.last_is_unsure {
                    self.states.push(after);
                    self.last_is_unsure = true;
                }
                self.note(what, &error);
            }
        }
    }
}

fn put(txn: &ledgerstone::Transaction, state: &mut State, table: &str, key: &[u8], value: &[u8]) -> Result<(), Error> {
    txn.bytes_or_create(table)?.put(key, value)?;
    state.entry(table.into()).or_default().insert(key.into(), value.into());
    Ok(())
}

pub fn large(seed: u8, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| (i % 251) as u8 ^ seed).collect()
}

/// Commits of every durability, aborts, tables made and dropped, large values, a checkpoint, more pages than the cache
/// has, a scan.
pub fn script(env: &Environment) -> Told {
    let mut told = Told::default();
    told.commit(env, "first", Durability::Sync, |txn, state| {
        (0..40).try_for_each(|n| put(txn, state, "t", &key(n), &large(n as u8, 100)))
    });
    told.commit(env, "second table", Durability::Pipelined, |txn, state| {
        (0..20).try_for_each(|n| put(txn, state, "dropped later", &key(n), &[1; 300]))
    });
    told.commit(env, "large", Durability::Sync, |txn, state| put(txn, state, "t", b"large", &large(7, 120_000)));
    if let Ok(txn) = env.begin() {
        let done = txn.bytes_or_create("t").and_then(|table| {
            (0..10).try_for_each(|n| table.put(&key(n), b"never to be seen"))?;
            table.delete(&key(11))?;
            txn.create_table("never").map(|_| ())
        });
        if let Err(error) = done {
            told.note("to be aborted", &error);
        }
        if let Err(error) = txn.abort() {
            told.note("abort", &error);
        }
    }
    told.commit(env, "drop", Durability::Volatile, |txn, state| {
        if state.contains_key("dropped later") {
            txn.drop_table("dropped later")?;
            state.remove("dropped later");
        }
        put(txn, state, "t", b"with the drop", b"1")
    });
    if let Err(error) = env.checkpoint() {
        told.note("checkpoint", &error);
    }
    told.commit(env, "large again", Durability::Async, |txn, state| {
        put(txn, state, "t", b"large", &large(9, 150_000))?;
        (40..80).try_for_each(|n| put(txn, state, "u", &key(n), &large(n as u8, 200)))
    });
    if let Err(error) = env.reclaim() {
        told.note("reclaim", &error);
    }
    if let Err(error) = read(env) {
        told.note("scan", &error);
    }
    told.commit(env, "deletes", Durability::Sync, |txn, state| {
        for n in (0..40).step_by(3) {
            if txn.bytes("t")?.delete(&key(n))?
                && let Some(records) = state.get_mut("t")
            {
                records.remove(&key(n));
            }
        }
        put(txn, state, "t", b"last", b"2")
    });
    told
}

/// The bytes of a file that is there.
pub fn bytes_of(disk: &SimDisk, path: &str) -> Vec<u8> {
    disk.bytes_of(path).unwrap_or_else(|| panic!("{path} cannot be read"))
}

/// Overwrites a piece of a file.
pub fn overwrite(disk: &SimDisk, path: &str, offset: u64, bytes: &[u8]) {
    let file = disk.open(path, Open::EXISTING).unwrap();
    file.write_at(offset, bytes).unwrap();
    file.sync().unwrap();
}

/// Flips one bit of a file.
pub fn flip(disk: &SimDisk, path: &str, offset: u64) {
    let file = disk.open(path, Open::EXISTING).unwrap();
    let mut byte = [0];
    file.read_at(offset, &mut byte).unwrap();
    file.write_at(offset, &[byte[0] ^ 0x10]).unwrap();
    file.sync().unwrap();
}

pub fn cut(disk: &SimDisk, path: &str, len: u64) {
    let file = disk.open(path, Open::EXISTING).unwrap();
    file.set_len(len).unwrap();
    file.sync().unwrap();
}

pub fn len_of(disk: &SimDisk, path: &str) -> u64 {
    disk.open(path, Open::READ).unwrap().len().unwrap()
}

/// Makes `path` hold `bytes`, or not be there.
pub fn place(disk: &SimDisk, path: &str, bytes: Option<&[u8]>) {
    disk.replace(path, bytes).unwrap();
}
