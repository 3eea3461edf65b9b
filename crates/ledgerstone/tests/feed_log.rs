//! What the change feed needs of the log: it is kept, read by pieces, and what could not be read comes later.

mod common;

use std::sync::Arc;

use common::changes::{all, put, whole};
use common::*;
use ledgerstone::{CommittedChanges, Durability, Environment, Error, Lsn};
use ledgerstone_disk::{Call, DiskErrorKind, Fault, FaultDisk, Harm, SimDisk};

#[test]
fn a_named_feed_keeps_its_log_over_restarts_up_to_its_bound() {
    let disk = SimDisk::new();
    let options = || tiny().feed_log_bytes_max(700 << 10);
    let env = options().open_on(Arc::new(disk.clone())).unwrap();
    let feed = env.named_changes("search").unwrap();
    let begin = feed.position();
    drop(feed);
    put(&env, "t", 1, b"first");
    for round in 0..3u64 {
        (0..80).for_each(|n| put(&env, "t", 100 * round + n, &[3; 500]));
        env.checkpoint().unwrap();
    }
    let pin = env.stat().unwrap().log_pins.into_iter().find(|pin| pin.name == "feed search").unwrap();
    assert!(pin.lsn <= begin.0 && pin.bytes_max == Some(700 << 10));
    env.close().unwrap();

    let env = options().open_on(Arc::new(disk.clone())).unwrap();
    let mut feed = env.named_changes("search").unwrap();
    let first = feed.next().unwrap().unwrap();
    assert_eq!(first.changes().next().unwrap().key, key(1), "nothing was lost over the restart");
    feed.acknowledge(first.position).unwrap();
    drop(feed);
    let env = {
        let crashed = disk.after_crash(9);
        drop(env);
        options().open_on(Arc::new(crashed)).unwrap()
    };
    let mut feed = env.named_changes("search").unwrap();
    assert_eq!(feed.next().unwrap().unwrap().changes().next().unwrap().key, key(0), "behind what was acknowledged");
    let rest = all(&mut feed);
    assert_eq!(rest.len(), 239);
    drop(feed);
    // Beyond the bound the log goes, and the feed is told.
    for round in 0..12u64 {
        (0..100).for_each(|n| put(&env, "t", 1000 * round + n, &[3; 700]));
        env.checkpoint().unwrap();
    }
    let late = env.named_changes("search").map(|mut feed| feed.next().map(|_| ()));
    assert!(matches!(late, Err(Error::LogGone { .. }) | Ok(Err(Error::LogGone { .. }))), "lost in silence");
    assert!(env.forget_changes("search").unwrap() && !env.forget_changes("search").unwrap());
    assert!(env.stat().unwrap().log_pins.is_empty());
    assert!(env.named_changes("search").unwrap().next().unwrap().is_none(), "a new name begins now");
}

#[test]
fn the_log_that_an_earlier_position_needs_is_kept() {
    let disk = SimDisk::new();
    let env = whole(&disk);
    put(&env, "t", 0, b"0");
    let mut feed = env.named_changes("consumer").unwrap();
    let long = env.begin().unwrap();
    long.bytes_or_create("long").unwrap().put(&key(1), b"early").unwrap();
    for n in 0..300 {
        put(&env, "t", n, &[n as u8; 600]);
    }
    // The commit before that of the long transaction.
    let before = all(&mut feed).pop().unwrap();
    long.commit().unwrap();
    put(&env, "t", 1, b"1");
    let behind = all(&mut feed);
    assert_eq!(behind.len(), 2);
    feed.acknowledge(before.position).unwrap();
    drop(feed);
    for _ in 0..3 {
        put(&env, "t", 2, b"2");
        env.checkpoint().unwrap();
    }
    let crashed = disk.after_crash(3);
    drop(env);
    let env = whole(&crashed);
    let mut feed = env.named_changes("consumer").unwrap();
    assert_eq!(feed.position(), before.position);
    assert_eq!(all(&mut feed)[..2], behind, "the long transaction is told whole");
    // And is let go when nothing needs it any more.
    feed.acknowledge(feed.position()).unwrap();
    assert!(feed.next().unwrap().is_none());
    let pin = env.stat().unwrap().log_pins.into_iter().find(|pin| pin.name == "feed consumer").unwrap();
    assert!(pin.lsn > before.position.0, "{pin:?}");
}

