//! What a device has to do for a store to live on it: the same steps for every implementation of [`Nand`], and, behind
//! [`super::mtd`], for a real driver.

use super::Nand;
use crate::error::{FlashError, Result};
use crate::protocol::{AnyStore, Config, Protocol};
use crate::transact::Transactions;

fn expect(holds: bool, what: &str) -> Result<()> {
    if holds { Ok(()) } else { Err(FlashError::Corrupt(what.to_string())) }
}

/// Erases block 0 and programs its first pages: N1 to N3.
///
/// # Errors
/// [`FlashError::Corrupt`] says what does not hold, and those of the device.
pub fn pages(nand: &mut dyn Nand) -> Result<()> {
    let geometry = *nand.geometry();
    let mut data = vec![0; geometry.page_bytes as usize];
    let mut spare = vec![0; geometry.spare_bytes as usize];
    expect(!nand.is_bad(0)?, "block 0 is bad")?;
    nand.erase(0)?;
    nand.read(0, &mut data, &mut spare)?;
    expect(data.iter().chain(&spare).all(|b| *b == 0xff), "an erased page does not read as 0xFF")?;
    let mut own_spare = vec![0xff; spare.len()];
    own_spare[1..4].copy_from_slice(&[0xd1, 0xff, 0xff]);
    let own_data: Vec<u8> = (0..data.len()).map(|i| (i / 64) as u8).collect();
    nand.program(0, &own_data, &own_spare)?;
    nand.program(1, &[7; 8], &own_spare)?;
    nand.read(0, &mut data, &mut spare)?;
    expect(data == own_data && spare == own_spare, "a page does not read as it was programmed")?;
    nand.read(1, &mut data, &mut spare)?;
    expect(data[..8] == [7; 8] && data[8..].iter().all(|b| *b == 0xff), "the end of a short page is not 0xFF")?;
    expect(nand.program(0, &own_data, &own_spare).is_err(), "a page can be programmed twice")?;
    // The flag of CFC, then that of AFC.
    let mut left = geometry.programs_max.saturating_sub(1);
    for (flag, reads) in [(0xf0, 0xf0), (0x0f, 0x00)] {
        if left == 0 {
            let answer = nand.program_spare(0, 2, &[flag]);
            expect(matches!(answer, Err(FlashError::ProgramLimit { .. })), "a page can be programmed too often")?;
            break;
        }
        nand.program_spare(0, 2, &[flag])?;
        left -= 1;
        nand.read(0, &mut data, &mut spare)?;
        own_spare[2] = reads;
        expect(data == own_data && spare == own_spare, "programming a flag did not clear its bits and only those")?;
    }
    nand.erase(0)?;
    nand.read(0, &mut data, &mut spare)?;
    expect(data.iter().chain(&spare).all(|b| *b == 0xff), "an erase leaves bits")
}

/// A store under a protocol: transactions that commit and abort, one still running when the store is dropped, a mount,
/// and what is read then. Everything on the device is erased.
///
/// # Errors
/// As [`pages`].
pub fn store(nand: &mut dyn Nand, protocol: Protocol) -> Result<()> {
    for block in 0..nand.geometry().blocks {
        if !nand.is_bad(block)? {
            nand.erase(block)?;
        }
    }
    let config = Config { buffer_pages: 4, ..Config::new(protocol) };
    let value = |round: u8, lba: u32| [round, lba as u8, 0xa5];
    let mut store = AnyStore::open(&mut *nand, config)?;
    for round in 1..=2 {
        let txn = store.begin();
        for lba in 0..6 {
            store.write(txn, lba, &value(round, lba))?;
        }
        store.commit_with(txn, &[(6, &value(round, 6))])?;
    }
    let aborted = store.begin();
    store.write(aborted, 0, &value(3, 0))?;
    store.write(aborted, 1, &value(3, 1))?;
    store.abort(aborted)?;
    let running = store.begin();
    store.write(running, 2, &value(4, 2))?;
    store.write(running, 3, &value(4, 3))?;
    drop(store);
    for _ in 0..2 {
        let mut store = AnyStore::open(&mut *nand, config)?;
        for lba in 0..7 {
            let mut found = [0; 3];
            store.read(None, lba, &mut found)?;
            expect(found == value(2, lba), "a committed page is lost or another one there")?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nand::file::FileNand;
    use crate::nand::memory::{Content, MemoryNand};
    use crate::nand::{Geometry, Timing};

    #[test]
    fn every_device_does_what_a_store_needs() {
        let dir = tempfile::tempdir().unwrap();
        for protocol in [Protocol::Cfc, Protocol::Afc, Protocol::Scc, Protocol::Bpcc, Protocol::Wal] {
            let geometry = Geometry { is_in_order: true, ..Geometry::small(16) };
            let mut memory = MemoryNand::new(geometry, Timing::paper(), Content::Full).unwrap();
            let mut file = FileNand::create(&dir.path().join(protocol.name()), geometry).unwrap();
            for nand in [&mut memory as &mut dyn Nand, &mut file] {
                pages(nand).unwrap();
                store(nand, protocol).unwrap();
            }
        }
    }
}
