//! Real processes in one region that are not as others: forked, without a main thread, in namespaces of their own,
//! under limits, interrupted, in a file system that is full.
#![cfg(not(any(loom, miri)))]

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use ledgerstone_region::atomic::{AtomicU8, AtomicU64};
use ledgerstone_region::{Handle, Members, Region, RegionError, SlotTable};
use ledgerstone_testkit::other::{Other, dir_in_memory, listen, role, within_patience};

const RESERVE_BYTES: u64 = 1 << 20;

struct Own {
    members: Arc<Members>,
    slots: SlotTable,
}

fn region_path(dir: &Path) -> PathBuf {
    dir.join("region")
}

impl Own {
    fn of(region: &Region, dir: &Path) -> Own {
        let members = Arc::new(Members::join(region, &dir.join("locks")).unwrap());
        let slots = SlotTable::place_among(Arc::clone(&members), region, 8).unwrap();
        Own { members, slots }
    }

    fn create(dir: &Path) -> Own {
        Own::of(&Region::create_at(&region_path(dir), RESERVE_BYTES).unwrap(), dir)
    }

    fn join(dir: &Path) -> Own {
        Own::of(&Region::join_at(&region_path(dir)).unwrap(), dir)
    }

    /// The member that is not this process.
    fn other(&self) -> u32 {
        self.members.iter().find(|no| *no != self.members.no()).unwrap()
    }

    /// Whether the other one is dead at any of so many looks.
    fn is_other_ever_dead(&self, looks: u32) -> bool {
        let other = self.other();
        (0..looks).any(|_| self.members.is_dead(other))
    }
}

/// Not a test, unless another one has started this process.
#[test]
fn the_other_process() {
    let Some((role, dir)) = role() else { return };
    let dir = &*dir;
    match role.as_str() {
        "is there" => {
            let _own = Own::join(dir);
            println!("is there");
            listen();
        }
        "has 64 MiB" => has_memory(dir, 64 << 20),
        "has 1 GiB" => has_memory(dir, 1 << 30),
        "has 4 GiB" => has_memory(dir, 4 << 30),
        "forks" => forks(dir),
        "has no main thread" => has_no_main_thread(dir),
        "watches its child" => {
            let own = Own::create(dir);
            let mut child = Other::start("is there", dir);
            child.hear("is there");
            assert!(!own.is_other_ever_dead(100));
            let child_no = own.other();
            child.kill();
            within_patience(|| own.members.is_dead(child_no));
        }
        "has a limit for files" => {
            let limit = libc::rlimit { rlim_cur: 1 << 16, rlim_max: libc::RLIM_INFINITY };
            // SAFETY: the limit is this process's, and read by the call only.
            assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) }, 0);
            let refused = Region::create_at(&region_path(dir), RESERVE_BYTES).unwrap_err();
            assert!(matches!(refused, RegionError::File { errno: libc::EFBIG, .. }), "{refused:?}");
            assert!(!region_path(dir).exists());
            Region::create_at(&region_path(dir), 1 << 16).unwrap();
        }
        "has a small file system" => has_a_small_file_system(dir),
        other => panic!("no such role: {other}"),
    }
}

fn forks(dir: &Path) {
    let own = Own::join(dir);
    own.slots.current();
    // SAFETY: no other thread runs anything of ours. The child gives up what it has inherited, and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        drop(own);
        // SAFETY: as above; the destructors of this thread run.
        unsafe { libc::exit(0) };
    }
    let mut status = 0;
    // SAFETY: waits for our own child; `status` is ours to be written.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0);
    println!("its child has ended");
    listen();
}

fn has_memory(dir: &Path, bytes: usize) {
    let _own = Own::join(dir);
    let memory = vec![1_u8; bytes];
    println!("is there");
    listen();
    drop(memory);
}