#[test]
fn what_could_not_be_read_is_there_when_it_is_asked_for_again() {
    let disk = SimDisk::new();
    let faulty = FaultDisk::new(Arc::new(disk.clone()));
    let env = tiny().open_on(Arc::new(faulty.clone())).unwrap();
    put(&env, "long", 0, b"made before");
    let long = env.begin().unwrap();
    long.bytes("long").unwrap().put(&key(1), b"early").unwrap();
    let from = env.changes(Lsn(u64::MAX)).unwrap().position();
    for n in 0..400 {
        put(&env, "t", n, &[n as u8; 600]);
    }
    long.commit().unwrap();
    put(&env, "t", 1, b"last");
    let expected = all(&mut env.changes(from).unwrap());
    assert_eq!(expected.len(), 402);
    for nth in 1..6 {
        let mut feed = env.changes(from).unwrap();
        faulty.add(Fault::at(Call::Read, nth, Harm::Fail(DiskErrorKind::Io(5))).on("log"));
        let (mut told, mut errors) = (Vec::new(), 0);
        loop {
            match feed.next() {
                Ok(Some(commit)) => told.push(commit),
                Ok(None) => break,
                Err(_) => errors += 1,
            }
            assert!(errors < 9);
        }
        assert!(told == expected, "after {errors} errors there are {} of {}", told.len(), expected.len());
    }
}

/// One transaction was open where the feed begins and has ended since. It is so large that its changes are left in the
/// log: that is kept, although nobody is open any more.
#[test]
fn the_log_of_a_large_transaction_that_ended_before_the_feed_was_opened_is_kept() {
    let env = whole(&SimDisk::new());
    put(&env, "t", 0, b"0");
    let long = env.begin().unwrap();
    let table = long.bytes_or_create("long").unwrap();
    (0..200).for_each(|n| table.put(&key(n), &[1; 400]).unwrap());
    let from = env.changes(Lsn(u64::MAX)).unwrap().position();
    (200..400).for_each(|n| table.put(&key(n), &[2; 400]).unwrap());
    drop(table);
    long.commit().unwrap();
    let mut feed = env.changes(from).unwrap();
    for n in 0..400 {
        put(&env, "t", n % 3, &[n as u8; 600]);
        if n % 100 == 99 {
            env.checkpoint().unwrap();
        }
    }
    let commits = all(&mut feed);
    assert_eq!(commits[0].changes().count(), 400);
    assert_eq!(commits.len(), 401);
}

/// A record that could not be taken in, with the log's files failing for a while: no commit is lost.
#[test]
fn nothing_is_lost_however_often_reading_fails() {
    let disk = SimDisk::new();
    let faulty = FaultDisk::new(Arc::new(disk.clone()));
    let env = tiny().open_on(Arc::new(faulty.clone())).unwrap();
    put(&env, "long", 0, b"made before");
    let long = env.begin().unwrap();
    let table = long.bytes("long").unwrap();
    (0..150).for_each(|n| table.put(&key(n), &[1; 400]).unwrap());
    let from = env.changes(Lsn(u64::MAX)).unwrap().position();
    for n in 0..400 {
        put(&env, "t", n, &[n as u8; 600]);
    }
    drop(table);
    long.commit().unwrap();
    put(&env, "t", 1, b"last");
    let expected = all(&mut env.changes(from).unwrap());
    assert_eq!(expected.len(), 402);
    for (first, count) in (1..24).flat_map(|first| [1, 2, 3].map(|count| (first, count))) {
        let mut feed = env.changes(from).unwrap();
        faulty.add(Fault::at(Call::Read, first, Harm::Fail(DiskErrorKind::Io(5))).from_then_on().on("log"));
        let (mut told, mut errors) = (Vec::<CommittedChanges>::new(), 0);
        loop {
            match feed.next() {
                Ok(Some(part)) => match told.last_mut().filter(|commit| !commit.is_last) {
                    Some(commit) => {
                        (commit.is_last, commit.position) = (part.is_last, part.position);
                        commit.items.extend(part.items);
                    }
                    None => told.push(part),
                },
                Ok(None) => break,
                Err(_) => errors += 1,
            }
            if errors == count {
                faulty.behave();
            }
            assert!(errors < 20);
        }
        faulty.behave();
        assert!(told == expected, "after {errors} errors there are {} of {}", told.len(), expected.len());
    }
}

