//! Which processes have an environment open.

use std::path::Path;

use ledgerstone_core::directory::{disk_in, is_shared};

use super::Environment;
use crate::Error;

/// A process that has the environment open.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct ProcessStat {
    /// Its number among those that share the environment, from 0. Free numbers are given out again.
    pub number: u32,
    /// The system's number of it, in its own namespace of such numbers.
    pub pid: u32,
    /// It is the one that asks.
    pub is_this: bool,
    /// It does the work behind the scenes: it writes pages back, flushes the log, takes checkpoints.
    pub leads: bool,
    /// It has died, and what it has left is not mended yet.
    pub is_dead: bool,
    /// Its threads that work in the environment, or have not ended since they did.
    pub thread_count: u32,
    /// Its transactions that run, and those it has prepared.
    pub transaction_count: u32,
}

impl Environment {
    /// Whether processes share the environment in directory `path` now. Opens nothing.
    ///
    /// Waits for the disk: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// [`Error::NotAnEnvironment`], [`Error::AlreadyOpen`] for a device, [`Error::Permission`]. A failure of the disk.
    pub fn is_shared(path: impl AsRef<Path>) -> Result<bool, Error> {
        is_shared(&disk_in(path)?)
    }

    /// The processes that have the environment open, by number. One that nobody shares has this one.
    #[must_use]
    pub fn processes(&self) -> Vec<ProcessStat> {
        let env = self.inner();
        let engine = &env.engine;
        let owner = |slot| engine.slots.slot(slot).process();
        let of = |number: u32, pid: u32| {
            let threads = engine.slots.iter_owned().filter(|slot| engine.slots.slot(*slot).is_taken());
            let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
            ProcessStat {
                number,
                pid,
                is_this: number == engine.slots.process(),
                leads: env.sharing.as_ref().is_none_or(|shares| shares.leader() == Some(number)),
                is_dead: env.sharing.as_ref().is_some_and(|shares| shares.among.members.is_dead(number)),
                thread_count: count(threads.filter(|slot| owner(*slot) == Some(number)).count()),
                transaction_count: count(engine.table.owners().filter(|slot| owner(*slot) == Some(number)).count()),
            }
        };
        match &env.sharing {
            None => vec![of(engine.slots.process(), std::process::id())],
            Some(shares) => {
                let members = &shares.among.members;
                members.iter().filter_map(|number| Some(of(number, members.pid(number)?))).collect()
            }
        }
    }
}
