//! What every disk promises while the power is on, asked of each implementation.

use std::sync::Arc;

use ledgerstone_disk::{
    AlignedBuf, Call, Disk, DiskErrorKind, DiskFile, Fault, FaultDisk, FileDisk, FlatFile, Format, Harm, Open, RawDisk,
    SimDisk, SyncMethod,
};

/// A raw store over a file of another disk.
fn raw_on(disk: &dyn Disk) -> RawDisk {
    let file = disk.open("device", Open::CREATE_NEW).unwrap();
    file.set_len(4 << 20).unwrap();
    let format = Format { extent_bytes: Some(4096), ..Format::default() };
    RawDisk::open_or_format(Box::new(FlatFile(file)), format).unwrap()
}

/// Runs `check` on every kind of disk.
fn on_every_disk(check: impl Fn(&dyn Disk)) {
    let dir = tempfile::tempdir().unwrap();
    let file_disk = FileDisk::new(dir.path().join("disk"));
    file_disk.create_dir("").unwrap();
    check(&file_disk);
    let synced = FileDisk::synced_by(dir.path().join("synced"), SyncMethod::Fdatasync);
    synced.create_dir("").unwrap();
    check(&synced);
    check(&SimDisk::new());
    check(&FaultDisk::new(Arc::new(SimDisk::new())));
    check(&raw_on(&SimDisk::new()));
    let below = FileDisk::new(dir.path().join("below"));
    below.create_dir("").unwrap();
    check(&raw_on(&below));
}

fn read(file: &Arc<dyn DiskFile>, offset: u64, len: usize) -> Vec<u8> {
    let mut buf = vec![0xEE; len];
    file.read_at(offset, &mut buf).unwrap();
    buf
}

#[test]
fn what_is_written_is_read() {
    on_every_disk(|disk| {
        for (number, direct) in [false, true].into_iter().enumerate() {
            let how = Open { direct, ..Open::CREATE_NEW };
            let file = disk.open(&format!("f{number}"), how).unwrap();
            file.allocate(0, 16384).unwrap();
            assert_eq!(file.len().unwrap(), 16384);
            assert_eq!(read(&file, 4096, 100), [0; 100]);
            // Aligned in every respect, in memory only, and in none.
            file.write_at(4096, &AlignedBuf::from_slice(&[1; 8192])).unwrap();
            file.write_durable_at(8192, &[2; 4096][..]).unwrap();
            file.write_durable_at(5000, b"odd").unwrap();
            file.write_at(16384, &[3; 7]).unwrap();
            file.sync().unwrap();
            assert_eq!(file.len().unwrap(), 16391);
            let mut expected = vec![0; 16391];
            expected[4096..8192].fill(1);
            expected[8192..12288].fill(2);
            expected[5000..5003].copy_from_slice(b"odd");
            expected[16384..].fill(3);
            assert_eq!(read(&file, 0, 16391), expected);
            let mut aligned = AlignedBuf::new(8192);
            file.read_at(4096, &mut aligned).unwrap();
            assert_eq!(aligned[..], expected[4096..12288]);
            file.set_len(5001).unwrap();
            assert_eq!(read(&file, 4999, 2), [1, b'o']);
            assert_eq!(file.read_at(5000, &mut [0; 2]).unwrap_err().kind, DiskErrorKind::ShortRead);
            assert_eq!(file.read_at(1 << 40, &mut [0; 512]).unwrap_err().kind, DiskErrorKind::ShortRead);
            assert_eq!(file.read_at(u64::MAX, &mut [0; 2]).unwrap_err().kind, DiskErrorKind::ShortRead);
        }
    });
}

#[test]
fn names_come_and_go() {
    on_every_disk(|disk| {
        let kind = |result: Result<Arc<dyn DiskFile>, _>| result.err().map(|e: ledgerstone_disk::DiskError| e.kind);
        assert_eq!(kind(disk.open("x", Open::EXISTING)), Some(DiskErrorKind::NotFound));
        assert_eq!(kind(disk.open("no/x", Open::CREATE)), Some(DiskErrorKind::NotFound));
        disk.create_dir("a/b").unwrap();
        disk.create_dir("a").unwrap();
        let file = disk.open("a/two", Open::CREATE).unwrap();
        file.write_at(0, b"2").unwrap();
        drop(disk.open("a/one", Open::CREATE).unwrap());
        assert_eq!(kind(disk.open("a/one", Open::CREATE_NEW)), Some(DiskErrorKind::Exists));
        assert_eq!(disk.list("a").unwrap(), ["b", "one", "two"]);
        disk.rename("a/two", "a/one").unwrap();
        disk.rename("a/one", "a/b/three").unwrap();
        assert_eq!(disk.list("a").unwrap(), ["b"]);
        disk.sync_dir("a").unwrap();
        assert!(disk.exists("a/b/three").unwrap() && disk.exists("a/b").unwrap() && !disk.exists("a/two").unwrap());
        let again = disk.open("a/b/three", Open::READ).unwrap();
        assert_eq!(read(&again, 0, 1), b"2");
        again.write_at(0, b"x").unwrap_err();
        disk.remove("a/b/three").unwrap();
        assert_eq!(disk.remove("a/b/three").unwrap_err().kind, DiskErrorKind::NotFound);
        assert_eq!(disk.list("nowhere").unwrap_err().kind, DiskErrorKind::NotFound);
        disk.remove("a").unwrap_err();
        disk.remove("a/b").unwrap();
        assert!(disk.exists("a").unwrap() && !disk.exists("a/b").unwrap());
        assert_eq!(kind(disk.open("a/b/four", Open::CREATE)), Some(DiskErrorKind::NotFound));
        assert_eq!(read(&file, 0, 1), b"2", "an open handle outlives the name");
    });
}

