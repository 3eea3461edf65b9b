//! Raw NAND flash with transactions: a device, a translation layer, and recovery without an undo log (On, Xu, Choi, Hu, He: "Flag Commit: Supporting Efficient Transaction Recovery in Flash-Based DBMSs").
//!
//! | module | its one idea |
//! | --- | --- |
//! | `nand` | chips: program, clear bits, erase; in memory with a clock and power cuts, in a file |
//! | `ftl` | where logical pages lie; collecting, wear, mounting |
//! | `flag` | CFC and AFC: commit flags in spare areas |
//! | `campaign` | random power cuts against a model |
//! | `experiment` | measured runs on the simulated device
//! | `store` | records in pages, for programs
//! | `transact` | the one interface of all protocols |

#![forbid(unsafe_code)]

pub mod campaign;
pub mod error;
pub mod experiment;
pub mod flag;
pub mod ftl;
mod hash;
pub mod nand;
pub mod rng;
pub mod store;
pub mod transact;

pub use error::{FlashError, Result};
pub use nand::Pba;

/// A logical page.
pub type Lba = u32;

/// A transaction, as it stands in spare areas. 0 is none.
pub type Xid = u32;
