//! Where each row lies: every table is a range of pages with rows of one size, ordered by key.
//!
//! Y1. A row never crosses a page, and a page holds rows of one table only.
//! Y2. Rows are packed, as a database's heap does: all warehouses of a small database share a page, and locks on pages
//!     make their transactions wait for each other. With [`Rows::HotApart`] the few rows that every transaction wants
//!     have a page each.

use super::Pages;
use crate::error::{FlashError, Result};

/// How large the database is. The specification's is [`Scale::full`], and tests take less.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    /// Warehouses.
    pub warehouses: u32,
    /// Districts of a warehouse (10).
    pub districts: u32,
    /// Customers of a district, and orders at the beginning (3,000).
    pub customers: u32,
    /// Items (100,000).
    pub items: u32,
    /// Orders that a district has room for.
    pub orders_max: u32,
}

impl Scale {
    /// The specification's sizes, with room for `growth` more orders a district.
    pub fn full(warehouses: u32, growth: u32) -> Self {
        Self { warehouses, districts: 10, customers: 3000, items: 100_000, orders_max: 3000 + growth }
    }

    /// Hundredfold smaller, for tests and demonstrations.
    pub fn small(warehouses: u32) -> Self {
        Self { warehouses, districts: 2, customers: 30, items: 100, orders_max: 400 }
    }

    pub(super) fn district_count(&self) -> u32 {
        self.warehouses * self.districts
    }
}

/// How many rows share a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rows {
    /// As many as fit.
    Packed,
    /// As many as fit, but warehouses, districts and the heads of the queues of new orders have a page each.
    HotApart,
}

/// A table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Table {
    Warehouse,
    District,
    Customer,
    History,
    NewOrder,
    NewOrderHead,
    Order,
    OrderLine,
    LastOrder,
    CustomerName,
    Item,
    Stock,
}

/// Lines of an order at most (2.4.1.3).
pub(super) const LINES_MAX: u32 = 15;

#[derive(Clone, Copy, Debug)]
struct Region {
    first: u32,
    row_bytes: u32,
    rows_per_page: u32,
    pages: u32,
}

/// The places of all rows.
#[derive(Clone, Debug)]
pub struct Layout {
    /// The sizes.
    pub scale: Scale,
    regions: Vec<Region>,
    page_count: u32,
}

impl Layout {
    /// For pages of a size.
    ///
    /// # Errors
    /// [`FlashError::TooLong`] if the longest row, of 655 bytes, does not fit into a page.
    pub fn new(scale: Scale, rows: Rows, page_bytes: usize) -> Result<Self> {
        let districts = scale.district_count();
        let customers = districts * scale.customers;
        let orders = districts * scale.orders_max;
        // In the order of `Table`; bytes as the specification's columns add up (1.2), the last three ours.
        let tables = [
            (89, scale.warehouses),
            (99, districts),
            (655, customers),
            (46, orders + customers),
            (8, orders),
            (8, districts),
            (24, orders),
            (54, orders * LINES_MAX),
            (4, customers),
            (4, customers),
            (82, scale.items),
            (306, scale.warehouses * scale.items),
        ];
        let mut regions = Vec::new();
        let mut first = 0;
        let hot = [Table::Warehouse, Table::District, Table::NewOrderHead];
        for (index, (row_bytes, row_count)) in tables.into_iter().enumerate() {
            let fit = page_bytes as u32 / row_bytes;
            if fit == 0 {
                return Err(FlashError::TooLong { len: row_bytes as usize, max: page_bytes });
            }
            let is_alone = rows == Rows::HotApart && hot.iter().any(|table| *table as usize == index);
            let rows_per_page = if is_alone { 1 } else { fit };
            let pages = row_count.div_ceil(rows_per_page);
            regions.push(Region { first, row_bytes, rows_per_page, pages });
            first += pages;
        }
        Ok(Self { scale, regions, page_count: first })
    }

    /// Pages of the whole database.
    pub fn page_count(&self) -> u32 {
        self.page_count
    }

