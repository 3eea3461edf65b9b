//! Two-phase commit: a prepared transaction survives everything and is decided exactly once.

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{assert_sound, bytes_of, key, open, overwrite, read, tiny, within};
use ledgerstone::{Environment, Error, Locking, Transaction, TransactionOptions};
use ledgerstone_disk::SimDisk;
use ledgerstone_dump::{Dump, DumpOptions, LoadOptions};

fn environment() -> (SimDisk, Environment) {
    let disk = SimDisk::new();
    let env = open(&disk).unwrap();
    env.transact(|txn| {
        for name in ["t", "u"] {
            let table = txn.create_table(name)?;
            (0..50).try_for_each(|n| table.put(&key(n), b"before"))?;
        }
        Ok::<_, Error>(())
    })
    .unwrap();
    (disk, env)
}

/// What the power takes: everything that was not synced.
fn restart(disk: &mut SimDisk, env: Environment) -> Environment {
    disk.crash_now();
    drop(env);
    *disk = disk.after_crash(7);
    open(disk).unwrap()
}

fn impatient(env: &Environment) -> Transaction {
    let options = TransactionOptions { lock_timeout: Some(Duration::ZERO), ..TransactionOptions::default() };
    env.begin_with(options).unwrap()
}

fn is_refused<T>(result: Result<T, Error>) -> bool {
    match result {
        Ok(_) => false,
        Err(Error::LockTimeout { .. }) => true,
        Err(error) => panic!("{error}"),
    }
}

fn ids(env: &Environment) -> Vec<String> {
    env.in_doubt().into_iter().map(|found| String::from_utf8(found.global_id).unwrap()).collect()
}

/// Writes, reads, drops and creates, and prepares.
fn prepare(env: &Environment, id: &str) {
    let txn = env.begin().unwrap();
    let t = txn.bytes("t").unwrap();
    t.put(&key(1), b"prepared").unwrap();
    t.delete(&key(2)).unwrap();
    t.put(&key(99), &vec![9; 20_000]).unwrap();
    assert!(t.get(&key(3)).unwrap().is_some());
    txn.create_table("made").unwrap().put(b"k", b"v").unwrap();
    txn.drop_table("u").unwrap();
    let prepared = txn.prepare(id.as_bytes()).unwrap();
    assert!(prepared.lsn() > env.in_doubt()[0].first_lsn);
}

fn assert_locked(env: &Environment) {
    for n in [1, 2, 99] {
        assert!(is_refused(impatient(env).bytes("t").unwrap().get(&key(n))), "key {n}");
    }
    assert!(is_refused(impatient(env).bytes("u")), "a table that it drops");
    assert!(is_refused(impatient(env).bytes("made")), "a table that it creates");
    assert!(is_refused(impatient(env).table_names()), "the list of tables");
    let txn = impatient(env);
    txn.bytes("t").unwrap().put(&key(3), b"over what it only read").unwrap();
    txn.abort().unwrap();
    let txn = impatient(env);
    txn.bytes("t").unwrap().put(&key(40), b"elsewhere").unwrap();
    txn.abort().unwrap();
}

fn assert_decided(env: &Environment, commits: bool) {
    assert_eq!(ids(env), [""; 0]);
    env.reclaim().unwrap();
    assert_sound(env, "after the decision");
    let state = read(env).unwrap();
    let names: Vec<&str> = state.keys().map(String::as_str).collect();
    assert_eq!(names, if commits { ["made", "t"] } else { ["t", "u"] });
    let t = &state["t"];
    assert_eq!(t.get(&key(1)).map(Vec::as_slice), Some(if commits { &b"prepared"[..] } else { b"before" }));
    assert_eq!((t.contains_key(&key(2)), t.contains_key(&key(99))), (!commits, commits));
    assert_eq!(env.verify().unwrap().to_free_page_count, 0);
}

