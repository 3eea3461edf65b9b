//! A reader of the change feed that goes on after every crash where it was.
//!
//! It keeps what the feed delivered and acknowledges positions now and then, like a program that copies changes
//! elsewhere. After a crash it begins at the position that the engine has kept, forgets what was delivered behind that,
//! and reads on.
//!
//! - K1. The position kept is the one acknowledged last, or one whose acknowledgement the crash cut short. A consumer
//!   that does not notice that the power is off may try another one.
//! - K2. What was delivered once was durable: after a crash it is delivered again, the same, if it was not
//!   acknowledged.
//! - K3. The LSNs of the commits ascend.
//! - K4. Once recovery is done the feed has delivered each transaction that is there, exactly once, and no other.
//! - K5. It agrees with the transaction about each key: it has the value before the first change and the value after
//!   the last. It names every key that changed, and none that the transaction did not touch.
//! - K6. The tables that it says were made, renamed and dropped make those before the transaction those after it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use ledgerstone::{ChangeFeed, ChangeValue, CommittedChanges, Environment, Error, FeedItem, Lsn, TableEvent, TableId};

use super::judge::{Outcome, Record, name};
use super::model::{Bytes, Effects, Short, Sides, State, effects};
use super::plan::JOURNAL;
use super::tally::Kind;

/// The feed's name.
const FEED: &str = "consumer";

/// What the feed has delivered, and how far it was taken care of.
#[derive(Default)]
pub struct Consumer {
    /// Open while the environment is.
    feed: Option<ChangeFeed>,
    /// The parts so far of a transaction that comes in several.
    parts: Option<CommittedChanges>,
    delivered: Vec<CommittedChanges>,
    /// Delivered before the crash, behind the position that was kept, and not yet again.
    expected_again: VecDeque<CommittedChanges>,
    /// So many of `delivered` were compared with transactions.
    judged: usize,
    acknowledged: Option<Lsn>,
    /// Acknowledgements that have no answer.
    in_flight: Vec<Lsn>,
}

/// Why a consumer cannot go on.
pub enum Stopped {
    /// The engine says so.
    By(Error),
    /// The engine has delivered what it must not.
    Wrong(String),
}

impl From<Error> for Stopped {
    fn from(error: Error) -> Stopped {
        Stopped::By(error)
    }
}

impl Stopped {
    /// For a report.
    pub fn lines(self) -> Vec<String> {
        vec![match self {
            Stopped::By(error) => format!("the change feed: {error} ({error:?})"),
            Stopped::Wrong(what) => what,
        }]
    }
}

impl Consumer {
    /// Opens the feed where it was left (K1).
    ///
    /// # Errors
    /// The engine's, and a position that nobody has acknowledged.
    pub fn resume(&mut self, env: &Environment) -> Result<(), Stopped> {
        let feed = env.named_changes(FEED)?;
        let position = feed.position();
        let is_kept = self.acknowledged.is_none_or(|acknowledged| acknowledged == position);
        let is_kept = is_kept || self.in_flight.contains(&position);
        if !is_kept {
            let (acknowledged, in_flight) = (self.acknowledged, &self.in_flight);
            return Err(Stopped::Wrong(format!(
                "K1: the feed begins at {position}; acknowledged was {acknowledged:?}, and {in_flight:?} without an answer"
            )));
        }
        (self.acknowledged, self.in_flight) = (Some(position), Vec::new());
        let kept = self.delivered.iter().take_while(|commit| commit.position <= position).count();
        let again: Vec<CommittedChanges> = self.delivered.drain(kept..).collect();
        self.expected_again = again.into_iter().chain(std::mem::take(&mut self.expected_again)).collect();
        (self.feed, self.parts) = (Some(feed), None);
        Ok(())
    }

    /// Whether the feed has been open, so that from then on it must tell everything.
    pub fn has_begun(&self) -> bool {
        self.acknowledged.is_some()
    }

    /// Closes the feed.
    pub fn leave(&mut self) {
        self.feed = None;
    }

