//! Counters by key, in a list of pages that grows in the middle. It follows the three-step recipe (Lemon 4.3) on a
//! layout of its own.
//!
//! ```text
//! offset  size  field
//!      0    40  page header, layout 257
//!     40     8  next page of the list, 0 at its end
//!     48     8  number n of entries
//!     56  16*n  entries { key u64, value i64 }, keys ascending
//! ```
//! L1. Keys ascend along the list. A page may be empty.
//! L2. Entries move to a later page only, by a split.
//!
//! The recipe, and where it is here:
//!
//! 1. *A mutex around each operation.* Each list has a latch ([`Instance::latch`]): shared for operations on single
//!    pages, exclusive for splits. Locks of transactions are waited for before the latch is taken, never inside.
//! 2. *A logical undo for each operation.* By the time of a rollback the entry may be on another page.
//!    [`ListStructure::undo`] looks for its key, under the latch, as every operation does.
//! 3. *A nested top action around each change of the structure.* A split moves entries with two records, one for each
//!    page. Inside a nested top action both records stay or neither does, whatever happens to the transaction that
//!    needed the room. The page to which they move is allocated and linked before, by a group: one record, whole or not
//!    at all.
//!
//! Isolation is the task of the locks: X on the key to create an entry, IX to add to it, S to read it. Transactions
//! that add do not exclude each other. The undo of an addition subtracts.

use std::collections::BTreeSet;
use std::sync::Arc;

use ledgerstone::extend::{
    Corrupt, Engine, HEADER_BYTES, Instance, KeyLock, Layout, LayoutId, Mode, OP_SPACE_SET, OpError, OpId, Operation,
    PageId, PageMut, Part, RECORD_OVERHEAD_BYTES, Structure, StructureHandle, StructureId, StructureLatch, Txn,
    TxnError, Undo, Words, header, key_hash,
};
use ledgerstone::{Error, Transaction};

/// The structure's number in catalogs.
pub const COUNTER_LIST: StructureId = StructureId(2);
/// Makes an empty page of a list.
pub const OP_FORMAT: OpId = OpId(1032);
/// Changes which page is next.
pub const OP_LINK: OpId = OpId(1033);
/// Makes an entry.
pub const OP_INSERT: OpId = OpId(1034);
/// Takes an entry away again: the undo of [`OP_INSERT`].
pub const OP_REMOVE: OpId = OpId(1035);
/// Adds to an entry.
pub const OP_ADD: OpId = OpId(1036);
/// Takes the last entries of a page away, to be given to another.
pub const OP_TAKE: OpId = OpId(1037);
/// Gives a page entries behind its own.
pub const OP_GIVE: OpId = OpId(1038);

const LAYOUT: LayoutId = LayoutId(257);
const NEXT: usize = HEADER_BYTES;
const COUNT: usize = HEADER_BYTES + 8;
const ENTRIES: usize = HEADER_BYTES + 16;
const ENTRY_BYTES: usize = 16;

/// A list in a transaction.
#[derive(Clone)]
pub struct CounterList(StructureHandle);

impl CounterList {
    /// Makes an empty list.
    ///
    /// # Errors
    /// As [`Transaction::create_structure`].
    pub fn create(txn: &Transaction, name: &str) -> Result<CounterList, Error> {
        Ok(CounterList(txn.create_structure(name, COUNTER_LIST, &[])?))
    }

    /// Opens the list of this name.
    ///
    /// # Errors
    /// As [`Transaction::structure`].
    pub fn open(txn: &Transaction, name: &str) -> Result<CounterList, Error> {
        Ok(CounterList(txn.structure(name, COUNTER_LIST)?))
    }

    /// Adds `delta` to the counter of `key`, which begins at zero.
    ///
    /// # Errors
    /// Conflicts, no space.
    pub fn add(&self, key: u64, delta: i64) -> Result<(), Error> {
        self.0.enter(Mode::IX, |txn, at| {
            let lock = KeyLock::Key(key_hash(&key.to_be_bytes()));
            txn.lock_key(at.table(), lock, Mode::IX)?;
            if add(txn, at, key, delta)? {
                return Ok(());
            }
            txn.lock_key(at.table(), lock, Mode::X)?;
            // Somebody may have created it while the lock was waited for.
            while !add(txn, at, key, delta)? {
                if insert(txn, at, key, delta)? {
                    break;
                }
                split(txn, at, key)?;
            }
            Ok(())
        })
    }