#[test]
fn a_forgotten_feed_does_not_come_back() {
    let disk = SimDisk::new();
    let env = whole(&disk);
    put(&env, "t", 0, b"0");
    let mut feed = env.named_changes("consumer").unwrap();
    put(&env, "t", 1, b"1");
    assert_eq!(all(&mut feed).len(), 1);
    assert!(env.forget_changes("consumer").unwrap());
    let is_pinned = |env: &Environment| env.stat().unwrap().log_pins.iter().any(|pin| pin.name == "feed consumer");
    let refused = feed.acknowledge(feed.position()).unwrap_err();
    assert!(matches!(&refused, Error::FeedForgotten { name } if name == "consumer"), "{refused:?}");
    put(&env, "t", 2, b"2");
    assert_eq!(all(&mut feed).len(), 1, "it can be read on");
    assert!(!env.forget_changes("consumer").unwrap(), "it is not there any more");
    // Another of the same name is another.
    let mut other = env.named_changes("consumer").unwrap();
    assert!(feed.acknowledge(feed.position()).is_err());
    other.acknowledge(other.position()).unwrap();
    drop((feed, other));
    assert!(env.forget_changes("consumer").unwrap());
    assert!(!is_pinned(&env));
    env.close().unwrap();
    assert!(!whole(&disk).forget_changes("consumer").unwrap());
}

/// What a feed reads of the log to learn what a transaction did before it was met is read by pieces, not by records.
#[test]
fn the_beginning_of_a_long_transaction_is_read_by_pieces() {
    let disk = SimDisk::new();
    let env = open(&disk).unwrap();
    put(&env, "t", 0, b"0");
    let long = env.begin().unwrap();
    let table = long.bytes_or_create("long").unwrap();
    (0..2_000).for_each(|n| table.put(&key(n), &[1; 40]).unwrap());
    let from = env.changes(Lsn(u64::MAX)).unwrap().position();
    drop(table);
    for n in 0..400 {
        put(&env, "t", n, &[n as u8; 600]);
    }
    long.commit().unwrap();
    let before = disk.counters().reads;
    let commits = all(&mut env.changes(from).unwrap());
    assert_eq!(commits.len(), 401);
    let reads = disk.counters().reads - before;
    assert!(reads < 400, "{reads} reads for 2,000 records");
}

/// The positions of another environment's feeds would be places anywhere in this one's log.
#[test]
fn positions_of_another_environment_are_refused_and_their_own_put_back_go_on() {
    let (disk, stranger) = (SimDisk::new(), SimDisk::new());
    for (disk, before) in [(&disk, 1), (&stranger, 40)] {
        let env = open(disk).unwrap();
        (0..before).for_each(|n| put(&env, "t", n, &[7; 300]));
        drop(env.named_changes("search").unwrap());
        put(&env, "t", 1000, b"behind the position");
        env.close().unwrap();
    }
    let own = bytes_of(&disk, "feeds");
    place(&disk, "feeds", Some(&bytes_of(&stranger, "feeds")));
    for _ in 0..2 {
        let refused = open(&disk).map(drop);
        assert!(matches!(&refused, Err(Error::Corrupt { what }) if what.contains("feeds")), "{refused:?}");
    }
    place(&disk, "feeds", Some(&own));
    let env = open(&disk).unwrap();
    let mut feed = env.named_changes("search").unwrap();
    assert_eq!(feed.next().unwrap().unwrap().changes().next().unwrap().key, key(1000));
}

