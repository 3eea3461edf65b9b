//! Real processes in one region: what they find there, whom they wake, and how their deaths are noticed.
#![cfg(not(any(loom, miri)))]
#![forbid(unsafe_code)]

use std::fs;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Barrier};

use ledgerstone_region::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};
use ledgerstone_region::{AnotherDied, Handle, Latch, MEMBERS_MAX, Members, Region, RegionError, SlotTable, sync};
use ledgerstone_testkit::other::{Other, PATIENCE, dir_in_memory, listen, role, within_patience};

const RESERVE_BYTES: u64 = 1 << 20;
const THREADS: u32 = 8;
/// What all of them have.
struct Own {
    region: Region,
    members: Arc<Members>,
    slots: SlotTable,
    latch: Handle<Latch>,
    word: Handle<AtomicU32>,
}

fn region_path(dir: &Path) -> PathBuf {
    dir.join("region")
}

impl Own {
    fn of(region: Region, dir: &Path) -> Result<Own, RegionError> {
        let members = Arc::new(Members::join(&region, &dir.join("locks"))?);
        let slots = SlotTable::place_among(Arc::clone(&members), &region, THREADS)?;
        let (latch, word) = (region.place_one("latch", 64)?, region.place_one("word", 64)?);
        Ok(Own { region, members, slots, latch, word })
    }

    fn create(dir: &Path) -> Own {
        Own::of(Region::create_at(&region_path(dir), RESERVE_BYTES).unwrap(), dir).unwrap()
    }

    fn join(dir: &Path) -> Own {
        Own::of(Region::join_at(&region_path(dir)).unwrap(), dir).unwrap()
    }
}

/// Not a test, unless another one has started this process.
#[test]
fn the_other_process() {
    let Some((role, dir)) = role() else { return };
    let dir = &*dir;
    match role.as_str() {
        "adds" => {
            let own = Own::join(dir);
            assert!(!own.region.is_made_here());
            own.word.fetch_add(1, SeqCst);
        }
        "waits" => {
            let own = Own::join(dir);
            println!("waits");
            while own.word.load(SeqCst) == 0 {
                let patience_ns = sync::nanoseconds(PATIENCE);
                assert!(sync::futex_wait(&own.word, 0, Some(patience_ns)), "nobody has woken it");
            }
            own.latch.exclusive(own.slots.current()).unwrap();
            own.word.fetch_add(1, SeqCst);
            own.latch.unlatch_exclusive();
        }
        "holds" => {
            let own = Own::join(dir);
            own.latch.exclusive(own.slots.current()).unwrap();
            let memory = vec![1_u8; 64 << 20]; // Taken down before the kernel gives up the locks.
            println!("holds");
            listen();
            drop(memory);
        }
        "has no slot" => {
            let _own = Own::join(dir);
            println!("is there");
            listen();
        }
        "has many slots" => {
            let own = Own::join(dir);
            with_slots(THREADS - 2, &own.slots).unwrap();
            listen();
        }
        "leaves" => {
            let own = Arc::new(Own::join(dir));
            let (took, goes_on) = (std::sync::mpsc::channel(), std::sync::mpsc::channel::<()>());
            let of_thread = Arc::clone(&own);
            let thread = std::thread::spawn(move || {
                let slot = of_thread.slots.current();
                drop(of_thread); // Before: the last one to have it leaves.
                took.0.send(slot).unwrap();
                let _ = goes_on.1.recv();
            });
            took.1.recv().unwrap();
            drop(Arc::into_inner(own).unwrap());
            println!("has left");
            listen();
            drop(goes_on.0);
            thread.join().unwrap();
        }
        "has another layout" => {
            let region = Region::join_at(&region_path(dir)).unwrap();
            let refused = region.place_one::<AtomicU64>("word", 64).unwrap_err();
            assert!(matches!(refused, RegionError::Differs { name: "word", .. }), "{refused}");
            let refused = SlotTable::place(&region, THREADS + 1).unwrap_err();
            assert!(matches!(refused, RegionError::Differs { name: "threads.slots", .. }), "{refused}");
        }
        other => panic!("no such role: {other}"),
    }
}

