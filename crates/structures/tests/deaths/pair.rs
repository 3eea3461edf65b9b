//! A structure as users write them (Lemon 4.3): two pages whose counters are equal but inside of an operation. An
//! operation takes the structure's latch and is a nested top action. So a transaction that aborts leaves it done.
//! Beside that it counts what transactions have done. The undo of a count takes the latch, too.

use std::sync::Arc;

use ledgerstone_op::{OpError, Operation, PageMut, Registry, Undo};
use ledgerstone_page::OpId;
use ledgerstone_page::{HEADER_BYTES, PageId};
use ledgerstone_region::sync;
use ledgerstone_space::{OP_SPACE_SET, Space};
use ledgerstone_testkit::counters::{self, ADD, FORMAT, add_args};
use ledgerstone_txn::{Engine, LogicalUndo, Part, StructureLatch, Txn, TxnError};

const COUNT: OpId = OpId(1026);

/// Where the first page has the count.
const COUNT_AT: usize = HEADER_BYTES + 8;

struct Count;

impl Operation for Count {
    fn id(&self) -> OpId {
        COUNT
    }
    fn name(&self) -> &'static str {
        "count"
    }
    fn redo(&self, page: &mut PageMut<'_>, args: &[u8]) -> Result<(), OpError> {
        let count = page.words().u64(COUNT_AT);
        page.put_u64(COUNT_AT, count.wrapping_add(u64::from_le_bytes(args.try_into().expect("a number"))));
        Ok(())
    }
    fn undo(&self, _: &[u8]) -> Undo {
        Undo::Logical
    }
    fn print(&self, args: &[u8]) -> String {
        format!("{args:?}")
    }
}

impl LogicalUndo for Pair {
    fn undo(&self, txn: &mut Txn, _: OpId, args: &[u8]) -> Result<(), TxnError> {
        let undone = self.count(txn, u64::from_le_bytes(args.try_into().expect("a number")).wrapping_neg());
        let left = txn.engine().log.left_over().unwrap_or_default();
        assert!(left.contains("reserved"), "room for its rollback was given back too soon: {left}");
        undone
    }
}

pub fn register(ops: &mut Registry) {
    counters::register(ops);
    ops.register(Box::new(Count)).unwrap();
}

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

    /// Has the engine undo counts.
    pub fn register_undo(self, engine: &Engine) {
        engine.register_undo(COUNT, Arc::new(self));
    }

    /// Adds to both.
    pub fn add(self, txn: &mut Txn, delta: u64) -> Result<(), TxnError> {
        self.add_and(txn, delta, |_| Ok(()))
    }

    /// Adds to both. `between` is done between the two.
    pub fn add_and(
        self,
        txn: &mut Txn,
        delta: u64,
        between: impl FnOnce(&mut Txn) -> Result<(), TxnError>,
    ) -> Result<(), TxnError> {
        let engine = Arc::clone(txn.engine());
        let _held = StructureLatch::of(&engine, self.0).exclusive()?;
        txn.nested_top(|txn| {
            let [first, second] = self.pages();
            self.add_to(txn, first, delta)?;
            between(txn)?;
            self.add_to(txn, second, delta)
        })
    }

    fn add_to(self, txn: &mut Txn, page: PageId, delta: u64) -> Result<(), TxnError> {
        txn.claim(256)?;
        let engine = Arc::clone(txn.engine());
        let mut page = engine.cache.exclusive(page)?;
        txn.update(&mut page, ADD, &add_args(0, delta as i64))?;
        drop(page);
        sync::yield_point("one of the pair");
        Ok(())
    }

    /// Adds to both, with nested top actions inside of it: one that stays, though it changes nothing in the end, and
    /// one that is taken back.
    pub fn add_deeply(self, txn: &mut Txn, delta: u64) -> Result<(), TxnError> {
        let [first, second] = self.pages();
        self.add_and(txn, delta, |txn| {
            txn.nested_top(|txn| {
                let both_ways =
                    [(first, 7), (second, 7_u64.wrapping_neg()), (first, 7_u64.wrapping_neg()), (second, 7)];
                both_ways.into_iter().try_for_each(|(page, delta)| self.add_to(txn, page, delta))
            })?;
            let taken_back: Result<(), TxnError> = txn.nested_top(|txn| {
                self.add_to(txn, second, 9)?;
                Err(TxnError::StructureLatchHeld) // Any error.
            });
            assert!(taken_back.is_err());
            Ok(())
        })
    }

    /// Counts, until the transaction is rolled back. Then it takes the latch once more.
    pub fn count(self, txn: &mut Txn, delta: u64) -> Result<(), TxnError> {
        let engine = Arc::clone(txn.engine());
        let _held = StructureLatch::of(&engine, self.0).shared()?;
        txn.claim(256)?;
        let mut page = engine.cache.exclusive(self.0)?;
        txn.update(&mut page, COUNT, &delta.to_le_bytes())?;
        Ok(())
    }

    /// What was counted.
    pub fn counted(self, engine: &Engine) -> u64 {
        engine.cache.shared(self.0).unwrap().words().u64(COUNT_AT)
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
