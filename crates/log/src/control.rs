//! The control file: what an environment is, and where its recovery begins.
//!
//! Two slots of 4096 bytes, each
//! ```text
//! offset  size  field
//!      0     8  magic "LSTNCTRL"
//!      8     4  crc32c of bytes 12..4096
//!     12     4  format version, 2
//!     16    16  environment id
//!     32     8  generation: counts writes of slots; slot = generation % 2
//!     40     4  page_bytes
//!     44     4  flags: bit 0 the environment was closed in order; bit 1 the file of the positions of named feeds is
//!               there; bit 2 no locks kept transactions apart
//!     48     8  segment_bytes of the log
//!     56     8  checkpoint_lsn: newest checkpoint record, 0 none
//!     64     8  scan_lsn: where recovery begins to read
//!     72     8  scan_incarnation: in force at scan_lsn
//!     80     8  incarnation_max: largest ever given out
//!     88     8  xid_floor: transaction ids below it are used
//!     96     8  mark_lsn: page 0 of the data file has this LSN or a later one; 0 says nothing
//!    104     8  life: tells the lives of one environment apart, see [`ControlState::life`]
//!    112     8  page_count: the data file has so many pages at least; 0 says nothing
//!    120     8  newest_segment: the log's segments are there up to the one that begins here; 0 says nothing
//!    128     8  durable_lsn: the log was durable up to here at least; 0 says nothing
//!    136     8  redo_lsn: where recovery begins to repeat changes, not below scan_lsn; 0 says nothing
//!    144        zeros up to 4096
//! ```
//! T1. A change goes to both slots, first to the one that does not hold the newest generation, and returns when both
//!     are durable. So both slots say the same, except while a change is under way. After a crash, the newest valid
//!     slot has the last change that returned, or the one that was under way. A damaged slot takes nothing away.
//! T2. Magic, checksum and format version keep their places in every later format, so that a newer file is told from a
//!     damaged one.
//! T3. After a write that failed nothing more is written: which slot is the newest is not known any more.
//! T4. The slot that was read at open is written again, as it is, before the other one. A process that was killed may
//!     have written it without making it durable. Otherwise a power failure that destroys the other slot could leave
//!     one whose log is gone.
//! T5. Log that a slot still names is given up only after both name a later checkpoint.
//! T6. A record goes to a segment only after `newest_segment` names it. So segments that vanish after a crash are
//!     missed.
//! T7. A creation begins with the file under the name [`CREATION_PATH`] and ends by giving it its own. Under that name,
//!     and only then, the files beside it are a creation that was cut short.
//! T8. Outside a region, what is known of the file is this process's own, and nobody else may change it. In a region,
//!     all processes that share it know the same (`control_words.rs`).

use ledgerstone_region::atomic::AtomicU32;
use std::sync::{Arc, OnceLock};

use ledgerstone_disk::{Disk, DiskErrorKind, DiskFile, Open};
use ledgerstone_page::planted::{self, Bug};
use ledgerstone_page::{Lsn, Xid};
use ledgerstone_region::{AnotherDied, Dead, Mutex, Region, Repair, SlotTable};

use crate::EnvironmentId;
use crate::control_words::{Held, Inside, SharedControl};
use crate::error::ControlError;
use crate::gate;
use crate::record::{FIRST_LSN, le_u64};

/// Name of the control file in the environment's directory.
pub const CONTROL_PATH: &str = "control";
/// Its name while the environment is being made (T7).
pub const CREATION_PATH: &str = "control.new";
/// Its name while it is written to stand in for one that is lost or was never there.
const DRAFT_PATH: &str = "control.tmp";
/// The format that this version writes, and the newest that it reads.
pub const CONTROL_FORMAT: u32 = 2;
/// Bytes of one slot.
pub const CONTROL_SLOT_BYTES: usize = 4096;

