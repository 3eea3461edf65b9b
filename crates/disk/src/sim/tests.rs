//! The promises of the simulated disk, D1 to D5, checked on scripts that nobody chose.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

fn file(disk: &SimDisk, path: &str) -> Arc<dyn DiskFile> {
    disk.open(path, Open::CREATE).unwrap()
}

fn bytes(disk: &SimDisk, path: &str) -> Vec<u8> {
    let file = disk.open(path, Open::READ).unwrap();
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_at(0, &mut bytes).unwrap();
    bytes
}

/// A disk with one durable file of `len` zeros.
fn with_file(len: usize) -> (SimDisk, Arc<dyn DiskFile>) {
    let disk = SimDisk::new();
    let f = file(&disk, "f");
    f.write_at(0, &vec![0; len]).unwrap();
    f.sync().unwrap();
    disk.sync_dir("").unwrap();
    (disk, f)
}

#[test]
fn any_subset_of_the_unsynced_pieces_survives() {
    let mut seen = BTreeSet::new();
    for seed in 0..2000 {
        let (disk, f) = with_file(2048);
        f.write_at(0, &[7; 2048]).unwrap();
        let after = bytes(&disk.after_crash(seed), "f");
        let pieces = after.chunks(PIECE_BYTES).map(|piece| {
            assert!(piece.iter().all(|b| *b == piece[0]), "a piece of 512 bytes is torn");
            piece[0]
        });
        seen.insert(pieces.collect::<Vec<u8>>());
    }
    assert_eq!(seen.len(), 16, "every subset of four pieces is met: {seen:?}");
}

#[test]
fn a_piece_written_twice_holds_any_of_its_versions() {
    let mut seen = BTreeSet::new();
    for seed in 0..500 {
        let (disk, f) = with_file(512);
        for version in 1..=3 {
            f.write_at(0, &[version; 512]).unwrap();
        }
        seen.insert(bytes(&disk.after_crash(seed), "f")[0]);
    }
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), [0, 1, 2, 3]);
}

#[test]
fn a_durable_write_settles_its_own_bytes_only() {
    for seed in 0..200 {
        let (disk, f) = with_file(8192);
        f.write_at(0, &[1; 8192]).unwrap();
        f.write_durable_at(1024, &[2; 512]).unwrap();
        let after = bytes(&disk.after_crash(seed), "f");
        assert_eq!(after[1024..1536], [2; 512]);
        assert!(after[..1024].iter().chain(&after[1536..]).all(|b| *b < 2));
    }
}

#[test]
fn names_are_lost_or_kept_until_the_directory_is_synced() {
    let mut seen = BTreeSet::new();
    for seed in 0..500 {
        let disk = SimDisk::new();
        let old = file(&disk, "old");
        old.write_durable_at(0, b"old").unwrap();
        disk.sync_dir("").unwrap();
        let new = file(&disk, "new");
        new.write_durable_at(0, b"new").unwrap();
        disk.rename("old", "older").unwrap();
        let after = disk.after_crash(seed);
        let names = after.list("").unwrap();
        assert!(names.contains(&"old".to_owned()) != names.contains(&"older".to_owned()), "a rename is atomic");
        if names.contains(&"new".to_owned()) {
            assert_eq!(bytes(&after, "new"), b"new");
        }
        seen.insert(names);
        disk_is_off(&disk);
    }
    assert_eq!(seen.len(), 4);

    for seed in 0..50 {
        let disk = SimDisk::new();
        disk.create_dir("a/b").unwrap();
        drop(file(&disk, "a/b/f"));
        disk.sync_dir("a/b").unwrap();
        disk.sync_dir("a").unwrap();
        disk.sync_dir("").unwrap();
        disk.remove("a/b/f").unwrap();
        disk.rename("a/b/f", "x").unwrap_err();
        disk.sync_dir("a/b").unwrap();
        assert_eq!(disk.after_crash(seed).list("a/b").unwrap(), [""; 0]);
    }
}

fn disk_is_off(disk: &SimDisk) {
    assert!(disk.open("any", Open::CREATE).is_err_and(|e| e.is_crashed()));
    assert!(disk.list("").is_err_and(|e| e.is_crashed()));
}

#[test]
fn the_crash_comes_inside_the_nth_change() {
    let mut survived = 0;
    for seed in 0..50 {
        let (disk, f) = with_file(512);
        let n = disk.counters().mutations;
        disk.crash_at(n + 2);
        f.write_at(0, &[1; 512]).unwrap();
        assert!(f.write_durable_at(0, &[2; 512]).is_err_and(|e| e.is_crashed()));
        assert!(f.read_at(0, &mut [0]).is_err_and(|e| e.is_crashed()));
        disk_is_off(&disk);
        survived += u32::from(bytes(&disk.after_crash(seed), "f")[0] == 2);
    }
    assert!((1..50).contains(&survived), "the write in flight is sometimes kept and sometimes lost: {survived}");
}

