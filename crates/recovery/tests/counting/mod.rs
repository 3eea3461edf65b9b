//! The smallest environment that there can be: no space maps, no catalog, pages of counters, formatted by their first
//! record.
#![allow(dead_code)]

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use ledgerstone_buffer::Cache;
use ledgerstone_disk::{Disk, Open};
use ledgerstone_lock::Mode;
use ledgerstone_log::{ControlFile, ControlState, FIRST_LSN, LogConfig, LogScan};
use ledgerstone_op::{OpError, Operation, PageMut, Registry, Undo};
use ledgerstone_page::{HEADER_BYTES, Lsn, OpId, PageId, TableId, Xid};
use ledgerstone_recovery::{
    Analysis, Gathered, Pending, RecoveryError, Redone, adopt, analyse, checkpoint, redo, undo,
};
use ledgerstone_space::OP_FILE_HEADER_FORMAT;
use ledgerstone_testkit::EngineKit;
pub use ledgerstone_testkit::counters::{ADD, Add, FORMAT, add_args};
use ledgerstone_txn::{Durability, Engine, LogicalUndo, Part, Txn, TxnError};

pub const ADD_SOMEWHERE: OpId = OpId(1026);
pub const ADD_BY_PAGE: OpId = OpId(1027);
pub const ADD_UNLESS_REFUSED: OpId = OpId(1028);
const PAGE_BYTES: u32 = 4096;
const SEGMENT_BYTES: u64 = 64 << 10;
pub const PAGES: u64 = 40;
pub const COUNTERS: usize = 16;
const ENV: [u8; 16] = *b"counters counter";

/// As [`Add`], where others may move the counters to another page meanwhile.
struct AddSomewhere;

impl Operation for AddSomewhere {
    fn id(&self) -> OpId {
        ADD_SOMEWHERE
    }
    fn name(&self) -> &'static str {
        "add somewhere"
    }
    fn redo(&self, page: &mut PageMut<'_>, args: &[u8]) -> Result<(), OpError> {
        Add.redo(page, args)
    }
    fn undo(&self, _: &[u8]) -> Undo {
        Undo::Logical
    }
    fn print(&self, args: &[u8]) -> String {
        format!("{args:?}")
    }
}

/// As [`Add`], where nobody minds which page's undo comes first. Runs [`WHEN_UNDONE`] after the next undo.
struct AddByPage;

pub static WHEN_UNDONE: Mutex<Option<Box<dyn FnOnce() + Send>>> = Mutex::new(None);

impl Operation for AddByPage {
    fn id(&self) -> OpId {
        ADD_BY_PAGE
    }
    fn name(&self) -> &'static str {
        "add by page"
    }
    fn redo(&self, page: &mut PageMut<'_>, args: &[u8]) -> Result<(), OpError> {
        Add.redo(page, args)?;
        let run = WHEN_UNDONE.lock().unwrap().take(); // The lock is free again: others repeat changes meanwhile.
        if let Some(run) = run {
            run();
        }
        Ok(())
    }
    fn undo(&self, args: &[u8]) -> Undo {
        match Add.undo(args) {
            Undo::Page { args, .. } => Undo::Page { op: ADD_BY_PAGE, args },
            other => other,
        }
    }
    fn is_undone_by_page(&self) -> bool {
        true
    }
    fn print(&self, args: &[u8]) -> String {
        format!("{args:?}")
    }
}

/// The first counter of this page says how many pages behind it the counters of [`AddSomewhere`] are, less one.
pub const SIGN: u64 = 1;

/// Each undo of [`AddSomewhere`] asks for this table.
pub const LOCKED_BY_UNDO: TableId = TableId(77);

struct SubtractWhereTheSignSays;

/// As [`Add`], by a program that cannot do it sometimes.
struct AddUnlessRefused;

/// Whether it cannot.
pub static IS_REFUSED: AtomicBool = AtomicBool::new(false);

