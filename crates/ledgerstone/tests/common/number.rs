//! A structure of a program's own: one number, which transactions add to.

use std::sync::Arc;

use ledgerstone::extend::{
    Corrupt, Engine, Layout, LayoutId, Mode, OpError, OpId, Operation, PageId, PageMut, RECORD_OVERHEAD_BYTES,
    Structure, StructureId, TxnError, Undo, Words, header,
};
use ledgerstone::{Error, Transaction};

/// Its number.
pub const NUMBER: StructureId = StructureId(7);
const OP_FORMAT: OpId = OpId(1030);
/// Adds its first byte; further ones mean nothing.
pub const OP_ADD: OpId = OpId(1031);
const LAYOUT: LayoutId = LayoutId(260);
const AT: usize = 40;

/// A number on a page. What it holds is called by each of its callbacks.
pub struct Number(pub Arc<dyn Fn() + Send + Sync>);
struct Format;
struct Add;
struct NumberLayout;

impl Operation for Format {
    fn id(&self) -> OpId {
        OP_FORMAT
    }
    fn name(&self) -> &'static str {
        "number.format"
    }
    fn formats(&self) -> bool {
        true
    }
    fn redo(&self, page: &mut PageMut<'_>, _: &[u8]) -> Result<(), OpError> {
        let id = page.id();
        page.format(LAYOUT, 0, id);
        Ok(())
    }
    fn print(&self, _: &[u8]) -> String {
        String::new()
    }
}

impl Operation for Add {
    fn id(&self) -> OpId {
        OP_ADD
    }
    fn name(&self) -> &'static str {
        "number.add"
    }
    fn redo(&self, page: &mut PageMut<'_>, args: &[u8]) -> Result<(), OpError> {
        let old = page.words().u64(AT);
        page.put_u64(AT, old.wrapping_add_signed(i64::from(args[0].cast_signed())));
        Ok(())
    }
    fn undo(&self, args: &[u8]) -> Undo {
        let mut args = args.to_vec();
        args[0] = args[0].wrapping_neg();
        Undo::Page { op: OP_ADD, args }
    }
    fn print(&self, _: &[u8]) -> String {
        String::new()
    }
}

impl Layout for NumberLayout {
    fn id(&self) -> LayoutId {
        LAYOUT
    }
    fn name(&self) -> &'static str {
        "number"
    }
    fn check(&self, page: Words<'_>) -> Result<(), Corrupt> {
        header::check(page, LAYOUT)
    }
    fn print(&self, _: Words<'_>) -> String {
        String::new()
    }
}

impl Structure for Number {
    fn id(&self) -> StructureId {
        NUMBER
    }
    fn name(&self) -> &'static str {
        "number"
    }
    fn operations(&self) -> Vec<Box<dyn Operation>> {
        vec![Box::new(Format), Box::new(Add)]
    }
    fn layouts(&self) -> Vec<Box<dyn Layout>> {
        vec![Box::new(NumberLayout)]
    }
    fn format_root(&self, _: PageId, _: &[u8]) -> (OpId, Vec<u8>) {
        (self.0)();
        (OP_FORMAT, Vec::new())
    }
    fn pages(&self, _: &Arc<Engine>, root: PageId) -> Result<Vec<PageId>, TxnError> {
        (self.0)();
        Ok(vec![root])
    }
    fn check(&self, _: &Arc<Engine>, _: PageId) -> Result<Vec<String>, TxnError> {
        (self.0)();
        Ok(Vec::new())
    }
}

/// Adds one `by` times, and calls `between` after each. Gives the sum.
pub fn add(txn: &Transaction, by: u8, between: &dyn Fn()) -> Result<u64, Error> {
    txn.structure("number", NUMBER)?.enter(Mode::X, |txn, at| {
        for _ in 0..by {
            txn.claim(64 + RECORD_OVERHEAD_BYTES)?;
            let mut page = at.cache().exclusive(at.root())?;
            txn.update(&mut page, OP_ADD, &[1])?;
            drop(page);
            between();
        }
        Ok(at.cache().shared(at.root())?.words().u64(AT))
    })
}