const MAGIC: [u8; 8] = *b"LSTNCTRL";
const CRC_AT: usize = 8;
const FORMAT_AT: usize = CRC_AT + 4;
const ENVIRONMENT_AT: usize = FORMAT_AT + 4;
const GENERATION_AT: usize = ENVIRONMENT_AT + 16;
const PAGE_BYTES_AT: usize = GENERATION_AT + 8;
const SEGMENT_BYTES_AT: usize = PAGE_BYTES_AT + 8;
const CHECKPOINT_LSN_AT: usize = SEGMENT_BYTES_AT + 8;
const SCAN_LSN_AT: usize = CHECKPOINT_LSN_AT + 8;
const SCAN_INCARNATION_AT: usize = SCAN_LSN_AT + 8;
const INCARNATION_MAX_AT: usize = SCAN_INCARNATION_AT + 8;
const XID_FLOOR_AT: usize = INCARNATION_MAX_AT + 8;
const MARK_LSN_AT: usize = XID_FLOOR_AT + 8;
const LIFE_AT: usize = MARK_LSN_AT + 8;
const PAGE_COUNT_AT: usize = LIFE_AT + 8;
const NEWEST_SEGMENT_AT: usize = PAGE_COUNT_AT + 8;
const DURABLE_LSN_AT: usize = NEWEST_SEGMENT_AT + 8;
const REDO_LSN_AT: usize = DURABLE_LSN_AT + 8;
/// The fields of a slot whose place is not fixed for all formats (T2), all of them words.
pub(crate) const FIELDS_FROM: usize = ENVIRONMENT_AT;
pub(crate) const FIELDS_END: usize = REDO_LSN_AT + 8;
const _: () = assert!(FIELDS_END == 144);
const CLEAN: u64 = 1;
const FEEDS: u64 = 2;
const UNLOCKED: u64 = 4;

/// The content of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ControlState {
    /// Tells this environment from every other.
    pub environment: EnvironmentId,
    /// Bytes of a page.
    pub page_bytes: u32,
    /// Bytes of a segment of the log.
    pub segment_bytes: u64,
    /// The newest checkpoint record, or `Lsn(0)`.
    pub checkpoint_lsn: Lsn,
    /// Where recovery begins to read the log.
    pub scan_lsn: Lsn,
    /// The incarnation in force there.
    pub scan_incarnation: u64,
    /// The largest incarnation ever given out.
    pub incarnation_max: u64,
    /// Smaller transaction ids have been used.
    pub xid_floor: Xid,
    /// Page 0 of the data file has this LSN or a later one. `Lsn(0)` says nothing.
    pub mark_lsn: Lsn,
    /// The data file has at least so many pages, unless a later record of the log cuts it. 0 says nothing.
    pub page_count: u64,
    /// The log's segments exist up to the one that begins here (T6). `Lsn(0)` says nothing.
    pub newest_segment: Lsn,
    /// The log was durable at least up to here. `Lsn(0)` says nothing.
    pub durable_lsn: Lsn,
    /// The changes of all records below are in the data file, so recovery repeats history from here on. `Lsn(0)` says
    /// nothing.
    pub redo_lsn: Lsn,
    /// The environment was closed in order, at `checkpoint_lsn`.
    pub is_clean: bool,
    /// Named feeds have had positions, so that there is a file of them.
    pub has_feeds: bool,
    /// No locks have kept transactions apart, so that two of them may have changed one record and be open.
    pub is_unlocked: bool,
    /// Random, and new when an environment is restored. The restored environment keeps the environment id but has its
    /// own history. Backups and archives of the one do not go on in those of the other.
    pub life: u64,
}

impl ControlState {
    /// That of a new environment: an empty log, the first incarnation.
    pub fn new(environment: EnvironmentId, page_bytes: u32, segment_bytes: u64) -> ControlState {
        ControlState {
            environment,
            page_bytes,
            segment_bytes,
            checkpoint_lsn: Lsn(0),
            scan_lsn: FIRST_LSN,
            scan_incarnation: 1,
            incarnation_max: 1,
            xid_floor: Xid(1),
            mark_lsn: Lsn(0),
            page_count: 0,
            newest_segment: Lsn(0),
            durable_lsn: Lsn(0),
            redo_lsn: Lsn(0),
            is_clean: false,
            has_feeds: false,
            is_unlocked: false,
            life: le_u64(&environment, 0),
        }
    }