#[test]
fn a_lock_is_held_once() {
    on_every_disk(|disk| {
        let first = disk.lock("lock").unwrap();
        assert_eq!(disk.lock("lock").err().unwrap().kind, DiskErrorKind::Locked);
        assert_eq!(disk.lock("lock").err().unwrap().kind, DiskErrorKind::Locked);
        drop(first);
        drop(disk.lock("lock").unwrap());
        drop(disk.lock("lock").unwrap());
    });
}

#[test]
fn a_lock_is_seen_by_another_process() {
    let dir = tempfile::tempdir().unwrap();
    let disk = FileDisk::new(dir.path());
    let path = dir.path().join("lock");
    let script = "import fcntl, sys\nf = open(sys.argv[1], 'r+')\nfcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)";
    let taken_elsewhere =
        || std::process::Command::new("python3").args(["-c", script]).arg(&path).output().map(|o| o.status.success());
    let lock = disk.lock("lock").unwrap();
    disk.lock("lock").err().unwrap(); // A refused attempt must not give the first one back.
    if let Ok(taken) = taken_elsewhere() {
        assert!(!taken);
        // A program that copies its own directory closes another descriptor of the file.
        std::fs::copy(&path, dir.path().join("copy")).unwrap();
        std::fs::read(&path).unwrap();
        assert!(!taken_elsewhere().unwrap(), "the lock went with another descriptor");
        drop(lock);
        assert!(taken_elsewhere().unwrap());
    }
}

/// To open a pipe waits for whoever may never come, to write to a device keeps nothing.
#[test]
fn what_is_not_a_regular_file_is_refused_at_once() {
    use rustix::fs::{CWD, FileType, Mode};

    let dir = tempfile::tempdir().unwrap();
    let disk = FileDisk::new(dir.path());
    std::fs::create_dir(dir.path().join("directory")).unwrap();
    std::os::unix::fs::symlink("/dev/null", dir.path().join("device")).unwrap();
    rustix::fs::mknodat(CWD, dir.path().join("pipe"), FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    std::os::unix::net::UnixListener::bind(dir.path().join("socket")).unwrap();
    for path in ["directory", "device", "pipe", "socket"] {
        for how in [Open::READ, Open::EXISTING, Open::CREATE, Open { direct: true, ..Open::EXISTING }] {
            assert_eq!(disk.open(path, how).err().unwrap().kind, DiskErrorKind::NotRegular, "{path}, {how:?}");
        }
        assert_eq!(disk.lock(path).err().unwrap().kind, DiskErrorKind::NotRegular, "{path}");
        assert_eq!(disk.lock_shared(path).err().unwrap().kind, DiskErrorKind::NotRegular, "{path}");
    }
}

#[test]
fn faults_hit_the_call_they_were_set_for() {
    let sim = SimDisk::new();
    let disk = FaultDisk::new(Arc::new(sim.clone()));
    let file = disk.open("f", Open::CREATE).unwrap();
    disk.add(Fault::at(Call::Write, 2, Harm::Fail(DiskErrorKind::NoSpace)).on("f"));
    file.write_at(0, &[1; 512]).unwrap();
    assert!(file.write_at(0, &[2; 512]).unwrap_err().is_no_space());
    file.write_at(0, &[3; 512]).unwrap();
    disk.behave();

    disk.add(Fault::at(Call::Write, 1, Harm::Short));
    file.write_at(0, &[4; 512]).unwrap_err();
    assert_eq!((read(&file, 0, 512)[255], read(&file, 0, 512)[256]), (4, 3));
    disk.behave();

    disk.add(Fault::at(Call::Read, 1, Harm::FlipBit(9)));
    assert_eq!(read(&file, 0, 2), [4, 6]);
    assert_eq!(read(&file, 0, 2), [4, 4]);
    disk.behave();

    disk.add(Fault::at(Call::Write, 1, Harm::Misdirect(512)));
    file.write_at(0, &[5; 512]).unwrap();
    assert_eq!((read(&file, 0, 1), read(&file, 512, 1)), (vec![4], vec![5]));
    disk.behave();

    file.sync().unwrap();
    disk.sync_dir("").unwrap();
    disk.add(Fault::at(Call::Sync, 1, Harm::Lie).from_then_on());
    file.write_durable_at(0, &[6; 512]).unwrap();
    file.sync().unwrap();
    let lost = (0..50).any(|seed| read(&sim.after_crash(seed).open("f", Open::READ).unwrap(), 0, 1) == [4]);
    assert!(lost, "a lying sync keeps nothing");
    assert_eq!(disk.hits(), 6);
}
