//! Counters that many transactions increment and decrement at the same time (Lemon 4.4).
//!
//! A page of numbers. Adding to a number is an operation whose undo adds the negative. The order of additions does not
//! matter. So transactions that add to one number do not wait for each other, and each can still be rolled back alone.
//! A transaction that reads waits for those that have added and not ended.
//!
//! ```text
//! offset  size  field
//!      0    40  page header, layout 256
//!     40   8*n  counters, i64
//! ```
//!
//! ```
//! use std::sync::Arc;
//!
//! use ledgerstone::Environment;
//! use ledgerstone_examples::increment::{Counters, CountersStructure};
//!
//! # fn main() -> Result<(), ledgerstone::Error> {
//! # let dir = std::env::temp_dir().join(format!("ledgerstone-increment-{}", std::process::id()));
//! let env = Environment::options().cache_bytes(16 << 20).structure(Arc::new(CountersStructure)).open(&dir)?;
//! env.transact(|txn| Counters::create(txn, "hits").map(drop))?;
//! let (first, second) = (env.begin()?, env.begin()?);
//! Counters::open(&first, "hits")?.add(7, 10)?;
//! Counters::open(&second, "hits")?.add(7, -3)?; // Does not wait for the first.
//! first.abort()?;
//! second.commit()?.ticket.wait()?;
//! assert_eq!(env.transact(|txn| Counters::open(txn, "hits")?.get(7))?, -3);
//! # env.close()?;
//! # std::fs::remove_dir_all(dir).ok();
//! # Ok(())
//! # }
//! ```

use std::sync::Arc;

use ledgerstone::extend::{
    Corrupt, Engine, HEADER_BYTES, Layout, LayoutId, Mode, OpError, OpId, Operation, PageId, PageMut,
    RECORD_OVERHEAD_BYTES, Structure, StructureHandle, StructureId, TxnError, Undo, Words, header,
};
use ledgerstone::{Error, Transaction};

/// The structure's number in catalogs.
pub const COUNTERS: StructureId = StructureId(1);
/// Makes a page of zeros.
pub const OP_FORMAT: OpId = OpId(1024);
/// Adds to a counter.
pub const OP_ADD: OpId = OpId(1025);

const LAYOUT: LayoutId = LayoutId(256);
const ADD_BYTES: usize = 10;

/// Counters in a transaction.
#[derive(Debug, Clone)]
pub struct Counters(StructureHandle);

impl Counters {
    /// Makes a page of counters, all zero.
    ///
    /// # Errors
    /// As [`Transaction::create_structure`].
    pub fn create(txn: &Transaction, name: &str) -> Result<Counters, Error> {
        Ok(Counters(txn.create_structure(name, COUNTERS, &[])?))
    }

    /// Opens the counters of this name.
    ///
    /// # Errors
    /// As [`Transaction::structure`].
    pub fn open(txn: &Transaction, name: &str) -> Result<Counters, Error> {
        Ok(Counters(txn.structure(name, COUNTERS)?))
    }

    /// How many counters there are, which the size of a page decides. Waits for nobody.
    ///
    /// # Errors
    /// Conflicts, with a transaction that drops the structure.
    pub fn count(&self) -> Result<u16, Error> {
        self.0.enter(Mode::IS, |_, at| Ok(count(at.cache().shared(at.root())?.words()) as u16)) // At most 4091.
    }

    /// Adds `delta`, which may be negative. The sum wraps. Waits only for transactions that read, not for others that
    /// add.
    ///
    /// # Errors
    /// Conflicts, no space. [`Error::Corrupt`] for a counter that does not exist.
    pub fn add(&self, no: u16, delta: i64) -> Result<(), Error> {
        self.0.enter(Mode::IX, |txn, at| {
            // Room in the log before the latch: nothing may be waited for under it.
            txn.claim(ADD_BYTES + RECORD_OVERHEAD_BYTES)?;
            let mut page = at.cache().exclusive(at.root())?;
            if usize::from(no) >= count(page.words()) {
                return Err(TxnError::from(OpError::UnfitAt { op: OP_ADD, what: NO_SUCH, at: no.into() }).into());
            }
            txn.update(&mut page, OP_ADD, &add_args(no, delta))?;
            Ok(())
        })
    }

    /// The counter's value. Waits for transactions that have added to any counter here.
    ///
    /// # Errors
    /// Conflicts. [`Error::Corrupt`] for a counter that does not exist.
    pub fn get(&self, no: u16) -> Result<i64, Error> {
        self.0.enter(Mode::S, |_, at| {
            let page = at.cache().shared(at.root())?;
            match usize::from(no) < count(page.words()) {
                true => Ok(page.words().u64(offset(no)).cast_signed()),
                false => Err(TxnError::from(OpError::UnfitAt { op: OP_ADD, what: NO_SUCH, at: no.into() }).into()),
            }
        })
    }

    /// All counters. Waits for transactions that have added to any of them.
    ///
    /// # Errors
    /// Conflicts.
    pub fn all(&self) -> Result<Vec<i64>, Error> {
        self.0.enter(Mode::S, |_, at| {
            let page = at.cache().shared(at.root())?;
            let number = |no| page.words().u64(HEADER_BYTES + 8 * no).cast_signed();
            Ok((0..count(page.words())).map(number).collect())
        })
    }
}

const NO_SUCH: &str = "there is no such counter";