    /// The same for a copy of the environment of another moment, or with another end of the log: says nothing of its
    /// files.
    #[must_use]
    pub fn of_a_copy(self) -> ControlState {
        let nothing = Lsn(0);
        let marks = ControlState { mark_lsn: nothing, newest_segment: nothing, durable_lsn: nothing, ..self };
        // The log of the copy may be of a life that had no locks.
        let flags = ControlState { is_clean: false, has_feeds: false, is_unlocked: true, ..marks };
        ControlState { page_count: 0, redo_lsn: nothing, ..flags }
    }

    /// Where recovery begins to repeat changes.
    #[must_use]
    pub fn redo_from(&self) -> Lsn {
        self.redo_lsn.max(self.scan_lsn)
    }

    /// The generation and the content of a slot with these fields, whose format is the one that this version writes.
    pub(crate) fn from_fields(fields: &[u8; FIELDS_END - FIELDS_FROM]) -> (u64, ControlState) {
        let word = |at: usize| le_u64(fields, at - FIELDS_FROM);
        let mut environment = [0; 16];
        environment.copy_from_slice(&fields[..GENERATION_AT - FIELDS_FROM]);
        let page_word = word(PAGE_BYTES_AT);
        let state = ControlState {
            environment,
            page_bytes: page_word as u32,
            segment_bytes: word(SEGMENT_BYTES_AT),
            checkpoint_lsn: Lsn(word(CHECKPOINT_LSN_AT)),
            scan_lsn: Lsn(word(SCAN_LSN_AT)),
            scan_incarnation: word(SCAN_INCARNATION_AT),
            incarnation_max: word(INCARNATION_MAX_AT),
            xid_floor: Xid(word(XID_FLOOR_AT)),
            mark_lsn: Lsn(word(MARK_LSN_AT)),
            page_count: word(PAGE_COUNT_AT),
            newest_segment: Lsn(word(NEWEST_SEGMENT_AT)),
            durable_lsn: Lsn(word(DURABLE_LSN_AT)),
            redo_lsn: Lsn(word(REDO_LSN_AT)),
            is_clean: page_word >> 32 & CLEAN != 0,
            has_feeds: page_word >> 32 & FEEDS != 0,
            is_unlocked: page_word >> 32 & UNLOCKED != 0,
            life: word(LIFE_AT),
        };
        (word(GENERATION_AT), state)
    }

    /// The bytes of a slot.
    pub fn encode(&self, generation: u64) -> [u8; CONTROL_SLOT_BYTES] {
        let mut slot = [0; CONTROL_SLOT_BYTES];
        let mut put = |at: usize, bytes: &[u8]| slot[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &MAGIC);
        put(FORMAT_AT, &CONTROL_FORMAT.to_le_bytes());
        put(ENVIRONMENT_AT, &self.environment);
        put(GENERATION_AT, &generation.to_le_bytes());
        let flags = [(self.is_clean, CLEAN), (self.has_feeds, FEEDS), (self.is_unlocked, UNLOCKED)];
        let flags = flags.iter().filter(|(is_set, _)| *is_set).fold(0, |flags, (_, bit)| flags | bit);
        put(PAGE_BYTES_AT, &(u64::from(self.page_bytes) | flags << 32).to_le_bytes());
        put(SEGMENT_BYTES_AT, &self.segment_bytes.to_le_bytes());
        put(CHECKPOINT_LSN_AT, &self.checkpoint_lsn.0.to_le_bytes());
        put(SCAN_LSN_AT, &self.scan_lsn.0.to_le_bytes());
        put(SCAN_INCARNATION_AT, &self.scan_incarnation.to_le_bytes());
        put(INCARNATION_MAX_AT, &self.incarnation_max.to_le_bytes());
        put(XID_FLOOR_AT, &self.xid_floor.0.to_le_bytes());
        put(MARK_LSN_AT, &self.mark_lsn.0.to_le_bytes());
        put(PAGE_COUNT_AT, &self.page_count.to_le_bytes());
        put(NEWEST_SEGMENT_AT, &self.newest_segment.0.to_le_bytes());
        put(DURABLE_LSN_AT, &self.durable_lsn.0.to_le_bytes());
        put(REDO_LSN_AT, &self.redo_lsn.0.to_le_bytes());
        put(LIFE_AT, &self.life.to_le_bytes());
        let crc = crc32c::crc32c(&slot[FORMAT_AT..]);
        slot[CRC_AT..FORMAT_AT].copy_from_slice(&crc.to_le_bytes());
        slot
    }
}