#[test]
fn space_runs_out_and_comes_back() {
    let (disk, f) = with_file(4096);
    disk.no_space_after(8192);
    f.write_at(4096, &[1; 4096]).unwrap();
    assert!(f.write_at(8192, &[1]).is_err_and(|e| e.is_no_space()));
    assert!(f.allocate(0, 10_000).is_err_and(|e| e.is_no_space()));
    assert_eq!((f.len().unwrap(), disk.used_bytes()), (8192, 8192));
    f.write_at(0, &[2; 8192]).unwrap();
    f.set_len(100).unwrap();
    f.allocate(0, 8192).unwrap();
    disk.space_for_all();
    f.write_at(8192, &[1]).unwrap();
}

#[test]
fn a_cut_file_reads_zeros_when_it_grows_again() {
    let (disk, f) = with_file(1000);
    f.write_at(0, &[3; 1000]).unwrap();
    f.sync().unwrap();
    f.set_len(10).unwrap();
    f.set_len(2000).unwrap();
    assert_eq!(bytes(&disk, "f")[..12], [3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 0, 0]);
    f.sync().unwrap();
    assert_eq!(bytes(&disk.after_crash(1), "f")[10..], [0; 1990]);
}

#[test]
fn a_snapshot_goes_its_own_way() {
    let (disk, f) = with_file(4096);
    f.write_at(0, &[1; 512]).unwrap();
    let copy = disk.snapshot();
    f.write_at(0, &[2; 512]).unwrap();
    file(&copy, "f").write_at(512, &[3; 512]).unwrap();
    assert_eq!((bytes(&copy, "f")[0], bytes(&copy, "f")[512]), (1, 3));
    assert_eq!((bytes(&disk, "f")[0], bytes(&disk, "f")[512]), (2, 0));
    assert!((0..100).any(|seed| bytes(&copy.after_crash(seed), "f")[0] == 0), "the copy's pending writes stay pending");
}

#[test]
fn locks_are_refused_and_given_back() {
    let disk = SimDisk::new();
    let lock = disk.lock("lock").unwrap();
    assert_eq!(disk.lock("./lock").err().unwrap().kind, DiskErrorKind::Locked);
    drop(lock);
    drop(disk.lock("lock").unwrap());
    let _held = disk.lock("lock").unwrap();
    drop(disk.after_crash(0).lock("lock").unwrap());
}

#[test]
fn the_hook_hears_of_every_call_and_of_the_crash() {
    let disk = SimDisk::new();
    let heard = Arc::new(Mutex::new(Vec::new()));
    let ears = heard.clone();
    disk.set_hook(Arc::new(move |what| ears.lock().unwrap().push(what)));
    let f = file(&disk, "f");
    f.write_at(0, b"x").unwrap();
    disk.crash_at(3);
    f.sync().unwrap_err();
    assert_eq!(*heard.lock().unwrap(), ["open", "create", "write", "sync", "crash"]);
}

#[derive(Debug, Clone)]
enum Step {
    Write { file: u8, offset: u16, len: u16, durable: bool },
    Sync { file: u8 },
    SetLen { file: u8, len: u16 },
    Allocate { file: u8, len: u16 },
}

fn step() -> impl Strategy<Value = Step> {
    let place = (0..2u8, 0..9000u16);
    prop_oneof![
        4 => (place.clone(), 1..3000u16, any::<bool>())
            .prop_map(|((file, offset), len, durable)| Step::Write { file, offset, len, durable }),
        1 => (0..2u8).prop_map(|file| Step::Sync { file }),
        1 => place.clone().prop_map(|(file, len)| Step::SetLen { file, len }),
        1 => place.prop_map(|(file, len)| Step::Allocate { file, len }),
    ]
}

/// The slow and obvious file: for each byte what readers see, and the set of what may be there after a crash.
#[derive(Default, Clone)]
struct Plain {
    live: Vec<u8>,
    possible: BTreeMap<usize, BTreeSet<u8>>,
    lens: BTreeSet<usize>,
}

impl Plain {
    fn durable_at(&mut self, byte: usize) {
        let now = self.live.get(byte).copied().unwrap_or(0);
        self.possible.insert(byte, BTreeSet::from([now]));
    }
    fn see(&mut self, byte: usize) {
        let now = self.live.get(byte).copied().unwrap_or(0);
        self.possible.entry(byte).or_insert_with(|| BTreeSet::from([0])).insert(now);
    }
    fn set_len(&mut self, len: usize) {
        let old = self.live.len();
        self.live.resize(len, 0);
        (len.min(old)..len.max(old)).for_each(|byte| self.see(byte));
        self.lens.insert(len);
    }
}

