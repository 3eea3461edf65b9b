//! An archive of the log, to read. `archive/mod.rs` of the crate `ledgerstone-media` writes it, and has the rules.
//!
//! ```text
//! owner                      whose archive it is: 40 bytes
//! log/SSSSSSSSSSSSSSSS.seg   the bytes of a segment, as in the environment; the newest may end early
//! log/SSSSSSSSSSSSSSSS.sum   what proves it, written after it: 88 bytes
//!
//! owner:
//! offset  size  field
//!      0     8  "LSTNAOWN"
//!      8     4  format, 2
//!     12     4  crc32c of bytes 16..40
//!     16    16  environment id
//!     32     8  life, as in the control file
//!
//! sum:
//! offset  size  field
//!      0     8  "LSTNARCH"
//!      8     4  format, 2
//!     12     4  crc32c of bytes 16..88
//!     16    16  environment id
//!     32     8  life
//!     40     8  LSN where the segment begins
//!     48     8  bytes of a segment
//!     56     8  LSN where its log ends: the segment's end, or the end of the log when it was copied
//!     64     8  incarnation in force there
//!     72     8  LSN of the record that goes on behind that end; the end itself if none does
//!     80     4  crc32c of the bytes up to the end
//!     84     4  zero
//! ```

mod directory;
mod files;
mod format;

pub use directory::{ArchiveDirectory, ArchivedSegment};
pub use files::{OWNER, PIECE_BYTES, files_of, path, problem_of, read_owner, read_sum, sums};
pub use format::{Sum, encode_owner};
