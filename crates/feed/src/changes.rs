//! The change feed: what committed transactions changed, in the order of their commits.
//!
//! ```
//! # fn main() -> Result<(), ledgerstone::Error> {
//! # let dir = tempfile::tempdir().unwrap();
//! # let env = ledgerstone::Environment::options().cache_bytes(16 << 20).open(dir.path())?;
//! use ledgerstone::{ChangeValue, FeedItem, Lsn};
//!
//! let mut changes = env.changes(Lsn(u64::MAX))?;
//! env.transact(|txn| txn.bytes_or_create("fruit")?.put(b"apple", b"red"))?;
//! let commit = changes.next()?.expect("a commit");
//! assert!(matches!(&commit.items[0], FeedItem::Table(made) if &*made.table == "fruit"));
//! let change = commit.changes().next().expect("a change");
//! assert_eq!((&*change.table, &change.key[..]), ("fruit", &b"apple"[..]));
//! assert_eq!(change.new, ChangeValue::Whole(b"red".to_vec()));
//! // Another feed can go on from here, after a crash too.
//! let mut later = env.changes(changes.position())?;
//! assert!(later.next()?.is_none());
//! # Ok(())
//! # }
//! ```
//!
//! C1. Only changes of transactions that committed durably are shown, each once, all of a transaction together, and
//!     nothing that it took back itself (to a savepoint, in a nested transaction).
//! C2. The position is behind a commit. For the transactions that were open there, the records before it are found by
//!     their chains. So the log is needed from their first records on, and the feed's pin keeps it. Which those are is
//!     not known from what the feed has read, since some have not been met and others have ended since ([`Needs`]).
//! C3. Items come in the order in which the transaction made them, tables made, renamed and dropped among them. A
//!     change has the name that its table had then. So a reader that has the tables as of a position, and applies the
//!     items in their order, has them as of the next. It may know them by names, or by ids, which are never used again.
//! C4. A sorted load fills a new tree, which gets its table's place at the end. Its records are the table's changes
//!     from the first on. A tree that gets no table's place is not shown, and neither are the entries of indexes.
//! C5. A transaction that only moves things, as those of a compaction do, changes nothing.
//! C6. What is held of transactions whose end was not met is bounded. The changes of larger ones are left in the log,
//!     where the pin keeps them. They are read again at the commit, which then comes in parts. Held are the changes of
//!     the catalog, whatever they take (they come in parts, too), and which records a transaction took back.

use std::sync::Arc;
use std::time::Duration;

use ledgerstone_disk::Disk;
use ledgerstone_log::{Backwards, ControlFile, LogPin, Record, RecordKind};
use ledgerstone_page::planted::{self, Bug};
use ledgerstone_page::{Lsn, Xid};
use ledgerstone_region::{ByNumber, sync};
use ledgerstone_txn::FLAG_UPKEEP;

use ledgerstone_core::Error;
use ledgerstone_core::base::Base;
use ledgerstone_core::catalog::Definition;
use ledgerstone_core::directory::{check_control, take_lock};
use ledgerstone_core::keeper::{Owner, forget_all};

use crate::CommittedChanges;
use crate::deliver::Delivery;
use crate::gather::Open;
use crate::names::Names;
use crate::needs::{Needs, look};

/// What is held of open transactions is at most this part of the page cache's size, between these bounds in bytes. A
/// transaction that holds less than the lower bound is left alone.
const CACHE_PART: u64 = 8;
const HELD_BYTES_MAX: u64 = 8 << 20;
pub(crate) const HELD_BYTES_MIN: u64 = 32 << 10;

