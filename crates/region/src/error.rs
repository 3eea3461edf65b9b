//! What a region refuses, and why.

/// Why a region, or memory in it, is not available. Nothing has changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegionError {
    /// The system refused the address space.
    #[error(
        "cannot reserve {bytes} bytes of address space (errno {errno}): is it a limit of the process (ulimit -v) or of its \
         container, or too large a cache?"
    )]
    MapRefused {
        /// What was asked for.
        bytes: u64,
        /// What the system said.
        errno: i32,
    },
    /// A region's file cannot be made, opened or looked at.
    #[error("cannot {doing} {path}: {}", std::io::Error::from_raw_os_error(*.errno))]
    File {
        /// The file.
        path: String,
        /// What was tried.
        doing: &'static str,
        /// What the system said.
        errno: i32,
    },
    /// The file system in memory is full.
    #[error(
        "no memory for {bytes} bytes of {path}: its file system is full (a container's /dev/shm is often 64 MiB; make it \
         larger, or take a smaller cache)"
    )]
    NoMemory {
        /// The file.
        path: String,
        /// How much was asked for.
        bytes: u64,
    },
    /// What is there cannot be joined.
    #[error("{path} is not a region that this program can join: {what}")]
    NotARegion {
        /// The file.
        path: String,
        /// Why.
        what: String,
    },
    /// A file that others could have made, or may change.
    #[error("{path} {what}: only a file of this user's that nobody else may open is taken")]
    NotOurs {
        /// The file.
        path: String,
        /// What about it.
        what: &'static str,
    },
    /// The lock file is not the one that the region was opened with.
    #[error(
        "{path} is not the lock file of those that have this open: it was deleted or replaced since, or they go by another \
         path; end all of them first"
    )]
    OtherLockFile {
        /// The file.
        path: String,
    },
    /// As many processes as can be have the region.
    #[error("{max} processes have this open, and no more can")]
    TooManyProcesses {
        /// How many there can be.
        max: u32,
    },
    /// This process was forked from the one that the region belongs to.
    #[error("this process was forked from the one that opened this")]
    Forked,
    /// The region's reservation is used up.
    #[error("region is full: {asked_bytes} bytes asked for, {left_bytes} left")]
    Full {
        /// What was asked for; `u64::MAX` if it cannot be counted.
        asked_bytes: u64,
        /// What is left.
        left_bytes: u64,
    },
    /// An alignment is a power of two up to 2 MiB.
    #[error("alignment {align_bytes} is not a power of two up to {max_bytes}")]
    BadAlignment {
        /// What was asked for.
        align_bytes: u64,
        /// The most that is kept.
        max_bytes: u64,
    },
    /// What is to lie in a region has a name of its own there.
    #[error("the region has {name} already")]
    NameTaken {
        /// The name.
        name: &'static str,
    },
    /// A name has 1 to 24 bytes, and a region so many names.
    #[error("{name:?} is too long for a name of 1 to 24 bytes, or the region has {max} names already")]
    NoName {
        /// The name.
        name: &'static str,
        /// How many names there can be.
        max: usize,
    },
    /// The program that made the region is another build, or has other settings.
    #[error("{name} is {found} in the region, and this program expects {expected}")]
    Differs {
        /// What lies there.
        name: &'static str,
        /// How it lies there.
        found: String,
        /// How it would lie if this program had made the region.
        expected: String,
    },
    /// A slot table of this size cannot be numbered.
    #[error("{asked} thread slots asked for, 1 to {max} are possible")]
    BadSlotCount {
        /// What was asked for.
        asked: u32,
        /// The most there can be.
        max: u32,
    },
    /// All thread slots are taken.
    #[error("all {count} thread slots are taken")]
    NoThreadSlot {
        /// How many there are.
        count: u32,
    },
}
