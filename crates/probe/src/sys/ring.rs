//! io_uring: reads and writes under way at the same time, from one thread.
//!
//! U1. Buffers are owned by the ring and live until it is dropped; a slot is not used again before its completion came.
//! U2. Dropping the ring closes it. Either requests under way were waited for before (`drain`), or their buffers are
//!     leaked, and the kernel holds its own reference to the pages until the requests end.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use io_uring::{IoUring, opcode, squeue, types};

use crate::error::ProbeError;
use crate::sys::aligned::Aligned;

/// A request under way, or room for one.
struct Slot {
    buffer: Aligned,
    started: Instant,
    is_busy: bool,
}

/// A ring with a buffer for each request that can be under way.
pub(crate) struct Ring {
    ring: IoUring,
    slots: Vec<Slot>,
    busy: usize,
}

/// What to do to one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Do {
    Read,
    Write,
    /// A write that is durable when it completes.
    WriteDurably,
}

/// A request that has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Done {
    pub(crate) time: Duration,
}

impl Ring {
    /// A ring for `depth` requests of at most `bytes`.
    pub(crate) fn new(depth: usize, bytes: usize) -> Result<Ring, ProbeError> {
        let entries = u32::try_from(depth.max(2).next_power_of_two()).unwrap_or(4096);
        let ring = IoUring::new(entries).map_err(|e| ProbeError::system("io_uring_setup", e))?;
        let slot = || Slot { buffer: Aligned::noise(bytes), started: Instant::now(), is_busy: false };
        Ok(Ring { ring, slots: (0..depth).map(|_| slot()).collect(), busy: 0 })
    }

    /// How many requests are under way.
    pub(crate) fn busy(&self) -> usize {
        self.busy
    }

    /// Puts one request in the queue. `submit` hands it on.
    pub(crate) fn push(&mut self, file: &File, what: Do, offset: u64, bytes: usize) -> Result<(), ProbeError> {
        let free = self.slots.iter().position(|s| !s.is_busy);
        let no = free.ok_or_else(|| ProbeError::Missing("more requests than the ring has room for".into()))?;
        let slot = &mut self.slots[no];
        let bytes = u32::try_from(bytes.min(slot.buffer.len())).unwrap_or(u32::MAX);
        let fd = types::Fd(file.as_raw_fd());
        let at = slot.buffer.as_mut_ptr();
        let entry = match what {
            Do::Read => opcode::Read::new(fd, at, bytes).offset(offset).build(),
            Do::Write => opcode::Write::new(fd, at, bytes).offset(offset).build(),
            Do::WriteDurably => opcode::Write::new(fd, at, bytes).offset(offset).rw_flags(libc::RWF_DSYNC).build(),
        };
        slot.started = Instant::now();
        slot.is_busy = true;
        self.busy += 1;
        self.push_entry(entry.user_data(no as u64))
    }

    fn push_entry(&mut self, entry: squeue::Entry) -> Result<(), ProbeError> {
        // SAFETY: U1: buffer and descriptor outlive the request: both are borrowed or owned until its completion.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        pushed.map_err(|_| ProbeError::Missing("the submission queue is full".into()))
    }

    /// Hands on what is queued and waits until at least `count` requests have ended; `ended` gets each.
    pub(crate) fn submit(&mut self, count: usize, ended: &mut dyn FnMut(Done)) -> Result<(), ProbeError> {
        loop {
            match self.ring.submit_and_wait(count) {
                Ok(_) => break,
                Err(e) if e.raw_os_error() == Some(libc::EINTR) => {}
                Err(e) => return Err(ProbeError::system("io_uring_enter", e)),
            }
        }
        let mut failed = None;
        for entry in self.ring.completion() {
            let Some(slot) = self.slots.get_mut(entry.user_data() as usize) else { continue };
            slot.is_busy = false;
            self.busy -= 1;
            if entry.result() < 0 {
                failed = Some(std::io::Error::from_raw_os_error(-entry.result()));
            } else {
                ended(Done { time: slot.started.elapsed() });
            }
        }
        failed.map_or(Ok(()), |e| Err(ProbeError::system("io_uring request", e)))
    }

    /// Waits for all that is under way.
    pub(crate) fn drain(&mut self) -> Result<(), ProbeError> {
        let mut first = Ok(());
        while self.busy > 0 {
            let before = self.busy;
            let result = self.submit(1, &mut |_| {});
            if self.busy == before {
                return result;
            }
            first = first.and(result);
        }
        first
    }

    /// A write and, linked behind it, a sync of the file's data: two entries, one call, one wait.
    pub(crate) fn write_then_sync(&mut self, file: &File, offset: u64, bytes: usize) -> Result<(), ProbeError> {
        let fd = types::Fd(file.as_raw_fd());
        let slot = &mut self.slots[0];
        let bytes = u32::try_from(bytes.min(slot.buffer.len())).unwrap_or(u32::MAX);
        let write = opcode::Write::new(fd, slot.buffer.as_mut_ptr(), bytes).offset(offset).build();
        let sync = opcode::Fsync::new(fd).flags(types::FsyncFlags::DATASYNC).build();
        // User data beyond the slots: these two are counted here.
        self.push_entry(write.flags(squeue::Flags::IO_LINK).user_data(u64::MAX))?;
        self.push_entry(sync.user_data(u64::MAX))?;
        let mut left = 2;
        let mut failed = None;
        while left > 0 {
            match self.ring.submit_and_wait(left) {
                Ok(_) => {}
                Err(e) if e.raw_os_error() == Some(libc::EINTR) => continue,
                Err(e) => return Err(ProbeError::system("io_uring_enter", e)),
            }
            for entry in self.ring.completion() {
                left -= 1;
                if entry.result() < 0 {
                    failed = Some(std::io::Error::from_raw_os_error(-entry.result()));
                }
            }
        }
        failed.map_or(Ok(()), |e| Err(ProbeError::system("io_uring request", e)))
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        if self.drain().is_err() && self.busy > 0 {
            // U2: the kernel may still write into them.
            std::mem::forget(std::mem::take(&mut self.slots));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::{Do, Ring};

    #[test]
    fn what_was_written_through_the_ring_is_in_the_file() {
        let Ok(mut ring) = Ring::new(4, 4096) else { return }; // Many containers forbid io_uring.
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(&[0; 16384]).expect("room");
        for block in 0..4 {
            ring.push(&file, Do::Write, block * 4096, 4096).expect("room in the ring");
        }
        let mut count = 0;
        while ring.busy() > 0 {
            ring.submit(1, &mut |_| count += 1).expect("writes");
        }
        ring.write_then_sync(&file, 0, 4096).expect("a write and a sync");
        assert_eq!(count, 4);
        let written = std::os::unix::fs::FileExt::read_at(&file, &mut [0; 20000], 0).expect("reads");
        assert_eq!(written, 16384);
        let mut last = [0; 8];
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut last, 12288).expect("reads");
        assert_ne!(last, [0; 8], "the ring's buffers are not zero");
    }
}
