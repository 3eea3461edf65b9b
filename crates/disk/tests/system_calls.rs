//! What is called durable was made so by the system: watched by strace, since no later read can tell.
//!
//! A test runs this program once more under strace and reads what it asked of the kernel. `scripts/need.sh strace`
//! installs it; where it is missing the tests say so and prove nothing.

use std::path::Path;
use std::process::Command;

use ledgerstone_disk::{AlignedBuf, Disk, DiskFile, FileDisk, Open, SyncMethod};

const DIR_VARIABLE: &str = "LEDGERSTONE_TRACED_DIR";
const CALLS: &str = "openat,statx,newfstatat,pwrite64,pwritev2,fdatasync,fsync,fallocate,ftruncate,fadvise64,rename";

/// What is done, and its name.
type Step<'a> = (&'a str, &'a dyn Fn(&FileDisk));

/// Runs `steps` in a directory under strace, and gives for each the calls that it made. Called again in the process
/// that is traced: then it does the steps.
fn traced(test: &str, steps: &[Step<'_>]) -> Option<Vec<Vec<String>>> {
    if let Ok(dir) = std::env::var(DIR_VARIABLE) {
        let disk = FileDisk::new(&dir);
        for (name, step) in steps {
            let _ = Path::new(&dir).join(format!("begin {name}")).exists();
            step(&disk);
        }
        return None;
    }
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("calls");
    let inside = dir.path().join("disk");
    std::fs::create_dir(&inside).unwrap();
    let this = std::env::current_exe().unwrap();
    let mut strace = Command::new("strace");
    strace.args(["-f", "-y", "-s", "64", "-e", &format!("trace={CALLS}"), "-o"]).arg(&log).arg(this);
    strace.args(["--exact", test, "--test-threads", "1"]).env(DIR_VARIABLE, &inside);
    let output = match strace.output() {
        Ok(output) => output,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            eprintln!("strace is missing: nothing is proved; install it with scripts/need.sh strace");
            return None;
        }
        Err(error) => panic!("strace: {error}"),
    };
    let text = std::fs::read_to_string(&log).unwrap_or_default();
    assert!(output.status.success(), "{}\n{text}", String::from_utf8_lossy(&output.stderr));
    let mut found: Vec<Vec<String>> = Vec::new();
    for line in text.lines() {
        if line.contains("/begin ") {
            found.push(Vec::new());
        } else if let Some(calls) = found.last_mut() {
            calls.push(line.to_owned());
        }
    }
    assert_eq!(found.len(), steps.len(), "{text}");
    Some(found)
}

/// Whether the last of the calls that change `file` is followed by one that makes it durable, and was answered.
fn is_synced(calls: &[String], file: &str) -> bool {
    let mut is_synced = false;
    for call in calls.iter().filter(|call| call.contains(&format!("/{file}>"))) {
        let is_answered = !call.contains("= -1");
        if call.contains("pwritev2(") && call.contains("RWF_DSYNC") {
            is_synced = is_answered;
        } else if ["pwrite64(", "pwritev2(", "ftruncate(", "fallocate("].iter().any(|write| call.contains(write)) {
            is_synced = false;
        } else if call.contains("fdatasync(") || call.contains("fsync(") {
            is_synced = is_answered;
        }
    }
    is_synced
}

fn open(disk: &FileDisk, how: Open) -> std::sync::Arc<dyn DiskFile> {
    disk.open("file", how).unwrap()
}

