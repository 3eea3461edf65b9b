//! An environment that several processes share: what one does is true in the others at once, and whoever goes, hurts
//! nobody.
#![cfg(target_os = "linux")]

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use ledgerstone::{Environment, Error, Isolation, Options, Sharing, TransactionOptions};
use ledgerstone_region::{Random, sync};
use ledgerstone_testkit::other::{Other, dir_in_memory, listen, role, within_patience};

fn options(dir: &Path) -> Options {
    let regions = dir.join("regions");
    std::fs::create_dir_all(&regions).unwrap();
    Environment::options()
        .sharing(Sharing::Shared)
        .region_dir(regions)
        .cache_bytes(1 << 20)
        .log_buffer_bytes(256 << 10)
        .lock_count_max(4096)
        .version_store_bytes(1 << 20)
        .checkpoint_log_bytes(256 << 10)
        .thread_count_max(64)
        .lock_timeout(Duration::from_secs(10))
}

fn open_result(dir: &Path) -> Result<Environment, Error> {
    options(dir).open(dir.join("environment"))
}

fn open(dir: &Path) -> Environment {
    open_result(dir).unwrap()
}

/// Files of regions.
fn regions(dir: &Path) -> usize {
    std::fs::read_dir(dir.join("regions")).unwrap().count()
}

#[test]
fn what_one_does_is_true_in_the_others_at_once() {
    let dir = dir_in_memory();
    let dir = dir.path();
    let (first, second) = (open(dir), open(dir));
    let put = |env: &Environment, table: &str, value: &str| {
        env.transact(|txn| txn.bytes_or_create(table)?.put(b"key", value.as_bytes())).unwrap();
    };
    let get = |env: &Environment, table: &str| {
        env.transact(|txn| txn.bytes(table)?.get(b"key"))
            .map(|value| value.map(|bytes| String::from_utf8(bytes).unwrap()))
    };
    let (is, is_gone) =
        (Ok::<_, ()>(Some("of the first".to_string())), |got| matches!(got, Err(Error::NoSuchTable(_))));
    put(&first, "a", "of the first");
    assert_eq!(get(&second, "a").map_err(drop), is);
    let handles = [first.table("a").unwrap(), second.table("a").unwrap()];
    // Dropped there, and made anew: no handle of this one's goes on with the old tree.
    first.transact(|txn| txn.drop_table("a")).unwrap();
    assert!(is_gone(get(&second, "a")) && second.table_names().unwrap().is_empty());
    for isolation in Isolation::ALL {
        let got = second
            .transact_with(TransactionOptions { isolation: Some(isolation), ..TransactionOptions::default() }, |txn| {
                handles[1].get(txn, b"key")
            });
        assert!(matches!(got, Err(Error::NoSuchTable(_))), "{isolation}: {got:?}");
    }
    put(&second, "a", "of the second");
    for (env, handle) in [&first, &second].iter().zip(&handles) {
        let got = env.transact(|txn| handle.get(txn, b"key")).unwrap();
        assert_eq!(got.as_deref(), Some(&b"of the second"[..]));
    }
    // Renamed, with the transaction of the other under way.
    let under_way = first.begin().unwrap();
    put(&second, "b", "another");
    under_way.bytes("b").unwrap().put(b"key", b"changed").unwrap();
    second.transact(|txn| txn.rename_table("a", "c")).unwrap();
    under_way.bytes("b").unwrap().put(b"other key", b"changed").unwrap();
    under_way.commit().unwrap();
    assert!(is_gone(get(&first, "a")));
    assert_eq!(get(&first, "c").unwrap().as_deref(), Some("of the second"));
    assert_eq!(get(&second, "b").unwrap().as_deref(), Some("changed"));
    first.checkpoint().unwrap();
    second.checkpoint().unwrap();
    first.close().unwrap();
    put(&second, "b", "alone");
    second.close().unwrap();
    assert_eq!(regions(dir), 0, "the last one has removed them");
    let again = open(dir);
    assert!(again.recovery_report().was_clean);
    assert_eq!(get(&again, "b").unwrap().as_deref(), Some("alone"));
    assert!(again.verify().unwrap().problems.is_empty());
}

#[test]
fn who_wants_it_alone_is_refused_while_it_is_shared_and_the_other_way_round() {
    let dir = dir_in_memory();
    let dir = dir.path();
    let place = dir.join("environment");
    let alone = || Environment::options().cache_bytes(1 << 20);
    let shared = open(dir);
    assert!(matches!(alone().open(&place), Err(Error::AlreadyOpen { .. })));
    assert!(matches!(alone().read_only(true).open(&place), Err(Error::AlreadyOpen { .. })));
    let found = alone().sharing(Sharing::AsFound).open(&place).unwrap();
    assert_eq!(found.effective().cache_bytes, 1 << 20);
    assert_eq!(found.effective().log_buffer_bytes, 256 << 10, "as those that share it have it");
    shared.close().unwrap();
    assert!(matches!(alone().open(&place), Err(Error::AlreadyOpen { .. })));
    found.close().unwrap();
    let private = alone().sharing(Sharing::AsFound).open(&place).unwrap();
    assert!(matches!(options(dir).open(&place), Err(Error::AlreadyOpen { .. })));
    private.close().unwrap();
    let reads = alone().read_only(true).open(&place).unwrap();
    assert!(matches!(options(dir).open(&place), Err(Error::AlreadyOpen { .. })));
    drop(reads);
    open(dir).close().unwrap();
}