/// What the bytes of a slot are. They may be any bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ControlSlot {
    /// Whole, of a format that is known.
    Valid {
        /// Counts writes.
        generation: u64,
        /// What it says.
        state: ControlState,
    },
    /// Whole, of a format that is not known.
    Newer {
        /// Counts writes.
        generation: u64,
        /// Its format.
        format: u32,
    },
    /// A slot that is damaged.
    Damaged {
        /// Stored checksum.
        found: u32,
        /// Computed checksum.
        expected: u32,
    },
    /// Not a slot of a control file, or one that was never written.
    Foreign,
}

impl ControlSlot {
    /// Reads the bytes of a slot.
    pub fn decode(bytes: &[u8]) -> ControlSlot {
        let Some(slot) = bytes.get(..CONTROL_SLOT_BYTES).filter(|slot| slot[..8] == MAGIC) else {
            return ControlSlot::Foreign;
        };
        let head = le_u64(slot, CRC_AT);
        let (found, expected, format) = (head as u32, crc32c::crc32c(&slot[FORMAT_AT..]), (head >> 32) as u32);
        if found != expected {
            return ControlSlot::Damaged { found, expected };
        }
        let generation = le_u64(slot, GENERATION_AT);
        if format > CONTROL_FORMAT {
            return ControlSlot::Newer { generation, format };
        }
        let mut fields = [0; FIELDS_END - FIELDS_FROM];
        fields.copy_from_slice(&slot[FIELDS_FROM..FIELDS_END]);
        if format < 2 {
            // What a slot of format 1 has there means nothing.
            let since_2 = [MARK_LSN_AT, PAGE_COUNT_AT, NEWEST_SEGMENT_AT, DURABLE_LSN_AT, REDO_LSN_AT];
            since_2.iter().for_each(|at| fields[at - FIELDS_FROM..][..8].fill(0));
        }
        let (_, state) = ControlState::from_fields(&fields);
        ControlSlot::Valid { generation, state }
    }

    fn generation(&self) -> Option<u64> {
        match self {
            ControlSlot::Valid { generation, .. } | ControlSlot::Newer { generation, .. } => Some(*generation),
            _ => None,
        }
    }
}

/// The control file, open. The log and the code that takes checkpoints share it.
pub struct ControlFile {
    /// What this process knows, as long as the file is not shared.
    own: Own,
    shared: OnceLock<SharedControl>,
    file: Arc<dyn DiskFile>,
    path: String,
    damaged_slot: Option<u64>,
}

struct Own {
    /// One changes at a time. Closed across writes, which wait for the device.
    gate: AtomicU32,
    /// Held for a look only.
    held: Mutex<Held>,
}

/// The right to change the file.
enum Change<'c> {
    Own { own: &'c Own, _passage: gate::Passage<'c> },
    Shared(Inside<'c>),
}

impl Change<'_> {
    fn begin(&self) {
        if let Change::Shared(inside) = self {
            inside.begin();
        }
    }

    fn end(&self, held: Held) {
        match self {
            Change::Own { own, .. } => *own.held.lock() = held,
            Change::Shared(inside) => inside.end(held),
        }
    }

    fn fail(&self) {
        match self {
            Change::Own { own, .. } => own.held.lock().has_failed = true,
            Change::Shared(inside) => inside.fail(),
        }
    }
}

