//! The bank of TPC-B, its transactions, and the proof that its books agree.
//!
//! B1. All balances begin at 0, so each is the sum of the history rows that name it.
//! B2. A history key has the case and the thread in its upper bits, and the thread's counter below: no two meet.

use anyhow::{anyhow, ensure};

use crate::measure::{Done, Operation, Random};
use crate::peer::{ACCOUNTS, BRANCHES, Durability, Failure, HISTORY, Kind, Peer, TELLERS, Txn, Worker};

/// How many there are of each, and how many of the branches take part.
#[derive(Clone, Copy, Debug)]
pub struct Bank {
    /// Accounts.
    pub account_count: u64,
    /// Branches, with ten tellers each.
    pub branch_count: u64,
}

const TELLERS_EACH: u64 = 10;
/// Bits of a history key for the counter, and for the counter and the thread.
const COUNTER_BITS: u32 = 40;
const THREAD_BITS: u32 = 12;

#[derive(Clone, Copy, Debug)]
struct Transfer {
    account: u64,
    teller: u64,
    branch: u64,
    delta: i64,
}

impl Transfer {
    fn draw(bank: Bank, random: &mut Random) -> Transfer {
        let teller = random.below(bank.branch_count * TELLERS_EACH);
        Transfer {
            account: random.below(bank.account_count),
            teller,
            branch: teller / TELLERS_EACH,
            delta: random.below(1_999_999) as i64 - 999_999,
        }
    }

    /// 50 bytes.
    fn row(&self) -> [u8; 50] {
        let mut row = [b'.'; 50];
        row[..8].copy_from_slice(&self.delta.to_le_bytes());
        row[8..16].copy_from_slice(&self.account.to_le_bytes());
        row[16..24].copy_from_slice(&self.teller.to_le_bytes());
        row[24..32].copy_from_slice(&self.branch.to_le_bytes());
        row
    }

    fn of(row: &[u8]) -> Option<Transfer> {
        let word = |at: usize| Some(u64::from_le_bytes(row.get(at..at + 8)?.try_into().ok()?));
        (row.len() == 50).then_some(())?;
        Some(Transfer { delta: word(0)? as i64, account: word(8)?, teller: word(16)?, branch: word(24)? })
    }
}

fn add(txn: &mut dyn Txn, table: usize, key: u64, delta: i64) -> Result<(), Failure> {
    match txn.add(table, key, delta)? {
        true => Ok(()),
        false => Err(Failure::Other(anyhow!("record {key} of table {table} is missing"))),
    }
}

impl Bank {
    /// Makes the bank.
    ///
    /// # Errors
    /// The peer's.
    pub fn load(&self, peer: &dyn Peer) -> anyhow::Result<()> {
        for (table, count) in self.tables() {
            super::load(peer, table, count, &|key| {
                let mut record = super::record(key, 100);
                record[..8].fill(0);
                record
            })?;
        }
        peer.checkpoint()
    }

    fn tables(&self) -> [(usize, u64); 3] {
        [(ACCOUNTS, self.account_count), (TELLERS, self.branch_count * TELLERS_EACH), (BRANCHES, self.branch_count)]
    }

    /// Reads every record once, so that they are in the cache of a store that was just opened.
    ///
    /// # Errors
    /// The peer's.
    pub fn read_all(&self, peer: &dyn Peer) -> anyhow::Result<()> {
        let mut worker = peer.worker(Durability::None)?;
        for (table, count) in self.tables() {
            worker.run(Kind::Snapshot, &mut |txn| {
                txn.scan(table, 0, count, &mut |_, value| !std::hint::black_box(value).is_empty())
            })?;
        }
        Ok(())
    }

    /// The whole transaction, over and over. `case` is another number for every case of a bank.
    pub fn transfers(self, case: u64, thread_no: u64) -> Operation<'static> {
        let mut random = Random::new(case << 32 | thread_no);
        let mut counter = 0;
        Box::new(move |worker| {
            let transfer = Transfer::draw(self, &mut random);
            let key = case << (COUNTER_BITS + THREAD_BITS) | thread_no << COUNTER_BITS | counter;
            counter += 1;
            Ok((1, transfer_in(worker, key, transfer)?))
        })
    }

    /// LIBTP's transaction that only reads: an account, a teller, a branch.
    pub fn looks(self, kind: Kind, thread_no: u64) -> Operation<'static> {
        let mut random = Random::new(thread_no);
        let mut value = Vec::new();
        Box::new(move |worker| -> anyhow::Result<Done> {
            let transfer = Transfer::draw(self, &mut random);
            let again_count = worker.run(kind, &mut |txn| {
                let wanted = [(ACCOUNTS, transfer.account), (TELLERS, transfer.teller), (BRANCHES, transfer.branch)];
                wanted.into_iter().try_for_each(|(table, key)| match txn.get(table, key, &mut value)? {
                    true => Ok(()),
                    false => Err(Failure::Other(anyhow!("record {key} of table {table} is missing"))),
                })
            })?;
            Ok((1, again_count))
        })
    }

    /// Holds every balance against the history. Returns the number of its rows.
    ///
    /// # Errors
    /// The books disagree.
    pub fn check(&self, peer: &dyn Peer) -> anyhow::Result<u64> {
        let mut sums: Vec<Vec<i64>> = self.tables().iter().map(|(_, count)| vec![0; *count as usize]).collect();
        let mut worker = peer.worker(Durability::None)?;
        let (mut row_count, mut wrong) = (0_u64, 0_u64);
        worker.run(Kind::Read, &mut |txn| {
            (row_count, wrong) = (0, 0);
            sums.iter_mut().for_each(|sums| sums.fill(0));
            txn.scan(HISTORY, 0, u64::MAX, &mut |_, row| {
                row_count += 1;
                let named = Transfer::of(row).map(|row| ([row.account, row.teller, row.branch], row.delta));
                let Some((numbers, delta)) = named else {
                    wrong += 1;
                    return true;
                };
                for (sums, number) in sums.iter_mut().zip(numbers) {
                    match sums.get_mut(number as usize) {
                        Some(sum) => *sum = sum.wrapping_add(delta),
                        None => wrong += 1,
                    }
                }
                true
            })?;
            for ((table, count), sums) in self.tables().into_iter().zip(&sums) {
                let mut seen = 0;
                txn.scan(table, 0, u64::MAX, &mut |key, record| {
                    seen += 1;
                    let balance = record.first_chunk::<8>().map(|bytes| i64::from_le_bytes(*bytes));
                    wrong += u64::from(record.len() != 100 || balance != sums.get(key as usize).copied());
                    true
                })?;
                wrong += count.abs_diff(seen);
            }
            Ok(())
        })?;
        ensure!(wrong == 0, "the books disagree: {wrong} records are not what the history of {row_count} rows says");
        Ok(row_count)
    }
}

/// The account first and the branch last, so that the hottest record is held shortest; the order is always the same.
fn transfer_in(worker: &mut dyn Worker, key: u64, transfer: Transfer) -> anyhow::Result<u64> {
    worker.run(Kind::Write, &mut |txn| {
        add(txn, ACCOUNTS, transfer.account, transfer.delta)?;
        txn.put(HISTORY, key, &transfer.row())?;
        add(txn, TELLERS, transfer.teller, transfer.delta)?;
        add(txn, BRANCHES, transfer.branch, transfer.delta)
    })
}
