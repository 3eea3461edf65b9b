//! Replays a trace with many clients in simulated time, as the paper's evaluation does (5.1). It has strict two-phase
//! locking and an LRU buffer, and it ignores CPU time. It looks for deadlocks at each block, and restarts the youngest
//! of a cycle after a random backoff.
//!
//! Always the client whose time is earliest takes its next step, which moves its time on by what the device needs. The
//! device keeps each chip busy, so that clients get into each other's way where they use the same chips. One seed
//! decides everything.

mod locks;
mod pages;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use locks::{ClientNo, Locks};
use pages::BufferedStore;

use crate::Xid;
use crate::error::{FlashError, Result};
use crate::ftl::FtlStats;
use crate::nand::memory::{Content, MemoryNand};
use crate::nand::{Geometry, Timing};
use crate::protocol::{AnyStore, Config, Protocol};
use crate::rng::Rng;
use crate::trace::{Access, Trace};
use crate::transact::Transactions;

/// What a lock is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Granularity {
    /// Whole pages: all that the basic protocols allow.
    Page,
    /// Records.
    Record,
}

/// How a trace is replayed.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// The protocol and its settings; `buffer_pages` is that of table 2 for all.
    pub config: Config,
    /// The device.
    pub geometry: Geometry,
    /// What locks are on.
    pub granularity: Granularity,
    /// Basic protocols: every change goes to flash at once, as section 3 assumes. The buffer then only saves reads.
    pub is_write_through: bool,
    /// Clients. Each has one transaction at a time (table 2: 50).
    pub clients: u32,
    /// Transactions that end with an abort instead of what the trace says, in thousandths; `None`: as in the trace.
    pub abort_per_mille: Option<u64>,
    /// The longest backoff. One is drawn evenly from 0 on. The paper gives none.
    pub backoff_ns_max: u64,
    /// Transactions before measuring.
    pub warm_up: u64,
    /// Transactions measured.
    pub measured: u64,
    /// Everything random.
    pub seed: u64,
}

impl Setup {
    /// Table 2, on a device.
    pub fn new(protocol: Protocol, geometry: Geometry) -> Self {
        Self {
            config: Config::new(protocol),
            geometry,
            granularity: if protocol.is_no_force() { Granularity::Record } else { Granularity::Page },
            is_write_through: false,
            clients: 50,
            abort_per_mille: Some(50),
            backoff_ns_max: 20_000_000,
            warm_up: 10_000,
            measured: 10_000,
            seed: 1,
        }
    }
}

/// What was measured. Times are simulated unless they say otherwise.
#[derive(Clone, Copy, Debug, Default)]
pub struct Measured {
    /// Transactions committed.
    pub committed: u64,
    /// Transactions that were to abort.
    pub aborted: u64,
    /// Restarts after deadlocks.
    pub restarts: u64,
    /// Time measured, in seconds.
    pub seconds: f64,
    /// From the first begin to the end, by committed transaction, in milliseconds (figure 12b).
    pub execution_ms: f64,
    /// From the command to its completion, by committed transaction, in milliseconds (figure 16b).
    pub commit_ms: f64,
    /// Time that clients spent collecting, in seconds.
    pub collection_seconds: f64,
    /// The part of the time of all clients with a transaction that was spent collecting (figure 13a).
    pub collection_share: f64,
    /// Pages copied a block collected.
    pub copied_per_block: f64,
    /// The same in the second half: alike if collection was steady.
    pub copied_per_block_late: f64,
    /// Blocks collected.
    pub collections: u64,
    /// Flags programmed by collection.
    pub flags_moved: u64,
    /// Data pages written for clients.
    pub pages_written: u64,
    /// Log pages written (figure 17a).
    pub log_pages: u64,
    /// Bytes of the records in them.
    pub log_bytes: u64,
    /// Pages alive at the end beside one for each logical page: older versions, the log.
    pub kept_pages: u64,
    /// A restart at the end, one chip operation after the other, in milliseconds (figure 13b).
    pub recovery_ms: f64,
    /// Tables beside the buffer, in bytes (table 3).
    pub table_bytes: u64,
    /// Pages read for clients.
    pub pages_read: u64,
    /// The part of the measured time that a chip was busy, on average.
    pub busy_share: f64,
    /// Operations of single chips.
    pub chip_operations: u64,
    /// Seconds of real time that it took, filling the device not counted.
    pub real_seconds: f64,
}

