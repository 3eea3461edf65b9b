use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use ledgerstone_disk::SimDisk;
use ledgerstone_log::{Log, LogConfig, NewRecord, RecordKind};
use ledgerstone_page::{Lsn, OpId, PageId, Xid};
use ledgerstone_region::{Region, Share, SlotNo, SlotTable, sync};
use proptest::prelude::*;

use super::{Before, Horizon, Image, Look, Times, VersionStore, View, Who, Writer, tree_bit};
use crate::TxnTable;

const SPACE: PageId = PageId(9);

type State = BTreeMap<u8, Vec<u8>>;

/// A change, as the log has it.
struct Change {
    lsn: Lsn,
    xid: Xid,
    key: u8,
    before: Option<Vec<u8>>,
}

/// A transaction.
#[derive(Default)]
struct Open {
    writer: Writer,
    slot: u32,
    xid: Xid,
    first_lsn: Lsn,
}

/// A store, and pages that are plain maps: what the store's users must do is done here by hand.
struct World {
    xid: u64,
    changes: Vec<Change>,
    log: Arc<Log>,
    table: TxnTable,
    store: Share<VersionStore>,
    /// What the pages say.
    page: State,
    committed: State,
}

impl World {
    fn new(bytes: u64) -> World {
        World::with_snapshots(bytes, 16)
    }

    fn with_snapshots(bytes: u64, count_max: u32) -> World {
        let region = Region::anonymous(bytes + (4 << 20)).unwrap();
        let threads = Arc::new(SlotTable::place(&region, 8).unwrap());
        let disk = Arc::new(SimDisk::new());
        let config = LogConfig {
            segment_bytes: 1 << 20,
            buffer_bytes: 256 << 10,
            slots: Some(Arc::clone(&threads)),
            ..LogConfig::new(disk, region.clone(), [7; 16])
        };
        let log = Log::open(config).unwrap();
        let store = Share::new(VersionStore::place(&region, &log, &threads, bytes, count_max).unwrap());
        let table = TxnTable::place(&region, 8).unwrap();
        World { xid: 0, changes: Vec::new(), log, table, store, page: State::new(), committed: State::new() }
    }

    fn open(&self) -> View {
        let thread = self.store.threads.current();
        VersionStore::open_view(&self.store, &self.table, thread, Xid(1), Horizon::None).unwrap()
    }

    fn begin(&mut self) -> Open {
        self.begin_in(0)
    }

    fn begin_in(&mut self, slot: u32) -> Open {
        self.xid += 1;
        Open { slot, xid: Xid(self.xid), ..Open::default() }
    }

    fn write(&mut self, open: &mut Open, key: u8, value: Option<Vec<u8>>) {
        let name = key_bytes(key);
        let old = self.page.get(&key).cloned();
        let before = old.as_ref().map_or(Before::Absent, |value| Before::Record(value.len() as u16, value));
        let who = Who { slot: open.slot, xid: open.xid, first_lsn: open.first_lsn };
        self.store.drop_spilled_images(&mut open.writer);
        // Also where this writer has noted the record before, and taken it away since: readers take the oldest image.
        let times = if old.is_none() { Times::First } else { Times::Any };
        self.store.note(&mut open.writer, who, SPACE, &name, before, times);
        let lsn = self.append(RecordKind::End);
        if open.first_lsn == Lsn(0) {
            open.first_lsn = lsn;
        }
        self.changes.push(Change { lsn, xid: open.xid, key, before: old });
        self.store.before_change(&mut open.writer);
        match value {
            Some(value) => self.page.insert(key, value),
            None => self.page.remove(&key),
        };
    }

    fn append_commit(&self) -> Lsn {
        self.append(RecordKind::Commit)
    }

    fn append(&self, kind: RecordKind) -> Lsn {
        let mut claim = self.log.claim(256).unwrap();
        let record =
            NewRecord { kind, xid: Xid(7), prev_lsn: Lsn(0), op: OpId(0), flags: 0, page: None, body: &[&[0; 8]] };
        let lsn = self.log.append(&mut claim, &record);
        self.log.give_back(claim);
        lsn
    }

    fn commit(&mut self, mut open: Open, keys: impl IntoIterator<Item = u8>) {
        self.store.begin_commit(&open.writer);
        let lsn = self.append_commit();
        if !open.writer.is_empty() {
            self.store.end_commit(&mut open.writer, lsn);
        }
        for key in keys {
            match self.page.get(&key) {
                Some(value) => self.committed.insert(key, value.clone()),
                None => self.committed.remove(&key),
            };
        }
    }