#[test]
fn a_handle_decides_and_until_then_its_locks_keep_others_out() {
    for commits in [true, false] {
        let (mut disk, env) = environment();
        let txn = env.begin().unwrap();
        let t = txn.bytes("t").unwrap();
        t.put(&key(1), b"prepared").unwrap();
        let prepared = txn.prepare(b"one").unwrap();
        assert!(matches!(t.get(&key(1)), Err(Error::Finished)), "its tables are done");
        assert!(is_refused(impatient(&env).bytes("t").unwrap().get(&key(1))));
        assert_eq!(prepared.global_id(), b"one");
        if commits {
            let done = prepared.commit().unwrap();
            assert!(done.ticket.is_durable() && done.lsn.0 > 0);
        } else {
            prepared.abort().unwrap();
        }
        assert_eq!(ids(&env), [""; 0]);
        let expected = if commits { &b"prepared"[..] } else { b"before" };
        assert_eq!(impatient(&env).bytes("t").unwrap().get(&key(1)).unwrap().unwrap(), expected);
        let env = restart(&mut disk, env);
        assert_eq!(ids(&env), [""; 0], "both decisions are durable");
        assert_eq!(read(&env).unwrap()["t"][&key(1)], expected);
    }
}

#[test]
fn in_doubt_transactions_survive_restarts_with_their_locks_and_are_decided_later() {
    for commits in [true, false] {
        let (mut disk, mut env) = environment();
        prepare(&env, "one");
        assert_locked(&env);
        for _ in 0..3 {
            env = restart(&mut disk, env);
            assert_eq!(env.recovery_report().in_doubt_count, 1);
            assert_eq!(ids(&env), ["one"]);
            assert_locked(&env);
            env.checkpoint().unwrap();
        }
        env.close().unwrap();
        let env = open(&disk).unwrap();
        assert_eq!(ids(&env), ["one"], "a close leaves it in doubt");
        assert_locked(&env);
        match commits {
            true => drop(env.commit_in_doubt(b"one").unwrap()),
            false => env.abort_in_doubt(b"one").unwrap(),
        }
        assert_decided(&env, commits);
        let env = restart(&mut disk, env);
        assert_decided(&env, commits);
    }
}

#[test]
fn what_it_read_is_free_for_others_at_once() {
    let (_, env) = environment();
    let txn = env.begin().unwrap();
    let t = txn.bytes("t").unwrap();
    assert_eq!(t.count().unwrap(), 50);
    assert!(t.get(&key(70)).unwrap().is_none());
    t.put(&key(1), b"x").unwrap();
    let prepared = txn.prepare(b"reader").unwrap();
    let other = impatient(&env);
    let t = other.bytes("t").unwrap();
    t.put(&key(5), b"read before").unwrap();
    t.put(&key(70), b"found absent before").unwrap();
    let _ = other.commit().unwrap();
    let _ = prepared.commit().unwrap();
}

#[test]
fn ids_are_given_once_and_a_stale_handle_decides_nothing() {
    let (_, env) = environment();
    let begin = |n: u64| {
        let txn = env.begin().unwrap();
        txn.bytes("t").unwrap().put(&key(n), b"x").unwrap();
        txn
    };
    let first = begin(1).prepare(b"id").unwrap();
    assert!(matches!(begin(2).prepare(b"id"), Err(Error::AlreadyPrepared { .. })));
    assert!(!is_refused(impatient(&env).bytes("t").unwrap().get(&key(2))), "the refused one was rolled back");
    for bad in [&b""[..], &[7; 256]] {
        assert!(matches!(begin(2).prepare(bad), Err(Error::BadGlobalId { .. })));
    }
    let _ = env.commit_in_doubt(b"id").unwrap();
    assert!(matches!(env.abort_in_doubt(b"id"), Err(Error::NotPrepared { .. })));
    let second = begin(3).prepare(b"id").unwrap();
    assert!(matches!(first.abort(), Err(Error::NotPrepared { .. })), "it means the first transaction of that name");
    second.abort().unwrap();
    let longest = begin(4).prepare(&[0xff; 255]).unwrap();
    let _ = longest.commit().unwrap();
}

