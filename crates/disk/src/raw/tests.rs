//! A raw store beside a plain model, with power losses and kills; damage; and the bytes of the format.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::superblock::BLOCK_BYTES;
use super::*;
use crate::fault::{Call, Fault, FaultDisk, Harm};
use crate::read_only::ReadOnlyDisk;
use crate::sim::SimDisk;

const EXTENT: u64 = 4096;

fn device_of(disk: &dyn Disk) -> Arc<dyn DiskFile> {
    disk.open("device", Open::EXISTING).unwrap()
}

/// A disk with one blank file, durably.
fn blank(bytes: u64) -> SimDisk {
    let disk = SimDisk::new();
    disk.open("device", Open::CREATE_NEW).unwrap().set_len(bytes).unwrap();
    device_of(&disk).sync().unwrap();
    disk.sync_dir("").unwrap();
    disk
}

fn format() -> Format {
    Format { extent_bytes: Some(EXTENT), ..Format::default() }
}

fn made(disk: &dyn Disk) -> RawDisk {
    RawDisk::open_or_format(Box::new(FlatFile(device_of(disk))), format()).unwrap()
}

fn opened(disk: &dyn Disk) -> Result<RawDisk, DiskErrorKind> {
    RawDisk::open(Box::new(FlatFile(device_of(disk)))).map_err(|error| error.kind)
}

fn bytes(disk: &RawDisk, path: &str) -> Vec<u8> {
    let file = disk.open(path, Open::READ).unwrap();
    let mut bytes = vec![0xEE; file.len().unwrap() as usize];
    file.read_at(0, &mut bytes).unwrap();
    bytes
}

#[derive(Debug, Clone)]
enum Step {
    Write { file: usize, offset: u16, len: u16, durable: bool },
    Sync { file: usize },
    SetLen { file: usize, len: u16 },
    Allocate { file: usize, offset: u16, len: u16 },
    Rename { from: usize, to: usize },
    Remove { file: usize },
    SyncDir,
}

const NAMES: [&str; 3] = ["0", "log/1", "log/2"];

fn step() -> impl Strategy<Value = Step> {
    let (file, place) = (0..NAMES.len(), 0..30_000u16);
    prop_oneof![
        6 => (file.clone(), place.clone(), 1..12_000u16, any::<bool>())
            .prop_map(|(file, offset, len, durable)| Step::Write { file, offset, len, durable }),
        2 => file.clone().prop_map(|file| Step::Sync { file }),
        2 => (file.clone(), place.clone()).prop_map(|(file, len)| Step::SetLen { file, len }),
        2 => (file.clone(), place, 1..12_000u16).prop_map(|(file, offset, len)| Step::Allocate { file, offset, len }),
        1 => (file.clone(), file.clone()).prop_map(|(from, to)| Step::Rename { from, to }),
        1 => file.prop_map(|file| Step::Remove { file }),
        1 => Just(Step::SyncDir),
    ]
}

/// A file, slow and obvious: what readers see, and the values that each byte may have after a loss of power.
#[derive(Debug, Clone, Default)]
struct Plain {
    live: Vec<u8>,
    possible: BTreeMap<usize, BTreeSet<u8>>,
    lens: BTreeSet<usize>,
}

impl Plain {
    fn set_len(&mut self, len: usize) {
        let old = self.live.len();
        self.live.resize(len, 0);
        (len.min(old)..len.max(old)).for_each(|byte| self.see(byte));
        self.lens.insert(len);
    }

    fn see(&mut self, byte: usize) {
        let now = self.live.get(byte).copied().unwrap_or(0);
        self.possible.entry(byte).or_insert_with(|| BTreeSet::from([0])).insert(now);
    }

    /// All of it is durable.
    fn settle(&mut self) {
        self.lens = BTreeSet::from([self.live.len()]);
        self.possible = self.live.iter().enumerate().map(|(at, byte)| (at, BTreeSet::from([*byte]))).collect();
    }

    fn write(&mut self, offset: usize, fill: &[u8]) {
        if self.live.len() < offset + fill.len() {
            self.set_len(offset + fill.len());
        }
        self.live[offset..offset + fill.len()].copy_from_slice(fill);
        (offset..offset + fill.len()).for_each(|byte| self.see(byte));
    }

    fn allows(&self, found: &[u8]) -> Result<(), String> {
        if !self.lens.contains(&found.len()) {
            return Err(format!("length {} of {:?}", found.len(), self.lens));
        }
        for (at, byte) in found.iter().enumerate() {
            match self.possible.get(&at) {
                Some(set) if set.contains(byte) || *byte == 0 && set.len() > 1 => {}
                None if *byte == 0 => {}
                other => return Err(format!("byte {at} is {byte}: {other:?}")),
            }
        }
        Ok(())
    }
}

/// The names and the files that they may lead to: by number, since a file keeps what it holds when it is renamed.
#[derive(Default)]
struct Model {
    files: Vec<Plain>,
    names: BTreeMap<&'static str, usize>,
    /// Those that a loss of power may bring back. A commit makes all names durable at once.
    before: Vec<BTreeMap<&'static str, usize>>,
}

impl Model {
    fn note_names(&mut self) {
        self.before.push(self.names.clone());
    }
}

