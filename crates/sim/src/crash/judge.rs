//! Is what recovery left behind allowed?
//!
//! The promise (design, section 4): after any crash the state is that of the first n commits in LSN order, whatever
//! their durability. n covers every commit that was acknowledged as durable. In the terms of a [`Record`] list:
//!
//! - J1. Which transactions are there is told by the state itself: each that writes leaves a mark of its own in the
//!   journal table.
//! - J2. Of those whose commit answered, the ones present are the ones with the smallest LSNs: none is missing below
//!   one that is there. Their LSNs differ from each other and lie above those that were there before.
//! - J3. Present are all that were acknowledged as durable, and all that had committed when the environment was closed
//!   in order.
//! - J4. Absent are all that were rolled back, and all that had not asked to commit.
//! - J5. A commit that the crash cut short has no answer. It may be there or not; its place in the order is found
//!   below.
//! - J6. Running the present ones one after the other, from the state before, each sees what it saw, and the state at
//!   the end is, byte for byte, what recovery left.
//! - J7. The same for readers that were told that what they read is durable.
//!
//! - J8. A transaction that was prepared and not decided is in doubt after the crash, with its locks; one that was
//!   decided, or never prepared, is not ([`super::doubt`]). What was decided for it after the crash is what is found.
//! - J9. A reader of a snapshot sees the state that the commits with LSNs below it make, including those that the
//!   crash took. If the reader was told that what it read is durable, the crash took none of them.
//! - J10. A transaction below serializable is compared as its level allows. A key that it locked, to write it or for
//!   update, had in the order of the commits the value that it saw. A key that it only read is compared at its
//!   snapshot, if it has one, with its own changes over it. Without a snapshot it is not compared here (`histories`
//!   does that). Of what a snapshot's writer locked, nobody has changed anything between its snapshot and its commit:
//!   the first committer wins. Refused for another's index key, or for want of a table, it has changed nothing. Which
//!   tables there are, and with which indexes, is serializable at every level. A transaction that makes, drops,
//!   renames, loads or indexes one is answered in the order of the commits, and sees its own work at its snapshot.
//!
//! In which order are they run? Under strict two-phase locking with early release, locks go when the commit record is
//! in the log. So the order in which *commit was called* agrees with every conflict. A transaction that waited for the
//! lock of another got it after the other's commit call had begun, and before its own. The harness counts events (one
//! baton, so the count is exact) and so has a serial order for all, those without an answer included. When all present
//! ones have an LSN, the order of LSNs is tried as well and must do as well: that is the prefix order that a crash
//! cuts. A prepared transaction gives up what it has read when it is prepared, so that is its place in both orders. In
//! the order of commits and snapshots ([`super::order`]) it has two: one to be compared at, and one from which on
//! others see it.

use ledgerstone::Isolation;

use super::model::{Bytes, Deed, Seen, Short, State};
use super::order::{Turn, in_order_of_lsns, replay};

/// One run of a transaction: what it did and what it was told.
#[derive(Debug, Clone)]
pub struct Record {
    /// Which client ran it.
    pub client: usize,
    /// Its mark, if it writes.
    pub mark: Option<Bytes>,
    /// What it did, and saw.
    pub deeds: Vec<(Deed, Seen)>,
    /// When it asked to commit, or to be prepared, by the harness's count of events.
    pub asked_at: u64,
    /// What it saw of others.
    pub isolation: Isolation,
    /// The LSN of its snapshot, if it read one.
    pub snapshot: Option<u64>,
    /// No LSN that anybody was told before it asked for its commit is above that of its commit.
    pub lsn_min: u64,
    /// What is to become of it if it is prepared.
    pub two_phase: Option<TwoPhase>,
    /// How it ended.
    pub outcome: Outcome,
}

impl Record {
    /// It has written, and perhaps it has committed.
    pub fn is_unanswered(&self) -> bool {
        self.mark.is_some() && matches!(self.outcome, Outcome::Unknown | Outcome::Deciding)
    }