    /// The counter of `key`, or none if nothing was ever added to it. Waits for transactions that have added to it.
    ///
    /// # Errors
    /// Conflicts.
    pub fn get(&self, key: u64) -> Result<Option<i64>, Error> {
        self.0.enter(Mode::IS, |txn, at| {
            txn.lock_key(at.table(), KeyLock::Key(key_hash(&key.to_be_bytes())), Mode::S)?;
            let _latch = at.latch().shared()?;
            let page = at.cache().shared(find(at.engine(), at.root(), key)?)?;
            Ok(Page(page.words()).find(key).ok().map(|slot| Page(page.words()).entry(slot).1))
        })
    }

    /// All counters in the order of their keys. Waits for transactions that have changed any.
    ///
    /// # Errors
    /// Conflicts.
    pub fn all(&self) -> Result<Vec<(u64, i64)>, Error> {
        self.0.enter(Mode::S, |_, at| {
            let _latch = at.latch().shared()?;
            let mut all = Vec::new();
            for id in pages(at.engine(), at.root())? {
                let page = at.cache().shared(id)?;
                all.extend((0..Page(page.words()).count()).map(|slot| Page(page.words()).entry(slot)));
            }
            Ok(all)
        })
    }

    /// Pages that the list has.
    ///
    /// # Errors
    /// Conflicts.
    pub fn page_count(&self) -> Result<usize, Error> {
        self.0.enter(Mode::S, |_, at| Ok(pages(at.engine(), at.root())?.len()))
    }
}

/// A page of a list, whatever its bytes are.
#[derive(Clone, Copy)]
struct Page<'a>(Words<'a>);

impl Page<'_> {
    fn next(self) -> PageId {
        PageId(self.0.u64(NEXT) & PageId::MAX.0)
    }

    fn capacity(self) -> usize {
        (self.0.len_bytes() - ENTRIES) / ENTRY_BYTES
    }

    /// At most what the page can hold.
    fn count(self) -> usize {
        usize::try_from(self.0.u64(COUNT)).unwrap_or(usize::MAX).min(self.capacity())
    }

    fn is_full(self) -> bool {
        self.count() == self.capacity()
    }

    fn entry(self, slot: usize) -> (u64, i64) {
        let at = ENTRIES + ENTRY_BYTES * slot;
        (self.0.u64(at), self.0.u64(at + 8).cast_signed())
    }

    /// Where `key` is, or belongs.
    fn find(self, key: u64) -> Result<usize, usize> {
        let (mut low, mut high) = (0, self.count());
        while low < high {
            let middle = low.midpoint(high);
            match self.entry(middle).0.cmp(&key) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Equal => return Ok(middle),
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        Err(low)
    }

    fn first_key(self) -> Option<u64> {
        (self.count() > 0).then(|| self.entry(0).0)
    }
}

/// The pages of a list, in order.
fn pages(engine: &Engine, root: PageId) -> Result<Vec<PageId>, TxnError> {
    let (mut all, mut seen) = (Vec::new(), BTreeSet::new());
    let mut id = root;
    while id != PageId::NONE {
        if !seen.insert(id) {
            return Err(Corrupt::new("list that comes back to a page", NEXT as u64, 0, id.0).on(id).into());
        }
        let page = engine.cache.shared(id)?;
        header::check(page.words(), LAYOUT)?;
        all.push(id);
        id = Page(page.words()).next();
    }
    Ok(all)
}

/// The page that has `key`, or where it belongs (L1). Under the structure's latch.
fn find(engine: &Engine, root: PageId, key: u64) -> Result<PageId, TxnError> {
    let (mut found, mut id) = (root, root);
    while id != PageId::NONE {
        let page = engine.cache.shared(id)?;
        match Page(page.words()).first_key() {
            Some(first) if first > key => break,
            Some(_) => found = id,
            None => {}
        }
        id = Page(page.words()).next();
    }
    Ok(found)
}

