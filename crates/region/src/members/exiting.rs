//! Whether a process is on its way out, as `/proc` shows it: long before the kernel has taken its memory down.
//!
//! What `/proc` shows is believed only by a process of the same namespaces as the one that it asks about. In another
//! one the pid means somebody else, or the start time is counted from another moment. So it is where the `/proc` that
//! is mounted is that of another namespace.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// A flag of `/proc/PID/task/TID/stat`: the thread has begun to end.
const PF_EXITING: u64 = 0x4;
/// Fields of that file behind the name, counted from 0: state, flags, number of threads, start time.
const STATE: usize = 0;
const FLAGS: usize = 6;
const THREADS: usize = 17;
const STARTED: usize = 19;

/// A process, by what makes its pid mean one process only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Process {
    pub pid: u32,
    pub started: u64,
    /// Inode of its pid namespace, and above bit 32 that of its time namespace. 0: not known.
    pub namespaces: u64,
}

/// What is behind the name in a `stat` file: the name may have blanks and brackets itself.
fn fields(stat: &str) -> Option<Vec<&str>> {
    Some(stat.rsplit_once(") ")?.1.split(' ').collect())
}

fn number(fields: &[&str], no: usize) -> Option<u64> {
    fields.get(no)?.trim().parse().ok()
}

/// The namespaces of the calling process; 0 if this `/proc` is of another pid namespace, or does not say.
fn namespaces(proc: &Path) -> u64 {
    // The line has our number in each namespace, from that of `/proc` down to our own.
    let status = fs::read_to_string(proc.join("self/status")).unwrap_or_default();
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    if numbers.and_then(|numbers| numbers.trim().parse().ok()) != Some(std::process::id()) {
        return 0;
    }
    let inode = |name| fs::metadata(proc.join("self/ns").join(name)).map_or(0, |metadata| metadata.ino());
    match inode("pid") {
        0 => 0,
        pid => pid & u64::from(u32::MAX) | inode("time") << 32, // Before Linux 5.6, all have one time.
    }
}

impl Process {
    /// The calling one.
    pub fn me() -> Process {
        Process::me_in(Path::new("/proc"))
    }

    fn me_in(proc: &Path) -> Process {
        let stat = fs::read_to_string(proc.join("self/stat")).unwrap_or_default();
        let started = fields(&stat).and_then(|fields| number(&fields, STARTED)).unwrap_or(0);
        Process { pid: std::process::id(), started, namespaces: namespaces(proc) }
    }

    /// Whether all of its threads are known to end. False where `/proc` does not say, or says it of another namespace.
    pub fn is_exiting(self) -> bool {
        self.is_exiting_in(Path::new("/proc"))
    }

    fn is_exiting_in(self, proc: &Path) -> bool {
        if self.started == 0 || self.namespaces == 0 || self.namespaces != namespaces(proc) {
            return false;
        }
        let dir = proc.join(self.pid.to_string());
        match started_and_threads(&dir) {
            Some((started, _)) if started != self.started => true, // The pid is another's.
            // A main thread that has ended is a zombie while the others go on.
            Some(_) => self.are_threads_ending(&dir),
            None => false,
        }
    }

    /// A list of threads is not made at one moment: it may end early when the thread that it has come to goes. But
    /// a thread that ends makes none. So if all that are listed end, and then the process has no more threads than
    /// those of the list that are there still, nobody is missing.
    fn are_threads_ending(self, dir: &Path) -> bool {
        // Where the main thread goes on, as nearly everywhere, the others need not be listed.
        if !is_ending(dir, self.pid) {
            return false;
        }
        let Some(listed) = threads(dir) else { return false };
        if !listed.iter().all(|thread| is_ending(dir, *thread)) {
            return false;
        }
        let Some((started, count)) = started_and_threads(dir) else { return false };
        let left = listed.iter().filter(|thread| fs::metadata(dir.join(format!("task/{thread}"))).is_ok()).count();
        started == self.started && count <= left as u64
    }
}

/// When a process began, and how many threads it has, those included that have ended and are there still.
fn started_and_threads(dir: &Path) -> Option<(u64, u64)> {
    let stat = fs::read_to_string(dir.join("stat")).ok()?;
    let fields = fields(&stat)?;
    Some((number(&fields, STARTED)?, number(&fields, THREADS)?))
}

fn threads(dir: &Path) -> Option<Vec<u32>> {
    let entries = fs::read_dir(dir.join("task")).ok()?;
    entries.map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect()
}

/// One that is gone has ended.
fn is_ending(dir: &Path, thread: u32) -> bool {
    let stat = match fs::read_to_string(dir.join(format!("task/{thread}/stat"))) {
        Ok(stat) => stat,
        Err(error) => return error.kind() == std::io::ErrorKind::NotFound || is_gone(&error),
    };
    let fields = fields(&stat).unwrap_or_default();
    let is_over = matches!(fields.get(STATE), Some(&("Z" | "X")));
    is_over || number(&fields, FLAGS).is_some_and(|flags| flags & PF_EXITING != 0)
}

