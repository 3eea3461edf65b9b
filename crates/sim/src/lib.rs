//! The whole engine on a simulated disk under a seeded scheduler.
//!
//! Four questions are asked here, over and over, each time with another seed:
//!
//! - [`crash`]: is what recovery leaves behind a prefix of the commits that covers all that was promised?
//! - [`faults`]: the same when the disk refuses, lies, or stores other bytes; is damage found and never believed?
//! - [`damage`]: the same when one file was damaged after the end of a life; and is it whole when the file is put back?
//! - [`histories`]: could what concurrent transactions saw have been seen if they had run one after the other?
//!
//! And one more on real threads and files, where no seed repeats what happens:
//!
//! - [`soak`]: does anything grow, slow down or stand still when everything happens at once for a long time?
//!
//! - [`kills`]: do processes that share an environment go on when others are killed or stopped, at any moment?
//!
//! Everything in a round comes from one seed: what clients do, who runs when, where the power fails, what survives. So
//! a failure is a number, and running that number again is the whole of debugging.
//!
//! The program is `ledgerstone-sim`; it begins reading at `main.rs`. A kind of test is trusted after it has caught a
//! bug planted for it: `ledgerstone-sim planted`, built with the feature `planted`.
//!
//! This crate knows the facade and what lies under it (disk, threads), and nothing of log, pages or locks.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod age;
pub mod counters;
pub mod crash;
pub mod damage;
pub mod faults;
pub mod histories;
pub mod kills;
pub mod log_end;
pub mod media;
pub mod planted;
pub mod soak;
pub mod worker;
