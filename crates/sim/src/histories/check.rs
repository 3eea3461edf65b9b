//! From a history to the direct serialization graph, and from a cycle in it to an explanation (Adya 1999, as Elle does
//! it for lists and registers).
//!
//! The versions of an item are ordered by the LSNs of the commits that wrote them. The engine promises that everybody
//! sees commits in the order of the log, so a cycle is a broken promise either way. Edges:
//!
//! - `ww` from the writer of a version to the writer of the next;
//! - `wr` from the writer of a version to its reader;
//! - `rw` from the reader of a version to the writer of the next: for items of a scanned range that were not there,
//!   this is the phantom's edge;
//! - `rt` (real time) from a commit that was answered to a transaction that began later: serializable, and in the order
//!   that its clients saw.
//!
//! A read of an absent item may have seen any absent version. Locks are held to the end, so only those count that were
//! certainly not yet overwritten when the read began and possibly committed when it ended. If several are left, the
//! reader comes after the writer of the first and before the one that overwrote the last: edges that hold whichever
//! it was.
//!
//! Transactions of weaker levels are checked against what those promise (`levels.rs`). In the graph they have the edges
//! of what they wrote and of what they surely read, but none for what others overwrote later: that is what their levels
//! allow.
//!
//! Besides cycles, it finds reads of values that were never written, were rolled back (G1a), or were not the last of
//! their transaction (G1b). It also finds a transaction that does not see its own writes.

use std::collections::BTreeMap;

use ledgerstone::Isolation;

use super::graph::Graph;
use super::history::{Access, Act, History, Item, Seen, Transaction};
use super::levels;

/// Why one transaction comes before another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// The second overwrote what the first had written.
    Ww(Item),
    /// The second read what the first had written.
    Wr(Item),
    /// The second overwrote what the first had read.
    Rw(Item),
    /// The first had its answer before the second began.
    RealTime,
}

/// What a check has found.
#[derive(Debug, Clone, Default)]
pub struct Findings {
    /// Committed transactions.
    pub transaction_count: usize,
    /// Edges of the graph, real time not counted.
    pub edge_count: usize,
    /// What must not be, in words. Empty: serializable.
    pub problems: Vec<String>,
}

/// A version of an item. `writer` is none for the initial one.
pub(super) struct Version {
    pub(super) value: Option<u64>,
    pub(super) writer: Option<usize>,
}

/// Checks a history.
pub fn check(history: &History) -> Findings {
    let committed: Vec<&Transaction> = history.transactions.iter().filter(|t| t.commit.is_some()).collect();
    let mut problems = Vec::new();
    let versions = versions(history, &committed);
    // Nodes: the transactions, and then one for each answer, which carries real time from answer to answer.
    let count = committed.len();
    let mut graph = Graph::new(2 * count);
    for (item, versions) in &versions {
        for pair in versions.windows(2) {
            if let (Some(first), Some(second)) = (pair[0].writer, pair[1].writer) {
                graph.add(first, second, Why::Ww(*item));
            }
        }
    }
    problems.extend(levels::check_dirty_writes(history));
    problems.extend(levels::check_first_committers(&versions, &committed));
    for (reader, transaction) in committed.iter().enumerate() {
        let mut own: BTreeMap<Item, Option<u64>> = BTreeMap::new();
        let mut unlocked: Vec<(Access, Seen)> = Vec::new();
        for access in &transaction.accesses {
            match access.act {
                Act::Write(value) => {
                    own.insert(access.item, value);
                }
                Act::Undone(_) => {}
                Act::Read(seen) => match own.get(&access.item) {
                    Some(value) if matches(seen, *value) => {}
                    Some(value) => problems.push(format!(
                        "{} saw {seen:?} of {:?} after it had written {value:?} itself",
                        transaction.name, access.item
                    )),
                    None if transaction.isolation != Isolation::Serializable => unlocked.push((*access, seen)),
                    None => {
                        let versions = versions.get(&access.item).map_or(&[][..], |versions| &versions[..]);
                        match place(access, seen, versions, reader, &committed) {
                            Ok((first, last)) => {
                                if let Some(writer) = versions.get(first).and_then(|version| version.writer) {
                                    graph.add(writer, reader, Why::Wr(access.item));
                                }
                                if let Some(writer) = versions.get(last + 1).and_then(|version| version.writer) {
                                    graph.add(reader, writer, Why::Rw(access.item));
                                }
                            }
                            Err(why) => problems.push(explain(why, access, seen, transaction, history)),
                        }
                    }
                },
            }
        }
        if !unlocked.is_empty() {
            match levels::check_reads(transaction, &unlocked, &versions, &committed, history) {
                Ok(sources) => sources.into_iter().for_each(|(writer, item)| graph.add(writer, reader, Why::Wr(item))),
                Err(problem) => problems.push(problem),
            }
        }
    }
    let edge_count = graph.edge_count();
    add_real_time(&mut graph, &committed);
    for knot in graph.knots().iter().take(3) {
        problems.push(describe_cycle(&graph, knot, &committed));
    }
    problems.truncate(20);
    Findings { transaction_count: count, edge_count, problems }
}

