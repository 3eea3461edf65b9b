//! The change feed: what committed transactions changed, in the order of their commits.
//!
//! ```
//! # fn main() -> Result<(), ledgerstone::Error> {
//! # let dir = tempfile::tempdir().unwrap();
//! # let env = ledgerstone::Environment::options().cache_bytes(16 << 20).open(dir.path())?;
//! use ledgerstone::{ChangeValue, Lsn};
//!
//! let mut changes = env.changes(Lsn(u64::MAX))?;
//! env.transact(|txn| txn.bytes_or_create("fruit")?.put(b"apple", b"red"))?;
//! let commit = changes.next()?.expect("a commit");
//! assert_eq!(commit.changes[0].table.as_deref(), Some("fruit"));
//! assert_eq!(commit.changes[0].new, ChangeValue::Whole(b"red".to_vec()));
//! // Another feed can go on from here, after a crash too.
//! let mut later = env.changes(changes.position())?;
//! assert!(later.next()?.is_none());
//! # Ok(())
//! # }
//! ```
//!
//! C1. Only changes of transactions that committed durably are shown, each once, all of a transaction together, and nothing
//!     that it took back itself (to a savepoint, in a nested transaction).
//! C2. The position is behind a commit. Of the transactions that were open there the records before it are found by their
//!     chains, so the log is needed from their first records on: that is what the feed's pin keeps. Which those are is not known
//!     from what the feed has read, since some have not been met and others have ended since ([`Needs`]).
//! C3. A table has the name that it has when the transaction commits, or had before if the transaction drops it.
//! C4. A bulk load fills a new tree with whole leaves. A leaf of a tree that its transaction made shows the keys that no record
//!     before it named; the others were moved there by a split.
//! C5. A transaction that only moves things, as those of a compaction do, changes nothing.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use ledgerstone_log::{LogPin, LogReader, Record, RecordKind, RecordView};
use ledgerstone_page::planted::{self, Bug};
use ledgerstone_page::{Lsn, PageId, Xid};
use ledgerstone_region::sync;
use ledgerstone_space::OP_SPACE_SET;
use ledgerstone_structures::{Side, leaf_change, record_change};
use ledgerstone_txn::FLAG_UPKEEP;

use crate::env::Inner;
use crate::log_reader::nanoseconds;
use crate::open::CATALOG_ROOT;
use crate::{Environment, Error};

/// A value before or after a change.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChangeValue {
    /// The key had, or has, no value.
    Absent,
    /// All of it.
    Whole(Vec<u8>),
    /// It is so many bytes long and not in the log; read the table.
    Large(u64),
    /// These bytes at this offset; the others did not change and are not in the log. With the setting
    /// `log_values` = `whole` the log has all of them.
    Part {
        /// Where they begin.
        offset: usize,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// There was one, and the log does not say which. With the setting `log_values` = `whole` it does.
    Unknown,
}

/// One change of one key.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Change {
    /// The table's name at the time; `None` if the table was dropped since and the log does not know its name.
    pub table: Option<String>,
    /// The table's root page, which tells it from another of the same name.
    pub root: PageId,
    /// The key.
    pub key: Vec<u8>,
    /// Its value before.
    pub old: ChangeValue,
    /// Its value after.
    pub new: ChangeValue,
}

/// What a transaction changed, in the order in which it did.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct CommittedChanges {
    /// Its commit.
    pub lsn: Lsn,
    /// The transaction.
    pub xid: Xid,
    /// When it committed, by the machine's clock, in nanoseconds since 1970.
    pub time_ns: Option<u64>,
    /// Its changes of tables; never empty.
    pub changes: Vec<Change>,
    /// Where a feed goes on behind it.
    pub position: Lsn,
}

/// A transaction whose end was not met yet.
#[derive(Default)]
struct Open {
    first: Lsn,
    changes: Vec<(Lsn, Raw)>,
    /// The trees that it made, by their roots, and the records that named each of their keys first (C4).
    made: BTreeMap<PageId, BTreeMap<Vec<u8>, Lsn>>,
}

/// A change as the log has it.
struct Raw {
    root: PageId,
    key: Vec<u8>,
    old: ChangeValue,
    new: ChangeValue,
}

/// A feed. Owned.
pub struct ChangeFeed {
    env: Arc<Inner>,
    cursor: LogReader,
    /// Behind the last commit that was shown or passed over.
    position: Lsn,
    open: BTreeMap<Xid, Open>,
    names: BTreeMap<PageId, Named>,
    /// Transactions that began before this, where the log is gone, are passed over.
    whole_from: Lsn,
    needs: Needs,
    /// The position that was acknowledged last, and from where on the log is kept for it.
    acknowledged: Option<(Lsn, Lsn)>,
    pin: LogPin,
    name: Option<String>,
}

