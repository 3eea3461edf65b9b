//! Numbers that look random and are the same in each run, so that runs can be compared.

/// A generator of 64-bit numbers (Knuth's linear congruence, its upper bits mixed into the lower ones).
pub(crate) struct Random(u64);

impl Default for Random {
    fn default() -> Random {
        Random::of(0)
    }
}

impl Random {
    /// One of several that differ.
    pub(crate) fn of(no: u64) -> Random {
        Random(0x2545_F491_4F6C_DD1D_u64.wrapping_add(no))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 ^ self.0 >> 29
    }

    /// A number below `bound`, which is not 0.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        (self.next() >> 33) % bound
    }
}