const ACCOUNTS: u64 = 100;
const BALANCE: u64 = 1000;

fn number(value: &[u8]) -> u64 {
    u64::from_be_bytes(value.try_into().expect("eight bytes"))
}

fn transfer(env: &Environment, random: &mut Random) -> Result<(), Error> {
    let (from, to, amount) = (random.below(ACCOUNTS), random.below(ACCOUNTS), random.below(10) + 1);
    env.transact(|txn| {
        let accounts = txn.bytes("accounts")?;
        for (no, by) in [(from, amount.wrapping_neg()), (to, amount)] {
            let key = no.to_be_bytes();
            let balance = accounts.get_for_update(&key)?.map_or(0, |value| number(&value));
            accounts.put(&key, &balance.wrapping_add(by).to_be_bytes())?;
        }
        let count = txn.bytes_or_create("counts")?;
        let mine = std::process::id().to_be_bytes();
        let so_far = count.get_for_update(&mine)?.map_or(0, |value| number(&value));
        count.put(&mine, &(so_far + 1).to_be_bytes())
    })
}

/// A process has been told so often that it has committed. What is in a file of memory outlives it.
fn acknowledge(dir: &Path, count: u64) {
    std::fs::write(dir.join(format!("told-{}", std::process::id())), count.to_be_bytes()).unwrap();
}

/// All that processes were told has been committed, and at most one transaction more of each.
fn check_acknowledged(dir: &Path, env: &Environment) {
    for file in std::fs::read_dir(dir).unwrap() {
        let file = file.unwrap();
        let name = file.file_name().into_string().unwrap();
        let Some(pid) = name.strip_prefix("told-").and_then(|pid| pid.parse::<u32>().ok()) else { continue };
        let Ok(told) = <[u8; 8]>::try_from(std::fs::read(file.path()).unwrap()) else { continue }; // Killed just there.
        let told = u64::from_be_bytes(told);
        let count = env.transact(|txn| txn.bytes("counts")?.get(&pid.to_be_bytes())).unwrap();
        let count = count.map_or(0, |value| number(&value));
        assert!((told..=told + 1).contains(&count), "process {pid} was told {told}, and has committed {count}");
    }
}

fn long(of: u8) -> Vec<u8> {
    vec![of; 30_000]
}

/// Each process notes for itself since when something may be freed. Its notes say nothing of what comes to the same
/// page later.
#[test]
fn what_is_dropped_stays_for_snapshots_whoever_frees_it() {
    let dir = dir_in_memory();
    let (first, second) = (open(dir.path()), open(dir.path()));
    let (first_, second_) = (&first, &second);
    let put = |env: &Environment, key: &[u8], of: u8| env.transact(|txn| txn.bytes_or_create("a")?.put(key, &long(of)));
    let drop = |env: &Environment, key: &[u8]| env.transact(|txn| txn.bytes("a")?.delete(key).map(std::mem::drop));
    for round in 0..20_u8 {
        let key = [round];
        put(first_, &key, round).unwrap();
        let held = second.snapshot().unwrap();
        drop(first_, &key).unwrap();
        first.reclaim().unwrap(); // Notes it, and may not free it yet.
        assert_eq!(held.bytes("a").unwrap().get(&key).unwrap(), Some(long(round)));
        held.commit().unwrap();
        second.reclaim().unwrap(); // Frees it.
        second.reclaim().unwrap();
        put(second_, &key, round + 100).unwrap(); // On the same pages, perhaps.
        let held = second.snapshot().unwrap();
        drop(second_, &key).unwrap();
        first.reclaim().unwrap();
        put(first_, b"other", round).unwrap();
        assert_eq!(held.bytes("a").unwrap().get(&key).unwrap(), Some(long(round + 100)), "round {round}");
        held.commit().unwrap();
    }
    assert!(first.verify().unwrap().problems.is_empty());
}

