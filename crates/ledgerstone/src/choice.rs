//! What a program chooses among: isolation levels, what is locked, which page leaves the cache, what the log says.

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

/// What is locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Locking {
    /// Keys and the gaps between them, with intentions on their tables and escalation to them.
    #[default]
    Hierarchical,
    /// Leaves of trees instead of keys and gaps: fewer locks, less concurrency.
    Pages,
    /// Nothing that the program uses. For one transaction at a time, or for programs that keep their transactions apart
    /// by design. If two transactions change one record at the same time and one of them is rolled back, the
    /// environment may fail.
    None,
}

/// Which page leaves the cache first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Replacement {
    /// Second chance: cheap, nearly as good as LRU.
    #[default]
    Clock,
    /// Least recently used, by the age of the last sweep that found the page in use.
    Lru,
}

/// What a change of a record puts into the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LogValues {
    /// The bytes that differ, and of a deleted record nothing: the least that recovery needs.
    #[default]
    Changed,
    /// The old and the new value whole, for programs that follow changes.
    Whole,
}
