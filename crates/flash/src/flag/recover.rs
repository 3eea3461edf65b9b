//! Recovery of CFC and AFC (3.1.3, 3.2), corrected.
//!
//! CFC reads flags from the head of a chain down to the first TRUE, AFC those of all pages: that is the whole
//! difference in their recovery times.

use super::chain::{Chain, Own};
use super::{FlagConfig, FlagStore, Mode, Tables};
use crate::Xid;
use crate::error::{FlashError, Result};
use crate::ftl::Core;
use crate::ftl::mount::{Found, Mounted, finish, mount, rewrite};
use crate::ftl::spare::{Flag, Kind, Meta, link_to};
use crate::hash::IntMap;
use crate::nand::{NO_PBA, Nand};

/// What the flags of one transaction say.
#[derive(Clone, Copy, Debug, Default)]
struct Signs {
    has_true: bool,
    has_false: bool,
}

pub(super) fn open<N: Nand>(nand: N, config: FlagConfig) -> Result<FlagStore<N>> {
    let (mut core, mut mounted) = mount(nand, config.ftl)?;
    let mut tables = Tables {
        mode: config.mode,
        rules: config.rules,
        by_block: config.by_block,
        txns: IntMap::default(),
        running: Vec::new(),
        holders: IntMap::default(),
        verdicts: Vec::new(),
        pins: Vec::new(),
        doomed: Vec::new(),
        next_xid: 1,
        just_copied: Vec::new(),
    };
    let condemned = if config.rules.verdicts_are_kept { read_verdicts(&mut core, &mounted)? } else { Vec::new() };
    tables.next_xid = mounted.highest_xid.max(condemned.iter().copied().max().unwrap_or(0)) + 1;
    let low = mounted.low;
    core.low = low.min(tables.next_xid);
    core.holds_seals = config.rules.unstable_is_hardened;

    core.adopt(&mounted.pages);
    core.adopt(&mounted.verdicts);
    let (signs, false_heads) = read_signs(&mut core, &mut mounted, &config)?;
    let is_committed = |xid: Xid| {
        let Signs { has_true, has_false } = signs.get(&xid).copied().unwrap_or_default();
        let by_flags = match config.mode {
            Mode::Cfc => has_true,
            Mode::Afc => !has_false,
        };
        by_flags && condemned.binary_search(&xid).is_err()
    };
    for verdict in &mounted.verdicts {
        core.revive(verdict.pba);
        tables.verdicts.push(verdict.pba);
    }
    let mut doomed: Vec<Xid> = Vec::new();
    if config.rules.verdicts_are_kept {
        // Before anything else is written: what follows may hide pages that told aborted from committed.
        let all = mounted.pages.iter().chain(&mounted.losers).filter(|f| f.meta.kind == Kind::Data).map(|f| f.meta.xid);
        // What was condemned earlier is repeated, even if nothing of it can be read now: until M3 is done it may be
        // later.
        doomed = all.filter(|x| *x >= low).chain(condemned.iter().copied()).collect();
        let suspects = mounted.pages.iter().filter(|f| mounted.suspects.contains(&f.pba));
        doomed.extend(suspects.filter(|f| f.meta.kind == Kind::Data).map(|f| f.meta.xid));
        doomed.sort_unstable();
        doomed.dedup();
        doomed.retain(|x| !is_committed(*x));
        write_verdict(&mut core, &mut tables, &doomed)?;
    }
    if config.rules.unstable_is_hardened {
        let flag = if config.mode == Mode::Cfc { Flag::Set } else { Flag::Cleared };
        mounted.harden_suspects(&mut core, |meta| is_committed(meta.xid).then_some(Meta { flag, back: 0, ..*meta }))?;
    }
    let mut recent: Vec<Found> = Vec::new();
    for found in &mounted.pages {
        let Found { pba, meta } = *found;
        if meta.kind != Kind::Data || meta.lba >= core.page_count() {
            continue;
        }
        if is_committed(meta.xid) {
            // Pages come by rising version: the last committed one stays.
            let older = core.map[meta.lba as usize];
            if older != NO_PBA {
                core.kill(older);
            }
            core.set_current(meta.lba, pba);
            // Only a flag that was programmed later than its page can have been cut.
            if meta.xid >= low && meta.back == 1 {
                recent.push(*found);
            }
        } else {
            let txn = tables.txns.entry(meta.xid).or_default();
            txn.chain.0.push(Own::new(pba, &meta));
        }
    }
    // Older copies of what was aborted are told apart from committed pages as long as they are there.
    let losers: Vec<Found> = mounted.losers.iter().copied().filter(|f| !is_committed(f.meta.xid)).collect();
    core.adopt(&losers);
    for Found { pba, meta } in losers.iter().filter(|f| f.meta.kind == Kind::Data) {
        tables.txns.entry(meta.xid).or_default().chain.0.push(Own::new(*pba, meta));
    }
    if config.mode == Mode::Afc {
        // A copy that counts outlives the ones that do not: their flags may read differently next time.
        for loser in mounted.losers.iter().filter(|f| is_committed(f.meta.xid)) {
            let key = (loser.meta.lba, loser.meta.version);
            if let Ok(at) = mounted.pages.binary_search_by_key(&key, |f| (f.meta.lba, f.meta.version)) {
                core.adopt(&[*loser]);
                tables.pin(&mut core, loser.pba, mounted.pages[at].pba);
            }
        }
    }
    finish_aborted(&mut core, &mut tables)?;
    // A commit that was cut between two sub-chains is completed (C1): each gets its TRUE before any is collected.
    for Found { pba, meta } in &false_heads {
        if meta.xid >= low && is_committed(meta.xid) && core.is_link_good(link_to(*pba, meta.sequence)) {
            tables.write_true(&mut core, *pba)?;
        }
    }
    // Before anything is erased: until then all is there for the other decision, should this one be cut short.
    if config.rules.unstable_is_hardened {
        for found in recent {
            harden_flag(&mut core, &mut tables, &found)?;
        }
    }
    mounted.empty_blocks(&mut core, &mut tables)?;
    // Not before: of what M3 erases some is in no table.
    tables.doomed = doomed;
    tables.drop_verdicts(&mut core);
    core.low = tables.next_xid;
    finish(&mut core, &mut tables)?;
    Ok(FlagStore { core, tables })
}