/// A process notes which leaves of a tree have become empty. Another one may take the tree apart.
#[test]
fn leaves_noted_as_empty_are_none_of_a_tree_that_another_process_has_freed() {
    let dir = dir_in_memory();
    let (first, second) = (open(dir.path()), open(dir.path()));
    for round in 0..20_u64 {
        let fill = |env: &Environment, table: &str| {
            env.transact(|txn| {
                let table = txn.bytes_or_create(table)?;
                (0..400_u64).try_for_each(|no| table.put(&no.to_be_bytes(), &[round as u8; 100]))
            })
            .unwrap();
        };
        fill(&first, "a");
        let held = second.snapshot().unwrap(); // So that the ghosts stay.
        first.transact(|txn| txn.bytes("a")?.delete_range(..).map(drop)).unwrap();
        first.reclaim().unwrap();
        held.commit().unwrap();
        second.transact(|txn| txn.drop_table("a")).unwrap();
        second.reclaim().unwrap();
        second.reclaim().unwrap();
        fill(&second, "b");
        first.reclaim().unwrap();
        let count = second.transact(|txn| Ok(txn.bytes("b")?.range(..)?.count())).unwrap();
        assert_eq!(count, 400, "round {round}");
        let report = second.verify().unwrap();
        assert!(report.problems.is_empty(), "round {round}: {:?}", report.problems);
        second.transact(|txn| txn.drop_table("b")).unwrap();
    }
}

/// What is found by a name is asked again when another process has changed any table.
#[test]
fn a_table_that_a_transaction_has_made_is_found_again_after_another_process_has_dropped_one() {
    let dir = dir_in_memory();
    let (first, second) = (open(dir.path()), open(dir.path()));
    second.transact(|txn| txn.create_table("other").map(drop)).unwrap();
    let txn = first.begin().unwrap();
    txn.create_table("own").unwrap().put(b"key", b"value").unwrap();
    second.transact(|txn| txn.drop_table("other")).unwrap();
    assert_eq!(txn.bytes("own").unwrap().get(b"key").unwrap().as_deref(), Some(&b"value"[..]));
    txn.commit().unwrap();
}

/// A process may know a table twice, when others have told it of changes meanwhile. Its own change ends both.
#[test]
fn a_handle_that_has_asked_again_learns_what_its_own_process_changes() {
    let dir = dir_in_memory();
    let (first, second) = (open(dir.path()), open(dir.path()));
    let index = ledgerstone::IndexDef::new("by value", ledgerstone::IndexKeys::Value);
    first.transact(|txn| txn.create_table("a")?.put(b"key", b"value")).unwrap();
    let kept = first.table("a").unwrap();
    let level = TransactionOptions { isolation: Some(Isolation::ReadCommitted), ..TransactionOptions::default() };
    let unlocked = first.begin_with(level).unwrap();
    let handle = kept.of(&unlocked).unwrap();
    second.transact(|txn| txn.create_table("other").map(drop)).unwrap();
    second.transact(|txn| txn.drop_table("other")).unwrap();
    first.transact(|txn| txn.bytes("a").map(drop)).unwrap(); // Knows it anew.
    handle.put(b"key", b"again").unwrap(); // Has asked again.
    unlocked.commit().unwrap();
    first.transact(|txn| txn.create_index("a", &index)).unwrap();
    first.transact(|txn| kept.put(txn, b"other key", b"other")).unwrap();
    let found = first.transact(|txn| txn.bytes("a")?.index("by value")?.get(b"other")).unwrap();
    assert_eq!(found, Some((b"other key".to_vec(), b"other".to_vec())));
}

/// A handle that is closed takes nobody with it: a checkpoint of its clone ends first, or is refused.
#[test]
fn who_leaves_during_a_checkpoint_of_its_own_hurts_nobody() {
    let dir = dir_in_memory();
    let env = open(dir.path());
    for round in 0..100_u64 {
        let leaving = open(dir.path());
        let clone = leaving.clone();
        std::thread::scope(|scope| {
            scope.spawn(move || while clone.checkpoint().is_ok() {});
            env.transact(|txn| txn.bytes_or_create("a")?.put(round.to_be_bytes(), [0; 500])).unwrap();
            leaving.close().unwrap();
        });
        env.transact(|txn| txn.bytes("a")?.get(round.to_be_bytes()).map(drop)).unwrap();
        assert!(!env.is_failed(), "round {round}");
    }
}

