//! The log as its readers see it: both ways, while it grows, after it was given up, and without an environment.

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::*;
use ledgerstone::{Environment, Error, LogDirectory, LogFilter, LogReader, Lsn, RecordKind};
use ledgerstone_disk::SimDisk;

fn forward(reader: &mut LogReader) -> Vec<(Lsn, String)> {
    std::iter::from_fn(|| reader.next().unwrap()).map(|r| (r.lsn(), r.print())).collect()
}

fn backward(reader: &mut LogReader) -> Vec<(Lsn, String)> {
    let mut found: Vec<_> = std::iter::from_fn(|| reader.prev().unwrap()).map(|r| (r.lsn(), r.print())).collect();
    found.reverse();
    found
}

fn put(env: &Environment, from: u64, count: u64) {
    for n in from..from + count {
        env.transact(|txn| txn.bytes_or_create("t")?.put(&key(n), &vec![n as u8; 40 + n as usize % 700])).unwrap();
    }
}

#[test]
fn both_ways_give_the_same_records_open_and_closed() {
    let disk = SimDisk::new();
    let env = open(&disk).unwrap();
    put(&env, 0, 300);
    let mut reader = env.log_reader(Lsn(0)).unwrap();
    let there = forward(&mut reader);
    assert!(there.len() > 600, "{} records", there.len());
    assert!(there.windows(2).all(|pair| pair[0].0 < pair[1].0));
    assert_eq!(backward(&mut reader), there);
    assert_eq!(forward(&mut env.log_reader(there[100].0).unwrap()), there[100..]);
    assert_eq!(forward(&mut env.log_reader(Lsn(there[100].0.0 - 8)).unwrap()), there[100..], "the first at or behind");
    env.close().unwrap();

    let directory = LogDirectory::open_on(Arc::new(disk)).unwrap();
    let mut reader = directory.log_reader(Lsn(0)).unwrap();
    let closed = forward(&mut reader);
    let (before, of_the_close) = closed.split_at(closed.len().saturating_sub(2));
    assert!(there.ends_with(before), "what the last checkpoint left");
    assert!(
        matches!(of_the_close, [mark, checkpoint] if mark.1.contains("mark") && checkpoint.1.contains("Checkpoint")),
        "the close's: {of_the_close:?}"
    );
    assert_eq!(backward(&mut reader), closed);
    let mut at_end = directory.log_reader(Lsn(u64::MAX)).unwrap();
    assert_eq!((at_end.next().unwrap().is_none(), at_end.position()), (true, reader.end()));
    assert_eq!(at_end.follow(None).map(|found| found.is_none()).ok(), Some(true), "nothing more can come");
}

#[test]
fn records_of_earlier_lives_are_read_on_both_sides_of_a_restart() {
    let disk = SimDisk::new();
    let env = open(&disk).unwrap();
    put(&env, 0, 20);
    drop(env);
    let env = open(&disk.after_crash(3)).unwrap();
    put(&env, 20, 20);
    let mut reader = env.log_reader(Lsn(0)).unwrap();
    let there = forward(&mut reader);
    assert!(there.iter().any(|(_, text)| text.contains("Incarnation")));
    assert!(there.iter().filter(|(_, text)| text.contains("Commit")).count() > 40);
    assert_eq!(backward(&mut reader), there);
}

#[test]
fn a_follower_meets_every_commit_when_it_is_durable() {
    let disk = SimDisk::new();
    let env = open(&disk).unwrap();
    put(&env, 0, 1);
    let mut reader = env.log_reader(Lsn(u64::MAX)).unwrap().with_filter(LogFilter::default().kind(RecordKind::Commit));
    assert!(reader.follow(Some(Duration::from_millis(1))).unwrap().is_none(), "nothing comes by itself");
    let writer = env.clone();
    let thread = std::thread::spawn(move || put(&writer, 1, 50));
    let mut times = Vec::new();
    for _ in 0..50 {
        let commit = reader.follow(Some(Duration::from_secs(60))).unwrap().expect("a commit");
        times.push(commit.commit_time_ns().unwrap());
    }
    thread.join().unwrap();
    assert!(times.is_sorted() && times[0] > 1_600_000_000_000_000_000, "one thread's commits, by its clock: {times:?}");

    // A close ends the wait of whoever follows.
    let follower = std::thread::spawn(move || {
        loop {
            match reader.follow(None) {
                Ok(Some(_)) => {}
                other => return other.map(|_| ()),
            }
        }
    });
    env.close().unwrap();
    let ended = within(60, "the follower", move || follower.join().unwrap());
    assert!(matches!(ended, Err(Error::Failed { .. })), "{ended:?}");
}

