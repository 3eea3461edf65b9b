//! Power is lost at any write, by many threads under the seeded scheduler, life after life of one log with recycled
//! segments. Every durable record is found, in its place. Nothing from an earlier life is ever read as new.
#![cfg(not(loom))]

mod kit;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use kit::*;
use ledgerstone_disk::{Disk, Open, SimDisk};
use ledgerstone_log::{
    Beginning, FIRST_LSN, LOG_DIR, Log, LogConfig, LogError, LogFiles, LogReader, RecordKind, segment_start,
};
use ledgerstone_page::Lsn;
use ledgerstone_region::Random;
use ledgerstone_region::sync::{self, Scheduler};

/// What a life of the log has appended, and what of it was durable.
#[derive(Default)]
struct Life {
    /// By LSN: the number.
    appended: BTreeMap<u64, u64>,
    durable: u64,
}

/// Where a recovery would begin, as a control file keeps it.
#[derive(Clone, Copy)]
struct Control {
    scan: Lsn,
    incarnation: u64,
    incarnation_max: u64,
}

#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Life>>);

impl Shared {
    fn appended(&self, lsn: Lsn, no: u64) {
        self.0.lock().unwrap().appended.insert(lsn.0, no);
    }

    fn durable(&self, lsn: Lsn) {
        let mut life = self.0.lock().unwrap();
        life.durable = life.durable.max(lsn.0);
    }
}

/// F1, F6: whatever the power takes, a segment that has its name has its length.
#[test]
fn a_segment_that_has_its_name_is_whole() {
    let mut found_count = 0;
    for n in 1..80 {
        let disk = SimDisk::new();
        disk.crash_at(n);
        let _ended = Log::open(config(Arc::new(disk.clone())))
            .and_then(|log| (0..60).try_for_each(|no| append_one(&log, no, 1500).and_then(|lsn| log.flush_to(lsn))));
        for seed in 0..4 {
            let after = disk.after_crash(seed);
            let names = after.list(LOG_DIR).unwrap_or_default();
            for name in names.iter().filter(|name| segment_start(name).is_some()) {
                let file = after.open(&format!("{LOG_DIR}/{name}"), Open::READ).unwrap();
                assert_eq!(file.len().unwrap(), SEGMENT_BYTES, "{name} after a crash at {n}, seed {seed}");
                found_count += 1;
            }
        }
    }
    assert!(found_count > 300, "{found_count}");
}

fn client(log: &Log, shared: &Shared, thread: u64, seed: u64) -> Result<(), LogError> {
    let mut random = Random::new(seed ^ thread << 32);
    for round in 0..40 {
        let mut claim = if random.below(8) == 0 { log.claim_undo(1600) } else { log.claim(1600) }?;
        let mut lsn = Lsn(0);
        for _ in 0..1 + random.below(3) {
            let no = (thread * 100 + round) * 4 + random.below(4);
            // Records that end where a block does are the ones behind which an old record may lie: have many.
            let bytes = match seed % 2 {
                0 => random.below(400) as usize,
                _ => bytes_for(no, 256 << random.below(2)),
            };
            lsn = append(log, &mut claim, no, bytes);
            shared.appended(lsn, no);
        }
        log.give_back(claim);
        match random.below(5) {
            0 | 1 => {
                log.flush_to(lsn)?;
                shared.durable(lsn);
            }
            2 => log.request_flush(lsn),
            3 => log.request_flush_soon(lsn),
            _ => {}
        }
        if random.below(6) == 0 {
            match log.read(lsn) {
                Ok(record) => _ = number_of(&record),
                Err(LogError::Recycled { .. } | LogError::Disk(_)) => {}
                Err(error) => panic!("{error}"),
            }
        }
        let durable = log.durable_lsn();
        if durable.0 > 0 {
            shared.durable(Lsn(durable.0 - 8));
        }
    }
    Ok(())
}

