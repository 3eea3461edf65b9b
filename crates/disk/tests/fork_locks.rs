//! Locks on files in a child of a fork.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use ledgerstone_disk::{Disk, FileDisk};

/// A thread that is taking a lock when the process forks does not come along into the child, and neither does its lock.
#[test]
fn a_child_locks_files_whatever_other_threads_were_doing() {
    let dir = tempfile::tempdir().unwrap();
    let disk = Arc::new(FileDisk::new(dir.path()));
    let is_over = Arc::new(AtomicBool::new(false));
    let locking = std::thread::spawn({
        let (disk, is_over) = (Arc::clone(&disk), Arc::clone(&is_over));
        move || {
            while !is_over.load(Relaxed) {
                drop(disk.lock("one").unwrap());
            }
        }
    });
    for _ in 0..100 {
        // SAFETY: the child goes on with a copy of this thread alone, takes a lock of ours, and ends at once. If it
        // hangs, the alarm ends it.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: sets a timer that kills this process.
            unsafe { libc::alarm(20) };
            let copies = std::fs::read_dir("/proc/self/fd")
                .unwrap()
                .filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
            let copies = copies.filter(|path| path.ends_with("one")).count();
            let code = i32::from(disk.lock("other").is_err()) + 2 * i32::from(copies != 0);
            // SAFETY: ends the process at once.
            unsafe { libc::_exit(code) };
        }
        assert!(child > 0, "fork: {}", std::io::Error::last_os_error());
        let mut status = 0;
        // SAFETY: waits for a child of ours, and writes its status to a variable of ours.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0, "the child ended with {status:#x}");
    }
    is_over.store(true, Relaxed);
    locking.join().unwrap();
}

/// A lock is its taker's: a child neither gives it back nor keeps it.
#[test]
fn a_lock_stays_with_the_process_that_took_it() {
    let dir = tempfile::tempdir().unwrap();
    let disk = FileDisk::new(dir.path());
    let mut lock = Some(disk.lock("one").unwrap());
    let (mut go, mut wait) = (0, 0);
    let mut ends = [0; 2];
    // SAFETY: makes a pipe, whose ends are written to a variable of ours.
    assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
    std::mem::swap(&mut wait, &mut ends[0]);
    std::mem::swap(&mut go, &mut ends[1]);
    // SAFETY: as above. This child lives until it has read a byte, then drops what it inherited and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: sets a timer, reads a byte into a variable of ours.
        unsafe {
            libc::alarm(20);
            libc::read(wait, (&raw mut go).cast(), 1);
        }
        drop(lock.take());
        // SAFETY: ends the process at once.
        unsafe { libc::_exit(0) };
    }
    assert!(child > 0, "fork: {}", std::io::Error::last_os_error());
    assert!(disk.lock("one").is_err());
    drop(lock.take());
    let again = disk.lock("one").expect("the child, which lives, does not keep it");
    // SAFETY: writes a byte, waits for a child of ours.
    unsafe {
        libc::write(go, (&raw const wait).cast(), 1);
        libc::waitpid(child, std::ptr::null_mut(), 0);
    }
    assert!(disk.lock("one").is_err(), "the child has given back what is ours");
    drop(again);
}
