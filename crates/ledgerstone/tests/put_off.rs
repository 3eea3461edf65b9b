//! Large transactions that a crash has interrupted are rolled back after the opening, beside everybody else.

mod common;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use common::{State, assert_sound, key, read, tiny, within};
use ledgerstone::{Environment, Error, IndexDef, IndexKeys, Locking, Lsn, Options, Transaction, TransactionOptions};
use ledgerstone_disk::SimDisk;

/// More than the cache holds, and few enough changes that nobody reads ahead for the rollback.
const COUNT: u64 = 1000;

fn options() -> Options {
    tiny().restart_undo_bytes(0).checkpoint_log_bytes(1 << 30).version_store_bytes(1 << 20)
}

fn open(disk: &SimDisk) -> Environment {
    options().open_on(Arc::new(disk.clone())).unwrap()
}

fn value(n: u64, round: u64) -> Vec<u8> {
    [&((n * 7919 + round) % COUNT).to_be_bytes()[..], &[round as u8; 500]].concat()
}

fn index() -> IndexDef {
    IndexDef::new("by_number", IndexKeys::Bytes { from: 0, to: Some(8) })
}

/// A large table with an index, and two small ones.
fn base(options: Options) -> (SimDisk, Environment) {
    let disk = SimDisk::new();
    let env = options.open_on(Arc::new(disk.clone())).unwrap();
    env.transact(|txn| {
        let big = txn.create_table("big")?;
        (0..COUNT).try_for_each(|n| big.put(&key(n), &value(n, 0)))?;
        txn.create_index("big", &index())?;
        for name in ["other", "third"] {
            let table = txn.create_table(name)?;
            (0..20).try_for_each(|n| table.put(&key(n), b"before"))?;
        }
        Ok::<_, Error>(())
    })
    .unwrap();
    env.checkpoint().unwrap();
    (disk, env)
}

/// Changes most of the large table.
fn change(txn: &Transaction) -> Result<(), Error> {
    let big = txn.bytes("big")?;
    for n in 0..COUNT {
        match n % 4 {
            0 => big.put(&key(n), &value(n, 1))?,
            1 => drop(big.delete(&key(n))?),
            2 => {
                big.put(&key(n), &value(n, 2))?;
                big.put(&key(n), &value(n, 3))?;
            }
            _ => big.put(&key(COUNT + n), &value(n, 4))?,
        }
    }
    Ok(())
}

/// The state that was committed, and the disk that a crash leaves in the middle of a large transaction.
fn interrupted() -> (SimDisk, State) {
    let (disk, state, _) = interrupted_behind();
    (disk, state)
}

/// The same, and a position of the change feed from before the transaction.
fn interrupted_behind() -> (SimDisk, State, Lsn) {
    let (disk, env) = base(options());
    let position = env.changes(Lsn(u64::MAX)).unwrap().position();
    let txn = env.begin().unwrap();
    change(&txn).unwrap();
    env.transact(|txn| txn.bytes("other")?.put(&key(1), b"committed beside it")).unwrap();
    disk.crash_now();
    drop((txn, env));
    let disk = disk.after_crash(3);
    let state = read(&tiny().restart_undo_bytes(u64::MAX).open_on(Arc::new(disk.snapshot())).unwrap()).unwrap();
    assert_eq!(state["big"].len() as u64, COUNT);
    (disk, state, position)
}

/// Stops the thread that rolls back when it reads for the n-th time.
#[derive(Default)]
struct Gate {
    at: AtomicU64,
    reads: AtomicU64,
    is_there: AtomicBool,
    is_open: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    fn on(disk: &SimDisk, at: u64) -> Arc<Gate> {
        let gate = Arc::new(Gate { at: AtomicU64::new(at), ..Gate::default() });
        let hook = Arc::clone(&gate);
        disk.set_hook(Arc::new(move |what| hook.pass(what)));
        gate
    }