impl Operation for AddUnlessRefused {
    fn id(&self) -> OpId {
        ADD_UNLESS_REFUSED
    }
    fn name(&self) -> &'static str {
        "add unless refused"
    }
    fn redo(&self, page: &mut PageMut<'_>, args: &[u8]) -> Result<(), OpError> {
        if IS_REFUSED.load(SeqCst) {
            Err(OpError::Unfit { op: ADD_UNLESS_REFUSED, what: "it is refused" })
        } else {
            Add.redo(page, args)
        }
    }
    fn undo(&self, args: &[u8]) -> Undo {
        Add.undo(args)
    }
    fn print(&self, args: &[u8]) -> String {
        Add.print(args)
    }
}

impl LogicalUndo for SubtractWhereTheSignSays {
    fn undo(&self, txn: &mut Txn, _: OpId, args: &[u8]) -> Result<(), TxnError> {
        let engine = Arc::clone(txn.engine());
        // Its locks are there since it was done.
        assert!(txn.try_lock_table(LOCKED_BY_UNDO, Mode::X)?);
        let distance = engine.cache.shared(PageId(SIGN))?.words().u64(HEADER_BYTES);
        txn.claim(256)?;
        let mut page = engine.cache.exclusive(PageId(SIGN + 1 + distance))?;
        if let Undo::Page { op, args } = Add.undo(args) {
            txn.update(&mut page, op, &args)?;
        }
        Ok(())
    }
}

pub type Result<T, E = RecoveryError> = std::result::Result<T, E>;

/// All of these operations.
pub fn registry() -> Registry {
    let mut ops = Registry::new();
    ledgerstone_testkit::counters::register(&mut ops);
    ops.register(Box::new(AddSomewhere)).unwrap();
    ops.register(Box::new(AddByPage)).unwrap();
    ops.register(Box::new(AddUnlessRefused)).unwrap();
    ops
}

fn build(disk: &Arc<dyn Disk>, found: &Analysis, next: Option<u64>) -> Result<Arc<Engine>> {
    let kit = EngineKit {
        page_bytes: PAGE_BYTES,
        frame_count: 20,
        page_count_max: 1000,
        segment_bytes: SEGMENT_BYTES,
        log_buffer_bytes: 64 << 10,
        open: Open::CREATE.direct(),
        ..EngineKit::new(ENV)
    };
    let mut ops = registry();
    ledgerstone_space::register(&mut ops).unwrap();
    let engine = kit.engine::<RecoveryError>(disk, &kit.data(disk)?, ops, |log| LogConfig {
        end: found.end,
        incarnation: found.incarnation,
        incarnations: found.incarnations.clone(),
        next_incarnation: next,
        kept_claim_count: 8,
        ..log
    })?;
    engine.register_undo(ADD_SOMEWHERE, Arc::new(SubtractWhereTheSignSays));
    Ok(engine)
}

pub fn create(disk: &Arc<dyn Disk>) -> Result<(Arc<Engine>, Arc<ControlFile>)> {
    let state = ControlState::new(ENV, PAGE_BYTES, SEGMENT_BYTES);
    let found = Analysis::of_new(FIRST_LSN, 1);
    let control = ControlFile::begin_creation(&**disk, state)?;
    let engine = build(disk, &found, None)?;
    let mut txn = engine.begin()?;
    txn.claim(256)?;
    let mut header = engine.cache.exclusive_new(PageId(0))?;
    let args = [&ENV[..], &[0; 8]].concat();
    txn.group(&mut [&mut header], &[Part { page: 0, op: OP_FILE_HEADER_FORMAT, args: &args }])?;
    drop(header);
    for no in 1..=PAGES {
        txn.claim(256)?;
        let mut page = engine.cache.exclusive_new(PageId(no))?;
        txn.update(&mut page, FORMAT, &[])?;
    }
    txn.commit(Durability::Sync)?;
    engine.cache.write_back_all()?;
    disk.sync_dir("")?;
    control.end_creation(&**disk)?;
    Ok((engine, Arc::new(control)))
}

pub fn recover(disk: &Arc<dyn Disk>) -> Result<(Arc<Engine>, Arc<ControlFile>)> {
    let (engine, control, found) = repeat_history(disk)?;
    undo(&engine, adopt(&engine, &found.losers)?, disk, &ledgerstone_log::Watch::default())?;
    checkpoint(&engine, &control, false)?;
    Ok((engine, control))
}