#[test]
fn what_was_given_up_is_an_error_that_says_where_the_log_begins() {
    let disk = SimDisk::new();
    let env = open(&disk).unwrap();
    put(&env, 0, 10);
    let mut reader = env.log_reader(Lsn(0)).unwrap();
    reader.next().unwrap().unwrap();
    let early = reader.position();
    for round in 0..4 {
        put(&env, 10 + 400 * round, 400);
        env.checkpoint().unwrap();
    }
    assert!(reader.oldest().unwrap() > early);
    let gone = std::iter::repeat_with(|| reader.next()).find(|found| !matches!(found, Ok(Some(_)))).unwrap();
    assert!(matches!(&gone, Err(Error::LogGone { oldest, .. }) if *oldest > early), "{gone:?}");
    let again = env.log_reader(early);
    assert!(matches!(again, Err(Error::LogGone { .. })), "{:?}", again.err());
    let mut oldest = env.log_reader(Lsn(0)).unwrap();
    let kept = forward(&mut oldest);
    assert!(!kept.is_empty());
    assert_eq!(backward(&mut oldest), kept);
}

#[test]
fn filters_choose_by_transaction_page_table_kind_and_range() {
    let disk = SimDisk::new();
    let env = open(&disk).unwrap();
    env.transact(|txn| txn.bytes_or_create("a")?.put(b"k", b"1")).unwrap();
    env.transact(|txn| txn.bytes_or_create("b")?.put(b"k", b"2")).unwrap();
    let txn = env.begin().unwrap();
    let xid = txn.xid();
    txn.bytes("a").unwrap().put(b"k", b"3").unwrap();
    txn.bytes("b").unwrap().put(b"k", b"4").unwrap();
    txn.commit().unwrap();

    let all = |filter: LogFilter| -> Vec<_> {
        let mut reader = env.log_reader(Lsn(0)).unwrap().with_filter(filter);
        std::iter::from_fn(|| reader.next().unwrap()).collect()
    };
    let ours = all(LogFilter::default().transaction(xid));
    assert_eq!(
        ours.iter().map(|r| r.kind()).collect::<Vec<_>>(),
        [RecordKind::Update, RecordKind::Update, RecordKind::Commit]
    );
    assert!(ours[0].print().contains("node patch") && ours[0].print().contains("\"k\""), "{}", ours[0].print());
    let change = ours[0].changes().next().unwrap();
    let root = ours[0].root_of(&change).unwrap();
    let of_page = all(LogFilter::default().page(change.page));
    assert!(of_page.iter().any(|r| r.lsn() == ours[0].lsn()) && of_page.iter().all(|r| r.lsn() != ours[1].lsn()));
    let of_root = all(LogFilter::default().root(root).kind(RecordKind::Update));
    assert_eq!(of_root.len(), 2, "the insert and the patch of table a: {of_root:?}");
    let of_range = all(LogFilter::default().from(ours[0].lsn()).below(ours[2].lsn()));
    assert_eq!(of_range.iter().map(|r| r.lsn()).collect::<Vec<_>>(), [ours[0].lsn(), ours[1].lsn()]);
}

#[test]
fn damage_in_the_log_of_a_closed_directory_is_named() {
    let disk = SimDisk::new();
    let env = open(&disk).unwrap();
    put(&env, 0, 100);
    let middle = {
        let mut reader = env.log_reader(Lsn(0)).unwrap();
        let there = forward(&mut reader);
        there[there.len() / 2].0
    };
    let disk = disk.after_crash(1); // With no checkpoint behind the damage.
    drop(env);
    flip(&disk, &format!("log/{}", ledgerstone_log::segment_name(middle.0 & !0xffff)), middle.0 % 0x10000 + 12);
    let found = LogDirectory::open_on(Arc::new(disk)).unwrap().log_reader(Lsn(0)).map(|_| ());
    assert!(matches!(&found, Err(Error::Corrupt { what }) if what.contains(&middle.to_string())), "{found:?}");
}

/// The control file knows how far the log was durable. A log that ends before has lost its end, and does not just end
/// there.
#[test]
fn the_log_of_a_directory_that_has_lost_its_end_is_damaged() {
    let disk = SimDisk::new();
    let env = open(&disk).unwrap();
    put(&env, 0, 1);
    env.checkpoint().unwrap();
    put(&env, 1, 600);
    let left = disk.after_crash(1);
    let read = |disk: &SimDisk| {
        let mut reader = LogDirectory::open_on(Arc::new(disk.clone()))?.log_reader(Lsn(0))?;
        Ok::<_, Error>(forward(&mut reader).len())
    };
    let whole = read(&left).unwrap();
    assert!(whole > 1200, "{whole}");
    let mut segments: Vec<String> = left.files().into_iter().filter(|path| path.starts_with("log/")).collect();
    segments.sort();
    for first in 1..segments.len() - 2 {
        for bytes in [None, Some(&[][..])] {
            let disk = left.snapshot();
            segments[first..].iter().for_each(|path| place(&disk, path, bytes));
            let told = read(&disk);
            assert!(matches!(told, Err(Error::Corrupt { .. })), "{first}: {told:?} of {whole}");
        }
    }
}