    /// It has written, and perhaps it has committed in this life, with an LSN that nobody was told.
    pub fn may_have_committed(&self) -> bool {
        let was_decided = self.two_phase.as_ref().is_some_and(|two_phase| two_phase.was_decided);
        self.is_unanswered() || self.mark.is_some() && was_decided && matches!(self.outcome, Outcome::Settled { .. })
    }
}

/// A transaction in a two-phase commit, as its coordinator knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TwoPhase {
    /// Its global id.
    pub global_id: Vec<u8>,
    /// What the coordinator has decided.
    pub commits: bool,
    /// LSN of its Prepare record; 0 if that was not told.
    pub prepared_lsn: u64,
    /// It was decided, perhaps, in the life that prepared it. Then others may have seen a commit which the crash took,
    /// and which came again in a later life.
    pub was_decided: bool,
}

/// How a transaction ended, as far as its client knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Rolled back, or cut short by the crash before it asked to commit.
    Ended,
    /// It asked to commit and the crash came instead of an answer.
    Unknown,
    /// Committed.
    Committed {
        /// LSN of the commit; 0 if it changed nothing.
        lsn: u64,
        /// Acknowledged as durable, with all it had read.
        durable: bool,
    },
    /// It asked to be prepared and the crash came instead of an answer.
    Preparing,
    /// It was prepared.
    InDoubt,
    /// The decision was under way when the crash came.
    Deciding,
    /// Committed after the crash, with an LSN of the next life.
    Settled {
        /// LSN of the commit.
        lsn: u64,
    },
}

/// What is known of a life when it is judged.
pub struct Evidence<'a> {
    /// The state that it began with.
    pub base: &'a State,
    /// All runs of transactions in it.
    pub records: &'a [Record],
    /// It was closed in order.
    pub closed: bool,
    /// The largest LSN of a commit that was there before.
    pub lsn_before: u64,
    /// What was found afterwards.
    pub found: &'a State,
}

/// What the judge has counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Commits that are there.
    pub present: u64,
    /// Commits that had an LSN and are lost, as they may be.
    pub lost: u64,
    /// Of those without an answer, how many are there.
    pub unanswered_present: u64,
    /// The largest LSN of a commit that is there.
    pub lsn_max: u64,
}