impl Measured {
    /// Committed transactions a second (figure 12a).
    pub fn throughput(&self) -> f64 {
        self.committed as f64 / self.seconds.max(1e-9)
    }

    /// Collection time a committed transaction, in milliseconds (figure 14b).
    pub fn collection_ms_per_commit(&self) -> f64 {
        self.collection_seconds * 1000.0 / self.committed.max(1) as f64
    }

    /// Restarts before a success (figure 15b).
    pub fn restart_ratio(&self) -> f64 {
        self.restarts as f64 / self.committed.max(1) as f64
    }
}

/// A device full of valid pages: only the reserve is free.
///
/// # Errors
/// Those of the store: none is expected.
pub fn full_device(config: Config, geometry: Geometry) -> Result<AnyStore<MemoryNand>> {
    let nand = MemoryNand::new(config.suitable(geometry), Timing::paper(), Content::Fingerprint)?;
    let mut store = AnyStore::open(nand, config)?;
    let count = store.page_count();
    for first in (0..count).step_by(40) {
        store.load(first..(first + 40).min(count))?;
    }
    Ok(store)
}

/// Fills a device and replays a trace on it, from the beginning again if it is too short. `progress` is told how many
/// transactions of how many have ended.
///
/// # Errors
/// [`crate::FlashError::UnknownPage`] if the trace names a page that the device does not have.
/// [`crate::FlashError::Trace`] if the trace is empty.
pub fn replay(setup: &Setup, trace: &Trace, progress: &mut dyn FnMut(u64, u64)) -> Result<Measured> {
    if trace.is_empty() {
        return Err(FlashError::Trace { line: 0, reason: "the trace has no transactions".to_string() });
    }
    let store = full_device(setup.config, setup.geometry)?;
    if trace.page_count() > store.page_count() {
        return Err(FlashError::UnknownPage { lba: trace.page_count() - 1, count: store.page_count() });
    }
    let began = std::time::Instant::now();
    let operations = store.core().nand.stats();
    let mut run = Run::new(setup, trace, store);
    let total = setup.warm_up + setup.measured;
    let mut marks = Vec::new();
    for goal in [setup.warm_up, setup.warm_up + setup.measured / 2, total] {
        while run.ended < goal {
            run.step()?;
            if run.ended.is_multiple_of(1024) {
                progress(run.ended, total);
            }
        }
        marks.push(run.mark());
    }
    let lanes = setup.geometry.lanes;
    let chip_operations =
        run.pages.store.core().nand.stats().chip_operations(lanes) - operations.chip_operations(lanes);
    let real_seconds = began.elapsed().as_secs_f64();
    let table_bytes = run.pages.store.core().table_bytes() + run.pages.store.table_bytes();
    let kept_pages = run.pages.store.core().live_pages().saturating_sub(u64::from(run.pages.store.page_count()));
    let recovery_ms = recovery_ms(run.pages.store.into_device(), setup.config)?;
    let [start, middle, end] = [&marks[0], &marks[1], &marks[2]];
    let copied = |a: &Mark, b: &Mark| {
        let blocks = (b.ftl.collections - a.ftl.collections).max(1);
        (b.ftl.pages_copied - a.ftl.pages_copied) as f64 / blocks as f64
    };
    let committed = end.totals.committed - start.totals.committed;
    let per_commit = |ns: u64| ns as f64 / 1e6 / committed.max(1) as f64;
    let seconds = (end.now_ns - start.now_ns) as f64 / 1e9;
    let collection_seconds = (end.ftl.collection_ns - start.ftl.collection_ns) as f64 / 1e9;
    Ok(Measured {
        committed,
        aborted: end.totals.aborted - start.totals.aborted,
        restarts: end.totals.restarts - start.totals.restarts,
        seconds,
        execution_ms: per_commit(end.totals.execution_ns - start.totals.execution_ns),
        commit_ms: per_commit(end.totals.commit_ns - start.totals.commit_ns),
        collection_seconds,
        collection_share: (end.ftl.collection_ns - start.ftl.collection_ns) as f64
            / (end.totals.device_ns - start.totals.device_ns).max(1) as f64,
        copied_per_block: copied(start, end),
        copied_per_block_late: copied(middle, end),
        collections: end.ftl.collections - start.ftl.collections,
        flags_moved: end.ftl.flags_moved - start.ftl.flags_moved,
        pages_written: end.ftl.pages_written - start.ftl.pages_written,
        log_pages: end.log_pages - start.log_pages,
        log_bytes: end.log_bytes - start.log_bytes,
        kept_pages,
        recovery_ms,
        table_bytes,
        pages_read: end.ftl.pages_read - start.ftl.pages_read,
        busy_share: (end.busy_ns - start.busy_ns) as f64
            / ((end.now_ns - start.now_ns).max(1) * u64::from(setup.geometry.units * lanes)) as f64,
        chip_operations,
        real_seconds,
    })
}