    fn abort(&mut self, mut open: Open, keys: impl IntoIterator<Item = u8>) {
        for key in keys {
            match self.committed.get(&key) {
                Some(value) => self.page.insert(key, value.clone()),
                None => self.page.remove(&key),
            };
        }
        self.store.end_abort(&mut open.writer);
    }

    /// What a snapshot sees of a key; `None`: it is too old.
    fn read(&self, view: &View, own: u32, key: u8) -> Option<Option<Vec<u8>>> {
        self.store.check(view.at()).ok()?;
        let mut image = Image::default();
        let look = self.store.look(view.at(), own, SPACE, &key_bytes(key), &mut image);
        let unseen = self.store.unseen(view.at(), Xid(0), SPACE);
        let is_theirs = |change: &&Change| change.key == key && unseen.contains(change.xid);
        if let Some(first) = self.changes.iter().find(is_theirs) {
            assert!(first.lsn >= unseen.first_lsn());
            if look != Look::Image || image.until >= first.lsn {
                return Some(first.before.clone());
            }
        }
        let seen = match look {
            Look::Page => self.page.get(&key).cloned(),
            Look::Image => image.header.map(|header| {
                assert_eq!(usize::from(header), image.value.len());
                image.value
            }),
            Look::Committing => panic!("nobody is committing"),
        };
        self.store.check(view.at()).ok()?;
        Some(seen)
    }
}

#[test]
fn slots_of_snapshots_that_are_no_longer_in_use_are_not_looked_at() {
    let world = World::new(64 << 10);
    let used = || world.store.used_snapshots().len();
    assert_eq!(used(), 0);
    let views: Vec<View> = (0..5).map(|_| world.open()).collect();
    assert_eq!(used(), 5);
    world.store.lower_used();
    assert_eq!(used(), 5, "all are open");
    let mut views = views.into_iter();
    let (first, second) = (views.next(), views.next());
    drop(views);
    assert!(!world.store.is_none_open());
    world.store.lower_used();
    assert_eq!(used(), 2);
    drop(first);
    world.store.lower_used();
    assert_eq!(used(), 2, "the other is open");
    assert_eq!(world.store.open_snapshots().len(), 1);
    let again = world.open();
    assert_eq!((used(), world.store.open_snapshots().len()), (2, 2));
    drop((second, again));
    assert!(world.store.is_none_open());
    world.store.lower_used();
    assert_eq!(used(), 0);
    assert!(world.store.is_none_open());
}

/// Beside a thread that opens snapshots and closes them, in many orders. It waits where the only slot is held for a
/// moment.
#[test]
fn a_snapshot_is_seen_while_the_number_of_slots_in_use_sinks() {
    for count_max in [1, 4] {
        let mut lowered = 0;
        for seed in 0..100 {
            let run = move || {
                let world = World::with_snapshots(64 << 10, count_max);
                let (versions, table) = (Arc::clone(world.store.arc()), world.table);
                let is_over = Arc::new(AtomicBool::new(false));
                let opening = {
                    let versions = Arc::clone(&versions);
                    sync::spawn("opens", move || {
                        let store = Share::new(versions);
                        for _ in 0..20 {
                            let thread = store.threads.current();
                            let view = VersionStore::open_view(&store, &table, thread, Xid(1), Horizon::None).unwrap();
                            sync::yield_point("it is open");
                            assert!(!store.is_none_open());
                            drop(view);
                            sync::yield_point("between two");
                        }
                    })
                };
                let lowering = {
                    let (versions, is_over) = (Arc::clone(&versions), Arc::clone(&is_over));
                    sync::spawn("lowers", move || {
                        let mut lowered = 0;
                        while !is_over.load(SeqCst) {
                            let before = versions.used_snapshots().len();
                            versions.lower_used();
                            lowered += u32::from(versions.used_snapshots().len() < before);
                            sync::yield_point("between two");
                        }
                        lowered
                    })
                };
                opening.join().unwrap();
                is_over.store(true, SeqCst);
                lowering.join().unwrap()
            };
            lowered += sync::Scheduler::run(seed, run).unwrap_or_else(|stuck| panic!("seed {seed}: {stuck}"));
        }
        assert!(lowered > 100, "{count_max} {lowered}: too seldom to prove anything");
    }
}

/// Of all lengths around a word's, and some that share their beginning.
fn key_bytes(key: u8) -> Vec<u8> {
    vec![key / 3; usize::from(key)]
}