/// Does the steps, and says what may be there afterwards.
fn run(disk: &RawDisk, steps: &[Step]) -> Result<Model, TestCaseError> {
    let mut model = Model::default();
    disk.create_dir("log").unwrap();
    disk.sync_dir("").unwrap();
    model.note_names();
    for (number, step) in steps.iter().enumerate() {
        let fill = |len: u16| vec![number as u8 + 1; len as usize];
        let file = |model: &mut Model, file: usize| {
            let handle = disk.open(NAMES[file], Open::CREATE).unwrap();
            let count = model.files.len();
            let of = *model.names.entry(NAMES[file]).or_insert(count);
            if of == count {
                model.files.push(Plain { lens: BTreeSet::from([0]), ..Plain::default() });
                model.note_names();
            }
            (handle, of)
        };
        match *step {
            Step::Write { file: name, offset, len, durable } => {
                let (handle, of) = file(&mut model, name);
                model.files[of].write(offset.into(), &fill(len));
                match durable {
                    false => handle.write_at(offset.into(), &fill(len)).unwrap(),
                    true => {
                        handle.write_durable_at(offset.into(), &fill(len)).unwrap();
                        let range = usize::from(offset)..usize::from(offset) + usize::from(len);
                        let plain = &mut model.files[of];
                        range.clone().for_each(|byte| drop(plain.possible.insert(byte, BTreeSet::from([fill(1)[0]]))));
                        let reached = plain.lens.first().copied().unwrap_or(0).max(range.end);
                        plain.lens.insert(reached);
                        plain.lens.retain(|len| *len >= range.end);
                    }
                }
            }
            Step::Sync { file: name } => {
                let (handle, of) = file(&mut model, name);
                handle.sync().unwrap();
                model.files[of].settle();
            }
            Step::SetLen { file: name, len } => {
                let (handle, of) = file(&mut model, name);
                handle.set_len(len.into()).unwrap();
                model.files[of].set_len(len.into());
            }
            Step::Allocate { file: name, offset, len } => {
                let (handle, of) = file(&mut model, name);
                handle.allocate(offset.into(), len.into()).unwrap();
                let end = usize::from(offset) + usize::from(len);
                if model.files[of].live.len() < end {
                    model.files[of].set_len(end);
                }
            }
            Step::Rename { from, to } => {
                if disk.rename(NAMES[from], NAMES[to]).is_ok() {
                    let of = model.names.remove(NAMES[from]).unwrap();
                    model.names.insert(NAMES[to], of);
                    model.note_names();
                }
            }
            Step::Remove { file } => {
                if disk.remove(NAMES[file]).is_ok() {
                    model.names.remove(NAMES[file]);
                    model.note_names();
                }
            }
            Step::SyncDir => {
                disk.sync_dir("").unwrap();
                disk.sync_dir("log").unwrap();
                model.before = vec![model.names.clone()];
            }
        }
        for (name, of) in &model.names {
            prop_assert_eq!(&bytes(disk, name), &model.files[*of].live, "{} after step {}", name, number);
        }
    }
    Ok(model)
}

fn names_of(disk: &RawDisk) -> BTreeSet<&'static str> {
    NAMES.into_iter().filter(|name| disk.exists(name).unwrap()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_loss_of_power_leaves_what_was_durable_and_invents_nothing(
        steps in proptest::collection::vec(step(), 1..30), seed: u64, killed: bool,
    ) {
        let below = blank(1 << 20);
        let raw = made(&below);
        let model = run(&raw, &steps)?;
        let after = if killed { below.after_kill() } else { below.after_crash(seed) };
        let raw = opened(&after).unwrap();
        let found = names_of(&raw);
        let fits = |names: &&BTreeMap<&'static str, usize>| {
            names.keys().copied().collect::<BTreeSet<_>>() == found
                && names.iter().all(|(name, of)| model.files[*of].allows(&bytes(&raw, name)).is_ok())
        };
        if !model.before.iter().any(|names| fits(&names)) {
            let now = |(name, of): (&&'static str, &usize)| {
                found.contains(name).then(|| model.files[*of].allows(&bytes(&raw, name)))
            };
            let why: Vec<_> = model.names.iter().map(now).collect();
            prop_assert!(false, "{:?} is there, and may be {:?}; {:?}", found, model.before, why);
        }
        // Whoever comes next can use it all.
        let free = raw.free_bytes();
        for name in NAMES {
            let _ = raw.remove(name);
        }
        raw.sync_dir("").unwrap();
        prop_assert!(raw.free_bytes() >= free);
        let all = raw.open("all", Open::CREATE_NEW).unwrap();
        all.allocate(0, raw.free_bytes()).unwrap();
        prop_assert!(all.allocate(raw.free_bytes(), 1 << 20).is_err_and(|error| error.is_no_space()));
        all.sync().unwrap();
        prop_assert!(bytes(&raw, "all").iter().all(|byte| *byte == 0), "bytes of another file are read");
    }
}

#[test]
fn formatting_that_is_cut_short_is_done_again() {
    for n in 1..50 {
        for seed in 0..8 {
            let below = blank(1 << 20);
            below.crash_at(below.counters().mutations + n);
            let made_it = RawDisk::open_or_format(Box::new(FlatFile(device_of(&below))), format()).is_ok();
            let after = below.after_crash(seed);
            assert!(!made_it || opened(&after).is_ok(), "change {n}");
            drop(made(&after).open("f", Open::CREATE_NEW).unwrap());
        }
    }
}