/// From where on the log is needed to go on at a position: from the first record of any transaction that was open there (C2).
///
/// Of those that have ended since or wrote behind it, the feed has met the records. Of the others a look at who is open tells,
/// once the feed has come to where the log ended then: who had ended before is met.
struct Needs {
    /// Not above the first record of any transaction that was open at the last look that the feed has come to.
    low: Lsn,
    /// The next look: where the log ended, and the first record of whoever was open.
    seen: (Lsn, Lsn),
    /// Transactions that were met and ended: where they ended, and where they began.
    ended: VecDeque<(Lsn, Lsn)>,
}

/// More that have ended are not told apart.
const ENDED_MAX: usize = 4096;

impl Needs {
    /// For a feed whose log is kept from `low` on.
    fn new(env: &Inner, low: Lsn) -> Needs {
        Needs { low, seen: look(env), ended: VecDeque::new() }
    }

    /// The feed has read up to `end`.
    fn reached(&mut self, env: &Inner, end: Lsn) {
        if end >= self.seen.0 {
            self.low = self.seen.1;
            self.seen = look(env);
        }
    }

    /// A transaction that began at `first` has ended at `end`.
    fn ended(&mut self, first: Lsn, end: Lsn) {
        if self.ended.len() == ENDED_MAX {
            // As if two had been one, which needs more, not less.
            let merge = |pair: &[(Lsn, Lsn)]| (pair[pair.len() - 1].0, pair.iter().map(|(_, first)| *first).min());
            let merged = self.ended.make_contiguous().chunks(2).map(merge);
            self.ended = merged.map(|(end, first)| (end, first.unwrap_or(end))).collect();
        }
        if first != Lsn(0) {
            self.ended.push_back((end, first));
        }
    }

    /// What going on at `position` needs, while these are open.
    fn at(&self, position: Lsn, open: impl Iterator<Item = Lsn>) -> Lsn {
        let ended = self.ended.iter().filter(|(end, _)| *end > position).map(|(_, first)| *first);
        ended.chain(open.filter(|&first| first != Lsn(0))).fold(position.min(self.low), Lsn::min)
    }

    /// Positions below are not asked for any more.
    fn forget_below(&mut self, position: Lsn) {
        while self.ended.front().is_some_and(|(end, _)| *end <= position) {
            self.ended.pop_front();
        }
    }
}

/// The log's end, and the first record of whoever is open there.
fn look(env: &Inner) -> (Lsn, Lsn) {
    // In this order: who begins in between is seen, or begins behind the end.
    let tail = env.engine.log.tail();
    (tail, env.engine.table.first_lsn_low().unwrap_or(tail).min(tail))
}

impl Environment {
    /// The changes of the commits behind `from`: the [`ChangeFeed::position`] of an earlier feed, or the LSN of any record.
    /// `Lsn(0)`: from the oldest transaction whose records are all there; `Lsn(u64::MAX)`: from now on.
    ///
    /// While the feed lives, the log is kept from its position on, up to `feed_log_bytes_max` bytes.
    ///
    /// # Errors
    /// [`Error::LogGone`], [`Error::TooManySnapshots`], [`Error::SnapshotTooOld`]; the disk's.
    pub fn changes(&self, from: Lsn) -> Result<ChangeFeed, Error> {
        ChangeFeed::open(self.inner(), from, None, None)
    }

    /// The feed of this name, behind the position that it acknowledged last ([`ChangeFeed::acknowledge`]); a new name begins
    /// now. Until the name is forgotten, the log is kept from there on, whether the feed is open or not, up to
    /// `feed_log_bytes_max` bytes; `stat` says how far each has come.
    ///
    /// # Errors
    /// As [`Environment::changes`]; the disk's.
    pub fn named_changes(&self, name: &str) -> Result<ChangeFeed, Error> {
        let env = self.inner();
        env.check_writable()?;
        if name.is_empty() || name.len() > 255 {
            return Err(Error::BadTableName { name: name.to_string() });
        }
        let place = env.feeds.place(name);
        let (position, kept) = place.map_or((Lsn(u64::MAX), None), |(position, low)| (position, Some(low)));
        let mut feed = ChangeFeed::open(env, position, kept, Some(name.to_string()))?;
        if place.is_none() {
            feed.acknowledge(feed.position)?;
        }
        Ok(feed)
    }

