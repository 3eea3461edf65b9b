//! Which datagrams of a session have come before. A repeated datagram has no effect, whether the network repeats it or
//! somebody who recorded it. It acknowledges nothing, moves no site to another address, and keeps no dead site alive.

/// Datagrams that may overtake one before it is taken for an old one, which is then lost and sent again.
const WINDOW: u64 = 2048;

/// The nonces that were seen, as far back as it matters.
pub(crate) struct Seen {
    /// Above all that were seen.
    end: u64,
    /// Bit n mod the window: n was seen.
    bits: [u64; (WINDOW / 64) as usize],
}

impl Seen {
    pub(crate) fn new() -> Seen {
        Seen { end: 0, bits: [0; (WINDOW / 64) as usize] }
    }

    /// Notes a nonce; `false` if it was seen, or is too old to tell. To be asked of what is proved to be the sender's
    /// only.
    pub(crate) fn take(&mut self, nonce: u64) -> bool {
        if nonce >= self.end {
            if nonce - self.end >= WINDOW {
                self.bits.fill(0);
            } else {
                (self.end..=nonce).for_each(|no| self.bits[place(no).0] &= !place(no).1);
            }
            self.end = nonce.saturating_add(1);
        } else if self.end - nonce > WINDOW {
            return false;
        }
        let (word, bit) = place(nonce);
        let is_new = self.bits[word] & bit == 0;
        self.bits[word] |= bit;
        is_new
    }
}

fn place(nonce: u64) -> (usize, u64) {
    let no = nonce % WINDOW;
    ((no / 64) as usize, 1 << (no % 64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_nonce_is_taken_once_in_whatever_order_they_come() {
        let (mut seen, mut model) = (Seen::new(), BTreeSet::new());
        let mut random = ledgerstone_region::Random::new(7);
        let mut at = 0;
        for round in 0..20_000 {
            at += random.below(2);
            let far = if round % 1000 == 999 { 3 * WINDOW } else { 0 };
            at += far;
            let nonce = (at + random.below(64)).saturating_sub(random.below(2 * WINDOW));
            let is_young = model.last().is_none_or(|last| nonce + WINDOW > *last);
            assert_eq!(seen.take(nonce), is_young && model.insert(nonce), "{nonce}");
        }
        assert!(seen.take(u64::MAX - 1) && !seen.take(u64::MAX - 1) && !seen.take(0));
    }
}