    fn pass(&self, what: &str) {
        let is_rollback = std::thread::current().name() == Some("rollback");
        if is_rollback && what == "read" && self.reads.fetch_add(1, SeqCst) + 1 == self.at.load(SeqCst) {
            self.is_there.store(true, SeqCst);
            let mut is_open = self.is_open.lock().unwrap();
            while !*is_open {
                is_open = self.opened.wait(is_open).unwrap();
            }
        }
    }

    fn open(&self) {
        *self.is_open.lock().unwrap() = true;
        self.opened.notify_all();
    }

    /// False if the rollback has ended without coming there.
    fn is_reached(&self, env: &Environment) -> bool {
        wait_for(|| self.is_there.load(SeqCst) || env.rolling_back().is_empty());
        self.is_there.load(SeqCst)
    }
}

fn wait_for(is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(60), "what the test waits for does not happen");
        std::thread::yield_now();
    }
}

fn impatient(env: &Environment) -> Transaction {
    let options = TransactionOptions { lock_timeout: Some(Duration::ZERO), ..TransactionOptions::default() };
    env.begin_with(options).unwrap()
}

fn refusal<T>(result: Result<T, Error>) -> String {
    match result {
        Err(error @ Error::LockTimeout { .. }) => error.to_string(),
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("not refused"),
    }
}

/// Keys with their values.
type Records = Vec<(Vec<u8>, Vec<u8>)>;

/// All of the large table, and keys of it by its index.
fn look(txn: &Transaction) -> (Records, Vec<Vec<u8>>) {
    let big = txn.bytes("big").unwrap();
    let records = big.range(..).unwrap().collect::<Result<Vec<_>, _>>().unwrap();
    let by_number = big.index("by_number").unwrap();
    let mut keys = Vec::new();
    for number in (0..COUNT).step_by(97) {
        keys.extend(by_number.get(key(number)).unwrap().map(|(key, _)| key));
    }
    (records, keys)
}

#[test]
fn everything_but_its_tables_can_be_used_at_once() {
    let (disk, state) = interrupted();
    let gate = Gate::on(&disk, 1);
    let env = open(&disk);
    let report = env.recovery_report();
    assert_eq!((report.loser_count, report.put_off_count, report.undone_count), (1, 1, 0));
    let found = env.rolling_back();
    assert_eq!((found.len(), &found[0].tables[..], found[0].undone_count), (1, &["big".to_owned()][..], 0));
    assert!(found[0].change_count > COUNT, "entries of the index count, too: {found:?}");
    let stat = env.stat().unwrap();
    assert_eq!((stat.rolling_back_count, stat.rollback_change_count), (1, found[0].change_count));
    assert!(stat.oldest_transaction_lsn <= found[0].first_lsn.0);

    env.transact(|txn| txn.bytes("other")?.put(&key(2), b"after the crash")).unwrap();
    assert_eq!(env.transact(|txn| txn.bytes("third")?.get(&key(3))).unwrap().unwrap(), b"before");
    env.transact(|txn| txn.create_table("new")?.put(b"k", b"v")).unwrap();
    let snapshot = env.snapshot().unwrap();
    let expected = state["big"].clone().into_iter().collect::<Vec<_>>();
    let seen = look(&snapshot);
    assert!(seen.0 == expected, "a snapshot sees what was committed");
    assert_eq!(seen.1.len() as u64, COUNT.div_ceil(97));

    let text = refusal(impatient(&env).bytes("big").and_then(|big| big.get(&key(1))));
    let xid = found[0].xid;
    assert!(text.contains(&format!("transaction {xid} was interrupted, and is being rolled back")), "{text}");
    assert!(text.contains(&format!("(0 of {} changes)", found[0].change_count)), "{text}");
    for refused in [
        impatient(&env).bytes("big").and_then(|big| big.put(&key(1), b"over it")),
        impatient(&env).drop_table("big"),
        impatient(&env).drop_index("big", "by_number"),
    ] {
        refusal(refused);
    }
    env.checkpoint().unwrap();
    env.compact().unwrap();
    env.reclaim().unwrap();
    let verified = env.verify().unwrap();
    assert!(verified.problems.is_empty(), "{:?}", verified.problems);
    assert!(verified.skipped.iter().any(|skipped| skipped.why.contains("being rolled back")), "{:?}", verified.skipped);
    let stopped = env.wait_rolled_back_with(|at| {
        assert_eq!((at.transaction_count, at.undone_count), (1, 0));
        ControlFlow::Break(())
    });
    assert!(matches!(stopped, Err(Error::Cancelled)));
    // What is called while somebody waits may call anything, and panic.
    let called = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        env.wait_rolled_back_with(|_| -> ControlFlow<()> {
            env.transact(|txn| txn.bytes("third")?.put(&key(1), b"from inside")).unwrap();
            assert_eq!((env.rolling_back().len(), env.stat().unwrap().rollback_undone_count), (1, 0));
            env.checkpoint().unwrap();
            panic!("planned")
        })
    }));
    assert!(called.is_err());

    gate.open();
    env.wait_rolled_back().unwrap();
    assert!(env.rolling_back().is_empty());
    assert_eq!(env.stat().unwrap().rollback_undone_count, found[0].change_count);
    assert!(look(&snapshot) == seen, "a snapshot from before the end");
    assert!(look(&env.begin().unwrap()) == seen, "whoever locks");
    snapshot.abort().unwrap();
    assert_sound(&env, "after it");
    assert_eq!(env.stat().unwrap().version_spilled_count, 0);
    env.transact(|txn| txn.drop_table("big")).unwrap();
    env.close().unwrap();
    assert!(open(&disk).recovery_report().was_clean);
}

