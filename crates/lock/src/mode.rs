//! Lock modes: which get along, and which mode stands for two.
//!
//! | mode | says |
//! | --- | --- |
//! | `IS` | reads some parts, each under a lock of its own |
//! | `IX` | reads and writes some parts, each under a lock of its own |
//! | `S` | reads the whole |
//! | `SIX` | reads the whole and writes some parts |
//! | `U` | reads the whole, and will probably write it |
//! | `X` | reads and writes the whole |
//!
//! M1. Who may come in beside whom (row asks, column holds):
//!
//! ```text
//!        IS   IX   S   SIX   U    X
//!  IS    yes  yes  yes yes   .    .
//!  IX    yes  yes  .    .    .    .
//!  S     yes  .    yes  .    .    .
//!  SIX   yes  .    .    .    .    .
//!  U     yes  .    yes  .    .    .
//!  X     .    .    .    .    .    .
//! ```
//!
//! M2. `U` is the classic asymmetric update lock: asked for, it acts as `S`; held, it acts as `X` towards newcomers.
//!     So an updater comes in beside readers, and no new reader comes in beside an updater. The upgrade to `X` waits
//!     only for readers that are already there, and two updaters never deadlock on the upgrade. `IS` does not come in
//!     beside `U` for the same reason.
//! M3. The supremum of two modes is the weakest one that allows and excludes all that either does. `U` with anything
//!     that writes is `X`.
//!
//! The tests derive both tables from what each mode says, for every pair.

use std::fmt;

/// A lock mode. The variants are in the order of the tables, not of strength: see [`Mode::covers`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Mode {
    /// Intention to read parts.
    IS = 1,
    /// Intention to write parts.
    IX = 2,
    /// Shared.
    S = 3,
    /// Shared, with the intention to write parts.
    SIX = 4,
    /// Update: shared now, exclusive soon (M2).
    U = 5,
    /// Exclusive.
    X = 6,
}

use Mode::{IS, IX, S, SIX, U, X};

/// Which held modes each requested mode tolerates (M1); entry 0 is unused.
const TOLERATES: [ModeSet; 7] = [
    ModeSet(0),
    ModeSet::of(&[IS, IX, S, SIX]),
    ModeSet::of(&[IS, IX]),
    ModeSet::of(&[IS, S]),
    ModeSet::of(&[IS]),
    ModeSet::of(&[IS, S]),
    ModeSet::of(&[]),
];

/// M3, in the order of [`Mode::ALL`].
const SUPREMUM: [[Mode; 6]; 6] = [
    [IS, IX, S, SIX, U, X],
    [IX, IX, SIX, SIX, X, X],
    [S, SIX, S, SIX, U, X],
    [SIX, SIX, SIX, SIX, X, X],
    [U, X, U, X, U, X],
    [X, X, X, X, X, X],
];

impl Mode {
    /// Every mode, in the order of the tables.
    pub const ALL: [Mode; 6] = [IS, IX, S, SIX, U, X];

    /// True if a request for `self` may be granted while another owner holds `held` (M1). The relation is not symmetric
    /// (M2).
    #[inline]
    #[must_use]
    pub const fn is_compatible_with(self, held: Mode) -> bool {
        TOLERATES[self as usize].0 & ModeSet::only(held).0 != 0
    }

    /// The weakest mode that covers both (M3).
    #[inline]
    #[must_use]
    pub const fn supremum(self, other: Mode) -> Mode {
        SUPREMUM[self as usize - 1][other as usize - 1]
    }

    /// Whether a holder of `self` needs nothing more to do what `other` allows.
    #[inline]
    #[must_use]
    pub const fn covers(self, other: Mode) -> bool {
        self.supremum(other) as u8 == self as u8
    }

    /// True if a holder may have changed what the lock protects, so that the next owner depends on its commit.
    #[inline]
    #[must_use]
    pub const fn may_write(self) -> bool {
        matches!(self, IX | SIX | U | X)
    }

    /// Whether a lock on a whole table in this mode keeps out whatever locks of mode `part` on its parts would keep
    /// out.
    #[inline]
    #[must_use]
    pub const fn stands_for(self, part: Mode) -> bool {
        match self {
            X => true,
            S | SIX | U => matches!(part, IS | S),
            IS | IX => false,
        }
    }

    /// True if this is a bare intention (`IS`, `IX`). Such locks on tables are all compatible, and so need no queue
    /// while no owner asks for more.
    #[inline]
    #[must_use]
    pub const fn is_intention(self) -> bool {
        matches!(self, IS | IX)
    }

    /// The mode with this number, if there is one. 0 is "none" in a node.
    #[inline]
    pub(crate) const fn from_number(number: u32) -> Option<Mode> {
        match number {
            1 => Some(IS),
            2 => Some(IX),
            3 => Some(S),
            4 => Some(SIX),
            5 => Some(U),
            6 => Some(X),
            _ => None,
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            IS => "IS",
            IX => "IX",
            S => "S",
            SIX => "SIX",
            U => "U",
            X => "X",
        })
    }
}

/// A set of modes, one bit each: what a scan of a queue brings home.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ModeSet(u8);

impl ModeSet {
    /// Nobody.
    pub(crate) const EMPTY: ModeSet = ModeSet(0);

    const fn only(mode: Mode) -> ModeSet {
        ModeSet(1 << mode as u8)
    }

