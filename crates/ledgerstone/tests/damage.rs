//! Files cut, flipped, emptied and missing: found and named, or without consequence; never a wrong answer.

mod common;

use std::sync::Arc;

use common::*;
use ledgerstone::{Environment, Error};
use ledgerstone_disk::{Disk, SimDisk};
use ledgerstone_log::{ControlSlot, ControlState};

/// An environment after the script, closed in order.
fn closed() -> (SimDisk, Told) {
    let disk = SimDisk::new();
    let env = open(&disk).unwrap();
    let told = script(&env);
    env.close().unwrap();
    (disk, told)
}

/// The same, but the power failed at the end.
fn crashed() -> (SimDisk, Told) {
    let disk = SimDisk::new();
    let env = open(&disk).unwrap();
    let told = script(&env);
    (disk.after_crash(5), told)
}

fn segments(disk: &SimDisk) -> Vec<String> {
    disk.list("log").unwrap().into_iter().map(|name| format!("log/{name}")).collect()
}

#[derive(Debug, PartialEq)]
enum Outcome {
    /// All commits are there.
    Whole,
    /// Opening or reading says what is wrong.
    Told(String),
    /// A prefix of the commits that covers what was acknowledged as durable.
    Prefix,
}

/// Opens a damaged disk: whatever comes must be whole, or a typed error, or a problem that verification reports.
fn look(disk: &SimDisk, told: &Told, what: &str) -> Outcome {
    let (disk, told, name) = (disk.clone(), told.clone(), what.to_string());
    within(60, what, move || {
        let env = match open(&disk) {
            Ok(env) => env,
            Err(error) => return told_error(&name, &error),
        };
        let found = match read(&env) {
            Ok(found) => found,
            Err(error) => return told_error(&name, &error),
        };
        let report = env.verify().unwrap();
        if let Some(problem) = report.problems.first() {
            return Outcome::Told(problem.what.clone());
        }
        told.assert_kept(&found, false, &name);
        // It goes on from there, and what is committed from now on is kept.
        let mut after = found.clone();
        for n in 0..60 {
            let (key, value) = (key(n * 7 % 60), large(n as u8, 150));
            after.entry("t".into()).or_default().insert(key.clone(), value.clone());
            env.transact(|txn| txn.bytes_or_create("t")?.put(&key, &value)).unwrap();
        }
        let disk = disk.after_crash(11);
        let env = open(&disk).unwrap_or_else(|error| panic!("{name}, then a crash: {error}"));
        assert!(read(&env).unwrap() == after, "{name}, then commits and a crash: some are lost");
        assert_sound(&env, &name);
        if found == *told.last() { Outcome::Whole } else { Outcome::Prefix }
    })
}

fn told_error(what: &str, error: &Error) -> Outcome {
    assert!(
        matches!(
            error,
            Error::Corrupt { .. }
                | Error::ControlFile { .. }
                | Error::Disk(_)
                | Error::NotAnEnvironment { .. }
                | Error::NewerFormat { .. }
        ),
        "{what}: {error:?}"
    );
    Outcome::Told(error.to_string())
}

/// What was closed in order must be there in full, whatever is cut off: the control file knows how far the log went.
fn look_closed(disk: &SimDisk, told: &Told, what: &str) {
    let outcome = look(disk, told, what);
    assert!(outcome != Outcome::Prefix, "{what}: commits are missing and nobody says so");
}

#[test]
fn the_log_cut_anywhere_after_an_orderly_close() {
    let (disk, told) = closed();
    let segments = segments(&disk);
    for segment in &segments {
        for len in [0, 1, 4095, 4096, 5000, 20_000, 40_000, 65_535] {
            let damaged = disk.snapshot();
            cut(&damaged, segment, len);
            look_closed(&damaged, &told, &format!("{segment} cut to {len}"));
        }
        let damaged = disk.snapshot();
        damaged.remove(segment).unwrap();
        look_closed(&damaged, &told, &format!("{segment} removed"));
        let damaged = disk.snapshot();
        overwrite(&damaged, segment, 0, &[0; 65_536]);
        look_closed(&damaged, &told, &format!("{segment} zeroed"));
    }
    let damaged = disk.snapshot();
    for segment in &segments {
        damaged.remove(segment).unwrap();
    }
    look_closed(&damaged, &told, "no segment left");
}

