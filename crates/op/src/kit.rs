//! The test kit for authors of operations.
//!
//! A [`Case`] is a page and the arguments for one operation. [`check_case`] checks the rules below for one case.
//! [`check_registry`] checks them for all registered operations, and fails if an operation has no case:
//!
//! K1. Redo is deterministic: equal pages become equal pages. For an operation that formats, this holds for any two
//!     pages.
//! K2. The page keeps its id. It keeps its LSN too, unless the operation formats it. If the page's layout is known, the
//!     page passes the layout's check before and after.
//! K3. An `Undo::Page` inverts: the page is as it was, byte for byte or as the case says ([`Case::same_by`]). Undoing
//!     the undo makes the change again.
//! K4. A record is applied once, by the page LSN: redo does nothing on a page that already has it.
//! K5. No arguments and no page make redo, undo or print panic. Arguments that are refused change nothing.

use crate::{OpError, Operation, PageMut, Registry, Undo, UnknownOperation};
use ledgerstone_page::{Corrupt, Layouts, Lsn, OpId, PageId, header};
use ledgerstone_region::{PageBuf, Random, Words};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What two pages must have in common to count as the same.
pub type View = fn(Words<'_>) -> Vec<u8>;

/// One use of an operation, to be checked.
#[derive(Clone, Debug)]
pub struct Case {
    /// The operation.
    pub op: OpId,
    /// The page before. Its header says its id.
    pub before: PageBuf,
    /// The arguments, which the operation must accept on that page.
    pub args: Vec<u8>,
    /// How K3 compares pages.
    pub view: View,
}

impl Case {
    /// A case whose undo restores every byte.
    pub fn new(op: OpId, before: PageBuf, args: Vec<u8>) -> Case {
        Case { op, before, args, view: all_bytes }
    }

    /// Compares pages by what `view` makes of them. Use it where undo restores what a page means but not where it lies.
    #[must_use]
    pub fn same_by(mut self, view: View) -> Case {
        self.view = view;
        self
    }
}

fn all_bytes(page: Words<'_>) -> Vec<u8> {
    page.to_vec(0, page.len_bytes())
}

/// What a check found.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// A registered operation has no case.
    #[error("operation {op} ({name}) has no case")]
    NoCase {
        /// The operation.
        op: OpId,
        /// Its name.
        name: &'static str,
    },
    /// A case, or an undo, is for an operation that is not registered.
    #[error(transparent)]
    Unknown(#[from] UnknownOperation),
    /// Redo refuses the page and arguments of the case, or of its undo.
    #[error("operation {op} is refused by {step}: {error}")]
    Refused {
        /// The operation.
        op: OpId,
        /// Where in the check.
        step: &'static str,
        /// What it said.
        error: OpError,
    },
    /// Two pages that must be the same differ.
    #[error("operation {op} breaks \"{rule}\": pages differ at byte {at} of what is compared")]
    Differs {
        /// The operation.
        op: OpId,
        /// The rule.
        rule: &'static str,
        /// The first byte that differs.
        at: usize,
    },
    /// The page breaks its layout.
    #[error("operation {op}: {when} the change: {error}")]
    Layout {
        /// The operation.
        op: OpId,
        /// Before or after.
        when: &'static str,
        /// What the layout found.
        error: Corrupt,
    },
    /// Something panicked.
    #[error("operation {op} panics in {step} with {args_len} bytes of arguments")]
    Panics {
        /// The operation.
        op: OpId,
        /// Redo, undo or print.
        step: &'static str,
        /// Bytes of the arguments it was given.
        args_len: usize,
    },
}

/// Checks every case, and that every registered operation has a case.
///
/// # Errors
/// The first failure.
pub fn check_registry(ops: &Registry, cases: &[Case]) -> Result<(), Failure> {
    check_registry_with(ops, &Layouts::basic(), cases)
}

/// The same with the layouts of the pages, for structures that bring their own.
///
/// # Errors
/// The first failure.
pub fn check_registry_with(ops: &Registry, layouts: &Layouts, cases: &[Case]) -> Result<(), Failure> {
    for operation in ops.iter() {
        if !cases.iter().any(|case| case.op == operation.id()) {
            return Err(Failure::NoCase { op: operation.id(), name: operation.name() });
        }
    }
    cases.iter().try_for_each(|case| check_case(ops, layouts, case))
}

/// Checks one case by rules K1 to K5.
///
/// # Errors
/// The first failure.
pub fn check_case(ops: &Registry, layouts: &Layouts, case: &Case) -> Result<(), Failure> {
    let operation = ops.get(case.op)?;
    check_layout(layouts, case.op, "before", &case.before)?;
    let mut after = case.before.clone();
    redo(operation, &mut after, &case.args, "redo")?;
    check_layout(layouts, case.op, "after", &after)?;
    check_deterministic(operation, case, &after)?;
    check_header(operation, case, &after)?;
    check_undo(ops, operation, case, &after)?;
    check_once(operation, case)?;
    check_hostile(operation, case)
}

fn check_deterministic(operation: &dyn Operation, case: &Case, after: &PageBuf) -> Result<(), Failure> {
    let mut again = case.before.clone();
    redo(operation, &mut again, &case.args, "redo on an equal page")?;
    same(case.op, "redo is deterministic", all_bytes, after, &again)?;
    if operation.formats() {
        let id = header::page_id(case.before.words());
        let mut junk = PageBuf::from_bytes(&noise(1, case.before.len_bytes()));
        redo_on(operation, id, &mut junk, &case.args, "redo of a format on any page")?;
        same(case.op, "a format ignores the page's old bytes", all_bytes, after, &junk)?;
    }
    Ok(())
}

fn check_header(operation: &dyn Operation, case: &Case, after: &PageBuf) -> Result<(), Failure> {
    let engines: View = |page| page.to_vec(header::PAGE_ID, 8);
    same(case.op, "the page keeps its id", engines, &case.before, after)?;
    if operation.formats() {
        return Ok(());
    }
    let engines: View = |page| page.to_vec(header::PAGE_LSN, 8);
    same(case.op, "the page lsn is the engine's", engines, &case.before, after)
}

fn check_undo(ops: &Registry, operation: &dyn Operation, case: &Case, after: &PageBuf) -> Result<(), Failure> {
    let Undo::Page { op, args } = guarded(case.op, "undo", &case.args, || operation.undo(&case.args))? else {
        return Ok(());
    };
    let inverse = ops.get(op)?;
    let mut undone = after.clone();
    redo(inverse, &mut undone, &args, "undo")?;
    same(case.op, "undo inverts", case.view, &case.before, &undone)?;
    if let Undo::Page { op, args } = guarded(op, "undo", &args, || inverse.undo(&args))? {
        redo(ops.get(op)?, &mut undone, &args, "undo of the undo")?;
        same(case.op, "undo of the undo makes the change again", case.view, after, &undone)?;
    }
    Ok(())
}

fn check_once(operation: &dyn Operation, case: &Case) -> Result<(), Failure> {
    let before = header::page_lsn(case.before.words());
    let lsn = Lsn(before.0 + 8);
    let mut once = case.before.clone();
    apply(operation, &mut once, lsn, &case.args)?;
    let mut twice = once.clone();
    apply(operation, &mut twice, lsn, &case.args)?;
    same(case.op, "redo over an applied page does nothing", all_bytes, &once, &twice)
}

/// What restart does with a record.
fn apply(operation: &dyn Operation, page: &mut PageBuf, lsn: Lsn, args: &[u8]) -> Result<(), Failure> {
    if header::page_lsn(page.words()) < lsn {
        redo(operation, page, args, "redo at restart")?;
        header::set_page_lsn(&mut page.words_mut(), lsn);
    }
    Ok(())
}

fn check_hostile(operation: &dyn Operation, case: &Case) -> Result<(), Failure> {
    let id = header::page_id(case.before.words());
    let whole = &case.args;
    let mut hostile: Vec<Vec<u8>> = (0..whole.len().min(256)).map(|len| whole[..len].to_vec()).collect();
    hostile.push([whole.as_slice(), &[0]].concat());
    hostile.push([whole.as_slice(), &[0xff; 300]].concat());
    for at in 0..whole.len().min(64) {
        let mut flipped = whole.clone();
        flipped[at] ^= 0xff;
        hostile.push(flipped);
    }
    for (seed, len) in [0, 1, 2, 8, 17, 40, 300].into_iter().enumerate() {
        hostile.push(noise(seed as u64 + 2, len));
    }
    for args in &hostile {
        guarded(case.op, "print", args, || operation.print(args))?;
        guarded(case.op, "undo", args, || operation.undo(args))?;
        let mut page = case.before.clone();
        if guarded(case.op, "redo", args, || operation.redo(&mut PageMut::new(id, page.words_mut()), args))?.is_err() {
            same(case.op, "a refused change changes nothing", all_bytes, &case.before, &page)?;
        }
    }
    let bytes = case.before.len_bytes();
    for seed in 0..64 {
        let mut page = damaged(&case.before, seed);
        let run = || operation.redo(&mut PageMut::new(id, page.words_mut()), whole);
        let _ = guarded(case.op, "redo on a damaged page", whole, run)?;
    }
    for mut page in
        [PageBuf::new(bytes), PageBuf::from_bytes(&vec![0xff; bytes]), PageBuf::from_bytes(&noise(9, bytes))]
    {
        let run = || operation.redo(&mut PageMut::new(id, page.words_mut()), whole);
        let _ = guarded(case.op, "redo on a damaged page", whole, run)?;
    }
    Ok(())
}

fn redo(operation: &dyn Operation, page: &mut PageBuf, args: &[u8], step: &'static str) -> Result<(), Failure> {
    redo_on(operation, header::page_id(page.words()), page, args, step)
}

fn redo_on(
    operation: &dyn Operation,
    id: PageId,
    page: &mut PageBuf,
    args: &[u8],
    step: &'static str,
) -> Result<(), Failure> {
    let op = operation.id();
    guarded(op, step, args, || operation.redo(&mut PageMut::new(id, page.words_mut()), args))?
        .map_err(|error| Failure::Refused { op, step, error })
}

fn guarded<T>(op: OpId, step: &'static str, args: &[u8], f: impl FnOnce() -> T) -> Result<T, Failure> {
    catch_unwind(AssertUnwindSafe(f)).map_err(|_| Failure::Panics { op, step, args_len: args.len() })
}

fn same(op: OpId, rule: &'static str, view: View, one: &PageBuf, other: &PageBuf) -> Result<(), Failure> {
    let (one, other) = (view(one.words()), view(other.words()));
    if one == other {
        return Ok(());
    }
    let at = one.iter().zip(&other).take_while(|(a, b)| a == b).count();
    Err(Failure::Differs { op, rule, at })
}

fn check_layout(layouts: &Layouts, op: OpId, when: &'static str, page: &PageBuf) -> Result<(), Failure> {
    match layouts.get(header::layout(page.words())) {
        Some(layout) => layout.check(page.words()).map_err(|error| Failure::Layout { op, when, error }),
        None => Ok(()),
    }
}

/// The page with some bytes changed, mostly the first ones of the layout, where numbers live that others rely on.
fn damaged(page: &PageBuf, seed: u64) -> PageBuf {
    let mut bytes = page.to_bytes();
    for pair in noise(seed + 100, 16).chunks_exact(4) {
        let far = u16::from_le_bytes([pair[0], pair[1]]) as usize;
        let span = if pair[2] < 200 { 64 } else { bytes.len() - header::HEADER_BYTES };
        bytes[header::HEADER_BYTES + far % span] = pair[3];
    }
    PageBuf::from_bytes(&bytes)
}

/// Bytes that look random and are the same every time.
fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut random = Random::new(seed);
    (0..len).map(|_| random.number() as u8).collect()
}

#[cfg(test)]
#[path = "kit_tests.rs"]
mod tests;