impl Repair for ControlFile {
    fn repair(&self, dead: &Dead<'_>) -> Result<(), AnotherDied> {
        self.shared.get().map_or(Ok(()), |shared| shared.repair(dead))
    }
}

impl ControlFile {
    /// Begins to make an environment: the file under the name [`CREATION_PATH`], durably, before anything else (T7).
    ///
    /// # Errors
    /// [`ControlError::Exists`], or what the disk says.
    pub fn begin_creation(disk: &dyn Disk, state: ControlState) -> Result<ControlFile, ControlError> {
        ControlFile::refuse_second(disk)?;
        ControlFile::draft(disk, state, CREATION_PATH)
    }

    /// Ends the creation. On return the environment is complete and durable.
    ///
    /// # Errors
    /// A failure of the disk. The environment is then complete or not.
    pub fn end_creation(&self, disk: &dyn Disk) -> Result<(), ControlError> {
        disk.rename(CREATION_PATH, CONTROL_PATH)?;
        Ok(disk.sync_dir("")?)
    }

    /// Makes the control file of an environment that is there but for it, durably and at once: after a crash it is
    /// there whole or not at all.
    ///
    /// # Errors
    /// [`ControlError::Exists`], or what the disk says.
    pub fn create(disk: &dyn Disk, state: ControlState) -> Result<ControlFile, ControlError> {
        ControlFile::refuse_second(disk)?;
        ControlFile::replace(disk, state)
    }

    /// As [`ControlFile::create`], replacing a control file that cannot be used.
    ///
    /// # Errors
    /// A failure of the disk. Either the old file or the new one is then there.
    pub fn replace(disk: &dyn Disk, state: ControlState) -> Result<ControlFile, ControlError> {
        let control = ControlFile::draft(disk, state, DRAFT_PATH)?;
        disk.rename(DRAFT_PATH, CONTROL_PATH)?;
        disk.sync_dir("")?;
        Ok(control)
    }

    fn refuse_second(disk: &dyn Disk) -> Result<(), ControlError> {
        if disk.exists(CONTROL_PATH)? {
            return Err(ControlError::Exists { path: path_for_people(disk) });
        }
        Ok(())
    }

    fn draft(disk: &dyn Disk, state: ControlState, name: &str) -> Result<ControlFile, ControlError> {
        if disk.exists(name)? {
            disk.remove(name)?;
        }
        let file = disk.open(name, Open::CREATE_NEW)?;
        file.write_at(0, &[state.encode(2), state.encode(1)].concat())?;
        file.sync()?;
        disk.sync_dir("")?;
        let held = Held { state, generation: 2, has_failed: false, is_unsettled: false };
        Ok(ControlFile::with(disk, file, held, None))
    }

    fn with(disk: &dyn Disk, file: Arc<dyn DiskFile>, held: Held, damaged_slot: Option<u64>) -> ControlFile {
        let path = path_for_people(disk);
        let own = Own { gate: AtomicU32::new(0), held: Mutex::new(held) };
        ControlFile { own, shared: OnceLock::new(), file, path, damaged_slot }
    }

    /// Puts what is known of the file into a region that was made here, for all processes that join it. The threads of
    /// `slots` change the file from now on.
    ///
    /// # Errors
    /// [`ControlError::Region`]: as [`Region::place`].
    pub fn share(&self, region: &Region, slots: &Arc<SlotTable>) -> Result<(), ControlError> {
        let _inside = gate::enter(&self.own.gate);
        let shared = SharedControl::place(region, slots)?;
        shared.fill(*self.own.held.lock());
        // A second time would have found the name taken.
        let _ = self.shared.set(shared);
        Ok(())
    }

    /// The control file of an environment that another process has opened and shares in this region.
    ///
    /// # Errors
    /// [`ControlError::Region`]: as [`Region::place`]. [`ControlError::NotAnEnvironment`], or the disk's.
    pub fn join(disk: &dyn Disk, region: &Region, slots: &Arc<SlotTable>) -> Result<ControlFile, ControlError> {
        let path = path_for_people(disk);
        let file = match disk.open(CONTROL_PATH, Open::EXISTING) {
            Err(error) if error.is_not_found() => return Err(ControlError::NotAnEnvironment { path }),
            other => other?,
        };
        let shared = SharedControl::place(region, slots)?;
        let control = ControlFile::with(disk, file, shared.look(), None);
        let _ = control.shared.set(shared); // It was empty.
        Ok(control)
    }