#[test]
fn a_bit_of_the_log_flipped_anywhere_after_an_orderly_close() {
    let (disk, told) = closed();
    for segment in segments(&disk) {
        for at in (0..65_536).step_by(1021) {
            let damaged = disk.snapshot();
            flip(&damaged, &segment, at);
            look_closed(&damaged, &told, &format!("{segment} flipped at {at}"));
        }
    }
}

#[test]
fn the_log_damaged_after_a_crash() {
    let (disk, told) = crashed();
    // What is behind the last record that another calls durable cannot be told from a torn end: here the last commits
    // but one may go. All before them are reported.
    let mut may_go = told.clone();
    may_go.durable = told.states.len() - 3;
    for segment in segments(&disk) {
        for at in (0..65_536).step_by(509) {
            let damaged = disk.snapshot();
            flip(&damaged, &segment, at);
            look(&damaged, &may_go, &format!("{segment} flipped at {at}"));
        }
    }
}

/// An open transaction holds the scan's begin back, so that commits before the checkpoint are needed from the log. No
/// commit follows that could vouch for them, but the control file does.
#[test]
fn commits_before_a_checkpoint_cannot_vanish() {
    let disk = SimDisk::new();
    let env = open(&disk).unwrap();
    let mut told = script(&env);
    let holder = env.begin().unwrap();
    holder.bytes("t").unwrap().put(b"never", b"0").unwrap();
    let mut state = told.last().clone();
    for n in 0..5u64 {
        env.transact(|txn| txn.bytes("u")?.put(&key(500 + n), b"kept")).unwrap();
        state.get_mut("u").unwrap().insert(key(500 + n), b"kept".to_vec());
        told.states.push(state.clone());
    }
    told.durable = told.states.len() - 1;
    env.checkpoint().unwrap();
    let disk = disk.after_crash(1);
    drop(holder);
    let (_, control, _) = newest_slot(&disk);
    let (from, to) = (control.scan_lsn.0, control.checkpoint_lsn.0);
    assert!(from + 300 < to, "{from} {to}");
    for lsn in (from..to + 40).step_by(7) {
        let damaged = disk.snapshot();
        flip(&damaged, &format!("log/{}", ledgerstone_log::segment_name(lsn & !0xffff)), lsn & 0xffff);
        let outcome = look(&damaged, &told, &format!("log flipped at LSN {lsn}"));
        assert!(matches!(outcome, Outcome::Told(_)), "LSN {lsn}: {outcome:?}");
    }
}

/// A page that went home before the log lost its end is younger than the log: new records with its LSNs would be taken
/// for old ones.
#[test]
fn a_log_that_ends_before_a_page_is_refused() {
    let disk = SimDisk::new();
    let env = open(&disk).unwrap();
    let told = script(&env);
    env.close().unwrap();
    let before = disk.snapshot();
    let env = open(&disk).unwrap();
    env.transact(|txn| txn.bytes("t")?.put(b"last", b"younger")).unwrap();
    env.close().unwrap();
    // All but the data is that of the older state.
    overwrite(&before, "data", 0, &bytes_of(&disk, "data"));
    let outcome = look(&before, &told, "data younger than the log");
    assert!(matches!(outcome, Outcome::Told(_)), "{outcome:?}");
}

/// A leaf that is as it was before the last checkpoint, under records that go on from what it was at the checkpoint.
/// The records fit the leaf, and what was changed in between would be missing.
#[test]
fn a_page_older_than_its_records_go_on_from_is_refused() {
    let disk = SimDisk::new();
    let env = open(&disk).unwrap();
    let put_every = |nth: usize, value: u8| {
        env.transact(|txn| {
            let t = txn.bytes_or_create("t")?;
            (0..200).skip(nth).step_by(2).try_for_each(|n| t.put(&key(n), &large(value, 100)))
        })
        .unwrap();
        disk.snapshot()
    };
    put_every(0, 1);
    put_every(1, 1);
    env.checkpoint().unwrap();
    let older = disk.snapshot();
    put_every(0, 2);
    env.checkpoint().unwrap();
    let killed = put_every(1, 3);
    let records = |disk: &SimDisk| read(&open(disk)?);
    let expected = records(&killed.snapshot()).unwrap();
    let (old, new) = (bytes_of(&older, "data"), bytes_of(&killed, "data"));
    let mut refused = 0;
    for (no, (old, new)) in old.chunks(4096).zip(new.chunks(4096)).enumerate().filter(|(_, (old, new))| old != new) {
        let damaged = killed.snapshot();
        overwrite(&damaged, "data", no as u64 * 4096, old);
        match records(&damaged) {
            Ok(found) => assert!(found == expected, "page {no}: something is missing, and nobody says so"),
            Err(error) => {
                refused += u64::from(error.to_string().contains("older version of the page"));
                overwrite(&damaged, "data", no as u64 * 4096, new);
                assert!(records(&damaged).unwrap() == expected, "page {no}: {error}, and put back");
            }
        }
    }
    assert!(refused > 3, "{refused} leaves refused");
}

