//! The five transactions (2.4 to 2.8) and their mix (5.2.3). Think and keying times are left out, as in the paper.

use super::Pages;
use super::layout::{LINES_MAX, Layout, Row, Table, field};
use super::load::{nurand, random_name};
use crate::error::Result;
use crate::rng::Rng;

/// Which transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// 2.4
    NewOrder,
    /// 2.5
    Payment,
    /// 2.6
    OrderStatus,
    /// 2.7
    Delivery,
    /// 2.8
    StockLevel,
}

/// How a transaction ended. The caller commits or rolls back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// To be committed.
    Done,
    /// To be rolled back: the item of one line does not exist (2.4.1.4: one in a hundred).
    RolledBack,
    /// To be rolled back: the district's tables are full.
    Full,
}

/// Shares of the transactions in hundredths. The rest are New-Orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mix {
    /// 43
    pub payment: u64,
    /// 4
    pub order_status: u64,
    /// 4
    pub delivery: u64,
    /// 4
    pub stock_level: u64,
}

impl Default for Mix {
    fn default() -> Self {
        Self { payment: 43, order_status: 4, delivery: 4, stock_level: 4 }
    }
}

impl Mix {
    /// Draws one.
    pub fn draw(&self, rng: &mut Rng) -> Kind {
        let draw = rng.below(100);
        let mut bound = 0;
        for (share, kind) in [
            (self.payment, Kind::Payment),
            (self.order_status, Kind::OrderStatus),
            (self.delivery, Kind::Delivery),
            (self.stock_level, Kind::StockLevel),
        ] {
            bound += share;
            if draw < bound {
                return kind;
            }
        }
        Kind::NewOrder
    }
}

/// Runs one transaction for a terminal of `warehouse`, without committing.
///
/// # Errors
/// Those of the pages. Roll the transaction back then.
pub fn run_one(layout: &Layout, pages: &mut dyn Pages, kind: Kind, warehouse: u32, rng: &mut Rng) -> Result<Outcome> {
    let mut run = Run { layout, pages, rng, warehouse };
    match kind {
        Kind::NewOrder => run.new_order(),
        Kind::Payment => run.payment(),
        Kind::OrderStatus => run.order_status(),
        Kind::Delivery => run.delivery(),
        Kind::StockLevel => run.stock_level(),
    }
}

/// Whether a word that is 0 where no row is, and 0xFFFFFFFF on pages never written, stands for one.
pub(super) fn is_row(word: u32) -> bool {
    word != 0 && word != u32::MAX
}

struct Run<'a> {
    layout: &'a Layout,
    pages: &'a mut dyn Pages,
    rng: &'a mut Rng,
    warehouse: u32,
}