#[test]
fn closing_needs_no_decision_and_a_handle_is_no_use_afterwards() {
    let (disk, env) = environment();
    let txn = env.begin().unwrap();
    txn.drop_table("u").unwrap();
    let prepared = txn.prepare(b"id").unwrap();
    env.close().unwrap();
    assert!(matches!(prepared.commit(), Err(Error::Failed { .. })));
    let env = open(&disk).unwrap();
    assert_eq!(ids(&env), ["id"]);
    env.abort_in_doubt(b"id").unwrap();
    assert_eq!(env.begin().unwrap().bytes("u").unwrap().count().unwrap(), 50);
    env.close().unwrap();
    let env = open(&disk).unwrap();
    assert!(env.recovery_report().was_clean);
}

#[test]
fn many_key_locks_are_written_down_as_table_locks() {
    let disk = SimDisk::new();
    let env = tiny().escalate_after(1 << 20).lock_count_max(20_000).open_on(Arc::new(disk.clone())).unwrap();
    env.transact(|txn| txn.create_table("many").and_then(|_| txn.create_table("few")).map(drop)).unwrap();
    let txn = env.begin().unwrap();
    let (many, few) = (txn.bytes("many").unwrap(), txn.bytes("few").unwrap());
    (0..5000).for_each(|n| many.put(&key(n), b"v").unwrap());
    (0..50).for_each(|n| few.put(&key(n), b"v").unwrap());
    let _ = txn.prepare(b"id").unwrap();
    env.close().unwrap();
    let env = open(&disk).unwrap();
    assert!(env.in_doubt()[0].lock_count < 60, "{:?}", env.in_doubt());
    assert!(is_refused(impatient(&env).bytes("many")), "the whole table");
    let other = impatient(&env);
    other.bytes("few").unwrap().put(&key(999), b"v").unwrap();
    other.abort().unwrap();
    let _ = env.commit_in_doubt(b"id").unwrap();
    assert_eq!(read(&env).unwrap()["many"].len(), 5000);
}

#[test]
fn as_many_in_doubt_as_there_are_slots_leave_room_for_others() {
    let (mut disk, env) = environment();
    for n in 0..16 {
        let txn = env.begin().unwrap();
        txn.bytes("t").unwrap().put(&key(n), b"x").unwrap();
        let _ = txn.prepare(format!("id {n:02}").as_bytes()).unwrap();
    }
    assert!(matches!(env.begin(), Err(Error::TooManyTransactions(_))));
    let env = restart(&mut disk, env);
    assert_eq!(ids(&env).len(), 16);
    env.transact(|txn| txn.bytes("t")?.put(&key(40), b"y")).unwrap();
    for found in env.in_doubt() {
        env.abort_in_doubt(&found.global_id).unwrap();
    }
    assert_sound(&env, "after all were aborted");
}

#[test]
fn an_environment_opened_for_reading_keeps_them_and_decides_nothing() {
    let (disk, env) = environment();
    prepare(&env, "one");
    env.close().unwrap();
    let env = tiny().read_only(true).open_on(Arc::new(disk.clone())).unwrap();
    assert!(matches!(env.commit_in_doubt(b"one"), Err(Error::ReadOnly { .. })));
    assert!(is_refused(impatient(&env).bytes("t").unwrap().get(&key(1))));
    drop(env);
    let env = open(&disk).unwrap();
    env.abort_in_doubt(b"one").unwrap();
    assert_decided(&env, false);
}