/// A process remembers that the front of a queue is dead. Another one puts something there.
#[test]
fn a_queue_is_taken_from_and_put_to_by_several() {
    let dir = dir_in_memory();
    let (first, second) = (open(dir.path()), open(dir.path()));
    first
        .transact(|txn| (100..400_u64).try_for_each(|no| txn.bytes_or_create("q")?.put(&no.to_be_bytes(), b"x")))
        .unwrap();
    let held = first.snapshot().unwrap(); // The ghosts stay.
    for no in 100..300_u64 {
        let popped = first.transact(|txn| txn.bytes("q")?.pop_first()).unwrap();
        assert_eq!(popped.map(|(key, _)| key), Some(no.to_be_bytes().to_vec()));
    }
    for no in [150_u64, 20] {
        second.transact(|txn| txn.bytes("q")?.put(&no.to_be_bytes(), b"y")).unwrap();
        let seen = first.transact(|txn| txn.bytes("q")?.first()).unwrap();
        assert_eq!(seen.map(|(key, _)| key), Some(no.to_be_bytes().to_vec()));
    }
    // What a serializable transaction has seen to be empty stays empty until it ends.
    let reads = first.begin().unwrap();
    assert_eq!(reads.bytes("q").unwrap().first().unwrap().map(|(key, _)| key), Some(20_u64.to_be_bytes().to_vec()));
    let refused = second.transact_with(
        TransactionOptions { lock_timeout: Some(Duration::from_millis(50)), ..TransactionOptions::default() },
        |txn| txn.bytes("q")?.put(&10_u64.to_be_bytes(), b"z"),
    );
    assert!(matches!(refused, Err(Error::LockTimeout { .. })), "{refused:?}");
    reads.commit().unwrap();
    held.commit().unwrap();
}

#[test]
fn a_global_id_is_given_once_whichever_process_prepares() {
    let dir = dir_in_memory();
    let (first, second) = (open(dir.path()), open(dir.path()));
    let begin = |env: &Environment, key: &[u8]| {
        let txn = env.begin().unwrap();
        txn.bytes_or_create("a").unwrap().put(key, b"value").unwrap();
        txn
    };
    first.transact(|txn| txn.bytes_or_create("a").map(drop)).unwrap();
    let prepared = begin(&first, b"first").prepare(b"id").unwrap();
    let refused = begin(&second, b"second").prepare(b"id");
    assert!(matches!(refused, Err(Error::AlreadyPrepared { .. })), "{refused:?}");
    prepared.commit().unwrap();
    begin(&second, b"second").prepare(b"id").unwrap().abort().unwrap();
    let keys = second.transact(|txn| Ok(txn.bytes("a")?.range(..)?.count())).unwrap();
    assert_eq!(keys, 1);
}

/// A process dies that has prepared. Another one is being refused the same global id, and rolls back for long.
#[test]
fn a_global_id_comes_to_the_one_that_mends_while_a_thread_of_its_is_refused_it() {
    let dir = dir_in_memory();
    let dir = dir.path();
    let env = open(dir);
    env.transact(|txn| txn.bytes_or_create("a").map(drop)).unwrap();
    let mut other = Other::start("prepares", dir);
    other.hear("has prepared");
    let txn = env.begin().unwrap();
    let table = txn.bytes("a").unwrap();
    // Few locks, and much to undo.
    (0..20_000_u64).for_each(|no| table.put(&(no % 500).to_be_bytes(), &no.to_be_bytes()).unwrap());
    drop(table);
    other.kill();
    assert!(matches!(txn.prepare(b"id"), Err(Error::AlreadyPrepared { .. })));
    within_patience(|| env.is_failed() || env.in_doubt().len() == 1);
    sync::sleep_ns(50_000_000);
    assert!(!env.is_failed());
    env.commit_in_doubt(b"id").unwrap();
    let got = env.transact(|txn| txn.bytes("a")?.get(b"prepared")).unwrap();
    assert_eq!(got.as_deref(), Some(&b"value"[..]));
    env.close().unwrap();
}

#[test]
fn a_named_feed_is_one_in_all_processes() {
    let dir = dir_in_memory();
    let (first, second) = (open(dir.path()), open(dir.path()));
    let put = |env: &Environment, key: u64| {
        env.transact(|txn| txn.bytes_or_create("a")?.put(&key.to_be_bytes(), b"value")).unwrap();
    };
    put(&first, 0);
    drop(first.named_changes("feed").unwrap()); // It begins here.
    for round in 1..6 {
        put(&first, round);
        // Each goes on where the other has come to.
        let env = if round % 2 == 0 { &first } else { &second };
        let mut feed = env.named_changes("feed").unwrap();
        let committed = feed.next().unwrap().unwrap();
        let keys: Vec<_> = committed.changes().map(|change| format!("{change:?}")).collect();
        assert!(keys.len() == 1 && keys[0].contains(&format!("0, {round}]")), "{round}: {keys:?}");
        let position = feed.position();
        feed.acknowledge(position).unwrap();
        assert!(feed.next().unwrap().is_none());
    }
    assert!(first.forget_changes("feed").unwrap());
    assert!(!second.forget_changes("feed").unwrap());
}