/// Says why the state that was found is not allowed, if it is not.
///
/// # Errors
/// The rule that is broken and the evidence, in lines.
pub fn judge(evidence: &Evidence<'_>) -> Result<Verdict, Vec<String>> {
    let Evidence { base, records, found, .. } = *evidence;
    let mut verdict = Verdict { lsn_max: evidence.lsn_before, ..Verdict::default() };
    let journal = found.tables.get(super::plan::JOURNAL);
    let is_present = |record: &Record| {
        record.mark.as_ref().is_some_and(|mark| journal.is_some_and(|journal| journal.contains_key(mark)))
    };

    let mut by_lsn: Vec<(u64, &Record)> = Vec::new();
    for record in records.iter().filter(|record| record.mark.is_some()) {
        let present = is_present(record);
        match record.outcome {
            Outcome::Ended if present => {
                return Err(vec![format!(
                    "J4: {} was rolled back or never asked to commit, and is there",
                    name(record)
                )]);
            }
            Outcome::Ended => {}
            Outcome::Unknown => verdict.unanswered_present += u64::from(present),
            Outcome::Preparing | Outcome::InDoubt => {
                return Err(vec![format!("J8: {} was prepared, perhaps, and nobody has decided it", name(record))]);
            }
            Outcome::Deciding => {
                let commits = record.two_phase.as_ref().is_some_and(|two_phase| two_phase.commits);
                if commits != present {
                    let found = if present { "there" } else { "missing" };
                    return Err(vec![format!("J8: {} was decided, commits {commits}, and is {found}", name(record))]);
                }
            }
            Outcome::Settled { lsn } => {
                if !present {
                    return Err(vec![format!("J8: {} was committed after the crash, and is missing", name(record))]);
                }
                verdict.lsn_max = verdict.lsn_max.max(lsn);
            }
            Outcome::Committed { lsn, durable } => {
                if !present && (durable || evidence.closed) {
                    let why = if durable { "acknowledged as durable" } else { "committed before the close" };
                    return Err(vec![format!("J3: {} with LSN {lsn} was {why}, and is missing", name(record))]);
                }
                if lsn <= evidence.lsn_before {
                    let before = evidence.lsn_before;
                    return Err(vec![format!("J2: {} has LSN {lsn}, not above {before} of earlier", name(record))]);
                }
                verdict.lost += u64::from(!present);
                if present {
                    // The LSNs of lost ones are free to be given again.
                    verdict.lsn_max = verdict.lsn_max.max(lsn);
                }
                by_lsn.push((lsn, record));
            }
        }
        verdict.present += u64::from(present);
    }

    by_lsn.sort_by_key(|(lsn, _)| *lsn);
    for pair in by_lsn.windows(2) {
        let ((first_lsn, first), (second_lsn, second)) = (pair[0], pair[1]);
        if first_lsn == second_lsn {
            return Err(vec![format!("J2: {} and {} have one LSN, {first_lsn}", name(first), name(second))]);
        }
        if !is_present(first) && is_present(second) {
            return Err(vec![format!(
                "J2: {} with LSN {first_lsn} is missing below {} with LSN {second_lsn}, which is there",
                name(first),
                name(second)
            )]);
        }
    }

    // J6, J7: in the order of the commit calls.
    let mut serial: Vec<&Record> = records
        .iter()
        .filter(|record| {
            let is_sure = matches!(record.outcome, Outcome::Committed { durable: true, .. } | Outcome::Settled { .. });
            let sure_reader = record.mark.is_none() && is_sure;
            is_present(record) || sure_reader && record.snapshot.is_none()
        })
        .collect();
    serial.sort_by_key(|record| record.asked_at);
    let end = replay(base, serial.into_iter().map(Turn::Commit))
        .map_err(|why| prefixed("J6: in the order of commit calls", why))?;
    let differences = end.differences(found);
    if !differences.is_empty() {
        return Err(prefixed("J6: the present transactions lead to another state than was found", differences));
    }

    for reader in records {
        let Some(snapshot) = reader.snapshot else { continue };
        let is_sure = matches!(reader.outcome, Outcome::Committed { durable: true, .. });
        let lost = by_lsn.iter().find(|(lsn, record)| *lsn < snapshot && !is_present(record));
        // One that read nothing was told nothing.
        if let (true, false, Some((lsn, record))) = (is_sure, reader.deeds.is_empty(), lost) {
            let (reader, record) = (name(reader), name(record));
            return Err(vec![format!(
                "J9: {reader} was told that its snapshot at {snapshot} is durable; {record} at {lsn} is lost"
            )]);
        }
    }

    replay(base, in_order_of_lsns(records)).map_err(|why| {
        prefixed("J9: commits, those of lost transactions included, and snapshots in the order of LSNs", why)
    })?;
    if records.iter().all(|record| !record.is_unanswered()) {
        let settled =
            records.iter().filter(|r| r.mark.is_some() && matches!(r.outcome, Outcome::Settled { .. })).map(|r| (0, r));
        by_lsn.extend(settled);
        by_lsn.sort_by_key(|(lsn, record)| record.two_phase.as_ref().map_or(*lsn, |two| two.prepared_lsn));
        let present = by_lsn.iter().map(|(_, record)| *record).filter(|record| is_present(record));
        let end = replay(base, present.map(Turn::Commit)).map_err(|why| prefixed("J6: in the order of LSNs", why))?;
        let differences = end.differences(found);
        if !differences.is_empty() {
            return Err(prefixed("J6: the order of LSNs leads to another state than was found", differences));
        }
    }
    Ok(verdict)
}

fn prefixed(first: &str, mut rest: Vec<String>) -> Vec<String> {
    rest.insert(0, first.to_owned());
    rest
}

/// A transaction in words.
pub(super) fn name(record: &Record) -> String {
    let mark = record.mark.as_ref().map_or("reader".to_owned(), |mark| String::from_utf8_lossy(mark).into_owned());
    let level = if record.isolation == Isolation::Serializable { "" } else { record.isolation.name() };
    format!("{level} transaction {mark} of client {} (asked to commit at {})", record.client, record.asked_at)
        .trim_start()
        .to_owned()
}