#[test]
fn a_crash_at_any_write_of_prepare_and_decision_leaves_one_of_the_two() {
    let (base, env) = environment();
    env.close().unwrap();
    for commits in [true, false] {
        let mut seen = [0; 3];
        for n in 1.. {
            let disk = base.snapshot();
            let env = open(&disk).unwrap();
            disk.crash_at(disk.counters().mutations + n);
            let run = || -> Result<(), Error> {
                let txn = env.begin()?;
                let t = txn.bytes("t")?;
                for n in 0..30 {
                    t.put(&key(n), &vec![n as u8; 700])?;
                }
                let prepared = txn.prepare(b"id")?;
                env.checkpoint()?;
                if commits { prepared.commit().map(drop) } else { prepared.abort() }
            };
            let prepared_is_sure = run().is_ok();
            let crashed = disk.is_crashed();
            disk.crash_now();
            drop(env);
            // A crash in the recovery, too.
            let disk = disk.after_crash(n);
            disk.crash_at(disk.counters().mutations + n % 9 + 1);
            drop(open(&disk));
            disk.crash_now();
            let disk = disk.after_crash(n + 1);
            let env = open(&disk).unwrap();
            let in_doubt = env.in_doubt();
            assert!(in_doubt.is_empty() || !prepared_is_sure, "power lost at change {n}: in doubt though decided");
            seen[in_doubt.len()] += 1;
            for found in in_doubt {
                assert!(is_refused(impatient(&env).bytes("t").unwrap().get(&key(5))), "power lost at change {n}");
                match commits {
                    true => drop(env.commit_in_doubt(&found.global_id).unwrap()),
                    false => env.abort_in_doubt(&found.global_id).unwrap(),
                }
                seen[2] += usize::from(commits);
            }
            let t = &read(&env).unwrap()["t"];
            let count = t.values().filter(|value| value.len() == 700).count();
            assert!(count == 0 || count == 30 && commits, "power lost at change {n}: {count} of 30");
            assert_sound(&env, "after the crash");
            if !crashed {
                break;
            }
        }
        assert!(seen[0] > 0 && seen[1] > 0, "commits {commits}: {seen:?}");
    }
}

/// The rollback is longer than the log buffer, so that its beginning is durable long before its end.
#[test]
fn what_is_being_aborted_is_not_in_doubt_again_after_a_crash() {
    const COUNT: u64 = 400;
    let base = SimDisk::new();
    let env = open(&base).unwrap();
    let fill = |txn: &Transaction, byte: u8| {
        let t = txn.bytes_or_create("t")?;
        (0..COUNT).try_for_each(|n| t.put(&key(n), &[byte; 700]))
    };
    env.transact(|txn| fill(txn, b'a')).unwrap();
    let txn = env.begin().unwrap();
    fill(&txn, b'b').unwrap();
    let _ = txn.prepare(b"id").unwrap();
    env.close().unwrap();
    let mut seen = [0; 2];
    for n in 1.. {
        let disk = base.snapshot();
        let env = open(&disk).unwrap();
        disk.crash_at(disk.counters().mutations + n);
        let is_told = env.abort_in_doubt(b"id").is_ok();
        disk.crash_now();
        drop(env);
        let disk = disk.after_crash(n);
        let env = open(&disk).unwrap();
        let in_doubt = env.in_doubt().len();
        let is_loser = env.recovery_report().loser_count == 1;
        assert!(in_doubt == 0 || !is_told, "power lost at change {n}: in doubt though aborted");
        seen[0] += in_doubt;
        seen[1] += usize::from(is_loser);
        if in_doubt > 0 {
            let _ = env.commit_in_doubt(b"id").unwrap();
        }
        // One who is asked again after a part of it was undone would commit the rest.
        let expected = if in_doubt > 0 { [b'b'; 700] } else { [b'a'; 700] };
        let t = &read(&env).unwrap()["t"];
        let is_whole = t.len() as u64 == COUNT && t.values().all(|value| *value == expected);
        assert!(is_whole, "power lost at change {n}: {in_doubt} in doubt, some records are not as that says");
        if is_told {
            break;
        }
    }
    assert!(seen[0] > 0 && seen[1] > 0, "{seen:?}");
}

#[test]
fn figures_are_told_although_the_list_of_tables_is_locked() {
    let (mut disk, env) = environment();
    prepare(&env, "one");
    let env = restart(&mut disk, env);
    // The housekeeper's own transactions come and go.
    let counted = env.clone();
    let alone = move || std::iter::repeat_with(|| counted.stat().unwrap()).find(|stat| stat.transaction_count == 1);
    let stat = within(60, "the only transaction", alone).unwrap();
    assert_eq!(stat.in_doubt_count, 1);
    assert!(stat.oldest_transaction_lsn > 0 && stat.oldest_transaction_lsn <= env.in_doubt()[0].first_lsn.0);
}