/// What lies before the last checkpoint is not needed to open; a feed that goes on there must not go on behind the
/// hole.
#[test]
fn a_feed_whose_log_was_emptied_says_so() {
    let disk = SimDisk::new();
    let env = open(&disk).unwrap();
    drop(env.named_changes("search").unwrap());
    let from = env.stat().unwrap().log_tail_lsn;
    (0..200).for_each(|n| put(&env, "t", n, &[7; 900]));
    env.close().unwrap();
    let mut segments: Vec<String> = disk.files().into_iter().filter(|path| path.starts_with("log/")).collect();
    segments.sort();
    let name_of = |lsn: u64| segments.iter().rfind(|name| **name <= format!("log/{lsn:016x}.seg")).unwrap().clone();
    let first = name_of(from);
    assert!(segments.iter().filter(|name| **name > first).count() > 1, "nothing lies behind it");
    place(&disk, &first, Some(&[]));
    let env = open(&disk).unwrap();
    let told = env.named_changes("search").map(|mut feed| feed.next().map(drop));
    assert!(matches!(told, Err(Error::Corrupt { .. }) | Ok(Err(Error::Corrupt { .. }))), "{told:?}");
}

/// So does one whose program keeps its position itself, and a reader; and what lies behind the hole is not shown as if
/// it were all there is.
#[test]
fn a_position_whose_log_is_damaged_is_refused() {
    let disk = SimDisk::new();
    let env = open(&disk).unwrap();
    let mut feed = env.named_changes("keeps the log").unwrap();
    let begin = feed.position();
    (0..200).for_each(|n| put(&env, "t", n, &[7; 900]));
    let positions: Vec<Lsn> = all(&mut feed).iter().map(|commit| commit.position).collect();
    drop(feed);
    env.close().unwrap();
    let mut segments: Vec<String> = disk.files().into_iter().filter(|path| path.starts_with("log/")).collect();
    segments.sort();
    let segment_of = |lsn: Lsn| segments.iter().rposition(|name| *name <= format!("log/{:016x}.seg", lsn.0)).unwrap();
    let (first, last) = (segment_of(begin), segment_of(positions[199]));
    assert!(last - first > 2, "{first} {last}");
    let no = first + 1; // Neither the oldest nor the newest.
    let lost: Vec<Lsn> = positions.iter().copied().filter(|lsn| segment_of(*lsn) == no).collect();
    let bytes = bytes_of(&disk, &segments[no]);
    let mut rot = bytes.clone();
    rot.iter_mut().for_each(|byte| *byte ^= 0x5a);
    for harmed in [vec![0; bytes.len()], rot] {
        let disk = disk.snapshot();
        place(&disk, &segments[no], Some(&harmed));
        let env = open(&disk).unwrap();
        for &lsn in &lost {
            let told = env.changes(lsn).map(|mut feed| feed.next().map(drop));
            assert!(matches!(told, Err(Error::NotAPosition { .. } | Error::Corrupt { .. })), "{lsn}: {told:?}");
            let told = env.log_reader(lsn).map(drop);
            assert!(matches!(told, Err(Error::Corrupt { .. })), "{lsn}: {told:?}");
        }
        let told = env.changes(begin).and_then(|mut feed| {
            while feed.next()?.is_some() {}
            Ok(())
        });
        assert!(matches!(told, Err(Error::Corrupt { .. })), "{told:?}");
        let mut reader = env.log_reader(Lsn(u64::MAX)).unwrap();
        let told = loop {
            match reader.prev() {
                Ok(Some(_)) => {}
                ended => break ended.map(drop),
            }
        };
        assert!(matches!(told, Err(Error::Corrupt { .. })), "{told:?}");
    }
}

/// What is before the first record that can be read may be the rest of one that was given up, but no more than that.
#[test]
fn an_oldest_segment_without_records_is_damaged() {
    let disk = SimDisk::new();
    let open = || tiny().log_segment_bytes(2 << 20).log_buffer_bytes(1 << 20).open_on(Arc::new(disk.clone())).unwrap();
    let env = open();
    drop(env.named_changes("keeps the log").unwrap());
    (0..12).for_each(|n| put(&env, "t", n, &[7; 400_000]));
    env.close().unwrap();
    let oldest = disk.files().into_iter().filter(|path| path.starts_with("log/")).min().unwrap();
    for byte in [0, 0x5a] {
        place(&disk, &oldest, Some(&vec![byte; 2 << 20]));
        let env = open();
        let told = env.log_reader(Lsn(0)).map(drop);
        assert!(matches!(told, Err(Error::Corrupt { .. })), "{told:?}");
        let told = env.changes(Lsn(0)).map(drop);
        assert!(matches!(told, Err(Error::Corrupt { .. })), "{told:?}");
    }
}