/// A deed in words.
pub fn describe(deed: &Deed) -> String {
    match deed {
        Deed::Get { table, key, for_update } => {
            format!("get {table} {}{}", Short(key), if *for_update { " for update" } else { "" })
        }
        Deed::Put { table, key, value } => format!("put {table} {} = {}", Short(key), Short(value)),
        Deed::Insert { table, key, value } => format!("insert {table} {} = {}", Short(key), Short(value)),
        Deed::Delete { table, key } => format!("delete {table} {}", Short(key)),
        Deed::Modify { table, key, patch } => format!("modify {table} {} {patch:x?}", Short(key)),
        Deed::Scan { table, from, to, backward, limit } => {
            let how = if *backward { "backward" } else { "forward" };
            format!("scan {table} {}..{} {how}, at most {limit}", Short(from), Short(to))
        }
        Deed::WritePart { table, key, at, part } => format!("write {table} {} at {at}: {}", Short(key), Short(part)),
        Deed::SetLen { table, key, len } => format!("cut {table} {} to {len}", Short(key)),
        Deed::ReadPart { table, key, at, len } => format!("read {table} {} at {at}, {len} bytes", Short(key)),
        Deed::DeleteRange { table, from, to } => format!("delete {table} {}..{}", Short(from), Short(to)),
        Deed::Load { table, rows } => {
            let first = rows.first().map_or(String::new(), |(key, _)| Short(key).to_string());
            format!("load {table} with {} records from {first} on", rows.len())
        }
        Deed::Rename { table, to } => format!("rename {table} to {to}"),
        Deed::Lookup { table, from, to, backward } => {
            format!("look up {table} from {from} to {to}{}", if *backward { " backward" } else { "" })
        }
        Deed::Reindex { table, is_unique } => format!("make the index of {table} anew, unique {is_unique}"),
        Deed::Create { table, .. } => format!("create {table}"),
        Deed::Drop { table } => format!("drop {table}"),
        Deed::List => "list tables".to_owned(),
        Deed::CreateList { list } => format!("create counter list {list}"),
        Deed::DropList { list } => format!("drop counter list {list}"),
        Deed::Count { list, key, delta } => format!("count {list} {key} {delta:+}"),
        Deed::Total { list, key } => format!("total of {list} {key}"),
        Deed::Tally { list } => format!("tally of {list}"),
        Deed::Mark { key } => format!("mark {}", Short(key)),
        Deed::Savepoint => "savepoint".to_owned(),
        Deed::RollbackTo(at) => format!("rollback to savepoint {at}"),
        Deed::Release(at) => format!("release savepoint {at}"),
    }
}