#[test]
fn a_snapshot_never_shows_what_is_in_doubt() {
    let (mut disk, mut env) = environment();
    let txn = env.begin().unwrap();
    txn.bytes("t").unwrap().put(&key(1), b"prepared").unwrap();
    let _ = txn.prepare(b"id").unwrap();
    for is_restarted in [false, true] {
        if is_restarted {
            env = restart(&mut disk, env);
        }
        let got = env.snapshot().and_then(|txn| txn.bytes("t")?.get(&key(1)));
        assert_eq!(got.unwrap().as_deref(), Some(&b"before"[..]), "restarted: {is_restarted}");
    }
    // What is decided later, an older snapshot does not see either; and others go on meanwhile.
    let old = env.snapshot().unwrap();
    env.transact(|txn| txn.bytes("t")?.put(&key(2), b"another")).unwrap();
    env.checkpoint().unwrap();
    assert_eq!(old.bytes("t").unwrap().get(&key(1)).unwrap().as_deref(), Some(&b"before"[..]));
    let _ = env.commit_in_doubt(b"id").unwrap();
    env.checkpoint().unwrap();
    assert_eq!(old.bytes("t").unwrap().get(&key(1)).unwrap().as_deref(), Some(&b"before"[..]));
    drop(old);
    let after = env.snapshot().unwrap().bytes("t").unwrap().get(&key(1)).unwrap();
    assert_eq!(after.as_deref(), Some(&b"prepared"[..]));
}

#[test]
fn locks_on_pages_survive_too_and_only_who_locks_pages_gets_them() {
    let disk = SimDisk::new();
    let open = |locking| tiny().locking(locking).open_on(Arc::new(disk.clone()));
    let env = open(Locking::Pages).unwrap();
    env.transact(|txn| txn.create_table("t")?.put(&key(1), b"before")).unwrap();
    let txn = env.begin().unwrap();
    txn.bytes("t").unwrap().put(&key(1), b"prepared").unwrap();
    let _ = txn.prepare(b"id").unwrap();
    env.close().unwrap();
    let refused = open(Locking::Hierarchical).unwrap_err();
    assert!(matches!(&refused, Error::Setting { name, .. } if name == "locking"), "{refused}");
    let env = open(Locking::Pages).unwrap();
    assert!(is_refused(impatient(&env).bytes("t").unwrap().get(&key(1))));
    env.abort_in_doubt(b"id").unwrap();
    env.close().unwrap();
    let env = open(Locking::Hierarchical).unwrap();
    assert_eq!(read(&env).unwrap()["t"][&key(1)], b"before");
}

/// A transaction that was prepared without locks keeps nobody out: with locks the environment opens when it is decided.
#[test]
fn what_was_prepared_without_locks_is_decided_without_locks() {
    let disk = SimDisk::new();
    let open = |locking| tiny().locking(locking).open_on(Arc::new(disk.clone()));
    let env = open(Locking::None).unwrap();
    env.transact(|txn| txn.create_table("t")?.put(&key(1), b"before")).unwrap();
    let txn = env.begin().unwrap();
    txn.bytes("t").unwrap().put(&key(1), b"prepared").unwrap();
    let _ = txn.prepare(b"id").unwrap();
    env.close().unwrap();
    for locking in [Locking::Hierarchical, Locking::Pages] {
        let refused = open(locking).unwrap_err();
        assert!(
            matches!(&refused, Error::Setting { name, what } if name == "locking" && what.contains("\"none\"")),
            "{refused}"
        );
    }
    let env = open(Locking::None).unwrap();
    env.abort_in_doubt(b"id").unwrap();
    env.close().unwrap();
    let env = open(Locking::Hierarchical).unwrap();
    assert_eq!(read(&env).unwrap()["t"][&key(1)], b"before");
}