    /// Reads at most `count_max` commits, and says how many there were.
    ///
    /// # Errors
    /// The engine's; K2, K3.
    pub fn read(&mut self, count_max: usize) -> Result<u64, Stopped> {
        let Some(feed) = &mut self.feed else { return Ok(0) };
        let mut count = 0;
        while count < count_max {
            let Some(part) = feed.next()? else { break };
            let commit = match self.parts.take() {
                None => part,
                Some(mut whole) => {
                    (whole.is_last, whole.position) = (part.is_last, part.position);
                    whole.items.extend(part.items);
                    whole
                }
            };
            if !commit.is_last {
                self.parts = Some(commit);
                continue;
            }
            count += 1;
            if let Some(before) = self.expected_again.pop_front()
                && before != commit
            {
                return Err(Stopped::Wrong(format!(
                    "K2: delivered again was {commit:?}; before the crash it was {before:?}"
                )));
            }
            if let Some(last) = self.delivered.last()
                && (commit.lsn <= last.lsn || commit.position <= last.position)
            {
                let (lsn, last) = (commit.lsn, last.lsn);
                return Err(Stopped::Wrong(format!("K3: the commit at {lsn} was delivered after the one at {last}")));
            }
            self.delivered.push(commit);
        }
        Ok(count as u64)
    }

    /// Acknowledges all but the last `behind` commits.
    ///
    /// # Errors
    /// The engine's.
    pub fn acknowledge(&mut self, behind: usize) -> Result<(), Stopped> {
        let Some(feed) = &mut self.feed else { return Ok(()) };
        let position = match behind {
            0 => feed.position(),
            _ => match self.delivered.len().checked_sub(behind + 1) {
                Some(at) => self.delivered[at].position,
                None => return Ok(()),
            },
        };
        if self.acknowledged.is_some_and(|before| position <= before) {
            return Ok(());
        }
        self.in_flight.push(position);
        feed.acknowledge(position)?;
        (self.acknowledged, self.in_flight) = (Some(position), Vec::new());
        Ok(())
    }

    /// Reads to the end and compares with the transactions that are there, which `base` was before (K4, K5).
    ///
    /// # Errors
    /// The engine's; what is wrong.
    pub fn judge(&mut self, base: &State, records: &[Record], found: &State) -> Result<u64, Stopped> {
        let count = self.read(usize::MAX)?;
        if let Some(missing) = self.expected_again.front() {
            return Err(Stopped::Wrong(format!("K2: {missing:?} was delivered before the crash, and is not again")));
        }
        let journal = found.tables.get(JOURNAL);
        let is_present = |mark: &Bytes| journal.is_some_and(|journal| journal.contains_key(mark));
        let mut present: Vec<&Record> =
            records.iter().filter(|record| record.mark.as_ref().is_some_and(is_present)).collect();
        present.sort_by_key(|record| record.asked_at);
        let mut state = base.clone();
        let mut of_marks: BTreeMap<&[u8], (&Record, Effects)> = BTreeMap::new();
        for record in present {
            let done = effects(&mut state, &record.deeds);
            of_marks.insert(record.mark.as_deref().unwrap_or_default(), (record, done));
        }
        for commit in &self.delivered[self.judged..] {
            if commit.changes().next().is_none() {
                continue; // Tables only, by the harness itself: a client's transaction has a mark.
            }
            let marks: Vec<&[u8]> = commit
                .changes()
                .filter(|change| &*change.table == JOURNAL && change.new != ChangeValue::Absent)
                .map(|change| &change.key[..])
                .collect();
            let (lsn, mark) = match marks[..] {
                [mark] => (commit.lsn, mark),
                _ => {
                    return Err(Stopped::Wrong(format!(
                        "K4: the commit at {} has {} marks: {commit:?}",
                        commit.lsn,
                        marks.len()
                    )));
                }
            };
            let Some((record, done)) = of_marks.remove(mark) else {
                let mark = String::from_utf8_lossy(mark);
                return Err(Stopped::Wrong(format!(
                    "K4: {mark} with LSN {lsn} was delivered, and is not there, or was before"
                )));
            };
            if let Outcome::Committed { lsn: told, .. } | Outcome::Settled { lsn: told } = record.outcome
                && told != lsn.0
            {
                return Err(Stopped::Wrong(format!("K4: {} has LSN {told}; the feed says {lsn}", name(record))));
            }
            done.compare(&commit.items).map_err(|what| Stopped::Wrong(format!("{}: {what}", name(record))))?;
        }
        if let Some((record, _)) = of_marks.values().next() {
            return Err(Stopped::Wrong(format!("K4: {} is there, and was not delivered", name(record))));
        }
        self.judged = self.delivered.len();
        Ok(count)
    }
}