/// Time for a restart after a power cut.
fn recovery_ms(mut nand: MemoryNand, config: Config) -> Result<f64> {
    nand.cut_power_now();
    nand.restore_power();
    let before = nand.now_ns();
    let store = AnyStore::open(nand, config)?;
    Ok((store.core().nand.now_ns() - before) as f64 / 1e6)
}

#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    committed: u64,
    aborted: u64,
    restarts: u64,
    execution_ns: u64,
    commit_ns: u64,
    /// Time that clients spent waiting for the device.
    device_ns: u64,
}

struct Mark {
    now_ns: u64,
    busy_ns: u64,
    totals: Totals,
    ftl: FtlStats,
    log_pages: u64,
    log_bytes: u64,
}

#[derive(Clone, Debug)]
struct Running {
    xid: Xid,
    index: usize,
    /// Accesses done.
    done: usize,
    /// Its place in the order of first begins: higher is younger.
    age: u64,
    began_ns: u64,
}

#[derive(Clone, Debug, Default)]
struct Client {
    now_ns: u64,
    running: Option<Running>,
}

struct Run<'a> {
    setup: &'a Setup,
    trace: &'a Trace,
    pages: BufferedStore,
    locks: Locks,
    clients: Vec<Client>,
    /// Clients that do not wait for a lock, the earliest first.
    ready: BinaryHeap<Reverse<(u64, ClientNo)>>,
    rng: Rng,
    next_index: usize,
    ended: u64,
    totals: Totals,
    latest_ns: u64,
}

impl<'a> Run<'a> {
    fn new(setup: &'a Setup, trace: &'a Trace, store: AnyStore<MemoryNand>) -> Self {
        let now_ns = store.core().nand.now_ns();
        let clients = vec![Client { now_ns, running: None }; setup.clients.max(1) as usize];
        let ready = (0..clients.len() as ClientNo).map(|client| Reverse((now_ns, client))).collect();
        Self {
            setup,
            trace,
            pages: BufferedStore::new(store, setup.config.buffer_pages, setup.is_write_through),
            locks: Locks::default(),
            clients,
            ready,
            rng: Rng::new(setup.seed),
            next_index: 0,
            ended: 0,
            totals: Totals::default(),
            latest_ns: now_ns,
        }
    }

    fn mark(&self) -> Mark {
        let core = self.pages.store.core();
        let (store, busy_ns) = (&self.pages.store, core.nand.stats().busy_ns);
        let (log_pages, log_bytes) = (store.log_pages(), store.log_bytes());
        Mark { now_ns: self.latest_ns, busy_ns, totals: self.totals, ftl: core.stats, log_pages, log_bytes }
    }

