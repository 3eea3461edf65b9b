//! The promises of pages by reference.

use ledgerstone_port::*;

struct Ground {
    _directory: tempfile::TempDir,
    port: Port,
    senders: Vec<Sender>,
}

fn ground(sender_count: u32) -> Ground {
    let directory = tempfile::tempdir().unwrap();
    let host = Host::at(directory.path(), Site(1)).unwrap();
    let name = |server| host.address(Instance(1), ServerType(1), ServerInstance(server));
    let port = host.open_port(name(0), PortOptions::default()).unwrap();
    let senders = (1..=sender_count).map(|no| host.connect(name(no), name(0)).unwrap()).collect();
    Ground { _directory: directory, port, senders }
}

#[test]
fn a_page_is_read_where_it_was_written_and_written_again_only_when_it_was_read() {
    let mut ground = ground(1);
    let mut pages = Pages::create(65536, 2).unwrap();
    for round in 0..10u8 {
        let mut page = pages.take().expect("a free page");
        page.fill(round);
        page.share(65536).send(&mut ground.senders[0]).unwrap();
        let first = ground.port.try_receive().unwrap().page().unwrap();
        let second_try = pages.take().map(|page| page.as_ptr());
        assert!(second_try.is_some(), "the other page is free");
        assert_eq!(pages.lent(), 1);
        // SAFETY: the owner is this thread, which does not write it.
        assert!(unsafe { first.bytes_in_place() } == vec![round; 65536]);
        assert!(first.to_vec() == vec![round; 65536]);
        drop(first);
        assert_eq!(pages.lent(), 0);
    }
}

#[test]
fn a_page_sent_to_several_is_free_when_the_last_is_done() {
    let mut ground = ground(2);
    let mut pages = Pages::create(4096, 1).unwrap();
    let mut share = pages.take().unwrap().share(7);
    for sender in &mut ground.senders {
        share.send(sender).unwrap();
    }
    let first = ground.port.try_receive().unwrap().page().unwrap();
    let second = ground.port.try_receive().unwrap().page().unwrap();
    assert_eq!((first.len(), second.len()), (7, 7));
    drop(first);
    assert!(pages.take().is_none());
    drop(second);
    assert!(pages.take().is_some());
}

#[test]
fn what_is_no_reference_to_a_lent_page_is_refused() {
    let mut ground = ground(1);
    let mut pages = Pages::create(4096, 1).unwrap();
    pages.take().unwrap().share(1).send(&mut ground.senders[0]).unwrap();
    let message = ground.port.try_receive().unwrap();
    let reference = message.to_vec();
    drop(message.page().unwrap());
    assert_eq!(message.page().err(), Some(MessageError::NoPage), "it was given back");
    drop(message);
    ground.senders[0].send(&reference).unwrap();
    assert_eq!(ground.port.try_receive().unwrap().page().err(), Some(MessageError::NoPage), "plain bytes");
}

#[test]
fn sizes_that_no_pages_have_are_refused() {
    for (page_bytes, page_count) in [(0, 1), (4095, 1), (32 << 20, 1), (4096, 0), (4096, 1 << 17)] {
        let refused = Pages::create(page_bytes, page_count);
        assert!(matches!(refused, Err(OpenError::Options { .. })), "{page_bytes} {page_count}");
    }
}
