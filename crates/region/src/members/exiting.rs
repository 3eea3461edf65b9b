//! Whether a process is on its way out, as `/proc` shows it: long before the kernel has taken its memory down.

use std::fs;
use std::os::unix::fs::MetadataExt;

/// A flag of `/proc/PID/task/TID/stat`: the thread has begun to end.
const PF_EXITING: u64 = 0x4;
/// Fields of that file behind the name, counted from 0: state, flags, start time.
const STATE: usize = 0;
const FLAGS: usize = 6;
const STARTED: usize = 19;

/// A process, by what makes its pid mean one process only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Process {
    pub pid: u32,
    pub started: u64,
    pub namespace: u64,
}

/// What is behind the name in a `stat` file: the name may have blanks and brackets itself.
fn fields(stat: &str) -> Option<Vec<&str>> {
    Some(stat.rsplit_once(") ")?.1.split(' ').collect())
}

fn number(fields: &[&str], no: usize) -> Option<u64> {
    fields.get(no)?.trim().parse().ok()
}

fn namespace() -> u64 {
    fs::metadata("/proc/self/ns/pid").map_or(0, |metadata| metadata.ino())
}

impl Process {
    /// The calling one.
    pub fn me() -> Process {
        let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
        let started = fields(&stat).and_then(|fields| number(&fields, STARTED)).unwrap_or(0);
        Process { pid: std::process::id(), started, namespace: namespace() }
    }

    /// Whether all of its threads are known to end. False where `/proc` does not say, or says it of another namespace.
    pub fn is_exiting(self) -> bool {
        if self.started == 0 || self.namespace == 0 || self.namespace != namespace() {
            return false;
        }
        let Ok(stat) = fs::read_to_string(format!("/proc/{}/stat", self.pid)) else { return false };
        let Some(fields) = fields(&stat) else { return false };
        match (number(&fields, STARTED), fields[STATE]) {
            (Some(started), _) if started != self.started => true, // The pid is another's.
            // A main thread that has ended is a zombie while the others go on.
            (Some(_), _) => self.are_threads_ending(),
            (None, _) => false,
        }
    }

    /// A thread that ends makes none. So if all that are seen end, and then no others are there, none is left.
    fn are_threads_ending(self) -> bool {
        let Some(before) = self.threads() else { return false };
        let all_end = before.iter().all(|thread| self.is_ending(*thread));
        all_end && self.threads().is_some_and(|after| after.iter().all(|thread| before.contains(thread)))
    }

    fn threads(self) -> Option<Vec<u32>> {
        let entries = fs::read_dir(format!("/proc/{}/task", self.pid)).ok()?;
        entries.map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect()
    }

    /// One that is gone has ended.
    fn is_ending(self, thread: u32) -> bool {
        let stat = match fs::read_to_string(format!("/proc/{}/task/{thread}/stat", self.pid)) {
            Ok(stat) => stat,
            Err(error) => return error.kind() == std::io::ErrorKind::NotFound || is_gone(&error),
        };
        let fields = fields(&stat).unwrap_or_default();
        let is_over = matches!(fields.get(STATE), Some(&("Z" | "X")));
        is_over || number(&fields, FLAGS).is_some_and(|flags| flags & PF_EXITING != 0)
    }
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
        assert!(me.started > 0 && me.namespace > 0 && !me.is_exiting());
        assert!(Process { started: me.started - 1, ..me }.is_exiting(), "its pid is another's");
        assert!(!Process { namespace: 1, ..me }.is_exiting(), "nothing is known");
    }
}