/// The structure, for [`ledgerstone::Options::structure`].
#[derive(Debug, Clone, Copy)]
pub struct ListStructure;

/// Adds to an entry; false if there is none.
fn add(txn: &mut Txn, at: &Instance, key: u64, delta: i64) -> Result<bool, TxnError> {
    let args = entry_args(at.root(), key, delta);
    let _latch = at.latch().shared()?;
    txn.claim(args.len() + RECORD_OVERHEAD_BYTES)?;
    let mut page = at.cache().exclusive(find(at.engine(), at.root(), key)?)?;
    if Page(page.words()).find(key).is_err() {
        return Ok(false);
    }
    txn.update(&mut page, OP_ADD, &args)?;
    Ok(true)
}

/// Makes an entry; false if there is no room. Its key is locked X, and has no entry.
fn insert(txn: &mut Txn, at: &Instance, key: u64, value: i64) -> Result<bool, TxnError> {
    let args = entry_args(at.root(), key, value);
    let _latch = at.latch().shared()?;
    loop {
        txn.claim(args.len() + RECORD_OVERHEAD_BYTES)?;
        let id = find(at.engine(), at.root(), key)?;
        let mut page = at.cache().exclusive(id)?;
        // Others insert too: before the page was latched, the key's place may have become another.
        if find_behind(at.engine(), &page, key)? {
            continue;
        }
        if Page(page.words()).is_full() {
            return Ok(false);
        }
        txn.update(&mut page, OP_INSERT, &args)?;
        return Ok(true);
    }
}

/// Steps 3 and 1: moves half of the entries of the page where `key` belongs to a new page behind it.
fn split(txn: &mut Txn, at: &Instance, key: u64) -> Result<(), Error> {
    let cache = at.cache();
    let _latch = at.latch().exclusive()?;
    let left = find(at.engine(), at.root(), key)?;
    // The new page, empty and linked: a whole list, so a group is all that it takes.
    txn.claim(8 * RECORD_OVERHEAD_BYTES)?;
    let mut run = at.space().latch_free(1)?; // Maps come before pages.
    let right = run.first;
    let mut left_page = cache.exclusive(left)?;
    if !Page(left_page.words()).is_full() {
        return Ok(()); // Somebody was faster.
    }
    let mut right_page = cache.exclusive_new(right)?;
    let (set, next) = (run.args_set(), Page(left_page.words()).next());
    let (format, link) = (format_args(at.root(), next), link_args(next, right));
    txn.group(
        &mut [&mut run.map, &mut left_page, &mut right_page],
        &[
            Part { page: 0, op: OP_SPACE_SET, args: &set },
            Part { page: 2, op: OP_FORMAT, args: &format },
            Part { page: 1, op: OP_LINK, args: &link },
        ],
    )?;
    drop((run, left_page, right_page));
    // The entries: two records, both or none.
    txn.nested_top(|txn| {
        txn.claim(2 * (RECORD_OVERHEAD_BYTES + cache.page_bytes()))?;
        let mut left_page = cache.exclusive(left)?;
        let mut right_page = cache.exclusive(right)?;
        let moved = last_entries(Page(left_page.words()), Page(left_page.words()).count().div_ceil(2));
        txn.update(&mut left_page, OP_TAKE, &moved)?;
        txn.update(&mut right_page, OP_GIVE, &moved)?;
        Ok(())
    })
}

/// Whether `key` belongs to a page behind this one, which is latched: the next page that is not empty begins at or
/// before it.
fn find_behind(engine: &Engine, page: &ledgerstone::extend::ExclusivePage<'_>, key: u64) -> Result<bool, TxnError> {
    let mut id = Page(page.words()).next();
    while id != PageId::NONE {
        let next = engine.cache.shared(id)?; // Left before right.
        if let Some(first) = Page(next.words()).first_key() {
            return Ok(first <= key);
        }
        id = Page(next.words()).next();
    }
    Ok(false)
}

fn last_entries(page: Page<'_>, count: usize) -> Vec<u8> {
    let from = page.count() - count;
    page.0.to_vec(ENTRIES + ENTRY_BYTES * from, ENTRY_BYTES * count)
}

