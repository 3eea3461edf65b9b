//! What the victim does, and what the living do.

use ledgerstone_region::{Random, sync};

use super::{Open, Own};

/// What the victim does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Work {
    /// Commits that stage their images.
    Small,
    /// Commits whose images are kept for a snapshot.
    Kept,
    /// A snapshot is opened while images are staged.
    Staged,
    /// Images in many chunks.
    Full,
    /// Rollbacks.
    Abort,
    /// More than the store has room for.
    Spilled,
    /// Two snapshots of a thread at once, and the numbers of slots in use.
    Snapshots,
    /// So little memory that chunks are taken from other slots.
    Taken,
    /// Lists of some hundred chunks, kept and given back.
    Long,
}

/// All but the last, which takes too many steps to die at each.
pub(super) const ALL: [Work; 8] =
    [Work::Small, Work::Kept, Work::Staged, Work::Full, Work::Abort, Work::Spilled, Work::Snapshots, Work::Taken];

impl Work {
    pub(super) fn store_bytes(self) -> u64 {
        match self {
            Work::Spilled => 8 << 10,
            Work::Taken => 4 << 10,
            Work::Long => 512 << 10,
            _ => 32 << 10,
        }
    }
}

impl Own {
    pub(super) fn work(&self, work: Work) {
        let write = |open: &mut Open, keys: u8, bytes: usize| {
            (0..keys).for_each(|key| self.write(open, key, Some(vec![key ^ bytes as u8; bytes])));
        };
        match work {
            Work::Small => {
                for round in 0..3 {
                    let mut open = self.begin(0);
                    write(&mut open, 2, 20 + round);
                    write(&mut open, 1, 30);
                    self.commit(open);
                }
            }
            Work::Kept => {
                let view = self.open();
                for round in 0..2 {
                    let mut open = self.begin(0);
                    write(&mut open, 3, 20 + round);
                    self.commit(open);
                }
                drop(view);
            }
            Work::Staged => {
                for round in 0..2 {
                    let mut open = self.begin(0);
                    write(&mut open, 2, 20 + round);
                    let view = self.open();
                    write(&mut open, 3, 10);
                    self.commit(open);
                    drop(view);
                }
            }
            Work::Full => {
                for round in 0..2 {
                    let mut open = self.begin(0);
                    write(&mut open, 8, 120 + round);
                    write(&mut open, 8, 130);
                    self.commit(open);
                }
            }
            Work::Abort => {
                let view = self.open();
                let mut open = self.begin(0);
                write(&mut open, 3, 20);
                self.abort(open);
                drop(view);
                let mut open = self.begin(0);
                write(&mut open, 8, 100);
                self.abort(open);
            }
            Work::Spilled => {
                for round in 0..4 {
                    let view = (round > 1).then(|| self.open());
                    let mut open = self.begin(0);
                    // The first puts there what the others have no room for.
                    write(&mut open, 4, 900 + round);
                    if round == 2 {
                        self.abort(open)
                    } else {
                        self.commit(open)
                    }
                    drop(view);
                    self.store.lower_used();
                }
            }
            Work::Snapshots => {
                for _ in 0..3 {
                    let (first, second) = (self.open(), self.open());
                    drop(first);
                    self.store.lower_used();
                    sync::yield_point("one is open");
                    drop(second);
                    self.store.lower_used();
                }
            }
            Work::Long => {
                for round in 0..4 {
                    let view = (round < 2).then(|| self.open());
                    let mut open = self.begin(0);
                    write(&mut open, 8, 8000 + round);
                    write(&mut open, 8, 9000 + round);
                    if round == 3 {
                        self.abort(open);
                    } else {
                        self.commit(open);
                    }
                    drop(view);
                }
            }
            Work::Taken => {
                for round in 0..2 {
                    for slot in [3, 4, 5] {
                        let mut open = self.begin(slot);
                        write(&mut open, 1, 20 + round);
                        self.commit(open);
                    }
                    let mut open = self.begin(0);
                    write(&mut open, 8, 100 + round);
                    self.commit(open);
                }
            }
        }
    }

    /// Some transactions of a slot, and snapshots between them.
    pub(super) fn live(&self, slot: u32, seed: u64) {
        let mut dice = Random::new(seed ^ u64::from(slot) << 32);
        for _ in 0..6 {
            let mut open = self.begin(slot);
            for _ in 0..1 + dice.below(5) {
                let bytes = dice.below(120) as usize;
                let value = (dice.below(5) > 0).then(|| vec![dice.below(256) as u8; bytes]);
                self.write(&mut open, dice.below(8) as u8, value);
            }
            if dice.below(4) == 0 {
                self.abort(open)
            } else {
                self.commit(open)
            }
            if dice.below(3) == 0 {
                self.read_all();
            }
        }
    }
}
