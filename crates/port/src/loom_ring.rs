//! Models of the rings and bells: few slots, few messages, all orders.

use crate::atomic::{AtomicU32, AtomicU64};
use crate::bell::{self, Waking};
use crate::broadcast::{self, Envelope, Look};
use crate::bytes::{load_bytes, store_bytes};
use crate::ring::{CPU_UNKNOWN, Header, Reader, Shape, Take, Writer};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

fn header(len: u32) -> Header {
    Header { len, kind: 1, version: 1, cpu: CPU_UNKNOWN, flags: 0 }
}

fn words(count: usize) -> Arc<Vec<AtomicU64>> {
    Arc::new((0..count).map(|_| AtomicU64::new(0)).collect())
}

/// Message `no`: two words that belong together.
fn message(no: u64) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&no.to_le_bytes());
    bytes[8..].copy_from_slice(&(no * 11).to_le_bytes());
    bytes
}

fn number(bytes: &[u8]) -> u64 {
    let no = u64::from_le_bytes(bytes[..8].try_into().unwrap());
    assert_eq!(bytes, message(no), "half of one message, half of another");
    no
}

#[test]
fn loom_a_message_is_seen_whole_and_its_slot_is_filled_again_only_when_it_was_read() {
    loom::model(|| {
        let shape = Shape::new(1, 16);
        let ring = words(shape.words());
        let writes = {
            let ring = Arc::clone(&ring);
            thread::spawn(move || {
                let mut writer = Writer::new(shape);
                for no in 1..=2 {
                    while !writer.has_room(&ring).unwrap() {
                        thread::yield_now();
                    }
                    store_bytes(&ring[writer.payload()..], &message(no));
                    writer.publish(&ring, header(16));
                }
            })
        };
        let mut reader = Reader::new(shape);
        for expected in 1..=2 {
            while reader.peek(&ring).unwrap().is_none() {
                thread::yield_now();
            }
            let mut bytes = [0; 16];
            load_bytes(&ring[reader.payload()..], &mut bytes);
            assert_eq!(number(&bytes), expected);
            reader.advance(&ring);
        }
        writes.join().unwrap();
    });
}

#[test]
fn loom_a_sleeper_is_woken_for_what_came_while_it_went_to_sleep() {
    loom::model(|| {
        let shape = Shape::new(1, 16);
        let ring = words(shape.words());
        let bell = Arc::new(AtomicU32::new(0));
        // What the futex is: who sleeps while the bell says so, until it is woken.
        let futex = Arc::new((Mutex::new(false), Condvar::new()));
        let sends = {
            let (ring, bell, futex) = (Arc::clone(&ring), Arc::clone(&bell), Arc::clone(&futex));
            thread::spawn(move || {
                let mut writer = Writer::new(shape);
                writer.publish(&ring, header(0));
                if bell::ring(&bell) == Some(Waking::Futex) {
                    *futex.0.lock().unwrap() = true;
                    futex.1.notify_all();
                }
            })
        };
        let reader = Reader::new(shape);
        bell::prepare(&bell, Waking::Futex);
        if reader.peek(&ring).unwrap().is_none() {
            let mut is_woken = futex.0.lock().unwrap();
            while !*is_woken && reader.peek(&ring).unwrap().is_none() {
                is_woken = futex.1.wait(is_woken).unwrap();
            }
        }
        bell::awake(&bell);
        sends.join().unwrap();
        assert!(reader.peek(&ring).unwrap().is_some());
    });
}

#[test]
fn loom_a_message_that_is_dropped_while_it_is_copied_is_not_taken() {
    loom::model(|| {
        let shape = Shape::new(1, 16);
        let ring = words(shape.words());
        let writes = {
            let ring = Arc::clone(&ring);
            thread::spawn(move || {
                let mut writer = Writer::new(shape);
                for no in 1..=2 {
                    if !writer.has_room(&ring).unwrap() {
                        writer.drop_oldest(&ring);
                    }
                    store_bytes(&ring[writer.payload()..], &message(no));
                    writer.publish(&ring, header(16));
                }
            })
        };
        let mut reader = Reader::new(shape);
        let mut last = 0;
        for _ in 0..2 {
            reader.skip_dropped(&ring).unwrap();
            if reader.peek(&ring).unwrap().is_some() {
                let mut bytes = [0; 16];
                load_bytes(&ring[reader.payload()..], &mut bytes);
                if reader.take_copied(&ring).unwrap() == Take::Taken {
                    let no = number(&bytes);
                    assert!(no > last);
                    last = no;
                }
            }
        }
        writes.join().unwrap();
    });
}

#[test]
fn loom_a_lossy_reader_of_a_multicast_never_sees_half_of_two() {
    loom::model(|| {
        let shape = broadcast::shape(1, 16);
        let all = words(broadcast::words(shape));
        let mut reader = broadcast::Reader::new(&all, shape, 1, true);
        reader.enter(&all, 1, u64::MAX);
        let mut writer = broadcast::Writer::new(&all, shape, 0);
        let writes = {
            let all = Arc::clone(&all);
            thread::spawn(move || {
                for no in 1..=2 {
                    assert!(writer.has_room(&all));
                    writer.publish(&all, header(16), Envelope { xid: no, from: 0 }, &message(no));
                }
            })
        };
        let mut bytes = Vec::new();
        for _ in 0..2 {
            if let Look::Message(_, envelope) = reader.peek(&all, 0, |_| true, &mut bytes).unwrap() {
                assert_eq!(number(&bytes), envelope.xid);
            }
        }
        writes.join().unwrap();
    });
}

#[test]
fn loom_who_joins_while_others_send_loses_nothing_from_then_on() {
    loom::model(|| {
        let shape = broadcast::shape(1, 16);
        let all = words(broadcast::words(shape));
        let mut reader = broadcast::Reader::new(&all, shape, 1, false);
        let mut writer = broadcast::Writer::new(&all, shape, 0);
        let writes = {
            let all = Arc::clone(&all);
            thread::spawn(move || {
                for no in 1..=2 {
                    if writer.has_room(&all) {
                        writer.publish(&all, header(16), Envelope { xid: no, from: 0 }, &message(no));
                    }
                }
            })
        };
        reader.enter(&all, 1, u64::MAX);
        let mut bytes = Vec::new();
        for _ in 0..2 {
            let look = reader.peek(&all, 0, |_| true, &mut bytes).unwrap();
            assert!(!matches!(look, Look::Lost(_)), "{look:?}");
        }
        writes.join().unwrap();
        let look = reader.peek(&all, 0, |_| true, &mut bytes).unwrap();
        assert!(!matches!(look, Look::Lost(_)), "{look:?}");
    });
}
