//! Recovery of SCC and BPCC: one scan of the spare areas (or summaries), no flag to read.
//!
//! A page whose programming was cut may come and go from one restart to the next. So recovery settles the blocks that
//! were open before it ends. It copies the pages that count, the last page of a circle first. Then it empties and
//! erases these blocks. Cut anywhere on that way, the next recovery decides anew, which is right, since nobody has read
//! yet.

use super::{Cycle, CyclicConfig, CyclicStore, Record, Tables};
use crate::error::Result;
use crate::ftl::Core;
use crate::ftl::mount::{Found, finish, mount};
use crate::ftl::outcome::Outcomes;
use crate::ftl::spare::Kind;
use crate::hash::IntMap;
use crate::nand::{NO_PBA, Nand};
use crate::{Lba, Xid};

pub(super) fn open<N: Nand>(nand: N, config: CyclicConfig) -> Result<CyclicStore<N>> {
    let (mut core, mut mounted) = mount(nand, config.ftl)?;
    core.adopt(&mounted.pages);
    core.adopt(&mounted.verdicts);
    mounted.pages.retain(|f| f.meta.kind == Kind::Data && f.meta.lba < core.page_count());
    let (mut outcomes, told) = Outcomes::read(&mut core, &mounted)?;
    let highest_xid = told.keys().copied().max().unwrap_or(0).max(mounted.highest_xid);
    // A transaction that is younger than what a restart has told of began after the end of that restart, which left
    // nothing in doubt.
    let is_told_over = highest_xid > told.keys().copied().max().unwrap_or(0);
    let told_dead: Vec<Xid> = told.iter().filter(|(_, is_committed)| !**is_committed).map(|(xid, _)| *xid).collect();
    let fates = Fates::judge(&mounted.pages, config.cycle, told);
    core.low = highest_xid + 1;
    let doubtful = fates.doubtful(&core, &mounted.pages, if is_told_over { &[] } else { &told_dead });
    mounted.harden_suspects(&mut core, |meta| fates.is_committed(meta.xid).then_some(*meta))?;
    outcomes.write(&mut core, doubtful)?;
    let mut tables = Tables {
        config,
        txns: IntMap::default(),
        holders: IntMap::default(),
        leftovers: IntMap::default(),
        of_page: IntMap::default(),
        naming: IntMap::default(),
        witnesses: IntMap::default(),
        committed: if config.cycle == Cycle::Bpcc { vec![0; core.page_count() as usize] } else { Vec::new() },
        outcomes,
        next_xid: highest_xid + 1,
    };
    core.adopt(&mounted.losers);
    for Found { pba, meta } in mounted.pages.iter().chain(&mounted.losers) {
        if meta.kind == Kind::Data && !fates.is_committed(meta.xid) {
            tables.add_leftover(Record { pba: *pba, lba: meta.lba, link: meta.link });
        }
    }
    for Found { pba, meta } in mounted.pages.iter().filter(|f| fates.is_committed(f.meta.xid)) {
        // Pages come by rising version: the last committed one stays, and what B2 needs.
        let older = core.map[meta.lba as usize];
        if older != NO_PBA && !tables.keep_as_witness(&mut core, meta.lba, older)? {
            core.kill(older);
        }
        core.set_current(meta.lba, *pba);
        if let Some(committed) = tables.committed.get_mut(meta.lba as usize) {
            *committed = meta.version;
        }
    }
    mounted.empty_blocks(&mut core, &mut tables)?;
    tables.outcomes.drop_all(&mut core);
    finish(&mut core, &mut tables)?;
    Ok(CyclicStore { core, tables })
}

/// Which transactions are committed. The others among those on flash are not.
struct Fates(IntMap<Xid, bool>);

impl Fates {
    fn is_committed(&self, xid: Xid) -> bool {
        self.0.get(&xid).copied().unwrap_or(false)
    }