/// In a process that ends at each of many places, twice.
#[test]
fn a_crash_in_the_middle_is_an_ordinary_crash() {
    let (disk, state) = interrupted();
    let mut crashed_count = 0;
    for at in [1, 2, 3, 5, 9, 20, 40, 70, 110, 200, 400, 800] {
        let mut disk = disk.snapshot();
        for round in 1..=2 {
            let gate = Gate::on(&disk, at * round);
            let env = open(&disk);
            assert_eq!(env.recovery_report().put_off_count, 1, "at {at}, round {round}");
            let is_reached = gate.is_reached(&env);
            env.transact(|txn| txn.bytes("other")?.put(&key(1), b"committed beside it")).unwrap();
            env.sync().unwrap();
            if round == 2 {
                env.checkpoint().unwrap();
            }
            let snapshot = env.snapshot().unwrap();
            assert_eq!(snapshot.bytes("third").unwrap().get(&key(1)).unwrap().unwrap(), b"before");
            drop(snapshot);
            disk.crash_now();
            gate.open();
            drop(env);
            disk = disk.after_crash(at);
            crashed_count += u64::from(is_reached);
            if !is_reached {
                break;
            }
        }
        let env = open(&disk);
        let snapshot = env.snapshot().unwrap();
        let at_snapshot: BTreeMap<_, _> =
            snapshot.bytes("big").unwrap().range(..).unwrap().map(Result::unwrap).collect();
        assert!(state["big"] == at_snapshot, "at {at}: a snapshot");
        drop(snapshot);
        env.wait_rolled_back().unwrap();
        assert!(read(&env).unwrap() == state, "at {at}");
        assert_sound(&env, "after two crashes");
    }
    assert!(crashed_count > 8, "{crashed_count} crashes in the middle");
}

#[test]
fn a_close_leaves_the_rest_to_the_next_open() {
    let (disk, state) = interrupted();
    for (at, reads) in [(1, true), (20, false), (60, true)] {
        let disk = disk.snapshot();
        let gate = Gate::on(&disk, at);
        let env = open(&disk);
        assert!(gate.is_reached(&env), "at {at}");
        let (other, waits) = (env.clone(), env.clone());
        let closes = std::thread::spawn(move || env.close());
        let waits = std::thread::spawn(move || waits.wait_rolled_back());
        wait_for(|| other.checkpoint().is_err()); // It is being closed.
        gate.open();
        within(60, "close", move || closes.join().unwrap()).unwrap();
        assert!(matches!(waits.join().unwrap(), Err(Error::Failed { .. })), "nobody waits for ever");
        drop(other);

        // Whoever only reads finds it done.
        let env = options().read_only(reads).open_on(Arc::new(disk.clone())).unwrap();
        assert!(!env.recovery_report().was_clean);
        assert_eq!(env.recovery_report().put_off_count, u64::from(!reads), "at {at}");
        env.wait_rolled_back().unwrap();
        assert!(read(&env).unwrap() == state, "at {at}");
        assert_sound(&env, "after a close");
        env.close().unwrap();
        assert!(open(&disk).recovery_report().was_clean);
    }
}