#[test]
fn the_archive_goes_on_when_another_process_leads() {
    let dir = dir_in_memory();
    let dir = dir.path();
    let open = || {
        options(dir).log_segment_bytes(64 << 10).archive_dir(dir.join("archive")).open(dir.join("environment")).unwrap()
    };
    let (first, second) = (open(), open());
    let fill = |env: &Environment, of: u8| {
        env.transact(|txn| {
            (0..200_u64).try_for_each(|no| txn.bytes_or_create("a")?.put(&no.to_be_bytes(), &[of; 500]))
        })
        .unwrap();
    };
    fill(&first, 1);
    first.archive_now().unwrap();
    first.close().unwrap();
    within_patience(|| second.processes().iter().all(|process| process.leads));
    fill(&second, 2);
    second.checkpoint().unwrap();
    fill(&second, 3);
    // It leads, and gets its keepers a little later.
    within_patience(|| match second.archive_now() {
        Err(Error::NoArchive) => false,
        archived => archived.is_ok(),
    });
    second.backup(dir.join("saved"), ledgerstone::BackupOptions::default()).unwrap();
    fill(&second, 4);
    second.close().unwrap();
    let archived = ledgerstone::ArchiveDirectory::open(dir.join("archive")).unwrap();
    archived.verify().unwrap();
}

/// Who takes the lead cannot reach the archive at that moment.
#[test]
fn who_leads_does_its_work_when_the_archive_is_out_of_reach_and_copies_when_it_is_back() {
    let dir = dir_in_memory();
    let dir = dir.path();
    let (archive, away) = (dir.join("archive"), dir.join("away"));
    let open = || options(dir).log_segment_bytes(64 << 10).archive_dir(&archive).open(dir.join("environment")).unwrap();
    let (first, second) = (open(), open());
    let fill = |env: &Environment, of: u8| {
        env.transact(|txn| {
            (0..200_u64).try_for_each(|no| txn.bytes_or_create("a")?.put(&no.to_be_bytes(), &[of; 500]))
        })
        .unwrap();
    };
    fill(&first, 1);
    first.archive_now().unwrap();
    std::fs::rename(&archive, &away).unwrap();
    std::fs::write(&archive, b"not a directory").unwrap();
    first.close().unwrap();
    within_patience(|| second.processes().iter().all(|process| process.leads));
    let before = second.stat().unwrap().checkpoint_count;
    (0..10).for_each(|round| fill(&second, round));
    within_patience(|| second.stat().unwrap().checkpoint_count > before); // The housekeeper is there.
    std::fs::remove_file(&archive).unwrap();
    std::fs::rename(&away, &archive).unwrap();
    within_patience(|| second.archive_now().is_ok());
    fill(&second, 11);
    second.close().unwrap();
    ledgerstone::ArchiveDirectory::open(&archive).unwrap().verify().unwrap();
}

/// All have `sharing` locked. Without it, whoever wants the environment alone would get it.
#[test]
fn the_file_that_all_have_locked_is_made_again_when_somebody_removes_it() {
    let dir = dir_in_memory();
    let dir = dir.path();
    let place = dir.join("environment");
    let (first, second) = (open(dir), open(dir));
    for _ in 0..2 {
        std::fs::remove_file(place.join("sharing")).unwrap();
        first.checkpoint().unwrap();
        second.checkpoint().unwrap();
        assert!(Environment::is_shared(&place).unwrap());
        assert!(matches!(Environment::options().open(&place), Err(Error::AlreadyOpen { .. })));
        open(dir).close().unwrap();
    }
    std::fs::remove_file(place.join("sharing")).unwrap();
    first.close().unwrap();
    second.close().unwrap();
    assert_eq!(regions(dir), 0);
    let alone = Environment::options().cache_bytes(1 << 20).open(&place).unwrap();
    assert!(alone.recovery_report().was_clean);
}

/// A copy of the directory says in `lock` that it is shared, too: a snapshot of the file system, for example.
#[test]
fn a_copy_of_a_shared_environment_is_another_one() {
    let dir = dir_in_memory();
    let dir = dir.path();
    let (place, copy) = (dir.join("environment"), dir.join("copy"));
    let put = |env: &Environment, value: &str| {
        env.transact(|txn| txn.bytes_or_create("a")?.put(b"key", value.as_bytes())).unwrap();
    };
    let get = |env: &Environment| env.transact(|txn| txn.bytes("a")?.get(b"key")).unwrap();
    let first = open(dir);
    put(&first, "before");
    let copied = std::process::Command::new("cp").arg("-r").args([&place, &copy]).status().unwrap();
    assert!(copied.success());
    put(&first, "in the original");
    let other = options(dir).open(&copy).unwrap();
    assert_eq!(get(&other).as_deref(), Some(&b"before"[..]));
    put(&other, "in the copy");
    assert_eq!(get(&first).as_deref(), Some(&b"in the original"[..]));
    assert_eq!((first.processes().len(), other.processes().len()), (1, 1));
    open(dir).close().unwrap(); // Its memory is still there to be joined.
    options(dir).open(&copy).unwrap().close().unwrap();
    assert_eq!(regions(dir), 4);
    other.close().unwrap();
    first.close().unwrap();
    assert_eq!(regions(dir), 0);
    for (place, value) in [(&place, "in the original"), (&copy, "in the copy")] {
        let env = options(dir).open(place).unwrap();
        assert!(env.recovery_report().was_clean);
        assert_eq!(get(&env).as_deref(), Some(value.as_bytes()));
    }
}

