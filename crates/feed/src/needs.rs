//! From where on a feed needs the log (C2).

use std::collections::VecDeque;

use ledgerstone_page::Lsn;

use ledgerstone_core::base::Base;

/// From where on the log is needed to go on at a position: from the first record of any transaction that was open there
/// (C2).
///
/// The feed has met the records of those that have ended since, or that wrote behind it. For the others it looks at
/// which are open. When it has come to where the log ended then, it has met all that had ended before.
pub(crate) struct Needs {
    /// Not above the first record of any transaction that was open at the last look that the feed has come to.
    pub low: Lsn,
    /// The next look: where the log ended, and the first record of the transactions that were open.
    seen: (Lsn, Lsn),
    /// Transactions that were met and ended: where they ended, and where they began.
    ended: VecDeque<(Lsn, Lsn)>,
}

/// More that have ended are not told apart.
const ENDED_MAX: usize = 4096;

impl Needs {
    /// For a feed whose log is kept from `low` on.
    pub(crate) fn new(env: &Base, low: Lsn) -> Needs {
        Needs { low, seen: look(env), ended: VecDeque::new() }
    }

    /// The feed has read up to `end`.
    pub(crate) fn reached(&mut self, env: &Base, end: Lsn) {
        if end >= self.seen.0 {
            self.low = self.seen.1;
            self.seen = look(env);
        }
    }

    /// A transaction that began at `first` has ended at `end`.
    pub(crate) fn ended(&mut self, first: Lsn, end: Lsn) {
        if self.ended.len() == ENDED_MAX {
            // As if two had been one, which needs more, not less.
            let merge = |pair: &[(Lsn, Lsn)]| (pair[pair.len() - 1].0, pair.iter().map(|(_, first)| *first).min());
            let merged = self.ended.make_contiguous().chunks(2).map(merge);
            self.ended = merged.map(|(end, first)| (end, first.unwrap_or(end))).collect();
        }
        if first != Lsn(0) {
            self.ended.push_back((end, first));
        }
    }

    /// What going on at `position` needs, while these are open.
    pub(crate) fn at(&self, position: Lsn, open: impl Iterator<Item = Lsn>) -> Lsn {
        let ended = self.ended.iter().filter(|(end, _)| *end > position).map(|(_, first)| *first);
        ended.chain(open.filter(|&first| first != Lsn(0))).fold(position.min(self.low), Lsn::min)
    }

    /// Positions below are not asked for any more.
    pub(crate) fn forget_below(&mut self, position: Lsn) {
        while self.ended.front().is_some_and(|(end, _)| *end <= position) {
            self.ended.pop_front();
        }
    }
}

/// The log's end, and the first record of the transactions that are open there.
pub(crate) fn look(env: &Base) -> (Lsn, Lsn) {
    // In this order: a transaction that begins in between is seen, or begins behind the end.
    let tail = env.engine.log.tail();
    (tail, env.engine.table.first_lsn_low().unwrap_or(tail).min(tail))
}
