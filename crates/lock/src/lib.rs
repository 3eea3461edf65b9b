//! Who may touch what, and who waits for whom.
//!
//! [`LockTable`] is the lock manager that comes with the engine. It is a hash table of request queues in the region,
//! for strict two-phase locking on tables, keys and gaps (LIBTP 3.2.3 and 4.1). Any other implementation of
//! [`LockManager`] can take its place.
//!
//! ```
//! use ledgerstone_lock::{LockConfig, LockManager, LockName, LockTable, Mode, OwnerNo, Wait};
//! use ledgerstone_page::{TableId, Xid};
//! use ledgerstone_region::{Region, SlotTable};
//!
//! let config = LockConfig { owners: 8, locks_max: 1000, ..LockConfig::default() };
//! let region = Region::anonymous(1 << 24)?;
//! let slots = std::sync::Arc::new(SlotTable::place(&region, 64)?);
//! let locks = LockTable::place(&region, &slots, config)?;
//! let (alice, bob) = (OwnerNo(0), OwnerNo(1));
//! locks.begin(alice, Xid(1));
//! locks.begin(bob, Xid(2));
//! let account = LockName::key(TableId(7), 0xfeed);
//! assert!(locks.lock(alice, account, Mode::X, Wait::Try)?.newly);
//! assert!(locks.lock(bob, account, Mode::S, Wait::Try).is_err());
//! locks.unlock_all(alice, None);
//! assert!(locks.lock(bob, account, Mode::S, Wait::Try)?.newly);
//! locks.unlock_all(bob, None);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | file | its one idea |
//! | --- | --- |
//! | `manager` | the trait and its vocabulary |
//! | `policy` | who gives way in a deadlock, who may wait at all |
//! | `none` | the manager that grants everything |
//! | `apart` | the locks of one table held, whatever the manager of all others does |
//! | `mode` | which modes get along, which mode stands for two |
//! | `table` | what lies in the region, and where |
//! | `bucket` | the latch of a queue |
//! | `queue` | who is granted what, with a bucket latched |
//! | `owner` | what one transaction holds |
//! | `nodes` | where request nodes come from and go to |
//! | `intention` | locks on tables that touch no bucket |
//! | `request` | the calls of the trait, made of the above |
//! | `wait_word` | where a wait stands |
//! | `wait` | sleeping for a lock, and all ways to wake up |
//! | `deadlock` | cycles in a waits-for graph, as a pure function |
//! | `waits_for` | the waits-for graph of a lock table |
//! | `flags` | one bit for each owner, instead of a count |
//! | `repair` | what a survivor does after a death: free nodes, owners, waits |
//! | `rebuild` | a bucket made whole from its nodes |
//! | `standing` | how a node says where it is, for whoever scans the nodes |
//! | `planted` | the parts of a repair that a test leaves out |
//!
//! This crate does not know what a name stands for, what pages are, or when a transaction begins or ends. It does not
//! know the log: an LSN is a number that grows.

#![forbid(unsafe_code)]
#![warn(missing_docs)]
#![cfg_attr(loom, allow(dead_code, rustdoc::broken_intra_doc_links))]

#[cfg(not(loom))]
mod apart;
mod bucket;
#[cfg(all(any(test, feature = "deaths"), not(loom)))]
mod check;
#[cfg(not(loom))]
mod deadlock;
mod error;
#[cfg(not(loom))]
mod flags;
#[cfg(not(loom))]
mod intention;
#[cfg(all(test, loom))]
mod loom_deaths;
#[cfg(all(test, loom))]
mod loom_hand_off;
mod manager;
mod mode;
#[cfg(not(loom))]
mod nodes;
#[cfg(not(loom))]
mod none;
#[cfg(not(loom))]
mod owner;
#[cfg(not(loom))]
mod planted;
mod policy;
#[cfg(not(loom))]
mod queue;
#[cfg(not(loom))]
mod rebuild;
#[cfg(not(loom))]
mod repair;
#[cfg(not(loom))]
mod request;
mod standing;
#[cfg(not(loom))]
mod table;
#[cfg(all(test, not(loom)))]
mod tests;
#[cfg(not(loom))]
mod wait;
mod wait_word;
#[cfg(not(loom))]
mod waits_for;

#[cfg(not(loom))]
pub use apart::Apart;
#[cfg(not(loom))]
pub use deadlock::{Hop, Waiting, WaitsFor, confirm_cycle, find_cycle, find_path, victim_of};
pub use error::{DeadlockEdge, LockError};
#[cfg(not(loom))]
pub use ledgerstone_region::{AnotherDied, Dead, Repair};
#[cfg(not(loom))]
pub use manager::LockManager;
pub use manager::{Grant, LockName, LockStats, OwnerNo, Wait};
pub use mode::Mode;
#[cfg(not(loom))]
pub use none::NoLocks;
pub use policy::{Conflict, Standing, Victim};
#[cfg(not(loom))]
pub use table::{LockConfig, LockTable};
