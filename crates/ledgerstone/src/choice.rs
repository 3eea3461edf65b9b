//! What a program chooses among, beside isolation levels: who has the environment beside it, what is locked, which page
//! leaves the cache, what the log says.

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

/// Which processes have an environment open at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Sharing {
    /// This one alone.
    #[default]
    Private,
    /// All that share it, and this one. The first makes it ready, and the last closes it.
    Shared,
    /// As it is found: those that share it and this one, or this one alone if there are none.
    AsFound,
}
