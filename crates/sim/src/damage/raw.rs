//! Damage of a raw store's own bytes: its superblocks and the two slots of its table.
//!
//! A round is one life, as in the harness of files, in a raw store. Then some of those bytes are damaged.
//!
//! - Y1. If one of two copies is damaged, all that was acknowledged is there, and nothing is said but which.
//! - Y2. If both are, the opening brings all, or an error that says so. Then it has written nothing, and all is there
//!   again when the bytes are put back.
//! - Y3. What went on is sound: what is committed afterwards survives the next loss of power.
//! - Y4. In no case a panic or a hang.
//!
//! The extents have the bytes of the files, whose damage the harness of files sees to.

use std::ops::Range;

use ledgerstone_disk::{Disk, DiskFile, Open, SimDisk};
use ledgerstone_region::Random;

use super::{Life, check_typed, go_on, live, look, shape};
use crate::counters::Counters;
use crate::crash::ground::DEVICE;
use crate::faults::round::simulate;

const BLOCK: u64 = 4096;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Flip,
    Zero,
    /// The first block only.
    ZeroBlock,
    Noise,
    /// As it was earlier.
    Old,
    /// As the other copy is.
    Other,
    /// A block of something else.
    Strange,
}

/// Two copies, and where they are.
#[derive(Clone, Copy, Debug)]
struct Pair {
    is_superblock: bool,
    at: [u64; 2],
    bytes: u64,
}

impl Pair {
    fn range(&self, copy: usize) -> Range<usize> {
        self.at[copy] as usize..(self.at[copy] + self.bytes) as usize
    }
}

/// Runs the round of a seed.
///
/// # Errors
/// What the store or the engine did that it must not do.
pub fn run(seed: u64) -> Result<Counters, Vec<String>> {
    let mut random = Random::new(seed);
    let mut counters = Counters::default();
    let life = live(&mut random, true)?;
    let head = |disk: &SimDisk| -> Result<Vec<u8>, Vec<String>> {
        let file = device_of(disk)?;
        let mut first = vec![0; 4096];
        file.read_at(0, &mut first).map_err(told)?;
        let data_start = u64::from_le_bytes(first[56..64].try_into().expect("8 bytes"));
        let mut bytes = vec![0; data_start as usize];
        file.read_at(0, &mut bytes).map_err(told)?;
        Ok(bytes)
    };
    let (now, old) = (head(&life.env)?, head(&life.older[0]).ok());
    let slot_bytes = u64::from_le_bytes(now[48..56].try_into().expect("8 bytes"));
    let superblocks = Pair { is_superblock: true, at: [0, BLOCK], bytes: BLOCK };
    let slots = Pair { is_superblock: false, at: [2 * BLOCK, 2 * BLOCK + slot_bytes], bytes: slot_bytes };
    for _ in 0..12 {
        let schedule = random.number();
        let pair = if random.percent(30) { superblocks } else { slots };
        let copy = random.below(2) as usize;
        let is_both = random.percent(25);
        let mut after = now.clone();
        let copies = if is_both { vec![copy, 1 - copy] } else { vec![copy] };
        let kinds = copies.iter().map(|copy| harm(&mut after, &now, old.as_deref(), pair, *copy, &mut random));
        let kinds: Vec<Kind> = kinds.flatten().collect();
        // Two old copies are a store as it was.
        if after == now || kinds.len() < copies.len() || is_both && kinds.contains(&Kind::Old) {
            continue;
        }
        let what = format!("{:?}, copies {copies:?} of {pair:?}: {kinds:?}", life.end);
        // Bytes that nobody knows, over the first superblock: that is somebody else's device now.
        let is_strange = pair.is_superblock && copy == 0 && matches!(kinds[0], Kind::Noise | Kind::Strange);
        let damaged = life.env.snapshot();
        device_of(&damaged)?.write_at(0, &after).map_err(told)?;
        let judged = judge(&life, &damaged, &now, is_both || is_strange, schedule, &mut counters);
        judged.map_err(|lines| [vec![what], lines].concat())?;
        counters.add("rounds_of_damage", 1);
    }
    counters.add("rounds", 1);
    Ok(counters)
}

fn device_of(disk: &SimDisk) -> Result<std::sync::Arc<dyn DiskFile>, Vec<String>> {
    disk.open(DEVICE, Open::EXISTING).map_err(told)
}

fn told(error: ledgerstone_disk::DiskError) -> Vec<String> {
    vec![format!("the damage itself: {error}")]
}

fn harm(
    after: &mut [u8],
    now: &[u8],
    old: Option<&[u8]>,
    pair: Pair,
    copy: usize,
    random: &mut Random,
) -> Option<Kind> {
    let kinds =
        [Kind::Flip, Kind::Flip, Kind::Zero, Kind::ZeroBlock, Kind::Noise, Kind::Old, Kind::Other, Kind::Strange];
    let (kind, range) = (random.pick(&kinds), pair.range(copy));
    let block = range.start..range.start + BLOCK as usize;
    match kind {
        Kind::Flip => {
            // Where something is written: the rest means nothing.
            let used = if pair.is_superblock { 80 } else { 300 };
            for _ in 0..random.between(1, 3) {
                after[range.start + random.below(used) as usize] ^= 1 << random.below(8);
            }
        }
        Kind::Zero => after[range].fill(0),
        Kind::ZeroBlock => after[block].fill(0),
        Kind::Noise => after[block].iter_mut().for_each(|byte| *byte = random.number() as u8),
        Kind::Old => after[range.clone()].copy_from_slice(old?.get(range)?),
        Kind::Other => after[range].copy_from_slice(&now[pair.range(1 - copy)]),
        Kind::Strange => {
            let from = random.below(now.len() as u64 / BLOCK) as usize * BLOCK as usize;
            after[block].copy_from_slice(&now[from..from + BLOCK as usize]);
        }
    }
    Some(kind)
}

fn judge(
    life: &Life,
    damaged: &SimDisk,
    before: &[u8],
    may_refuse: bool,
    schedule: u64,
    counters: &mut Counters,
) -> Result<(), Vec<String>> {
    let bytes = |disk: &SimDisk| disk.bytes_of(DEVICE);
    let was = bytes(damaged);
    match simulate(schedule, damaged, || look(damaged, true))? {
        Ok((state, shown)) if Some(&state) == life.states.last() => {
            life.check_feed(&state, &shown.map_err(|error| vec![format!("the feed: {error}")])?)?;
            counters.add("harmless", 1);
            go_on(damaged, true, state, schedule)
        }
        Ok((state, _)) => Err(vec![format!("{} and nobody says so", shape(&state, life))]),
        Err(error) if may_refuse => {
            check_typed(&error)?;
            counters.add("detected", 1);
            if bytes(damaged) != was {
                return Err(vec![format!("refused ({error}), and written all the same")]);
            }
            device_of(damaged)?.write_at(0, before).map_err(told)?;
            match simulate(schedule, damaged, || look(damaged, true))? {
                Ok((state, _)) if Some(&state) == life.states.last() => Ok(()),
                Ok((state, _)) => Err(vec![format!("told ({error}), put back, and then {}", shape(&state, life))]),
                Err(again) => Err(vec![format!("told ({error}), put back, and still refused: {again}")]),
            }
        }
        Err(error) => Err(vec![format!("one copy is whole, and yet: {error}")]),
    }
}