/// All versions of all items that were ever there, in order; the first is the initial one.
fn versions(history: &History, committed: &[&Transaction]) -> BTreeMap<Item, Vec<Version>> {
    let mut versions: BTreeMap<Item, Vec<Version>> = BTreeMap::new();
    for (item, value) in &history.initial {
        versions.insert(*item, vec![Version { value: Some(*value), writer: None }]);
    }
    let mut order: Vec<usize> = (0..committed.len()).collect();
    order.sort_by_key(|number| committed[*number].commit.map(|commit| commit.lsn));
    for writer in order {
        let mut last: BTreeMap<Item, Option<u64>> = BTreeMap::new();
        for access in &committed[writer].accesses {
            if let Act::Write(value) = access.act {
                last.insert(access.item, value);
            }
        }
        for (item, value) in last {
            let initial = || vec![Version { value: None, writer: None }];
            versions.entry(item).or_insert_with(initial).push(Version { value, writer: Some(writer) });
        }
    }
    versions
}

pub(super) fn matches(seen: Seen, value: Option<u64>) -> bool {
    match seen {
        Seen::Absent => value.is_none(),
        Seen::Present => value.is_some(),
        Seen::Value(seen) => value == Some(seen),
    }
}

enum Misplaced {
    /// No version of the item looks like this.
    Nowhere,
    /// One does, but at another time.
    WrongTime,
}

/// The first and the last version that a read may have seen.
fn place(
    access: &Access,
    seen: Seen,
    versions: &[Version],
    reader: usize,
    committed: &[&Transaction],
) -> Result<(usize, usize), Misplaced> {
    if versions.is_empty() {
        // Never written, never there.
        return if seen == Seen::Absent { Ok((0, 0)) } else { Err(Misplaced::Nowhere) };
    }
    let commit = |writer: usize| committed[writer].commit;
    let mut found = None;
    let mut alike = false;
    for (number, version) in versions.iter().enumerate() {
        if !matches(seen, version.value) || version.writer == Some(reader) {
            continue;
        }
        alike = true;
        let visible = version.writer.and_then(commit).is_none_or(|commit| commit.asked < access.ended);
        let next = versions.get(number + 1).and_then(|next| next.writer).filter(|writer| *writer != reader);
        let current = next.and_then(commit).is_none_or(|commit| commit.answered > access.began);
        if visible && current {
            let first = found.map_or(number, |(first, _)| first);
            found = Some((first, number));
        }
    }
    found.ok_or(if alike { Misplaced::WrongTime } else { Misplaced::Nowhere })
}