#[test]
fn one_process_finds_what_another_has_made_and_leaves_in_order() {
    let dir = dir_in_memory();
    let own = Own::create(dir.path());
    for count in 1..=3 {
        Other::start("adds", dir.path()).end();
        assert_eq!(own.word.load(SeqCst), count);
        assert_eq!(own.members.iter().collect::<Vec<_>>(), [own.members.no()], "whoever has left is not there");
    }
    Other::start("has another layout", dir.path()).end();
}

#[test]
fn a_sleeper_of_another_process_is_woken() {
    let dir = dir_in_memory();
    let own = Own::create(dir.path());
    own.latch.exclusive(own.slots.current()).unwrap();
    let mut other = Other::start("waits", dir.path());
    other.hear("waits");
    sync::sleep_ns(100_000_000); // Long enough to fall asleep; nothing depends on it.
    own.word.store(1, SeqCst);
    sync::futex_wake(&own.word, 1);
    own.latch.unlatch_exclusive();
    other.end();
    assert_eq!(own.word.load(SeqCst), 2);
}

#[test]
fn a_death_is_noticed_and_what_was_held_is_taken_over() {
    let dir = dir_in_memory();
    let own = Own::create(dir.path());
    let mut other = Other::start("holds", dir.path());
    other.hear("holds");
    let no = own.members.iter().find(|no| *no != own.members.no()).unwrap();
    assert_eq!(own.members.pid(no), Some(other.pid()));
    assert!(!own.members.is_dead(no) && !own.members.is_dead(own.members.no()));
    assert!(!own.slots.repair(|_| panic!("nobody is dead")).unwrap());

    other.kill();
    let noticed = within_patience(|| own.members.is_dead(no));
    println!("noticed after {noticed:?}");
    // Nobody has waited for it: to the system it is still a zombie.
    let me = own.slots.current();
    let repaired = own.slots.repair(|dead| {
        assert_eq!(dead.slots().len(), 1);
        dead.latch(&own.latch, me)?;
        own.latch.unlatch_exclusive();
        Ok::<(), AnotherDied>(())
    });
    assert!(repaired.unwrap());
    assert!(own.latch.is_free());
    assert_eq!(own.members.iter().collect::<Vec<_>>(), [own.members.no()], "its number is free again");
    Other::start("adds", dir.path()).end();
}

#[test]
fn a_process_that_had_no_slot_is_buried_too() {
    let dir = dir_in_memory();
    let own = Own::create(dir.path());
    let mut other = Other::start("has no slot", dir.path());
    other.hear("is there");
    other.kill();
    within_patience(|| {
        own.slots.repair(|_| panic!("it has left nothing")).unwrap();
        own.members.iter().count() == 1
    });
}

/// T7: its slots are for others at once, and its thread does not give back what is theirs by then.
#[test]
fn a_process_that_leaves_gives_back_the_slots_of_threads_that_go_on() {
    let dir = dir_in_memory();
    let own = Own::create(dir.path());
    let mut other = Other::start("leaves", dir.path());
    other.hear("has left");
    assert_eq!(own.slots.iter_used().count(), 0);
    let mut next = Other::start("holds", dir.path());
    next.hear("holds");
    let used: Vec<_> = own.slots.iter_used().map(|(no, _)| no).collect();
    other.end();
    assert_eq!(own.slots.iter_used().map(|(no, _)| no).collect::<Vec<_>>(), used);
    assert_eq!(used.len(), 1);
    next.end();
}

/// Has so many threads take a slot at once.
fn with_slots(count: u32, slots: &SlotTable) -> Result<(), RegionError> {
    let all_have = Barrier::new(count as usize);
    std::thread::scope(|scope| {
        let take = || {
            let taken = slots.try_current();
            all_have.wait();
            taken
        };
        let threads: Vec<_> = (0..count).map(|_| scope.spawn(take)).collect();
        threads.into_iter().try_for_each(|thread| thread.join().unwrap().map(drop))
    })
}