fn words<const N: usize>(words: [u64; N]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn read_words<const N: usize>(op: OpId, args: &[u8]) -> Result<[u64; N], OpError> {
    let mut chunks = args.chunks_exact(8);
    let read = std::array::from_fn(|_| chunks.next().and_then(|c| c.try_into().ok()).map_or(0, u64::from_le_bytes));
    match args.len() == 8 * N {
        true => Ok(read),
        false => Err(OpError::BadArgs { op, len: args.len(), what: "another number of words is expected" }),
    }
}

fn format_args(root: PageId, next: PageId) -> Vec<u8> {
    words([root.0, next.0])
}

fn link_args(old: PageId, new: PageId) -> Vec<u8> {
    words([old.0, new.0])
}

/// Root, key, and value or delta: the root so that an undo knows which list it is about.
fn entry_args(root: PageId, key: u64, value: i64) -> Vec<u8> {
    words([root.0, key, value.cast_unsigned()])
}

/// The operations, told apart by number: they are alike but for what they do to the page.
struct ListOperation {
    id: OpId,
    name: &'static str,
}

impl ListOperation {
    fn unfit(&self, what: &'static str, at: u64) -> OpError {
        OpError::UnfitAt { op: self.id, what, at }
    }

    /// A page of a list, whose number of entries can be believed.
    fn check_page(&self, page: Words<'_>) -> Result<(), OpError> {
        if header::layout(page) != LAYOUT {
            return Err(self.unfit("it is not a page of a counter list", u64::from(header::layout(page).0)));
        }
        if page.u64(COUNT) > Page(page).capacity() as u64 {
            return Err(self.unfit("it has more entries than fit", page.u64(COUNT)));
        }
        Ok(())
    }

    fn insert(&self, page: &mut PageMut<'_>, key: u64, value: u64) -> Result<(), OpError> {
        let before = Page(page.words());
        let Err(slot) = before.find(key) else { return Err(self.unfit("the key has an entry", key)) };
        if before.is_full() {
            return Err(self.unfit("there is no room for key", key));
        }
        let (count, at) = (before.count(), ENTRIES + ENTRY_BYTES * slot);
        page.shift(at, at + ENTRY_BYTES, ENTRY_BYTES * (count - slot));
        page.put_u64(at, key);
        page.put_u64(at + 8, value);
        page.put_u64(COUNT, count as u64 + 1);
        Ok(())
    }

    fn remove(&self, page: &mut PageMut<'_>, key: u64, value: u64) -> Result<(), OpError> {
        let before = Page(page.words());
        let slot = before.find(key).map_err(|_| self.unfit("the key has no entry", key))?;
        if before.entry(slot).1.cast_unsigned() != value {
            return Err(self.unfit("the entry has another value, key", key));
        }
        let (count, at) = (before.count(), ENTRIES + ENTRY_BYTES * slot);
        page.shift(at + ENTRY_BYTES, at, ENTRY_BYTES * (count - slot - 1));
        page.fill(ENTRIES + ENTRY_BYTES * (count - 1), ENTRY_BYTES, 0);
        page.put_u64(COUNT, count as u64 - 1);
        Ok(())
    }

    fn take(&self, page: &mut PageMut<'_>, entries: &[u8]) -> Result<(), OpError> {
        let (before, moved) = (Page(page.words()), entries.len() / ENTRY_BYTES);
        if moved > before.count() || last_entries(before, moved) != entries {
            return Err(self.unfit("its last entries are others, of", before.count() as u64));
        }
        let left = before.count() - moved;
        page.fill(ENTRIES + ENTRY_BYTES * left, entries.len(), 0);
        page.put_u64(COUNT, left as u64);
        Ok(())
    }

    fn give(&self, page: &mut PageMut<'_>, entries: &[u8]) -> Result<(), OpError> {
        let (before, moved) = (Page(page.words()), entries.len() / ENTRY_BYTES);
        let count = before.count();
        if count + moved > before.capacity() {
            return Err(self.unfit("there is no room behind entry", count as u64));
        }
        let first = u64::from_le_bytes(std::array::from_fn(|i| entries[i]));
        if count > 0 && before.entry(count - 1).0 >= first {
            return Err(self.unfit("keys would not ascend at", first));
        }
        page.put(ENTRIES + ENTRY_BYTES * count, entries);
        page.put_u64(COUNT, (count + moved) as u64);
        Ok(())
    }
}

impl Operation for ListOperation {
    fn id(&self) -> OpId {
        self.id
    }
    fn name(&self) -> &'static str {
        self.name
    }
    fn formats(&self) -> bool {
        self.id == OP_FORMAT
    }
    fn redo(&self, page: &mut PageMut<'_>, args: &[u8]) -> Result<(), OpError> {
        if self.id == OP_FORMAT {
            let [root, next] = read_words(self.id, args)?;
            page.format(LAYOUT, 0, PageId(root & PageId::MAX.0));
            page.put_u64(NEXT, next);
            return Ok(());
        }
        if matches!(self.id, OP_TAKE | OP_GIVE) && (args.is_empty() || !args.len().is_multiple_of(ENTRY_BYTES)) {
            return Err(OpError::BadArgs { op: self.id, len: args.len(), what: "whole entries are expected" });
        }
        self.check_page(page.words())?;
        match self.id {
            OP_LINK => {
                let [old, new] = read_words(self.id, args)?;
                if page.words().u64(NEXT) != old {
                    return Err(self.unfit("the next page is another", page.words().u64(NEXT)));
                }
                page.put_u64(NEXT, new);
                Ok(())
            }
            OP_TAKE => self.take(page, args),
            OP_GIVE => self.give(page, args),
            _ => {
                let [_, key, value] = read_words(self.id, args)?;
                match self.id {
                    OP_INSERT => self.insert(page, key, value),
                    OP_REMOVE => self.remove(page, key, value),
                    _ => {
                        let slot = Page(page.words()).find(key).map_err(|_| self.unfit("the key has no entry", key))?;
                        let at = ENTRIES + ENTRY_BYTES * slot + 8;
                        let sum = page.words().u64(at).wrapping_add(value);
                        page.put_u64(at, sum);
                        Ok(())
                    }
                }
            }
        }
    }
    fn undo(&self, args: &[u8]) -> Undo {
        match self.id {
            OP_INSERT | OP_ADD => Undo::Logical,
            OP_TAKE => Undo::Page { op: OP_GIVE, args: args.to_vec() },
            OP_GIVE => Undo::Page { op: OP_TAKE, args: args.to_vec() },
            OP_LINK => match read_words(self.id, args) {
                Ok([old, new]) => Undo::Page { op: OP_LINK, args: words([new, old]) },
                Err(_) => Undo::Nothing,
            },
            _ => Undo::Nothing,
        }
    }
    fn print(&self, args: &[u8]) -> String {
        match self.id {
            OP_TAKE | OP_GIVE => format!("{} entries", args.len() / ENTRY_BYTES),
            OP_LINK | OP_FORMAT => match read_words::<2>(self.id, args) {
                Ok([first, second]) => format!("{first} {second}"),
                Err(_) => format!("{} bytes", args.len()),
            },
            _ => match read_words(self.id, args) {
                Ok([root, key, value]) => format!("list {root} key {key} {:+}", value.cast_signed()),
                Err(_) => format!("{} bytes", args.len()),
            },
        }
    }
}