/// What was seen, in words.
pub fn describe_seen(seen: &Seen) -> String {
    match seen {
        Seen::Value(None) => "no value".to_owned(),
        Seen::Value(Some(value)) => format!("{}", Short(value)),
        Seen::Rows(rows) => {
            let shown: Vec<String> =
                rows.iter().take(8).map(|(key, value)| format!("{}={}", Short(key), Short(value))).collect();
            format!("{} rows: {}", rows.len(), shown.join(" "))
        }
        other => format!("{other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::plan::JOURNAL;
    use super::*;
    use std::sync::Arc;

    fn bytes(text: &str) -> Bytes {
        Arc::from(text.as_bytes())
    }

    /// A transaction that puts its mark under `k`, having seen there what `saw` says.
    fn record(mark: &str, asked_at: u64, outcome: Outcome, saw: Option<&str>) -> Record {
        let (table, key) = ("t".to_owned(), bytes("k"));
        let deeds = vec![
            (Deed::Get { table: table.clone(), key: key.clone(), for_update: false }, Seen::Value(saw.map(bytes))),
            (Deed::Put { table, key, value: bytes(mark) }, Seen::Done),
            (Deed::Mark { key: bytes(mark) }, Seen::Done),
        ];
        Record {
            client: 0,
            mark: Some(bytes(mark)),
            deeds,
            asked_at,
            isolation: Isolation::Serializable,
            snapshot: None,
            lsn_min: 0,
            two_phase: None,
            outcome,
        }
    }

    fn state(marks: &[&str], value: Option<&str>) -> State {
        let mut state = State::default();
        state.tables.insert(JOURNAL.into(), marks.iter().map(|mark| (bytes(mark), bytes(""))).collect());
        state.tables.insert("t".into(), value.map(|value| (bytes("k"), bytes(value))).into_iter().collect());
        state
    }

    fn check(records: &[Record], closed: bool, found: &State, expected: Result<u64, &str>) {
        let base = state(&[], None);
        let evidence = Evidence { base: &base, records, closed, lsn_before: 5, found };
        match (judge(&evidence), expected) {
            (Ok(verdict), Ok(present)) => assert_eq!(verdict.present, present),
            (Err(why), Err(rule)) => assert!(why[0].starts_with(rule), "{why:?}"),
            (verdict, expected) => panic!("{verdict:?}, not {expected:?}"),
        }
    }

    const fn committed(lsn: u64, durable: bool) -> Outcome {
        Outcome::Committed { lsn, durable }
    }

    #[test]
    fn any_prefix_that_covers_the_durable_ones_is_allowed() {
        let records = [
            record("a", 1, committed(10, true), None),
            record("b", 2, committed(20, false), Some("a")),
            record("c", 3, committed(30, false), Some("b")),
        ];
        check(&records, false, &state(&[], None), Err("J3"));
        check(&records, false, &state(&["a"], Some("a")), Ok(1));
        check(&records, false, &state(&["a", "b"], Some("b")), Ok(2));
        check(&records, false, &state(&["a", "b", "c"], Some("c")), Ok(3));
        check(&records, false, &state(&["a", "c"], Some("c")), Err("J2"));
        check(&records, false, &state(&["a", "b"], Some("a")), Err("J6"));
        check(&records, false, &state(&["a", "b"], Some("c")), Err("J6"));
        check(&records, true, &state(&["a", "b"], Some("b")), Err("J3"));
    }

    #[test]
    fn what_was_not_committed_is_not_there() {
        let records = [record("a", 0, Outcome::Ended, None)];
        check(&records, false, &state(&[], None), Ok(0));
        check(&records, false, &state(&["a"], Some("a")), Err("J4"));
        check(&records, false, &state(&[], Some("a")), Err("J6"));
    }

    #[test]
    fn a_commit_without_an_answer_is_there_or_not_but_whole() {
        // `b` was asked for before `c`, which read from it and was answered.
        let records = [record("b", 1, Outcome::Unknown, None), record("c", 2, committed(30, false), Some("b"))];
        check(&records, false, &state(&[], None), Ok(0));
        check(&records, false, &state(&["b"], Some("b")), Ok(1));
        check(&records, false, &state(&["b", "c"], Some("c")), Ok(2));
        check(&records, false, &state(&["c"], Some("c")), Err("J6"));
        check(&records, false, &state(&["b"], None), Err("J6"));
    }

    #[test]
    fn a_reader_that_was_told_durable_read_what_is_there() {
        let key = bytes("k");
        let deeds = vec![(Deed::Get { table: "t".into(), key, for_update: true }, Seen::Value(Some(bytes("a"))))];
        let reader = |durable| Record {
            client: 1,
            mark: None,
            deeds: deeds.clone(),
            asked_at: 2,
            isolation: Isolation::Serializable,
            snapshot: None,
            lsn_min: 0,
            two_phase: None,
            outcome: committed(0, durable),
        };
        let writer = record("a", 1, committed(10, false), None);
        check(&[writer.clone(), reader(false)], false, &state(&[], None), Ok(0));
        check(&[writer.clone(), reader(true)], false, &state(&[], None), Err("J6"));
        check(&[writer, reader(true)], false, &state(&["a"], Some("a")), Ok(1));
    }

    #[test]
    fn a_reader_of_a_snapshot_sees_the_commits_below_it() {
        let reader = |snapshot, saw: Option<&str>, durable| {
            let get = Deed::Get { table: "t".into(), key: bytes("k"), for_update: false };
            let deeds = vec![(get, Seen::Value(saw.map(bytes)))];
            let isolation = Isolation::Snapshot;
            Record {
                mark: None,
                deeds,
                isolation,
                snapshot: Some(snapshot),
                ..record("", 9, committed(0, durable), None)
            }
        };
        let writers = [record("a", 1, committed(10, false), None), record("b", 2, committed(20, false), Some("a"))];
        let with = |reader: Record| [writers[0].clone(), writers[1].clone(), reader];
        let both = state(&["a", "b"], Some("b"));
        check(&with(reader(20, Some("a"), true)), false, &both, Ok(2));
        check(&with(reader(21, Some("b"), true)), false, &both, Ok(2));
        check(&with(reader(20, Some("b"), true)), false, &both, Err("J9"));
        check(&with(reader(10, Some("a"), false)), false, &both, Err("J9"));
        let first = state(&["a"], Some("a"));
        check(&with(reader(20, Some("a"), true)), false, &first, Ok(1));
        check(&with(reader(21, Some("b"), false)), false, &first, Ok(1));
        check(&with(reader(21, Some("b"), true)), false, &first, Err("J9"));
    }

    #[test]
    fn below_serializable_only_what_was_locked_is_in_the_order_of_commits() {
        let first = record("a", 1, committed(10, true), None);
        let both = state(&["a", "b"], Some("b"));
        let second =
            |isolation, snapshot, saw| Record { isolation, snapshot, ..record("b", 2, committed(20, true), saw) };
        let check = |second: Record, expected| check(&[first.clone(), second], false, &both, expected);
        for isolation in [Isolation::ReadUncommitted, Isolation::ReadCommitted] {
            check(second(isolation, None, None), Ok(2)); // A lost update, which these levels allow.
            check(second(isolation, None, Some("a")), Ok(2));
            let mut wrong = second(isolation, None, None);
            let (table, key) = ("t".to_owned(), bytes("k"));
            wrong.deeds.insert(1, (Deed::Delete { table, key }, Seen::Flag(false)));
            check(wrong, Err("J6"));
        }
        check(second(Isolation::Snapshot, Some(11), Some("a")), Ok(2));
        check(second(Isolation::Snapshot, Some(11), None), Err("J9"));
        check(second(Isolation::Snapshot, Some(10), Some("a")), Err("J9"));
        check(second(Isolation::Snapshot, Some(10), None), Err("J9")); // The second to commit has won.
        let mut skewed = second(Isolation::Snapshot, Some(10), None);
        skewed.deeds.remove(1);
        self::check(&[first.clone(), skewed], false, &state(&["a", "b"], Some("a")), Ok(2));
    }

    #[test]
    fn tables_are_made_and_dropped_in_the_order_of_commits_at_every_level() {
        let named = || "u".to_owned();
        let create = |seen| (Deed::Create { table: named(), is_unique: false }, seen);
        let put = |key, seen| (Deed::Put { table: named(), key: bytes(key), value: bytes("1") }, seen);
        let get = |seen| (Deed::Get { table: named(), key: bytes("k"), for_update: false }, seen);
        let writes = |mark, at: u64, deeds: &[(Deed, Seen)]| {
            let mut record = record(mark, at, committed(10 * at, true), None);
            record.deeds = [deeds, &[(Deed::Mark { key: bytes(mark) }, Seen::Done)]].concat();
            record
        };
        let below = |record: Record, snapshot: Option<u64>| {
            let isolation = if snapshot.is_some() { Isolation::Snapshot } else { Isolation::ReadCommitted };
            Record { isolation, snapshot, ..record }
        };
        let first = || writes("a", 1, &[create(Seen::Done), put("k", Seen::Done)]);
        let found = |records: &[(&str, &str)]| {
            let mut found = state(&["a", "b"], None);
            found.tables.insert(named(), records.iter().map(|(key, value)| (bytes(key), bytes(value))).collect());
            found
        };
        let kept = found(&[("k", "1")]);
        for snapshot in [None, Some(5)] {
            let check = |deeds: &[(Deed, Seen)], expected| {
                check(&[first(), below(writes("b", 2, deeds), snapshot)], false, &kept, expected);
            };
            // Since the snapshot another has made it: the name is locked, and says so; the records are still not seen.
            check(&[create(Seen::TableExists)], Ok(2));
            check(&[create(Seen::TableExists), get(Seen::NoTable)], Ok(2));
            check(&[create(Seen::Done)], Err("J6"));
            check(&[(Deed::Drop { table: named() }, Seen::NoTable)], Err("J6"));
        }
        // What it makes and fills itself it sees, at a snapshot too.
        let found_by_itself = [create(Seen::Done), put("k", Seen::Done), get(Seen::Value(Some(bytes("1"))))];
        let empty = [create(Seen::Done), put("k", Seen::Done), get(Seen::Value(None))];
        let alone = writes("a", 1, &[]);
        for (deeds, expected) in [(&found_by_itself, Ok(2)), (&empty, Err("J9"))] {
            check(&[alone.clone(), below(writes("b", 2, deeds), Some(15))], false, &kept, expected);
        }
        // A table of the name that it has dropped is another one: nobody was first to commit there.
        let anew = [(Deed::Drop { table: named() }, Seen::Done), create(Seen::Done), put("k", Seen::Done)];
        let other = writes("c", 2, &[put("k", Seen::Done)]);
        let third = below(writes("b", 3, &anew), Some(15));
        let mut found = found(&[("k", "1")]);
        found.tables.get_mut(JOURNAL).map(|journal| journal.insert(bytes("c"), bytes("")));
        check(&[first(), other, third], false, &found, Ok(3));
    }

    #[test]
    fn lsns_are_above_those_of_earlier_lives_and_differ() {
        check(&[record("a", 1, committed(5, false), None)], false, &state(&["a"], Some("a")), Err("J2"));
        let records = [record("a", 1, committed(9, false), None), record("b", 2, committed(9, false), Some("a"))];
        check(&records, false, &state(&["a", "b"], Some("b")), Err("J2"));
    }

    fn prepared(mark: &str, asked_at: u64, commits: bool, prepared_lsn: u64, outcome: Outcome) -> Record {
        let two_phase =
            Some(TwoPhase { global_id: mark.as_bytes().to_vec(), commits, prepared_lsn, was_decided: false });
        Record { two_phase, ..record(mark, asked_at, outcome, None) }
    }

    #[test]
    fn prepared_transactions_are_what_was_decided() {
        for outcome in [Outcome::InDoubt, Outcome::Preparing] {
            check(&[prepared("a", 1, true, 10, outcome)], false, &state(&["a"], Some("a")), Err("J8"));
        }
        for (commits, found, expected) in
            [(true, &["a"][..], Ok(1)), (true, &[], Err("J8")), (false, &[], Ok(0)), (false, &["a"], Err("J8"))]
        {
            let found = state(found, found.first().copied());
            check(&[prepared("a", 1, commits, 10, Outcome::Deciding)], false, &found, expected);
        }
        // `b` came after the prepare, over what `a` had read; its LSN is below that of the commit of `a`.
        let over = Record {
            deeds: vec![(Deed::Mark { key: bytes("b") }, Seen::Done)],
            ..record("b", 2, committed(20, false), None)
        };
        let settled = prepared("a", 1, true, 10, Outcome::Settled { lsn: 15 });
        check(&[settled.clone(), over.clone()], false, &state(&["a", "b"], Some("a")), Ok(2));
        check(&[settled, over], false, &state(&["b"], None), Err("J8"));
    }

    #[test]
    fn a_decision_that_the_crash_took_may_have_been_seen() {
        let again = |was_decided| {
            let mut again = prepared("a", 1, true, 10, Outcome::Settled { lsn: 90 });
            if let Some(two_phase) = &mut again.two_phase {
                two_phase.was_decided = was_decided;
            }
            Record { lsn_min: 12, ..again }
        };
        let saw = record("b", 2, committed(20, false), Some("a"));
        check(&[again(true), saw.clone()], false, &state(&["a"], Some("a")), Ok(1));
        check(&[again(false), saw], false, &state(&["a"], Some("a")), Err("J9"));
        // What came before it is compared.
        let before = record("b", 2, committed(11, false), Some("a"));
        check(&[again(true), before], false, &state(&["a"], Some("a")), Err("J9"));
    }

    #[test]
    fn who_is_prepared_is_seen_from_its_commit_on() {
        let settled = |outcome| prepared("a", 1, true, 10, outcome);
        let look = |snapshot, saw: Option<&str>| {
            let get = Deed::Get { table: "t".into(), key: bytes("k"), for_update: false };
            let deeds = vec![(get, Seen::Value(saw.map(bytes)))];
            let (mark, isolation, snapshot) = (None, Isolation::Snapshot, Some(snapshot));
            Record { mark, deeds, isolation, snapshot, ..record("", 9, committed(0, false), None) }
        };
        let found = state(&["a"], Some("a"));
        for outcome in [committed(20, true), Outcome::Settled { lsn: 90 }] {
            check(&[settled(outcome), look(15, None)], false, &found, Ok(1));
            check(&[settled(outcome), look(15, Some("a"))], false, &found, Err("J9"));
        }
        check(&[settled(committed(20, true)), look(25, Some("a"))], false, &found, Ok(1));
        check(&[settled(committed(20, true)), look(25, None)], false, &found, Err("J9"));
        check(&[settled(Outcome::Settled { lsn: 90 }), look(25, Some("a"))], false, &found, Err("J9"));

        // Between the two, others may put records where it has only read, and deleted nothing.
        let mut clears = settled(committed(20, true));
        let (table, from, to) = ("t".to_owned(), bytes("a"), bytes("z"));
        clears.deeds =
            vec![(Deed::DeleteRange { table, from, to }, Seen::Count(0)), (Deed::Mark { key: bytes("a") }, Seen::Done)];
        let between = record("b", 2, committed(15, true), None);
        check(&[clears, between, look(25, Some("b"))], false, &state(&["a", "b"], Some("b")), Ok(2));
    }

    #[test]
    fn snapshots_below_a_commit_without_an_answer_are_compared() {
        let unanswered = Record { lsn_min: 20, ..record("c", 5, Outcome::Unknown, Some("a")) };
        let others = |snapshot, saw| {
            let second = Record {
                isolation: Isolation::Snapshot,
                snapshot: Some(snapshot),
                deeds: vec![
                    (Deed::Get { table: "t".into(), key: bytes("k"), for_update: false }, Seen::Value(saw)),
                    (Deed::Mark { key: bytes("b") }, Seen::Done),
                ],
                ..record("b", 2, committed(30, true), None)
            };
            [record("a", 1, committed(10, true), None), second, unanswered.clone()]
        };
        let found = state(&["a", "b"], Some("a"));
        check(&others(15, Some(bytes("a"))), false, &found, Ok(2));
        check(&others(15, None), false, &found, Err("J9"));
        check(&others(25, Some(bytes("c"))), false, &found, Ok(2)); // That may have committed at 22.
    }

    #[test]
    fn what_was_taken_back_is_not_there() {
        let mut wrote = record("a", 1, committed(10, true), None);
        let place = |value: &str| Deed::Put { table: "t".into(), key: bytes("k"), value: bytes(value) };
        wrote.deeds.extend([Deed::Savepoint, place("taken back"), Deed::Savepoint].map(|deed| (deed, Seen::Done)));
        wrote.deeds.extend([place("too"), Deed::RollbackTo(0), Deed::Release(0)].map(|deed| (deed, Seen::Done)));
        check(&[wrote.clone()], false, &state(&["a"], Some("a")), Ok(1));
        check(&[wrote], false, &state(&["a"], Some("taken back")), Err("J6"));
    }

    #[test]
    fn transactions_that_lost_an_update_are_found() {
        let records = [record("a", 1, committed(10, false), None), record("b", 2, committed(20, false), None)];
        check(&records, false, &state(&["a", "b"], Some("b")), Err("J6"));
        check(&records, false, &state(&["a"], Some("a")), Err("J9"));
    }
}
