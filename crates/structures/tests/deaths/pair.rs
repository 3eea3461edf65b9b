//! A structure as users write them (Lemon 4.3): two pages whose counters are equal but inside of an operation. An
//! operation takes the structure's latch and is a nested top action. So a transaction that aborts leaves it done.

use std::sync::Arc;

use ledgerstone_page::{HEADER_BYTES, PageId};
use ledgerstone_region::sync;
use ledgerstone_space::{OP_SPACE_SET, Space};
use ledgerstone_testkit::counters::{ADD, FORMAT, add_args};
use ledgerstone_txn::{Engine, Part, StructureLatch, Txn, TxnError};

/// The first of its two pages.
#[derive(Clone, Copy)]
pub struct Pair(pub PageId);

impl Pair {
    pub fn create(txn: &mut Txn, space: &Space) -> Pair {
        txn.claim(1024).unwrap();
        let cache = Arc::clone(&txn.engine().cache);
        let mut run = space.latch_free(2).unwrap();
        let (first, args) = (run.first, run.args_set());
        let mut pages = [0, 1].map(|no| cache.exclusive_new(PageId(first.0 + no)).unwrap());
        let [one, two] = &mut pages;
        let format = |page| Part { page, op: FORMAT, args: &[] };
        let parts = [Part { page: 0, op: OP_SPACE_SET, args: &args }, format(1), format(2)];
        txn.group(&mut [&mut run.map, one, two], &parts).unwrap();
        Pair(first)
    }

    pub fn pages(self) -> [PageId; 2] {
        [self.0, PageId(self.0.0 + 1)]
    }

    /// Adds to both.
    pub fn add(self, txn: &mut Txn, delta: u64) -> Result<(), TxnError> {
        let engine = Arc::clone(txn.engine());
        let _held = StructureLatch::of(&engine, self.0).exclusive()?;
        txn.nested_top(|txn| {
            for page in self.pages() {
                txn.claim(256)?;
                let mut page = engine.cache.exclusive(page)?;
                txn.update(&mut page, ADD, &add_args(0, delta as i64))?;
                drop(page);
                sync::yield_point("one of the pair");
            }
            Ok(())
        })
    }

    /// Its value, with the proof that it is whole.
    pub fn value(self, engine: &Arc<Engine>) -> u64 {
        let _held = StructureLatch::of(engine, self.0).shared().unwrap();
        let [one, two] = self.pages().map(|page| {
            sync::yield_point("looks at the pair");
            engine.cache.shared(page).unwrap().words().u64(HEADER_BYTES)
        });
        assert_eq!(one, two, "the pair is not whole");
        one
    }
}