#[test]
fn verification_leaves_out_what_is_in_doubt_and_says_so() {
    let (mut disk, env) = environment();
    env.transact(|txn| txn.create_table("v")?.put(&key(1), b"before")).unwrap();
    let txn = env.begin().unwrap();
    txn.bytes("t").unwrap().put(&key(1), b"BEFORE").unwrap();
    drop(txn.prepare(b"first").unwrap());
    let env = restart(&mut disk, env);
    let verify = |env: &Environment| {
        let report = env.verify().unwrap();
        assert_eq!(report.problems, []);
        let places: Vec<String> = report.skipped.iter().map(|skipped| skipped.place.clone()).collect();
        (report.table_count, places.join(", "), report.skipped.first().map(|skipped| skipped.why.clone()))
    };
    let (table_count, places, why) = verify(&env);
    assert_eq!((table_count, &*places), (2, "t, space maps"));
    assert!(why.unwrap().contains("\"first\" is in doubt"));
    env.abort_in_doubt(b"first").unwrap();
    assert_eq!(verify(&env), (3, String::new(), None));
    prepare(&env, "second");
    let env = restart(&mut disk, env);
    let (table_count, places, _) = verify(&env);
    assert_eq!((table_count, &*places), (1, "catalog, made, t, deferred frees, space maps"));
    env.commit_in_doubt(b"second").unwrap();
    assert_eq!(verify(&env), (3, String::new(), None));
    env.close().unwrap();
}

#[test]
fn a_dump_after_a_restart_has_nothing_of_what_is_in_doubt() {
    let (mut disk, env) = environment();
    prepare(&env, "id");
    let env = restart(&mut disk, env);
    let dump = || {
        let mut text = Vec::new();
        let done = env.dump(&mut text, &DumpOptions::default()).unwrap();
        assert!(done.snapshot_lsn.is_some());
        let loaded = open(&SimDisk::new()).unwrap();
        loaded.load(&mut &text[..], &LoadOptions::default()).unwrap();
        read(&loaded).unwrap()
    };
    let state = dump();
    assert_eq!(state.keys().collect::<Vec<_>>(), ["t", "u"]);
    assert!(state.values().all(|table| table.len() == 50 && table.values().all(|value| value == b"before")));
    // Under locks it would have to wait for the decision.
    let locked = env.dump(&mut Vec::new(), &DumpOptions::default().locked(true));
    assert!(matches!(locked, Err(Error::LockTimeout { .. })), "{locked:?}");
    let _ = env.commit_in_doubt(b"id").unwrap();
    assert!(dump() == read(&env).unwrap());
}

#[test]
fn verification_looks_at_the_pages_of_what_is_in_doubt() {
    let (mut disk, env) = environment();
    let txn = env.begin().unwrap();
    txn.bytes("t").unwrap().put(&key(1), b"BEFORE").unwrap();
    drop(txn.prepare(b"id").unwrap());
    env.close().unwrap();
    // The leaf of `t` says that it has more slots than fit; the checksum is good.
    let data = bytes_of(&disk, "data");
    let is_leaf = |page: &[u8]| page[4..8] == [5, 0, 1, 0] && page.windows(6).any(|bytes| bytes == b"BEFORE");
    let no = (0..data.len() / 4096).find(|no| is_leaf(&data[no * 4096..][..4096])).unwrap();
    let mut page = data[no * 4096..][..4096].to_vec();
    page[48..50].copy_from_slice(&4000u16.to_le_bytes());
    ledgerstone_page::checksum::seal(&mut page);
    overwrite(&disk, "data", no as u64 * 4096, &page);
    disk = disk.snapshot();
    let env = open(&disk).unwrap();
    let report = env.verify().unwrap();
    assert!(report.skipped.iter().any(|skipped| skipped.place == "t"), "{report:?}");
    assert!(report.problems.iter().any(|problem| problem.page == Some(no as u64)), "{report:?}");
}
