//! Real processes: a test starts its own program again, to be another process, with what it is to do in the
//! environment.
//!
//! The program has one test, [`THE_OTHER`], that does nothing unless [`role`] gives it something to do.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

const ROLE: &str = "LEDGERSTONE_TEST_ROLE";
const DIR: &str = "LEDGERSTONE_TEST_DIR";

/// The name of the test that is the other process.
pub const THE_OTHER: &str = "the_other_process";

/// Nobody waits so long, or something hangs.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// What this process is to do, and in which directory. `None` in a process that no test has started.
#[must_use]
pub fn role() -> Option<(String, PathBuf)> {
    Some((std::env::var(ROLE).ok()?, std::env::var_os(DIR)?.into()))
}

/// Another process. It is killed when this is dropped.
#[derive(Debug)]
pub struct Other {
    child: Child,
    said: BufReader<ChildStdout>,
}

impl Other {
    /// Starts one.
    ///
    /// # Panics
    /// The system does not let it.
    #[must_use]
    pub fn start(role: &str, dir: &Path) -> Other {
        Other::start_under(&[], role, dir)
    }

    /// The same by another program, which runs the one that is added to these words.
    ///
    /// # Panics
    /// The system does not let it.
    #[must_use]
    pub fn start_under(launcher: &[&str], role: &str, dir: &Path) -> Other {
        let own = std::env::current_exe().expect("a program that runs has a file");
        let mut words = launcher.iter().map(OsStr::new).chain([own.as_os_str()]);
        let mut child = Command::new(words.next().expect("one at least"))
            .args(words)
            .args(["--exact", THE_OTHER, "--nocapture", "--test-threads=1"])
            .env(ROLE, role)
            .env(DIR, dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a process can be started");
        let said = BufReader::new(child.stdout.take().expect("it was asked for"));
        Other { child, said }
    }

    /// The system's number of it.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Reads what it says until that is said.
    ///
    /// # Panics
    /// It ends without saying so.
    pub fn hear(&mut self, what: &str) {
        let mut line = String::new();
        while !line.contains(what) {
            line.clear();
            let read = self.said.read_line(&mut line);
            assert!(read.is_ok_and(|bytes| bytes > 0), "it has ended without a word of {what}");
        }
    }

    /// Has it go on, if it listens.
    ///
    /// # Panics
    /// It has ended.
    pub fn tell(&mut self) {
        let told = self.child.stdin.as_mut().map(|stdin| stdin.write_all(b"go on\n"));
        assert!(told.is_some_and(|told| told.is_ok()), "it does not listen any more");
    }

    /// Kills it (SIGKILL), and does not wait for its end.
    pub fn kill(&mut self) {
        let _ = self.child.kill(); // It has ended then.
    }

    /// Sends it a signal, by a name such as `-STOP`.
    ///
    /// # Panics
    /// It cannot be sent.
    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([name, &*self.pid().to_string()]).status();
        assert!(sent.is_ok_and(|sent| sent.success()), "kill {name}");
    }

    /// It listens for the last time, and ends by itself, in order.
    ///
    /// # Panics
    /// It does not.
    pub fn end(mut self) {
        drop(self.child.stdin.take());
        let status = self.child.wait();
        assert!(status.as_ref().is_ok_and(std::process::ExitStatus::success), "{status:?}");
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits for a word of whoever has started this process, or for its end.
pub fn listen() {
    let _ = std::io::stdin().lock().read_line(&mut String::new());
}

/// Waits until it is so, and says how long.
///
/// # Panics
/// It does not come to pass within [`PATIENCE`].
pub fn within_patience(is_so: impl Fn() -> bool) -> Duration {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "it does not come to pass");
        std::thread::sleep(Duration::from_millis(1));
    }
    began.elapsed()
}

/// A directory in memory, where the system has one.
///
/// # Panics
/// It cannot be made.
#[must_use]
pub fn dir_in_memory() -> tempfile::TempDir {
    let shm = Path::new("/dev/shm");
    let made = if shm.is_dir() { tempfile::tempdir_in(shm) } else { tempfile::tempdir() };
    made.expect("a directory can be made")
}