    const fn of(modes: &[Mode]) -> ModeSet {
        let mut set = 0;
        let mut i = 0;
        while i < modes.len() {
            set |= ModeSet::only(modes[i]).0;
            i += 1;
        }
        ModeSet(set)
    }

    /// Adds the mode of this number; number 0 ("none") adds nothing that a test could see.
    #[inline]
    pub(crate) fn add_number(&mut self, number: u32) {
        self.0 |= (1_u8 << (number & 7)) & !1;
    }

    #[inline]
    pub(crate) fn add(&mut self, mode: Mode) {
        self.0 |= ModeSet::only(mode).0;
    }

    #[inline]
    pub(crate) fn union(self, other: ModeSet) -> ModeSet {
        ModeSet(self.0 | other.0)
    }

    /// Whether a request for `mode` may be granted beside all of these.
    #[inline]
    pub(crate) fn admits(self, mode: Mode) -> bool {
        self.0 & !TOLERATES[mode as usize].0 == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a mode says, as rights over a whole and its parts.
    #[derive(Clone, Copy, PartialEq, Eq)]
    struct Rights {
        reads_parts: bool,
        writes_parts: bool,
        reads_whole: bool,
        /// Keeps newcomers out because a write of the whole is to come.
        keeps_out: bool,
        writes_whole: bool,
    }

    fn rights(mode: Mode) -> Rights {
        let none = Rights {
            reads_parts: true,
            writes_parts: false,
            reads_whole: false,
            keeps_out: false,
            writes_whole: false,
        };
        match mode {
            IS => none,
            IX => Rights { writes_parts: true, ..none },
            S => Rights { reads_whole: true, ..none },
            SIX => Rights { reads_whole: true, writes_parts: true, ..none },
            U => Rights { reads_whole: true, keeps_out: true, ..none },
            X => Rights { reads_whole: true, writes_parts: true, keeps_out: true, writes_whole: true, ..none },
        }
    }

    fn is_within(a: Rights, b: Rights) -> bool {
        (!a.reads_parts || b.reads_parts)
            && (!a.writes_parts || b.writes_parts)
            && (!a.reads_whole || b.reads_whole)
            && (!a.keeps_out || b.keeps_out)
            && (!a.writes_whole || b.writes_whole)
    }

    /// Two conflict if one, without a lock on the part, reads what the other may write. Parts against parts are settled
    /// by the locks on the parts. An owner that keeps newcomers out conflicts with every newcomer.
    fn conflicts(requested: Rights, held: Rights) -> bool {
        let touches = |r: Rights| r.reads_parts || r.writes_parts || r.reads_whole || r.writes_whole;
        let writes = |r: Rights| r.writes_parts || r.writes_whole;
        held.keeps_out
            || (requested.writes_whole && touches(held))
            || (held.writes_whole && touches(requested))
            || (requested.reads_whole && writes(held))
            || (held.reads_whole && writes(requested))
    }

    #[test]
    fn compatibility_follows_from_what_the_modes_say() {
        for requested in Mode::ALL {
            for held in Mode::ALL {
                assert_eq!(
                    requested.is_compatible_with(held),
                    !conflicts(rights(requested), rights(held)),
                    "{requested} beside {held}"
                );
                let mut set = ModeSet::EMPTY;
                set.add(held);
                assert_eq!(set.admits(requested), requested.is_compatible_with(held));
            }
            assert!(ModeSet::EMPTY.admits(requested));
        }
    }

    #[test]
    fn only_u_is_asymmetric() {
        for a in Mode::ALL {
            for b in Mode::ALL {
                let same = a.is_compatible_with(b) == b.is_compatible_with(a);
                assert_eq!(same, !((a == U && matches!(b, IS | S)) || (b == U && matches!(a, IS | S))), "{a} {b}");
            }
        }
    }

    #[test]
    fn the_supremum_is_the_weakest_mode_that_covers_both() {
        for a in Mode::ALL {
            for b in Mode::ALL {
                let above = Mode::ALL
                    .into_iter()
                    .filter(|&m| is_within(rights(a), rights(m)) && is_within(rights(b), rights(m)))
                    .collect::<Vec<_>>();
                let least = above
                    .iter()
                    .copied()
                    .filter(|&m| above.iter().all(|&other| is_within(rights(m), rights(other))))
                    .collect::<Vec<_>>();
                assert_eq!(least, vec![a.supremum(b)], "{a} {b}");
                assert_eq!(a.covers(b), is_within(rights(b), rights(a)));
            }
        }
    }

    #[test]
    fn a_stronger_mode_tolerates_no_more() {
        for a in Mode::ALL {
            for b in Mode::ALL.into_iter().filter(|&b| a.covers(b)) {
                for other in Mode::ALL {
                    assert!(!a.is_compatible_with(other) || b.is_compatible_with(other), "{a} {b} {other}");
                    assert!(!other.is_compatible_with(a) || other.is_compatible_with(b), "{a} {b} {other}");
                }
            }
        }
    }

    #[test]
    fn numbers_name_modes() {
        for mode in Mode::ALL {
            assert_eq!(Mode::from_number(mode as u32), Some(mode));
        }
        assert_eq!(Mode::from_number(0), None);
        assert_eq!(Mode::from_number(7), None);
    }
}
