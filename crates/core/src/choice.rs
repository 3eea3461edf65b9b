//! Isolation levels.

/// What a transaction sees of other transactions. `docs/isolation.md` shows which anomalies each level allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Hash)]
pub enum Isolation {
    /// Pages as they are, committed or not. Never waits to read.
    ReadUncommitted,
    /// Each call sees what was committed when it began. A range is one call. Reads never wait.
    ReadCommitted,
    /// All calls see what was committed when the transaction began, and the transaction's own changes. Reads never
    /// wait. If two transactions change one record at the same time, the first to commit wins. The other gets
    /// [`Error::SnapshotConflict`](crate::Error::SnapshotConflict).
    Snapshot,
    /// As if each transaction ran alone.
    #[default]
    Serializable,
}

impl Isolation {
    /// All of them, the weakest first.
    pub const ALL: [Isolation; 4] =
        [Isolation::ReadUncommitted, Isolation::ReadCommitted, Isolation::Snapshot, Isolation::Serializable];

    /// Its name, as in `read committed`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Isolation::ReadUncommitted => "read uncommitted",
            Isolation::ReadCommitted => "read committed",
            Isolation::Snapshot => "snapshot",
            Isolation::Serializable => "serializable",
        }
    }
}

impl std::fmt::Display for Isolation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