#[test]
fn a_snapshot_sees_what_was_committed_when_it_was_opened() {
    let mut world = World::new(1 << 20);
    let mut first = world.begin();
    world.write(&mut first, 1, Some(vec![1; 100]));
    world.commit(first, [1]);
    let old = world.open();
    let mut second = world.begin();
    world.write(&mut second, 1, None);
    world.write(&mut second, 2, Some(vec![2]));
    let during = world.open();
    for view in [&old, &during] {
        assert_eq!(world.read(view, 0, 1), Some(Some(vec![1; 100])));
        assert_eq!(world.read(view, 0, 2), Some(None));
    }
    assert_eq!(world.read(&during, second.writer.name(), 2), Some(Some(vec![2])), "a writer sees its own changes");
    world.commit(second, [1, 2]);
    let new = world.open();
    assert_eq!(world.read(&old, 0, 1), Some(Some(vec![1; 100])));
    assert_eq!(world.read(&during, 0, 1), Some(Some(vec![1; 100])));
    assert_eq!(world.read(&new, 0, 1), Some(None));
    assert!(world.store.has_images(SPACE, &key_bytes(1)));
    drop((old, during));
    assert!(!world.store.has_images(SPACE, &key_bytes(1)), "nobody is older than the commit");
    drop(new);
    assert_eq!(world.store.stat().used_bytes, 0);
}

#[test]
fn a_snapshot_finds_what_a_small_writer_had_changed_before_it_was_opened() {
    for ends_by_commit in [true, false] {
        let mut world = World::new(1 << 20);
        let mut first = world.begin();
        world.write(&mut first, 1, Some(vec![1; 9]));
        world.commit(first, [1]);
        assert!(!world.store.has_images(SPACE, &key_bytes(1)), "nobody asks");
        let mut writer = world.begin();
        world.write(&mut writer, 1, Some(vec![2]));
        world.write(&mut writer, 2, Some(vec![2]));
        world.write(&mut writer, 1, Some(vec![3]));
        assert!(!world.store.has_images(SPACE, &key_bytes(1)), "nobody asks yet");
        let view = world.open();
        world.write(&mut writer, 3, Some(vec![2]));
        world.write(&mut writer, 1, Some(vec![4]));
        let check = |world: &World| {
            assert_eq!(world.read(&view, 0, 1), Some(Some(vec![1; 9])), "the first image is the one");
            assert_eq!(world.read(&view, 0, 2), Some(None));
            assert_eq!(world.read(&view, 0, 3), Some(None));
        };
        check(&world);
        assert_eq!(world.read(&view, writer.writer.name(), 1), Some(Some(vec![4])), "its own changes");
        if ends_by_commit {
            world.commit(writer, [1, 2, 3]);
        } else {
            world.abort(writer, [1, 2, 3]);
        }
        check(&world);
        drop(view);
        assert_eq!(world.store.stat().used_bytes, 0);
        assert!((1..4).all(|key| !world.store.has_images(SPACE, &key_bytes(key))));
    }
}

/// L5, L6.
#[test]
fn who_is_known_to_change_one_tree_is_no_matter_in_others_and_keeps_its_log_for_readers_on_their_way() {
    let mut world = World::new(1 << 20);
    let other = (10..).map(PageId).find(|root| tree_bit(*root) != tree_bit(SPACE)).unwrap();
    let mut writer = world.begin();
    let who = Who { slot: writer.slot, xid: writer.xid, first_lsn: Lsn(0) };
    world.store.begin_spilled_in(&mut writer.writer, who, tree_bit(SPACE));
    let view = world.open();
    world.write(&mut writer, 1, Some(vec![1]));
    let is_unseen = |world: &World, root| world.store.unseen(view.at(), Xid(0), root).contains(who.xid);
    assert!(is_unseen(&world, SPACE) && is_unseen(&world, PageId::NONE) && !is_unseen(&world, other));
    assert!(world.store.has_images(SPACE, &key_bytes(1)) && !world.store.has_images(other, &key_bytes(1)));
    assert_eq!(world.read(&view, 0, 1), Some(None));
    let low = world.store.log_low();
    assert!(low.is_some());
    world.abort(writer, [1]);
    assert_eq!(world.store.log_low(), low, "a reader may be on its way through it");
    assert!(!is_unseen(&world, SPACE) && !is_unseen(&world, PageId::NONE));
    assert!(!world.store.has_images(SPACE, &key_bytes(1)));
    assert_eq!(world.store.newest_spilled_commit(), Lsn(0), "it is no commit");
    assert_eq!(world.read(&view, 0, 1), Some(None));
    drop(view);
    assert_eq!(world.store.log_low(), None);
    assert_eq!(world.store.stat().spilled_count, 0);
}