/// A feed. Owned.
pub struct ChangeFeed {
    env: Arc<Base>,
    cursor: ledgerstone_log::LogReader,
    /// Behind the last commit that was shown or passed over.
    position: Lsn,
    open: ByNumber<Xid, Open>,
    /// Bytes that those hold, and the most (C6).
    held_bytes: usize,
    held_bytes_max: usize,
    /// The commit that is being handed out.
    delivery: Option<Delivery>,
    names: Names,
    /// Transactions that began before this, where the log is gone, are passed over.
    whole_from: Lsn,
    needs: Needs,
    /// The position that was acknowledged last, and from where on the log is kept for it.
    acknowledged: Option<(Lsn, Lsn)>,
    pin: LogPin,
    /// Its name, and which feed of that name it is, once it is one.
    name: Option<(String, Option<u64>)>,
    /// A record that could not be taken in. The next call tries it again.
    again: Option<Record>,
}

/// The changes of the commits behind `from`: `Environment::changes` of the library.
///
/// Waits for the disk: see [what blocks](crate#what-blocks).
///
/// # Errors
/// [`Error::NotAPosition`] if no record begins at `from`, or it is damaged. [`Error::LogGone`],
/// [`Error::TooManySnapshots`], [`Error::SnapshotTooOld`], or a failure of the disk.
pub fn changes(env: &Arc<Base>, from: Lsn) -> Result<ChangeFeed, Error> {
    env.engine.in_a_call(|| ChangeFeed::open(env, from, None, None))
}

/// The feed of this name: `Environment::named_changes` of the library.
///
/// Waits for the disk: see [what blocks](crate#what-blocks).
///
/// # Errors
/// As [`changes`]. [`Error::Corrupt`] if the log lacks its position. [`Error::TooManyFeeds`]. A failure of the disk.
pub fn named_changes(env: &Arc<Base>, name: &str) -> Result<ChangeFeed, Error> {
    env.check_writable()?;
    if name.is_empty() || name.len() > 255 {
        return Err(Error::BadTableName { name: name.to_string() });
    }
    env.engine.in_a_call(|| named_or_new(env, name))
}

fn named_or_new(env: &Arc<Base>, name: &str) -> Result<ChangeFeed, Error> {
    loop {
        let place = env.position(name)?;
        let (position, kept) = place.map_or((Lsn(u64::MAX), None), |(position, low, _)| (position, Some(low)));
        let named = Some((name.to_string(), place.map(|(_, _, id)| id)));
        let mut feed = ChangeFeed::open(env, position, kept, named)?;
        if place.is_none() {
            match feed.keep_from(feed.position) {
                Err(Error::FeedForgotten { .. }) => continue, // Another thread has made it: it begins where that says.
                made => made?,
            }
        }
        return Ok(feed);
    }
}

/// Forgets a named feed: `Environment::forget_changes` of the library. False: there is none of that name.
///
/// Waits for the disk: see [what blocks](crate#what-blocks).
///
/// # Errors
/// A failure of the disk.
pub fn forget_changes(env: &Base, name: &str) -> Result<bool, Error> {
    env.engine.check_process()?;
    env.check_writable()?;
    env.forget_position(name)
}

/// Forgets all named feeds of an environment that is not open: `Environment::forget_all_changes_on` of the library.
///
/// Waits for the disk: see [what blocks](crate#what-blocks).
///
/// # Errors
/// [`Error::NotAnEnvironment`], [`Error::AlreadyOpen`], a control file that cannot be read, or a failure of the disk.
pub fn forget_all_changes(disk: &Arc<dyn Disk>) -> Result<(), Error> {
    let state = ControlFile::open_read_only(&**disk)?.state();
    check_control(&**disk, &state)?;
    let _lock = take_lock(disk)?;
    forget_all(&**disk, Owner { environment: state.environment, life: state.life })
}