#[test]
fn a_sync_reaches_the_system() {
    let pages = AlignedBuf::from_slice(&[7; 8192]);
    let write = |how: Open| {
        let pages = &pages;
        move |disk: &FileDisk| {
            let file = open(disk, how);
            file.write_at(0, pages).unwrap();
            file.write_at(9000, b"odd").unwrap();
            file.sync().unwrap();
        }
    };
    let (ordinary, direct) = (write(Open::CREATE), write(Open::CREATE.direct()));
    let cut = |disk: &FileDisk| {
        let file = open(disk, Open::EXISTING);
        file.set_len(4096).unwrap();
        file.sync().unwrap();
    };
    let settle = |disk: &FileDisk| open(disk, Open::READ).settle().unwrap();
    let settle_direct = |disk: &FileDisk| open(disk, Open::READ.direct()).settle().unwrap();
    let without = |disk: &FileDisk| open(disk, Open::EXISTING).write_at(0, b"not durable").unwrap();
    let steps: [Step<'_>; 6] = [
        ("ordinary", &ordinary),
        ("direct", &direct),
        ("cut", &cut),
        ("settle", &settle),
        ("settle direct", &settle_direct),
        ("without", &without),
    ];
    let Some(found) = traced("a_sync_reaches_the_system", &steps) else { return };
    for ((name, _), calls) in steps.iter().zip(&found) {
        assert_eq!(is_synced(calls, "file"), *name != "without", "{name}: {calls:#?}");
    }
}

#[test]
fn a_durable_write_is_durable_for_the_system() {
    let pages = AlignedBuf::from_slice(&[7; 8192]);
    let write = |method: SyncMethod, how: Open| {
        let pages = &pages;
        move |disk: &FileDisk| {
            let disk = FileDisk::synced_by(disk.dir(), method);
            open(&disk, how).write_durable_at(4096, pages).unwrap();
        }
    };
    let odd = |disk: &FileDisk| open(disk, Open::CREATE.direct()).write_durable_at(9000, b"odd").unwrap();
    let (dsync, direct) = (write(SyncMethod::Dsync, Open::CREATE), write(SyncMethod::Dsync, Open::CREATE.direct()));
    let fdatasync = write(SyncMethod::Fdatasync, Open::CREATE.direct());
    let steps: [Step<'_>; 4] = [("dsync", &dsync), ("direct", &direct), ("fdatasync", &fdatasync), ("odd", &odd)];
    let Some(found) = traced("a_durable_write_is_durable_for_the_system", &steps) else { return };
    for ((name, _), calls) in steps.iter().zip(&found) {
        assert!(is_synced(calls, "file"), "{name}: {calls:#?}");
    }
}

#[test]
fn a_sync_of_names_reaches_the_system() {
    let root = |disk: &FileDisk| {
        open(disk, Open::CREATE);
        disk.sync_dir("").unwrap();
    };
    let below = |disk: &FileDisk| {
        disk.create_dir("log").unwrap();
        disk.rename("file", "log/file").unwrap();
        disk.sync_dir("log").unwrap();
    };
    let steps: [Step<'_>; 2] = [("root", &root), ("below", &below)];
    let Some(found) = traced("a_sync_of_names_reaches_the_system", &steps) else { return };
    for (calls, dir) in found.iter().zip(["disk", "log"]) {
        assert!(is_synced(calls, dir), "{calls:#?}");
    }
}

/// A killed process may have left the deepest name undurable, and no other. Each is made durable before the next is
/// made in it, and again when the directory is used.
#[test]
fn names_of_directories_above_reach_the_system() {
    let use_it = |disk: &FileDisk| FileDisk::new(disk.dir().join("a/b")).create_dir("").unwrap();
    let steps: [Step<'_>; 2] = [("made", &use_it), ("found", &use_it)];
    let Some(found) = traced("names_of_directories_above_reach_the_system", &steps) else { return };
    for (calls, expected) in found.iter().zip([&["disk", "a"][..], &["a"]]) {
        let synced = calls.iter().filter(|call| call.contains("fsync(")).filter_map(|call| call.split_once('<'));
        let synced: Vec<&str> = synced.filter_map(|(_, path)| path.split('>').next()?.rsplit('/').next()).collect();
        assert!(synced.ends_with(expected), "{synced:?}: {calls:#?}");
    }
}
