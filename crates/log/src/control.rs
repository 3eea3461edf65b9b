//! The control file: what an environment is, and where its recovery begins.
//!
//! Two slots of 4096 bytes, written alternately, each
//! ```text
//! offset  size  field
//!      0     8  magic "LSTNCTRL"
//!      8     4  crc32c of bytes 12..4096
//!     12     4  format version, 2
//!     16    16  environment id
//!     32     8  generation: counts writes; slot = generation % 2
//!     40     4  page_bytes
//!     44     4  flags: bit 0 the environment was closed in order
//!     48     8  segment_bytes of the log
//!     56     8  checkpoint_lsn: newest checkpoint record, 0 none
//!     64     8  scan_lsn: where recovery begins to read
//!     72     8  scan_incarnation: in force at scan_lsn
//!     80     8  incarnation_max: largest ever given out
//!     88     8  xid_floor: transaction ids below it are used
//!     96     8  table_id_floor: table ids below it are used
//!    104     8  life: tells the lives of one environment apart, see [`ControlState::life`]
//!    112        zeros up to 4096
//! ```
//! T1. A write goes to the slot that does not hold the newest generation, and returns when it is durable: after a crash
//!     the newest valid slot is the last write that returned, or the one that was under way.
//! T2. Magic, checksum and format version keep their places in every later format, so that a newer file is told from a
//!     damaged one.
//! T3. After a write that failed nothing more is written: which slot is the newest is not known any more.
//! T4. The slot that was read at open is written again, as it is, before the other one: it may be a killed process's, which
//!     did not live to make it durable. Otherwise a power failure that destroys the other slot could leave one whose log is gone.

use std::sync::Arc;

use ledgerstone_disk::{Disk, DiskErrorKind, DiskFile, Open};
use ledgerstone_page::planted::{self, Bug};
use ledgerstone_page::{Lsn, Xid};

use crate::EnvironmentId;
use crate::error::ControlError;
use crate::record::{FIRST_LSN, le_u64};

/// Name of the control file in the environment's directory.
pub const CONTROL_PATH: &str = "control";
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
const TABLE_ID_FLOOR_AT: usize = XID_FLOOR_AT + 8;
const LIFE_AT: usize = TABLE_ID_FLOOR_AT + 8;
const _: () = assert!(LIFE_AT + 8 == 112);
const CLEAN: u64 = 1;

/// What a slot holds.
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
    /// Smaller table ids have been used.
    pub table_id_floor: u64,
    /// The environment was closed in order, at `checkpoint_lsn`.
    pub is_clean: bool,
    /// Random, and new when an environment is restored: the restored one goes its own way under the same
    /// environment id, and backups and archives of the one do not go on in those of the other.
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
            table_id_floor: 1,
            is_clean: false,
            life: le_u64(&environment, 0),
        }
    }

    /// The bytes of a slot.
    pub fn encode(&self, generation: u64) -> [u8; CONTROL_SLOT_BYTES] {
        let mut slot = [0; CONTROL_SLOT_BYTES];
        let mut put = |at: usize, bytes: &[u8]| slot[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &MAGIC);
        put(FORMAT_AT, &CONTROL_FORMAT.to_le_bytes());
        put(ENVIRONMENT_AT, &self.environment);
        put(GENERATION_AT, &generation.to_le_bytes());
        let flags = if self.is_clean { CLEAN } else { 0 };
        put(PAGE_BYTES_AT, &(u64::from(self.page_bytes) | flags << 32).to_le_bytes());
        put(SEGMENT_BYTES_AT, &self.segment_bytes.to_le_bytes());
        put(CHECKPOINT_LSN_AT, &self.checkpoint_lsn.0.to_le_bytes());
        put(SCAN_LSN_AT, &self.scan_lsn.0.to_le_bytes());
        put(SCAN_INCARNATION_AT, &self.scan_incarnation.to_le_bytes());
        put(INCARNATION_MAX_AT, &self.incarnation_max.to_le_bytes());
        put(XID_FLOOR_AT, &self.xid_floor.0.to_le_bytes());
        put(TABLE_ID_FLOOR_AT, &self.table_id_floor.to_le_bytes());
        put(LIFE_AT, &self.life.to_le_bytes());
        let crc = crc32c::crc32c(&slot[FORMAT_AT..]);
        slot[CRC_AT..FORMAT_AT].copy_from_slice(&crc.to_le_bytes());
        slot
    }
}