/// Of the library's own transactions, too, whose slots are the last ones.
#[test]
fn what_writers_have_staged_is_found_while_the_number_of_slots_in_use_sinks() {
    for own_slot in [None, Some(13)] {
        let mut world = World::new(1 << 20);
        let slots: Vec<u32> = (0..4).map(|hint| world.table.claim(SlotNo(hint)).unwrap().0).collect();
        let mut open: Vec<Open> = slots.iter().copied().chain(own_slot).map(|slot| world.begin_in(slot)).collect();
        for (key, open) in (0..).zip(&mut open) {
            world.write(open, key, Some(vec![9]));
            assert!(open.writer.is_staged);
        }
        world.commit(open.remove(3), [3]);
        world.table.free(slots[3]);
        world.table.lower_used(SlotNo(0), |no| world.store.lower_writers(no));
        let writers_used = world.store.state.writers_used.load(SeqCst);
        assert_eq!(writers_used, u64::from(own_slot.map_or(slots[3], |slot| slot + 1)), "up to the last that is taken");
        let view = world.open();
        let seen: Vec<_> =
            (0..4 + own_slot.iter().count()).map(|key| world.read(&view, 0, key as u8).unwrap()).collect();
        let expected = [None, None, None, Some(vec![9]), None];
        assert_eq!(seen, expected[..seen.len()]);
    }
}

/// Its committer still saw the snapshot, and the snapshot's closer did not yet see it as spilled.
#[test]
fn a_spilled_writer_that_each_has_left_to_the_other_is_forgotten_some_time() {
    let mut world = World::new(1 << 20);
    let mut writer = world.begin();
    let who = Who { slot: writer.slot, xid: writer.xid, first_lsn: Lsn(0) };
    world.store.begin_spilled_in(&mut writer.writer, who, tree_bit(SPACE));
    world.write(&mut writer, 1, Some(vec![1]));
    let open = [world.open(), world.open()];
    world.commit(writer, [1]);
    let [first, second] = open;
    let close_unseen = |no: usize, view: View| {
        let slot = &world.store.snapshots[no];
        assert_eq!(Lsn(slot.lsn.load(SeqCst)), view.at().lsn);
        slot.lsn.store(0, SeqCst);
        std::mem::forget(view);
    };
    close_unseen(0, first);
    world.store.lower_used();
    assert!(world.store.log_low().is_some(), "the other one does not see it");
    close_unseen(1, second);
    world.store.lower_used();
    assert_eq!((world.store.log_low(), world.store.stat().spilled_count), (None, 0));
}

#[test]
fn a_snapshot_finds_what_was_changed_after_an_earlier_one_was_closed() {
    let mut world = World::new(1 << 20);
    let mut writer = world.begin();
    world.write(&mut writer, 1, Some(vec![1]));
    drop(world.open());
    world.write(&mut writer, 2, Some(vec![2]));
    let view = world.open();
    assert_eq!((world.read(&view, 0, 1), world.read(&view, 0, 2)), (Some(None), Some(None)));
    world.commit(writer, [1, 2]);
    assert_eq!((world.read(&view, 0, 1), world.read(&view, 0, 2)), (Some(None), Some(None)));
}

#[test]
fn a_writer_that_stages_more_than_a_chunk_goes_on_in_the_chains() {
    let mut world = World::new(1 << 20);
    let mut writer = world.begin();
    for key in 0..40 {
        world.write(&mut writer, key, Some(vec![key; 50]));
        world.write(&mut writer, key, Some(vec![key; 60]));
    }
    let view = world.open();
    assert!((0..40).all(|key| world.read(&view, 0, key) == Some(None)));
    world.commit(writer, 0..40);
    assert!((0..40).all(|key| world.read(&view, 0, key) == Some(None)));
    drop(view);
    assert_eq!(world.store.stat().used_bytes, 0);
}

#[test]
fn only_the_first_change_of_a_record_is_kept() {
    let mut world = World::new(1 << 20);
    let view = world.open();
    let mut writer = world.begin();
    for n in 0..10_000u32 {
        world.write(&mut writer, 5, Some(n.to_le_bytes().to_vec()));
    }
    assert_eq!(world.read(&view, 0, 5), Some(None));
    assert_eq!(world.store.stat().used_bytes, 512);
    world.abort(writer, [5]);
    assert_eq!(world.store.stat().used_bytes, 0);
}