#[test]
fn what_is_not_empty_is_not_formatted() {
    for at in [0, 1024, 0x10040, (4 << 20) - 100] {
        let below = blank(4 << 20);
        device_of(&below).write_at(at, b"somebody's").unwrap();
        let flat = || Box::new(FlatFile(device_of(&below)));
        let refused = RawDisk::open_or_format(flat(), format()).err().unwrap();
        assert_eq!(refused.kind, DiskErrorKind::NotOurs, "{refused}");
        assert_eq!(opened(&below).err(), Some(DiskErrorKind::NotOurs));
        RawDisk::open_or_format(flat(), Format { overwrites: true, ..format() }).unwrap();
        opened(&below).unwrap();
    }
    assert_eq!(opened(&blank(1 << 20)).err(), Some(DiskErrorKind::NotFormatted));
    let tiny = blank(64 << 10);
    let refused = RawDisk::open_or_format(Box::new(FlatFile(device_of(&tiny))), format()).err().unwrap();
    assert_eq!(refused.kind, DiskErrorKind::OutOfRange);
}

/// A store with a file that was acknowledged as durable.
fn with_file() -> (SimDisk, Superblock) {
    let below = blank(1 << 20);
    let raw = made(&below);
    let file = raw.open("f", Open::CREATE_NEW).unwrap();
    file.write_at(0, &[7; 10_000]).unwrap();
    file.sync().unwrap();
    raw.sync_dir("").unwrap();
    let superblock = raw.shared.superblock();
    (below, superblock)
}

#[test]
fn one_damaged_slot_or_superblock_takes_nothing_away() {
    let (below, superblock) = with_file();
    for slot in [0, 1] {
        for offset in [0, 9, 17, 33, 50, 70, 100] {
            let after = below.snapshot();
            let at = superblock.slot_at(slot) + offset;
            let mut byte = [0];
            device_of(&after).read_at(at, &mut byte).unwrap();
            device_of(&after).write_at(at, &[byte[0] ^ 0x10]).unwrap();
            let raw = opened(&after).unwrap();
            assert_eq!(raw.damaged_slot(), Some(slot), "byte {offset}");
            assert_eq!(bytes(&raw, "f"), [7; 10_000]);
            raw.sync_dir("").unwrap();
            let again = opened(&after).unwrap();
            assert_eq!(again.damaged_slot(), None, "made whole");
            assert_eq!(bytes(&again, "f"), [7; 10_000]);
        }
    }
    for copy in [0, BLOCK_BYTES] {
        let after = below.snapshot();
        device_of(&after).write_at(copy + 40, &[0xFF]).unwrap();
        let raw = opened(&after).unwrap();
        assert_eq!(bytes(&raw, "f"), [7; 10_000]);
        raw.sync_dir("").unwrap();
        device_of(&after).write_at(BLOCK_BYTES - copy + 40, &[0xFF]).unwrap();
        assert_eq!(bytes(&opened(&after).unwrap(), "f"), [7; 10_000], "the first was made whole");
    }
}

/// Whoever only reads writes nothing, whatever there is to mend. The first that becomes durable has it mended (W1).
#[test]
fn a_store_that_is_only_read_is_not_mended() {
    let (below, superblock) = with_file();
    let places = [0, BLOCK_BYTES, superblock.slot_at(0), superblock.slot_at(1)];
    let acts: [fn(&RawDisk); 7] = [
        |raw| raw.sync_dir("").unwrap(),
        |raw| {
            raw.rename("f", "g").unwrap();
            raw.rename("g", "f").unwrap();
            raw.sync_dir("").unwrap();
        },
        |raw| raw.open("f", Open::EXISTING).unwrap().sync().unwrap(),
        |raw| raw.open("f", Open::EXISTING).unwrap().write_durable_at(0, &[7]).unwrap(),
        |raw| raw.open("f", Open::EXISTING).unwrap().write_durable_at(10_000, &[7]).unwrap(),
        // The other slot may name the extents that these take.
        |raw| raw.open("f", Open::EXISTING).unwrap().write_at(10_000, &[7; 10_000]).unwrap(),
        |raw| raw.open("f", Open::EXISTING).unwrap().allocate(0, 20_000).unwrap(),
    ];
    for (at, act) in places.into_iter().flat_map(|at| acts.map(|act| (at, act))) {
        let after = below.snapshot();
        device_of(&after).write_at(at + 40, &[0xFF]).unwrap();
        let before = after.bytes_of("device");
        let raw = opened(&after).unwrap();
        let reading = ReadOnlyDisk::new(Arc::new(raw.clone()));
        let lock = reading.lock("lock").unwrap();
        let file = reading.open("f", Open::READ).unwrap();
        let mut found = [0; 10_000];
        file.settle().unwrap();
        file.read_at(0, &mut found).unwrap();
        assert_eq!((found, after.bytes_of("device") == before), ([7; 10_000], true), "at {at}");
        drop((file, lock));
        act(&opened(&after).unwrap());
        // Now the other one of the two goes.
        let other = places[places.iter().position(|place| *place == at).unwrap() ^ 1];
        device_of(&after).write_at(other + 40, &[0xFF]).unwrap();
        assert_eq!(&bytes(&opened(&after).unwrap(), "f")[..10_000], [7; 10_000], "what was damaged at {at} is whole");
    }
}

