//! Restart of a WAL store: the three passes of ARIES, then a checkpoint that makes the old log superfluous.
//!
//! The blocks that were open when power failed are settled first. Pages that may be unstable are copied, and these
//! blocks are emptied and erased. So a log page that could not be read never comes back.

use super::{Owner, Undo, WalConfig, WalStore};
use crate::Xid;
use crate::buffer::Buffer;
use crate::checkpoint::Checkpoints;
use crate::error::Result;
use crate::ftl::mount::{finish, mount};
use crate::ftl::spare::Kind;
use crate::hash::IntMap;
use crate::log::{LogRecord, RecordKind};
use crate::nand::{NO_PBA, Nand};

pub(super) fn open<N: Nand>(nand: N, config: WalConfig) -> Result<WalStore<N>> {
    let (mut core, mut mounted) = mount(nand, config.ftl)?;
    core.adopt(&mounted.pages);
    mounted.harden_suspects(&mut core, |meta| Some(*meta))?;
    let mut owner = Owner::default();
    for found in &mounted.pages {
        match found.meta.kind {
            Kind::Data if found.meta.lba < core.page_count() => {
                let older = core.map[found.meta.lba as usize];
                if older != NO_PBA {
                    core.kill(older);
                }
                core.set_current(found.meta.lba, found.pba);
            }
            _ => {}
        }
    }
    let records = owner.log.read(&mut core, &mounted)?;
    // Only now is it certain what was committed: a log page that could not be read is gone for good. What follows
    // writes pages that are newer than the changes which such a page might have told of.
    mounted.empty_blocks(&mut core, &mut owner)?;
    let next_xid = records.iter().map(|r| r.xid).max().unwrap_or(0) + 1;
    let checkpoints = Checkpoints::new(config.checkpoint_pages, core.reserve_pages());
    let mut store = WalStore {
        core,
        owner,
        buffer: Buffer::new(config.buffer_pages),
        txns: IntMap::default(),
        holders: IntMap::default(),
        checkpoints,
        next_xid,
    };
    let had_log = !records.is_empty();
    let losers = analyse(&records);
    store.redo(&records)?;
    for (xid, undo) in losers {
        store.roll_back(xid, undo)?;
    }
    if had_log {
        for lba in store.buffer.lbas() {
            store.write_back(lba)?;
        }
        store.checkpoint()?;
        store.checkpoints.is_over();
    }
    finish(&mut store.core, &mut store.owner)?;
    Ok(store)
}

/// What transactions without a commit have changed and not yet taken back, the youngest transaction first.
fn analyse(records: &[LogRecord]) -> Vec<(Xid, Vec<Undo>)> {
    let mut running: Vec<(Xid, Vec<Undo>)> = Vec::new();
    for record in records {
        let LogRecord { xid, lsn, lba, offset, .. } = *record;
        let at = running.iter().position(|(x, _)| *x == xid);
        match (record.kind, at) {
            (RecordKind::Begin, None) => running.push((xid, Vec::new())),
            (RecordKind::Update, Some(at)) => {
                running[at].1.push(Undo { lsn, lba, offset, before: record.before.clone() });
            }
            (RecordKind::Compensation, Some(at)) => running[at].1.retain(|undo| undo.lsn != record.other_lsn),
            (RecordKind::Commit | RecordKind::End, Some(at)) => {
                running.remove(at);
            }
            _ => {}
        }
    }
    running.reverse();
    running
}

impl<N: Nand> WalStore<N> {
    /// W4: repeats history.
    fn redo(&mut self, records: &[LogRecord]) -> Result<()> {
        let mut versions: IntMap<u32, u64> = IntMap::default();
        for record in records.iter().filter(|r| matches!(r.kind, RecordKind::Update | RecordKind::Compensation)) {
            let pba = self.core.lookup(record.lba)?;
            let version = match versions.get(&record.lba) {
                Some(&version) => version,
                None if pba == NO_PBA => 0,
                None => self.core.read_meta(pba)?.map_or(0, |meta| meta.version),
            };
            versions.insert(record.lba, version);
            if record.lsn <= version {
                continue;
            }
            self.load(record.lba)?;
            if let Some(frame) = self.buffer.get(record.lba) {
                let place = frame.data.get_mut(usize::from(record.offset)..).unwrap_or_default();
                let len = place.len().min(record.after.len());
                place[..len].copy_from_slice(&record.after[..len]);
                frame.state.rec_lsn.get_or_insert(record.lsn);
                frame.state.page_lsn = record.lsn;
            }
        }
        Ok(())
    }
}