/// Chains of aborted transactions in the order of their writes, with flags as far as they matter.
fn finish_aborted<N: Nand>(core: &mut Core<N>, tables: &mut Tables) -> Result<()> {
    for txn in tables.txns.values_mut() {
        txn.chain.0.sort_unstable_by_key(|own| own.sequence);
        if tables.mode == Mode::Afc {
            let Chain(pages) = &mut txn.chain;
            for own in pages {
                own.flag = core.flag(own.pba)?.unwrap_or(Flag::Unset);
            }
        }
    }
    Ok(())
}

/// Reads the flags that decide. Pages that turn out unreadable are dropped from `mounted`.
fn read_signs<N: Nand>(
    core: &mut Core<N>,
    mounted: &mut Mounted,
    config: &FlagConfig,
) -> Result<(IntMap<Xid, Signs>, Vec<Found>)> {
    let mut signs: IntMap<Xid, Signs> = IntMap::default();
    let mut gone: Vec<u32> = Vec::new();
    let mut false_heads = Vec::new();
    let pages = &mounted.pages;
    match config.mode {
        Mode::Afc => {
            for found in pages.iter().filter(|f| f.meta.kind == Kind::Data) {
                match core.flag(found.pba)? {
                    Some(flag) => add_sign(&mut signs, found.meta.xid, flag == Flag::Cleared),
                    None => gone.push(found.pba),
                }
            }
        }
        Mode::Cfc => {
            let links = Links::new(core, pages, config.rules.links_are_numbered);
            let mut references = links.references(pages);
            let mut heads: Vec<usize> = (0..pages.len()).filter(|&i| references[i] == 0).collect();
            while let Some(index) = heads.pop() {
                let found = &pages[index];
                if found.meta.kind != Kind::Data {
                    continue;
                }
                match core.flag(found.pba)? {
                    Some(Flag::Set) => {
                        add_sign(&mut signs, found.meta.xid, true);
                        continue;
                    }
                    Some(_) => {
                        add_sign(&mut signs, found.meta.xid, false);
                        false_heads.push(*found);
                    }
                    None => gone.push(found.pba),
                }
                if let Some(target) = links.target(pages, index) {
                    references[target] -= 1;
                    if references[target] == 0 {
                        heads.push(target);
                    }
                }
            }
        }
    }
    if !gone.is_empty() {
        gone.sort_unstable();
        mounted.pages.retain(|f| gone.binary_search(&f.pba).is_err());
    }
    Ok((signs, false_heads))
}