    /// Opens the control file and reads its newest slot, which the first change makes durable (T4).
    ///
    /// # Errors
    /// [`ControlError::NotAnEnvironment`], [`ControlError::NewerFormat`], [`ControlError::Corrupt`], or the disk's.
    pub fn open(disk: &dyn Disk) -> Result<ControlFile, ControlError> {
        ControlFile::open_as(disk, Open::EXISTING)
    }

    /// As [`ControlFile::open`], for an environment that cannot be written. The disk refuses each change.
    ///
    /// # Errors
    /// As [`ControlFile::open`].
    pub fn open_read_only(disk: &dyn Disk) -> Result<ControlFile, ControlError> {
        ControlFile::open_as(disk, Open::READ)
    }

    fn open_as(disk: &dyn Disk, how: Open) -> Result<ControlFile, ControlError> {
        let path = path_for_people(disk);
        let file = match disk.open(CONTROL_PATH, how) {
            Err(error) if error.is_not_found() => return Err(ControlError::NotAnEnvironment { path }),
            other => other?,
        };
        let (held, damaged_slot) = ControlFile::read(&*file, path)?;
        Ok(ControlFile::with(disk, file, held, damaged_slot))
    }

    /// What the newest slot says, and which slot cannot be read.
    fn read(file: &dyn DiskFile, path: String) -> Result<(Held, Option<u64>), ControlError> {
        let slots = [read_slot(file, 0)?, read_slot(file, 1)?];
        let newest = if slots[0].generation() > slots[1].generation() { slots[0] } else { slots[1] };
        match newest {
            ControlSlot::Valid { generation, state } => {
                let damaged_slot = slots.iter().position(|slot| slot.generation().is_none()).map(|no| no as u64);
                Ok((Held { state, generation, has_failed: false, is_unsettled: true }, damaged_slot))
            }
            ControlSlot::Newer { format, .. } => {
                Err(ControlError::NewerFormat { path, found: format, supported: CONTROL_FORMAT })
            }
            // Neither is whole.
            _ => {
                let sums = slots.map(|slot| match slot {
                    ControlSlot::Damaged { found, expected } => (found, expected),
                    _ => (0, 0),
                });
                if slots.iter().all(|slot| *slot == ControlSlot::Foreign) {
                    return Err(ControlError::NotAnEnvironment { path });
                }
                Err(ControlError::Corrupt { path, found: sums.map(|s| s.0), expected: sums.map(|s| s.1) })
            }
        }
    }

    /// Begins a new incarnation, and returns when its number is durable. The number is above all that were used before.
    /// `found` is the newest that the log knows. It is newer than what the control file says if the newest slot of that
    /// file was lost. `newest_segment` is what is left of a log that was closed in order.
    ///
    /// # Errors
    /// As [`ControlFile::change`].
    pub fn begin_incarnation(&self, found: u64, newest_segment: Option<Lsn>) -> Result<u64, ControlError> {
        let next = self.state().incarnation_max.max(found) + 1;
        let change = |state: &mut ControlState| {
            state.incarnation_max = next;
            state.newest_segment = newest_segment.unwrap_or(state.newest_segment);
            state.is_clean = false;
        };
        if planted::is_on(Bug::IncarnationForgotten) {
            change(&mut self.own.held.lock().state); // The file is not shared yet.
        } else {
            self.change(change)?;
        }
        Ok(next)
    }

    /// Its content.
    pub fn state(&self) -> ControlState {
        self.held().state
    }

    fn held(&self) -> Held {
        match self.shared.get() {
            Some(shared) => shared.look(),
            None => *self.own.held.lock(),
        }
    }