    /// Forgets a named feed: it keeps no log any more. False: there is none of that name.
    ///
    /// # Errors
    /// The disk's.
    pub fn forget_changes(&self, name: &str) -> Result<bool, Error> {
        let env = self.inner();
        env.engine.check_process()?;
        env.check_writable()?;
        env.feeds.forget(&*env.disk, name)
    }
}

impl ChangeFeed {
    /// `kept`: the log is kept from there on already, for this name.
    fn open(env: &Arc<Inner>, from: Lsn, kept: Option<Lsn>, name: Option<String>) -> Result<ChangeFeed, Error> {
        env.engine.check()?;
        let log = &env.engine.log;
        // What is open now may have begun before `from`.
        let (_, oldest_open) = look(env);
        let mut cursor = LogReader::new(log, from)?;
        let position = cursor.position();
        let low = if from == Lsn(u64::MAX) { position.min(oldest_open) } else { position };
        let label = name.as_deref().map_or("a reader of changes".to_string(), |name| format!("feed {name}"));
        let pin = log.pin(&label, low, env.effective.feed_log_bytes_max)?;
        let (names, upto) = names_now(env)?;
        let mut feed = ChangeFeed {
            env: Arc::clone(env),
            cursor: LogReader::new(log, position)?,
            position,
            open: BTreeMap::new(),
            names,
            whole_from: Lsn(0),
            needs: Needs::new(env, kept.map_or(low, |kept| kept.min(low))),
            acknowledged: None,
            pin,
            name,
        };
        if from == Lsn(0) {
            feed.whole_from = cursor.oldest()?;
        }
        feed.rewind_names(&mut cursor, upto)?;
        Ok(feed)
    }

    /// The next transaction that committed and changed something. `None`: none did that is durable now.
    ///
    /// # Errors
    /// [`Error::LogGone`]: the log was not kept; the changes are lost to this feed. [`Error::Corrupt`], the disk's.
    #[allow(clippy::should_implement_trait)] // Not an iterator: it fails, and can go on after its end.
    pub fn next(&mut self) -> Result<Option<CommittedChanges>, Error> {
        self.env.engine.check_process()?;
        while let Some(record) = self.cursor.next()? {
            let end = record.end();
            let committed = match self.take(&record) {
                Ok(committed) => committed,
                Err(error) => {
                    self.cursor.seek(record.lsn())?; // Whoever asks again gets it.
                    return Err(error);
                }
            };
            if matches!(record.kind(), RecordKind::Commit | RecordKind::End) || self.open.is_empty() {
                self.position = end;
            }
            self.needs.reached(&self.env, end);
            if let Some(changes) = committed {
                let view = record.view();
                return Ok(Some(CommittedChanges {
                    lsn: record.lsn(),
                    xid: view.xid(),
                    time_ns: view.commit_time_ns(),
                    changes,
                    position: end,
                }));
            }
        }
        self.let_go()?;
        Ok(None)
    }

    /// The same, waiting for one. `None`: `timeout` went by.
    ///
    /// # Errors
    /// As [`ChangeFeed::next`]; [`Error::Failed`] when the environment has failed or was closed.
    pub fn follow(&mut self, timeout: Option<Duration>) -> Result<Option<CommittedChanges>, Error> {
        let until = timeout.map(|timeout| sync::now_ns().saturating_add(nanoseconds(timeout)));
        loop {
            if let Some(changes) = self.next()? {
                return Ok(Some(changes));
            }
            let left = until.map(|until| until.saturating_sub(sync::now_ns()));
            if !self.cursor.wait(left)? {
                return Ok(None);
            }
        }
    }

    /// Where another feed goes on behind everything that this one has shown.
    #[must_use]
    pub fn position(&self) -> Lsn {
        self.position
    }

    /// Makes known, durably for a named feed, that everything up to `position` (of the feed, or of a commit it has shown)
    /// was taken care of: a feed of this name begins behind it, and the log before is not kept for it any more.
    ///
    /// # Errors
    /// The disk's.
    pub fn acknowledge(&mut self, position: Lsn) -> Result<(), Error> {
        self.env.engine.check_process()?;
        let low = self.needed(position);
        if let Some(name) = &self.name {
            self.env.feeds.set(&self.env, name, position, low)?;
        }
        self.pin.advance(low);
        self.needs.forget_below(position);
        self.acknowledged = Some((position, low));
        Ok(())
    }