/// What is wrong with a page names it once, with the file and the byte where it begins.
#[test]
fn texts_of_damage_name_the_page_and_its_place_once() {
    let (disk, _) = closed();
    let (mut by_reads, mut by_verify) = (0, 0);
    for page in 0..len_of(&disk, "data") / 4096 {
        let damaged = disk.snapshot();
        let old = bytes_of(&disk, "data")[page as usize * 4096 + 200];
        overwrite(&damaged, "data", page * 4096 + 200, &[old ^ 1]);
        let (name, place) = (format!("page {page}"), format!("in data at byte {}", page * 4096));
        let assert_once = |text: &str| {
            assert_eq!((text.matches(&name).count(), text.matches(&place).count()), (1, 1), "{text}");
            assert_eq!(text.matches("at offset").count(), 1, "{text}");
        };
        let env = match open(&damaged) {
            Ok(env) => env,
            Err(error) => {
                assert_once(&error.to_string());
                continue;
            }
        };
        if let Err(error) = read(&env) {
            by_reads += 1;
            assert_once(&error.to_string());
        }
        for problem in env.verify().unwrap().problems.iter().filter(|problem| problem.page == Some(page)) {
            by_verify += 1;
            assert_once(&format!("{}, page {page}: {}", problem.place, problem.what)); // As the command line writes it.
        }
    }
    assert!(by_reads > 3 && by_verify > 3, "{by_reads} and {by_verify}");
}

#[test]
fn pages_flipped_cut_and_zeroed() {
    let (disk, told) = closed();
    let pages = len_of(&disk, "data") / 4096;
    let mut found = 0;
    for page in 0..pages {
        for (kind, at) in
            [("flipped", 0), ("flipped", 9), ("flipped", 17), ("flipped", 100), ("flipped", 4095), ("zeroed", 0)]
        {
            let damaged = disk.snapshot();
            if kind == "flipped" {
                flip(&damaged, "data", page * 4096 + at);
            } else {
                overwrite(&damaged, "data", page * 4096, &[0; 4096]);
            }
            let what = format!("page {page} {kind} at {at}");
            let outcome = look(&damaged, &told, &what);
            assert!(outcome != Outcome::Prefix, "{what}: commits are missing and nobody says so");
            found += u64::from(outcome != Outcome::Whole);
        }
        if page % 8 == 0 {
            for len in [page * 4096, page * 4096 + 700] {
                let damaged = disk.snapshot();
                cut(&damaged, "data", len);
                look_closed(&damaged, &told, &format!("data cut to {len}"));
            }
        }
    }
    assert!(found > 50, "only {found} damages were noticed");
}