fn explain(why: Misplaced, access: &Access, seen: Seen, reader: &Transaction, history: &History) -> String {
    let saw = format!("{} saw {seen:?} of {:?}", reader.name, access.item);
    if matches!(why, Misplaced::WrongTime) {
        return format!("{saw}, which was not yet or no longer there (ticks {}..{})", access.began, access.ended);
    }
    if let Seen::Value(value) = seen {
        for writer in &history.transactions {
            let wrote = |act: Act| writer.accesses.iter().any(|other| other.item == access.item && other.act == act);
            let (is_kept, is_undone) = (wrote(Act::Write(Some(value))), wrote(Act::Undone(Some(value))));
            if is_kept || is_undone {
                let is_over = writer.commit.is_some() && is_kept;
                let what = if is_over { "overwrote it (G1b)" } else { "rolled it back (G1a)" };
                return format!("{saw}, written by {}, which {what}", writer.name);
            }
        }
    }
    format!("{saw}, which nobody has written")
}

fn add_real_time(graph: &mut Graph<Why>, committed: &[&Transaction]) {
    let count = committed.len();
    let mut answers: Vec<(u64, usize)> =
        committed.iter().enumerate().filter_map(|(node, t)| t.commit.map(|commit| (commit.answered, node))).collect();
    answers.sort_unstable();
    for (place, (_, node)) in answers.iter().enumerate() {
        graph.add(*node, count + place, Why::RealTime);
        if place > 0 {
            graph.add(count + place - 1, count + place, Why::RealTime);
        }
    }
    for (node, transaction) in committed.iter().enumerate() {
        let before = answers.partition_point(|(answered, _)| *answered < transaction.began);
        if before > 0 {
            graph.add(count + before - 1, node, Why::RealTime);
        }
    }
}