#[test]
fn two_damaged_ones_are_told() {
    let (below, superblock) = with_file();
    let after = below.snapshot();
    [0, 1].iter().for_each(|slot| device_of(&after).write_at(superblock.slot_at(*slot) + 20, &[0xFF]).unwrap());
    assert_eq!(opened(&after).err(), Some(DiskErrorKind::Damaged));
    let after = below.snapshot();
    [0, BLOCK_BYTES].iter().for_each(|copy| device_of(&after).write_at(copy + 40, &[0xFF]).unwrap());
    assert_eq!(opened(&after).err(), Some(DiskErrorKind::Damaged));
    let flat = Box::new(FlatFile(device_of(&after)));
    assert_eq!(RawDisk::open_or_format(flat, format()).err().unwrap().kind, DiskErrorKind::Damaged);
    let after = below.snapshot();
    device_of(&after).set_len(512 << 10).unwrap();
    assert_eq!(opened(&after).err(), Some(DiskErrorKind::Damaged), "the device is smaller than it was");
}

#[test]
fn nothing_is_durable_after_a_failed_sync() {
    let below = blank(1 << 20);
    drop(made(&below));
    let faulty = FaultDisk::new(Arc::new(below.clone()));
    let raw = opened(&faulty).unwrap();
    let file = raw.open("f", Open::CREATE_NEW).unwrap();
    file.write_at(0, &[1; 100]).unwrap();
    faulty.add(Fault::at(Call::Sync, 1, Harm::Fail(DiskErrorKind::Io(libc::EIO))));
    assert_eq!(file.sync().unwrap_err().kind, DiskErrorKind::Io(libc::EIO));
    let hits = faulty.hits();
    assert_eq!(file.sync().unwrap_err().kind, DiskErrorKind::Io(libc::EIO));
    assert_eq!(raw.sync_dir("").unwrap_err().kind, DiskErrorKind::Io(libc::EIO));
    assert_eq!(faulty.hits(), hits, "a failed sync is not tried again");
}

#[test]
fn a_device_is_anybodys_when_its_lock_is_given_back() {
    let below = blank(1 << 20);
    let one = made(&below);
    let lock = one.lock("lock").unwrap();
    let file = one.open("f", Open::CREATE_NEW).unwrap();
    one.sync_dir("").unwrap();
    drop(lock);
    // The claim is the device's: here, two may be there, one after the other.
    let other = made(&below);
    let lock = other.lock("lock").unwrap();
    assert_eq!(other.lock("./lock").err().unwrap().kind, DiskErrorKind::Locked);
    drop(lock);
    let _lock = one.lock("lock").unwrap();
    assert_eq!(file.write_at(0, b"x").unwrap_err().kind, DiskErrorKind::Closed);
    assert_eq!(one.open("f", Open::EXISTING).unwrap().len().unwrap(), 0);
}

#[test]
fn space_of_files_that_were_cut_or_removed_is_free_again() {
    let below = blank(1 << 20);
    let raw = made(&below);
    let free = raw.free_bytes();
    let file = raw.open("f", Open::CREATE_NEW).unwrap();
    for _ in 0..20 {
        file.write_at(0, &vec![5; free as usize]).unwrap();
        assert!(file.write_at(free, &[1]).unwrap_err().is_no_space());
        file.sync().unwrap();
        file.set_len(0).unwrap();
    }
    // A file without a name goes with its last handle.
    let other = raw.open("other", Open::CREATE_NEW).unwrap();
    raw.remove("other").unwrap();
    other.write_at(0, &vec![6; free as usize]).unwrap();
    drop(other);
    file.write_at(0, &vec![7; free as usize]).unwrap();
    file.sync().unwrap();
    assert_eq!((bytes(&raw, "f"), raw.free_bytes()), (vec![7; free as usize], 0));
}

#[test]
fn names_take_space_in_the_table() {
    let below = blank(1 << 20);
    let raw = made(&below);
    let made: Vec<_> = (0..10_000).map(|no| raw.open(&format!("file {no}"), Open::CREATE_NEW)).collect();
    let count = made.iter().take_while(|file| file.is_ok()).count();
    assert!((1000..2000).contains(&count), "{count}");
    assert!(made[count].as_ref().is_err_and(|error| error.is_no_space()));
    raw.sync_dir("").unwrap();
    raw.rename("file 0", "file 1").unwrap();
    raw.sync_dir("").unwrap();
    assert_eq!(opened(&below).unwrap().list("").unwrap().len(), count - 1);
}

#[test]
fn threads_write_and_commit_at_once() {
    let below = blank(4 << 20);
    let raw = made(&below);
    std::thread::scope(|scope| {
        for thread in 0..4u8 {
            let raw = &raw;
            scope.spawn(move || {
                let file = raw.open(&format!("{thread}"), Open::CREATE_NEW).unwrap();
                for round in 0..60u64 {
                    let at = round * 1500;
                    file.write_at(at, &[thread + 1; 1500]).unwrap();
                    match round % 7 {
                        0 => file.sync().unwrap(),
                        1 => file.write_durable_at(at, &[thread + 1; 10]).unwrap(),
                        2 => file.set_len(at + 1500).unwrap(),
                        _ => {}
                    }
                }
                file.sync().unwrap();
            });
        }
    });
    let after = below.after_crash(3);
    let raw = opened(&after);
    // The names were made durable by the commits that the lengths needed.
    let raw = raw.unwrap();
    (0..4u8).for_each(|thread| assert_eq!(bytes(&raw, &thread.to_string()), vec![thread + 1; 90_000]));
}