#[test]
fn scans_do_not_go_in_circles_when_a_link_does() {
    let disk = SimDisk::new();
    let env = open(&disk).unwrap();
    env.transact(|txn| {
        let table = txn.bytes_or_create("t")?;
        (0..400).try_for_each(|n| table.put(&key(n), &[n as u8; 200]))
    })
    .unwrap();
    env.close().unwrap();
    let data = bytes_of(&disk, "data");
    let link_of = |page: &[u8]| u64::from_le_bytes(page[40..48].try_into().unwrap());
    // The right siblings of leaves, by the pages that they lie on; a lost write leaves an older one.
    let is_leaf = |page: &[u8]| page[4..8] == [ledgerstone_page::LayoutId::BTREE.0 as u8, 0, 1, 0];
    let linked: Vec<u64> = (0..data.len() / 4096)
        .filter(|no| is_leaf(&data[no * 4096..][..4096]) && link_of(&data[no * 4096..]) != 0)
        .map(|no| no as u64)
        .collect();
    assert!(linked.len() > 10, "{} leaves have a right sibling", linked.len());
    for (at, &no) in linked.iter().enumerate().step_by(7) {
        for target in [no, linked[at / 2]] {
            let damaged = disk.snapshot();
            let mut page = data[no as usize * 4096..][..4096].to_vec();
            if link_of(&page) == target {
                continue;
            }
            page[40..48].copy_from_slice(&target.to_le_bytes());
            ledgerstone_page::checksum::seal(&mut page);
            overwrite(&damaged, "data", no * 4096, &page);
            let found = within(60, "a scan over damaged links", move || {
                let env = open(&damaged)?;
                let count = |txn: ledgerstone::Transaction| -> Result<usize, Error> {
                    let table = txn.bytes("t")?;
                    let back = table.range(..)?.rev().try_fold(0, |n, row| row.map(|_| n + 1))?;
                    assert_eq!(back, 400, "backwards no link is followed");
                    table.range(..)?.try_fold(0, |n, row| row.map(|_| n + 1))
                };
                let locked = count(env.begin()?);
                let snapshot = count(env.snapshot()?);
                assert!(matches!(locked, Err(Error::Corrupt { .. })), "{locked:?}");
                snapshot
            });
            assert!(matches!(found, Err(Error::Corrupt { .. })), "page {no} linked to {target}: {found:?}");
        }
    }
}

#[test]
fn pages_swapped_and_from_another_environment() {
    let (disk, told) = closed();
    let data = bytes_of(&disk, "data");
    for page in [0u64, 1, 2, 3, 4, 128] {
        let other = (page + 1) as usize * 4096;
        let damaged = disk.snapshot();
        overwrite(&damaged, "data", page * 4096, &data[other..other + 4096]);
        let outcome = look(&damaged, &told, &format!("page {page} overwritten by the next"));
        // Page 0 is written at every checkpoint, so the double-write file has it still.
        let is_mended = page == 0 && outcome == Outcome::Whole;
        assert!(is_mended || matches!(outcome, Outcome::Told(_)), "page {page}: {outcome:?}");
    }
    // The data file of another environment.
    let (stranger, _) = closed();
    let damaged = disk.snapshot();
    overwrite(&damaged, "data", 0, &bytes_of(&stranger, "data"));
    let outcome = look(&damaged, &told, "the data of another environment");
    assert!(matches!(outcome, Outcome::Told(_)), "{outcome:?}");
}

#[test]
fn a_file_that_is_missing() {
    for (disk, told) in [closed(), crashed()] {
        let damaged = disk.snapshot();
        damaged.remove("data").unwrap();
        let outcome = look(&damaged, &told, "no data file");
        assert!(matches!(outcome, Outcome::Told(_)), "{outcome:?}");
        assert!(!damaged.exists("data").unwrap(), "an empty data file was made in its place");
    }
    // The double-write file holds nothing that an orderly close needs.
    let (disk, told) = closed();
    let damaged = disk.snapshot();
    damaged.remove("double_write").unwrap();
    assert_eq!(look(&damaged, &told, "no double_write file"), Outcome::Whole);
}

#[test]
fn the_double_write_file_damaged() {
    for (disk, told) in [closed(), crashed()] {
        for at in [0, 8, 12, 16, 24, 32_768, 32_776, 40_000, 100_000] {
            let damaged = disk.snapshot();
            flip(&damaged, "double_write", at);
            look_closed(&damaged, &told, &format!("double_write flipped at {at}"));
        }
        for len in [0, 100, 4096, 32_768, 50_000] {
            let damaged = disk.snapshot();
            cut(&damaged, "double_write", len);
            look_closed(&damaged, &told, &format!("double_write cut to {len}"));
        }
        // A newer format is refused and named.
        let damaged = disk.snapshot();
        let mut header = bytes_of(&damaged, "double_write")[..4096].to_vec();
        header[8] = 4;
        let crc = crc32c::crc32c(&header[..24]);
        header[24..28].copy_from_slice(&crc.to_le_bytes());
        overwrite(&damaged, "double_write", 0, &header);
        let refused = open(&damaged);
        assert!(matches!(refused, Err(Error::NewerFormat { found: 4, supported: 3, .. })), "{refused:?}");
    }
}