/// One life: threads append until they are done or the power fails. Returns what was appended, and the new control.
fn live(disk: &SimDisk, control: Control, seed: u64) -> (Life, Control) {
    let shared = Shared::default();
    let control = Arc::new(Mutex::new(control));
    let (outer, kept) = (shared.clone(), Arc::clone(&control));
    Scheduler::run(seed, || {
        let known = *control.lock().unwrap();
        let disk: Arc<dyn Disk> = Arc::new(disk.clone());
        let mut scan =
            scan(Arc::clone(&disk), known.scan, known.incarnation).with_incarnation_max(known.incarnation_max);
        let Ok(_) = read_all(&mut scan) else { return };
        // Some were opened often in between, and left nothing.
        let next = known.incarnation_max + [1, 1, 3000, 70_000][seed as usize % 4];
        control.lock().unwrap().incarnation_max = next;
        let opened = Log::open(LogConfig {
            end: scan.end(),
            incarnation: scan.incarnation(),
            incarnations: scan.incarnations().to_vec(),
            next_incarnation: Some(next),
            ..config(disk)
        });
        let log = match opened {
            Ok(log) => log,
            Err(error) => return assert!(error.is_crashed(), "{error}"),
        };
        // After the 32 bytes of the incarnation all records begin at multiples of 256, in half of the lives.
        match append_one(&log, 1000, bytes_for(1000, 480)) {
            Ok(lsn) => shared.appended(lsn, 1000),
            Err(error) => return assert!(error.is_crashed(), "{error}"),
        }
        log.start_flusher().unwrap();
        let threads: Vec<_> = (0..3)
            .map(|thread| {
                let (log, shared) = (Arc::clone(&log), shared.clone());
                sync::spawn("client", move || client(&log, &shared, thread, seed))
            })
            .collect();
        // Checkpoints: what is durable and old is given up, after the control says so.
        for round in 0..6 {
            sync::sleep_ns(1000);
            let low = {
                let life = shared.0.lock().unwrap();
                let end = life.durable.saturating_sub(1000 + round * 1000);
                life.appended.range(..end).next_back().map(|(lsn, _)| Lsn(*lsn))
            };
            let mut next = control.lock().unwrap();
            let Some(low) = low.filter(|low| *low > next.scan) else { continue };
            (next.scan, next.incarnation) = (low, log.incarnation_at(low));
            drop(next);
            if let Err(error) = log.recycle_before(low) {
                assert!(error.is_crashed(), "{error}");
            }
        }
        for thread in threads {
            if let Err(error) = thread.join().unwrap() {
                assert!(error.is_crashed(), "{error}");
            }
        }
        log.stop_flusher();
        assert!(log.is_failed() || log.stat().claimed_bytes == 0);
    })
    .unwrap();
    let life = std::mem::take(&mut *outer.0.lock().unwrap());
    let control = *kept.lock().unwrap();
    (life, control)
}

/// Reads the log as a recovery would, and compares. `logged` is all that was ever appended and not cut off.
fn verify(
    disk: &SimDisk,
    control: Control,
    logged: &mut BTreeMap<u64, u64>,
    life: &Life,
    seed: u64,
) -> Result<(), String> {
    let mut reader =
        scan(Arc::new(disk.clone()), control.scan, control.incarnation).with_incarnation_max(control.incarnation_max);
    let records = read_all(&mut reader).map_err(|error| format!("seed {seed}: {error}"))?;
    for (lsn, no) in &life.appended {
        logged.insert(*lsn, *no);
    }
    if life.durable > 0 && reader.end().0 <= life.durable {
        return Err(format!("seed {seed}: the log ends at {}, durable was {}", reader.end().0, life.durable));
    }
    let mut expected = logged.range(control.scan.0..);
    for record in records.iter().filter(|record| record.kind() != RecordKind::Incarnation) {
        let next = expected.next();
        let found = (record.lsn().0, u64::from_le_bytes(record.body()[8..16].try_into().unwrap()));
        if next != Some((&found.0, &found.1)) {
            return Err(format!("seed {seed}: read {found:?}, appended was {next:?}"));
        }
    }
    // A reader that is told the end only finds all that was kept, and the same records.
    let known = Some(Beginning { lsn: control.scan, incarnation: control.incarnation });
    let (disk, incarnation_max) = (Arc::new(disk.clone()), control.incarnation_max);
    let (environment, segment_bytes, end) = (ENVIRONMENT, SEGMENT_BYTES, Some(reader.end()));
    for known in [known, None] {
        let disk: Arc<dyn Disk> = disk.clone();
        let files = LogFiles { disk, environment, segment_bytes, known, incarnation_max, end };
        let mut all = LogReader::of_files(files, Lsn(0)).map_err(|error| format!("seed {seed}: a reader: {error}"))?;
        let mut found = Vec::new();
        while let Some(record) = all.next().map_err(|error| format!("seed {seed}: a reader: {error}"))? {
            found.push(record.lsn());
        }
        let behind = found.iter().copied().filter(|lsn| *lsn >= control.scan);
        if !behind.eq(records.iter().map(|record| record.lsn())) {
            return Err(format!("seed {seed}: a reader from {:?} has other records than the scan", found.first()));
        }
    }
    // What lies behind was cut off by the crash.
    logged.retain(|lsn, _| *lsn < reader.end().0);
    Ok(())
}