impl ChangeFeed {
    /// `kept`: the log is kept from there on already, for this name.
    fn open(
        env: &Arc<Base>,
        from: Lsn,
        kept: Option<Lsn>,
        name: Option<(String, Option<u64>)>,
    ) -> Result<ChangeFeed, Error> {
        env.engine.check()?;
        let log = &env.engine.log;
        let label = name.as_ref().map_or("a reader of changes".to_string(), |(name, _)| format!("feed {name}"));
        // What the feed can be worth: where it begins, and which transactions were open there, is not known yet.
        let bytes_max = env.sizes.feed_log_bytes_max;
        let pin = log.pin_newest(&label, bytes_max);
        // Readers of the log see what is durable; what was committed before now is not behind `from`.
        log.flush()?;
        // What is open now may have begun before `from`.
        let (_, oldest_open) = look(env);
        let mut cursor = ledgerstone_log::LogReader::new(log, from)?;
        let position = cursor.position();
        // A record begins or the log ends there, unless something is missing: nothing may be passed over in silence.
        if from != Lsn(0) && from != Lsn(u64::MAX) && (position > from || from > log.tail()) {
            return Err(match (kept, name) {
                (Some(_), Some((name, _))) => Error::Corrupt {
                    what: format!(
                        "the log has no record at LSN {from}, where the feed {name} goes on: put back the segment that is \
                         missing or damaged, or forget the feed and begin it anew"
                    ),
                },
                _ => Error::NotAPosition { lsn: from },
            });
        }
        let low = position.min(oldest_open);
        let (names, upto) = names_now(env)?;
        let held_bytes_max = (env.sizes.cache_bytes / CACHE_PART).clamp(HELD_BYTES_MIN, HELD_BYTES_MAX) as usize;
        let mut feed = ChangeFeed {
            env: Arc::clone(env),
            cursor: ledgerstone_log::LogReader::new(log, position)?,
            position,
            open: ByNumber::new(),
            held_bytes: 0,
            held_bytes_max,
            delivery: None,
            names,
            whole_from: Lsn(0),
            needs: Needs::new(env, kept.map_or(low, |kept| kept.min(low))),
            acknowledged: None,
            pin,
            name,
            again: None,
        };
        if from == Lsn(0) {
            feed.whole_from = position; // Not where the oldest segment begins: the log may begin behind zeros in it.
        }
        let begun = feed.rewind_names(&mut cursor, upto)?;
        feed.needs.low = feed.needs.low.min(begun);
        feed.pin = log.pin(&label, low.min(begun), bytes_max)?;
        Ok(feed)
    }

    /// The next transaction that committed and changed something, or the next part of it. `None` if no further one is
    /// durable now.
    ///
    /// Waits for the disk: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// [`Error::LogGone`] if the log was not kept: the changes are lost to this feed. [`Error::Corrupt`], or a failure
    /// of the disk.
    #[allow(clippy::should_implement_trait)] // Not an iterator: it fails, and can go on after its end.
    pub fn next(&mut self) -> Result<Option<CommittedChanges>, Error> {
        self.env.engine.check_process()?;
        let env = Arc::clone(&self.env);
        env.engine.in_a_call(|| self.next_now())
    }

    fn next_now(&mut self) -> Result<Option<CommittedChanges>, Error> {
        loop {
            if let Some(part) = self.next_part()? {
                return Ok(Some(part));
            }
            let next = match self.again.take() {
                Some(record) => Some(record),
                None => self.cursor.next()?,
            };
            let Some(record) = next else { break };
            let end = record.end();
            if let Err(error) = self.take(&record) {
                self.again = Some(record);
                return Err(error);
            }
            let is_end = matches!(record.kind(), RecordKind::Commit | RecordKind::End) || self.open.is_empty();
            if is_end && self.delivery.is_none() {
                self.position = end;
            }
            self.needs.reached(&self.env, end);
        }
        self.let_go()?;
        Ok(None)
    }

    /// More of the commit that is being handed out, if there is more.
    fn next_part(&mut self) -> Result<Option<CommittedChanges>, Error> {
        let Some(delivery) = &mut self.delivery else { return Ok(None) };
        let (items, is_last) = delivery.part(&mut self.names, self.held_bytes_max)?;
        if is_last {
            self.position = delivery.end;
        }
        let is_shown = !items.is_empty() || delivery.has_parts();
        let (lsn, xid, time_ns, position) = (delivery.lsn, delivery.xid, delivery.time_ns, self.position);
        if is_last {
            self.delivery = None;
        }
        Ok(is_shown.then_some(CommittedChanges { lsn, xid, time_ns, items, is_last, position }))
    }

