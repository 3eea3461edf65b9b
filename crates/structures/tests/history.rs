//! What a snapshot takes back by the log, where the writer's mark lies within a void record, as a repair leaves them.

mod stack;

use std::ops::Bound::Unbounded;

use ledgerstone_log::{NewRecord, RecordKind};
use ledgerstone_page::{Lsn, OpId, Xid};
use ledgerstone_structures::Direction;
use ledgerstone_txn::{Engine, Horizon, Txn};
use stack::Stack;

/// More than one writer's images have room for.
const COUNT: u64 = 10_000;
const VOID_BODY_BYTES: usize = 400;

fn append_void(engine: &Engine) -> Lsn {
    let (xid, prev_lsn, op) = (Xid(0), Lsn(0), OpId(0));
    let body: &[&[u8]] = &[&[0; VOID_BODY_BYTES]];
    let record = NewRecord { kind: RecordKind::Void, xid, prev_lsn, op, flags: 0, page: None, body };
    let mut claim = engine.log.claim(record.len_bytes()).unwrap();
    let lsn = engine.log.append(&mut claim, &record);
    engine.log.give_back(claim);
    lsn
}

/// Two have died, and between what they had reserved, a writer had seen the log end.
#[test]
fn a_spilled_writers_mark_may_lie_within_a_void_record() {
    for within in [0, 64, VOID_BODY_BYTES as u64] {
        let stack = Stack::new();
        let tree = stack.tree();
        let put_all = |txn: &mut Txn, value| (0..COUNT).all(|n| tree.put(txn, &n.to_be_bytes(), &[value; 100]).is_ok());
        assert!(stack.run(|txn| put_all(txn, 1)));
        let mark = Lsn(append_void(&stack.engine).0 + within);
        let mut reader = stack.begin();
        let view = reader.open_view(Horizon::None).unwrap();
        let xid = Xid(stack.engine.table.next_xid().0 + 1000); // In no block of a slot.
        let mut writer = stack.engine.adopt(xid, mark, Lsn(0)).unwrap();
        assert!(put_all(&mut writer, 2));
        assert_eq!(stack.engine.versions.log_low(), Some(mark), "it has spilled");
        stack.engine.log.flush().unwrap();
        let mut scan = tree.scan_at(view.at(), Unbounded, Unbounded, Direction::Forward);
        let mut count = 0;
        while let Some((_, value)) = scan.next(&mut reader).unwrap_or_else(|error| panic!("{within}: {error}")) {
            assert_eq!(value, [1; 100], "record {count}");
            count += 1;
        }
        assert_eq!(count, COUNT);
        drop((scan, view, reader));
        writer.abort().unwrap();
        assert_eq!(stack.read_all(&tree, Direction::Forward).len(), COUNT as usize);
    }
}