/// The bytes of docs/format/raw.md.
#[test]
fn the_format_is_as_it_is_documented() {
    let superblock = Superblock {
        id: *b"0123456789abcdef",
        device_bytes: 1 << 20,
        extent_bytes: 4096,
        slot_bytes: 0x11000,
        data_start: 0x24000,
        extent_count: 220,
        is_finished: true,
    };
    let files = vec![
        table::Entry { path: "data".to_owned(), len: 40_000, extents: vec![3, 4, 5, table::HOLE, 9] },
        table::Entry { path: "log/0.seg".to_owned(), len: 0, extents: Vec::new() },
    ];
    let table = Table { generation: 6, dirs: vec!["log".to_owned()], files };
    let mut found = superblock.encode().to_vec();
    found.extend_from_slice(&table.encode(&superblock.id)[..256]);
    let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/raw.bin");
    if std::env::var_os("LEDGERSTONE_WRITE_GOLDEN").is_some() {
        std::fs::write(golden, &found).unwrap();
    }
    assert_eq!(found, std::fs::read(golden).unwrap());
    assert_eq!(Table::decode(&table.encode(&superblock.id), &superblock), Some(table));
}

/// A sector that cannot be read is the commonest damage. The other copy has all that is needed.
#[test]
fn one_slot_or_superblock_that_cannot_be_read_takes_nothing_away() {
    let (below, superblock) = with_file();
    let eio = DiskErrorKind::Io(libc::EIO);
    // Both copies at once, each copy alone, then the slots: each time, one read fails.
    for nth in 1..8 {
        let after = below.snapshot();
        let faulty = FaultDisk::new(Arc::new(after.clone()));
        faulty.add(Fault::at(Call::Read, nth, Harm::Fail(eio)));
        let raw = opened(&faulty).unwrap_or_else(|kind| panic!("read {nth}: {kind:?}"));
        faulty.behave();
        assert_eq!(bytes(&raw, "f"), [7; 10_000], "read {nth}");
        assert_eq!(opened(&after).unwrap().damaged_slot(), None, "read {nth}");
    }
    // Blocks that cannot be read. To write one makes it good again, which is not simulated.
    let opened_with_bad = |bad: &[u64]| {
        let faulty = FaultDisk::new(Arc::new(below.clone()));
        bad.iter().for_each(|&at| faulty.add(Fault::at(Call::Read, 1, Harm::Fail(eio)).from_then_on().of_byte(at)));
        opened(&faulty)
    };
    for at in [0, BLOCK_BYTES, superblock.slot_at(0), superblock.slot_at(1)] {
        let raw = opened_with_bad(&[at]).unwrap_or_else(|kind| panic!("block at {at}: {kind:?}"));
        assert_eq!(bytes(&raw, "f"), [7; 10_000], "block at {at}");
    }
    for bad in [[0, BLOCK_BYTES], [superblock.slot_at(0), superblock.slot_at(1)]] {
        assert_eq!(opened_with_bad(&bad).err(), Some(eio), "the device's own error is told");
    }
}

/// A partition table that somebody made on the device is theirs, although our second superblock is still there.
#[test]
fn what_somebody_else_wrote_over_the_first_superblock_is_left_alone() {
    let (below, _) = with_file();
    let after = below.snapshot();
    let mut sector = [0; 512];
    sector[446..464].fill(0x83);
    sector[510..].copy_from_slice(&[0x55, 0xAA]);
    device_of(&after).write_at(0, &sector).unwrap();
    let before = after.bytes_of("device");
    assert_eq!(opened(&after).err(), Some(DiskErrorKind::NotOurs));
    let flat = Box::new(FlatFile(device_of(&after)));
    assert_eq!(RawDisk::open_or_format(flat, format()).err().unwrap().kind, DiskErrorKind::NotOurs);
    assert_eq!(after.bytes_of("device"), before, "nothing was written");
    // What damage leaves is still ours: zeros, or a few other bytes.
    device_of(&after).write_at(0, &[0; 4096]).unwrap();
    let raw = opened(&after).unwrap();
    assert_eq!(bytes(&raw, "f"), [7; 10_000]);
    raw.sync_dir("").unwrap();
    device_of(&after).write_at(3, &[0x80]).unwrap();
    assert_eq!(bytes(&opened(&after).unwrap(), "f"), [7; 10_000]);
}

/// The last write of formatting was lost: the device is not empty because of that.
#[test]
fn a_first_superblock_that_was_never_finished_does_not_lose_a_store() {
    let (below, superblock) = with_file();
    let unfinished = Superblock { is_finished: false, ..superblock };
    device_of(&below).write_at(0, &unfinished.encode()).unwrap();
    assert_eq!(bytes(&made(&below), "f"), [7; 10_000]);
    // With the second copy of an older store, formatting was cut short.
    let other = Superblock { id: [9; 16], ..unfinished };
    device_of(&below).write_at(0, &other.encode()).unwrap();
    assert_eq!(opened(&below).err(), Some(DiskErrorKind::NotFormatted));
}