fn add_sign(signs: &mut IntMap<Xid, Signs>, xid: Xid, is_true: bool) {
    let entry = signs.entry(xid).or_default();
    entry.has_true |= is_true;
    entry.has_false |= !is_true;
}

/// From a link to the page that it names.
struct Links {
    by_pba: Vec<u32>,
    are_numbered: bool,
}

impl Links {
    fn new<N: Nand>(core: &Core<N>, pages: &[Found], are_numbered: bool) -> Self {
        let mut by_pba = vec![u32::MAX; core.geometry.pages() as usize];
        for (index, found) in pages.iter().enumerate() {
            by_pba[found.pba as usize] = index as u32;
        }
        Self { by_pba, are_numbered }
    }

    /// Rule 1: the target must have the number that the link names.
    fn target(&self, pages: &[Found], index: usize) -> Option<usize> {
        let Meta { kind, link, .. } = pages[index].meta;
        if kind != Kind::Data || !link.is_some() {
            return None;
        }
        let target = *self.by_pba.get(link.page as usize)? as usize;
        let found = pages.get(target)?;
        (!self.are_numbered || found.meta.sequence == link.number).then_some(target)
    }

    fn references(&self, pages: &[Found]) -> Vec<u16> {
        let mut counts = vec![0u16; pages.len()];
        for index in 0..pages.len() {
            if let Some(target) = self.target(pages, index) {
                counts[target] += 1;
            }
        }
        counts
    }
}

/// Rule 4: the flag that committed a transaction may have been cut short. Pages that hold such a flag are written
/// again, with the flag from the start.
fn harden_flag<N: Nand>(core: &mut Core<N>, tables: &mut Tables, found: &Found) -> Result<()> {
    if !core.is_link_good(link_to(found.pba, found.meta.sequence)) {
        return Ok(()); // Collected meanwhile; its copy has a stable flag.
    }
    let Some(flag) = core.flag(found.pba)? else { return Ok(()) };
    let holds = match tables.mode {
        Mode::Cfc => flag == Flag::Set,
        Mode::Afc => flag == Flag::Cleared,
    };
    if holds && let Some(copy) = rewrite(core, found.pba, &Meta { flag, back: 0, ..found.meta })? {
        if core.map[found.meta.lba as usize] == found.pba {
            core.map[found.meta.lba as usize] = copy.pba;
        }
        for (_, winner) in tables.pins.iter_mut().filter(|(_, winner)| *winner == found.pba) {
            *winner = copy.pba;
        }
        if tables.mode == Mode::Afc {
            tables.pin(core, found.pba, copy.pba);
        }
    }
    Ok(())
}

fn read_verdicts<N: Nand>(core: &mut Core<N>, mounted: &Mounted) -> Result<Vec<Xid>> {
    let mut xids = Vec::new();
    let mut data = vec![0; core.page_bytes()];
    for verdict in &mounted.verdicts {
        match core.read(verdict.pba, &mut data) {
            Ok(_) => {}
            Err(FlashError::Unreadable(_)) => continue,
            Err(error) => return Err(error),
        }
        let mut words = data.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]));
        let count = words.next().unwrap_or(0) as usize;
        if count >= data.len() / 4 {
            return Err(FlashError::Corrupt(format!("verdict page {} claims {count} transactions", verdict.pba)));
        }
        xids.extend(words.take(count));
    }
    xids.sort_unstable();
    xids.dedup();
    Ok(xids)
}

/// V1. Older verdicts are repeated in the new one, then dropped.
fn write_verdict<N: Nand>(core: &mut Core<N>, tables: &mut Tables, doomed: &[Xid]) -> Result<()> {
    let old = std::mem::take(&mut tables.verdicts);
    for chunk in doomed.chunks(core.page_bytes() / 4 - 1) {
        let mut data = vec![0xff; core.page_bytes()];
        data[..4].copy_from_slice(&(chunk.len() as u32).to_le_bytes());
        for (xid, out) in chunk.iter().zip(data[4..].chunks_exact_mut(4)) {
            out.copy_from_slice(&xid.to_le_bytes());
        }
        let mut meta = Meta { kind: Kind::Verdict, ..Meta::data(u32::MAX, 0, 0) };
        let pba = core.write(None, &mut meta, &data, &[])?;
        tables.verdicts.push(pba);
    }
    for pba in old {
        core.kill(pba);
    }
    Ok(())
}