fn describe_cycle(graph: &Graph<Why>, knot: &[usize], committed: &[&Transaction]) -> String {
    let count = committed.len();
    let mut text = format!("a cycle among {} transactions:", knot.iter().filter(|node| **node < count).count());
    let cycle = graph.short_cycle(knot);
    // Begin at a transaction; steps through the nodes of real time become one step.
    let start = cycle.iter().position(|(from, _, _)| *from < count).unwrap_or(0);
    let mut from = None;
    for (node, why, next) in cycle.iter().cycle().skip(start).take(cycle.len()) {
        if *node < count {
            from = Some(*node);
        }
        if *next >= count {
            continue;
        }
        let name = |node: usize| &committed[node].name;
        let from = from.map_or("?", |node| name(node));
        let because = match why {
            Why::Ww(item) => format!("wrote {item:?} first"),
            Why::Wr(item) => format!("wrote {item:?}, which the next read"),
            Why::Rw(item) => format!("read {item:?} before the next wrote it"),
            Why::RealTime => "was answered before the next began".to_owned(),
        };
        text.push_str(&format!("\n    {from} {because} -> {}", name(*next)));
    }
    for node in knot.iter().filter(|node| **node < count).take(6) {
        let transaction = committed[*node];
        text.push_str(&format!("\n    {}: began {}, {:?}", transaction.name, transaction.began, transaction.commit));
        for access in transaction.accesses.iter().take(40) {
            text.push_str(&format!(
                "\n        {:?} {:?} ({}..{})",
                access.item, access.act, access.began, access.ended
            ));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::history::Commit;
    use super::*;

    const X: Item = Item { table: 0, key: 1 };
    const Y: Item = Item { table: 0, key: 2 };

    fn read(item: Item, value: u64) -> (Item, Act) {
        (item, Act::Read(if value == 0 { Seen::Absent } else { Seen::Value(value) }))
    }
    fn write(item: Item, value: u64) -> (Item, Act) {
        (item, Act::Write((value > 0).then_some(value)))
    }

    /// All at the same time, unless a test says otherwise: only what was read and written tells the order.
    fn transaction(name: &str, lsn: Option<u64>, accesses: &[(Item, Act)]) -> Transaction {
        Transaction {
            name: name.into(),
            isolation: Isolation::Serializable,
            snapshot: None,
            began: 1,
            begun: 1,
            ending: 5,
            accesses: accesses.iter().map(|&(item, act)| Access { item, act, began: 2, ended: 9 }).collect(),
            commit: lsn.map(|lsn| Commit { asked: 5, answered: 10, lsn }),
        }
    }

    fn problems(transactions: Vec<Transaction>) -> Vec<String> {
        check(&History { initial: vec![(X, 100), (Y, 200)], transactions }).problems
    }

    #[track_caller]
    fn found(transactions: Vec<Transaction>, expected: &str) {
        let problems = problems(transactions);
        assert!(problems.iter().any(|problem| problem.contains(expected)), "{problems:?}");
    }

    #[test]
    fn a_serial_history_is_serializable() {
        let history = vec![
            transaction("a", Some(1), &[read(X, 100), write(X, 1), read(X, 1)]),
            transaction("b", Some(2), &[read(X, 1), write(X, 2), write(Y, 0)]),
            transaction("c", Some(0), &[read(X, 2), read(Y, 0)]),
            transaction("d", None, &[read(X, 2), write(X, 9)]),
        ];
        assert_eq!(problems(history), Vec::<String>::new());
    }

    #[test]
    fn write_skew_is_found() {
        let history = vec![
            transaction("a", Some(1), &[read(X, 100), read(Y, 200), write(X, 1)]),
            transaction("b", Some(2), &[read(X, 100), read(Y, 200), write(Y, 2)]),
        ];
        found(history, "a cycle among 2");
    }

    #[test]
    fn a_lost_update_is_found() {
        let history = vec![
            transaction("a", Some(1), &[read(X, 100), write(X, 1)]),
            transaction("b", Some(2), &[read(X, 100), write(X, 2)]),
        ];
        found(history, "a cycle among 2");
    }

    #[test]
    fn phantoms_are_found() {
        let (p, q) = (Item { table: 1, key: 1 }, Item { table: 1, key: 2 });
        let history = vec![
            transaction("a", Some(1), &[read(p, 0), read(q, 0), write(p, 1)]),
            transaction("b", Some(2), &[read(p, 0), read(q, 0), write(q, 2)]),
        ];
        found(history, "a cycle among 2");
    }

    #[test]
    fn a_split_read_is_found() {
        let history = vec![
            transaction("a", Some(1), &[write(X, 1), write(Y, 1)]),
            transaction("b", Some(0), &[read(X, 1), read(Y, 200)]),
        ];
        found(history, "a cycle among 2");
    }

    #[test]
    fn dirty_and_intermediate_reads_are_found() {
        let reader = || transaction("r", Some(0), &[read(X, 7)]);
        found(vec![transaction("a", None, &[write(X, 7)]), reader()], "G1a");
        found(vec![transaction("a", Some(1), &[write(X, 7), write(X, 8)]), reader()], "G1b");
        found(vec![reader()], "nobody has written");
        found(vec![transaction("a", Some(1), &[write(X, 7), read(X, 100)])], "itself");
    }

    #[test]
    fn the_order_of_the_log_is_the_order_that_is_seen() {
        let history = vec![
            transaction("a", Some(2), &[write(X, 1)]),
            transaction("b", Some(1), &[read(X, 1), write(Y, 1)]),
            transaction("c", Some(3), &[read(Y, 1), read(X, 100)]),
        ];
        found(history, "a cycle");
    }

    #[test]
    fn a_stale_read_is_found_by_real_time() {
        let mut late = transaction("late", Some(0), &[read(X, 100)]);
        late.began = 20;
        late.commit = Some(Commit { asked: 23, answered: 24, lsn: 0 });
        late.accesses[0].began = 21;
        late.accesses[0].ended = 22;
        found(vec![transaction("a", Some(1), &[write(X, 1)]), late.clone()], "no longer there");
        // The same by a detour: nothing is wrong with each read alone.
        late.accesses[0].act = Act::Read(Seen::Absent);
        late.accesses[0].item = Y;
        let history = vec![
            transaction("a", Some(1), &[write(Y, 0)]),
            transaction("b", Some(2), &[write(Y, 5)]),
            transaction("c", Some(3), &[write(Y, 0), write(X, 3)]),
            late,
        ];
        assert_eq!(problems(history), Vec::<String>::new(), "the later absence explains it");
    }

    fn at(isolation: Isolation, snapshot: Option<u64>, transaction: Transaction) -> Transaction {
        Transaction { isolation, snapshot, ..transaction }
    }

    #[test]
    fn snapshots_may_skew_writes_and_nothing_else() {
        let snapshot = |name, lsn, accesses: &[(Item, Act)]| {
            at(Isolation::Snapshot, Some(1), transaction(name, Some(lsn), accesses))
        };
        let skew = vec![
            snapshot("a", 1, &[read(X, 100), read(Y, 200), write(X, 1)]),
            snapshot("b", 2, &[read(X, 100), read(Y, 200), write(Y, 2)]),
        ];
        assert_eq!(problems(skew), Vec::<String>::new());
        let lost = vec![snapshot("a", 1, &[read(X, 100), write(X, 1)]), snapshot("b", 2, &[read(X, 100), write(X, 2)])];
        found(lost, "lost update");
        let later = vec![transaction("a", Some(1), &[write(X, 1)]), snapshot("b", 0, &[read(X, 1)])];
        found(later, "saw Value(1)");
        let split = vec![
            transaction("a", Some(1), &[write(X, 1), write(Y, 1)]),
            at(Isolation::Snapshot, Some(1), transaction("b", Some(0), &[read(X, 100), read(Y, 1)])),
        ];
        found(split, "has its snapshot at 1");
        let mut stale = snapshot("b", 0, &[read(X, 100)]);
        stale.began = 20;
        found(vec![transaction("a", Some(1), &[write(X, 1)]), stale], "does not see a");
    }

    #[test]
    fn read_committed_may_change_between_calls_but_not_in_one() {
        let both = [transaction("a", Some(1), &[write(X, 1), write(Y, 1)])];
        let reader = |second| {
            let mut reader = at(Isolation::ReadCommitted, None, transaction("r", Some(0), &[read(X, 100), read(Y, 1)]));
            reader.accesses[1].began += second;
            reader
        };
        let with = |reader: Transaction| both.iter().cloned().chain([reader]).collect::<Vec<_>>();
        assert_eq!(problems(with(reader(1))), Vec::<String>::new(), "two calls");
        found(with(reader(0)), "at no moment");
        let dirty = at(Isolation::ReadCommitted, None, transaction("r", Some(0), &[read(X, 7)]));
        found(vec![transaction("a", None, &[write(X, 7)]), dirty], "at no moment");
    }

    #[test]
    fn read_uncommitted_reads_what_somebody_wrote_and_never_writes_over_it() {
        let reader = |value| at(Isolation::ReadUncommitted, None, transaction("r", Some(0), &[read(X, value)]));
        assert_eq!(problems(vec![transaction("a", None, &[write(X, 7)]), reader(7)]), Vec::<String>::new());
        found(vec![transaction("a", None, &[write(X, 7)]), reader(8)], "nobody had written");
        let writer = |name, lsn, answered, ending| {
            let mut writer = at(Isolation::ReadUncommitted, None, transaction(name, Some(lsn), &[write(X, lsn)]));
            (writer.accesses[0].ended, writer.ending) = (answered, ending);
            writer
        };
        assert_eq!(problems(vec![writer("a", 1, 3, 5), writer("b", 2, 6, 8)]), Vec::<String>::new());
        found(vec![writer("a", 1, 3, 5), writer("b", 2, 4, 8)], "a dirty write");
    }
}