/// Any place in the log of which nothing is damaged leads to the first record from there on.
#[test]
fn a_reader_stands_before_the_first_record_from_anywhere() {
    let disk = SimDisk::new();
    let env = open(&disk).unwrap();
    (0..60).for_each(|n| put(&env, "t", n, &vec![7; (n * 37) as usize % 900]));
    let mut reader = env.log_reader(Lsn(0)).unwrap();
    let mut places = vec![reader.position()];
    while reader.next().unwrap().is_some() {
        places.push(reader.position());
    }
    let last = *places.last().unwrap();
    for lsn in (places[0].0..last.0 + 16).step_by(8) {
        reader.seek(Lsn(lsn)).unwrap();
        let wanted = places.iter().copied().find(|place| place.0 >= lsn).unwrap_or(last);
        assert_eq!(reader.position(), wanted, "{lsn}");
    }
}

#[test]
fn only_positions_that_were_shown_are_acknowledged() {
    let disk = SimDisk::new();
    let env = open(&disk).unwrap();
    let mut feed = env.named_changes("search").unwrap();
    (0..5).for_each(|n| put(&env, "t", n, b"x"));
    let commits = all(&mut feed);
    put(&env, "t", 5, b"x");
    let [second, last] = [commits[1].position.0, commits[4].position.0];
    for wrong in [u64::MAX, last + 8, second + 8, second + 1].map(Lsn) {
        assert!(matches!(feed.acknowledge(wrong), Err(Error::NotAPosition { lsn }) if lsn == wrong), "{wrong}");
        // Of a program that keeps its position itself; the largest number means the end.
        let told = env.changes(wrong).map(drop);
        assert!(matches!(told, Err(Error::NotAPosition { .. })) || wrong == Lsn(u64::MAX), "{wrong}: {told:?}");
    }
    for right in [commits[1].position, commits[3].lsn, feed.position()] {
        feed.acknowledge(right).unwrap();
    }
    drop(feed);
    assert_eq!(all(&mut env.named_changes("search").unwrap()).len(), 1);
}

/// What was acknowledged stays so: the log before it is given up.
#[test]
fn an_earlier_position_does_not_take_back_a_later_one() {
    let disk = SimDisk::new();
    let env = open(&disk).unwrap();
    let mut feed = env.named_changes("search").unwrap();
    let mut other = env.named_changes("search").unwrap();
    (0..200).for_each(|n| put(&env, "t", n, &[3; 700]));
    let (commits, same) = (all(&mut feed), all(&mut other));
    let written = |disk: &SimDisk| bytes_of(disk, "feeds");
    feed.acknowledge(commits[149].position).unwrap();
    let kept = written(&disk);
    for (feed, earlier) in [(&mut feed, commits[10].position), (&mut other, same[20].position)] {
        feed.acknowledge(earlier).unwrap();
        assert_eq!(written(&disk), kept, "covered already");
    }
    drop((feed, other));
    for round in 0..3 {
        (0..100).for_each(|n| put(&env, "u", n, &[round; 700]));
        env.checkpoint().unwrap();
    }
    env.close().unwrap();
    let env = open(&disk).unwrap();
    let mut feed = env.named_changes("search").unwrap();
    let rest = all(&mut feed);
    assert_eq!(rest[..50], commits[150..]);
    assert_eq!(rest.len(), 350);
    // Nor does one that keeps its position itself, and the log while it lives.
    let mut own = env.changes(feed.position()).unwrap();
    let begin = own.position();
    (0..3).for_each(|n| put(&env, "t", n, b"x"));
    let three = all(&mut own);
    own.acknowledge(three[2].position).unwrap();
    own.acknowledge(three[0].position).unwrap();
    own.acknowledge(begin).unwrap();
    assert!(all(&mut own).is_empty());
}