#[test]
fn a_torn_page_is_mended_from_the_double_write_file() {
    let (disk, told) = closed();
    // Every page has a whole copy there as long as the area is not used again; the last ones written are sure to.
    let copies = bytes_of(&disk, "double_write");
    let mut mended = 0;
    for copy in copies[32_768..].chunks_exact(4096) {
        let page = u64::from_le_bytes(copy[8..16].try_into().unwrap());
        let home = (page as usize).saturating_mul(4096);
        let data = bytes_of(&disk, "data");
        if copy.iter().all(|&b| b == 0) || data.get(home..home.saturating_add(4096)) != Some(copy) {
            continue; // Empty, a mark, or older.
        }
        let damaged = disk.snapshot();
        overwrite(&damaged, "data", home as u64 + 2048, &[0xAB; 1024]);
        let env = open(&damaged).unwrap();
        assert_eq!(env.recovery_report().torn_pages.len(), 1);
        told.assert_kept(&read(&env).unwrap(), true, "mended");
        assert_sound(&env, "mended");
        mended += 1;
    }
    assert!(mended > 0, "no copy was the newest of its page");
}

fn newest_slot(disk: &SimDisk) -> (u64, ControlState, u64) {
    let bytes = bytes_of(disk, "control");
    (0..2u64)
        .filter_map(|no| match ControlSlot::decode(&bytes[no as usize * 4096..]) {
            ControlSlot::Valid { generation, state } => Some((no, state, generation)),
            _ => None,
        })
        .max_by_key(|slot| slot.2)
        .unwrap()
}

#[test]
fn the_control_file_damaged() {
    for (disk, told) in [closed(), crashed()] {
        let (newest, ..) = newest_slot(&disk);
        for at in [0, 9, 13, 20, 33, 41, 50, 57, 65, 73, 81, 89, 97, 200, 4095] {
            for slot in [newest, 1 - newest] {
                let damaged = disk.snapshot();
                flip(&damaged, "control", slot * 4096 + at);
                look_closed(&damaged, &told, &format!("control slot {slot} (newest {newest}) flipped at {at}"));
            }
            let damaged = disk.snapshot();
            flip(&damaged, "control", at);
            flip(&damaged, "control", 4096 + at);
            let outcome = look(&damaged, &told, &format!("both control slots flipped at {at}"));
            assert!(matches!(outcome, Outcome::Told(_)), "{outcome:?}");
        }
        for len in [0, 1, 100, 4095, 4096, 5000, 8191] {
            let damaged = disk.snapshot();
            cut(&damaged, "control", len);
            look_closed(&damaged, &told, &format!("control cut to {len}"));
        }
    }
}

/// Checksums right, contents absurd: as good as bytes from a stranger.
#[test]
fn a_control_file_that_lies() {
    type Change = fn(&mut ControlState);
    let changes: [(&str, Change); 11] = [
        ("page size 0", |s| s.page_bytes = 0),
        ("page size 4097", |s| s.page_bytes = 4097),
        ("page size 1 GiB", |s| s.page_bytes = 1 << 30),
        ("segments of 0 bytes", |s| s.segment_bytes = 0),
        ("segments of 3 bytes", |s| s.segment_bytes = 3),
        ("segments of 2^63 bytes", |s| s.segment_bytes = 1 << 63),
        ("scan from 0", |s| s.scan_lsn = ledgerstone::Lsn(0)),
        ("scan from an odd place", |s| s.scan_lsn = ledgerstone::Lsn(4099)),
        ("scan from far away", |s| s.scan_lsn = ledgerstone::Lsn(1 << 60)),
        ("scan incarnation of the future", |s| s.scan_incarnation += 1 << 40),
        ("largest incarnation", |s| s.incarnation_max = u64::MAX),
    ];
    for (disk, told) in [closed(), crashed()] {
        for (what, change) in changes {
            let damaged = disk.snapshot();
            let (_, mut state, generation) = newest_slot(&damaged);
            change(&mut state);
            let slot = state.encode(generation + 1);
            overwrite(&damaged, "control", (generation + 1) % 2 * 4096, &slot);
            let outcome = look(&damaged, &told, what);
            assert!(matches!(outcome, Outcome::Told(_)), "{what}: {outcome:?}");
        }
    }
}