struct ListLayout;

impl Layout for ListLayout {
    fn id(&self) -> LayoutId {
        LAYOUT
    }
    fn name(&self) -> &'static str {
        "counter list"
    }
    fn check(&self, page: Words<'_>) -> Result<(), Corrupt> {
        header::check(page, LAYOUT)?;
        let (count, capacity) = (page.u64(COUNT), Page(page).capacity() as u64);
        if count > capacity {
            return Err(Corrupt::new("number of entries", COUNT as u64, capacity, count));
        }
        for slot in 1..Page(page).count() {
            let (before, key) = (Page(page).entry(slot - 1).0, Page(page).entry(slot).0);
            if before >= key {
                let at = (ENTRIES + ENTRY_BYTES * slot) as u64;
                return Err(Corrupt::new("key that does not ascend", at, before, key));
            }
        }
        Ok(())
    }
    fn print(&self, page: Words<'_>) -> String {
        format!("{}, {} counters, next page {}", header::print(page), Page(page).count(), Page(page).next())
    }
}

impl Structure for ListStructure {
    fn id(&self) -> StructureId {
        COUNTER_LIST
    }
    fn name(&self) -> &'static str {
        "counter list"
    }
    fn operations(&self) -> Vec<Box<dyn Operation>> {
        let named = [
            (OP_FORMAT, "list.format"),
            (OP_LINK, "list.link"),
            (OP_INSERT, "list.insert"),
            (OP_REMOVE, "list.remove"),
            (OP_ADD, "list.add"),
            (OP_TAKE, "list.take"),
            (OP_GIVE, "list.give"),
        ];
        named.into_iter().map(|(id, name)| Box::new(ListOperation { id, name }) as Box<dyn Operation>).collect()
    }
    fn layouts(&self) -> Vec<Box<dyn Layout>> {
        vec![Box::new(ListLayout)]
    }
    fn format_root(&self, root: PageId, _options: &[u8]) -> (OpId, Vec<u8>) {
        (OP_FORMAT, format_args(root, PageId::NONE))
    }

    /// Step 2: by key, wherever the entry is now. The transaction still has the key's lock, so the entry is there.
    fn undo(&self, txn: &mut Txn, op: OpId, args: &[u8]) -> Result<(), TxnError> {
        let [root, key, value] = read_words(op, args)?;
        let (root, engine) = (PageId(root), Arc::clone(txn.engine()));
        let (back, value) = match op {
            OP_INSERT => (OP_REMOVE, value.cast_signed()),
            _ => (OP_ADD, value.cast_signed().wrapping_neg()),
        };
        let args = entry_args(root, key, value);
        let _latch = StructureLatch::of(&engine, root).shared()?;
        txn.claim(args.len() + 2 * RECORD_OVERHEAD_BYTES)?;
        let mut page = engine.cache.exclusive(find(&engine, root, key)?)?;
        txn.update(&mut page, back, &args)?;
        Ok(())
    }

    fn pages(&self, engine: &Arc<Engine>, root: PageId) -> Result<Vec<PageId>, TxnError> {
        pages(engine, root)
    }

    /// L1 across pages; on one page the layout sees it.
    fn check(&self, engine: &Arc<Engine>, root: PageId) -> Result<Vec<String>, TxnError> {
        let (mut wrong, mut last) = (Vec::new(), None);
        for id in pages(engine, root)? {
            let page = engine.cache.shared(id)?;
            let page = Page(page.words());
            if let (Some(last), Some(first)) = (last, page.first_key())
                && last >= first
            {
                wrong.push(format!("page {id} begins with key {first}, after {last}"));
            }
            last = page.count().checked_sub(1).map(|slot| page.entry(slot).0).or(last);
        }
        Ok(wrong)
    }
}

