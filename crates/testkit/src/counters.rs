//! Operations as users write them: pages of counters, formatted by their first record.

use ledgerstone_op::{OpError, Operation, PageMut, Registry, Undo};
use ledgerstone_page::{HEADER_BYTES, LayoutId, OpId, PageId};

/// Makes a page one of counters, which are 0.
pub const FORMAT: OpId = OpId(1024);
/// Adds to a counter.
pub const ADD: OpId = OpId(1025);

/// See [`FORMAT`].
pub struct Format;

/// See [`ADD`]. The undo subtracts, so that transactions may raise the same counter at once.
pub struct Add;

/// What [`ADD`] takes: which counter of the page, and what is added.
#[must_use]
pub fn add_args(counter: usize, delta: i64) -> [u8; 10] {
    let mut args = [0; 10];
    args[..2].copy_from_slice(&(counter as u16).to_le_bytes());
    args[2..].copy_from_slice(&delta.to_le_bytes());
    args
}

fn counter_and_delta(args: &[u8]) -> (usize, i64) {
    let (counter, delta) = args.split_at(2);
    let counter = u16::from_le_bytes(counter.try_into().expect("two bytes"));
    (usize::from(counter), i64::from_le_bytes(delta.try_into().expect("eight bytes")))
}

/// Registers both.
///
/// # Panics
/// Another operation has one of their numbers.
pub fn register(ops: &mut Registry) {
    ops.register(Box::new(Format)).expect("the number is free");
    ops.register(Box::new(Add)).expect("the number is free");
}

impl Operation for Format {
    fn id(&self) -> OpId {
        FORMAT
    }
    fn name(&self) -> &'static str {
        "format counters"
    }
    fn formats(&self) -> bool {
        true
    }
    fn redo(&self, page: &mut PageMut<'_>, _: &[u8]) -> Result<(), OpError> {
        page.format(LayoutId::RAW, 0, PageId::NONE);
        Ok(())
    }
    fn print(&self, _: &[u8]) -> String {
        String::new()
    }
}

impl Operation for Add {
    fn id(&self) -> OpId {
        ADD
    }
    fn name(&self) -> &'static str {
        "add"
    }
    fn redo(&self, page: &mut PageMut<'_>, args: &[u8]) -> Result<(), OpError> {
        let (counter, delta) = counter_and_delta(args);
        let at = HEADER_BYTES + 8 * counter;
        let value = page.words().u64(at) as i64;
        page.put_u64(at, (value + delta) as u64);
        Ok(())
    }
    fn undo(&self, args: &[u8]) -> Undo {
        let (counter, delta) = counter_and_delta(args);
        Undo::Page { op: ADD, args: add_args(counter, -delta).to_vec() }
    }
    fn print(&self, args: &[u8]) -> String {
        format!("{args:?}")
    }
}
