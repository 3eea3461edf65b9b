//! Raw NAND flash with transactions: a device, a translation layer, and recovery without an undo log (On, Xu, Choi, Hu,
//! He: "Flag Commit: Supporting Efficient Transaction Recovery in Flash-Based DBMSs").
//!
//! | module | its one idea |
//! | --- | --- |
//! | `nand` | chips: program, clear bits, erase; in memory with a clock and power cuts, in a file, behind Linux MTD |
//! | `ftl` | where logical pages lie; collecting, wear, mounting |
//! | `flag` | CFC and AFC: commit flags in spare areas |
//! | `cyclic` | SCC and BPCC: circles of links |
//! | `extended` | CFC_ex and AFC_ex: no force, records |
//! | `wal` | write-ahead logging on the same device |
//! | `log` | records in log pages |
//! | `buffer` | pages in memory |
//! | `protocol` | any of them, by name |
//! | `plain` | the translation layer alone, as the measure for all of them |
//! | `campaign` | random power cuts against a model |
//! | `replay` | traces on the simulated device, with clients, locks and a clock |
//! | `store` | records in pages, for programs |
//! | `trace` | page accesses: recorded, saved, imported |
//! | `tpcc` | the benchmark that makes them |
//! | `evaluate` | the paper's figures |
//! | `plot` | drawing them |
//! | `demo` | a bank that is killed |
//! | `transact` | the one interface of all protocols |

// Only `nand::mtd::device`, which makes system calls, has any.
#![deny(unsafe_code)]

mod buffer;
pub mod campaign;
mod checkpoint;
pub mod cyclic;
pub mod demo;
pub mod error;
pub mod evaluate;
pub mod extended;
pub mod flag;
pub mod ftl;
mod hash;
mod log;
pub mod nand;
pub mod plain;
pub mod plot;
pub mod protocol;
pub mod replay;
pub mod rng;
pub mod store;
pub mod tpcc;
pub mod trace;
pub mod transact;
pub mod wal;

pub use error::{FlashError, Result};
pub use nand::Pba;

/// A logical page.
pub type Lba = u32;

/// A transaction, as it stands in spare areas. 0 is none.
pub type Xid = u32;

/// The example of the page, compiled with the documentation's tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/flash.md")]
struct Page;