fn lives(seed: u64) -> Result<(), String> {
    let mut random = Random::new(seed);
    let mut disk = SimDisk::new();
    let mut logged = BTreeMap::new();
    let mut control = Control { scan: FIRST_LSN, incarnation: 1, incarnation_max: 1 };
    for _ in 0..6 {
        disk.set_hook(Arc::new(sync::yield_point));
        disk.crash_at(5 + random.below(90));
        let (life, next) = live(&disk, control, random.number());
        control = next;
        disk = disk.after_crash(random.number());
        verify(&disk, control, &mut logged, &life, seed)?;
    }
    Ok(())
}

#[test]
fn every_durable_record_survives_and_no_stale_one_is_read() {
    let first: u64 = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    for seed in first..first + 60 {
        lives(seed).unwrap();
    }
}

#[test]
fn damage_below_a_durable_lsn_is_told_from_the_end() {
    let sim = SimDisk::new();
    let disk: Arc<dyn Disk> = Arc::new(sim.clone());
    let log = new_log(Arc::clone(&disk));
    let mut lsns = Vec::new();
    for no in 0..60 {
        lsns.push(append_one(&log, no, 700).unwrap());
        log.flush().unwrap();
    }
    drop(log);
    let file = |lsn: Lsn| {
        let path = format!("log/{}", ledgerstone_log::segment_name(lsn.0 & !(SEGMENT_BYTES - 1)));
        disk.open(&path, ledgerstone_disk::Open::EXISTING).unwrap()
    };
    for no in [0, 5, 22, 58] {
        let sane = sim.snapshot();
        let at = lsns[no].0 + 100;
        let mut byte = [0];
        file(Lsn(at)).read_at(at % SEGMENT_BYTES, &mut byte).unwrap();
        file(Lsn(at)).write_at(at % SEGMENT_BYTES, &[byte[0] ^ 1]).unwrap();
        match read_all(&mut scan(Arc::clone(&disk), FIRST_LSN, 1)) {
            Err(LogError::Corrupt { lsn, witness, durable, .. }) => {
                assert_eq!(lsn, lsns[no]);
                assert!(witness > lsn && durable > lsn);
            }
            other => panic!("{other:?}"),
        }
        file(Lsn(at)).write_at(at % SEGMENT_BYTES, &byte).unwrap();
        drop(sane);
        assert_eq!(read_all(&mut scan(Arc::clone(&disk), FIRST_LSN, 1)).unwrap().len(), 60);
    }
    // Behind the last commit nothing proves anything: this is where a log ends that lost its last write.
    let at = lsns[59].0 + 100;
    file(Lsn(at)).write_at(at % SEGMENT_BYTES, &[0, 1, 2]).unwrap();
    let mut reader = scan(Arc::clone(&disk), FIRST_LSN, 1);
    assert_eq!(read_all(&mut reader).unwrap().len(), 59);
    assert_eq!(reader.end(), lsns[59]);
    // A segment that is missing is damage as well.
    disk.remove(&format!("log/{}", ledgerstone_log::segment_name(SEGMENT_BYTES))).unwrap();
    let missing = read_all(&mut scan(disk, FIRST_LSN, 1));
    assert!(matches!(missing, Err(LogError::Corrupt { .. })), "{missing:?}");
}
