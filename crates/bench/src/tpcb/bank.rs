//! The bank: four tables, their records, and how many there are.
//!
//! ```text
//! table     key             record
//! accounts  u64 big-endian  100 bytes: balance i64, branch u64, number u64 (little-endian), filler
//! tellers   u64 big-endian  100 bytes: the same
//! branches  u64 big-endian  100 bytes: the same
//! history   u64 big-endian   50 bytes: account u64, teller u64, branch u64, delta i64, time u64 (ns), filler
//! ```
//! With `--key u32` the keys of the first three are u32, big-endian as well: then their order is their number's.
//!
//! B1. A history key has the number of the thread in the upper 16 bits, and the thread's counter below. So threads
//!     never meet at the end of the table, and every key says which thread wrote it.
//! B2. Teller t works at branch t / 10; a transaction takes any account, any teller, and the teller's branch.
//! B3. All balances begin at 0: then each is the sum of the history rows that name it.

use std::time::{SystemTime, UNIX_EPOCH};

use ledgerstone::{Environment, Error};
use ledgerstone_region::Random;
use serde::Serialize;

pub(crate) const ACCOUNTS: &str = "accounts";
pub(crate) const TELLERS: &str = "tellers";
pub(crate) const BRANCHES: &str = "branches";
pub(crate) const HISTORY: &str = "history";
/// Holds one record, written last by the load: without it the bank is not whole.
const BANK: &str = "tpcb";

const RECORD_BYTES: usize = 100;
const HISTORY_BYTES: usize = 50;

/// How the keys of accounts, tellers and branches are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum KeyKind {
    /// 8 bytes.
    U64,
    /// 4 bytes.
    U32,
}

/// How many there are of each, and how their keys are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Scale {
    /// Accounts.
    pub account_count: u64,
    /// Tellers.
    pub teller_count: u64,
    /// Branches.
    pub branch_count: u64,
    /// Their keys.
    pub key: KeyKind,
}

impl Scale {
    /// As LIBTP 5.1 has it for 10 transactions a second: 1,000,000 accounts, 100 tellers, 10 branches. Other numbers
    /// of accounts are in proportion, with at least one branch and its ten tellers.
    #[must_use]
    pub fn of(account_count: u64, key: KeyKind) -> Scale {
        let branch_count = (account_count / 100_000).max(1);
        Scale { account_count, teller_count: branch_count * 10, branch_count, key }
    }

    /// LIBTP's small database (5.1.2): 1,000 accounts, but tellers and branches as before.
    #[must_use]
    pub fn small(key: KeyKind) -> Scale {
        Scale { account_count: 1_000, teller_count: 100, branch_count: 10, key }
    }

    /// The branch where a teller works.
    pub(crate) fn branch_of(&self, teller: u64) -> u64 {
        teller * self.branch_count / self.teller_count
    }

    fn encode(&self) -> Vec<u8> {
        let key = match self.key {
            KeyKind::U64 => 8_u64,
            KeyKind::U32 => 4,
        };
        [self.account_count, self.teller_count, self.branch_count, key].iter().flat_map(|n| n.to_le_bytes()).collect()
    }

    fn decode(bytes: &[u8]) -> Option<Scale> {
        if bytes.len() != 32 {
            return None;
        }
        let at = |no: usize| word(bytes, no * 8);
        let key = if at(3)? == 4 { KeyKind::U32 } else { KeyKind::U64 };
        let scale = Scale { account_count: at(0)?, teller_count: at(1)?, branch_count: at(2)?, key };
        (scale.account_count > 0 && scale.teller_count > 0 && scale.branch_count > 0).then_some(scale)
    }

    /// The scale of the bank in an environment, or `None` if the bank is not complete.
    ///
    /// # Errors
    /// The environment's.
    pub fn find(env: &Environment) -> Result<Option<Scale>, Error> {
        env.transact(|txn| match txn.bytes(BANK) {
            Ok(bank) => Ok(bank.get(b"scale")?.and_then(|bytes| Scale::decode(&bytes))),
            Err(Error::NoSuchTable { .. }) => Ok(None),
            Err(error) => Err(error),
        })
    }

    /// Says that the bank is whole.
    pub(crate) fn keep(&self, env: &Environment) -> Result<(), Error> {
        env.transact(|txn| txn.bytes_or_create(BANK)?.put(b"scale", &self.encode()))
    }
}

/// The key of an account, teller or branch, on the stack.
#[derive(Clone, Copy)]
pub(crate) struct Key {
    bytes: [u8; 8],
    from: usize,
}

impl Key {
    #[inline]
    pub(crate) fn new(kind: KeyKind, number: u64) -> Key {
        let from = if kind == KeyKind::U32 { 4 } else { 0 };
        Key { bytes: number.to_be_bytes(), from }
    }

    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[self.from..]
    }

    /// The number that a key of either kind stands for.
    pub(crate) fn number(key: &[u8]) -> Option<u64> {
        match key.len() {
            8 => key.try_into().ok().map(u64::from_be_bytes),
            4 => key.try_into().ok().map(u32::from_be_bytes).map(u64::from),
            _ => None,
        }
    }
}

