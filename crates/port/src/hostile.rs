//! What a hostile process can do to a port, as a function of any bytes: for the fuzzer, and for a bounded test.

use crate::address::{Address, Instance, ServerInstance, ServerType, Site, Xid};
use crate::host::Host;
use crate::lane::LaneSender;
use crate::link::{ANSWER_WITHIN, Answer, Hello, Offer};
use crate::net;
use crate::options::{PortOptions, WhenFull};
use crate::port::Port;
use crate::typed::Kind;
use crate::wait::Patience;
use std::sync::atomic::{AtomicU64, Ordering};

const GROUP: Xid = Xid(7);
/// Looks after which everything that a bounded ring can hold has been seen many times.
const LOOKS: usize = 2_000;

/// Plays a script: one sender writes what it likes wherever it can, another is honest. The receiver must not crash,
/// must not loop, must read inside its port only, and must get what the honest one sends.
///
/// # Panics
/// If one of these promises is broken.
pub fn exercise(bytes: &[u8]) {
    parsers(bytes);
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let no = NEXT.fetch_add(1, Ordering::Relaxed);
    let directory = std::env::temp_dir().join(format!("ledgerstone-hostile-{}-{no}", std::process::id()));
    play(bytes, &directory);
    let _ = std::fs::remove_dir_all(&directory); // Left behind, it is an empty directory.
}

/// Everything that is parsed before it is believed.
fn parsers(bytes: &[u8]) {
    let _ = (Hello::from_bytes(bytes), Answer::from_bytes(bytes), Offer::from_bytes(bytes));
    net::exercise(bytes);
}

fn play(bytes: &[u8], directory: &std::path::Path) {
    let host = Host::at(directory, Site(1)).expect("a directory");
    let name = |server| Address::port(Instance(0), ServerType(1), ServerInstance(server), Site(1));
    let may_drop = bytes.len() % 2 == 1;
    let when_full = if may_drop { WhenFull::DropOldest } else { WhenFull::Refuse };
    let options = PortOptions { buffer_count: 4, buffer_bytes: 48, when_full, ..PortOptions::default() };
    let mut port = host.open_port(name(0), options).expect("a port");
    port.join(GROUP).expect("the ring for groups");
    let mut group = port.group_sender(ServerType(1)).expect("a group sender");
    let connect = |no| LaneSender::connect(&host, name(no), name(0), ANSWER_WITHIN).expect("a lane");
    let (mut hostile, mut honest) = (connect(1), connect(2));
    let mut honest_count = 0u64;
    let mut expected = 0u64;
    for step in bytes.chunks(12) {
        let mut value = [0; 8];
        let at = usize::from(step.get(1).copied().unwrap_or(0)) | usize::from(step.get(2).copied().unwrap_or(0)) << 8;
        let given = step.get(4..).unwrap_or(&[]);
        value[..given.len()].copy_from_slice(given);
        let value = u64::from_le_bytes(value);
        match step[0] % 8 {
            0 => hostile.scribble(at, value),
            // The next slot, with a sequence that the receiver waits for or nearly so.
            1 => hostile.scribble_next(at % 8, value & 0xffff),
            2 => group.scribble(at, value),
            3 => group.scribble_next(at % 16, value & 0xffff),
            4 => {
                let _ = hostile.send(Kind::default(), &value.to_le_bytes(), Patience::None);
            }
            5 => {
                let _ = group.try_send(GROUP, &value.to_le_bytes());
            }
            6 if honest.send(Kind { id: 5, version: 5 }, &honest_count.to_le_bytes(), Patience::None).is_ok() => {
                honest_count += 1;
            }
            _ => take(&mut port, name(2), &mut expected, may_drop, 8),
        }
        if hostile.is_closed() {
            hostile = connect(1);
        }
    }
    take(&mut port, name(2), &mut expected, may_drop, LOOKS);
    honest.send(Kind { id: 5, version: 5 }, &honest_count.to_le_bytes(), Patience::None).expect("room");
    take(&mut port, name(2), &mut expected, may_drop, LOOKS);
    assert_eq!(expected, honest_count + 1, "messages of the honest sender are missing");
}

/// Takes messages, reads each in all ways, and checks those of the honest sender.
fn take(port: &mut Port, honest: Address, expected: &mut u64, may_drop: bool, looks: usize) {
    for _ in 0..looks {
        let Some(message) = port.try_receive() else { continue };
        let bytes = message.to_vec();
        assert_eq!(bytes.len(), message.len());
        let _ = message.page();
        assert!(message.copy_to(&mut [0; 16]) <= 16);
        if message.from() == honest && message.group().is_none() {
            let number = u64::from_le_bytes(bytes.try_into().expect("8 bytes"));
            assert!(number == *expected || may_drop && number > *expected, "{number}, not {expected}");
            assert_eq!(message.kind(), Kind { id: 5, version: 5 });
            *expected = number + 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ledgerstone_region::Random;

    #[test]
    fn a_hostile_sender_harms_nobody() {
        exercise(b"");
        let mut random = Random::new(1);
        let mut below = |bound| random.below(bound);
        for _ in 0..400 {
            let steps = 1 + below(60);
            let mut bytes = Vec::new();
            for _ in 0..steps {
                bytes.push(below(8) as u8);
                bytes.extend_from_slice(&(below(600) as u16).to_le_bytes());
                bytes.push(0);
                let value = [below(64), below(1 << 16), u64::MAX, 1 << 32 | below(100), below(8) << 32 | below(60)];
                bytes.extend_from_slice(&value[below(5) as usize].to_le_bytes());
            }
            bytes.truncate(bytes.len() - below(2) as usize);
            exercise(&bytes);
        }
    }
}