    /// The same, waiting for one. `None` if `timeout` has passed.
    ///
    /// Waits for the disk, and for new records up to `timeout`: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`ChangeFeed::next`]. [`Error::Failed`] if the environment has failed or was closed.
    pub fn follow(&mut self, timeout: Option<Duration>) -> Result<Option<CommittedChanges>, Error> {
        let until = timeout.map(|timeout| sync::now_ns().saturating_add(sync::nanoseconds(timeout)));
        loop {
            if let Some(changes) = self.next()? {
                return Ok(Some(changes));
            }
            let left = until.map(|until| until.saturating_sub(sync::now_ns()));
            if !self.env.engine.in_a_call(|| self.cursor.wait(left))? {
                return Ok(None);
            }
        }
    }

    /// Where another feed goes on behind everything that this one has shown.
    #[must_use]
    pub fn position(&self) -> Lsn {
        self.position
    }

    /// Acknowledges everything up to `position`, which is a position of the feed or of a commit that it has shown. For
    /// a named feed this is durable: a feed of this name begins behind the position, and the log before it is no longer
    /// kept for the feed.
    ///
    /// What was acknowledged stays so. A position before the last one that was acknowledged, by this feed or by another
    /// handle of its name, changes nothing: it is covered by that one.
    ///
    /// Waits for the disk: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// [`Error::NotAPosition`] if the feed has not come there yet, or no record begins there. [`Error::FeedForgotten`],
    /// or a failure of the disk.
    pub fn acknowledge(&mut self, position: Lsn) -> Result<(), Error> {
        self.env.engine.check_process()?;
        let env = Arc::clone(&self.env);
        env.engine.in_a_call(|| self.acknowledge_now(position))
    }

    fn acknowledge_now(&mut self, position: Lsn) -> Result<(), Error> {
        let is_covered = self.acknowledged.is_some_and(|(covered, _)| position <= covered);
        let is_shown = || Ok::<_, Error>(position == self.position || self.cursor.is_boundary(position)?);
        if !is_covered && (position > self.position || !is_shown()?) {
            return Err(Error::NotAPosition { lsn: position });
        }
        self.keep_from(position)
    }