/// Somebody who has it alone since, because the file was missing, is not written over.
#[test]
fn it_fails_when_another_has_come_in_because_the_file_that_all_have_locked_was_removed() {
    let dir = dir_in_memory();
    let dir = dir.path();
    let place = dir.join("environment");
    let (first, second) = (open(dir), open(dir));
    std::fs::remove_file(place.join("sharing")).unwrap();
    let alone = ledgerstone_disk::FileDisk::new(&place);
    let alone = ledgerstone_disk::Disk::lock(&alone, "lock").unwrap();
    let refused = first.checkpoint().unwrap_err();
    assert!(matches!(&refused, Error::AlreadyOpen { .. } | Error::Failed { .. }), "{refused}");
    within_patience(|| second.transact(|txn| txn.bytes_or_create("a").map(drop)).is_err());
    drop(alone);
    drop((first, second));
    open(dir).close().unwrap();
}

/// One that cannot say that it leaves does not stay in the way of the others.
#[test]
fn one_that_leaves_without_its_turn_is_gone() {
    let dir = dir_in_memory();
    let dir = dir.path();
    let (lock, away) = (dir.join("environment/lock"), dir.join("away"));
    let (first, second) = (open(dir), open(dir));
    first.transact(|txn| txn.bytes_or_create("a")?.put(b"key", b"value")).unwrap();
    let table = first.table("a").unwrap();
    std::fs::rename(&lock, &away).unwrap();
    assert!(matches!(first.close(), Err(Error::LockFileMissing { .. })));
    std::fs::rename(&away, &lock).unwrap();
    drop(table);
    second.transact(|txn| txn.bytes("a")?.put(b"key", b"later")).unwrap();
    second.close().unwrap();
    assert_eq!(regions(dir), 0, "the last one has removed them");
    let again = open(dir);
    assert!(again.recovery_report().was_clean);
    assert_eq!(again.transact(|txn| txn.bytes("a")?.get(b"key")).unwrap().as_deref(), Some(&b"later"[..]));
}

/// Who looks whether the environment is shared has `sharing` for a moment, which may be a long one on a busy machine.
#[test]
fn one_that_only_looks_keeps_nobody_out_after_a_crash_of_all() {
    let dir = dir_in_memory();
    let dir = dir.path();
    let place = dir.join("environment");
    open(dir).close().unwrap();
    for name in ["/nowhere/ledgerstone-0123456789abcdef0123456789abcdef.region", "/nowhere/of another kind"] {
        let mut text = format!("shared in {name}\n").into_bytes();
        text.resize(4096, b'\n');
        std::fs::write(place.join("lock"), text).unwrap();
        let disk = ledgerstone_disk::FileDisk::new(&place);
        let looks = ledgerstone_disk::Disk::lock(&disk, "sharing").unwrap();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                sync::sleep_ns(200_000_000);
                drop(looks);
            });
            open_result(dir).unwrap().close().unwrap();
        });
    }
}

#[test]
fn programs_that_have_registered_something_else_are_refused() {
    let dir = dir_in_memory();
    let dir = dir.path();
    let with = |name: &str| options(dir).index_extractor(name, |_, _, _| Ok(())).open(dir.join("environment"));
    let env = with("one").unwrap();
    let refused = open_result(dir).unwrap_err().to_string();
    assert!(refused.contains("this program has not registered extractor \"one\""), "{refused}");
    let refused = with("another").unwrap_err().to_string();
    assert!(refused.contains("\"one\""), "{refused}");
    let same = with("one").unwrap();
    same.close().unwrap();
    env.close().unwrap();
    open(dir).close().unwrap();
}

#[test]
fn without_memory_the_opening_is_refused_and_nothing_is_left() {
    let dir = dir_in_memory();
    let dir = dir.path();
    let huge = options(dir).cache_bytes(1 << 43).open(dir.join("environment"));
    assert!(matches!(huge, Err(Error::Memory(_))), "{huge:?}");
    assert_eq!(regions(dir), 0);
    let nowhere = options(dir).region_dir(dir.join("nowhere")).open(dir.join("environment"));
    assert!(matches!(nowhere, Err(Error::CannotShare { .. })), "{nowhere:?}");
    open(dir).close().unwrap();
}

/// Those that come later may work in another directory.
#[test]
fn a_relative_directory_of_the_memory_is_told_as_an_absolute_one() {
    let dir = dir_in_memory();
    let dir = dir.path();
    let relative = format!("{}{}", "../".repeat(30), dir.join("regions").strip_prefix("/").unwrap().display());
    let env = options(dir).region_dir(relative).open(dir.join("environment")).unwrap();
    let told = std::fs::read_to_string(dir.join("environment/lock")).unwrap();
    assert!(told.starts_with("shared in /"), "{told}");
    open(dir).close().unwrap();
    env.close().unwrap();
    assert_eq!(regions(dir), 0);
}