fn is_gone(error: &std::io::Error) -> bool {
    error.raw_os_error() == Some(libc::ESRCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_blanks_and_brackets_is_no_field() {
        let stat = "12 (a) b (c) S 1 2 3 4 5 4194308 7 8 9 10 11 12 13 14 15 16 17 18 4711 20";
        let fields = fields(stat).unwrap();
        assert_eq!(
            (fields[STATE], number(&fields, FLAGS), number(&fields, STARTED)),
            ("S", Some(4_194_308), Some(4711))
        );
    }

    #[test]
    fn this_process_is_not_on_its_way_out() {
        let me = Process::me();
        assert!(me.started > 0 && me.namespaces > 0 && !me.is_exiting());
        assert!(Process { started: me.started - 1, ..me }.is_exiting(), "its pid is another's");
        assert!(!Process { started: me.started - 1, namespaces: 1, ..me }.is_exiting(), "nothing is known");
        assert!(!Process { started: 0, ..me }.is_exiting(), "nothing is known");
    }

    fn stat(state: &str, flags: u64, threads: usize, started: u64) -> String {
        format!("7 (a) b) {state} 1 2 3 4 5 {flags} 7 8 9 10 11 12 13 14 15 16 {threads} 18 {started} 20\n")
    }

    /// What `/proc` would say of us, and of process 7, whose threads have these states and flags.
    fn a_proc(ns_pid: &str, thread_count: usize, threads: &[(u32, &str, u64)]) -> tempfile::TempDir {
        let proc = tempfile::tempdir().unwrap();
        let write = |at: &str, what: &str| {
            let path = proc.path().join(at);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, what).unwrap();
        };
        write("self/status", &format!("Name:\tx\nNSpid:\t{ns_pid}\nThreads:\t1\n"));
        write("self/stat", &stat("S", 0, 1, 4711));
        write("self/ns/pid", "");
        write("self/ns/time", "");
        write("7/stat", &stat(threads.first().map_or("Z", |thread| thread.1), 0, thread_count, 4711));
        for (thread, state, flags) in threads {
            write(&format!("7/task/{thread}/stat"), &stat(state, *flags, 1, 4711));
        }
        proc
    }

    fn is_exiting(ns_pid: &str, thread_count: usize, threads: &[(u32, &str, u64)]) -> bool {
        let proc = a_proc(ns_pid, thread_count, threads);
        Process { pid: 7, ..Process::me_in(proc.path()) }.is_exiting_in(proc.path())
    }

    #[test]
    fn a_process_ends_when_all_of_its_threads_do() {
        let own = &*std::process::id().to_string();
        let (runs, ends) = ((8, "R", 0x40), (9, "D", 0x44));
        assert!(is_exiting(own, 1, &[(7, "Z", 0x40)]));
        assert!(is_exiting(own, 1, &[(7, "X", 0x40)]));
        assert!(is_exiting(own, 2, &[(7, "Z", 0), ends]));
        assert!(!is_exiting(own, 2, &[(7, "Z", 0), runs]), "a main thread that has ended is not the process");
        assert!(!is_exiting(own, 3, &[(7, "Z", 0), ends, runs]));
        assert!(!is_exiting(own, 1, &[(7, "T", 0)]), "it is stopped");
        let proc = a_proc(own, 1, &[(7, "Z", 4)]);
        let process = Process { pid: 7, ..Process::me_in(proc.path()) };
        assert!(process.is_exiting_in(proc.path()));
        fs::remove_dir_all(proc.path().join("7/task")).unwrap();
        assert!(!process.is_exiting_in(proc.path()), "its threads are hidden");
        fs::remove_dir_all(proc.path().join("7")).unwrap();
        assert!(!process.is_exiting_in(proc.path()), "it is hidden, or gone");
    }

    #[test]
    fn a_list_that_lacks_a_thread_proves_nothing() {
        let own = &*std::process::id().to_string();
        assert!(!is_exiting(own, 3, &[(7, "Z", 0), (9, "D", 4)]));
        assert!(is_exiting(own, 2, &[(7, "Z", 0), (9, "D", 4)]));
    }

    /// The pid there is another process's.
    #[test]
    fn what_another_namespace_has_mounted_proves_nothing() {
        let own = std::process::id();
        assert!(!is_exiting(&format!("4000\t{own}"), 1, &[(7, "Z", 4)]));
        assert!(!is_exiting("4000", 1, &[(7, "Z", 4)]));
        let proc = a_proc(&format!("4000\t{own}"), 1, &[(7, "S", 0)]);
        assert!(!Process { pid: 7, started: 5, ..Process::me_in(proc.path()) }.is_exiting_in(proc.path()));
        assert!(!Process { pid: 7, started: 5, namespaces: 5 }.is_exiting_in(proc.path()));
        let proc = a_proc(&own.to_string(), 1, &[(7, "S", 0)]);
        let known = Process { pid: 7, started: 5, ..Process::me_in(proc.path()) };
        assert!(known.is_exiting_in(proc.path()), "it began at another time");
        let other_time = Process { namespaces: known.namespaces ^ 1 << 32, ..known };
        assert!(!other_time.is_exiting_in(proc.path()), "it counts time from another moment");
    }
}
