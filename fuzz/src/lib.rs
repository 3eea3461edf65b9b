//! What the fuzz targets run, as functions that any bytes can be given to. The targets under `fuzz_targets/` hand them
//! to libFuzzer; the test below runs them on some thousands of inputs without it, so that they are awake in every run
//! of `make test`.
//!
//! Each must end, and panic on nothing; and whatever it accepts must be consistent.

use std::sync::Arc;

use ledgerstone_disk::{Disk, Open, SimDisk};
use ledgerstone_log::{Beginning, ControlSlot, LogFiles, LogReader, Seal, decode, print, segment_name};
use ledgerstone_page::{Layouts, Lsn, PageId, checksum};
use ledgerstone_recovery::backup::{BackupDisk, BackupFile};
use ledgerstone_region::PageBuf;

/// A log record: decoded, checked, printed, and taken apart.
pub fn records(bytes: &[u8]) {
    let lsn = Lsn(4096);
    let Ok(record) = decode(lsn, bytes) else { return };
    assert!(record.bytes().len() <= bytes.len());
    assert!(record.end().0 > lsn.0, "a record without length would be read for ever");
    let _ = record.check(&Seal::new([7; 16], 1));
    for part in record.parts().flatten() {
        assert!(part.args.len() <= bytes.len());
    }
    let _ = print(record, &|_, _| None);
    let _ = print(record, &|_, args| Some(format!("{} bytes", args.len())));
    let copy = record.to_record();
    assert_eq!(copy.view().bytes(), record.bytes());
}

/// A page: its checksum, then every layout's check and print. The last byte chooses the page size.
pub fn pages(bytes: &[u8]) {
    let size = [4096, 8192, 32768][usize::from(bytes.last().copied().unwrap_or(0)) % 3];
    let mut page = bytes.to_vec();
    page.resize(size, 0);
    let _ = checksum::verify(&page, PageId(1));
    let buf = PageBuf::from_bytes(&page);
    let mut layouts = Layouts::basic();
    ledgerstone_structures::register_layouts(&mut layouts).expect("the layouts have different ids");
    let _ = layouts.check(buf.words());
    let _ = layouts.print(buf.words());
    for layout in layouts.iter() {
        let _ = layout.check(buf.words());
        let _ = layout.print(buf.words());
    }
}

/// A slot of the control file.
pub fn control(bytes: &[u8]) {
    if let ControlSlot::Valid { generation, state } = ControlSlot::decode(bytes) {
        assert_eq!(ControlSlot::decode(&state.encode(generation)), ControlSlot::Valid { generation, state });
    }
}

/// An import file, in every format.
pub fn rows(bytes: &[u8]) {
    ledgerstone_cli::rows::exercise(bytes);
}

/// A line of the shell: taken apart, parsed, and its words quoted and read back.
pub fn shell(bytes: &[u8]) {
    ledgerstone_cli::shell::command::exercise(&String::from_utf8_lossy(bytes));
}

/// A settings file: settings or problems, each with a line of the file.
pub fn config(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    match ledgerstone::Config::parse(&text) {
        Ok(config) => assert_eq!(ledgerstone::Config::parse(&text), Ok(config)),
        Err(problems) => {
            assert!(!problems.is_empty());
            let line_count = 1 + text.bytes().filter(|&byte| byte == b'\n').count();
            for problem in problems {
                assert!((1..=line_count).contains(&problem.line), "{problem}");
                assert!(!problem.what.is_empty());
            }
        }
    }
}

/// A hostile sender at a port, and what comes from the network.
pub fn ports(bytes: &[u8]) {
    ledgerstone_port::hostile::exercise(bytes);
}

/// Results of a probe, as `probe compare` reads them: everything that is made of them.
pub fn probe(bytes: &[u8]) {
    use ledgerstone_probe::{Report, advice, claims, show, verdict};
    let Ok(report) = Report::read("any", bytes) else { return };
    let _ = (show::terminal(&report), show::compare(&report, &report));
    let page = show::html(&report);
    assert!(!page.contains("<script"), "names are shown as text");
    assert_eq!(claims::judge(&report).len(), 22);
    assert_eq!(verdict::rate(&report).len(), 7);
    let settings = advice::fragment(&report, &advice::advise(&report));
    let taken = ledgerstone::config::Config::parse(&settings);
    assert!(taken.is_ok(), "an environment refuses what is advised: {taken:?} in {settings}");
}

/// A dump: read to its end or to what is wrong with it.
pub fn dumps(bytes: &[u8]) {
    let mut reader = ledgerstone_dump::DumpReader::new(bytes);
    let mut inside = false;
    while let Ok(Some(item)) = reader.next() {
        match item {
            ledgerstone_dump::DumpItem::Database(_) => {
                assert!(!inside, "a database within another");
                inside = true;
            }
            ledgerstone_dump::DumpItem::Record { key, value } => {
                assert!(inside && key.len() + value.len() <= bytes.len() + 4);
            }
            ledgerstone_dump::DumpItem::End => inside = false,
        }
    }
}

