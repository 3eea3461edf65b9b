//! What the levels below serializable promise, checked transaction by transaction.
//!
//! The versions of an item are the commits that wrote it, by LSN; the state at an LSN S is that of the newest versions
//! below S.
//!
//! | level | promise |
//! | --- | --- |
//! | all | nobody writes over what is not committed (G0): between a write's answer and the asking for its transaction's end, no other transaction is answered a write of that item |
//! | read uncommitted | what is read was written by somebody before the answer |
//! | read committed | all that one call reads is the state at one S, and S is the log's end at some time during the call |
//! | snapshot | all that the transaction reads is the state at its own S, the log's end at some time while it began; and of what it writes, no other commit from S up to its own writes anything (first committer wins) |
//!
//! A transaction sees its own writes at all levels. Serializability is checked in `check.rs`, where these transactions
//! are nodes too. What they wrote and surely read orders them. What they overwrote after they had read it does not
//! (mixing of levels, Adya 1999).

use std::collections::BTreeMap;

use ledgerstone::Isolation;

use super::check::{Version, matches};
use super::history::{Access, Act, History, Item, Seen, Transaction};

/// All versions of all items by rising LSN.
pub(super) type Versions = BTreeMap<Item, Vec<Version>>;

/// Who wrote what a transaction read, as far as that is certain.
pub(super) type Sources = Vec<(usize, Item)>;

/// Checks what a transaction of a level below serializable read, own writes left out.
///
/// # Errors
/// The promise that was broken.
pub(super) fn check_reads(
    transaction: &Transaction,
    reads: &[(Access, Seen)],
    versions: &Versions,
    committed: &[&Transaction],
    history: &History,
) -> Result<Sources, String> {
    match (transaction.isolation, transaction.snapshot) {
        (Isolation::ReadUncommitted, _) => {
            for (access, seen) in reads {
                was_written(access, *seen, history).map_err(|what| format!("{} {what}", transaction.name))?;
            }
            Ok(Sources::new())
        }
        (Isolation::Snapshot, Some(snapshot)) => {
            check_time(transaction, snapshot, committed)?;
            match first_difference(reads, snapshot, versions, committed) {
                None => Ok(sources(reads, snapshot, versions, committed)),
                Some((access, seen)) => {
                    let state = state_at(&access.item, snapshot, versions, committed);
                    let should = state.and_then(|version| version.value);
                    Err(format!(
                        "{} has its snapshot at {snapshot} and saw {seen:?} of {:?}, which is {should:?} there",
                        transaction.name, access.item
                    ))
                }
            }
        }
        _ => {
            let mut all = Sources::new();
            for call in reads.chunk_by(|(a, _), (b, _)| (a.began, a.ended) == (b.began, b.ended)) {
                all.extend(check_call(transaction, call, versions, committed)?);
            }
            Ok(all)
        }
    }
}

/// Everything read by one call is of one moment during the call.
fn check_call(
    transaction: &Transaction,
    call: &[(Access, Seen)],
    versions: &Versions,
    committed: &[&Transaction],
) -> Result<Sources, String> {
    let Some((first, _)) = call.first() else { return Ok(Sources::new()) };
    let commits = || committed.iter().filter_map(|writer| writer.commit).filter(|commit| commit.lsn > 0);
    let low = commits().filter(|commit| commit.answered < first.began).map(|commit| commit.lsn + 1).max().unwrap_or(0);
    let high = commits().filter(|commit| commit.asked > first.ended).map(|commit| commit.lsn).min().unwrap_or(u64::MAX);
    let mut moments: Vec<u64> =
        commits().map(|commit| commit.lsn + 1).filter(|lsn| (low..=high).contains(lsn)).collect();
    moments.push(low);
    match moments.into_iter().find(|&lsn| first_difference(call, lsn, versions, committed).is_none()) {
        Some(lsn) => Ok(sources(call, lsn, versions, committed)),
        None => {
            let saw: Vec<String> = call.iter().map(|(access, seen)| format!("{seen:?} of {:?}", access.item)).collect();
            let (began, ended) = (first.began, first.ended);
            let saw = saw.join(", ");
            Err(format!(
                "{} saw in one call {saw}; that was committed at no moment of it (ticks {began}..{ended}, LSNs {low}..{high})",
                transaction.name
            ))
        }
    }
}

