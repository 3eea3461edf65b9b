//! What an experiment has made and must not leave behind when it is ended in the middle: temporary directories and
//! processes.

use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

static MADE: Mutex<Vec<Made>> = Mutex::new(Vec::new());

#[derive(PartialEq, Eq)]
enum Made {
    Directory(PathBuf),
    Process(Pid),
}

/// Something that was made, until this is dropped.
#[derive(Debug)]
pub(crate) struct Note(Option<Made>);

impl std::fmt::Debug for Made {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Made::Directory(path) => write!(f, "{}", path.display()),
            Made::Process(pid) => write!(f, "process {pid:?}"),
        }
    }
}

pub(crate) fn directory(path: &Path) -> Note {
    note(Made::Directory(std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf())))
}

/// To be dropped before the child is waited for: afterwards its number may be another's.
pub(crate) fn process(child: &Child) -> Note {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    pid.map_or(Note(None), |pid| note(Made::Process(pid)))
}

fn note(made: Made) -> Note {
    let again = match &made {
        Made::Directory(path) => Made::Directory(path.clone()),
        Made::Process(pid) => Made::Process(*pid),
    };
    MADE.lock().unwrap_or_else(PoisonError::into_inner).push(made);
    Note(Some(again))
}

impl Drop for Note {
    fn drop(&mut self) {
        if let Some(made) = &self.0 {
            MADE.lock().unwrap_or_else(PoisonError::into_inner).retain(|other| other != made);
        }
    }
}

/// Interrupts the processes that experiments of this process have started, and waits for their end, 5 s at the longest.
/// Then removes the temporary directories, although the experiments still run: the process is to end behind it. Says
/// which directories could not be removed.
pub fn abandon() -> Vec<PathBuf> {
    let made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    let processes = made.iter().filter_map(|made| match made {
        Made::Process(pid) => Some(*pid),
        Made::Directory(_) => None,
    });
    for pid in processes.clone() {
        let _ = kill_process(pid, Signal::INT); // It may have ended.
    }
    // One that lives could make a file, or the whole directory again, behind the removal.
    let patience = Instant::now() + Duration::from_secs(5);
    for pid in processes {
        while runs(pid) && Instant::now() < patience {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    let directories = made.iter().filter_map(|made| match made {
        Made::Directory(path) => Some(path),
        Made::Process(_) => None,
    });
    directories.filter(|path| !is_removed(path)).cloned().collect()
}

/// Whether this child has not ended; its end is left for whoever waits for it.
fn runs(pid: Pid) -> bool {
    let look = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
    matches!(waitid(WaitId::Pid(pid), look), Ok(None))
}

/// What still runs may put files there meanwhile.
fn is_removed(path: &Path) -> bool {
    const TRIES: u32 = 100;
    (0..TRIES).any(|_| std::fs::remove_dir_all(path).is_ok() || !path.exists())
}
