//! Transactions one after the other: what each saw, compared with what it could see at its place.

use std::collections::{BTreeMap, BTreeSet};

use ledgerstone::Isolation;

use super::judge::{Outcome, Record, describe, describe_seen, name};
use super::model::{Alone, Bytes, Deed, Seen, Short, State};
use super::plan::JOURNAL;

/// A transaction's place in an order.
pub enum Turn<'a> {
    /// It commits here.
    Commit(&'a Record),
    /// It sees this, and what it does on top of it; nothing of that stays.
    Look(&'a Record),
    /// It is prepared here: it has seen this.
    Prepare(&'a Record),
    /// What it was prepared to write is there from here on.
    Decide(&'a Record),
}

/// All whose places in the log are known: commits, those that a crash took included, preparations and snapshots.
///
/// A commit that nobody was told of may be anywhere above what was known when it was asked for; there the order ends.
pub fn in_order_of_lsns(records: &[Record]) -> Vec<Turn<'_>> {
    let end = records.iter().filter(|record| record.may_have_committed()).map(|record| record.lsn_min).min();
    let end = end.unwrap_or(u64::MAX);
    let mut order: Vec<(u64, Turn<'_>)> = Vec::new();
    for record in records {
        order.extend(record.snapshot.map(|snapshot| (snapshot, Turn::Look(record))));
        if record.mark.is_none() {
            continue;
        }
        let prepared = record.two_phase.as_ref().map(|two_phase| (two_phase.prepared_lsn, Turn::Prepare(record)));
        match (record.outcome, prepared) {
            (Outcome::Committed { lsn, .. }, Some(prepared)) => order.extend([prepared, (lsn, Turn::Decide(record))]),
            (Outcome::Committed { lsn, .. }, None) => order.push((lsn, Turn::Commit(record))),
            // Its commit is of another life.
            (Outcome::Settled { .. }, prepared) => order.extend(prepared),
            _ => {}
        }
    }
    order.retain(|(lsn, _)| *lsn <= end);
    // A snapshot sees what lies below it: at the same number it comes first.
    order.sort_by_key(|(lsn, turn)| (*lsn, !matches!(turn, Turn::Look(_))));
    order.into_iter().map(|(_, turn)| turn).collect()
}

/// Records that a transaction locked, and what they were at its snapshot.
type Locked = BTreeMap<(String, Bytes), Option<Bytes>>;

/// Runs transactions one after the other, and gives back the state that they make.
///
/// # Errors
/// Who saw what it could not see, or wrote over what it could not write over.
pub fn replay<'a>(base: &State, turns: impl IntoIterator<Item = Turn<'a>>) -> Result<State, Vec<String>> {
    let mut state = base.clone();
    // Both by the count of events, which is each one's own.
    let mut looked: BTreeMap<u64, Locked> = BTreeMap::new();
    let mut prepared: BTreeMap<u64, Vec<(Deed, Seen)>> = BTreeMap::new();
    for turn in turns {
        match turn {
            Turn::Look(record) if record.mark.is_none() => run(record, &mut state, true)?,
            Turn::Look(record) => {
                looked.insert(record.asked_at, locked(record, &state));
                run(record, &mut state.clone(), true)?;
            }
            Turn::Commit(record) => {
                first_committer_wins(record, looked.remove(&record.asked_at), &state)?;
                run(record, &mut state, false)?;
            }
            Turn::Prepare(record) => {
                first_committer_wins(record, looked.remove(&record.asked_at), &state)?;
                prepared.insert(record.asked_at, writes(record, &state));
                run(record, &mut state.clone(), false)?;
            }
            Turn::Decide(record) => {
                let mut alone = Alone::new(&mut state);
                for (deed, seen) in prepared.remove(&record.asked_at).unwrap_or_default() {
                    let _ = alone.apply_answered(&deed, &seen);
                }
            }
        }
    }
    Ok(state)
}

/// What the records that a transaction locked are now. Those of tables that it has itself made, dropped or renamed
/// before are left out: under the same name there is another table.
fn locked(record: &Record, state: &State) -> Locked {
    let value = |table: &str, key: &Bytes| state.tables.get(table).and_then(|records| records.get(key)).cloned();
    let mut own: BTreeSet<&str> = BTreeSet::new();
    let mut locked = Locked::new();
    for (deed, seen) in &record.deeds {
        match deed {
            _ if matches!(seen, Seen::NoTable | Seen::Duplicate | Seen::TableExists) => {}
            Deed::Create { table, .. } | Deed::Drop { table } => drop(own.insert(table)),
            Deed::Rename { table, to } => own.extend([table.as_str(), to.as_str()]),
            _ => {
                let place = deed.locks().filter(|(table, _)| !own.contains(table));
                locked.extend(place.map(|(table, key)| ((table.to_owned(), key.clone()), value(table, key))));
            }
        }
    }
    locked
}

fn first_committer_wins(record: &Record, at_snapshot: Option<Locked>, state: &State) -> Result<(), Vec<String>> {
    let Some(before) = at_snapshot else { return Ok(()) };
    let now = locked(record, state);
    let Some((table, key)) = before.keys().find(|place| before[*place] != now[*place]) else { return Ok(()) };
    let (name, key, snapshot) = (name(record), Short(key), record.snapshot.unwrap_or(0));
    Err(vec![format!(
        "J10: {name} has locked {table} {key}, which another has changed since its snapshot at {snapshot}"
    )])
}

/// What a prepared transaction has changed. What it has only read, and the gaps of its range deletes, others may change
/// before it commits; done again, its deeds would come to something else.
fn writes(record: &Record, state: &State) -> Vec<(Deed, Seen)> {
    let mut state = state.clone();
    let mut alone = Alone::new(&mut state);
    let mut writes = Vec::new();
    for (deed, seen) in &record.deeds {
        match (deed, seen) {
            (_, Seen::NoTable | Seen::TableExists | Seen::Flag(false)) => continue,
            (Deed::DeleteRange { table, from, to }, _) => {
                let (from, to, limit) = (from.clone(), to.clone(), usize::MAX);
                let scan = Deed::Scan { table: table.clone(), from, to, backward: false, limit };
                if let Seen::Rows(rows) = alone.apply(&scan) {
                    let delete = |key| (Deed::Delete { table: table.clone(), key }, Seen::Flag(true));
                    writes.extend(rows.into_iter().map(|(key, _)| delete(key)));
                }
            }
            _ => writes.push((deed.clone(), seen.clone())),
        }
        let _ = alone.apply_answered(deed, seen);
        if let Deed::Load { table, rows } = deed {
            // Another's index key may have stopped it half-way.
            writes.pop();
            for (key, value) in rows {
                let (table, key, value) = (table.clone(), key.clone(), value.clone());
                let get = Deed::Get { table: table.clone(), key: key.clone(), for_update: false };
                if alone.apply(&get) != Seen::Value(None) {
                    writes.push((Deed::Put { table, key, value }, Seen::Done));
                }
            }
        }
    }
    writes
}

/// The same, but a list of tables without the journal.
fn without_journal(seen: Seen) -> Seen {
    match seen {
        Seen::Names(names) => Seen::Names(names.into_iter().filter(|name| name != JOURNAL).collect()),
        other => other,
    }
}

/// Runs a transaction, and compares what it saw as its level allows (J10).
fn run(record: &Record, state: &mut State, at_snapshot: bool) -> Result<(), Vec<String>> {
    let is_serial = record.isolation == Isolation::Serializable;
    // A mark is put into the journal that another has made since the snapshot, too; the snapshot's lists do not show
    // that one.
    let may_miss_journal = at_snapshot && !is_serial && !state.tables.contains_key(JOURNAL);
    let mut alone = Alone::new(state);
    for (number, (deed, seen)) in record.deeds.iter().enumerate() {
        let writes = deed.locks().is_some() || matches!(deed, Deed::DeleteRange { .. }) || deed.changes_tables();
        // A transaction that opens a table before it changes what it is may find none, and has locked nothing then.
        let opens = matches!(deed, Deed::Load { .. } | Deed::Reindex { .. });
        let is_of_now = !at_snapshot && deed.changes_tables() && !(opens && *seen == Seen::NoTable);
        let expected =
            if is_serial || !writes || is_of_now { alone.apply(deed) } else { alone.apply_answered(deed, seen) };
        let is_compared = is_serial || at_snapshot || writes;
        let is_same = expected == *seen || may_miss_journal && without_journal(expected.clone()) == *seen;
        if is_compared && !is_same {
            return Err(vec![
                format!("{} saw at its step {number} what it could not see", name(record)),
                format!("  step:     {}", describe(deed)),
                format!("  saw:      {}", describe_seen(seen)),
                format!("  expected: {}", describe_seen(&expected)),
            ]);
        }
    }
    Ok(())
}