/// The snapshot has all commits that were answered before the transaction began, and none that was asked for after it
/// had.
fn check_time(transaction: &Transaction, snapshot: u64, committed: &[&Transaction]) -> Result<(), String> {
    for writer in committed {
        let Some(commit) = writer.commit.filter(|commit| commit.lsn > 0) else { continue };
        let wrong = if commit.answered < transaction.began && commit.lsn >= snapshot {
            "does not see"
        } else if commit.asked > transaction.begun && commit.lsn < snapshot {
            "sees, from the future,"
        } else {
            continue;
        };
        return Err(format!("{} at {snapshot} {wrong} {} at {}", transaction.name, writer.name, commit.lsn));
    }
    Ok(())
}

fn lsn_of(version: &Version, committed: &[&Transaction]) -> u64 {
    version.writer.and_then(|writer| committed[writer].commit).map_or(0, |commit| commit.lsn)
}

fn state_at<'v>(item: &Item, lsn: u64, versions: &'v Versions, committed: &[&Transaction]) -> Option<&'v Version> {
    let versions = versions.get(item)?;
    let count = versions.partition_point(|version| lsn_of(version, committed) < lsn.max(1));
    versions[..count].last()
}

fn first_difference(
    reads: &[(Access, Seen)],
    lsn: u64,
    versions: &Versions,
    committed: &[&Transaction],
) -> Option<(Access, Seen)> {
    reads.iter().copied().find(|(access, seen)| {
        let value = state_at(&access.item, lsn, versions, committed).and_then(|version| version.value);
        !matches(*seen, value)
    })
}

/// Values tell their writers; an absence may have been another's.
fn sources(reads: &[(Access, Seen)], lsn: u64, versions: &Versions, committed: &[&Transaction]) -> Sources {
    let values = reads.iter().filter(|(_, seen)| matches!(seen, Seen::Value(_)));
    values.filter_map(|(a, _)| Some((state_at(&a.item, lsn, versions, committed)?.writer?, a.item))).collect()
}

/// Somebody wrote it, whatever became of him, before the reader had it.
fn was_written(access: &Access, seen: Seen, history: &History) -> Result<(), String> {
    let Seen::Value(value) = seen else { return Ok(()) };
    let initial = history.initial.contains(&(access.item, value));
    let by = |writer: &Transaction| {
        let write = |other: &Access| {
            let writes = [Act::Write(Some(value)), Act::Undone(Some(value))].contains(&other.act);
            other.item == access.item && writes && other.began < access.ended
        };
        writer.accesses.iter().any(write)
    };
    if initial || history.transactions.iter().any(by) {
        return Ok(());
    }
    Err(format!(
        "saw {value} of {:?}, which nobody had written (ticks {}..{})",
        access.item, access.began, access.ended
    ))
}

/// First committer wins: nobody committed a change of what a snapshot transaction writes between its snapshot and its
/// commit.
pub(super) fn check_first_committers(versions: &Versions, committed: &[&Transaction]) -> Vec<String> {
    let mut problems = Vec::new();
    for (item, versions) in versions {
        for pair in versions.windows(2) {
            let (Some(writer), lsn) = (pair[1].writer, lsn_of(&pair[0], committed)) else { continue };
            let writer = committed[writer];
            if let (Isolation::Snapshot, Some(snapshot)) = (writer.isolation, writer.snapshot)
                && lsn >= snapshot
            {
                problems.push(format!(
                    "{} wrote {item:?} with a snapshot at {snapshot}, over a version committed at {lsn}: a lost update",
                    writer.name
                ));
            }
        }
    }
    problems
}

/// Nobody writes over what is not committed (G0).
pub(super) fn check_dirty_writes(history: &History) -> Vec<String> {
    let mut writes: BTreeMap<Item, Vec<(u64, usize)>> = BTreeMap::new();
    for (number, transaction) in history.transactions.iter().enumerate() {
        for access in transaction.accesses.iter().filter(|access| matches!(access.act, Act::Write(_))) {
            writes.entry(access.item).or_default().push((access.ended, number));
        }
    }
    let mut problems = Vec::new();
    for (item, mut writes) in writes {
        writes.sort_unstable();
        for (at, &(answered, first)) in writes.iter().enumerate() {
            let ending = history.transactions[first].ending;
            let over = writes[at + 1..].iter().take_while(|(other, _)| *other < ending).find(|(_, by)| *by != first);
            if let Some(&(other, by)) = over {
                let name = |number: usize| &history.transactions[number].name;
                let (first, by) = (name(first), name(by));
                problems.push(format!(
                    "{by} was answered a write of {item:?} at tick {other}, over one of {first} of tick {answered}, which had not ended: a dirty write"
                ));
            }
        }
    }
    problems
}