#[test]
fn an_old_slot_is_named_and_written_anew() {
    let (below, superblock) = with_file();
    let mut old = vec![0; superblock.slot_bytes as usize];
    for slot in [0, 1] {
        let after = below.snapshot();
        device_of(&after).read_at(superblock.slot_at(slot), &mut old).unwrap();
        let raw = opened(&after).unwrap();
        // The state of slot 0 before one change is what a crash leaves.
        for name in ["f", "g"] {
            let _ = raw.remove("f");
            drop(raw.open(name, Open::CREATE).unwrap());
            raw.remove(name).unwrap();
            raw.sync_dir("").unwrap();
        }
        device_of(&after).write_at(superblock.slot_at(slot), &old).unwrap();
        let raw = opened(&after).unwrap();
        assert_eq!((raw.damaged_slot(), raw.exists("f").unwrap()), (Some(slot), false));
        raw.sync_dir("").unwrap();
        assert_eq!(opened(&after).unwrap().damaged_slot(), None, "made whole");
    }
}

/// W4, for the syncs that are part of a durable write.
#[test]
fn nothing_is_durable_after_a_durable_write_has_failed() {
    let below = blank(1 << 20);
    drop(made(&below));
    let faulty = FaultDisk::new(Arc::new(below.clone()));
    let raw = opened(&faulty).unwrap();
    let log = raw.open("log", Open::CREATE_NEW).unwrap();
    log.write_at(0, &[1; 8192]).unwrap();
    log.sync().unwrap();
    raw.sync_dir("").unwrap();
    let file = raw.open("f", Open::CREATE_NEW).unwrap();
    file.write_at(0, &[1; 100]).unwrap();
    let eio = DiskErrorKind::Io(libc::EIO);
    faulty.add(Fault::at(Call::Sync, 1, Harm::Fail(eio)));
    assert_eq!(log.write_durable_at(0, &[2; 512]).unwrap_err().kind, eio);
    // The device may have lost the bytes of the other file, and tells so once.
    assert_eq!(file.sync().unwrap_err().kind, eio);
    assert_eq!(raw.sync_dir("").unwrap_err().kind, eio);
    assert_eq!(log.write_durable_at(0, &[2; 512]).unwrap_err().kind, eio);
    assert!(faulty.hits() == 1, "a failed sync is not tried again");
}

/// What a file system, a volume manager or a partition table has at both ends of the device would be found there later.
#[test]
fn formatting_leaves_nothing_at_the_ends_of_the_device() {
    let places = [1080, 0x10040, (1 << 20) - 8, (3 << 20) + 8, (4 << 20) - 512];
    for at in places {
        let below = blank(4 << 20);
        device_of(&below).write_at(at, b"\x53\xEFsomebody's").unwrap();
        let overwriting = Format { overwrites: true, ..format() };
        drop(RawDisk::open_or_format(Box::new(FlatFile(device_of(&below))), overwriting).unwrap());
        let bytes = below.after_crash(1).bytes_of("device").unwrap();
        assert!(!bytes.windows(8).any(|bytes| bytes == b"somebody"), "at {at}");
    }
}

/// Numbers that no formatting writes, with a right checksum.
#[test]
fn a_superblock_that_cannot_be_is_damaged_and_nothing_is_computed_from_it() {
    let (below, good) = with_file();
    let large = [u64::MAX, u64::MAX / 16, 1 << 60, 1 << 40, u64::MAX - 4095, 0, 1];
    let mut bad = Vec::new();
    for number in large {
        bad.push(Superblock { extent_count: number, ..good });
        bad.push(Superblock { slot_bytes: number, ..good });
        bad.push(Superblock { extent_bytes: number, ..good });
        bad.push(Superblock { data_start: number, ..good });
        bad.push(Superblock { device_bytes: number, ..good });
    }
    bad.retain(|bad| *bad != Superblock { device_bytes: bad.device_bytes, ..good } || bad.device_bytes < 1 << 20);
    bad.retain(|bad| bad.extent_count != 0 && bad.extent_count != 1);
    for superblock in bad {
        let after = below.snapshot();
        for copy in [0, BLOCK_BYTES] {
            device_of(&after).write_at(copy, &superblock.encode()).unwrap();
        }
        assert_eq!(opened(&after).err(), Some(DiskErrorKind::Damaged), "{superblock:?}");
    }
}

