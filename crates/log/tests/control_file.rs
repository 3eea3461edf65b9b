//! The control file survives power loss at every write, and says what is wrong with a file that is not one.
#![cfg(not(loom))]

use std::sync::Arc;

use ledgerstone_disk::{Disk, Open, SimDisk};
use ledgerstone_log::control::{CONTROL_FORMAT, CONTROL_SLOT_BYTES, ControlFile, ControlSlot, ControlState};
use ledgerstone_log::{CONTROL_PATH, ControlError};
use ledgerstone_page::Lsn;
use ledgerstone_region::{Region, SlotTable};

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

/// Two mappings of one region, as two processes have them.
fn two_mappings(dir: &std::path::Path) -> [(Region, Arc<SlotTable>); 2] {
    let path = dir.join("region");
    let with_slots = |region: Region| {
        let slots = Arc::new(SlotTable::place(&region, 8).unwrap());
        (region, slots)
    };
    let first = with_slots(Region::create_at(&path, 1 << 20).unwrap());
    [first, with_slots(Region::join_at(&path).unwrap())]
}

/// The next change of the one goes on from that of the other: the newest slot is never written with an older number.
#[test]
fn those_who_share_a_region_know_the_same() {
    let (disk, dir) = (SimDisk::new(), tempfile::tempdir().unwrap());
    let [(first, first_slots), (second, second_slots)] = two_mappings(dir.path());
    drop(ControlFile::create(&disk, state()).unwrap());
    let one = ControlFile::open(&disk).unwrap();
    assert!(ControlFile::join(&disk, &second, &second_slots).is_err(), "nobody has shared it yet");
    one.share(&first, &first_slots).unwrap();
    let other = ControlFile::join(&disk, &second, &second_slots).unwrap();
    for no in 1..20 {
        let [changes, looks] = if no % 3 == 0 { [&other, &one] } else { [&one, &other] };
        changes.change(|state| state.checkpoint_lsn = Lsn(8 * no)).unwrap();
        assert_eq!((looks.state().checkpoint_lsn, looks.generation()), (Lsn(8 * no), 2 + 2 * no));
        assert_eq!(looks.state(), changes.state());
        assert!(looks.is_as_we_left_it().unwrap() && changes.is_as_we_left_it().unwrap());
        let found = ControlFile::open_read_only(&disk).unwrap();
        assert_eq!((found.state(), found.generation(), found.damaged_slot()), (one.state(), one.generation(), None));
    }
    // From elsewhere.
    ControlFile::open(&disk).unwrap().change(|state| state.page_count = 7).unwrap();
    assert!(!other.is_as_we_left_it().unwrap() && !one.is_as_we_left_it().unwrap());
    edit(&disk, 4096 + 70, &[0xff]);
    assert_eq!((one.look_for_damage().unwrap(), other.look_for_damage().unwrap()), (Some(1), Some(1)));
}

#[test]
fn a_failure_of_one_is_one_of_all_who_share_the_region() {
    let (disk, dir) = (SimDisk::new(), tempfile::tempdir().unwrap());
    let [(first, first_slots), (second, second_slots)] = two_mappings(dir.path());
    let one = ControlFile::create(&disk, state()).unwrap();
    one.share(&first, &first_slots).unwrap();
    let other = ControlFile::join(&disk.snapshot(), &second, &second_slots).unwrap();
    disk.crash_at(disk.counters().mutations + 1);
    assert!(matches!(one.change(|_| ()), Err(ControlError::Disk(_))));
    assert!(matches!(other.change(|_| ()), Err(ControlError::Failed { .. })));
}

/// Threads of both change it at once, and whoever looks finds what some change has left.
#[test]
fn no_change_of_those_who_share_it_is_lost_or_seen_in_part() {
    const CHANGES: u64 = 300;
    let (disk, dir) = (SimDisk::new(), tempfile::tempdir().unwrap());
    let [(first, first_slots), (second, second_slots)] = two_mappings(dir.path());
    let one = ControlFile::create(&disk, state()).unwrap();
    one.share(&first, &first_slots).unwrap();
    let other = ControlFile::join(&disk, &second, &second_slots).unwrap();
    let change = |state: &mut ControlState| {
        state.page_count += 1;
        (state.mark_lsn, state.redo_lsn) = (Lsn(state.page_count), Lsn(state.page_count));
    };
    std::thread::scope(|scope| {
        for control in [&one, &other] {
            scope.spawn(move || (0..CHANGES).for_each(|_| control.change(change).unwrap()));
            scope.spawn(move || {
                while control.state().page_count < 2 * CHANGES {
                    let seen = control.state();
                    assert_eq!((seen.mark_lsn, seen.redo_lsn), (Lsn(seen.page_count), Lsn(seen.page_count)));
                    let seen = control.state();
                    assert!(control.generation() >= 2 + 2 * seen.page_count);
                }
            });
        }
    });
    assert_eq!((one.state(), one.generation()), (other.state(), 2 + 4 * CHANGES));
    assert_eq!(ControlFile::open(&disk).unwrap().state(), one.state());
}