/// The record of an account, teller or branch with nothing on it.
pub(crate) fn record(number: u64, branch: u64) -> [u8; RECORD_BYTES] {
    let mut record = [b'.'; RECORD_BYTES];
    record[..8].copy_from_slice(&0_i64.to_le_bytes());
    record[8..16].copy_from_slice(&branch.to_le_bytes());
    record[16..24].copy_from_slice(&number.to_le_bytes());
    record
}

/// The balance in a record.
#[inline]
pub(crate) fn balance(record: &[u8]) -> Option<i64> {
    word(record, 0).map(|word| word as i64)
}

/// The record with `delta` added to its balance, or `None` if it is not such a record.
#[inline]
pub(crate) fn credited(record: &[u8], delta: i64) -> Option<Vec<u8>> {
    let balance = balance(record)?.wrapping_add(delta);
    let mut record = record.to_vec();
    record[..8].copy_from_slice(&balance.to_le_bytes());
    Some(record)
}

/// One row of the history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Transfer {
    pub(crate) account: u64,
    pub(crate) teller: u64,
    pub(crate) branch: u64,
    pub(crate) delta: i64,
    pub(crate) time_ns: u64,
}

impl Transfer {
    /// What a customer wants: any account, any teller, the teller's branch, now.
    #[inline]
    pub(crate) fn draw(scale: &Scale, random: &mut Random) -> Transfer {
        let teller = random.below(scale.teller_count);
        Transfer {
            account: random.below(scale.account_count),
            teller,
            branch: scale.branch_of(teller),
            delta: random.below(1_999_999) as i64 - 999_999,
            time_ns: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64),
        }
    }

    #[inline]
    pub(crate) fn encode(&self) -> [u8; HISTORY_BYTES] {
        let mut row = [b'.'; HISTORY_BYTES];
        row[..8].copy_from_slice(&self.account.to_le_bytes());
        row[8..16].copy_from_slice(&self.teller.to_le_bytes());
        row[16..24].copy_from_slice(&self.branch.to_le_bytes());
        row[24..32].copy_from_slice(&self.delta.to_le_bytes());
        row[32..40].copy_from_slice(&self.time_ns.to_le_bytes());
        row
    }

    pub(crate) fn decode(row: &[u8]) -> Option<Transfer> {
        if row.len() != HISTORY_BYTES {
            return None;
        }
        Some(Transfer {
            account: word(row, 0)?,
            teller: word(row, 8)?,
            branch: word(row, 16)?,
            delta: word(row, 24)? as i64,
            time_ns: word(row, 32)?,
        })
    }
}

/// Bits of a history key that count; the thread's number is above them (B1).
const COUNTER_BITS: u32 = 48;

/// The history key of a thread's n-th transaction.
#[inline]
pub(crate) fn history_key(thread_no: u64, counter: u64) -> [u8; 8] {
    ((thread_no << COUNTER_BITS) | counter).to_be_bytes()
}

/// The counter in a history key.
pub(crate) fn counter_of(key: &[u8]) -> Option<u64> {
    Key::number(key).map(|number| number & ((1 << COUNTER_BITS) - 1))
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_have_their_sizes_and_read_back() {
        let row = record(7, 3);
        assert_eq!((row.len(), balance(&row)), (100, Some(0)));
        assert_eq!(balance(&credited(&row, -5).unwrap()), Some(-5));
        let transfer = Transfer { account: 1, teller: 2, branch: 3, delta: -4, time_ns: 5 };
        assert_eq!(transfer.encode().len(), 50);
        assert_eq!(Transfer::decode(&transfer.encode()), Some(transfer));
        assert_eq!(Transfer::decode(b"short"), None);
    }

    #[test]
    fn keys_of_both_kinds_sort_by_number() {
        for kind in [KeyKind::U64, KeyKind::U32] {
            assert!(Key::new(kind, 255).bytes() < Key::new(kind, 256).bytes());
            assert_eq!(Key::number(Key::new(kind, 70_000).bytes()), Some(70_000));
        }
        assert_eq!(counter_of(&history_key(9, 12)), Some(12));
    }

    #[test]
    fn scales_are_those_of_libtp() {
        let full = Scale::of(1_000_000, KeyKind::U64);
        assert_eq!((full.teller_count, full.branch_count), (100, 10));
        assert_eq!((full.branch_of(0), full.branch_of(9), full.branch_of(10), full.branch_of(99)), (0, 0, 1, 9));
        let tiny = Scale::of(500, KeyKind::U32);
        assert_eq!((tiny.teller_count, tiny.branch_count), (10, 1));
        assert_eq!(Scale::decode(&tiny.encode()), Some(tiny));
    }
}