/// A forgotten feed is told so whatever it acknowledges; and threads that begin a name together begin one feed.
#[test]
fn a_name_that_two_threads_begin_is_one_feed() {
    for _ in 0..20 {
        let env = open(&SimDisk::new()).unwrap();
        put(&env, "t", 0, b"before");
        let threads: Vec<_> = (0..3)
            .map(|no| {
                let env = env.clone();
                std::thread::spawn(move || {
                    let feed = env.named_changes("search").unwrap();
                    put(&env, "t", no, b"while they begin");
                    feed.position()
                })
            })
            .collect();
        let first = threads.into_iter().map(|thread| thread.join().unwrap()).min().unwrap();
        let later = env.named_changes("search").unwrap().position();
        assert_eq!(later, first, "what was committed behind the first of them is passed over");
    }
    let env = open(&SimDisk::new()).unwrap();
    let mut feed = env.named_changes("search").unwrap();
    put(&env, "t", 0, b"x");
    let position = all(&mut feed)[0].position;
    feed.acknowledge(position).unwrap();
    env.forget_changes("search").unwrap();
    for at in [position, Lsn(4096)] {
        assert!(matches!(feed.acknowledge(at), Err(Error::FeedForgotten { .. })));
    }
}

/// Commits that are acknowledged and not durable yet lie before where a feed begins that begins now, or behind them.
#[test]
fn a_feed_shows_nothing_that_was_committed_before_it_begins() {
    let env = open(&SimDisk::new()).unwrap();
    put(&env, "t", 0, b"durable");
    let volatile = |n: u64| {
        let txn = env.begin().unwrap();
        txn.bytes_or_create("t").unwrap().put(&key(n), b"volatile").unwrap();
        let ticket = txn.commit_with(Durability::Volatile).unwrap().ticket;
        assert!(!ticket.is_durable());
        Lsn(ticket.lsn().0 + 40) // Behind the record of the commit.
    };
    for (no, at_end) in [false, true].into_iter().enumerate() {
        volatile(10 + no as u64);
        let behind = volatile(20 + no as u64);
        let mut feed = env.changes(if at_end { Lsn(u64::MAX) } else { behind }).unwrap();
        assert_eq!(feed.position(), behind);
        assert!(all(&mut feed).is_empty(), "{at_end}");
    }
    volatile(3);
    let mut named = env.named_changes("search").unwrap();
    volatile(4);
    env.checkpoint().unwrap();
    assert_eq!(all(&mut named).len(), 1);
    // And a reader of the log shows no record before the one that it was moved to.
    let from = volatile(5);
    volatile(6);
    let mut reader = env.log_reader(from).unwrap();
    env.checkpoint().unwrap();
    assert_eq!(reader.next().unwrap().unwrap().lsn(), from);
}

/// Somebody has removed it: the feeds would begin anew, and pass over what was committed meanwhile.
#[test]
fn a_missing_file_of_positions_is_missed() {
    let disk = SimDisk::new();
    let env = open(&disk).unwrap();
    drop(env.named_changes("search").unwrap());
    put(&env, "t", 1, b"not seen yet");
    env.close().unwrap();
    let own = bytes_of(&disk, "feeds");
    for crashed in [false, true] {
        let disk = if crashed { disk.after_crash(3) } else { disk.snapshot() };
        place(&disk, "feeds", None);
        for _ in 0..2 {
            let refused = open(&disk).map(drop);
            assert!(matches!(&refused, Err(Error::Corrupt { what }) if what.contains("feeds")), "{refused:?}");
        }
        // Its own put back goes on.
        let mended = disk.snapshot();
        place(&mended, "feeds", Some(&own));
        assert_eq!(all(&mut open(&mended).unwrap().named_changes("search").unwrap()).len(), 1);
        // A control file made anew does not know; one made beside the file does.
        let rebuilt = mended.after_crash(7);
        place(&rebuilt, "control", None);
        Environment::rebuild_control_on(Arc::new(rebuilt.clone())).unwrap();
        place(&rebuilt, "feeds", None);
        assert!(matches!(open(&rebuilt).map(drop), Err(Error::Corrupt { .. })));
        // Or all begin anew, because somebody said so.
        Environment::forget_all_changes_on(Arc::new(disk.clone())).unwrap();
        let env = open(&disk).unwrap();
        assert!(all(&mut env.named_changes("search").unwrap()).is_empty());
    }
    // Without named feeds there is no such file.
    let disk = SimDisk::new();
    open(&disk).unwrap().close().unwrap();
    assert!(!disk.files().iter().any(|path| path == "feeds"));
    open(&disk).unwrap();
}