/// Its threads come and go: each starts the next one.
fn has_no_main_thread(dir: &Path) {
    fn next(is_over: &'static AtomicBool, own: Own) {
        if is_over.load(SeqCst) {
            drop(own);
            std::process::exit(0);
        }
        std::thread::spawn(move || next(is_over, own));
    }
    static IS_OVER: AtomicBool = AtomicBool::new(false);
    let own = Own::join(dir);
    std::thread::spawn(move || next(&IS_OVER, own));
    std::thread::spawn(|| {
        let main_has_ended = || {
            let stat = fs::read_to_string(format!("/proc/self/task/{}/stat", std::process::id())).unwrap();
            stat.contains(") Z ")
        };
        within_patience(main_has_ended);
        println!("is there");
        listen();
        IS_OVER.store(true, SeqCst);
    });
    on_signal(libc::SIGUSR1, ends_its_thread);
    let main = std::process::id();
    // SAFETY: a signal to our own main thread, which only waits for this one.
    assert_eq!(unsafe { libc::syscall(libc::SYS_tgkill, main, main, libc::SIGUSR1) }, 0);
    loop {
        std::thread::park(); // Until another one ends the process.
    }
}

extern "C" fn ends_its_thread(_: libc::c_int) {
    // SAFETY: ends this thread at once, and what its stack holds stays.
    unsafe { libc::syscall(libc::SYS_exit, 0) };
}

extern "C" fn nothing(_: libc::c_int) {}

fn on_signal(signal: libc::c_int, handler: extern "C" fn(libc::c_int)) {
    // SAFETY: all bits zero is a valid `sigaction`, and the handler calls the system at most.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as *const () as libc::sighandler_t;
        assert_eq!(libc::sigaction(signal, &raw const action, std::ptr::null_mut()), 0);
    }
}

/// Of 1 MiB.
fn has_a_small_file_system(dir: &Path) {
    let region = Region::create_at(&region_path(dir), 16 << 20).unwrap();
    let first: Handle<[AtomicU8]> = region.place("first", 512 << 10, 64).unwrap();
    let used_bytes = region.used_bytes();
    for bytes in [600 << 10, 4 << 20] {
        let refused = region.place::<AtomicU8>("second", bytes, 64).unwrap_err();
        assert!(matches!(refused, RegionError::NoMemory { .. }), "{refused:?}");
    }
    assert_eq!(region.used_bytes(), used_bytes);
    let second: Handle<[AtomicU8]> = region.place("second", 256 << 10, 64).unwrap();

    let mut filler = fs::File::create(dir.join("filler")).unwrap();
    while filler.write_all(&[1; 4096]).is_ok() {}
    first.iter().chain(&*second).for_each(|byte| byte.store(1, SeqCst));

    let other = dir.join("other");
    let refused = Region::create_at(&other, RESERVE_BYTES).unwrap_err();
    assert!(matches!(refused, RegionError::NoMemory { .. }), "{refused:?}");
    assert!(!other.exists());
    let begun = fs::File::create(&other).unwrap();
    begun.set_len(RESERVE_BYTES).unwrap();
    begun.set_permissions(fs::Permissions::from_mode(0o600)).unwrap();
    let refused = Region::join_at(&other).unwrap_err(); // Its maker has died in the middle.
    assert!(matches!(refused, RegionError::NotARegion { .. }), "{refused:?}");
}

/// Words that start a program as `unshare` with these options does; None where it may not.
fn unshared<'w>(options: &[&'w str]) -> Option<Vec<&'w str>> {
    let words: Vec<&str> = ["unshare", "--fork", "--kill-child"].into_iter().chain(options.iter().copied()).collect();
    let tried = Command::new(words[0]).args(&words[1..]).arg("true").stderr(Stdio::null()).status();
    let may = tried.is_ok_and(|status| status.success());
    if !may {
        println!("skipped: {words:?} is not permitted");
    }
    may.then_some(words)
}

/// M5, T8: the memory is its parent's, too.
#[test]
fn a_child_of_a_fork_gives_nothing_back() {
    let dir = dir_in_memory();
    let own = Own::create(dir.path());
    let mut other = Other::start("forks", dir.path());
    other.hear("its child has ended");
    let no = own.other();
    assert_eq!(own.members.pid(no), Some(other.pid()));
    assert!(!own.is_other_ever_dead(10));
    let theirs: Vec<_> = own.slots.iter_used().map(|(no, _)| no).collect();
    assert_eq!(theirs.len(), 1);
    assert_ne!(own.slots.current(), theirs[0]);
    other.end();
    assert_eq!((own.members.iter().count(), own.slots.iter_used().count()), (1, 1));
}