    /// Waits for other changes. Says what is known of the file, after a death what is in it (K3 in `control_words.rs`).
    fn enter(&self) -> Result<(Change<'_>, Held), ControlError> {
        let Some(shared) = self.shared.get() else {
            let passage = gate::enter(&self.own.gate);
            // It may have been shared meanwhile.
            return if self.shared.get().is_some() {
                drop(passage);
                self.enter()
            } else {
                let held = *self.own.held.lock();
                Ok((Change::Own { own: &self.own, _passage: passage }, held))
            };
        };
        let inside = shared.enter()?;
        let known = shared.look();
        if !inside.has_begun() || known.has_failed {
            return Ok((Change::Shared(inside), known));
        }
        let (found, _) = ControlFile::read(&*self.file, self.path.clone())?;
        let is_ours = found.state.environment == known.state.environment && found.state.life == known.state.life;
        // The change that was under way has written one slot, both, or none.
        if !is_ours || !(known.generation..=known.generation + 2).contains(&found.generation) {
            return Err(ControlError::Failed { path: self.path.clone() });
        }
        inside.end(found);
        Ok((Change::Shared(inside), found))
    }

    /// The slot that could not be read when the file was opened: damaged, or being written when the power failed. The
    /// next change makes it whole (T1).
    pub fn damaged_slot(&self) -> Option<u64> {
        self.damaged_slot
    }

    /// The slot that cannot be read now, if any. Waits for other changes of the file.
    ///
    /// # Errors
    /// A failure of the disk.
    pub fn look_for_damage(&self) -> Result<Option<u64>, ControlError> {
        let (_inside, _) = self.enter()?;
        for no in 0..2 {
            if read_slot(&*self.file, no)?.generation().is_none() {
                return Ok(Some(no));
            }
        }
        Ok(None)
    }

    /// True if the file has not been changed from elsewhere since it was opened here.
    ///
    /// # Errors
    /// A failure of the disk.
    pub fn is_as_we_left_it(&self) -> Result<bool, ControlError> {
        let (_inside, held) = self.enter()?;
        for no in 0..2 {
            let slot = read_slot(&*self.file, no)?;
            if slot.generation().is_some_and(|there| there > held.generation)
                || matches!(slot, ControlSlot::Valid { generation, state } if generation == held.generation && state != held.state)
            {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Changes the content, in both slots, durably (T1). Waits for the device, and for other changes.
    ///
    /// # Errors
    /// A write failed. Every later change is then refused (T3).
    pub fn change(&self, change: impl FnOnce(&mut ControlState)) -> Result<(), ControlError> {
        let (inside, mut now) = self.enter()?;
        if now.has_failed {
            return Err(ControlError::Failed { path: self.path.clone() });
        }
        let read = now.is_unsettled.then_some((now.generation, now.state));
        change(&mut now.state);
        let (first, second) = (now.generation + 1, now.generation + 2);
        inside.begin();
        for (generation, state) in read.into_iter().chain([(first, now.state), (second, now.state)]) {
            let at = generation % 2 * CONTROL_SLOT_BYTES as u64;
            if let Err(error) = self.file.write_durable_at(at, &state.encode(generation)) {
                inside.fail();
                return Err(error.into());
            }
        }
        inside.end(Held { generation: second, is_unsettled: false, ..now });
        Ok(())
    }

    /// How many slots were written in its life.
    pub fn generation(&self) -> u64 {
        self.held().generation
    }
}

fn read_slot(file: &dyn DiskFile, no: u64) -> Result<ControlSlot, ControlError> {
    let mut bytes = [0; CONTROL_SLOT_BYTES];
    match file.read_at(no * CONTROL_SLOT_BYTES as u64, &mut bytes) {
        Err(error) if error.kind == DiskErrorKind::ShortRead => Ok(ControlSlot::Foreign),
        Err(error) => Err(error.into()),
        Ok(()) => Ok(ControlSlot::decode(&bytes)),
    }
}

fn path_for_people(disk: &dyn Disk) -> String {
    format!("{}/{CONTROL_PATH}", disk.describe())
}