    /// Y3: those that a later restart might judge otherwise, because a record of theirs is in a block that was open, or
    /// is missing. `dead` are such transactions of an earlier restart, of which nothing may be readable now.
    fn doubtful<N: Nand>(&self, core: &Core<N>, pages: &[Found], dead: &[Xid]) -> Vec<(Xid, bool)> {
        let is_in_doubt =
            |found: &&Found| !core.is_sealed(core.geometry.block_of(found.pba)) || !self.is_committed(found.meta.xid);
        let mut xids: Vec<Xid> = pages.iter().filter(is_in_doubt).map(|found| found.meta.xid).collect();
        xids.extend_from_slice(dead);
        xids.sort_unstable();
        xids.dedup();
        xids.into_iter().map(|xid| (xid, self.is_committed(xid))).collect()
    }

    /// `pages`: by logical page, then version. `told`: what an earlier restart has decided.
    fn judge(pages: &[Found], cycle: Cycle, told: IntMap<Xid, bool>) -> Self {
        let mut fates = Self(told);
        for versions in pages.chunk_by(|a, b| a.meta.lba == b.meta.lba) {
            match cycle {
                Cycle::Scc => {
                    let highest = versions[versions.len() - 1].meta.xid;
                    let is_committed = fates.0.get(&highest).copied();
                    let is_committed = is_committed.unwrap_or_else(|| scc(pages, &versions[versions.len() - 1]));
                    fates.0.insert(highest, is_committed);
                    // S2: whatever lies below the highest transaction's records was committed.
                    for found in versions.iter().filter(|f| f.meta.xid != highest) {
                        fates.0.entry(found.meta.xid).or_insert(true);
                    }
                }
                Cycle::Bpcc => {
                    for found in versions {
                        fates.0.entry(found.meta.xid).or_insert_with(|| bpcc(pages, found));
                    }
                }
            }
        }
        fates
    }
}

/// The records of a logical page.
fn versions_of(pages: &[Found], lba: Lba) -> &[Found] {
    let start = pages.partition_point(|f| f.meta.lba < lba);
    let len = pages[start..].partition_point(|f| f.meta.lba == lba);
    &pages[start..start + len]
}

/// S1: follows the circle from the highest version of a page.
fn scc(pages: &[Found], start: &Found) -> bool {
    let mut seen = vec![start.pba];
    let mut at = start;
    loop {
        let link = at.meta.link;
        let Some(highest) = versions_of(pages, link.page).last() else { return false };
        if highest.meta.xid != at.meta.xid {
            return highest.meta.version > link.number;
        }
        if highest.meta.version < link.number {
            return false;
        }
        if seen.contains(&highest.pba) {
            return true; // Closed.
        }
        seen.push(highest.pba);
        at = highest;
    }
}

/// B1: follows the circle from any record.
fn bpcc(pages: &[Found], start: &Found) -> bool {
    let is_straddled = |lba: Lba, version: u64, xid: Xid| {
        let straddles = |f: &Found| f.meta.xid != xid && f.meta.back < version && version < f.meta.version;
        versions_of(pages, lba).iter().any(straddles)
    };
    if is_straddled(start.meta.lba, start.meta.version, start.meta.xid) {
        return false;
    }
    let mut seen = vec![start.pba];
    let mut at = start;
    loop {
        let (link, xid) = (at.meta.link, at.meta.xid);
        if is_straddled(link.page, link.number, xid) {
            return false;
        }
        let versions = versions_of(pages, link.page);
        if versions.iter().any(|f| f.meta.xid != xid && f.meta.version > link.number) {
            return true; // The writer of that had seen the version committed.
        }
        // Y2: the record itself, or one that replaced it in the same transaction.
        let Some(next) = versions.iter().find(|f| f.meta.xid == xid && f.meta.version >= link.number) else {
            return false;
        };
        if seen.contains(&next.pba) {
            return true;
        }
        seen.push(next.pba);
        at = next;
    }
}
