//! Records round trip for any content, and any bytes decode to a record or to what is wrong with them.
#![cfg(not(loom))]

use ledgerstone_log::record::{FLAGS_MASK, decode_sealed};
use ledgerstone_log::{
    EnvironmentId, Malformed, NewRecord, RECORD_BYTES_MAX, RecordKind, Seal, decode, group_body, print,
};
use ledgerstone_page::{Lsn, OpId, PageId, Xid};
use proptest::prelude::*;

const ENVIRONMENT: EnvironmentId = [9; 16];
const LOW_48: u64 = (1 << 48) - 1;

/// Calls everything that a reader may call.
fn look_at_all(bytes: &[u8]) {
    if let Ok(record) = decode(Lsn(8), bytes) {
        assert!(record.bytes().len() <= bytes.len() && record.end() > record.lsn());
        let _ = (record.xid(), record.op(), record.prev_lsn(), record.flags(), record.page(), record.prev_page_lsn());
        let _ = (record.body(), record.args(), record.undo_next(), record.durable_lsn(), record.incarnation());
        let part_bytes: usize = record.parts().flatten().map(|part| part.args.len()).sum();
        assert!(part_bytes <= bytes.len() && record.parts().count() <= bytes.len());
        assert!(print(record, &|_, _| None).len() < 400 + 400 * (1 + bytes.len() / 24));
        let _ = record.check(&Seal::new(ENVIRONMENT, 1));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn records_round_trip(
        code in 1u8..=13, xid in 0..=LOW_48, prev in 0..=LOW_48, op: u16, flags in 0..=FLAGS_MASK,
        page in 0..=LOW_48, page_prev in 0..=LOW_48, pieces in proptest::collection::vec(
            prop_oneof![
                3 => proptest::collection::vec(any::<u8>(), 0..40),
                1 => proptest::collection::vec(any::<u8>(), 300..600),
            ], 0..5),
        lsn in 512u64..1 << 40, incarnation: u64,
    ) {
        let kind = RecordKind::from_code(code).unwrap();
        let head = [5u8; 8];
        let mut body: Vec<&[u8]> = vec![&head];
        body.extend(pieces.iter().map(Vec::as_slice));
        let record = NewRecord {
            kind, xid: Xid(xid), prev_lsn: Lsn(prev), op: OpId(op), flags,
            page: kind.has_page().then_some((PageId(page), Lsn(page_prev))), body: &body,
        };
        let (lsn, seal) = (Lsn(lsn * 8), Seal::new(ENVIRONMENT, incarnation));
        let bytes = record.encode(lsn, &seal);
        prop_assert_eq!(bytes.len(), record.len_bytes());
        // More may follow.
        let mut followed = bytes.clone();
        followed.extend([0xaa; 16]);
        let view = decode_sealed(lsn, &followed, &seal).unwrap();
        prop_assert_eq!(view.bytes(), &bytes[..]);
        prop_assert_eq!((view.kind(), view.xid(), view.prev_lsn()), (kind, Xid(xid), Lsn(prev)));
        prop_assert_eq!((view.op(), view.flags()), (OpId(op), flags));
        prop_assert_eq!(view.body(), &body.concat()[..]);
        if kind.has_page() {
            prop_assert_eq!((view.page(), view.prev_page_lsn()), (PageId(page), Lsn(page_prev)));
        }
        // Elsewhere, later, or cut off it is not a record.
        prop_assert!(decode_sealed(Lsn(lsn.0 + 8), &bytes, &seal).is_err());
        prop_assert!(decode_sealed(lsn, &bytes, &Seal::new(ENVIRONMENT, incarnation ^ 1)).is_err());
        let is_cut = matches!(decode(lsn, &bytes[..bytes.len() - 1]), Err(Malformed::Short { .. }));
        prop_assert!(is_cut);
        let owned = view.to_record();
        prop_assert_eq!(owned.bytes(), view.bytes());
    }

    #[test]
    fn one_flipped_bit_is_noticed(bit in 0usize..80 * 8, body in proptest::collection::vec(any::<u8>(), 56)) {
        let record = NewRecord {
            kind: RecordKind::User, xid: Xid(1), prev_lsn: Lsn(0), op: OpId(0), flags: 0, page: None, body: &[&body],
        };
        let seal = Seal::new(ENVIRONMENT, 1);
        let mut bytes = record.encode(Lsn(4096), &seal);
        bytes[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(decode_sealed(Lsn(4096), &bytes, &seal).is_err());
    }

    #[test]
    fn groups_round_trip(
        parts in proptest::collection::vec(
            (0..=LOW_48, any::<u16>(), any::<u64>(), proptest::collection::vec(any::<u8>(), 0..30)), 0..6),
    ) {
        let mut body = Vec::new();
        group_body(&mut body, parts.iter().map(|(page, op, prev, args)| {
            (PageId(*page), OpId(*op), Lsn(*prev), args.as_slice())
        }));
        let record = NewRecord {
            kind: RecordKind::Group, xid: Xid(1), prev_lsn: Lsn(0), op: OpId(0), flags: 0, page: None, body: &[&body],
        };
        let bytes = record.encode(Lsn(4096), &Seal::new(ENVIRONMENT, 1));
        let found: Vec<_> = decode(Lsn(4096), &bytes).unwrap().parts().map(|part| {
            let part = part.unwrap();
            (part.page.0, part.op.0, part.prev_page_lsn.0, part.args.to_vec())
        }).collect();
        prop_assert_eq!(found, parts);
    }

    #[test]
    fn any_bytes_decode_or_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        look_at_all(&bytes);
    }

    #[test]
    fn any_bytes_behind_a_plausible_header_decode_or_are_refused(
        mut bytes in proptest::collection::vec(any::<u8>(), 8..300), kind in 0u8..16, units in 0u8..40,
    ) {
        bytes[4..8].copy_from_slice(&[units, 0, 0, kind]);
        look_at_all(&bytes);
    }
}

#[test]
fn impossible_headers_are_named() {
    let word = |bytes: u64, kind: u8| (bytes / 8) << 32 | u64::from(kind) << 56;
    let check = |word: u64, expected| {
        let mut bytes = [0; 64];
        bytes[..8].copy_from_slice(&word.to_le_bytes());
        assert_eq!(decode(Lsn(4096), &bytes), Err(expected));
    };
    check(0, Malformed::Empty);
    check(word(24, 0), Malformed::Kind { kind: 0 });
    check(word(24, 200), Malformed::Kind { kind: 200 });
    check(word(16, 5), Malformed::Length { bytes: 16 });
    check(word(32, 1), Malformed::Length { bytes: 32 });
    check(word(RECORD_BYTES_MAX as u64 + 8, 13), Malformed::Length { bytes: RECORD_BYTES_MAX as u64 + 8 });
    check(word(72, 13), Malformed::Short { needed: 72, have: 64 });
    // A commit without its durable LSN.
    check(word(24, 4), Malformed::Length { bytes: 24 });
    assert_eq!(decode(Lsn(4096), &[1, 2, 3]), Err(Malformed::Short { needed: 8, have: 3 }));
}
