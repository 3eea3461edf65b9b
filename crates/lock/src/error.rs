//! Why a lock was not granted. Every variant is a refusal: the caller holds exactly what it held before.

use std::fmt;

use ledgerstone_page::Xid;
use thiserror::Error;

use crate::{LockName, Mode};

/// Why a lock was not granted.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum LockError {
    /// Another owner stands in the way, and the caller asked not to wait.
    #[error("lock is held in a conflicting mode")]
    WouldBlock,
    /// Waiting would never end: the caller was chosen to roll back. Roll back and try again.
    #[error("deadlock, {victim} gives way: {}", Cycle(.cycle))]
    Deadlock {
        /// The whole cycle: each transaction waits for the next, and the last for the first. The victim comes first.
        cycle: Vec<DeadlockEdge>,
        /// The transaction that gives way: the caller, chosen by [`crate::Victim`].
        victim: Xid,
    },
    /// The deadline passed.
    #[error("timed out waiting for {mode} on {name}, blocked by {}", Xids(.holders))]
    Timeout {
        /// What was asked for.
        name: LockName,
        /// How.
        mode: Mode,
        /// Who stood in the way at the end, in ascending order.
        holders: Vec<Xid>,
    },
    /// Another owner stands in the way, and waiting might end in a deadlock. The lock manager avoids that (no-wait,
    /// wait-die) by refusing the request. Roll back and try again, keeping the age.
    #[error("{mode} on {name} is refused to avoid a deadlock, blocked by {}", Xids(.holders))]
    Refused {
        /// What was asked for.
        name: LockName,
        /// How.
        mode: Mode,
        /// Who stands in the way, in ascending order.
        holders: Vec<Xid>,
    },
    /// Every request node is in use. End a transaction, take coarser locks, or configure more.
    #[error("lock table is full: {locks_max} locks")]
    TableFull {
        /// The budget ([`crate::LockConfig::locks_max`]).
        locks_max: u32,
    },
    /// All waits were called off, because the environment failed.
    #[error("wait for a lock was cancelled")]
    Cancelled,
}

/// One arrow of a waits-for cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeadlockEdge {
    /// The transaction that waits.
    pub xid: Xid,
    /// For whom.
    pub waits_for: Xid,
    /// For what.
    pub name: LockName,
    /// How the waiter wants it.
    pub mode: Mode,
    /// True if `xid` asks for no lock itself. The thread of its caller waits for a lock in `waits_for`, inside a call,
    /// and `name` and `mode` are what that one waits for ([`crate::LockManager::hold_up`]).
    pub is_held_up: bool,
}

struct Cycle<'a>(&'a [DeadlockEdge]);

impl fmt::Display for Cycle<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, edge) in self.0.iter().enumerate() {
            let comma = if i == 0 { "" } else { ", " };
            let DeadlockEdge { xid, waits_for, name, mode, is_held_up } = edge;
            match is_held_up {
                false => write!(f, "{comma}{xid} waits for {waits_for} ({mode} on {name})")?,
                true => write!(f, "{comma}{xid} goes on when {waits_for}, begun inside of it, does")?,
            }
        }
        Ok(())
    }
}

struct Xids<'a>(&'a [Xid]);

impl fmt::Display for Xids<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, xid) in self.0.iter().enumerate() {
            write!(f, "{}{xid}", if i == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}