/// What stands after the first half of a recovery.
pub type Repeated = (Arc<Engine>, Arc<ControlFile>, Arc<Analysis>);

/// The first half of a recovery.
pub fn repeat_history(disk: &Arc<dyn Disk>) -> Result<Repeated> {
    Ok(repeat_gathered(disk, Gathered::beside(0, 2))?.0)
}

/// The same, with so much room for what the analysis gathers.
pub fn repeat_gathered(disk: &Arc<dyn Disk>, gathered: Gathered) -> Result<(Repeated, Redone)> {
    repeat_in(&mut None, disk, gathered)
}

/// The same, and leaves all that is gathered to whoever touches a page.
pub fn repeat_later(disk: &Arc<dyn Disk>) -> Result<(Repeated, Arc<Pending>)> {
    let mut pending = None;
    let (repeated, _) = repeat_or(&mut None, disk, Gathered::beside(0, 2), |engine, gathered| {
        pending = Some(Pending::put_off(engine, gathered).expect("all of it has room"));
        Gathered::of(0, 1)
    })?;
    Ok((repeated, pending.unwrap()))
}

/// The same as `repeat_gathered`. The engine is there also if redo fails.
pub fn repeat_in(
    kept: &mut Option<Arc<Engine>>,
    disk: &Arc<dyn Disk>,
    gathered: Gathered,
) -> Result<(Repeated, Redone)> {
    repeat_or(kept, disk, gathered, |_, gathered| gathered)
}

fn repeat_or(
    kept: &mut Option<Arc<Engine>>,
    disk: &Arc<dyn Disk>,
    mut gathered: Gathered,
    put_off: impl FnOnce(&Arc<Engine>, Gathered) -> Gathered,
) -> Result<(Repeated, Redone)> {
    let control = Arc::new(ControlFile::open(&**disk)?);
    let state = control.state();
    let (data, double_write) =
        (disk.open("data", Open::EXISTING.direct())?, disk.open("double_write", Open::EXISTING.direct())?);
    let scan = |from: Lsn, incarnation: u64| -> Result<LogScan> {
        Ok(LogScan::new(Arc::clone(disk), ENV, state.segment_bytes, from, incarnation)?
            .with_incarnation_max(state.incarnation_max))
    };
    let whole = scan(state.scan_lsn, state.scan_incarnation)?;
    let found = Arc::new(analyse(whole, state.redo_from(), &|_, _| None, &mut gathered)?);
    Cache::repair_torn(&*data, &*double_write, PAGE_BYTES, found.end, false)?;
    control.change(|state| state.incarnation_max += 1)?;
    let engine = build(disk, &found, Some(control.state().incarnation_max))?;
    engine.table.raise_next_xid(Xid(state.xid_floor.0.max(found.max_xid.0 + 1)));
    *kept = Some(Arc::clone(&engine));
    let gathered = put_off(&engine, gathered);
    let redone = redo(&engine, &found, gathered, &Arc::default(), scan)?;
    Ok(((engine, control, found), redone))
}

pub fn values(engine: &Engine) -> Vec<i64> {
    let mut values = Vec::new();
    for no in 1..=PAGES {
        let page = engine.cache.shared(PageId(no)).unwrap();
        values.extend((0..COUNTERS).map(|c| page.words().u64(HEADER_BYTES + 8 * c) as i64));
    }
    values
}

pub fn add(txn: &mut Txn, page: u64, counter: usize, delta: i64) -> Result<(), TxnError> {
    add_by(ADD, txn, page, counter, delta)
}

pub fn add_by(op: OpId, txn: &mut Txn, page: u64, counter: usize, delta: i64) -> Result<(), TxnError> {
    txn.claim(256)?;
    let engine = Arc::clone(txn.engine());
    let mut latched = engine.cache.exclusive(PageId(page))?;
    txn.update(&mut latched, op, &add_args(counter, delta))?;
    Ok(())
}