/// Pages and arguments by which the kit checks the operations.
#[must_use]
pub fn cases() -> Vec<ledgerstone::extend::kit::Case> {
    use ledgerstone::extend::{PageBuf, kit::Case};
    let mut page = PageBuf::new(4096);
    header::format(&mut page.words_mut(), PageId(9), LAYOUT, 0, PageId(5));
    page.words_mut().put_u64(COUNT, 3);
    for (slot, key) in [10, 20, 30].into_iter().enumerate() {
        page.words_mut().put_u64(ENTRIES + ENTRY_BYTES * slot, key);
        page.words_mut().put_u64(ENTRIES + ENTRY_BYTES * slot + 8, 100 + key);
    }
    let root = PageId(5);
    [
        (OP_FORMAT, format_args(root, PageId(7))),
        (OP_LINK, link_args(PageId::NONE, PageId(12))),
        (OP_INSERT, entry_args(root, 15, -1)),
        (OP_INSERT, entry_args(root, 5, 1)),
        (OP_REMOVE, entry_args(root, 20, 120)),
        (OP_ADD, entry_args(root, 30, -7)),
        (OP_TAKE, last_entries(Page(page.words()), 2)),
        (OP_GIVE, words([40, 1, 50, 2])),
    ]
    .into_iter()
    .map(|(op, args)| Case::new(op, page.clone(), args))
    .collect()
}