/// As in a container with a memory of its own.
#[test]
fn who_does_not_see_the_memory_of_others_does_not_open_the_environment() {
    let dir = dir_in_memory();
    let dir = dir.path();
    let env = open(dir);
    let away = dir.join("away");
    std::fs::rename(dir.join("regions"), &away).unwrap();
    let refused = open_result(dir);
    assert!(matches!(refused, Err(Error::CannotShare { .. })), "{refused:?}");
    std::fs::remove_dir(dir.join("regions")).unwrap();
    std::fs::rename(&away, dir.join("regions")).unwrap();
    open(dir).close().unwrap();
    env.close().unwrap();
}

/// What other clones of the handle are doing just then ends first, or not at all.
#[test]
fn who_leaves_while_a_clone_compacts_or_frees_hurts_nobody() {
    let dir = dir_in_memory();
    let dir = dir.path();
    let stays = open(dir);
    for round in 0..20_u64 {
        let leaves = open(dir);
        leaves
            .transact(|txn| {
                (0..300_u64).try_for_each(|no| txn.bytes_or_create("a")?.put(&no.to_be_bytes(), &long(1)[..2000]))
            })
            .unwrap();
        leaves.transact(|txn| txn.drop_table("a")).unwrap();
        let clone = leaves.clone();
        let works = std::thread::spawn(move || {
            for _ in 0..50 {
                let done = if round % 2 == 0 { clone.compact().map(drop) } else { clone.reclaim() };
                if done.is_err() {
                    break; // It was closed.
                }
            }
        });
        sync::sleep_ns(round * 300_000);
        let closed = leaves.close();
        works.join().unwrap();
        assert!(!stays.is_failed(), "round {round}, {closed:?}: {:?}", stays.checkpoint());
        stays.transact(|txn| txn.bytes_or_create("b")?.put(&round.to_be_bytes(), b"value")).unwrap();
    }
    assert!(stays.verify().unwrap().problems.is_empty());
}

/// Its last record is that of the opening, which the others cannot read as they read theirs.
#[test]
fn the_first_one_dies_before_it_has_done_anything() {
    let dir = dir_in_memory();
    let dir = dir.path();
    open(dir).close().unwrap(); // So that there is an incarnation before.
    let mut first = Other::start("idles", dir);
    first.hear("has it open");
    let env = open(dir);
    first.kill();
    within_patience(|| env.processes().len() == 1);
    within_patience(|| env.processes().iter().all(|process| process.leads));
    env.transact(|txn| txn.bytes_or_create("a")?.put(b"key", b"value")).unwrap();
    env.close().unwrap();
}

/// Not a test, unless another one has started this process.
#[test]
fn the_other_process() {
    let Some((role, dir)) = role() else { return };
    let env = open(&dir);
    println!("has it open");
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = Random::new(u64::from(std::process::id()));
            let mut count = 0_u64;
            while !ends.load(SeqCst) {
                match role.as_str() {
                    "idles" => sync::sleep_ns(1_000_000),
                    "prepares" if count == 0 => {
                        let txn = env.begin().unwrap();
                        txn.bytes("a").unwrap().put(b"prepared", b"value").unwrap();
                        txn.prepare(b"id").unwrap();
                        println!("has prepared");
                    }
                    "prepares" => sync::sleep_ns(1_000_000),
                    "moves" => transfer(&env, &mut random).unwrap(),
                    _ => {
                        let name = format!("table {}", random.below(4));
                        let _ = env.transact(|txn| txn.bytes_or_create(&name)?.put(b"key", &count.to_be_bytes()));
                        let _ = env.transact(|txn| txn.drop_table(&name));
                    }
                }
                count += 1;
                if role == "moves" {
                    acknowledge(&dir, count);
                }
            }
        });
        listen();
        ends.store(true, SeqCst);
    });
    env.close().unwrap();
}