#[test]
fn a_disk_that_others_have_filled_does_not_stop_it() {
    let (disk, state) = interrupted();
    let gate = Gate::on(&disk, 1);
    let env = open(&disk);
    disk.no_space_after(disk.used_bytes());
    let filled =
        (0..).find_map(|n: u64| env.transact(|txn| txn.bytes("other")?.put(&key(n % 20), &[n as u8; 500])).err());
    assert!(matches!(filled, Some(Error::ReadOnly { .. })), "{filled:?}");
    gate.open();
    within(60, "rollback", {
        let env = env.clone();
        move || env.wait_rolled_back()
    })
    .unwrap();
    assert!(
        env.snapshot().unwrap().bytes("big").unwrap().range(..).unwrap().map(Result::unwrap).eq(state["big"].clone())
    );
    disk.space_for_all();
    assert_sound(&env, "after a full disk");
}

#[test]
fn a_feed_hears_nothing_of_it() {
    let (disk, _, position) = interrupted_behind();
    let gate = Gate::on(&disk, 40);
    let env = open(&disk);
    assert!(gate.is_reached(&env));
    env.sync().unwrap();
    let mut feed = env.changes(position).unwrap();
    let tables = |feed: &mut ledgerstone::ChangeFeed| {
        let mut tables = Vec::new();
        while let Some(commit) = feed.next().unwrap() {
            tables.extend(commit.changes().map(|change| change.table.to_string()));
        }
        tables
    };
    assert_eq!(tables(&mut feed), ["other"]);
    gate.open();
    env.wait_rolled_back().unwrap();
    env.transact(|txn| txn.bytes("big")?.put(&key(0), b"after it")).unwrap();
    assert_eq!(tables(&mut feed), ["big"]);
}

/// Opens after a crash in the middle of what `begin` has begun, and says how many transactions were put off.
fn put_off_after(
    options: Options,
    reopens: Options,
    begin: impl FnOnce(&Environment) -> Vec<Transaction>,
) -> (Environment, u64) {
    let (disk, env) = base(options);
    let open_ones = begin(&env);
    env.sync().unwrap();
    disk.crash_now();
    drop((open_ones, env));
    let env = reopens.open_on(Arc::new(disk.after_crash(5))).unwrap();
    let count = env.recovery_report().put_off_count;
    env.wait_rolled_back().unwrap();
    assert_eq!(env.transact(|txn| Ok(txn.bytes("big")?.range(..)?.count())).unwrap() as u64, COUNT);
    (env, count)
}

#[test]
fn only_changes_of_records_are_put_off() {
    let changes = |and: fn(&Transaction) -> Result<(), Error>| {
        move |env: &Environment| {
            let txn = env.begin().unwrap();
            change(&txn).and_then(|()| and(&txn)).unwrap();
            vec![txn]
        }
    };
    let count = |begin: fn(&Transaction) -> Result<(), Error>| put_off_after(options(), options(), changes(begin)).1;
    assert_eq!(count(|_| Ok(())), 1);
    assert_eq!(count(|txn| txn.bytes("other")?.put(&key(1), b"two tables")), 1);
    assert_eq!(count(|txn| txn.create_table("made").map(drop)), 0, "the catalog was changed");
    assert_eq!(count(|txn| txn.drop_table("third")), 0, "the catalog was changed");
    assert_eq!(count(|txn| txn.bytes("third")?.put(b"large", &[1; 50_000])), 0, "a large value");
    assert_eq!(count(|txn| txn.bytes("big")?.delete_range(..).map(drop)), 1);
}

