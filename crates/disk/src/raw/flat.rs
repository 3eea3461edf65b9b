//! [`Flat`]: one flat extent of bytes, which is all that a raw store stands on.

use std::any::Any;
use std::sync::Arc;

use crate::aligned::AlignedBuf;
use crate::disk::DiskFile;
use crate::error::DiskError;
use crate::panics::caught;

/// Zeros are written in pieces of this size.
const ZERO_BYTES: u64 = 64 << 10;

/// What keeps others out while it lives.
pub type Claim = Box<dyn Any + Send + Sync>;

/// A fixed number of bytes at offsets. The promises are those of [`DiskFile`] (D1, D4, D6), without names and lengths.
pub trait Flat: Send + Sync {
    /// Fills `buf` from `offset`.
    ///
    /// # Errors
    /// A failure of the device.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DiskError>;

    /// Writes all of `bytes`. They are durable after the next [`Flat::sync`].
    ///
    /// # Errors
    /// A failure of the device.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DiskError>;

    /// Writes all of `bytes`. They are durable on return.
    ///
    /// # Errors
    /// A failure of the device.
    fn write_durable_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DiskError>;

    /// Waits until all that was written is durable, and all that reads find from now on.
    ///
    /// # Errors
    /// A failure of the device. Earlier writes may be lost then.
    fn sync(&self) -> Result<(), DiskError>;

    /// How many bytes there are.
    ///
    /// # Errors
    /// A failure of the device.
    fn len(&self) -> Result<u64, DiskError>;

    /// Whether there are no bytes.
    ///
    /// # Errors
    /// As [`Flat::len`].
    fn is_empty(&self) -> Result<bool, DiskError> {
        Ok(self.len()? == 0)
    }

    /// Has bytes read as zero. Durable as a write is.
    ///
    /// # Errors
    /// A failure of the device.
    fn zero(&self, offset: u64, len: u64) -> Result<(), DiskError> {
        write_zeros(self, offset, len)
    }

    /// Keeps all others out until the result is dropped. `None` if nobody else can be there.
    ///
    /// # Errors
    /// `Locked` or `InUse` at once when somebody is there.
    fn claim(&self) -> Result<Option<Claim>, DiskError> {
        Ok(None)
    }

    /// Where it is, for messages.
    fn name(&self) -> &str;
}

pub(super) fn write_zeros(flat: &(impl Flat + ?Sized), offset: u64, len: u64) -> Result<(), DiskError> {
    let zeros = AlignedBuf::new(len.min(ZERO_BYTES) as usize);
    let mut done = 0;
    while done < len {
        let count = (len - done).min(ZERO_BYTES);
        flat.write_at(offset + done, &zeros[..count as usize])?;
        done += count;
    }
    Ok(())
}

/// The bytes of a file of any disk: for tests, and for crashes that are simulated. A panic of that disk is an error, so
/// that the raw store notes it as one (W4 in `shared.rs`).
pub struct FlatFile(pub Arc<dyn DiskFile>);

impl Flat for FlatFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DiskError> {
        caught(self.name(), "read", || self.0.read_at(offset, buf))
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        caught(self.name(), "write", || self.0.write_at(offset, bytes))
    }

    fn write_durable_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        caught(self.name(), "write", || self.0.write_durable_at(offset, bytes))
    }

    fn sync(&self) -> Result<(), DiskError> {
        caught(self.name(), "sync", || self.0.sync())
    }

    fn len(&self) -> Result<u64, DiskError> {
        caught(self.name(), "length", || self.0.len())
    }

    fn name(&self) -> &str {
        self.0.name()
    }
}
