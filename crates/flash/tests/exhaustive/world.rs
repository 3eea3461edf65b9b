//! A small store with what it must contain, and the steps that change both.

use ledgerstone_flash::nand::memory::{Content, MemoryNand};
use ledgerstone_flash::nand::{Geometry, Timing};
use ledgerstone_flash::protocol::{AnyStore, Config, Protocol};
use ledgerstone_flash::transact::Transactions;
use ledgerstone_flash::{FlashError, Xid};

pub const PAGES: usize = 2;
const EMPTY: u64 = u64::MAX;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step {
    Write { txn: usize, page: usize },
    Commit { txn: usize, with_page: Option<usize> },
    Abort { txn: usize },
    Collect { block: u32 },
}

/// A store with what it must contain.
#[derive(Clone)]
pub struct World {
    pub store: AnyStore<MemoryNand>,
    pub committed: [u64; PAGES],
    running: [Option<(Xid, [Option<u64>; PAGES])>; 2],
    pub next_value: u64,
}

impl World {
    pub fn new(config: Config) -> Self {
        let geometry = Geometry { pages_per_block: 4, page_bytes: 128, ..Geometry::small(12) };
        let nand = MemoryNand::new(config.suitable(geometry), Timing::paper(), Content::Fingerprint).unwrap();
        let store = AnyStore::open(nand, config).unwrap();
        let mut world = Self { store, committed: [EMPTY; PAGES], running: [None; 2], next_value: 1 };
        for page in 0..PAGES {
            world.act(Step::Commit { txn: 0, with_page: Some(page) }).unwrap();
        }
        world
    }

    /// After a restart that has found these pages.
    pub fn opened(store: AnyStore<MemoryNand>, committed: [u64; PAGES], next_value: u64) -> Self {
        Self { store, committed, running: [None; 2], next_value }
    }

    pub fn is_possible(&self, step: Step) -> bool {
        let holds = |txn: usize, page: usize| self.running[txn].is_some_and(|(_, writes)| writes[page].is_some());
        match step {
            Step::Write { txn, page } | Step::Commit { txn, with_page: Some(page) } => !holds(1 - txn, page),
            Step::Commit { txn, with_page: None } | Step::Abort { txn } => self.running[txn].is_some(),
            Step::Collect { .. } => true,
        }
    }

    pub fn act(&mut self, step: Step) -> Result<(), FlashError> {
        match step {
            Step::Write { txn, page } => {
                let (xid, value) = (self.begin(txn), self.value());
                self.store.write(xid, page as u32, &value.to_le_bytes())?;
                self.note(txn, page, value);
            }
            Step::Commit { txn, with_page } => {
                let xid = self.begin(txn);
                let value = self.value();
                let bytes = value.to_le_bytes();
                let last: Vec<(u32, &[u8])> = with_page.iter().map(|&page| (page as u32, &bytes[..])).collect();
                if let Some(page) = with_page {
                    self.note(txn, page, value);
                }
                self.store.commit_with(xid, &last)?;
                self.committed = self.after_commit(txn);
                self.running[txn] = None;
            }
            Step::Abort { txn } => {
                let xid = self.begin(txn);
                self.running[txn] = None;
                self.store.abort(xid)?;
            }
            Step::Collect { block } => self.store.collect_block(block)?,
        }
        Ok(())
    }

    fn begin(&mut self, txn: usize) -> Xid {
        let store = &mut self.store;
        self.running[txn].get_or_insert_with(|| (store.begin(), [None; PAGES])).0
    }

    fn value(&mut self) -> u64 {
        self.next_value += 1;
        self.next_value
    }

    fn note(&mut self, txn: usize, page: usize, value: u64) {
        if let Some((_, writes)) = &mut self.running[txn] {
            writes[page] = Some(value);
        }
    }

    /// What must be there after a step.
    pub fn after(&self, step: Step) -> [u64; PAGES] {
        let Step::Commit { txn, with_page } = step else { return self.committed };
        let mut pages = self.after_commit(txn);
        if let Some(page) = with_page {
            pages[page] = self.next_value + 1;
        }
        pages
    }

    fn after_commit(&self, txn: usize) -> [u64; PAGES] {
        let mut pages = self.committed;
        if let Some((_, writes)) = self.running[txn] {
            for (page, value) in writes.iter().enumerate() {
                pages[page] = value.unwrap_or(pages[page]);
            }
        }
        pages
    }
}

pub fn contents(store: &mut AnyStore<MemoryNand>) -> Result<[u64; PAGES], FlashError> {
    let mut pages = [0; PAGES];
    for (lba, page) in pages.iter_mut().enumerate() {
        let mut bytes = [0; 8];
        store.read(None, lba as u32, &mut bytes)?;
        *page = u64::from_le_bytes(bytes);
    }
    Ok(pages)
}

pub fn steps(world: &World) -> Vec<Step> {
    let mut steps = Vec::new();
    for txn in 0..2 {
        for page in 0..PAGES {
            steps.push(Step::Write { txn, page });
        }
        steps.push(Step::Commit { txn, with_page: None });
        steps.push(Step::Commit { txn, with_page: Some(0) });
        steps.push(Step::Abort { txn });
    }
    // Others are empty: collecting them does nothing.
    steps.extend((0..12).filter(|&b| world.store.core().holds_pages(b)).map(|block| Step::Collect { block }));
    steps
}

/// A buffer so small that WAL writes pages out while transactions run.
pub fn config(protocol: Protocol) -> Config {
    Config { buffer_pages: 1, checkpoint_pages: 2, ..Config::new(protocol) }
}
