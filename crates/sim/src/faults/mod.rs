//! The fault harness: the plans of the crash harness on a disk that does harm at one call, or from one call on.
//!
//! | file | what |
//! | --- | --- |
//! | [`plan`] | which call is harmed, how, and how the life ends |
//! | [`round`] | the life with the fault, the life after it, and what must hold there |
//!
//! What is expected depends on the harm:
//!
//! - F1. A call fails or is cut short, a read brings other bytes, or a sync lies while the machine goes on. Every call
//!   of a client returns a value or a typed error. The next opening on the healthy disk finds what the crash harness
//!   wants. That is the first n commits, with all that were acknowledged as durable among them. After that opening the
//!   power fails, and nothing that was found may be gone.
//! - F2. A write that stores other bytes than it was given: what is read afterwards is right or `Corrupt`. In the log,
//!   where the last flush before a kill is not vouched for by anything that follows, commits may be missing at the end
//!   (docs/faults.md).
//! - F3. A write goes to another place. The same holds, but a page that was never written where it belongs is an old
//!   page with a good checksum. Nobody can tell that after a restart, so what is there is not compared.
//! - F4. A device that answers nothing for a while, and then does all that it was asked: as F1, and the environment has
//!   not failed.
//! - F5. In no case a panic, a hang, or an error without a type.
//! - F6. Where a failed environment is closed while its clients still run, nothing is written after the close has
//!   returned.
//! - F7. Often the first opening after the life reads a bit wrong, once. It opens or is refused, and the one after it
//!   finds what it would have found.

pub mod plan;
pub mod round;