#[test]
fn a_process_whose_main_thread_has_ended_is_not_dead() {
    let dir = dir_in_memory();
    let own = Own::create(dir.path());
    for is_killed in [false, true] {
        let mut other = Other::start("has no main thread", dir.path());
        other.hear("is there");
        assert!(!own.is_other_ever_dead(500));
        let no = own.other();
        if is_killed {
            other.kill();
            within_patience(|| own.members.is_dead(no));
        } else {
            other.end();
            assert_eq!(own.members.iter().count(), 1);
        }
    }
}

#[test]
#[ignore = "a measurement: how soon a death is known, and what a look costs"]
fn a_death_is_known_before_the_memory_is_gone() {
    let dir = dir_in_memory();
    let own = Own::create(dir.path());
    for role in ["has 64 MiB", "has 1 GiB", "has 4 GiB"] {
        let mut other = Other::start(role, dir.path());
        other.hear("is there");
        let no = own.other();
        let began = Instant::now();
        assert!(!own.is_other_ever_dead(1000));
        println!("{role}: a look at the living takes {:?}", began.elapsed() / 1000);
        other.kill();
        let known = within_patience(|| own.members.is_dead(no));
        let locks = fs::read_to_string("/proc/locks").unwrap();
        let holds = locks.lines().filter(|line| line.contains(&format!(" {} ", other.pid()))).count();
        println!("{role}: its death is known after {known:?}, when it has {holds} locks still");
        within_patience(|| {
            own.slots.repair(|_| Ok(())).unwrap();
            own.members.iter().count() == 1
        });
        drop(other);
    }
}

/// In `/proc` its pids are those of others.
#[test]
fn processes_in_a_pid_namespace_under_a_foreign_proc_are_not_dead() {
    let dir = dir_in_memory();
    let Some(launcher) = unshared(&["--pid"]) else { return };
    Other::start_under(&launcher, "watches its child", dir.path()).end();
}

/// Its own start time is another one than others see.
#[test]
fn a_process_in_another_time_namespace_is_not_dead() {
    let dir = dir_in_memory();
    let Some(launcher) = unshared(&["--time", "--boottime", "100000"]) else { return };
    let own = Own::create(dir.path());
    let mut other = Other::start_under(&launcher, "is there", dir.path());
    other.hear("is there");
    assert!(!own.is_other_ever_dead(20));
    let no = own.other();
    other.kill();
    within_patience(|| own.members.is_dead(no));
}

#[test]
fn a_limit_for_files_is_an_error() {
    let dir = dir_in_memory();
    Other::start("has a limit for files", dir.path()).end();
}

#[test]
fn a_file_system_that_is_full_is_an_error() {
    let dir = dir_in_memory();
    let Some(mut launcher) = unshared(&["--mount"]) else { return };
    let mount = "mount -t tmpfs -o size=1m none \"$LEDGERSTONE_TEST_DIR\" && exec \"$0\" \"$@\"";
    launcher.extend(["sh", "-c", mount]);
    Other::start_under(&launcher, "has a small file system", dir.path()).end();
}

/// Profilers and timers do so, on older kernels. Newer ones take it all.
#[test]
fn memory_is_taken_though_signals_interrupt_that() {
    let dir = dir_in_memory();
    let region = Region::create_at(&region_path(dir.path()), 1 << 30).unwrap();
    on_signal(libc::SIGUSR2, nothing);
    // SAFETY: asks for a number.
    let me = unsafe { libc::pthread_self() };
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(SeqCst) {
                // SAFETY: that thread waits for this one.
                unsafe { libc::pthread_kill(me, libc::SIGUSR2) };
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        let words: Result<Handle<[AtomicU64]>, _> = region.place("words", 32 << 20, 64);
        is_over.store(true, SeqCst);
        assert_eq!(words.map(|words| words.len()), Ok(32 << 20));
    });
}