#[test]
fn a_full_store_drops_the_oldest_commits_and_says_so() {
    let mut world = World::new(64 << 10);
    let view = world.open();
    for n in 0..200u8 {
        let mut writer = world.begin();
        world.write(&mut writer, n % 8, Some(vec![n; 300]));
        world.commit(writer, [n % 8]);
    }
    assert!(world.store.check(view.at()).is_err());
    assert!(world.store.stat().floor_count > 0);
    let new = world.open();
    assert_eq!(world.read(&new, 0, 7), Some(world.committed.get(&7).cloned()));
}

#[test]
fn a_snapshot_whose_lsn_is_a_commits_own_is_told_when_the_images_of_that_go() {
    let mut world = World::new(64 << 10);
    let mut views = Vec::new();
    for n in 0..400u32 {
        let (key, value) = ((n % 20) as u8, n.to_le_bytes().repeat(75));
        let mut writer = world.begin();
        let old = world.committed.get(&key).cloned();
        world.write(&mut writer, key, Some(value));
        if (20..30).contains(&n) {
            views.push((world.open(), key, old));
            assert_eq!(views[n as usize - 20].0.at().lsn, world.log.tail(), "where the commit's record begins");
        }
        world.commit(writer, [key]);
        for (view, key, old) in &views {
            assert!(world.read(view, 0, *key).is_none_or(|found| found == *old), "it sees a commit after it");
        }
    }
    assert!(views.iter().all(|(view, ..)| world.store.check(view.at()).is_err()));
}

#[test]
fn a_writer_that_changes_more_than_there_is_room_for_is_known_by_its_records() {
    let mut world = World::new(64 << 10);
    for key in 0..200 {
        let mut writer = world.begin();
        world.write(&mut writer, key, Some(vec![0; 1000]));
        world.commit(writer, [key]);
    }
    let before = world.open();
    let mut writer = world.begin();
    for key in 0..200 {
        world.write(&mut writer, key, Some(vec![key; 1000]));
    }
    let during = world.open();
    assert_eq!(world.store.stat().spilled_count, 1);
    assert_eq!(world.store.stat().used_bytes, 0, "its images went when it was spilled");
    assert_eq!(world.store.stat().log_low, Some(writer.first_lsn));
    let old = |key: u8| Some(Some(vec![0; 1000])).filter(|_| key < 200);
    assert!((0..200).all(|key| world.read(&before, 0, key) == old(key) && world.read(&during, 0, key) == old(key)));
    world.commit(writer, 0..200);
    assert!((0..200).all(|key| world.read(&during, 0, key) == old(key)), "it does not see the commit");
    let after = world.open();
    assert_eq!(world.read(&after, 0, 100), Some(Some(vec![100; 1000])));
    drop((before, during));
    assert_eq!(world.store.stat().spilled_count, 0, "nobody is older than the commit");
    drop(after);
    assert_eq!(world.store.stat().floor_count, 0, "nobody was too old");
}

/// Whatever is not spilled has room among the images of commits.
#[test]
fn a_commit_of_any_size_makes_nobody_too_old() {
    for kib in [16, 20, 30, 48, 60, 64, 65, 100] {
        for images in (5..240).step_by(5) {
            let mut world = World::new(kib << 10);
            let view = world.open();
            let mut writer = world.begin();
            (0..images).for_each(|key| world.write(&mut writer, key, Some(vec![1; 9])));
            world.commit(writer, 0..images);
            let mut writer = world.begin();
            let second = world.open();
            (0..images).for_each(|key| world.write(&mut writer, key, Some(vec![2; 300])));
            world.commit(writer, 0..images);
            let mut writer = world.begin();
            let third = world.open();
            (0..images).for_each(|key| world.write(&mut writer, key, None));
            world.commit(writer, 0..images);
            drop((view, second));
            let what = format!("{kib} KiB, {images} images");
            assert!((0..images).all(|key| world.read(&third, 0, key) == Some(Some(vec![2; 300]))), "{what}");
        }
    }
}