    /// From where on the log is needed to go on at a position (C2).
    fn needed(&self, position: Lsn) -> Lsn {
        self.needs.at(position, self.open.values().map(|open| open.first))
    }

    /// At the end of the log it may turn out that going on at the acknowledged position needs less of it than was known then.
    fn let_go(&mut self) -> Result<(), Error> {
        let Some((position, low)) = self.acknowledged else { return Ok(()) };
        // Log is given up by segments.
        if self.needed(position).0 < low.0 + self.env.effective.log_segment_bytes {
            return Ok(());
        }
        self.acknowledge(position)
    }

    /// Takes a record in; the changes of a transaction that commits with it.
    fn take(&mut self, record: &Record) -> Result<Option<Vec<Change>>, Error> {
        let view = record.view();
        let xid = view.xid();
        if xid == Xid(0) {
            return Ok(None);
        }
        if !self.open.contains_key(&xid) {
            let open = self.begin(record)?;
            self.open.insert(xid, open);
        }
        match record.kind() {
            RecordKind::Commit => {
                let open = self.open.remove(&xid).unwrap_or_default();
                self.needs.ended(open.first, record.end());
                let is_shown = open.first != Lsn(0) && view.flags() & FLAG_UPKEEP == 0;
                let changes = if is_shown { self.name_all(open) } else { Vec::new() };
                return Ok(Some(changes).filter(|changes| !changes.is_empty()));
            }
            RecordKind::End => {
                let open = self.open.remove(&xid).unwrap_or_default();
                self.needs.ended(open.first, record.end());
            }
            _ => {
                if let Some(open) = self.open.get_mut(&xid) {
                    open.take(record);
                }
            }
        }
        Ok(None)
    }

    /// A transaction that is met for the first time: with what its records before said, if it has any (C2).
    fn begin(&self, record: &Record) -> Result<Open, Error> {
        let mut before = Vec::new();
        let mut at = record.view().prev_lsn();
        while at != Lsn(0) && !planted::is_on(Bug::FeedForgetsBeginning) {
            if at < self.whole_from {
                return Ok(Open::default()); // Its beginning is gone: it is passed over.
            }
            let earlier = self.env.engine.log.read(at)?;
            at = earlier.view().prev_lsn();
            before.push(earlier);
        }
        let first = before.last().map_or(record.lsn(), Record::lsn);
        let mut open = Open { first, ..Open::default() };
        before.iter().rev().for_each(|earlier| open.take(earlier));
        Ok(open)
    }

    /// The changes of a transaction that commits, with names; changes of the catalog change the names (C3).
    fn name_all(&mut self, open: Open) -> Vec<Change> {
        let (of_catalog, of_tables): (Vec<Raw>, Vec<Raw>) =
            open.changes.into_iter().map(|(_, raw)| raw).partition(|raw| raw.root == CATALOG_ROOT);
        // What it dropped has its last name, what it made and dropped again too.
        let mut passed = if of_catalog.is_empty() { BTreeMap::new() } else { self.names.clone() };
        for raw in &of_catalog {
            self.rename(raw, true);
            passed.extend(named(&String::from_utf8_lossy(&raw.key), roots_of(&raw.new)));
        }
        let mut changes = Vec::new();
        for raw in of_tables {
            if !self.env.is_internal(raw.root) {
                let table = match self.names.get(&raw.root).or_else(|| passed.get(&raw.root)) {
                    Some(Named { is_index: true, .. }) => continue, // It follows from the table's change.
                    Some(named) => Some(named.table.clone()),
                    None => None,
                };
                changes.push(Change { table, root: raw.root, key: raw.key, old: raw.old, new: raw.new });
            }
        }
        changes
    }

    /// Makes, or takes back, a change of the catalog.
    fn rename(&mut self, raw: &Raw, is_forward: bool) {
        let (gone, come) = if is_forward { (&raw.old, &raw.new) } else { (&raw.new, &raw.old) };
        let name = String::from_utf8_lossy(&raw.key).into_owned();
        // A rename takes the old name away and sets the new one, in either order.
        for root in roots_of(gone) {
            if self.names.get(&root).is_some_and(|named| named.table == name) {
                self.names.remove(&root);
            }
        }
        self.names.extend(named(&name, roots_of(come)));
    }

