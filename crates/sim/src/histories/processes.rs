//! The processes of a round, each an opening of the environment of its own.
//!
//! Openings of one directory in one program are members of one region: each has a mapping at another address, and all
//! private memory of its own. So they stand for processes, and cost little.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ledgerstone::{Environment, Error, Options, Sharing};

/// How an environment is opened once more.
type Again = Box<dyn Fn() -> Result<Environment, Error> + Send + Sync>;

/// One of the processes. Several clients may work in it.
#[derive(Clone)]
pub struct Process(Arc<Parts>);

struct Parts {
    /// How often it was opened, and the latest.
    now: Mutex<(u64, Environment)>,
    again: Option<Again>,
}

impl Process {
    /// The only process: nobody else has the environment.
    pub fn alone(env: Environment) -> Process {
        Process(Arc::new(Parts { now: Mutex::new((0, env)), again: None }))
    }

    fn shared(again: Again) -> Result<Process, Error> {
        let env = again()?;
        Ok(Process(Arc::new(Parts { now: Mutex::new((0, env)), again: Some(again) })))
    }

    fn now(&self) -> MutexGuard<'_, (u64, Environment)> {
        self.0.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How often it was opened again, and its handle.
    pub fn env(&self) -> (u64, Environment) {
        self.now().clone()
    }

    /// Another one comes, and then this one leaves, whatever its clients do. If they have transactions, it has left
    /// when these have ended.
    pub fn replace(&self) -> Result<(), Error> {
        let Some(again) = &self.0.again else { return Ok(()) };
        let newer = again()?;
        let older = {
            let mut now = self.now();
            now.0 += 1;
            std::mem::replace(&mut now.1, newer)
        };
        match older.close() {
            Err(Error::TransactionsOpen { .. }) => Ok(()),
            closed => closed,
        }
    }

    /// Leaves in order, when no client is left.
    pub fn close(self) -> Result<(), Error> {
        let env = self.env().1;
        drop(self);
        env.close()
    }
}

/// So many processes share the environment of a directory.
///
/// # Errors
/// What the opening says.
pub fn share(options: &Options, dir: &Path, region_dir: PathBuf, count: u64) -> Result<Vec<Process>, Error> {
    let options = options.clone().sharing(Sharing::Shared).region_dir(region_dir).thread_count_max(256);
    (0..count)
        .map(|_| {
            let (options, dir) = (options.clone(), dir.to_owned());
            Process::shared(Box::new(move || options.clone().open(&dir)))
        })
        .collect()
}
