//! The first population (4.3.3).

use super::Pages;
use super::layout::{LINES_MAX, Layout, Row, Table, field};
use crate::error::Result;
use crate::rng::Rng;

/// The constant of NURand for last names while loading (2.1.6).
const NAME_C: u64 = 123;

/// Non-uniform random number (2.1.6).
pub(super) fn nurand(rng: &mut Rng, a: u64, c: u64, low: u64, high: u64) -> u64 {
    let value = (rng.between(0, a) | rng.between(low, high)) + c;
    value % (high - low + 1) + low
}

/// The last name of a customer as a number from 0 to 999 (4.3.2.3 spells it in syllables).
pub(super) fn random_name(rng: &mut Rng) -> u32 {
    nurand(rng, 255, NAME_C, 0, 999) as u32
}

fn row(layout: &Layout, table: Table, rng: &mut Rng) -> Row {
    let mut bytes = vec![0; layout.row_bytes(table)];
    // Filler: letters, as the specification's strings.
    for byte in bytes.iter_mut().skip(32) {
        *byte = b'a' + rng.below(26) as u8;
    }
    Row(bytes)
}

/// Loads all tables. `between` is called after each district and each thousand rows of other tables, so that a
/// transactional store below can commit.
///
/// # Errors
/// Those of the pages.
pub fn load<P: Pages>(
    layout: &Layout,
    pages: &mut P,
    rng: &mut Rng,
    between: &mut dyn FnMut(&mut P) -> Result<()>,
) -> Result<()> {
    let scale = layout.scale;
    for item in 0..scale.items {
        let mut bytes = row(layout, Table::Item, rng);
        bytes.set_word(field::I_PRICE, rng.between(100, 10_000) as u32);
        layout.put(pages, Table::Item, item, &bytes)?;
        if item % 1000 == 999 {
            between(pages)?;
        }
    }
    for warehouse in 0..scale.warehouses {
        let mut bytes = row(layout, Table::Warehouse, rng);
        // 300,000.00 for 30,000 customers with 10.00 each (4.3.3.1).
        bytes.add_cents(field::W_YTD, i64::from(scale.districts * scale.customers) * 1000);
        bytes.set_word(field::W_TAX, rng.between(0, 2000) as u32);
        layout.put(pages, Table::Warehouse, warehouse, &bytes)?;
        for item in 0..scale.items {
            let mut bytes = row(layout, Table::Stock, rng);
            bytes.set_word(field::S_QUANTITY, rng.between(10, 100) as u32);
            layout.put(pages, Table::Stock, warehouse * scale.items + item, &bytes)?;
            if item % 1000 == 999 {
                between(pages)?;
            }
        }
        for district in 0..scale.districts {
            load_district(layout, pages, warehouse * scale.districts + district, rng)?;
            between(pages)?;
        }
    }
    between(pages)
}

fn load_district(layout: &Layout, pages: &mut dyn Pages, district: u32, rng: &mut Rng) -> Result<()> {
    let scale = layout.scale;
    let mut bytes = row(layout, Table::District, rng);
    bytes.add_cents(field::D_YTD, i64::from(scale.customers) * 1000);
    bytes.set_word(field::D_TAX, rng.between(0, 2000) as u32);
    bytes.set_word(field::D_NEXT_O_ID, scale.customers);
    bytes.set_word(field::D_HISTORY, scale.customers);
    layout.put(pages, Table::District, district, &bytes)?;
    let mut names = Vec::new();
    for customer in 0..scale.customers {
        let name = if customer < 1000 { customer } else { random_name(rng) };
        names.push(name << 16 | customer);
        let mut bytes = row(layout, Table::Customer, rng);
        bytes.add_cents(field::C_BALANCE, -1000);
        bytes.add_cents(field::C_YTD_PAYMENT, 1000);
        bytes.set_word(field::C_PAYMENT_CNT, 1);
        bytes.set_word(field::C_DISCOUNT, rng.between(0, 5000) as u32);
        bytes.set_word(field::C_BAD, u32::from(rng.chance(100)));
        layout.put(pages, Table::Customer, district * scale.customers + customer, &bytes)?;
        let mut bytes = row(layout, Table::History, rng);
        bytes.add_cents(field::H_AMOUNT, 1000);
        bytes.set_word(field::H_CUSTOMER, district * scale.customers + customer);
        bytes.set_word(field::H_DISTRICT, district);
        layout.put(pages, Table::History, district * (scale.orders_max + scale.customers) + customer, &bytes)?;
    }
    names.sort_unstable();
    for (index, entry) in names.into_iter().enumerate() {
        let mut bytes = row(layout, Table::CustomerName, rng);
        bytes.set_word(field::CN_ENTRY, entry);
        layout.put(pages, Table::CustomerName, district * scale.customers + index as u32, &bytes)?;
    }
    // Orders: customers in random order. The last 30 % are not yet delivered (4.3.3.1).
    let mut customers: Vec<u32> = (0..scale.customers).collect();
    for index in (1..customers.len()).rev() {
        customers.swap(index, rng.below(index as u64 + 1) as usize);
    }
    let undelivered = scale.customers * 7 / 10;
    for (order, customer) in (0..scale.customers).zip(customers) {
        load_order(layout, pages, district, order, customer, order >= undelivered, rng)?;
    }
    let mut bytes = row(layout, Table::NewOrderHead, rng);
    bytes.set_word(field::NH_OLDEST, undelivered);
    layout.put(pages, Table::NewOrderHead, district, &bytes)
}

fn load_order(
    layout: &Layout,
    pages: &mut dyn Pages,
    district: u32,
    order: u32,
    customer: u32,
    is_new: bool,
    rng: &mut Rng,
) -> Result<()> {
    let scale = layout.scale;
    let own = district * scale.orders_max + order;
    let lines = rng.between(5, u64::from(LINES_MAX)) as u32;
    let mut bytes = row(layout, Table::Order, rng);
    bytes.set_word(field::O_CUSTOMER, customer + 1);
    bytes.set_word(field::O_CARRIER, if is_new { 0 } else { rng.between(1, 10) as u32 });
    bytes.set_word(field::O_LINES, lines);
    layout.put(pages, Table::Order, own, &bytes)?;
    let mut bytes = row(layout, Table::LastOrder, rng);
    bytes.set_word(field::LO_ORDER, order + 1);
    layout.put(pages, Table::LastOrder, district * scale.customers + customer, &bytes)?;
    if is_new {
        let mut bytes = row(layout, Table::NewOrder, rng);
        bytes.set_word(field::NO_EXISTS, 1);
        layout.put(pages, Table::NewOrder, own, &bytes)?;
    }
    for line in 0..lines {
        let mut bytes = row(layout, Table::OrderLine, rng);
        bytes.set_word(field::OL_ITEM, rng.below(u64::from(scale.items)) as u32 + 1);
        bytes.add_cents(field::OL_AMOUNT, if is_new { rng.between(1, 999_999) as i64 } else { 0 });
        bytes.set_word(field::OL_DELIVERED, u32::from(!is_new));
        bytes.set_word(field::OL_QUANTITY, 5);
        bytes.set_word(field::OL_SUPPLY, district / scale.districts);
        layout.put(pages, Table::OrderLine, own * LINES_MAX + line, &bytes)?;
    }
    Ok(())
}