/// The log as files: read forward to its end or to what is wrong, and back again; and what each record says of tables.
pub fn log_reader(bytes: &[u8]) {
    const SEGMENT_BYTES: usize = 16 << 10;
    let disk = SimDisk::new();
    let file = |no: usize| format!("log/{}", segment_name((no * SEGMENT_BYTES) as u64));
    let mut log = vec![0; 4096];
    log.extend_from_slice(&bytes[..bytes.len().min(4 * SEGMENT_BYTES)]);
    disk.create_dir("log").expect("an empty disk");
    for (no, piece) in log.chunks(SEGMENT_BYTES).enumerate() {
        disk.open(&file(no), Open::CREATE).and_then(|file| file.write_at(0, piece)).expect("an empty disk");
    }
    let end = Some(Lsn(log.len() as u64 & !7));
    let files = LogFiles {
        disk: Arc::new(disk),
        environment: [7; 16],
        segment_bytes: SEGMENT_BYTES as u64,
        known: Some(Beginning { lsn: Lsn(4096), incarnation: 1 }),
        incarnation_max: 3,
        end: end.filter(|_| !bytes.len().is_multiple_of(3)),
    };
    let Ok(mut reader) = LogReader::of_files(files, Lsn(0)) else { return };
    let mut forward = Vec::new();
    while let Ok(Some(record)) = reader.next() {
        let _ = ledgerstone_structures::record_change(record.view().op(), record.view().args());
        let parts = record.view().parts().map_while(Result::ok);
        let _ = ledgerstone_structures::loaded_leaf(parts.map(|part| (part.op, part.args)));
        forward.push(record.lsn());
    }
    let mut backward = Vec::new();
    while let Ok(Some(record)) = reader.prev() {
        backward.push(record.lsn());
    }
    backward.reverse();
    assert!(backward.is_empty() || backward == forward, "{forward:?} forward, {backward:?} back");
}

/// A backup file: opened, checked, and read as a disk.
pub fn backups(bytes: &[u8]) {
    let disk = SimDisk::new();
    let file = disk.open("x", Open::CREATE).expect("an empty disk");
    file.write_at(0, bytes).expect("an empty disk");
    let Ok(backup) = BackupFile::open(file) else { return };
    let _ = backup.check_frames(&mut |_| Ok(()));
    if let Ok(chain) = BackupDisk::new(vec![backup]) {
        let _ = ledgerstone_recovery::backup::verify(&chain, &mut |_, _| std::ops::ControlFlow::Continue(()));
    }
}

#[cfg(test)]
mod tests {
    use ledgerstone_log::{ControlState, NewRecord, RecordKind, group_body};
    use ledgerstone_page::{OpId, Xid};

    use super::*;

    struct Random(u64);