#[test]
fn no_more_is_put_off_than_the_setting_says() {
    let both = |env: &Environment| {
        let (small, large) = (env.begin().unwrap(), env.begin().unwrap());
        change(&large).unwrap();
        (0..20).for_each(|n| small.bytes("other").unwrap().put(&key(n), b"small").unwrap());
        vec![small, large]
    };
    assert_eq!(put_off_after(options(), options(), both).1, 2);
    assert_eq!(put_off_after(options(), options().restart_undo_bytes(16 << 10), both).1, 1);
    assert_eq!(put_off_after(options(), options().restart_undo_bytes(64 << 20), both).1, 0);
}

#[test]
fn of_two_that_share_a_table_one_is_put_off() {
    let (env, count) = put_off_after(options(), options(), |env| {
        let (one, two) = (env.begin().unwrap(), env.begin().unwrap());
        for n in 0..20 {
            one.bytes("other").unwrap().put(&key(n), b"one").unwrap();
            two.bytes("other").unwrap().put(&key(100 + n), b"two").unwrap();
        }
        vec![one, two]
    });
    assert_eq!(count, 1);
    assert_eq!(env.transact(|txn| Ok(txn.bytes("other")?.range(..)?.count())).unwrap(), 20);
}

#[test]
fn beside_a_transaction_in_doubt_its_tables_are_not_waited_for() {
    let (env, count) = put_off_after(options(), options(), |env| {
        let prepared = env.begin().unwrap();
        prepared.bytes("other").unwrap().put(&key(1), b"prepared").unwrap();
        let _ = prepared.prepare(b"id").unwrap();
        let txn = env.begin().unwrap();
        txn.bytes("other").unwrap().put(&key(2), b"interrupted").unwrap();
        let third = env.begin().unwrap();
        third.bytes("third").unwrap().put(&key(2), b"interrupted").unwrap();
        vec![txn, third]
    });
    assert_eq!(count, 1, "the one that has its table for itself");
    env.commit_in_doubt(b"id").unwrap();
    let records = env.transact(|txn| txn.bytes("other")?.range(..)?.collect::<Result<Vec<_>, _>>()).unwrap();
    assert_eq!((&records[1].1[..], &records[2].1[..]), (&b"prepared"[..], &b"before"[..]));
}

#[test]
fn it_is_put_off_where_leaves_are_locked_and_not_where_nothing_is() {
    for (locking, expected) in [(Locking::Pages, 1), (Locking::None, 0)] {
        let options = || options().locking(locking);
        let begin = |env: &Environment| {
            let txn = env.begin().unwrap();
            change(&txn).unwrap();
            vec![txn]
        };
        let (env, count) = put_off_after(options(), options(), begin);
        assert_eq!(count, expected, "{locking:?}");
        assert_sound(&env, "with other locks");
    }
}

#[test]
fn a_backup_beside_it_is_whole() {
    use common::media::{backup, restore};
    let (disk, state) = interrupted();
    for at in [1, 40, 90] {
        let (disk, backups) = (disk.snapshot(), SimDisk::new());
        let gate = Gate::on(&disk, at);
        let env = open(&disk);
        assert!(gate.is_reached(&env), "at {at}");
        let opens = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20)); // The backup may want the page that is being read.
            gate.open();
        });
        backup(&env, &backups, false).unwrap();
        let check = |backups: &SimDisk, what: &str| {
            for undo_bytes in [0, u64::MAX] {
                let (restored, _) = restore(backups, ledgerstone::RestoreTo::End, &[]).unwrap();
                let env = tiny().restart_undo_bytes(undo_bytes).open_on(Arc::new(restored)).unwrap();
                env.wait_rolled_back().unwrap();
                assert!(read(&env).unwrap() == state, "{what}, at {at}");
                assert_sound(&env, what);
            }
        };
        check(&backups, "in the middle");
        opens.join().unwrap();
        env.wait_rolled_back().unwrap();
        backup(&env, &backups, true).unwrap();
        check(&backups, "afterwards");
        let changed = env.damaged_pages().unwrap();
        assert!(changed.is_empty());
    }
}

