//! The control file survives power loss at every write, and says what is wrong with a file that is not one.
#![cfg(not(loom))]

use ledgerstone_disk::{Disk, Open, SimDisk};
use ledgerstone_log::control::{CONTROL_FORMAT, CONTROL_SLOT_BYTES, ControlFile, ControlSlot, ControlState};
use ledgerstone_log::{CONTROL_PATH, ControlError};
use ledgerstone_page::Lsn;

fn state() -> ControlState {
    ControlState::new([3; 16], 4096, 1 << 20)
}

fn edit(disk: &SimDisk, at: u64, bytes: &[u8]) {
    disk.open(CONTROL_PATH, Open::EXISTING).unwrap().write_at(at, bytes).unwrap();
}

#[test]
fn power_loss_leaves_the_last_change_or_the_one_before() {
    for crash_at in 1..40 {
        for seed in 0..4 {
            let disk = SimDisk::new();
            disk.crash_at(crash_at);
            let mut written = None;
            if let Ok(control) = ControlFile::create(&disk, state()) {
                written = Some(0);
                for no in 1..20 {
                    let change = |state: &mut ControlState| {
                        state.scan_lsn = Lsn(no * 8);
                        state.scan_incarnation = no;
                    };
                    if control.change(change).is_err() {
                        assert!(matches!(control.change(change), Err(ControlError::Failed { .. })));
                        break;
                    }
                    written = Some(no);
                }
            }
            let disk = disk.after_crash(seed);
            match (ControlFile::open(&disk).map(|control| control.state()), written) {
                (Ok(found), Some(no)) => {
                    let which = if found == state() { 0 } else { found.scan_incarnation };
                    assert!(which == no || which == no + 1, "wrote {no}, found {which}");
                    assert!(which == 0 || found.scan_lsn == Lsn(which * 8));
                }
                (Ok(found), None) => assert_eq!(found, state()),
                (Err(ControlError::NotAnEnvironment { .. }), None) => {}
                (Err(error), written) => panic!("crash at {crash_at}: {error}, written {written:?}"),
            }
        }
    }
}

/// One slot damaged takes nothing away, and the next change mends it.
#[test]
fn both_slots_say_the_same() {
    let disk = SimDisk::new();
    let control = ControlFile::create(&disk, state()).unwrap();
    for no in 1..4 {
        control.change(|state| state.checkpoint_lsn = Lsn(8192 * no)).unwrap();
        for slot in [0, 1] {
            let damaged = disk.snapshot();
            edit(&damaged, slot * 4096 + 60, &[0xff]);
            let found = ControlFile::open(&damaged).unwrap();
            assert_eq!((found.state(), found.damaged_slot()), (control.state(), Some(slot)));
            found.change(|_| ()).unwrap();
            assert_eq!(ControlFile::open(&damaged).unwrap().damaged_slot(), None);
        }
    }
}

#[test]
fn the_slot_that_a_killed_process_wrote_last_is_durable_before_the_other_can_be_destroyed() {
    let slot = |disk: &SimDisk, no: u64| {
        let mut bytes = [0; CONTROL_SLOT_BYTES];
        let file = disk.open(CONTROL_PATH, Open::READ).unwrap();
        file.read_at(no * CONTROL_SLOT_BYTES as u64, &mut bytes).unwrap();
        bytes
    };
    for kill_at in 1..6 {
        let disk = SimDisk::new();
        let control = ControlFile::create(&disk, state()).unwrap();
        disk.kill_at(disk.counters().mutations + kill_at, u64::MAX);
        while control.change(|_| ()).is_ok() {}
        let killed = disk.after_kill();
        let found = ControlFile::open(&killed).unwrap().generation();
        for (crash_at, seed) in (1..4).flat_map(|n| (0..10).map(move |seed| (n, seed))) {
            let life = killed.snapshot();
            life.crash_at(crash_at);
            let written = ControlFile::open(&life).unwrap().change(|_| ()).is_ok();
            let after = life.after_crash(seed);
            if !written {
                // The power goes while the device writes a slot, and takes all of it along.
                let was_in = (0..2).find(|&no| slot(&life.after_kill(), no) != slot(&killed, no)).unwrap_or(found % 2);
                edit(&after, was_in * CONTROL_SLOT_BYTES as u64, &[0xff; CONTROL_SLOT_BYTES]);
            }
            let left = ControlFile::open(&after).unwrap().generation();
            assert!(left >= found - 1 + 2 * u64::from(written), "{found} was found, {left} is left");
        }
    }
}

#[test]
fn what_is_no_control_file_is_told_apart() {
    let disk = SimDisk::new();
    assert!(matches!(ControlFile::open(&disk), Err(ControlError::NotAnEnvironment { .. })));
    ControlFile::create(&disk, state()).unwrap().change(|_| ()).unwrap();
    assert!(matches!(ControlFile::create(&disk, state()), Err(ControlError::Exists { .. })));
    assert_eq!(ControlFile::open(&disk).unwrap().generation(), 4);

    edit(&disk, 60, &[0xff]);
    assert_eq!(ControlFile::open(&disk).unwrap().generation(), 3);
    edit(&disk, 4096 + 70, &[0xff]);
    assert!(matches!(ControlFile::open(&disk), Err(ControlError::Corrupt { .. })));

    // A newer format, whole.
    let mut newer = state().encode(9);
    newer[12] = 9;
    let crc = crc32c::crc32c(&newer[12..]);
    newer[8..12].copy_from_slice(&crc.to_le_bytes());
    edit(&disk, 4096, &newer);
    match ControlFile::open(&disk) {
        Err(ControlError::NewerFormat { found: 9, supported: CONTROL_FORMAT, path }) => {
            assert!(path.ends_with("control"))
        }
        other => panic!("{:?}", other.map(|control| control.state())),
    }

    edit(&disk, 0, &[b'x'; 2 * CONTROL_SLOT_BYTES]);
    assert!(matches!(ControlFile::open(&disk), Err(ControlError::NotAnEnvironment { .. })));
    disk.open(CONTROL_PATH, Open::EXISTING).unwrap().set_len(100).unwrap();
    assert!(matches!(ControlFile::open(&disk), Err(ControlError::NotAnEnvironment { .. })));
}

#[test]
fn any_bytes_are_some_slot() {
    let slot = state().encode(1);
    for at in 0..slot.len() {
        let mut bytes = slot;
        bytes[at] ^= 0x40;
        let found = ControlSlot::decode(&bytes);
        assert!(matches!(found, ControlSlot::Damaged { .. } | ControlSlot::Foreign), "byte {at}: {found:?}");
    }
    assert_eq!(ControlSlot::decode(&slot[..4000]), ControlSlot::Foreign);
    assert_eq!(ControlSlot::decode(&[]), ControlSlot::Foreign);
}