fn offset(no: u16) -> usize {
    HEADER_BYTES + 8 * usize::from(no)
}

fn count(page: Words<'_>) -> usize {
    (page.len_bytes() - HEADER_BYTES) / 8
}

fn add_args(no: u16, delta: i64) -> [u8; ADD_BYTES] {
    let mut args = [0; ADD_BYTES];
    args[..2].copy_from_slice(&no.to_le_bytes());
    args[2..].copy_from_slice(&delta.to_le_bytes());
    args
}

fn read_args(args: &[u8]) -> Option<(u16, i64)> {
    let (no, delta) = args.split_first_chunk()?;
    Some((u16::from_le_bytes(*no), i64::from_le_bytes(delta.try_into().ok()?)))
}

/// Makes the page. It says that it formats, so that a restart does not read what was there before.
struct Format;

impl Operation for Format {
    fn id(&self) -> OpId {
        OP_FORMAT
    }
    fn name(&self) -> &'static str {
        "counters.format"
    }
    fn formats(&self) -> bool {
        true
    }
    fn redo(&self, page: &mut PageMut<'_>, args: &[u8]) -> Result<(), OpError> {
        if !args.is_empty() {
            return Err(OpError::BadArgs { op: OP_FORMAT, len: args.len(), what: "none are expected" });
        }
        let id = page.id();
        page.format(LAYOUT, 0, id);
        Ok(())
    }
    fn print(&self, _: &[u8]) -> String {
        "counters, all zero".to_owned()
    }
}

/// Increment and decrement: one operation, its own inverse with the sign changed.
struct Add;

impl Operation for Add {
    fn id(&self) -> OpId {
        OP_ADD
    }
    fn name(&self) -> &'static str {
        "counters.add"
    }
    fn redo(&self, page: &mut PageMut<'_>, args: &[u8]) -> Result<(), OpError> {
        let what = "two bytes of number and eight of delta are expected";
        let (no, delta) = read_args(args).ok_or(OpError::BadArgs { op: OP_ADD, len: args.len(), what })?;
        if header::layout(page.words()) != LAYOUT {
            return Err(OpError::Unfit { op: OP_ADD, what: "it is not a page of counters" });
        }
        if usize::from(no) >= count(page.words()) {
            return Err(OpError::UnfitAt { op: OP_ADD, what: NO_SUCH, at: no.into() });
        }
        let old = page.words().u64(offset(no));
        page.put_u64(offset(no), old.wrapping_add_signed(delta));
        Ok(())
    }
    fn undo(&self, args: &[u8]) -> Undo {
        match read_args(args) {
            // Right however many others have added meanwhile, and on this page, since counters never move.
            Some((no, delta)) => Undo::Page { op: OP_ADD, args: add_args(no, delta.wrapping_neg()).to_vec() },
            None => Undo::Nothing,
        }
    }
    // All operations of these pages are undone on them, and read no other.
    fn is_undone_by_page(&self) -> bool {
        true
    }
    fn print(&self, args: &[u8]) -> String {
        match read_args(args) {
            Some((no, delta)) => format!("counter {no} {delta:+}"),
            None => format!("{} bytes that are not an addition", args.len()),
        }
    }
}

struct CountersLayout;

impl Layout for CountersLayout {
    fn id(&self) -> LayoutId {
        LAYOUT
    }
    fn name(&self) -> &'static str {
        "counters"
    }
    fn check(&self, page: Words<'_>) -> Result<(), Corrupt> {
        header::check(page, LAYOUT) // Any number is a counter.
    }
    fn print(&self, page: Words<'_>) -> String {
        let used = (0..count(page)).filter(|&no| page.u64(HEADER_BYTES + 8 * no) != 0).count();
        format!("{}, {used} counters are not zero", header::print(page))
    }
}

/// The structure, for [`ledgerstone::Options::structure`].
#[derive(Debug, Clone, Copy)]
pub struct CountersStructure;

impl Structure for CountersStructure {
    fn id(&self) -> StructureId {
        COUNTERS
    }
    fn name(&self) -> &'static str {
        "counters"
    }
    fn operations(&self) -> Vec<Box<dyn Operation>> {
        vec![Box::new(Format), Box::new(Add)]
    }
    fn layouts(&self) -> Vec<Box<dyn Layout>> {
        vec![Box::new(CountersLayout)]
    }
    fn format_root(&self, _root: PageId, _options: &[u8]) -> (OpId, Vec<u8>) {
        (OP_FORMAT, Vec::new())
    }
    fn pages(&self, _engine: &Arc<Engine>, root: PageId) -> Result<Vec<PageId>, TxnError> {
        Ok(vec![root])
    }
}

/// Pages and arguments by which the kit checks the operations: the page before, and what is done to it.
#[must_use]
pub fn cases() -> Vec<ledgerstone::extend::kit::Case> {
    use ledgerstone::extend::{PageBuf, kit::Case};
    let mut page = PageBuf::new(4096);
    header::format(&mut page.words_mut(), PageId(9), LAYOUT, 0, PageId(9));
    page.words_mut().put_u64(offset(3), 41);
    vec![
        Case::new(OP_FORMAT, page.clone(), Vec::new()),
        Case::new(OP_ADD, page.clone(), add_args(3, 1).to_vec()),
        Case::new(OP_ADD, page.clone(), add_args(0, -1).to_vec()),
        Case::new(OP_ADD, page, add_args(506, i64::MIN).to_vec()),
    ]
}
