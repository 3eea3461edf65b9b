//! Numbers in structures of users, told apart by the names of their instances, behind one face.
//!
//! | name | what |
//! | --- | --- |
//! | `c0`, `c1` | a counter list of many pages (`examples/`): a number is there from its first addition on |
//! | `h0` | a page of counters that many increment at once (`examples/`, Lemon 4.4): all are there from the beginning |
//! | `f0` | cells of a fixed page ([`super::cells`]): a number is there while it is not zero |
//! | `v0` | cells of a versioned page, the same |

use std::sync::Arc;

use ledgerstone::extend::{
    Engine, Layout, OpError, OpId, Operation, PageId, PageMut, Structure, StructureId, TxnError, Undo,
};
use ledgerstone::{Error, Options, Transaction};
use ledgerstone_examples::counter_list::{CounterList, ListStructure};
use ledgerstone_examples::increment::{Counters, CountersStructure, OP_ADD};
use ledgerstone_page::planted::{self, Bug};

use super::cells::{CELL_COUNT, CellPage, CellStructure, Cells};
use super::plan::COUNTER_COUNT;

/// How many counters of a page are used, and how far they lie apart.
const HITS: (u64, u64) = (12, 41);

/// What an instance is, by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A counter list.
    List,
    /// A page of counters.
    Hits,
    /// A page of cells.
    Page(Cells),
}

impl Kind {
    /// None: it is the name of a table.
    pub fn of(name: &str) -> Option<Kind> {
        match name.as_bytes().first()? {
            b'c' => Some(Kind::List),
            b'h' => Some(Kind::Hits),
            b'f' => Some(Kind::Page(Cells::Fixed)),
            b'v' => Some(Kind::Page(Cells::Versioned)),
            _ => None,
        }
    }

    /// Numbers that it can have.
    pub fn key_count(self) -> u64 {
        match self {
            Kind::List => COUNTER_COUNT,
            Kind::Hits => HITS.0,
            Kind::Page(_) => u64::from(CELL_COUNT),
        }
    }
}

/// An instance in a transaction.
pub enum Tally {
    /// A counter list.
    List(CounterList),
    /// A page of counters.
    Hits(Counters),
    /// A page of cells.
    Page(CellPage),
}

impl Tally {
    /// Makes the instance of a name that is not a table's.
    ///
    /// # Errors
    /// As [`Transaction::create_structure`].
    pub fn create(txn: &Transaction, name: &str) -> Result<Tally, Error> {
        Ok(match Kind::of(name) {
            Some(Kind::Hits) => Tally::Hits(Counters::create(txn, name)?),
            Some(Kind::Page(cells)) => Tally::Page(CellPage::create(txn, name, cells)?),
            _ => Tally::List(CounterList::create(txn, name)?),
        })
    }

    /// Opens it.
    ///
    /// # Errors
    /// As [`Transaction::structure`].
    pub fn open(txn: &Transaction, name: &str) -> Result<Tally, Error> {
        Ok(match Kind::of(name) {
            Some(Kind::Hits) => Tally::Hits(Counters::open(txn, name)?),
            Some(Kind::Page(cells)) => Tally::Page(CellPage::open(txn, name, cells)?),
            _ => Tally::List(CounterList::open(txn, name)?),
        })
    }

    /// Adds to a number.
    ///
    /// # Errors
    /// Conflicts, no space.
    pub fn add(&self, key: u64, delta: i64) -> Result<(), Error> {
        match self {
            Tally::List(list) => list.add(key, delta),
            Tally::Hits(hits) => hits.add((key * HITS.1) as u16, delta),
            Tally::Page(page) => page.add(key as u16, delta),
        }
    }

    /// A number, if it is there.
    ///
    /// # Errors
    /// Conflicts.
    pub fn get(&self, key: u64) -> Result<Option<i64>, Error> {
        match self {
            Tally::List(list) => list.get(key),
            Tally::Hits(hits) => hits.get((key * HITS.1) as u16).map(Some),
            Tally::Page(page) => page.get(key as u16),
        }
    }

    /// All that are there.
    ///
    /// # Errors
    /// Conflicts.
    pub fn all(&self) -> Result<Vec<(u64, i64)>, Error> {
        match self {
            Tally::List(list) => list.all(),
            Tally::Hits(hits) => (0..HITS.0).map(|key| Ok((key, hits.get((key * HITS.1) as u16)?))).collect(),
            Tally::Page(page) => page.all(),
        }
    }
}

/// Options with all the structures.
pub fn register(options: Options) -> Options {
    options
        .structure(Arc::new(ListStructure))
        .structure(Arc::new(HitsStructure(CountersStructure)))
        .structure(Arc::new(CellStructure))
}

/// The page of counters, with a place for the planted bug: what the program's own code does wrong has to be found as
/// well.
struct HitsStructure(CountersStructure);

impl Structure for HitsStructure {
    fn id(&self) -> StructureId {
        self.0.id()
    }
    fn name(&self) -> &'static str {
        self.0.name()
    }
    fn operations(&self) -> Vec<Box<dyn Operation>> {
        self.0.operations().into_iter().map(|operation| Box::new(Increment(operation)) as Box<dyn Operation>).collect()
    }
    fn layouts(&self) -> Vec<Box<dyn Layout>> {
        self.0.layouts()
    }
    fn format_root(&self, root: PageId, options: &[u8]) -> (OpId, Vec<u8>) {
        self.0.format_root(root, options)
    }
    fn pages(&self, engine: &Arc<Engine>, root: PageId) -> Result<Vec<PageId>, TxnError> {
        self.0.pages(engine, root)
    }
}

struct Increment(Box<dyn Operation>);

impl Operation for Increment {
    fn id(&self) -> OpId {
        self.0.id()
    }
    fn name(&self) -> &'static str {
        self.0.name()
    }
    fn formats(&self) -> bool {
        self.0.formats()
    }
    fn redo(&self, page: &mut PageMut<'_>, args: &[u8]) -> Result<(), OpError> {
        self.0.redo(page, args)
    }
    fn undo(&self, args: &[u8]) -> Undo {
        if planted::is_on(Bug::IncrementStays) && self.0.id() == OP_ADD {
            return Undo::Nothing;
        }
        self.0.undo(args)
    }
    fn is_undone_by_page(&self) -> bool {
        self.0.is_undone_by_page()
    }
    fn print(&self, args: &[u8]) -> String {
        self.0.print(args)
    }
}
