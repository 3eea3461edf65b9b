//! The bytes of records and of the control file, compared with files that are kept. A difference means that the format
//! has changed, and `docs/format/` with it. `LEDGERSTONE_BLESS=1` writes the files anew.
#![cfg(not(loom))]

use std::path::PathBuf;

use ledgerstone_log::{
    ControlSlot, ControlState, EnvironmentId, NewRecord, RecordKind, Seal, decode, group_body, print,
};
use ledgerstone_page::{Lsn, OpId, PageId, Xid};

const ENVIRONMENT: EnvironmentId = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];

fn compare(name: &str, bytes: &[u8]) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("LEDGERSTONE_BLESS").is_some() {
        std::fs::write(&path, bytes).unwrap();
    }
    let kept = std::fs::read(&path).unwrap();
    let difference = kept.iter().zip(bytes).position(|(kept, now)| kept != now);
    assert!(kept == bytes, "{name}: {} bytes, kept {}; first difference at {difference:?}", bytes.len(), kept.len());
}

#[test]
fn records_have_the_bytes_that_are_documented() {
    let mut group = Vec::new();
    group_body(
        &mut group,
        [
            (PageId(0x0102_0304_0506), OpId(0x2122), Lsn(0x3132_3334_3536), &b"first"[..]),
            (PageId(9), OpId(17), Lsn(4096), &b""[..]),
            (PageId(10), OpId(18), Lsn(0), &b"12345678"[..]),
        ],
    );
    let page = Some((PageId(0xa1a2_a3a4_a5a6), Lsn(0xb1b2_b3b4_b5b6)));
    let bodies: [(RecordKind, &[&[u8]]); 14] = [
        (RecordKind::Update, &[b"old", b"new bytes"]),
        (RecordKind::Compensation, &[&0x7172u64.to_le_bytes(), b"args"]),
        (RecordKind::Group, &[&group]),
        (RecordKind::Commit, &[&0x8182u64.to_le_bytes()]),
        (RecordKind::Abort, &[]),
        (RecordKind::End, &[]),
        (RecordKind::Checkpoint, &[b"a checkpoint's own bytes"]),
        (RecordKind::NtaBegin, &[]),
        (RecordKind::NtaEnd, &[&0x9192u64.to_le_bytes()]),
        (RecordKind::Incarnation, &[&6u64.to_le_bytes()]),
        (RecordKind::Void, &[&[0; 16]]),
        (RecordKind::Prepare, &[b"locks"]),
        (RecordKind::User, &[b"x"]),
        (RecordKind::Truncate, &[&0x1122u64.to_le_bytes()]),
    ];
    assert_eq!(bodies.map(|(kind, _)| kind), RecordKind::ALL);
    let mut seal = Seal::new(ENVIRONMENT, 5);
    let (mut bytes, mut text, mut lsn) = (Vec::new(), String::new(), Lsn(4096));
    for (kind, body) in bodies {
        let record = NewRecord {
            kind,
            xid: Xid(0xc1c2_c3c4_c5c6),
            prev_lsn: Lsn(0xd1d2_d3d4_d5d6),
            op: OpId(0xe1e2),
            flags: 0x1234,
            page: page.filter(|_| kind.has_page()),
            body,
        };
        let encoded = record.encode(lsn, &seal);
        assert_eq!(encoded.len(), record.len_bytes());
        let view = decode(lsn, &encoded).unwrap();
        view.check(&seal).unwrap();
        text += &format!("{}\n", print(view, &|_, _| None));
        lsn = view.end();
        if let Some(next) = view.incarnation() {
            seal = Seal::new(ENVIRONMENT, next);
        }
        bytes.extend(encoded);
    }
    compare("records.bin", &bytes);
    compare("records.txt", text.as_bytes());
}

#[test]
fn the_control_file_has_the_bytes_that_are_documented() {
    let state = ControlState {
        checkpoint_lsn: Lsn(0x1112_1314_1516),
        scan_lsn: Lsn(0x2122_2324_2526),
        scan_incarnation: 0x31,
        incarnation_max: 0x41,
        xid_floor: Xid(0x5152),
        mark_lsn: Lsn(0x6162),
        page_count: 0x6364,
        newest_segment: Lsn(0x8182_0000),
        durable_lsn: Lsn(0x9192_9394_9596),
        redo_lsn: Lsn(0x2122_2324_2528),
        is_clean: true,
        life: 0x8182,
        ..ControlState::new(ENVIRONMENT, 4096, 16 << 20)
    };
    let slot = state.encode(0x71);
    assert_eq!(ControlSlot::decode(&slot), ControlSlot::Valid { generation: 0x71, state });
    assert!(slot[144..].iter().all(|byte| *byte == 0));
    compare("control.bin", &slot[..144]);
}

#[test]
fn each_flag_of_the_control_file_has_its_bit() {
    for flags in 0..8_u8 {
        let bit = |no: u8| flags >> no & 1 == 1;
        let state = ControlState {
            is_clean: bit(0),
            has_feeds: bit(1),
            is_unlocked: bit(2),
            ..ControlState::new(ENVIRONMENT, 4096, 16 << 20)
        };
        let slot = state.encode(1);
        assert_eq!(slot[44..48], [flags, 0, 0, 0]);
        assert_eq!(ControlSlot::decode(&slot), ControlSlot::Valid { generation: 1, state });
    }
}
