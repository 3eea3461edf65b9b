//! TPC-C (revision 5.11): loading, the five transactions, the consistency conditions, on anything that reads and writes
//! bytes of pages.
//!
//! | file | its one idea |
//! | --- | --- |
//! | `layout` | where each row of each table lies |
//! | `load` | the first population (4.3.3) |
//! | `transactions` | New-Order, Payment, Order-Status, Delivery, Stock-Level (2.4 to 2.8) |
//! | `check` | consistency conditions 1 to 12 (3.3.2) |
//! | `pages` | pages in memory, on a store, and recorded |
//! | `trial` | on a store whose power is cut |
//!
//! Rows have the sizes of the specification's columns. Columns that no transaction looks at are filler. What a
//! database would keep in indexes is in pages of their own: customers by last name, the last order of each customer,
//! the oldest new order of each district. Amounts are in cents.

mod check;
mod layout;
mod load;
pub mod pages;
mod transactions;
pub mod trial;

pub use check::check;
pub use layout::{Layout, Rows, Scale};
pub use load::load;
pub use transactions::{Kind, Mix, Outcome, run_one};

use crate::error::Result;

/// Bytes of pages. A record is a row's place in its page: locks and traces name it.
pub trait Pages {
    /// Reads bytes of a row.
    ///
    /// # Errors
    /// Those of what is below.
    fn read(&mut self, page: u32, record: u16, offset: usize, out: &mut [u8]) -> Result<()>;

    /// Changes bytes of a row.
    ///
    /// # Errors
    /// Those of what is below.
    fn write(&mut self, page: u32, record: u16, offset: usize, bytes: &[u8]) -> Result<()>;
}