impl Run<'_> {
    fn get(&mut self, table: Table, row: u32) -> Result<Row> {
        self.layout.get(self.pages, table, row)
    }

    fn put(&mut self, table: Table, row: u32, bytes: &Row) -> Result<()> {
        self.layout.put(self.pages, table, row, bytes)
    }

    fn fresh(&self, table: Table) -> Row {
        Row(vec![0; self.layout.row_bytes(table)])
    }

    fn district(&mut self) -> u32 {
        let districts = self.layout.scale.districts;
        self.warehouse * districts + self.rng.below(u64::from(districts)) as u32
    }

    fn other_warehouse(&mut self) -> u32 {
        let count = self.layout.scale.warehouses;
        if count == 1 {
            return self.warehouse;
        }
        (self.warehouse + 1 + self.rng.below(u64::from(count) - 1) as u32) % count
    }

    fn customer(&mut self) -> u32 {
        nurand(self.rng, 1023, 259, 0, u64::from(self.layout.scale.customers) - 1) as u32
    }

    /// 60 % by last name: of all with that name the middle one (2.5.2.2).
    fn customer_by_name_or_number(&mut self, district: u32) -> Result<u32> {
        let customers = self.layout.scale.customers;
        if self.rng.chance(400) {
            return Ok(self.customer());
        }
        let wanted = random_name(self.rng) % customers.min(1000);
        let first = district * customers;
        // The entries are sorted: two binary searches.
        let bound = |run: &mut Self, name: u32| -> Result<u32> {
            let (mut low, mut high) = (0, customers);
            while low < high {
                let middle = (low + high) / 2;
                let entry = run.get(Table::CustomerName, first + middle)?.word(field::CN_ENTRY);
                if entry >> 16 < name { low = middle + 1 } else { high = middle }
            }
            Ok(low)
        };
        let (start, end) = (bound(self, wanted)?, bound(self, wanted + 1)?);
        if start >= end {
            return Ok(self.customer());
        }
        let entry = self.get(Table::CustomerName, first + start + (end - start) / 2)?;
        Ok((entry.word(field::CN_ENTRY) & 0xffff).min(customers - 1))
    }

    fn new_order(&mut self) -> Result<Outcome> {
        let scale = self.layout.scale;
        let district = self.district();
        let customer = self.customer();
        let lines = self.rng.between(5, u64::from(LINES_MAX)) as u32;
        let is_bad = self.rng.chance(10);
        let tax = self.get(Table::Warehouse, self.warehouse)?.word(field::W_TAX);
        let mut own = self.get(Table::District, district)?;
        let order = own.word(field::D_NEXT_O_ID);
        if order >= scale.orders_max {
            return Ok(Outcome::Full);
        }
        own.set_word(field::D_NEXT_O_ID, order + 1);
        self.put(Table::District, district, &own)?;
        let taxes = i64::from(tax + own.word(field::D_TAX));
        let buyer = self.get(Table::Customer, district * scale.customers + customer)?;
        let discount = i64::from(buyer.word(field::C_DISCOUNT));
        let number = district * scale.orders_max + order;
        let mut bytes = self.fresh(Table::Order);
        bytes.set_word(field::O_CUSTOMER, customer + 1);
        bytes.set_word(field::O_LINES, lines);
        self.put(Table::Order, number, &bytes)?;
        let mut bytes = self.fresh(Table::NewOrder);
        bytes.set_word(field::NO_EXISTS, 1);
        self.put(Table::NewOrder, number, &bytes)?;
        let mut bytes = self.fresh(Table::LastOrder);
        bytes.set_word(field::LO_ORDER, order + 1);
        self.put(Table::LastOrder, district * scale.customers + customer, &bytes)?;
        for line in 0..lines {
            if is_bad && line + 1 == lines {
                return Ok(Outcome::RolledBack);
            }
            let item = nurand(self.rng, 8191, 7911, 0, u64::from(scale.items) - 1) as u32;
            let supply = if self.rng.chance(10) { self.other_warehouse() } else { self.warehouse };
            let quantity = self.rng.between(1, 10) as u32;
            let price = i64::from(self.get(Table::Item, item)?.word(field::I_PRICE));
            let place = supply * scale.items + item;
            let mut stock = self.get(Table::Stock, place)?;
            let left = stock.word(field::S_QUANTITY);
            stock.set_word(
                field::S_QUANTITY,
                if left >= quantity + 10 { left - quantity } else { left + 91 - quantity },
            );
            stock.set_word(field::S_YTD, stock.word(field::S_YTD).wrapping_add(quantity));
            stock.set_word(field::S_ORDER_CNT, stock.word(field::S_ORDER_CNT).wrapping_add(1));
            if supply != self.warehouse {
                stock.set_word(field::S_REMOTE_CNT, stock.word(field::S_REMOTE_CNT).wrapping_add(1));
            }
            self.put(Table::Stock, place, &stock)?;
            // Tax and discount are part of what the terminal shows, not of the line (2.4.2.2).
            let amount = price * i64::from(quantity);
            debug_assert!(amount * (10_000 + taxes) * (10_000 - discount) >= 0);
            let mut bytes = self.fresh(Table::OrderLine);
            bytes.set_word(field::OL_ITEM, item + 1);
            bytes.add_cents(field::OL_AMOUNT, amount);
            bytes.set_word(field::OL_QUANTITY, quantity);
            bytes.set_word(field::OL_SUPPLY, supply);
            self.put(Table::OrderLine, number * LINES_MAX + line, &bytes)?;
        }
        Ok(Outcome::Done)
    }

    fn payment(&mut self) -> Result<Outcome> {
        let scale = self.layout.scale;
        let district = self.district();
        // 15 % pay in another warehouse than their own (2.5.1.2).
        let home = if self.rng.chance(850) {
            district
        } else {
            self.other_warehouse() * scale.districts + self.rng.below(u64::from(scale.districts)) as u32
        };
        let amount = self.rng.between(100, 500_000) as i64;
        let mut own = self.get(Table::Warehouse, self.warehouse)?;
        own.add_cents(field::W_YTD, amount);
        self.put(Table::Warehouse, self.warehouse, &own)?;
        let mut own = self.get(Table::District, district)?;
        let history = own.word(field::D_HISTORY);
        if history >= scale.orders_max + scale.customers {
            return Ok(Outcome::Full);
        }
        own.add_cents(field::D_YTD, amount);
        own.set_word(field::D_HISTORY, history + 1);
        self.put(Table::District, district, &own)?;
        let customer = home * scale.customers + self.customer_by_name_or_number(home)?;
        let mut payer = self.get(Table::Customer, customer)?;
        payer.add_cents(field::C_BALANCE, -amount);
        payer.add_cents(field::C_YTD_PAYMENT, amount);
        payer.set_word(field::C_PAYMENT_CNT, payer.word(field::C_PAYMENT_CNT) + 1);
        if payer.word(field::C_BAD) == 1 {
            // 2.5.2.2: the payment goes in front of what is known about the customer.
            let end = payer.0.len();
            payer.0.copy_within(field::C_DATA..end - 20, field::C_DATA + 20);
            for (index, value) in [customer, district, self.warehouse, amount as u32, 0].into_iter().enumerate() {
                payer.set_word(field::C_DATA + index * 4, value);
            }
        }
        self.put(Table::Customer, customer, &payer)?;
        let mut bytes = self.fresh(Table::History);
        bytes.add_cents(field::H_AMOUNT, amount);
        bytes.set_word(field::H_CUSTOMER, customer);
        bytes.set_word(field::H_DISTRICT, district);
        self.put(Table::History, district * (scale.orders_max + scale.customers) + history, &bytes)?;
        Ok(Outcome::Done)
    }

    fn order_status(&mut self) -> Result<Outcome> {
        let scale = self.layout.scale;
        let district = self.district();
        let customer = district * scale.customers + self.customer_by_name_or_number(district)?;
        self.get(Table::Customer, customer)?;
        let last = self.get(Table::LastOrder, customer)?.word(field::LO_ORDER);
        if is_row(last) {
            let number = district * scale.orders_max + last - 1;
            let lines = self.get(Table::Order, number)?.word(field::O_LINES).min(LINES_MAX);
            for line in 0..lines {
                self.get(Table::OrderLine, number * LINES_MAX + line)?;
            }
        }
        Ok(Outcome::Done)
    }

    /// All districts in one transaction. One without new orders is skipped (2.7.4.2).
    fn delivery(&mut self) -> Result<Outcome> {
        let scale = self.layout.scale;
        let carrier = self.rng.between(1, 10) as u32;
        for district in self.warehouse * scale.districts..(self.warehouse + 1) * scale.districts {
            let mut head = self.get(Table::NewOrderHead, district)?;
            let order = head.word(field::NH_OLDEST);
            if order >= scale.orders_max {
                continue;
            }
            let number = district * scale.orders_max + order;
            if self.get(Table::NewOrder, number)?.word(field::NO_EXISTS) != 1 {
                continue;
            }
            head.set_word(field::NH_OLDEST, order + 1);
            self.put(Table::NewOrderHead, district, &head)?;
            self.put(Table::NewOrder, number, &self.fresh(Table::NewOrder))?;
            let mut bytes = self.get(Table::Order, number)?;
            bytes.set_word(field::O_CARRIER, carrier);
            self.put(Table::Order, number, &bytes)?;
            let mut sum = 0;
            for line in 0..bytes.word(field::O_LINES).min(LINES_MAX) {
                let mut own = self.get(Table::OrderLine, number * LINES_MAX + line)?;
                sum += own.cents(field::OL_AMOUNT);
                own.set_word(field::OL_DELIVERED, 1);
                self.put(Table::OrderLine, number * LINES_MAX + line, &own)?;
            }
            let customer =
                district * scale.customers + (bytes.word(field::O_CUSTOMER).max(1) - 1).min(scale.customers - 1);
            let mut buyer = self.get(Table::Customer, customer)?;
            buyer.add_cents(field::C_BALANCE, sum);
            buyer.set_word(field::C_DELIVERY_CNT, buyer.word(field::C_DELIVERY_CNT) + 1);
            self.put(Table::Customer, customer, &buyer)?;
        }
        Ok(Outcome::Done)
    }

    fn stock_level(&mut self) -> Result<Outcome> {
        let scale = self.layout.scale;
        let district = self.district();
        let threshold = self.rng.between(10, 20) as u32;
        let next = self.get(Table::District, district)?.word(field::D_NEXT_O_ID).min(scale.orders_max);
        let mut items = Vec::new();
        for order in next.saturating_sub(20)..next {
            let number = district * scale.orders_max + order;
            let lines = self.get(Table::Order, number)?.word(field::O_LINES);
            for line in 0..lines.min(LINES_MAX) {
                let item = self.get(Table::OrderLine, number * LINES_MAX + line)?.word(field::OL_ITEM);
                if is_row(item) && item <= scale.items && !items.contains(&item) {
                    items.push(item);
                }
            }
        }
        let mut low = 0;
        for item in items {
            let stock = self.get(Table::Stock, self.warehouse * scale.items + item - 1)?;
            low += u32::from(stock.word(field::S_QUANTITY) < threshold);
        }
        debug_assert!(low <= 20 * LINES_MAX);
        Ok(Outcome::Done)
    }
}
