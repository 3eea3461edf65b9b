//! A raw store on a real block device: a loop device, which only root can make. Without one the tests say so and prove
//! nothing.

use std::path::Path;
use std::process::Command;

use ledgerstone_disk::{Device, Disk, DiskErrorKind, Format, Open, RawDisk};
use ledgerstone_testkit::LoopDevice;

/// A device, and how it is opened.
struct Loop(LoopDevice);

impl Loop {
    fn new(bytes: u64) -> Option<Loop> {
        LoopDevice::new(bytes).map(Loop)
    }

    fn open(&self) -> Result<RawDisk, DiskErrorKind> {
        open(&self.0.path)
    }

    fn format(&self, overwrites: bool) -> Result<RawDisk, DiskErrorKind> {
        let device = Device::open(&self.0.path).unwrap();
        let format = Format { overwrites, ..Format::default() };
        RawDisk::open_or_format(Box::new(device), format).map_err(|error| error.kind)
    }
}

fn open(path: &Path) -> Result<RawDisk, DiskErrorKind> {
    let device = Device::open(path).map_err(|error| error.kind)?;
    RawDisk::open(Box::new(device)).map_err(|error| error.kind)
}

fn run(program: &str, args: &[&str]) -> bool {
    Command::new(program).args(args).output().is_ok_and(|done| done.status.success())
}

#[test]
fn files_on_a_device_are_there_when_it_is_opened_again() {
    let Some(device) = Loop::new(64 << 20) else { return };
    assert_eq!(device.open().err(), Some(DiskErrorKind::NotFormatted));
    let disk = device.format(false).unwrap();
    disk.create_dir("log").unwrap();
    let file = disk.open("log/one", Open::CREATE_NEW.direct()).unwrap();
    file.write_at(0, &vec![1; 300_000]).unwrap();
    file.write_durable_at(1_000_001, b"odd").unwrap();
    file.set_len(5_000_000).unwrap();
    file.sync().unwrap();
    disk.sync_dir("log").unwrap();
    drop((file, disk));
    let disk = device.open().unwrap();
    let file = disk.open("log/one", Open::EXISTING).unwrap();
    let mut bytes = vec![9; 5_000_000];
    file.read_at(0, &mut bytes).unwrap();
    assert!(bytes[..300_000].iter().all(|byte| *byte == 1));
    assert_eq!(&bytes[1_000_000..1_000_005], b"\0odd\0");
    assert!(bytes[300_000..1_000_000].iter().chain(&bytes[1_000_010..]).all(|byte| *byte == 0));
    // Space that another file had reads as zero.
    disk.remove("log/one").unwrap();
    drop(file);
    disk.sync_dir("log").unwrap();
    let all = disk.open("all", Open::CREATE_NEW).unwrap();
    all.allocate(0, disk.free_bytes()).unwrap();
    all.sync().unwrap();
    let mut bytes = vec![9; all.len().unwrap() as usize];
    all.read_at(0, &mut bytes).unwrap();
    assert!(bytes.iter().all(|byte| *byte == 0));
    assert!(all.allocate(bytes.len() as u64, 1).unwrap_err().is_no_space());
}

/// Runs this program once more, as another process that opens the device.
#[test]
fn a_device_that_is_open_is_refused_to_others() {
    const VARIABLE: &str = "LEDGERSTONE_TEST_DEVICE";
    if let Ok(path) = std::env::var(VARIABLE) {
        let kind = open(Path::new(&path)).err();
        std::process::exit(if kind == Some(DiskErrorKind::Locked) { 7 } else { 8 + i32::from(kind.is_none()) });
    }
    let Some(device) = Loop::new(64 << 20) else { return };
    let disk = device.format(false).unwrap();
    let other = || {
        let mut other = Command::new(std::env::current_exe().unwrap());
        other.args(["--exact", "a_device_that_is_open_is_refused_to_others"]).env(VARIABLE, &device.0.path);
        other.output().unwrap().status.code()
    };
    assert_eq!((device.open().err(), other()), (Some(DiskErrorKind::Locked), Some(7)), "open");
    let lock = disk.lock("lock").unwrap();
    assert_eq!((device.open().err(), other()), (Some(DiskErrorKind::Locked), Some(7)), "locked");
    drop(lock);
    assert_eq!(other(), Some(9), "the lock was given back, though a handle is left");
    let _lock = disk.lock("lock").unwrap();
    assert_eq!(other(), Some(7), "taken again");
}

#[test]
fn a_file_system_is_not_written_over_and_a_mounted_one_never() {
    let Some(device) = Loop::new(64 << 20) else { return };
    let path = device.0.path.to_str().unwrap();
    if !run("mkfs.ext4", &["-q", path]) {
        eprintln!("no file system can be made: nothing is proved");
        return;
    }
    assert_eq!(device.format(false).err(), Some(DiskErrorKind::NotOurs));
    let at = device.0.dir.path().join("mounted");
    std::fs::create_dir(&at).unwrap();
    if run("mount", &[path, at.to_str().unwrap()]) {
        let refused = device.format(true).err();
        assert!(run("umount", &[at.to_str().unwrap()]));
        assert_eq!(refused, Some(DiskErrorKind::InUse));
    } else {
        eprintln!("nothing can be mounted: a part is not proved");
    }
    drop(device.format(true).unwrap());
    device.open().unwrap();
}

#[test]
fn a_write_to_a_device_that_is_only_read_is_refused() {
    let Some(device) = Loop::new(64 << 20) else { return };
    drop(device.format(false).unwrap());
    let path = device.0.path.to_str().unwrap();
    if !run("blockdev", &["--setro", path]) {
        eprintln!("the device cannot be made one that is only read: nothing is proved");
        return;
    }
    // Some systems refuse the opening, others the first write.
    let refused = device.open().and_then(|disk| {
        disk.open("f", Open::CREATE_NEW).map_err(|error| error.kind)?;
        disk.sync_dir("").map_err(|error| error.kind)
    });
    // The device keeps that longer than its file.
    assert!(run("blockdev", &["--setrw", path]));
    assert!(matches!(refused, Err(DiskErrorKind::Permission | DiskErrorKind::ReadOnlyFs)), "{refused:?}");
}

#[test]
fn what_is_not_a_block_device_is_not_opened_as_one() {
    let file = tempfile::NamedTempFile::new().unwrap();
    assert!(!Device::is_at(file.path()) && !Device::is_at("/dev/null") && !Device::is_at("/nowhere"));
    assert_eq!(open(file.path()).err(), Some(DiskErrorKind::NotRegular));
    assert_eq!(open(Path::new("/nowhere")).err(), Some(DiskErrorKind::NotFound));
}
