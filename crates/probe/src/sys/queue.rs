//! Message queues: POSIX, by descriptor, and System V, by number. Both are removed with their value.

use std::ffi::CString;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::error::ProbeError;

fn last(call: &str) -> ProbeError {
    ProbeError::system(call, std::io::Error::last_os_error())
}

/// A POSIX queue without a name: it is taken away as soon as the queue is open.
#[derive(Debug)]
pub(crate) struct Posix {
    queue: OwnedFd,
}

impl Posix {
    /// A queue for messages of at most `bytes`. Without privileges 8 KiB are allowed by default.
    pub(crate) fn new(bytes: usize) -> Result<Posix, ProbeError> {
        static NO: AtomicU32 = AtomicU32::new(0);
        let no = NO.fetch_add(1, Ordering::Relaxed);
        let name = CString::new(format!("/ledgerstone-probe-{}-{no}", std::process::id())).unwrap_or_default();
        // SAFETY: the attributes are valid with all bits zero; the name is terminated. On Linux a queue is a
        // descriptor.
        unsafe {
            let mut attributes: libc::mq_attr = std::mem::zeroed();
            attributes.mq_maxmsg = 2;
            attributes.mq_msgsize = bytes as _;
            let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL | libc::O_CLOEXEC;
            let queue = libc::mq_open(name.as_ptr(), flags, 0o600 as libc::c_uint, &attributes);
            if queue == -1 {
                return Err(last("mq_open"));
            }
            libc::mq_unlink(name.as_ptr());
            Ok(Posix { queue: OwnedFd::from_raw_fd(queue) })
        }
    }

    pub(crate) fn send(&self, message: &[u8]) -> Result<(), ProbeError> {
        // SAFETY: the kernel reads the message.
        let result = unsafe { libc::mq_send(self.queue.as_raw_fd(), message.as_ptr().cast(), message.len(), 0) };
        if result == 0 { Ok(()) } else { Err(last("mq_send")) }
    }

    pub(crate) fn receive(&self, buffer: &mut [u8]) -> Result<usize, ProbeError> {
        let priority = std::ptr::null_mut();
        // SAFETY: the kernel writes into the buffer; no priority is asked for.
        let got =
            unsafe { libc::mq_receive(self.queue.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), priority) };
        usize::try_from(got).map_err(|_| last("mq_receive"))
    }
}

/// A System V queue. Messages have their type, a `long`, in the first eight bytes of the buffer.
#[derive(Debug)]
pub(crate) struct SystemV {
    queue: libc::c_int,
}

/// Bytes of a message's type, which do not count.
pub(crate) const TYPE_BYTES: usize = size_of::<libc::c_long>();

impl SystemV {
    pub(crate) fn new() -> Result<SystemV, ProbeError> {
        // SAFETY: no memory is involved.
        let queue = unsafe { libc::msgget(libc::IPC_PRIVATE, libc::IPC_CREAT | 0o600) };
        if queue == -1 { Err(last("msgget")) } else { Ok(SystemV { queue }) }
    }

    /// Sends what is behind the type.
    pub(crate) fn send(&self, message: &[u8]) -> Result<(), ProbeError> {
        let Some(bytes) = message.len().checked_sub(TYPE_BYTES) else {
            return Err(ProbeError::Missing("a message without its type".into()));
        };
        // SAFETY: the kernel reads the type and `bytes` behind it.
        let result = unsafe { libc::msgsnd(self.queue, message.as_ptr().cast(), bytes, 0) };
        if result == 0 { Ok(()) } else { Err(last("msgsnd")) }
    }

    /// Receives; the type comes first.
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> Result<usize, ProbeError> {
        let Some(bytes) = buffer.len().checked_sub(TYPE_BYTES) else {
            return Err(ProbeError::Missing("no room for a message's type".into()));
        };
        // SAFETY: the kernel writes the type and at most `bytes` behind it.
        let got = unsafe { libc::msgrcv(self.queue, buffer.as_mut_ptr().cast(), bytes, 0, 0) };
        usize::try_from(got).map_err(|_| last("msgrcv"))
    }
}

impl Drop for SystemV {
    fn drop(&mut self) {
        // SAFETY: our queue; nobody else knows its number. A child that waits in it is sent off with an error.
        unsafe { libc::msgctl(self.queue, libc::IPC_RMID, std::ptr::null_mut()) };
    }
}