    /// One step of the client whose time is earliest.
    fn step(&mut self) -> Result<()> {
        // Somebody is always ready: deadlocks are broken when they arise.
        let Some(Reverse((now_ns, client))) = self.ready.pop() else { return Ok(()) };
        self.latest_ns = self.latest_ns.max(now_ns);
        self.pages.store.core_mut().nand.set_now_ns(now_ns);
        let Some(running) = self.clients[client as usize].running.clone() else {
            let index = self.next_index;
            self.next_index += 1;
            let xid = self.pages.begin();
            let running = Running { xid, index, done: 0, age: index as u64, began_ns: now_ns };
            self.clients[client as usize].running = Some(running);
            self.ready.push(Reverse((now_ns, client)));
            return Ok(());
        };
        let (accesses, commits) = self.trace.get(running.index);
        match accesses.get(running.done) {
            Some(access) => self.access(client, &running, *access),
            None => self.end(client, &running, self.outcome(running.index, commits)),
        }
    }

    /// Whether a transaction of the trace is to commit. The same at each try.
    fn outcome(&self, index: usize, commits: bool) -> bool {
        match self.setup.abort_per_mille {
            None => commits,
            Some(share) => !Rng::new(self.setup.seed ^ (index as u64) << 20).chance(share),
        }
    }

    fn access(&mut self, client: ClientNo, running: &Running, access: Access) -> Result<()> {
        let Access { lba, record, is_write } = access;
        let record_part = if self.setup.granularity == Granularity::Record { u64::from(record) + 1 } else { 0 };
        let key = u64::from(lba) << 20 | record_part;
        if !self.locks.request(client, key, is_write) {
            return self.break_deadlocks(client);
        }
        if is_write {
            match self.pages.write(running.xid, lba, record) {
                Err(FlashError::Conflict { holder, .. }) => {
                    // `max_c` others have changes in the page: algorithm 1, line 16.
                    let is_holder = |c: &Client| c.running.as_ref().is_some_and(|r| r.xid == holder);
                    if let Some(other) = self.clients.iter().position(is_holder) {
                        self.locks.wait_for(client, other as ClientNo);
                        return self.break_deadlocks(client);
                    }
                }
                other => other?,
            }
        } else {
            self.pages.read(running.xid, lba)?;
        }
        if let Some(running) = &mut self.clients[client as usize].running {
            running.done += 1;
        }
        self.go_on(client);
        Ok(())
    }

    /// The client's time is now the device's, and it is ready for the next step.
    fn go_on(&mut self, client: ClientNo) {
        let now_ns = self.pages.store.core().nand.now_ns();
        let own = &mut self.clients[client as usize];
        self.totals.device_ns += now_ns - own.now_ns.min(now_ns);
        own.now_ns = now_ns;
        self.ready.push(Reverse((now_ns, client)));
    }

    fn end(&mut self, client: ClientNo, running: &Running, commits: bool) -> Result<()> {
        let before = self.clients[client as usize].now_ns;
        if commits {
            self.pages.commit(running.xid)?;
            let now_ns = self.pages.store.core().nand.now_ns();
            self.totals.committed += 1;
            self.totals.commit_ns += now_ns - before;
            self.totals.execution_ns += now_ns - running.began_ns;
        } else {
            self.pages.abort(running.xid)?;
            self.totals.aborted += 1;
        }
        self.ended += 1;
        self.clients[client as usize].running = None;
        self.go_on(client);
        self.release(client);
        Ok(())
    }

    fn release(&mut self, client: ClientNo) {
        let now_ns = self.clients[client as usize].now_ns;
        for woken in self.locks.release(client) {
            let own = &mut self.clients[woken as usize];
            own.now_ns = own.now_ns.max(now_ns);
            self.ready.push(Reverse((own.now_ns, woken)));
        }
    }