fn run(disk: &SimDisk, steps: &[Step]) -> [Plain; 2] {
    let files = [file(disk, "0"), file(disk, "1")];
    disk.sync_dir("").unwrap();
    let mut plain = [Plain::default(), Plain::default()];
    plain.iter_mut().for_each(|p| p.lens = BTreeSet::from([0]));
    for (number, step) in steps.iter().enumerate() {
        match *step {
            Step::Write { file, offset, len, durable } => {
                let (offset, len, p) = (offset as usize, len as usize, &mut plain[file as usize]);
                let fill = vec![number as u8 + 1; len];
                if p.live.len() < offset + len {
                    p.set_len(offset + len);
                }
                p.live[offset..offset + len].copy_from_slice(&fill);
                (offset..offset + len).for_each(|byte| p.see(byte));
                if durable {
                    files[file as usize].write_durable_at(offset as u64, &fill).unwrap();
                    (offset..offset + len).for_each(|byte| p.durable_at(byte));
                    let len_min = p.lens.iter().copied().min().unwrap().max(offset + len);
                    // Shorter lengths that are not yet durable may still arrive if they came later; keep them.
                    p.lens.insert(len_min);
                } else {
                    files[file as usize].write_at(offset as u64, &fill).unwrap();
                }
            }
            Step::Sync { file } => {
                files[file as usize].sync().unwrap();
                let p = &mut plain[file as usize];
                (0..13_000).for_each(|byte| p.durable_at(byte));
                p.lens = BTreeSet::from([p.live.len()]);
            }
            Step::SetLen { file, len } => {
                files[file as usize].set_len(len.into()).unwrap();
                plain[file as usize].set_len(len as usize);
            }
            Step::Allocate { file, len } => {
                files[file as usize].allocate(0, len.into()).unwrap();
                let p = &mut plain[file as usize];
                if p.live.len() < len as usize {
                    p.set_len(len as usize);
                }
            }
        }
    }
    plain
}

#[test]
fn a_killed_process_leaves_all_that_it_wrote_and_nothing_durable() {
    let disk = SimDisk::new();
    disk.create_dir("log").unwrap();
    let file = disk.open("f", Open::CREATE).unwrap();
    file.write_at(0, &[1; 5000]).unwrap();
    let after = disk.after_kill();
    assert_eq!(file.sync().unwrap_err().kind, DiskErrorKind::Crashed);
    assert_eq!(bytes(&after, "f"), [1; 5000]);
    assert!((0..50).any(|seed| !after.snapshot().after_crash(seed).exists("f").unwrap()), "the name was never synced");
    after.sync_dir("").unwrap();
    after.open("f", Open::EXISTING).unwrap().sync().unwrap();
    (0..50).for_each(|seed| assert_eq!(bytes(&after.snapshot().after_crash(seed), "f"), [1; 5000]));
}

#[test]
fn of_the_write_in_which_a_process_is_killed_the_beginning_is_there() {
    for (cut, expected) in
        [(0, 0), (4095, 4096 - 512), (4096, 4096 - 512), (9000, 8192 - 512), (9999, 9999), (u64::MAX, 9999)]
    {
        let disk = SimDisk::new();
        let file = disk.open("f", Open::CREATE).unwrap();
        file.write_durable_at(0, &[1; 512]).unwrap();
        disk.sync_dir("").unwrap();
        disk.kill_at(disk.counters().mutations + 1, cut);
        assert_eq!(file.write_durable_at(512, &[2; 9999]).unwrap_err().kind, DiskErrorKind::Crashed);
        let after = disk.after_kill();
        assert_eq!(bytes(&after, "f").len(), 512 + expected, "killed after {cut} bytes");
        assert!((0..50).any(|seed| expected == 0 || bytes(&after.snapshot().after_crash(seed), "f").len() == 512));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn synced_bytes_survive_and_nothing_is_invented(steps in proptest::collection::vec(step(), 1..25), seed: u64) {
        let disk = SimDisk::new();
        let plain = run(&disk, &steps);
        for (number, plain) in plain.iter().enumerate() {
            prop_assert_eq!(&bytes(&disk, &number.to_string()), &plain.live);
        }
        let after = disk.after_crash(seed);
        for (number, plain) in plain.iter().enumerate() {
            let found = bytes(&after, &number.to_string());
            prop_assert!(plain.lens.contains(&found.len()), "length {} of {:?}", found.len(), plain.lens);
            for (at, byte) in found.iter().enumerate() {
                let possible = plain.possible.get(&at).is_none_or(|set| set.contains(byte) || *byte == 0 && set.len() > 1);
                prop_assert!(possible, "byte {} is {}: {:?}", at, byte, plain.possible.get(&at));
            }
        }
    }

    #[test]
    fn the_same_seed_leaves_the_same_disk(steps in proptest::collection::vec(step(), 1..25), seed: u64) {
        let disks = [SimDisk::new(), SimDisk::new()];
        disks.iter().for_each(|disk| { run(disk, &steps); });
        let after = disks[0].after_crash(seed);
        prop_assert_eq!(after.fingerprint(), disks[1].after_crash(seed).fingerprint());
        prop_assert_eq!(after.fingerprint(), after.after_crash(seed ^ 1).fingerprint(), "nothing is pending after a crash");
    }
}