/// Tables that no store writes, with a right checksum.
#[test]
fn a_table_that_cannot_be_is_damaged() {
    let (below, superblock) = with_file();
    let entry = |path: &str, len, extents: Vec<u32>| table::Entry { path: path.to_owned(), len, extents };
    let good = Table { generation: 8, dirs: vec!["d".to_owned()], files: vec![entry("d/f", 5000, vec![1, 2])] };
    let with = |files| Table { files, ..good.clone() };
    let bad = [
        Table { generation: u64::MAX - 1, ..good.clone() },
        with(vec![entry("f", 4096, vec![1]), entry("g", 4096, vec![1])]),
        with(vec![entry("f", 8192, vec![1, 1])]),
        with(vec![entry("f", 4096, vec![superblock.extent_count as u32])]),
        with(vec![entry("f", 4096, vec![1, 2])]),
        with(vec![entry("f", 4096, vec![1]), entry("f", 4096, vec![2])]),
        with(vec![entry("d", 0, Vec::new())]),
        with(vec![entry("none/f", 0, Vec::new())]),
        with(vec![entry("../f", 0, Vec::new())]),
        with(vec![entry("f", u64::MAX, Vec::new())]),
        with(vec![entry("f", u64::MAX, vec![1])]),
        Table { dirs: vec!["d".to_owned(), "d".to_owned()], ..good.clone() },
        Table { dirs: vec!["d".to_owned(), "e/g".to_owned()], ..good.clone() },
    ];
    let is_whole = |table: &Table| {
        let after = below.snapshot();
        device_of(&after).write_at(superblock.slot_at(0), &table.encode(&superblock.id)).unwrap();
        opened(&after).unwrap().damaged_slot() != Some(0)
    };
    assert!(is_whole(&good));
    for table in bad {
        assert!(!is_whole(&table), "{table:?}");
    }
}

/// Bytes of another store, in another place, or of an id that was flipped, with checksums that are right or not.
#[test]
fn what_belongs_elsewhere_is_not_believed() {
    let (below, superblock) = with_file();
    let after = below.snapshot();
    let table = Table { generation: 100, ..Table::default() };
    device_of(&after).write_at(superblock.slot_at(0), &table.encode(&[3; 16])).unwrap();
    let raw = opened(&after).unwrap();
    assert_eq!((raw.damaged_slot(), bytes(&raw, "f")), (Some(0), vec![7; 10_000]), "of another store");
    let after = below.snapshot();
    let mut slots = [vec![0; superblock.slot_bytes as usize], vec![0; superblock.slot_bytes as usize]];
    (0..2).for_each(|no| device_of(&after).read_at(superblock.slot_at(no), &mut slots[no as usize]).unwrap());
    (0..2).for_each(|no| device_of(&after).write_at(superblock.slot_at(no), &slots[1 - no as usize]).unwrap());
    assert_eq!(opened(&after).err(), Some(DiskErrorKind::Damaged), "swapped");
    let after = below.snapshot();
    device_of(&after).write_at(20, &[superblock.id[4] ^ 1]).unwrap();
    assert_eq!(bytes(&opened(&after).unwrap(), "f"), [7; 10_000], "another id");
}

/// What was found after a kill stays, also when the power fails next.
#[test]
fn what_an_opening_finds_after_a_kill_is_durable() {
    for seed in 0..20 {
        let (below, _) = with_file();
        opened(&below).unwrap().open("f", Open::EXISTING).unwrap().write_at(0, &[8; 10_000]).unwrap();
        let after = below.after_kill();
        let raw = opened(&after).unwrap();
        let found = bytes(&raw, "f");
        assert_eq!(bytes(&opened(&after.after_crash(seed)).unwrap(), "f"), found);
    }
}

#[test]
fn an_extent_is_free_when_the_table_without_it_is_durable() {
    let mut space = space::Space::new(2);
    let taken = space.take(2).unwrap();
    space.give_up(space::GivenUp { extents: Arc::new(taken), from: 1, earlier: Vec::new() }, 5);
    space.reclaim(4);
    assert_eq!(space.free_count(), 0);
    space.reclaim(5);
    assert_eq!((space.free_count(), space.take(1)), (1, Some(vec![1])));
}

/// W3, for a call that began before its file grew, and was cut: the write must not reach the extent's next owner.
#[test]
fn extents_are_nobodys_while_a_write_to_them_is_under_way() {
    use std::sync::{Mutex, mpsc};
    let below = blank(1 << 20);
    let raw = made(&below);
    let file = raw.open("f", Open::CREATE_NEW).unwrap();
    file.write_at(0, &[1; 8192]).unwrap();
    file.sync().unwrap();
    raw.sync_dir("").unwrap();
    let ((reaches, is_reached), (lets_go, may_go)) = (mpsc::channel(), mpsc::channel::<()>());
    let first = Mutex::new(Some((reaches, may_go)));
    below.set_hook(Arc::new(move |what| {
        let waits = if what == "write" { first.lock().unwrap().take() } else { None };
        if let Some((reaches, may_go)) = waits {
            reaches.send(()).unwrap();
            may_go.recv().unwrap();
        }
    }));
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| file.write_at(0, &[2; 4096]));
        is_reached.recv().unwrap();
        file.write_at(8192, &[3; 4096]).unwrap();
        file.set_len(4096).unwrap();
        file.set_len(0).unwrap();
        file.sync().unwrap();
        let other = raw.open("other", Open::CREATE_NEW).unwrap();
        other.write_at(0, &vec![9; raw.free_bytes() as usize]).unwrap();
        lets_go.send(()).unwrap();
        writing.join().unwrap().unwrap();
        assert!(bytes(&raw, "other").iter().all(|byte| *byte == 9), "another file's bytes were written over");
        other.set_len(0).unwrap();
        other.sync().unwrap();
        assert_eq!(raw.free_bytes(), raw.shared.superblock().extent_count * EXTENT, "in the end all are free");
    });
}

