//! Devices that fill up, wear out and forget bits: refusals are clear, and nothing committed is lost.

use ledgerstone_flash::FlashError;
use ledgerstone_flash::nand::memory::{Content, MemoryNand};
use ledgerstone_flash::nand::{Geometry, Nand, Timing};
use ledgerstone_flash::protocol::{AnyStore, Config, Protocol};
use ledgerstone_flash::rng::Rng;
use ledgerstone_flash::transact::Transactions;

fn store(protocol: Protocol, content: Content, endurance: Option<u32>) -> AnyStore<MemoryNand> {
    let geometry = Geometry { pages_per_block: 8, page_bytes: 1024, ..Geometry::small(32) };
    let config = Config { buffer_pages: 4, checkpoint_pages: 8, ..Config::new(protocol) };
    let mut nand = MemoryNand::new(config.suitable(geometry), Timing::paper(), content).unwrap();
    nand.set_bad(5);
    nand.set_endurance(endurance);
    AnyStore::open(nand, config).unwrap()
}

fn read(store: &mut AnyStore<MemoryNand>, lba: u32) -> u64 {
    let mut bytes = [0; 8];
    store.read(None, lba, &mut bytes).unwrap();
    u64::from_le_bytes(bytes)
}

#[test]
fn a_full_device_refuses_stays_readable_and_recovers_by_an_abort() {
    // WAL needs no room for second versions: it overwrites. What the extended ones have in memory needs none either.
    for protocol in Protocol::ALL.into_iter().filter(|p| !p.is_no_force()) {
        let mut store = store(protocol, Content::Fingerprint, None);
        let txn = store.begin();
        for lba in 0..store.page_count() {
            store.write(txn, lba, &u64::from(lba).to_le_bytes()).unwrap();
        }
        store.commit(txn).unwrap();
        // Second versions of everything do not fit beside the first.
        let txn = store.begin();
        let refused = (0..store.page_count()).find_map(|lba| store.write(txn, lba, &[7; 8]).err());
        assert!(matches!(refused, Some(FlashError::Full { .. })), "{refused:?}");
        for lba in 0..store.page_count() {
            assert_eq!(read(&mut store, lba), u64::from(lba));
        }
        store.abort(txn).unwrap();
        let txn = store.begin();
        store.write(txn, 3, &33u64.to_le_bytes()).unwrap();
        store.commit(txn).unwrap();
        assert_eq!((read(&mut store, 3), read(&mut store, 4)), (33, 4));
    }
}

#[test]
fn worn_out_blocks_leave_service_without_losing_anything() {
    for protocol in Protocol::ALL {
        let mut store = store(protocol, Content::Fingerprint, Some(12));
        let mut model = [u64::MAX; 16];
        let mut rng = Rng::new(3);
        let end = loop {
            let txn = store.begin();
            let (lba, value) = (rng.below(16) as u32, rng.next_u64());
            match store.write(txn, lba, &value.to_le_bytes()).and_then(|()| store.commit(txn)) {
                Ok(()) => model[lba as usize] = value,
                Err(error) => break error,
            }
            for (lba, value) in model.iter().enumerate() {
                assert_eq!(read(&mut store, lba as u32), *value);
            }
        };
        assert!(matches!(end, FlashError::Full { .. }), "{end}");
        assert!(store.core().stats.blocks_lost > 5, "{:?}", store.core().stats);
        for (lba, value) in model.iter().enumerate() {
            assert_eq!(read(&mut store, lba as u32), *value);
        }
    }
}

#[test]
fn one_flipped_bit_a_sector_is_put_right_and_two_are_reported() {
    let mut store = store(Protocol::Cfc, Content::Full, None);
    let data: Vec<u8> = (0..1024u32).map(|i| i as u8).collect();
    let txn = store.begin();
    store.write(txn, 0, &data).unwrap();
    store.commit(txn).unwrap();
    // The first page that is written on an empty device is the first of its first block.
    let nand = &mut store.core_mut().nand;
    nand.flip_data_bit(0, 77);
    nand.flip_data_bit(0, 4096 + 5);
    nand.flip_spare_bit(0, 70);
    let mut found = vec![0; 1024];
    store.read(None, 0, &mut found).unwrap();
    assert_eq!(found, data);
    assert_eq!(store.core().stats.bits_corrected, 2);
    store.core_mut().nand.flip_data_bit(0, 78);
    assert!(matches!(store.read(None, 0, &mut found), Err(FlashError::Unreadable(0))));
}

#[test]
fn wear_is_spread_over_blocks_whose_data_never_moves() {
    let mut store = store(Protocol::Cfc, Content::Fingerprint, None);
    let txn = store.begin();
    for lba in 0..store.page_count() {
        store.write(txn, lba, &[1; 8]).unwrap();
    }
    store.commit(txn).unwrap();
    for round in 0..60_000u32 {
        let txn = store.begin();
        store.write(txn, round % 4, &round.to_le_bytes()).unwrap();
        store.commit(txn).unwrap();
    }
    let (least, most, _) = store.core().wear();
    assert!(least > 0 && most - least <= 64 + 64, "erases between {least} and {most}");
}

/// Pending records of two running transactions are on flash when power fails; any one bit of any spare area is flipped.
#[test]
fn one_flipped_bit_in_pending_records_loses_nothing_and_two_are_named() {
    for protocol in [Protocol::CfcEx, Protocol::AfcEx] {
        let mut store = store(protocol, Content::Fingerprint, None);
        let setup = store.begin();
        for lba in 0..12 {
            store.update(setup, lba, 0, &[1; 4]).unwrap();
        }
        store.commit(setup).unwrap();
        let (committed, running) = (store.begin(), store.begin());
        for lba in 0..12 {
            store.update(committed, lba, 0, &[2; 2]).unwrap();
            store.update(running, lba, 4, &[3; 2]).unwrap();
        }
        store.commit(committed).unwrap();
        let mut nand = store.into_device();
        nand.cut_power_now();
        let config = Config { buffer_pages: 4, checkpoint_pages: 8, ..Config::new(protocol) };
        let spare_bytes = nand.geometry().spare_bytes as usize;
        let mut is_pending = |pba: u32| {
            let mut spare = vec![0; spare_bytes];
            nand.restore_power();
            nand.read_spare(pba, &mut spare).unwrap();
            spare[1] == 0xd1 && spare[8..12] != [0; 4]
        };
        let pending: Vec<u32> = (0..128).filter(|pba| is_pending(*pba)).collect();
        assert!(pending.len() > 4, "{pending:?}");
        let open = |bits: &[usize]| {
            let mut nand = nand.clone();
            bits.iter().for_each(|bit| nand.flip_spare_bit(pending[1], *bit));
            nand.restore_power();
            let mut store = AnyStore::open(nand, config)?;
            for lba in 0..12 {
                let mut found = [0; 6];
                store.read(None, lba, &mut found)?;
                assert_eq!(found, [2, 2, 1, 1, 0xff, 0xff], "{protocol:?}, page {lba}, bits {bits:?}");
            }
            Ok::<_, FlashError>(())
        };
        let first = (spare_bytes - 120) * 8;
        for bit in (first..spare_bytes * 8).step_by(5) {
            open(&[bit]).unwrap();
        }
        let error = open(&[first, spare_bytes * 8 - 1]).unwrap_err();
        assert!(matches!(error, FlashError::Unreadable(pba) if pba == pending[1]), "{error}");
    }
}