#[test]
fn a_reader_is_told_that_a_writer_is_committing() {
    let mut world = World::new(1 << 20);
    let mut writer = world.begin();
    world.write(&mut writer, 1, Some(vec![1]));
    world.store.begin_commit(&writer.writer);
    let lsn = world.append_commit();
    let view = world.open();
    let look = |image: &mut Image| world.store.look(view.at(), 0, SPACE, &key_bytes(1), image);
    assert_eq!(look(&mut Image::default()), Look::Committing);
    world.store.end_commit(&mut writer.writer, lsn);
    assert_eq!(world.store.look(view.at(), 0, SPACE, &key_bytes(1), &mut Image::default()), Look::Page);
}

#[test]
fn the_newest_commit_of_a_key_is_known_while_a_snapshot_may_ask() {
    let mut world = World::new(1 << 20);
    let view = world.open();
    assert_eq!(world.store.newest_commit(view.at(), SPACE, &key_bytes(1)), Lsn(0));
    for n in 0..3 {
        let mut writer = world.begin();
        world.write(&mut writer, 1, Some(vec![n]));
        world.commit(writer, [1]);
    }
    let newest = world.store.newest_commit(view.at(), SPACE, &key_bytes(1));
    assert!(newest >= view.at().lsn && newest < world.log.tail());
    assert_eq!(world.store.pins().len(), 1);
    assert_eq!(world.store.oldest_snapshot(), view.at().lsn);
    drop(view);
    assert_eq!(world.store.oldest_snapshot(), world.log.tail());
}

#[derive(Debug, Clone)]
enum Step {
    Write { writer: usize, key: u8, len: Option<usize> },
    Commit(usize),
    Abort(usize),
    Open,
    Close(usize),
    Read { view: usize, key: u8 },
}

fn step() -> impl Strategy<Value = Step> {
    let key = 0..40u8;
    prop_oneof![
        8 => (0..4usize, key.clone(), prop_oneof![1 => Just(None), 3 => (0..1500usize).prop_map(Some), 3 => (0..20usize).prop_map(Some)])
            .prop_map(|(writer, key, len)| Step::Write { writer, key, len }),
        2 => (0..4usize).prop_map(Step::Commit),
        1 => (0..4usize).prop_map(Step::Abort),
        1 => Just(Step::Open),
        1 => (0..8usize).prop_map(Step::Close),
        8 => (0..8usize, key).prop_map(|(view, key)| Step::Read { view, key }),
    ]
}

/// Runs a script; a snapshot may be too old only if the store is small.
fn run(steps: &[Step], bytes: u64, is_small: bool) {
    let mut world = World::new(bytes);
    let mut writers: Vec<(Open, State)> = (0..4).map(|slot| (world.begin_in(slot), State::new())).collect();
    let mut views: Vec<(View, State)> = Vec::new();
    let mut next = 0u8;
    for step in steps {
        match *step {
            Step::Write { writer, key, len } => {
                if writers.iter().enumerate().any(|(no, (_, keys))| no != writer && keys.contains_key(&key)) {
                    continue; // Locked.
                }
                next = next.wrapping_add(1);
                world.write(&mut writers[writer].0, key, len.map(|len| vec![next; len]));
                writers[writer].1.insert(key, Vec::new());
            }
            Step::Commit(no) => {
                let fresh = (world.begin_in(no as u32), State::new());
                let (writer, keys) = std::mem::replace(&mut writers[no], fresh);
                world.commit(writer, keys.into_keys());
            }
            Step::Abort(no) => {
                let fresh = (world.begin_in(no as u32), State::new());
                let (writer, keys) = std::mem::replace(&mut writers[no], fresh);
                world.abort(writer, keys.into_keys());
            }
            Step::Open if views.len() < 8 => views.push((world.open(), world.committed.clone())),
            Step::Close(no) if no < views.len() => drop(views.remove(no)),
            Step::Read { view, key } if view < views.len() => {
                let (view, expected) = &views[view];
                match world.read(view, 0, key) {
                    Some(seen) => assert_eq!(seen.as_ref(), expected.get(&key), "key {key}"),
                    None => assert!(is_small, "too old with memory left"),
                }
            }
            Step::Open | Step::Close(_) | Step::Read { .. } => {}
        }
    }
    for (writer, keys) in writers {
        world.abort(writer, keys.into_keys());
    }
    drop(views);
    assert_eq!(world.store.stat().used_bytes, 0, "everything is given back");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn every_snapshot_sees_its_state(steps in proptest::collection::vec(step(), 1..200)) {
        run(&steps, 1 << 20, false);
    }

    #[test]
    fn a_snapshot_of_a_full_store_sees_its_state_or_is_too_old(steps in proptest::collection::vec(step(), 1..300)) {
        run(&steps, 24 << 10, true);
    }
}
