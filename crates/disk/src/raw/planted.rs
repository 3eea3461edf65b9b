//! Bugs planted on purpose in the raw store, to prove that the crash harness sees them. Compiled only with the feature
//! `planted`.

/// A bug that the crash harness must find. One is on at a time, in the whole process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum RawBug {
    /// The table is written before what it names is durable (W2).
    TableUnsynced = 1,
    /// A slot counts as durable once it is written (W1).
    SlotUnsynced = 2,
    /// A file that has become longer is synced without the table (W1).
    LengthUnsynced = 3,
    /// A directory is synced without the table.
    NamesUnsynced = 4,
}

#[cfg(feature = "planted")]
mod chosen {
    use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

    use super::RawBug;

    static BUG: AtomicU8 = AtomicU8::new(0);

    impl RawBug {
        /// Plants a bug in the whole process, or none.
        pub fn plant(bug: Option<RawBug>) {
            BUG.store(bug.map_or(0, |bug| bug as u8), Relaxed);
        }

        pub(in crate::raw) fn is_on(self) -> bool {
            BUG.load(Relaxed) == self as u8
        }
    }
}

#[cfg(not(feature = "planted"))]
impl RawBug {
    #[inline]
    pub(super) const fn is_on(self) -> bool {
        false
    }
}
