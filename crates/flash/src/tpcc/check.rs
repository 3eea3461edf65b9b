//! The consistency conditions of 3.3.2, all twelve.

use super::Pages;
use super::layout::{LINES_MAX, Layout, Table, field};
use super::transactions::is_row;
use crate::error::{FlashError, Result};

/// Checks conditions 1 to 12. Number 11 counts deliveries as well, which the specification's wording leaves out.
///
/// # Errors
/// [`FlashError::Corrupt`] names the first condition that does not hold and where, and those of the pages.
pub fn check(layout: &Layout, pages: &mut dyn Pages) -> Result<()> {
    let scale = layout.scale;
    let customers = scale.district_count() * scale.customers;
    // By customer: amounts of delivered lines, and of payments.
    let mut delivered = vec![0i64; customers as usize];
    let mut paid = vec![0i64; customers as usize];
    let mut district_paid = vec![0i64; scale.district_count() as usize];
    for district in 0..scale.district_count() {
        check_orders(layout, pages, district, &mut delivered)?;
        let rows = layout.get(pages, Table::District, district)?.word(field::D_HISTORY);
        for row in 0..rows.min(scale.orders_max + scale.customers) {
            let row = layout.get(pages, Table::History, district * (scale.orders_max + scale.customers) + row)?;
            let (customer, of) = (row.word(field::H_CUSTOMER), row.word(field::H_DISTRICT));
            expect(9, customer < customers && of == district, || format!("history of district {district}"))?;
            paid[customer as usize] += row.cents(field::H_AMOUNT);
            district_paid[district as usize] += row.cents(field::H_AMOUNT);
        }
    }
    for warehouse in 0..scale.warehouses {
        let ytd = layout.get(pages, Table::Warehouse, warehouse)?.cents(field::W_YTD);
        let districts = warehouse * scale.districts..(warehouse + 1) * scale.districts;
        let (mut sum, mut history) = (0, 0);
        for district in districts {
            let own = layout.get(pages, Table::District, district)?.cents(field::D_YTD);
            sum += own;
            history += district_paid[district as usize];
            let paid = district_paid[district as usize];
            expect(9, own == paid, || format!("district {district}: D_YTD {own}, history {paid}"))?;
        }
        expect(1, ytd == sum, || format!("warehouse {warehouse}: W_YTD {ytd}, districts {sum}"))?;
        expect(8, ytd == history, || format!("warehouse {warehouse}: W_YTD {ytd}, history {history}"))?;
    }
    for customer in 0..customers {
        let row = layout.get(pages, Table::Customer, customer)?;
        let (balance, ytd) = (row.cents(field::C_BALANCE), row.cents(field::C_YTD_PAYMENT));
        let (delivered, paid) = (delivered[customer as usize], paid[customer as usize]);
        let what = || format!("customer {customer}: balance {balance}, paid {ytd} and {paid}, delivered {delivered}");
        expect(10, balance == delivered - paid, what)?;
        expect(12, balance + ytd == delivered, what)?;
    }
    Ok(())
}

fn check_orders(layout: &Layout, pages: &mut dyn Pages, district: u32, delivered: &mut [i64]) -> Result<()> {
    let scale = layout.scale;
    let next = layout.get(pages, Table::District, district)?.word(field::D_NEXT_O_ID);
    expect(2, next <= scale.orders_max, || format!("district {district}: next order {next}"))?;
    let (mut orders, mut new_orders, mut lowest, mut highest) = (0u32, 0u32, u32::MAX, 0);
    let (mut line_sum, mut line_count) = (0, 0);
    for order in 0..scale.orders_max {
        let number = district * scale.orders_max + order;
        let row = layout.get(pages, Table::Order, number)?;
        let what = || format!("district {district}, order {order}");
        let exists = is_row(row.word(field::O_CUSTOMER));
        expect(2, exists == (order < next), what)?;
        let is_new = layout.get(pages, Table::NewOrder, number)?.word(field::NO_EXISTS) == 1;
        if is_new {
            new_orders += 1;
            (lowest, highest) = (lowest.min(order), order);
        }
        if !exists {
            expect(2, !is_new, what)?;
            continue;
        }
        orders += 1;
        let (carrier, lines) = (row.word(field::O_CARRIER), row.word(field::O_LINES));
        expect(5, (carrier == 0) == is_new, what)?;
        let customer = district * scale.customers + row.word(field::O_CUSTOMER) - 1;
        let mut own_lines = 0;
        for line in 0..LINES_MAX {
            let row = layout.get(pages, Table::OrderLine, number * LINES_MAX + line)?;
            if !is_row(row.word(field::OL_ITEM)) {
                continue;
            }
            own_lines += 1;
            let is_delivered = row.word(field::OL_DELIVERED) == 1;
            expect(7, is_delivered == (carrier != 0), what)?;
            if let Some(sum) = delivered.get_mut(customer as usize).filter(|_| is_delivered) {
                *sum += row.cents(field::OL_AMOUNT);
            }
        }
        expect(6, own_lines == lines, what)?;
        line_sum += lines;
        line_count += own_lines;
    }
    let what = || format!("district {district}: {new_orders} new orders from {lowest} to {highest}, next {next}");
    expect(4, line_sum == line_count, what)?;
    if new_orders > 0 {
        expect(2, highest + 1 == next, what)?;
        expect(3, highest - lowest + 1 == new_orders, what)?;
    }
    let oldest = layout.get(pages, Table::NewOrderHead, district)?.word(field::NH_OLDEST);
    expect(11, orders - new_orders == oldest, what)
}

fn expect(condition: u32, holds: bool, what: impl Fn() -> String) -> Result<()> {
    if holds {
        return Ok(());
    }
    Err(FlashError::Corrupt(format!("TPC-C condition {condition} does not hold: {}", what())))
}