/// W3, for extents that are given up while a table that names them is written. The next table is without them.
#[test]
fn extents_that_are_given_up_beside_a_commit_wait_for_the_next() {
    let below = blank(1 << 20);
    let raw = made(&below);
    let all = raw.free_bytes();
    let file = raw.open("f", Open::CREATE_NEW).unwrap();
    file.write_at(0, &[1; 8192]).unwrap();
    let to_cut = std::sync::Mutex::new(Some(Arc::clone(&file)));
    below.set_hook(Arc::new(move |what| {
        let cut = if what == "write durably" { to_cut.lock().unwrap().take() } else { None };
        if let Some(file) = cut {
            file.set_len(0).unwrap();
        }
    }));
    file.sync().unwrap();
    assert_eq!(raw.free_bytes(), all - 2 * EXTENT);
    file.sync().unwrap();
    assert_eq!((raw.free_bytes(), opened(&below).unwrap().free_bytes()), (all, all));
}

/// What a handle of an earlier opening had may be another file's by now.
#[test]
fn a_handle_of_an_earlier_opening_gives_nothing_up() {
    let below = blank(1 << 20);
    let raw = made(&below);
    let lock = raw.lock("lock").unwrap();
    let file = raw.open("f", Open::CREATE_NEW).unwrap();
    file.write_at(0, &[1; 8192]).unwrap();
    raw.remove("f").unwrap();
    raw.sync_dir("").unwrap();
    drop(lock);
    let _lock = raw.lock("lock").unwrap();
    let other = raw.open("g", Open::CREATE_NEW).unwrap();
    other.write_at(0, &[2; 8192]).unwrap();
    raw.sync_dir("").unwrap();
    let free = raw.free_bytes();
    drop(file);
    other.write_at(8192, &[2]).unwrap();
    other.sync().unwrap();
    assert_eq!(raw.free_bytes(), free - EXTENT);
}

/// A table that named extents behind a file's length would not be believed by any opening.
#[test]
fn a_write_that_failed_leaves_no_extents_behind_the_length() {
    let below = blank(1 << 20);
    drop(made(&below));
    let faulty = FaultDisk::new(Arc::new(below.clone()));
    let raw = opened(&faulty).unwrap();
    let file = raw.open("f", Open::CREATE_NEW).unwrap();
    file.write_at(0, &[7; 10_000]).unwrap();
    raw.sync_dir("").unwrap();
    let free = raw.free_bytes();
    let eio = DiskErrorKind::Io(libc::EIO);
    faulty.add(Fault::at(Call::Write, 1, Harm::Fail(eio)));
    assert_eq!(file.write_at(20_000, &[8; 20_000]).unwrap_err().kind, eio);
    raw.rename("f", "g").unwrap();
    raw.sync_dir("").unwrap();
    assert_eq!(raw.free_bytes(), free);
    assert_eq!(bytes(&opened(&below).unwrap(), "g"), [7; 10_000]);
}

#[test]
fn a_file_that_grows_after_an_opening_has_zeros() {
    let below = blank(1 << 20);
    let raw = made(&below);
    let other = raw.open("other", Open::CREATE_NEW).unwrap();
    other.write_at(0, &vec![9; raw.free_bytes() as usize]).unwrap();
    other.sync().unwrap();
    other.set_len(0).unwrap();
    other.sync().unwrap();
    let file = raw.open("f", Open::CREATE_NEW).unwrap();
    file.write_at(0, &[7; 100]).unwrap();
    file.sync().unwrap();
    let raw = opened(&below).unwrap();
    let file = raw.open("f", Open::EXISTING).unwrap();
    file.set_len(EXTENT).unwrap();
    file.sync().unwrap();
    assert_eq!(bytes(&opened(&below).unwrap(), "f"), [vec![7; 100], vec![0; EXTENT as usize - 100]].concat());
}

/// R2, in an extent that was written to its end: before and after the next opening.
#[test]
fn a_file_that_was_cut_in_an_extent_and_grows_again_has_zeros() {
    let below = blank(1 << 20);
    let raw = made(&below);
    let file = raw.open("f", Open::CREATE_NEW).unwrap();
    file.write_at(0, &[7; 2 * EXTENT as usize]).unwrap();
    file.sync().unwrap();
    file.set_len(100).unwrap();
    file.set_len(2 * EXTENT).unwrap();
    let expected = [vec![7; 100], vec![0; 2 * EXTENT as usize - 100]].concat();
    assert_eq!(bytes(&raw, "f"), expected);
    file.sync().unwrap();
    assert_eq!(bytes(&opened(&below).unwrap(), "f"), expected);
}

/// W4, for a file of a disk that panics.
#[test]
fn nothing_is_durable_after_a_call_has_panicked() {
    for call in [Call::Write, Call::Sync] {
        let below = blank(1 << 20);
        drop(made(&below));
        let faulty = FaultDisk::new(Arc::new(below.clone()));
        let raw = opened(&faulty).unwrap();
        let file = raw.open("f", Open::CREATE_NEW).unwrap();
        file.write_at(0, &[7; 100]).unwrap();
        faulty.add(Fault::at(call, 1, Harm::Panic));
        assert_eq!(file.sync().unwrap_err().kind, DiskErrorKind::Panicked, "{call:?}");
        assert_eq!(raw.sync_dir("").unwrap_err().kind, DiskErrorKind::Panicked, "{call:?}");
    }
}