    fn keep_from(&mut self, position: Lsn) -> Result<(), Error> {
        let position = self.acknowledged.map_or(position, |(covered, _)| covered.max(position));
        let low = self.needed(position);
        if let Some((name, id)) = &mut self.name {
            *id = Some(self.env.set_position((name, *id), position, low)?);
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

    /// At the end of the log it may turn out that going on at the acknowledged position needs less of it than was known
    /// then.
    fn let_go(&mut self) -> Result<(), Error> {
        let Some((position, low)) = self.acknowledged else { return Ok(()) };
        // Log is given up by segments.
        if self.needed(position).0 < low.0 + self.env.sizes.log_segment_bytes {
            return Ok(());
        }
        match self.keep_from(position) {
            Err(Error::FeedForgotten { .. }) => Ok(()), // The next acknowledgement is told.
            done => done,
        }
    }

    /// Takes a record in. A transaction that commits with it is handed out next.
    fn take(&mut self, record: &Record) -> Result<(), Error> {
        let view = record.view();
        let xid = view.xid();
        if xid == Xid(0) {
            return Ok(());
        }
        if !self.open.contains(xid) {
            let open = self.begin(record, false)?;
            self.held_bytes += open.held_bytes();
            self.open.insert(xid, open);
        }
        let is_commit = record.kind() == RecordKind::Commit;
        if is_commit || record.kind() == RecordKind::End {
            let open = self.open.remove(xid).unwrap_or_default();
            self.held_bytes -= open.held_bytes();
            self.needs.ended(open.first, record.end());
            if is_commit && open.first != Lsn(0) && view.flags() & FLAG_UPKEEP == 0 {
                let place = (record.lsn(), record.end());
                self.delivery = Some(Delivery::new(&self.env, open, place, xid, view.commit_time_ns())?);
            }
            return Ok(());
        }
        if let Some(open) = self.open.get_mut(xid)
            && open.first != Lsn(0)
        {
            let before = open.held_bytes();
            open.take(record);
            self.held_bytes = self.held_bytes - before + open.held_bytes();
            if self.held_bytes > self.held_bytes_max && open.held_bytes() as u64 > HELD_BYTES_MIN {
                self.held_bytes -= open.held_bytes();
                open.spill();
            }
        }
        Ok(())
    }

    /// A transaction that is met for the first time: with what its records before said, if it has any (C2). Without its
    /// changes of tables if it has done much, or nobody asks for them.
    fn begin(&self, record: &Record, is_catalog_only: bool) -> Result<Open, Error> {
        let log = &self.env.engine.log;
        let xid = record.view().xid();
        let mut before = Vec::new();
        let (mut at, mut first, mut is_long, mut bytes) = (record.view().prev_lsn(), record.lsn(), false, 0);
        let low = if at == Lsn(0) { at } else { self.pin.lsn() };
        let mut back = Backwards::new(log, low, 0);
        while at != Lsn(0) && !planted::is_on(Bug::FeedForgetsBeginning) {
            if at < self.whole_from {
                return Ok(Open::default()); // Its beginning is gone: it is passed over.
            }
            first = at;
            let earlier = log.read_backwards(&mut back, at)?;
            at = earlier.prev_lsn();
            bytes += earlier.bytes().len();
            is_long |= bytes > self.held_bytes_max;
            if !is_long {
                before.push(earlier.to_record());
            }
        }
        let mut open = Open::new(first);
        if is_catalog_only || is_long {
            open.spill();
        }
        if !is_long {
            before.iter().rev().for_each(|earlier| open.take(earlier));
            return Ok(open);
        }
        drop(before);
        let mut forward = ledgerstone_log::LogReader::new(log, first)?;
        while forward.position() < record.lsn()
            && let Some(earlier) = forward.next()?
        {
            if earlier.view().xid() == xid && earlier.lsn() < record.lsn() {
                open.take(&earlier);
            }
        }
        Ok(open)
    }

    /// Takes back the changes of the catalog that were committed between the position and `upto`, those before the
    /// position included (C2): the names there. Says where the first of the transactions began that were met.
    fn rewind_names(&mut self, cursor: &mut ledgerstone_log::LogReader, upto: Lsn) -> Result<Lsn, Error> {
        let mut begun = self.position;
        let mut open: ByNumber<Xid, Open> = ByNumber::new();
        let mut committed: Vec<Open> = Vec::new();
        while cursor.position() < upto
            && let Some(record) = cursor.next()?
        {
            let xid = record.view().xid();
            if xid == Xid(0) {
                continue;
            }
            if !open.contains(xid) {
                let new = self.begin(&record, true)?;
                if new.first != Lsn(0) {
                    begun = begun.min(new.first);
                }
                open.insert(xid, new);
            }
            match record.kind() {
                RecordKind::Commit => committed.extend(open.remove(xid).filter(|open| !open.catalog.is_empty())),
                RecordKind::End => drop(open.remove(xid)),
                // One whose beginning is gone is passed over, going forward, too.
                _ => {
                    if let Some(there) = open.get_mut(xid).filter(|there| there.first != Lsn(0)) {
                        there.take(&record);
                    }
                }
            }
        }
        for transaction in committed.iter().rev() {
            for (_, raw) in transaction.catalog.iter().rev() {
                self.names.take_back(raw);
            }
        }
        Ok(begun)
    }
}

/// The tables at a snapshot, and its LSN. Waits for nobody: a transaction in doubt may have made or dropped some.
fn names_now(env: &Arc<Base>) -> Result<(Names, Lsn), Error> {
    let mut names = Names::default();
    let at = env.each_in_catalog(|name, value| {
        names.set(name, Definition::decode(name, value).ok());
        Ok(())
    })?;
    env.engine.log.flush()?; // Readers of the log see what is durable.
    Ok((names, at))
}