/// A segment of the old log that is missing takes away nothing but itself, and for as long as it is missing.
#[test]
fn an_old_segment_put_back_makes_a_feed_whole() {
    let disk = SimDisk::new();
    let env = open(&disk).unwrap();
    drop(env.named_changes("search").unwrap());
    (0..300).for_each(|n| put(&env, "t", n, &[7; 900]));
    env.close().unwrap();
    let mut segments: Vec<String> = disk.files().into_iter().filter(|path| path.starts_with("log/")).collect();
    segments.sort();
    let (lost, bytes) = (&segments[2], bytes_of(&disk, &segments[2]));
    place(&disk, lost, None);
    for n in 300..303 {
        let env = open(&disk).unwrap();
        let troubles = env.stat().unwrap().keeper_troubles;
        assert!(troubles.iter().any(|trouble| trouble.name == "feed search"), "{troubles:?}");
        let told = env.named_changes("search").map(|mut feed| feed.next().map(drop));
        assert!(matches!(told, Err(Error::LogGone { .. })), "{told:?}");
        put(&env, "t", n, &[7; 900]);
        env.checkpoint().unwrap();
        env.close().unwrap();
    }
    place(&disk, lost, Some(&bytes));
    let env = open(&disk).unwrap();
    assert!(env.stat().unwrap().keeper_troubles.is_empty());
    assert_eq!(all(&mut env.named_changes("search").unwrap()).len(), 303);
}

/// The end of a log that rotted after a kill looks like a flush that was cut short. Nobody acknowledges what was not
/// durable. Found by the damage campaign (seed 5328): the log grew again, and the feed went on in what was not its own.
#[test]
fn a_log_that_ends_before_a_position_has_lost_its_end() {
    let disk = SimDisk::new();
    let env = open(&disk).unwrap();
    let mut feed = env.named_changes("search").unwrap();
    (0..6).for_each(|n| put(&env, "t", n, &[7; 900]));
    let positions: Vec<Lsn> = all(&mut feed).iter().map(|commit| commit.position).collect();
    for told in [2, 5] {
        feed.acknowledge(positions[told]).unwrap();
        let disk = disk.snapshot();
        let path = disk.files().into_iter().rfind(|path| path.starts_with("log/")).unwrap();
        let whole = bytes_of(&disk, &path);
        let start = u64::from_str_radix(&path["log/".len()..path.len() - ".seg".len()], 16).unwrap();
        let mut harmed = whole.clone();
        harmed[(positions[1].0 - start) as usize..].fill(0); // Two commits are left.
        place(&disk, &path, Some(&harmed));
        let before = disk.snapshot();
        for _ in 0..2 {
            let refused = open(&disk).map(drop);
            assert!(matches!(&refused, Err(Error::Corrupt { what }) if what.contains("feed search")), "{refused:?}");
        }
        assert!(disk.files().iter().all(|path| path == "lock" || bytes_of(&disk, path) == bytes_of(&before, path)));
        let forgotten = disk.snapshot();
        Environment::forget_all_changes_on(Arc::new(forgotten.clone())).unwrap();
        let count = |env: &Environment| env.transact(|txn| txn.bytes("t")?.range(..)?.try_fold(0, |n, _| Ok(n + 1)));
        assert_eq!(count(&open(&forgotten).unwrap()).unwrap(), 2);
        place(&disk, &path, Some(&whole));
        let mended = open(&disk).unwrap();
        assert_eq!(count(&mended).unwrap(), 6);
        assert_eq!(all(&mut mended.named_changes("search").unwrap()).len(), 5 - told);
    }
}