    /// Takes back the changes of the catalog that were committed between the position and `upto`, those before the position
    /// included (C2): the names there.
    fn rewind_names(&mut self, cursor: &mut LogReader, upto: Lsn) -> Result<(), Error> {
        let mut open: BTreeMap<Xid, Open> = BTreeMap::new();
        let mut committed: Vec<Open> = Vec::new();
        while cursor.position() < upto
            && let Some(record) = cursor.next()?
        {
            let xid = record.view().xid();
            if xid == Xid(0) {
                continue;
            }
            let there = match open.entry(xid) {
                Entry::Occupied(there) => there.into_mut(),
                Entry::Vacant(place) => place.insert(self.begin(&record)?),
            };
            there.take(&record);
            there.changes.retain(|(_, raw)| raw.root == CATALOG_ROOT);
            match record.kind() {
                RecordKind::Commit => committed.extend(open.remove(&xid)),
                RecordKind::End => drop(open.remove(&xid)),
                _ => {}
            }
        }
        for transaction in committed.iter().rev() {
            for (_, raw) in transaction.changes.iter().rev() {
                self.rename(raw, false);
            }
        }
        Ok(())
    }
}

impl Open {
    fn take(&mut self, record: &Record) {
        let view = record.view();
        match view.kind() {
            RecordKind::Update => {
                if let Some(change) = record_change(view.op(), view.args()) {
                    let raw = Raw {
                        root: change.root,
                        key: change.key.to_vec(),
                        old: value_of(change.old),
                        new: value_of(change.new),
                    };
                    if let Some(keys) = self.made.get_mut(&raw.root) {
                        keys.entry(raw.key.clone()).or_insert(view.lsn());
                    }
                    self.changes.push((view.lsn(), raw));
                }
            }
            RecordKind::Group => self.take_group(&view),
            // What it undoes lies behind where the rollback goes on.
            RecordKind::Compensation => {
                while let Some((lsn, raw)) = self.changes.pop_if(|(lsn, _)| *lsn > view.undo_next()) {
                    if let Some(keys) = self.made.get_mut(&raw.root)
                        && keys.get(&raw.key) == Some(&lsn)
                    {
                        keys.remove(&raw.key);
                    }
                }
            }
            _ => {}
        }
    }

    /// C4.
    fn take_group(&mut self, group: &RecordView<'_>) {
        let lsn = group.lsn();
        let takes_pages = group.parts().flatten().any(|part| part.op == OP_SPACE_SET);
        for part in group.parts().flatten() {
            let Some(leaf) = leaf_change(part.op, part.args) else { continue };
            if takes_pages && part.page == leaf.root && leaf.records.is_empty() {
                self.made.insert(leaf.root, BTreeMap::new());
            } else if let Some(keys) = self.made.get_mut(&leaf.root) {
                for (key, value) in leaf.records {
                    let Entry::Vacant(place) = keys.entry(key.clone()) else { continue };
                    place.insert(lsn);
                    let raw = Raw { root: leaf.root, key, old: ChangeValue::Absent, new: value_of(value) };
                    self.changes.push((lsn, raw));
                }
            }
        }
    }
}

fn value_of(side: Side<'_>) -> ChangeValue {
    match side {
        Side::Absent => ChangeValue::Absent,
        Side::Value(bytes) => ChangeValue::Whole(bytes.to_vec()),
        Side::Large(bytes) => ChangeValue::Large(bytes),
        Side::Part(offset, bytes) => ChangeValue::Part { offset, bytes: bytes.to_vec() },
        _ => ChangeValue::Unknown,
    }
}

/// What a root page belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Named {
    table: String,
    /// It is an index of the table.
    is_index: bool,
}

/// The root pages of a table, the table's own first.
fn named(table: &str, roots: Vec<PageId>) -> impl Iterator<Item = (PageId, Named)> {
    let table = table.to_string();
    roots.into_iter().enumerate().map(move |(no, root)| (root, Named { table: table.clone(), is_index: no > 0 }))
}

/// The root pages in a value of the catalog.
fn roots_of(value: &ChangeValue) -> Vec<PageId> {
    let ChangeValue::Whole(bytes) = value else { return Vec::new() };
    crate::catalog::roots_of(bytes)
}

/// The names of all tables at a snapshot, and its LSN. Waits for nobody: a transaction in doubt may have made or dropped tables.
fn names_now(env: &Arc<Inner>) -> Result<(BTreeMap<PageId, Named>, Lsn), Error> {
    let mut names = BTreeMap::new();
    let at = env.each_in_catalog(|name, value| {
        names.extend(named(name, crate::catalog::roots_of(value)));
        Ok(())
    })?;
    // Readers of the log see what is durable.
    env.engine.log.flush()?;
    Ok((names, at))
}