    /// Page, record and offset of a row.
    fn place(&self, table: Table, row: u32) -> (u32, u16, usize) {
        let region = &self.regions[table as usize];
        debug_assert!(row / region.rows_per_page < region.pages);
        let record = row % region.rows_per_page;
        (region.first + row / region.rows_per_page, record as u16, (record * region.row_bytes) as usize)
    }

    pub(super) fn row_bytes(&self, table: Table) -> usize {
        self.regions[table as usize].row_bytes as usize
    }

    /// Reads a whole row.
    pub(super) fn get(&self, pages: &mut dyn Pages, table: Table, row: u32) -> Result<Row> {
        let (page, record, offset) = self.place(table, row);
        let mut bytes = vec![0; self.row_bytes(table)];
        pages.read(page, record, offset, &mut bytes)?;
        Ok(Row(bytes))
    }

    /// Writes a whole row.
    pub(super) fn put(&self, pages: &mut dyn Pages, table: Table, row: u32, bytes: &Row) -> Result<()> {
        let (page, record, offset) = self.place(table, row);
        pages.write(page, record, offset, &bytes.0)
    }
}

/// A row's bytes. Fields are little-endian at fixed offsets. What is not named here is filler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row(pub Vec<u8>);

impl Row {
    pub fn word(&self, at: usize) -> u32 {
        u32::from_le_bytes([self.0[at], self.0[at + 1], self.0[at + 2], self.0[at + 3]])
    }

    pub fn set_word(&mut self, at: usize, value: u32) {
        self.0[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }

    pub fn cents(&self, at: usize) -> i64 {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&self.0[at..at + 8]);
        i64::from_le_bytes(bytes)
    }

    pub fn add_cents(&mut self, at: usize, change: i64) {
        let value = self.cents(at) + change;
        self.0[at..at + 8].copy_from_slice(&value.to_le_bytes());
    }
}

/// Offsets of fields.
pub(super) mod field {
    pub const W_YTD: usize = 0;
    pub const W_TAX: usize = 8;
    pub const D_YTD: usize = 0;
    pub const D_TAX: usize = 8;
    pub const D_NEXT_O_ID: usize = 12;
    /// Rows of history that the district's slots hold; ours.
    pub const D_HISTORY: usize = 16;
    pub const C_BALANCE: usize = 0;
    pub const C_YTD_PAYMENT: usize = 8;
    pub const C_PAYMENT_CNT: usize = 16;
    pub const C_DELIVERY_CNT: usize = 20;
    pub const C_DISCOUNT: usize = 24;
    /// 1 for bad credit.
    pub const C_BAD: usize = 28;
    pub const C_DATA: usize = 155;
    pub const H_AMOUNT: usize = 0;
    pub const H_CUSTOMER: usize = 8;
    pub const H_DISTRICT: usize = 12;
    /// 1 while the order is not delivered, 0 for no row.
    pub const NO_EXISTS: usize = 0;
    pub const NH_OLDEST: usize = 0;
    /// One more than the customer; 0 for no row.
    pub const O_CUSTOMER: usize = 0;
    /// 0 for none.
    pub const O_CARRIER: usize = 4;
    pub const O_LINES: usize = 8;
    /// One more than the item; 0 for no row.
    pub const OL_ITEM: usize = 0;
    pub const OL_AMOUNT: usize = 4;
    /// 0 for none.
    pub const OL_DELIVERED: usize = 12;
    pub const OL_QUANTITY: usize = 16;
    pub const OL_SUPPLY: usize = 20;
    /// One more than the order; 0 for none.
    pub const LO_ORDER: usize = 0;
    /// Last name in the high, customer in the low half.
    pub const CN_ENTRY: usize = 0;
    pub const I_PRICE: usize = 0;
    pub const S_QUANTITY: usize = 0;
    pub const S_YTD: usize = 4;
    pub const S_ORDER_CNT: usize = 8;
    pub const S_REMOTE_CNT: usize = 12;
}