#[test]
fn a_snapshot_from_before_its_end_finds_the_log_that_it_needs() {
    let (disk, _) = interrupted();
    let gate = Gate::on(&disk, 1);
    let env =
        options().checkpoint_log_bytes(1 << 20).version_store_bytes(16 << 20).open_on(Arc::new(disk.clone())).unwrap();
    let snapshot = env.snapshot().unwrap();
    let seen = look(&snapshot);
    gate.open();
    env.wait_rolled_back().unwrap();
    for n in 0..6000 {
        env.transact(|txn| txn.bytes("other")?.put(&key(n % 20), &[n as u8; 400])).unwrap();
    }
    env.checkpoint().unwrap();
    env.checkpoint().unwrap();
    assert!(look(&snapshot) == seen);
    drop(snapshot);
    env.reclaim().unwrap();
    env.checkpoint().unwrap();
    assert_eq!(env.stat().unwrap().version_spilled_count, 0);
}

#[test]
fn many_of_them_need_no_more_than_the_settings_give() {
    let (disk, env) = base(options());
    env.transact(|txn| (0..12).try_for_each(|n| txn.create_table(&format!("t{n}"))?.put(b"k", b"before"))).unwrap();
    let open_ones: Vec<_> = (0..12)
        .map(|n| {
            let txn = env.begin().unwrap();
            let table = txn.bytes(&format!("t{n}")).unwrap();
            (0..50).for_each(|k| table.put(&key(k), &[n as u8; 300]).unwrap());
            table.put(b"k", b"after").unwrap();
            drop(table);
            txn
        })
        .collect();
    env.sync().unwrap();
    disk.crash_now();
    drop((open_ones, env));
    for seed in 0..4 {
        let disk = disk.after_crash(seed);
        let gate = Gate::on(&disk, 3);
        let reopens = options().transaction_count_max(1).lock_count_max(1024).thread_count_max(4);
        let env = reopens.open_on(Arc::new(disk.clone())).unwrap();
        assert_eq!(env.recovery_report().put_off_count, 12);
        env.transact(|txn| txn.bytes("other")?.put(&key(1), b"in the meantime")).unwrap();
        gate.open();
        env.wait_rolled_back().unwrap();
        for n in 0..12 {
            let found = env.transact(|txn| txn.bytes(&format!("t{n}"))?.range(..)?.collect::<Result<Vec<_>, _>>());
            assert_eq!(found.unwrap(), [(b"k".to_vec(), b"before".to_vec())]);
        }
        assert_sound(&env, "many");
    }
}

/// The second life without locks begins with a checkpoint, and still has to say that it has none.
#[test]
fn nothing_is_put_off_after_two_lives_without_locks() {
    let unlocked = || options().locking(Locking::None);
    let (mut disk, mut env) = base(unlocked());
    for _ in 0..2 {
        let txn = env.begin().unwrap();
        change(&txn).unwrap();
        env.sync().unwrap();
        disk.crash_now();
        drop((txn, env));
        disk = disk.after_crash(5);
        env = unlocked().open_on(Arc::new(disk.clone())).unwrap();
    }
    let txn = env.begin().unwrap();
    change(&txn).unwrap();
    env.sync().unwrap();
    disk.crash_now();
    drop((txn, env));
    let disk = disk.after_crash(6);
    let env = open(&disk);
    assert_eq!((env.recovery_report().loser_count, env.recovery_report().put_off_count), (1, 0));
    assert_eq!(env.transact(|txn| Ok(txn.bytes("big")?.range(..)?.count())).unwrap() as u64, COUNT);
    // That opening has said that there are locks again, before it returned.
    let txn = env.begin().unwrap();
    change(&txn).unwrap();
    env.sync().unwrap();
    disk.crash_now();
    drop((txn, env));
    assert_eq!(open(&disk.after_crash(7)).recovery_report().put_off_count, 1);
}