#[test]
fn a_newer_format_is_refused_and_named() {
    let (disk, _) = closed();
    let (no, state, generation) = newest_slot(&disk);
    let mut slot = state.encode(generation);
    slot[12..16].copy_from_slice(&7u32.to_le_bytes());
    let crc = crc32c::crc32c(&slot[12..]);
    slot[8..12].copy_from_slice(&crc.to_le_bytes());
    let newer = disk.snapshot();
    overwrite(&newer, "control", no * 4096, &slot);
    let refused = open(&newer);
    assert!(matches!(refused, Err(Error::NewerFormat { found: 7, supported: 2, .. })), "{refused:?}");
}

/// Fails unless opening says both numbers, the file, and for an older one what to do.
fn assert_other_format(disk: &SimDisk, path: &str, numbers: (u32, u32)) {
    let error = open(disk).expect_err(path);
    let text = error.to_string();
    match error {
        Error::OlderFormat { found, supported, .. } if found < supported => {
            assert_eq!((found, supported), numbers, "{text}");
            assert!(text.contains("only: ") && text.contains("version that wrote it"), "{text}");
        }
        Error::NewerFormat { found, supported, .. } if found > supported => {
            assert_eq!((found, supported), numbers, "{text}")
        }
        other => panic!("{path}: {other:?}"),
    }
    assert!(text.contains(path), "{text}");
}

#[test]
fn every_file_of_another_format_is_named_with_both_numbers_and_what_to_do() {
    let disk = SimDisk::new();
    let env = open(&disk).unwrap();
    env.transact(|txn| txn.bytes_or_create("shop")?.put(b"k", b"v")).unwrap();
    let mut feed = env.named_changes("mirror").unwrap();
    feed.acknowledge(env.durable_lsn()).unwrap();
    drop(feed);
    env.close().unwrap();
    // Of data before anything is written, also after a crash.
    let killed = {
        let disk = disk.snapshot();
        let env = open(&disk).unwrap();
        env.transact(|txn| txn.bytes("shop")?.put(b"k", b"w")).unwrap();
        disk.after_crash(5)
    };
    for disk in [&disk, &killed] {
        for format in [1u32, 3] {
            let other = disk.snapshot();
            let mut page = bytes_of(&other, "data")[..4096].to_vec();
            page[48..52].copy_from_slice(&format.to_le_bytes());
            ledgerstone_page::checksum::seal(&mut page);
            overwrite(&other, "data", 0, &page);
            let before = other.fingerprint();
            assert_other_format(&other, "data", (format, 2));
            assert_eq!(other.fingerprint(), before, "something was written");
        }
    }
    for format in [2u8, 4] {
        let other = disk.snapshot();
        // The only value of the catalog, whose root is page 2: format, kind, no types and no indexes.
        let mut page = bytes_of(&disk, "data")[2 * 4096..3 * 4096].to_vec();
        let at = page.windows(8).rposition(|bytes| bytes == [3, 1, 0, 0, 0, 0, 0, 0]).expect("the entry of the table");
        page[at] = format;
        ledgerstone_page::checksum::seal(&mut page);
        overwrite(&other, "data", 2 * 4096, &page);
        assert_other_format(&other, "catalog entry of table \"shop\"", (format.into(), 3));
    }
    for format in [1u8, 3] {
        let other = disk.snapshot();
        let mut bytes = bytes_of(&other, "feeds");
        bytes[8] = format;
        let body = bytes.len() - 4;
        let crc = crc32c::crc32c(&bytes[..body]).to_le_bytes();
        bytes[body..].copy_from_slice(&crc);
        overwrite(&other, "feeds", 0, &bytes);
        assert_other_format(&other, "feeds", (format.into(), 2));
    }
}

#[test]
fn an_environment_that_was_refused_can_be_opened_when_it_is_mended() {
    let (disk, told) = closed();
    let page = bytes_of(&disk, "data")[2 * 4096..3 * 4096].to_vec();
    overwrite(&disk, "data", 2 * 4096, &[9; 4096]);
    overwrite(&disk, "double_write", 32_768, &vec![0; len_of(&disk, "double_write") as usize - 32_768]);
    for _ in 0..20 {
        let options: Result<Environment, Error> = tiny().open_on(Arc::new(disk.clone()));
        if let Ok(env) = options {
            assert!(read(&env).is_err());
        }
    }
    overwrite(&disk, "data", 2 * 4096, &page);
    let env = open(&disk).unwrap();
    told.assert_kept(&read(&env).unwrap(), true, "mended");
    assert_sound(&env, "mended");
}