    /// `client` has begun to wait: as long as it closes a cycle, the youngest in it starts again.
    fn break_deadlocks(&mut self, client: ClientNo) -> Result<()> {
        let now_ns = self.clients[client as usize].now_ns;
        loop {
            let cycle = self.locks.find_cycle(client);
            let age = |c: &ClientNo| self.clients[*c as usize].running.as_ref().map_or(0, |r| r.age);
            let Some(victim) = cycle.into_iter().max_by_key(age) else { return Ok(()) };
            let own = &mut self.clients[victim as usize];
            own.now_ns = own.now_ns.max(now_ns);
            self.pages.store.core_mut().nand.set_now_ns(own.now_ns);
            let Some(mut running) = own.running.take() else { return Ok(()) };
            self.pages.abort(running.xid)?;
            (running.xid, running.done) = (self.pages.begin(), 0);
            let end_ns = self.pages.store.core().nand.now_ns();
            let backoff_ns = self.rng.below(self.setup.backoff_ns_max + 1);
            let own = &mut self.clients[victim as usize];
            self.totals.device_ns += end_ns - own.now_ns;
            own.running = Some(running);
            own.now_ns = end_ns;
            self.release(victim);
            self.clients[victim as usize].now_ns = end_ns + backoff_ns;
            self.ready.push(Reverse((end_ns + backoff_ns, victim)));
            self.totals.restarts += 1;
            if victim == client {
                return Ok(());
            }
        }
    }
}

/// The paper's device, one `part`-th of it.
pub fn paper_device(part: u32) -> Geometry {
    let paper = Geometry::paper();
    Geometry { blocks: (paper.blocks / part.max(1)).max(paper.units * 16), ..paper }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Lba;

    /// Transactions that change two of few pages in random order: conflicts and deadlocks are certain.
    fn trace() -> Trace {
        let mut rng = Rng::new(9);
        let mut trace = Trace::default();
        for _ in 0..300 {
            let accesses: Vec<Access> = (0..4)
                .map(|_| Access { lba: rng.below(12) as Lba, record: rng.below(8) as u16, is_write: rng.chance(700) })
                .collect();
            trace.push(&accesses, true);
        }
        trace
    }

    #[test]
    fn every_protocol_replays_a_trace_with_deadlocks_and_the_same_seed_gives_the_same() {
        for protocol in Protocol::ALL {
            let geometry = Geometry { blocks: 64, ..Geometry::paper() };
            let mut setup = Setup { clients: 6, warm_up: 300, measured: 900, ..Setup::new(protocol, geometry) };
            setup.config.buffer_pages = 8;
            let (a, b) = (replay(&setup, &trace(), &mut |_, _| {}), replay(&setup, &trace(), &mut |_, _| {}));
            let (a, b) = (a.unwrap(), b.unwrap());
            assert_eq!((a.seconds, a.restarts, a.collections), (b.seconds, b.restarts, b.collections), "{protocol:?}");
            assert!(a.restarts > 0 && a.collections > 0 && a.committed + a.aborted >= 900, "{protocol:?}: {a:?}");
            assert!(a.collection_share > 0.0 && a.collection_share < 1.0, "{protocol:?}: {a:?}");
        }
    }

    /// What is dead before the first transaction is room that collection has under one protocol and not under another.
    #[test]
    fn a_full_device_is_the_same_under_every_protocol() {
        for protocol in Protocol::ALL {
            let store = full_device(Config::new(protocol), Geometry { blocks: 64, ..Geometry::paper() }).unwrap();
            let (core, pages) = (store.core(), u64::from(store.page_count()));
            let stats = core.nand.stats();
            let found = (core.live_pages(), stats.programs - core.stats.summaries, core.stats.collections);
            assert_eq!(found, (pages, pages, 0), "{protocol:?}");
        }
    }

    #[test]
    fn a_trace_with_unknown_pages_is_refused() {
        let geometry = Geometry { blocks: 64, ..Geometry::paper() };
        let mut trace = Trace::default();
        trace.push(&[Access { lba: 1_000_000, record: 0, is_write: true }], true);
        let answer = replay(&Setup::new(Protocol::Cfc, geometry), &trace, &mut |_, _| {});
        assert!(matches!(answer, Err(FlashError::UnknownPage { lba: 1_000_000, .. })), "{answer:?}");
        let answer = replay(&Setup::new(Protocol::Cfc, geometry), &Trace::default(), &mut |_, _| {});
        assert!(matches!(answer, Err(FlashError::Trace { .. })), "{answer:?}");
    }
}