impl Effects {
    /// K5, K6.
    fn compare(&self, items: &[FeedItem]) -> Result<(), String> {
        let (finals, tables) = self.follow_tables(items)?;
        let after: BTreeSet<&str> = self.after.tables.keys().map(String::as_str).filter(is_table).collect();
        if tables != after {
            return Err(format!("K6: the feed makes {:?} the tables {tables:?}, they are {after:?}", self.before));
        }
        let mut folded: BTreeMap<(&str, u64, &[u8]), (&ChangeValue, &ChangeValue)> = BTreeMap::new();
        for item in items {
            let FeedItem::Record(change) = item else { continue };
            // Of a table that is dropped nothing is left to compare.
            let Some(Some(table)) = finals.get(&change.table_id) else { continue };
            let place = folded.entry((table, change.table_id.0, &change.key)).or_insert((&change.old, &change.new));
            place.1 = &change.new;
        }
        let mut unmet: BTreeMap<(&str, &[u8]), &Sides> = BTreeMap::new();
        for ((table, key), values) in &self.changed {
            unmet.insert((table, key), values);
        }
        for ((table, _, key), (old, new)) in folded {
            let (before, after) = match unmet.get(&(table, key)) {
                Some((before, after)) => (before.as_ref(), after.as_ref()),
                None => {
                    let value = self.after.tables.get(table).and_then(|records| records.get(key));
                    (value, value)
                }
            };
            if agrees(old, before) && agrees(new, after) {
                unmet.remove(&(table, key));
            } else {
                let shown =
                    |value: Option<&Bytes>| value.map_or("nothing".to_owned(), |value| Short(value).to_string());
                return Err(format!(
                    "K5: {table} {}: the feed says {old:?} -> {new:?}, it was {} -> {}",
                    Short(key),
                    shown(before),
                    shown(after)
                ));
            }
        }
        match unmet.keys().next() {
            None => Ok(()),
            Some((table, key)) => Err(format!("K5: {table} {}: the feed does not name it", Short(key))),
        }
    }

    /// The name of each table at the end, if it is there then, and the tables that exist then.
    #[allow(clippy::type_complexity)]
    fn follow_tables<'i>(
        &'i self,
        items: &'i [FeedItem],
    ) -> Result<(BTreeMap<TableId, Option<&'i str>>, BTreeSet<&'i str>), String> {
        let mut finals: BTreeMap<TableId, Option<&str>> = BTreeMap::new();
        let mut tables: BTreeSet<&str> = self.before.iter().map(String::as_str).collect();
        for item in items {
            match item {
                FeedItem::Record(change) => drop(finals.entry(change.table_id).or_insert(Some(&change.table))),
                FeedItem::Table(change) => {
                    let (name, id) = (&*change.table, change.table_id);
                    let is_right = match &change.event {
                        TableEvent::Created { .. } => finals.insert(id, Some(name)).is_none() && tables.insert(name),
                        TableEvent::Dropped => finals.insert(id, None) != Some(None) && tables.remove(name),
                        TableEvent::Renamed { to } => {
                            finals.insert(id, Some(to));
                            tables.remove(name) && tables.insert(to)
                        }
                        _ => {
                            finals.entry(id).or_insert(Some(name));
                            tables.contains(name)
                        }
                    };
                    if !is_right {
                        return Err(format!("K6: {change:?} among {tables:?}"));
                    }
                }
                _ => {}
            }
        }
        Ok((finals, tables))
    }
}

/// Counter lists are structures of a user's, which the feed does not tell.
fn is_table(name: &&str) -> bool {
    Kind::of(name).is_none()
}

/// Whether what the feed says of a value fits the value.
fn agrees(told: &ChangeValue, value: Option<&Bytes>) -> bool {
    match (told, value) {
        (ChangeValue::Absent, None) => true,
        (ChangeValue::Whole(told), Some(value)) => told[..] == value[..],
        (ChangeValue::Large(len), Some(value)) => *len == value.len() as u64,
        (ChangeValue::Part { offset, bytes }, Some(value)) => {
            value.get(*offset..offset + bytes.len()) == Some(&bytes[..])
        }
        (ChangeValue::Unknown, Some(_)) => true,
        _ => false,
    }
}