/// T7: no slot stays with a number that nobody has any more.
#[test]
fn whoever_stays_has_the_slots_of_those_that_have_left() {
    let dir = dir_in_memory();
    let own = Own::create(dir.path());
    with_slots(2, &own.slots).unwrap();
    for _ in 0..2 {
        Other::start("has many slots", dir.path()).end();
    }
    with_slots(THREADS, &own.slots).unwrap();
}

/// M6: nobody is taken for dead who leaves while somebody looks, and comes back by the same number and pid.
#[test]
fn whoever_leaves_and_comes_back_is_not_dead() {
    let dir = dir_in_memory();
    let own = Own::create(dir.path());
    let comes = own.members.no() + 1;
    let region = Region::join_at(&region_path(dir.path())).unwrap();
    std::thread::scope(|scope| {
        let looker = scope.spawn(|| (0..3000).any(|_| own.members.is_dead(comes)));
        while !looker.is_finished() {
            drop(Members::join(&region, &dir.path().join("locks")).unwrap());
        }
        assert!(!looker.join().unwrap());
    });
    assert_eq!(own.members.iter().count(), 1);
}

#[test]
fn so_many_processes_and_no_more_have_a_number() {
    let dir = dir_in_memory();
    let own = Own::create(dir.path());
    let region = Region::join_at(&region_path(dir.path())).unwrap();
    let join = || Members::join(&region, &dir.path().join("locks"));
    let mut all: Vec<Members> = (1..MEMBERS_MAX).map(|_| join().unwrap()).collect();
    assert_eq!(join().unwrap_err(), RegionError::TooManyProcesses { max: MEMBERS_MAX });
    assert_eq!(all[16].no(), 17);
    drop(all.remove(16));
    assert_eq!(join().unwrap().no(), 17);
    assert!(own.members.iter().all(|no| !own.members.is_dead(no)));
    assert!(!own.members.is_dead(MEMBERS_MAX) && own.members.pid(MEMBERS_MAX).is_none());
    own.members.bury(3);
    assert_eq!(own.members.iter().count(), MEMBERS_MAX as usize - 1, "the living are not buried");
}

/// M7: in another lock file nobody has locked anything.
#[test]
fn another_lock_file_is_refused() {
    let dir = dir_in_memory();
    let own = Own::create(dir.path());
    let region = || Region::join_at(&region_path(dir.path())).unwrap();
    let refused = Members::join(&region(), &dir.path().join("others")).unwrap_err();
    assert!(matches!(refused, RegionError::OtherLockFile { .. }), "{refused}");
    fs::remove_file(dir.path().join("locks")).unwrap();
    let refused = Members::join(&region(), &dir.path().join("locks")).unwrap_err();
    assert!(matches!(refused, RegionError::OtherLockFile { .. }), "{refused}");
    assert!(!own.members.is_dead(own.members.no()));
}

#[test]
fn files_that_others_may_open_are_refused() {
    let dir = dir_in_memory();
    let (path, locks) = (region_path(dir.path()), dir.path().join("others"));
    let _own = Own::create(dir.path());
    let region = Region::join_at(&path).unwrap();
    let refusals = |path: &Path, locks: &Path| {
        let joined = Region::join_at(path).err();
        [joined, Members::join(&region, locks).err()].map(|refused| format!("{refused:?}"))
    };
    fs::write(&locks, "").unwrap();
    for mode in [0o640, 0o606, 0o601, 0o620] {
        for path in [&path, &locks] {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        }
        let refused = refusals(&path, &locks);
        assert!(refused.iter().all(|refused| refused.contains("NotOurs")), "{mode:o}: {refused:?}");
    }
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    assert!(Region::join_at(&path).is_ok());
    let link = dir.path().join("link");
    symlink(&path, &link).unwrap();
    let refused = refusals(&link, &link);
    assert!(refused.iter().all(|refused| refused.contains("errno: 40")), "{refused:?}");
    let refused = refusals(Path::new("/dev/null"), Path::new("/dev/null"));
    assert!(refused.iter().all(|refused| refused.contains("NotOurs")), "{refused:?}");
}

