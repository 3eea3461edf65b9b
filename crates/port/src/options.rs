//! What is chosen when a port is opened.

use crate::credentials::Credentials;
use crate::error::OpenError;
use crate::ring::{PAYLOAD_BYTES_MAX, SLOT_COUNT_MAX};
use std::sync::Arc;
use std::time::Duration;

/// What happens when a sender finds the port full. The receiver chooses, since it knows what its messages are worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum WhenFull {
    /// The sender is told, or waits, as it likes. Nothing is lost.
    #[default]
    Refuse,
    /// The oldest message from this sender makes room. Senders never wait, and [`Port::dropped`](crate::Port::dropped)
    /// counts the lost messages.
    DropOldest,
}

/// How a process waits: for a message, or for room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Wait {
    /// Find out which of the others is best, again and again: see [`crate::wait`] for how.
    #[default]
    Adaptive,
    /// Keep looking. Fastest if the other side has a processor of its own, useless if it has not.
    Spin,
    /// Look for so long, then sleep.
    SpinFor(Duration),
    /// Sleep at once.
    Sleep,
}

/// Who may send, and who may share the host's ring for groups, beyond what the socket files' permissions allow.
#[derive(Clone, Default)]
pub enum Access {
    /// Processes of our own user, and root.
    #[default]
    OwnUser,
    /// Every process that can open the socket file.
    Permitted,
    /// Every peer that this says yes to. It is asked once for each connection, with what the kernel says about the
    /// peer.
    Ask(Arc<dyn Fn(Credentials) -> bool + Send + Sync>),
}

impl Access {
    pub(crate) fn allows(&self, peer: Credentials) -> bool {
        match self {
            Access::OwnUser => peer.uid == 0 || peer.uid == rustix::process::geteuid().as_raw(),
            Access::Permitted => true,
            Access::Ask(ask) => ask(peer),
        }
    }
}

impl std::fmt::Debug for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Access::OwnUser => "OwnUser",
            Access::Permitted => "Permitted",
            Access::Ask(_) => "Ask",
        })
    }
}

/// What is chosen when a port is opened (paper 002, 4.2: number and length of the receive buffers).
#[derive(Clone, Debug)]
pub struct PortOptions {
    /// Receive buffers for each sender: a power of two from 1 to 65,536.
    pub buffer_count: u32,
    /// The longest message, in bytes: 1 to 1 MiB. Rounded up so that a buffer ends with a cache line.
    pub buffer_bytes: u32,
    /// Senders at one time: 1 to 4,096. Each has buffers of its own, so that none can harm or hold up another.
    pub senders_max: u32,
    /// What happens when a sender's buffers are full.
    pub when_full: WhenFull,
    /// How the owner waits for messages.
    pub wait: Wait,
    /// Permissions of the socket file: a process that cannot write to the file cannot send. The default is 0o600.
    pub mode: u32,
    /// Who of those may send.
    pub access: Access,
}

impl Default for PortOptions {
    fn default() -> PortOptions {
        PortOptions {
            buffer_count: 256,
            buffer_bytes: 1008,
            senders_max: 256,
            when_full: WhenFull::Refuse,
            wait: Wait::Adaptive,
            mode: 0o600,
            access: Access::OwnUser,
        }
    }
}

impl PortOptions {
    pub(crate) fn check(&self) -> Result<(), OpenError> {
        let bounds = [
            ("buffer_bytes", self.buffer_bytes, PAYLOAD_BYTES_MAX, "1 to 1048576"),
            ("buffer_count", self.buffer_count, SLOT_COUNT_MAX, "a power of two from 1 to 65536"),
            ("senders_max", self.senders_max, 4096, "1 to 4096"),
            ("mode", self.mode.max(1), 0o777, "permission bits, at most 0o777"),
        ];
        for (what, value, max, allowed) in bounds {
            if value == 0 || value > max || (what == "buffer_count" && !value.is_power_of_two()) {
                return Err(OpenError::Options { what, value: u64::from(value), allowed });
            }
        }
        Ok(())
    }
}
