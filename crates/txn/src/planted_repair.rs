//! The parts of a repair of the engine that somebody could forget. A campaign leaves out each, and sees that it is
//! missed.

use crate::Engine;

/// A part of a repair, or of what comes after it (see `orphans.rs`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RepairPart {
    /// The log's.
    Log,
    /// The version store's.
    Versions,
    /// The version store's comes before the cache's.
    VersionsFirst,
    /// The cache's.
    Pages,
    /// Transactions of the dead are marked.
    Orphans,
    /// A record that its thread had told nobody of is found (O2).
    Newest,
    /// Latches of structures are taken over.
    Latches,
    /// What the dead had reserved in the log is taken over.
    Reserved,
    /// A transaction whose commit is in the log has committed.
    Commit,
    /// A transaction whose prepare is in the log is in doubt.
    Prepare,
    /// Open nested top actions are undone before the latches of structures are given back (O3).
    Nested,
    /// These latches are given back.
    GivenBack,
    /// What was reserved is released.
    Released,
}

#[cfg(feature = "deaths")]
impl RepairPart {
    /// All parts.
    pub const ALL: [RepairPart; 13] = [
        RepairPart::Log,
        RepairPart::Versions,
        RepairPart::VersionsFirst,
        RepairPart::Pages,
        RepairPart::Orphans,
        RepairPart::Newest,
        RepairPart::Latches,
        RepairPart::Reserved,
        RepairPart::Commit,
        RepairPart::Prepare,
        RepairPart::Nested,
        RepairPart::GivenBack,
        RepairPart::Released,
    ];
}

impl Engine {
    /// Whether the repairs of this engine leave a part out: in campaigns only.
    #[inline]
    pub(crate) fn forgets(&self, part: RepairPart) -> bool {
        #[cfg(feature = "deaths")]
        return self.forgotten.get() == Some(&part);
        #[cfg(not(feature = "deaths"))]
        {
            let _ = part;
            false
        }
    }

    /// Has the repairs of this engine leave a part out from now on.
    #[cfg(feature = "deaths")]
    pub fn forget(&self, part: RepairPart) {
        let _ = self.forgotten.set(part); // The first one stays.
    }
}
