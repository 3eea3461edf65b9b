//! An environment is opened. After a crash that recovers, which may take long: a bar shows how far it is, and Ctrl-C ends it.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use ledgerstone::{Environment, Error, Options, RecoveryPhase, RecoveryProgress};

use crate::args::DirArgs;
use crate::interrupt::{self, Interrupted};
use crate::output::{Output, bytes_readable};
use crate::progress::{Progress, Unit};

const SHOW_PERIOD: Duration = Duration::from_millis(100);

/// Opens an environment that must exist.
pub(crate) fn open(at: &DirArgs, output: &Output) -> anyhow::Result<Environment> {
    open_by(options(at), &at.dir, output)
}

/// Opens an environment to read it: as it is if it was closed in order, so that nothing is written and others may read beside.
pub(crate) fn open_to_read(at: &DirArgs, output: &Output) -> anyhow::Result<Environment> {
    open_by(options(at).read_only(true), &at.dir, output)
}

fn options(at: &DirArgs) -> Options {
    let options = Environment::options().create(false);
    at.cache.into_iter().fold(options, Options::cache_bytes)
}

/// Opens an environment. Ctrl-C ends its recovery.
pub(crate) fn open_by(options: Options, dir: &Path, output: &Output) -> anyhow::Result<Environment> {
    let _heeding = interrupt::heed();
    let progress = Arc::new(RecoveryProgress::default());
    let opened = shown(&progress, output, || options.recovery_progress(Arc::clone(&progress)).open(dir));
    let how_far = || {
        let (done, all) = (bytes_readable(progress.done_bytes()), bytes_readable(progress.all_bytes()));
        let phase = match (progress.phase(), progress.all_bytes()) {
            (RecoveryPhase::Nothing, _) => String::new(),
            (phase, 0) => format!(", in {} after {done} of the log", phase.name()),
            (phase, _) => format!(", in {} after {done} of {all} of the log", phase.name()),
        };
        format!("while {} was opened{phase}: nothing is lost, and the next command recovers", dir.display())
    };
    let env = opened.map_err(|error: Error| interrupt::told(error, how_far))?;
    if interrupt::is_asked() {
        // It came too late to stop the opening.
        env.close()?;
        return Err(Interrupted(format!("when {} had been opened: nothing else was done", dir.display())).into());
    }
    Ok(env)
}

/// Runs `open` while a bar shows what it has come to, and hears whether to stop.
fn shown<T>(at: &RecoveryProgress, output: &Output, open: impl FnOnce() -> T) -> T {
    let mut progress = Progress::new(output);
    let is_done = AtomicBool::new(false);
    std::thread::scope(|threads| {
        let watcher = threads.spawn(|| {
            while !is_done.load(Relaxed) {
                std::thread::park_timeout(SHOW_PERIOD);
                if interrupt::is_asked() {
                    at.stop();
                }
                let (phase, done, all) = (at.phase(), at.done_bytes(), at.all_bytes());
                if phase != RecoveryPhase::Nothing && !is_done.load(Relaxed) {
                    progress.show(phase.name(), done, all, Unit::Bytes);
                }
            }
        });
        let opened = open();
        is_done.store(true, Relaxed);
        watcher.thread().unpark();
        opened
    })
}