#[test]
fn processes_are_killed_while_they_share_it_and_the_others_go_on() {
    let rounds = std::env::var("ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(20);
    let dir = dir_in_memory();
    let dir = dir.path();
    let mut env = open(dir);
    let fill = |txn: &ledgerstone::Transaction| {
        let accounts = txn.bytes_or_create("accounts")?;
        (0..ACCOUNTS).try_for_each(|no| accounts.put(&no.to_be_bytes(), &BALANCE.to_be_bytes()))
    };
    env.transact(fill).unwrap();
    let start = |role: &str| {
        let mut other = Other::start(role, dir);
        other.hear("has it open");
        other
    };
    // A snapshot from before a death may be too old afterwards: versions that the dead had in hand are lost.
    let counts = |env: &Environment| -> u64 {
        let add = |sum: u64, record: Result<(Vec<u8>, Vec<u8>), Error>| Ok(sum + number(&record?.1));
        let snapshot = TransactionOptions { isolation: Some(Isolation::Snapshot), ..TransactionOptions::default() };
        let count = |txn: &ledgerstone::Transaction| txn.bytes_or_create("counts")?.range(..)?.try_fold(0, add);
        loop {
            match env.transact_with(snapshot, count) {
                Err(Error::SnapshotTooOld { .. }) => {}
                count => return count.unwrap(),
            }
        }
    };
    let check = |env: &Environment| {
        let add = |sum: u64, record: Result<(Vec<u8>, Vec<u8>), Error>| Ok(sum.wrapping_add(number(&record?.1)));
        let sum = env.transact(|txn| txn.bytes("accounts")?.range(..)?.try_fold(0, add)).unwrap();
        assert_eq!(sum, ACCOUNTS * BALANCE);
        check_acknowledged(dir, env);
        let report = env.verify().unwrap();
        assert!(report.problems.is_empty(), "{:?}", report.problems);
    };
    let mut others = vec![start("moves"), start("moves"), start("drops")];
    let mut random = Random::new(7);
    for round in 0..rounds {
        let before = counts(&env);
        within_patience(|| counts(&env) > before + 5);
        sync::sleep_ns(random.below(20_000_000));
        let victim = random.below(others.len() as u64) as usize;
        let role = if victim == 2 { "drops" } else { "moves" };
        if round % 5 == 4 {
            // All go on without the one that has led them so far.
            env.close().unwrap();
            env = open(dir);
        }
        if round % 7 == 6 {
            // All that have it are killed at once: whoever comes next recovers.
            env.close().unwrap();
            others.iter_mut().for_each(Other::kill);
            others.clear();
            env = open(dir);
            check(&env);
            others = vec![start("moves"), start("moves"), start("drops")];
            continue;
        }
        others[victim].kill();
        let before = counts(&env);
        within_patience(|| counts(&env) > before + 5);
        others[victim] = start(role);
        assert!(!env.is_failed(), "round {round}");
    }
    others.drain(..).for_each(Other::end);
    check(&env);
    env.close().unwrap();
    assert_eq!(regions(dir), 0);
    let again = open(dir);
    assert!(again.recovery_report().was_clean);
}

/// A transaction opens again what it has made, after another process has dropped something else.
#[test]
fn a_transaction_finds_its_own_tables_whatever_another_process_has_dropped() {
    let dir = dir_in_memory();
    let (first, second) = (open(dir.path()), open(dir.path()));
    for isolation in Isolation::ALL {
        // Others are made before, behind a name that stays: nobody is kept waiting for a gap.
        let others = ["zy", "zz0", "zz1", "zz2", "zz3"];
        others.iter().for_each(|name| second.transact(|txn| txn.bytes_or_create(name).map(drop)).unwrap());
        let left = std::cell::Cell::new(0);
        let drop_another = || {
            second.transact(|txn| txn.drop_table(&format!("zz{}", left.get()))).unwrap();
            left.set(left.get() + 1);
        };
        first.transact(|txn| txn.bytes_or_create("changed")?.put(b"key", b"old")).unwrap();
        let ended = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let began_ns = sync::now_ns();
                while !ended.load(SeqCst) {
                    if sync::now_ns() - began_ns > 60_000_000_000 {
                        eprintln!("{isolation}: it looks for ever");
                        std::process::exit(1); // It would not end otherwise.
                    }
                    sync::sleep_ns(1_000_000);
                }
            });
            let with = TransactionOptions { isolation: Some(isolation), ..TransactionOptions::default() };
            let txn = first.begin_with(with).unwrap();
            let made = txn.bytes_or_create("made").unwrap();
            made.put(b"key", b"value").unwrap();
            txn.rename_table("changed", "renamed").unwrap();
            drop_another();
            assert_eq!(txn.bytes("made").unwrap().get(b"key").unwrap().as_deref(), Some(&b"value"[..]));
            assert_eq!(txn.bytes("renamed").unwrap().get(b"key").unwrap().as_deref(), Some(&b"old"[..]));
            assert!(matches!(txn.bytes("changed"), Err(Error::NoSuchTable(_))));
            drop_another();
            made.put(b"key", b"later").unwrap();
            drop_another();
            assert_eq!(txn.bytes_or_create("made").unwrap().get(b"key").unwrap().as_deref(), Some(&b"later"[..]));
            txn.drop_table("renamed").unwrap();
            drop_another();
            assert!(matches!(txn.bytes("renamed"), Err(Error::NoSuchTable(_))));
            txn.drop_table("made").unwrap();
            txn.commit().unwrap();
            ended.store(true, SeqCst);
        });
    }
}