/// What the bytes of a slot are. For any bytes.
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
        let mut environment = [0; 16];
        environment.copy_from_slice(&slot[ENVIRONMENT_AT..GENERATION_AT]);
        let page_word = le_u64(slot, PAGE_BYTES_AT);
        let state = ControlState {
            environment,
            page_bytes: page_word as u32,
            segment_bytes: le_u64(slot, SEGMENT_BYTES_AT),
            checkpoint_lsn: Lsn(le_u64(slot, CHECKPOINT_LSN_AT)),
            scan_lsn: Lsn(le_u64(slot, SCAN_LSN_AT)),
            scan_incarnation: le_u64(slot, SCAN_INCARNATION_AT),
            incarnation_max: le_u64(slot, INCARNATION_MAX_AT),
            xid_floor: Xid(le_u64(slot, XID_FLOOR_AT)),
            table_id_floor: le_u64(slot, TABLE_ID_FLOOR_AT),
            is_clean: page_word >> 32 & CLEAN != 0,
            life: le_u64(slot, LIFE_AT),
        };
        ControlSlot::Valid { generation, state }
    }

    fn generation(&self) -> Option<u64> {
        match self {
            ControlSlot::Valid { generation, .. } | ControlSlot::Newer { generation, .. } => Some(*generation),
            _ => None,
        }
    }
}

/// The control file, open for writing.
pub struct ControlFile {
    /// What the next [`ControlFile::write`] makes durable.
    pub state: ControlState,
    generation: u64,
    file: Arc<dyn DiskFile>,
    path: String,
    has_failed: bool,
    /// What was read at open, until it is known to be durable (T4).
    unsettled: Option<ControlState>,
}

impl ControlFile {
    /// Makes the control file of a new environment, durably and at once: after a crash it is there whole or not at all.
    ///
    /// # Errors
    /// [`ControlError::Exists`], or what the disk says.
    pub fn create(disk: &dyn Disk, state: ControlState) -> Result<ControlFile, ControlError> {
        let path = path_for_people(disk);
        if disk.exists(CONTROL_PATH)? {
            return Err(ControlError::Exists { path });
        }
        let draft = format!("{CONTROL_PATH}.new");
        if disk.exists(&draft)? {
            disk.remove(&draft)?;
        }
        let file = disk.open(&draft, Open::CREATE_NEW)?;
        file.write_at(0, &[0; 2 * CONTROL_SLOT_BYTES])?;
        file.write_at(CONTROL_SLOT_BYTES as u64, &state.encode(1))?;
        file.sync()?;
        disk.rename(&draft, CONTROL_PATH)?;
        disk.sync_dir("")?;
        Ok(ControlFile { state, generation: 1, file, path, has_failed: false, unsettled: None })
    }

    /// Opens the control file and reads its newest slot.
    ///
    /// # Errors
    /// [`ControlError::NotAnEnvironment`], [`ControlError::NewerFormat`], [`ControlError::Corrupt`], or the disk's.
    pub fn open(disk: &dyn Disk) -> Result<ControlFile, ControlError> {
        ControlFile::open_as(disk, Open::EXISTING)
    }

    /// As [`ControlFile::open`], for an environment that cannot be written; `write` is refused by the disk.
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
        let slots = [read_slot(&*file, 0)?, read_slot(&*file, 1)?];
        let newest = if slots[0].generation() > slots[1].generation() { slots[0] } else { slots[1] };
        match newest {
            ControlSlot::Valid { generation, state } => {
                Ok(ControlFile { state, generation, file, path, has_failed: false, unsettled: Some(state) })
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

    /// Begins a new incarnation: the number after all that were given out, which is durable on return. `found` is the newest
    /// that the log knows; it knows better than a control file whose newest slot was lost.
    ///
    /// # Errors
    /// As [`ControlFile::write`].
    pub fn begin_incarnation(&mut self, found: u64) -> Result<u64, ControlError> {
        let next = self.state.incarnation_max.max(found) + 1;
        self.state.incarnation_max = next;
        self.state.is_clean = false;
        if !planted::is_on(Bug::IncarnationForgotten) {
            self.write()?;
        }
        Ok(next)
    }

    /// Makes `state` durable (T1). Waits for the device.
    ///
    /// # Errors
    /// The write failed; every later one is refused (T3).
    pub fn write(&mut self) -> Result<(), ControlError> {
        if self.has_failed {
            return Err(ControlError::Failed { path: self.path.clone() });
        }
        if let Some(read) = self.unsettled {
            self.write_slot(self.generation, &read)?;
            self.unsettled = None;
        }
        let state = self.state;
        self.write_slot(self.generation + 1, &state)?;
        self.generation += 1;
        Ok(())
    }

    fn write_slot(&mut self, generation: u64, state: &ControlState) -> Result<(), ControlError> {
        let at = generation % 2 * CONTROL_SLOT_BYTES as u64;
        let written = self.file.write_durable_at(at, &state.encode(generation));
        self.has_failed |= written.is_err();
        Ok(written?)
    }

    /// How often it was written.
    pub fn generation(&self) -> u64 {
        self.generation
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