    impl Random {
        fn below(&mut self, bound: usize) -> usize {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) as usize % bound.max(1)
        }
    }

    /// Runs a body on nothing, on noise, and on good inputs with a few bytes changed, cut or doubled.
    fn awake(rounds: u64, body: fn(&[u8]), good: &[Vec<u8>], interesting: &[u8]) {
        body(b"");
        good.iter().for_each(|input| body(input));
        let mut random = Random(1);
        for _ in 0..rounds {
            let mut input = if random.below(4) == 0 {
                (0..random.below(300)).map(|_| interesting[random.below(interesting.len())]).collect()
            } else {
                good[random.below(good.len())].clone()
            };
            for _ in 0..=random.below(6) {
                let at = random.below(input.len());
                match random.below(4) {
                    _ if input.is_empty() => input.push(0),
                    0 => input.truncate(at),
                    1 => input.extend_from_within(at..),
                    2 => input[at] = interesting[random.below(interesting.len())],
                    _ => input[at] = random.below(256) as u8,
                }
            }
            body(&input);
        }
    }

    #[test]
    fn records_survive_any_bytes() {
        let seal = Seal::new([7; 16], 1);
        let mut group = Vec::new();
        let parts: [(PageId, OpId, Lsn, &[u8]); 2] =
            [(PageId(3), OpId(33), Lsn(4096), b"arguments"), (PageId(4), OpId(34), Lsn(0), b"")];
        group_body(&mut group, parts);
        let make = |kind: RecordKind, body: &[u8]| {
            let page = kind.has_page().then_some((PageId(9), Lsn(4096)));
            NewRecord { kind, xid: Xid(5), prev_lsn: Lsn(4096), op: OpId(33), flags: 0, page, body: &[body] }
                .encode(Lsn(4096), &seal)
        };
        let good: Vec<_> = RecordKind::ALL
            .into_iter()
            .map(|kind| make(kind, if kind == RecordKind::Group { &group } else { &[1; 24] }))
            .collect();
        awake(3_000, records, &good, &[0, 1, 2, 7, 8, 0x7f, 0x80, 0xff]);
    }

    #[test]
    fn pages_survive_any_bytes() {
        let good: Vec<_> = (0..9_u8)
            .map(|layout| {
                let mut page = vec![0; 200];
                (page[4], page[6], page[8], page[40], page[42]) = (layout, 1, 1, 1, 180);
                page
            })
            .collect();
        awake(1_000, pages, &good, &[0, 1, 4, 5, 40, 0x10, 0x7f, 0x80, 0xff]);
    }

    #[test]
    fn control_slots_survive_any_bytes() {
        let good = [ControlState::new([7; 16], 4096, 1 << 24).encode(1).to_vec()];
        awake(3_000, control, &good, &[0, 1, 0x7f, 0x80, 0xff]);
    }

    #[test]
    fn rows_survive_any_bytes() {
        let good = [
            b"a,b\n1,\"x \"\"y\"\"\nz\"\n2,3\n".to_vec(),
            b"a\tb\n1\\t\t2\n".to_vec(),
            b"{\"a\":1,\"b\":[{}]}\n{}\n".to_vec(),
        ];
        awake(3_000, rows, &good, b"\",;\t\n\r\\{}[]:0a\xff\xef\xbb\xbf");
    }

    #[test]
    fn shell_lines_survive_any_bytes() {
        let good = [
            b"@a put t 'a b' \"\\x00\\n\"".to_vec(),
            b"scan t from x'00ff' to u64:7 reverse limit 10 keys".to_vec(),
            b"begin a snapshot read-only timeout 10ms durability async # why".to_vec(),
            b"rollback to s".to_vec(),
        ];
        awake(5_000, shell, &good, b"'\"\\x0n#@ :u64i32=\t\n\xff\xc2\xa0");
    }

    #[test]
    fn settings_files_survive_any_bytes() {
        let good = [
            b"# ours\ncache_bytes = \"64M\"\nreplacement = 'lru'\n".to_vec(),
            b"lock_timeout_ms = 0x10\npage_bytes = 4096\n[a]\nb = [1, {c = 1.5}]\n".to_vec(),
            b"durability = \"\"\"\nsync\"\"\"\nescalate_after = -1\nd = 2026-01-01\n".to_vec(),
        ];
        awake(5_000, config, &good, b"=\"'[]{}#.,\n\r\t0-9_xKMs\xff\xef\xbb\xbf\\");
    }

    #[test]
    fn ports_survive_any_bytes() {
        awake(200, ports, &[vec![1; 48], (0..=255).collect()], &[0, 1, 2, 3, 4, 5, 6, 7, 8, 0x80, 0xff]);
    }

    #[test]
    fn probe_results_survive_any_bytes() {
        let good = [include_bytes!("../../crates/probe/tests/report.json").to_vec()];
        awake(1_500, probe, &good, b"\",:{}[]-+.eE019ntf\\\x00\xff");
    }

    #[test]
    fn dumps_survive_any_bytes() {
        let good = [
            b"VERSION=3\nformat=print\ndatabase=a\ntype=btree\nHEADER=END\n k\\00\n v\n \n \nDATA=END\n".to_vec(),
            b"VERSION=3\nformat=bytevalue\ntype=recno\nkeys=1\nHEADER=END\n 31\n 61\nDATA=END\n".to_vec(),
            b"VERSION=2\nformat=bytevalue\ntype=queue\nre_len=3\nHEADER=END\n 616263\nDATA=END\n".to_vec(),
        ];
        awake(3_000, dumps, &good, b"=\n \\09afVERSIONDATAEND\xff\0");
    }

    #[test]
    fn the_log_reader_survives_any_bytes() {
        let mut log = Vec::new();
        let mut seal = Seal::new([7; 16], 1);
        for no in 0..200_u64 {
            let kind = if no == 90 { RecordKind::Incarnation } else { RecordKind::ALL[no as usize % 6] };
            let page = kind.has_page().then_some((PageId(9), Lsn(4096)));
            let mut body = vec![no as u8; 24 + no as usize];
            body[..8].copy_from_slice(&2_u64.to_le_bytes());
            let body = if kind == RecordKind::Group { &[][..] } else { &body };
            let record = NewRecord { kind, xid: Xid(5), prev_lsn: Lsn(0), op: OpId(33), flags: 0, page, body: &[body] };
            log.extend(record.encode(Lsn(4096 + log.len() as u64), &seal));
            if kind == RecordKind::Incarnation {
                seal = Seal::new([7; 16], 2);
            }
        }
        log_reader(&log);
        awake(100, log_reader, &[log.clone(), log[..1000].to_vec(), Vec::new()], &[0, 1, 4, 7, 10, 0x80, 0xff]);
    }

    #[test]
    fn backups_survive_any_bytes() {
        let disk = SimDisk::new();
        let env = ledgerstone::Environment::options().cache_bytes(1 << 20).log_segment_bytes(64 << 10);
        let env = env.page_count_max(1 << 14).open_on(Arc::new(disk)).expect("an empty disk");
        env.transact(|txn| txn.bytes_or_create("t")?.put(b"k", &[1; 5000])).expect("an empty disk");
        let mut good = Vec::new();
        env.backup_to(&mut good, ledgerstone::BackupOptions::default(), |_| ()).expect("an empty disk");
        backups(&good);
        awake(200, backups, &[good.clone(), good[..4200].to_vec()], &[0, 1, 2, 3, 4, 16, 0x80, 0xff]);
    }
}