/// What is not complete is not there.
#[test]
fn a_region_that_cannot_be_made_leaves_no_file() {
    let dir = dir_in_memory();
    let path = region_path(dir.path());
    for (reserve_bytes, is_mapped) in [(1 << 62, true), (u64::MAX, false), (i64::MAX as u64, true)] {
        let refused = Region::create_at(&path, reserve_bytes).unwrap_err();
        let is_refused_map = matches!(refused, RegionError::MapRefused { .. });
        assert!(
            is_refused_map == is_mapped || matches!(refused, RegionError::File { errno: 22 | 27, .. }),
            "{refused:?}"
        );
        assert!(!path.exists(), "{refused}");
    }
}

#[test]
fn to_find_out_what_a_file_is_takes_no_memory() {
    let dir = dir_in_memory();
    let path = region_path(dir.path());
    let file = fs::File::create(&path).unwrap();
    file.set_len(RESERVE_BYTES).unwrap();
    file.set_permissions(fs::Permissions::from_mode(0o600)).unwrap();
    assert!(matches!(Region::join_at(&path), Err(RegionError::NotARegion { .. })));
    assert_eq!(file.metadata().unwrap().blocks(), 0);
}

#[test]
fn a_process_that_is_stopped_is_not_dead() {
    let dir = dir_in_memory();
    let own = Own::create(dir.path());
    let mut other = Other::start("holds", dir.path());
    other.hear("holds");
    other.signal("-STOP");
    let no = own.members.iter().find(|no| *no != own.members.no()).unwrap();
    for _ in 0..20 {
        assert!(!own.members.is_dead(no));
        sync::sleep_ns(5_000_000);
    }
    assert!(own.latch.exclusive_within(own.slots.current(), 10_000_000).is_err(), "it keeps what it holds");
    other.signal("-CONT");
    other.tell();
    other.end();
}

/// Each of them has a number and a handle of its own, and neither is dead to the other: also when one has left.
#[test]
fn a_process_may_have_the_region_twice() {
    let dir = dir_in_memory();
    let first = Own::create(dir.path());
    let second = Own::join(dir.path());
    assert_ne!(first.members.no(), second.members.no());
    second.word.store(7, SeqCst);
    assert_eq!(first.word.load(SeqCst), 7);
    let dead = |own: &Own| own.members.iter().filter(|no| own.members.is_dead(*no)).count();
    assert_eq!((dead(&first), dead(&second)), (0, 0));
    let mut other = Other::start("has no slot", dir.path());
    other.hear("is there");
    drop(second);
    assert_eq!((dead(&first), first.members.iter().count()), (0, 2));
    other.end();
    assert_eq!(first.members.iter().count(), 1);
}

#[test]
fn what_is_no_region_is_refused() {
    let dir = dir_in_memory();
    let path = region_path(dir.path());
    assert!(matches!(Region::join_at(&path), Err(RegionError::File { .. })), "there is none");
    let mut refusals = Vec::new();
    for content in [&b""[..], &[0; 8192], &[7; 8192], b"ledgregn"] {
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        refusals.push(Region::join_at(&path));
    }
    fs::remove_file(&path).unwrap();
    drop(Region::create_at(&path, RESERVE_BYTES).unwrap());
    assert!(matches!(Region::create_at(&path, RESERVE_BYTES), Err(RegionError::File { errno: 17, .. })), "taken");
    let mut bytes = Vec::new();
    fs::File::open(&path).unwrap().read_to_end(&mut bytes).unwrap();
    for (at, value, is_refused) in [(8, 9, true), (23, 1, true), (0, 0, true), (32, 1, false)] {
        let mut changed = bytes.clone();
        changed[at] = value;
        fs::write(&path, changed).unwrap();
        let joined = Region::join_at(&path);
        assert_eq!(joined.is_err(), is_refused, "{at}: {joined:?}");
        refusals.extend(is_refused.then_some(joined));
    }
    for refused in refusals {
        assert!(matches!(refused, Err(RegionError::NotARegion { .. })), "{refused:?}");
    }
}
