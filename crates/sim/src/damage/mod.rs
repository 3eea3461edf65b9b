//! The damage harness: one random damage of one file, after any end of a life, and what the engine says of it.
//!
//! A round is one life of an environment with a backup and an archive; it ends by a close, a kill or a loss of power.
//! Then one file of the environment, of the backups or of the archive is damaged. Bits are flipped, or the file is
//! cut, emptied or removed. Two blocks are swapped, a block is zeroed, or a block or the whole file is replaced by an
//! earlier state. What must hold:
//!
//! - X1. Opening and reading bring all that was acknowledged, and nothing else, or an error that says what is damaged.
//! - X2. What was refused is whole again when the file is put back: nothing was written over what it needs.
//! - X3. What went on is sound: what is committed afterwards survives the next loss of power.
//! - X4. Everything that was committed before the last backup or archived segment comes back from them. If one of
//!   their files is damaged, that is still so, or the restore is refused, or the restore brings an earlier state and
//!   says what it left out.
//! - X5. In no case a panic or a hang.
//! - X6. A named feed shows all that was committed since it acknowledged something, or says that it cannot.
//!
//! What cannot be detected is listed in `docs/faults.md`, and here as `Excuse`: each says how much may be missing.
//! Whatever is excused is counted under its name.

pub mod raw;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ledgerstone::{ArchiveDirectory, Backup, BackupOptions, Environment, Error, IndexDef, IndexKeys, RestoreTo};
use ledgerstone_disk::{Disk, Open, SimDisk};

use crate::counters::Counters;
use crate::crash::ground::{blank, over};
use crate::faults::round::simulate;
use ledgerstone_region::Random;

const TABLES: [&str; 2] = ["t0", "t1"];
const BLOCK: usize = 4096;
/// The named feed.
const FEED: &str = "told";
/// Where its position is kept.
const FEEDS: &str = "feeds";

/// Records by table.
type State = BTreeMap<String, BTreeMap<Vec<u8>, Vec<u8>>>;

#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Closed,
    Killed,
    PowerLost,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Flip,
    Cut,
    Empty,
    Remove,
    Swap,
    Zero,
    OldBlock,
    OldFile,
}

/// Why a damage may pass unseen. The list for people is in `docs/faults.md`.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Excuse {
    /// Whatever comes must be all of it or an error.
    None,
    /// Other bytes near the end of a log that was not closed look like a flush that the crash cut short. Commits since
    /// the last checkpoint may be missing from the end.
    LogEnd,
    /// A page that was whole once, with a good checksum, is that page as it was. It may be found when it has been
    /// changed again, and then the page that is put back lacks that change.
    OldPage,
    /// With an earlier file of their positions, named feeds are elsewhere, and what they need of the log may have been
    /// given up. Nothing else may differ.
    FeedElsewhere,
}

/// One life, and what is left of it.
struct Life {
    env: SimDisk,
    backups: SimDisk,
    archive: SimDisk,
    /// The three as they were at some moment before.
    older: [SimDisk; 3],
    /// After each commit; all were acknowledged as durable.
    states: Vec<State>,
    /// The commits up to here lie before the last checkpoint.
    checkpointed: usize,
    /// The feed has acknowledged the commits up to here.
    told: usize,
    end: End,
    /// What backups and archive bring back together.
    restored: usize,
    /// What had been committed when each backup was taken, and when the archive was filled last.
    backed_up: Vec<usize>,
    archived: usize,
}

impl Life {
    /// What is left when the newest backup, or the newest segment of the archive, is missing: nobody can know of it
    /// (`docs/faults.md`). `None` for other damage.
    fn left_without_newest(&self, place: usize, path: &str, kind: Kind) -> Option<usize> {
        let files = [&self.env, &self.backups, &self.archive][place].files();
        let newest = files.iter().rfind(|file| file.ends_with(".backup") || file.starts_with("log/"))?;
        let is_newest = path.split('.').next() == newest.split('.').next();
        let [.., before, newest] = self.backed_up[..] else { return None };
        match (place, kind) {
            (1, Kind::Remove) if is_newest => Some(before.max(self.archived)),
            (2, Kind::Remove | Kind::OldFile) if is_newest => Some(newest),
            _ => None,
        }
    }
}

impl Life {
    /// X6.
    fn check_feed(&self, found: &State, shown: &Keys) -> Result<(), Vec<String>> {
        let nothing = BTreeMap::new();
        for name in TABLES {
            let then = self.states[self.told].get(name).unwrap_or(&nothing);
            let now = found.get(name).unwrap_or(&nothing);
            let mut changed = then.keys().chain(now.keys()).filter(|key| then.get(*key) != now.get(*key));
            if let Some(key) = changed.find(|key| !shown.contains(&(name.to_string(), key.to_vec()))) {
                return Err(vec![format!("the feed keeps silent about {key:x?} of {name}; {}", shape(found, self))]);
            }
        }
        Ok(())
    }
}

/// Runs the round of a seed.
///
/// # Errors
/// What the engine did that it must not do.
pub fn run(seed: u64) -> Result<Counters, Vec<String>> {
    let mut random = Random::new(seed);
    let mut counters = Counters::default();
    let life = live(&mut random, false)?;
    // Most of the work is the life: more than one damage of each.
    for _ in 0..8 {
        let schedule = random.number();
        let place = random.weighted(&[70, 15, 15]);
        let original = [&life.env, &life.backups, &life.archive][place];
        let mut files = original.files();
        files.retain(|path| path != "lock");
        if files.is_empty() {
            continue; // Nothing was archived.
        }
        let path = files[random.below(files.len() as u64) as usize].clone();
        let before = original.bytes_of(&path).unwrap_or_default();
        let old = life.older[place].bytes_of(&path);
        let Some((kind, after)) = damage(&before, old, &mut random) else { continue };
        if after.as_ref() == Some(&before) {
            continue;
        }
        let what = format!("{:?}, {} {path}: {kind:?}", life.end, ["environment", "backups", "archive"][place]);
        let damaged = original.snapshot();
        replace(&damaged, &path, after.as_deref())?;
        let judged = match place {
            0 => {
                let damage = Damage { path: &path, kind, before: &before, after: after.as_deref().unwrap_or_default() };
                judge_environment(&life, &damaged, &damage, schedule, &mut counters)
            }
            _ => {
                let (backups, archive) = if place == 1 { (&damaged, &life.archive) } else { (&life.backups, &damaged) };
                let least = life.left_without_newest(place, &path, kind);
                judge_restore(&life, backups, archive, least, schedule, &mut counters)
            }
        };
        judged.map_err(|lines| [vec![what], lines].concat())?;
        counters.add("rounds_of_damage", 1);
    }
    counters.add("rounds", 1);
    Ok(counters)
}

/// What was done to a file.
struct Damage<'a> {
    path: &'a str,
    kind: Kind,
    before: &'a [u8],
    after: &'a [u8],
}

impl Damage<'_> {
    /// The whole file; of data, when it was opened and pages have changed since, the blocks that were damaged. `false`:
    /// one of them has changed since.
    fn put_back(&self, disk: &SimDisk) -> Result<bool, Vec<String>> {
        if self.path != "data" || self.before.len() != self.after.len() {
            return replace(disk, self.path, Some(self.before)).map(|()| true);
        }
        let failed = |error: ledgerstone_disk::DiskError| vec![format!("putting back: {error}")];
        let now = disk.bytes_of(self.path).unwrap_or_default();
        let file = disk.open(self.path, Open::EXISTING).map_err(failed)?;
        let blocks = self.before.chunks(BLOCK).zip(self.after.chunks(BLOCK)).zip(now.chunks(BLOCK)).enumerate();
        let mut all = true;
        for (no, ((before, after), now)) in blocks.filter(|(_, ((before, after), _))| before != after) {
            // One that is not as it was left was mended from the double-write file, or was a page, and has changed
            // since.
            if now == after {
                file.write_at((no * BLOCK) as u64, before).map_err(failed)?;
            } else {
                all &= now == before;
            }
        }
        file.sync().map_err(failed)?;
        Ok(all)
    }
}

/// Settings with which much happens in little time.
fn options() -> ledgerstone::Options {
    Environment::options()
        .cache_bytes(64 * 4096)
        .page_count_max(1 << 14)
        .log_segment_bytes(64 << 10)
        .log_buffer_bytes(128 << 10)
        .lock_count_max(4096)
        .transaction_count_max(16)
}

fn live(random: &mut Random, is_raw: bool) -> Result<Life, Vec<String>> {
    let blank = blank(is_raw).map_err(|error| vec![format!("a new disk: {error}")])?;
    let disks = [blank, SimDisk::new(), SimDisk::new()];
    let end = random.pick(&[End::Closed, End::Killed, End::PowerLost]);
    let (schedule, commits) = (random.number(), random.between(20, 120));
    let (early, backup_at) = (random.below(commits), random.below(commits));
    let mut own = random.fork();
    let done = simulate(schedule, &disks[0].clone(), || -> Result<Life, Error> {
        let env = options().archive_on(Arc::new(disks[2].clone()));
        let env = env.open_on(over(Arc::new(disks[0].clone()), is_raw, true)?)?;
        let mut states = vec![State::new()];
        env.transact(|txn| {
            TABLES.iter().try_for_each(|name| txn.create_table(name).map(drop))?;
            txn.create_index(TABLES[1], &IndexDef::new("first", IndexKeys::Bytes { from: 0, to: Some(1) }))
        })?;
        states.push(TABLES.iter().map(|name| (name.to_string(), BTreeMap::new())).collect());
        let (mut checkpointed, mut older, mut backed_up, mut archived) = (0, None, Vec::new(), 0);
        let mut feed = env.named_changes(FEED)?;
        let mut told = states.len() - 1;
        for no in 0..commits {
            if no == early {
                older = Some([disks[0].snapshot(), disks[1].snapshot(), disks[2].snapshot()]);
            }
            if no == backup_at || own.percent(2) && no > backup_at {
                let options = BackupOptions::default().incremental(no != backup_at);
                env.backup_on(Arc::new(disks[1].clone()), options, |_| ())?;
                backed_up.push(states.len() - 1);
            }
            if no > backup_at && own.percent(5) {
                env.archive_now()?;
                archived = states.len() - 1;
            }
            if own.percent(5) {
                while feed.next()?.is_some() {}
                feed.acknowledge(feed.position())?;
                told = states.len() - 1;
            }
            if own.percent(5) {
                env.checkpoint()?;
                checkpointed = states.len() - 1;
            }
            let mut state = states[states.len() - 1].clone();
            env.transact(|txn| {
                for _ in 0..own.between(1, 4) {
                    let name = own.pick(&TABLES);
                    let key = own.below(80).to_be_bytes().to_vec();
                    let len = if own.percent(8) { 9000 } else { own.below(1500) };
                    let (table, records) = (txn.bytes(name)?, state.entry(name.to_string()).or_default());
                    if own.percent(80) {
                        let value = vec![own.below(256) as u8; len as usize];
                        table.put(&key, &value)?;
                        records.insert(key, value);
                    } else {
                        table.delete(&key)?;
                        records.remove(&key);
                    }
                }
                Ok(())
            })?;
            states.push(state);
        }
        drop(feed);
        let left = match end {
            End::Closed => {
                env.close()?;
                checkpointed = states.len() - 1;
                disks[0].clone()
            }
            End::Killed => disks[0].snapshot(),
            End::PowerLost => disks[0].after_crash(schedule),
        };
        let (backups, archive) = (disks[1].snapshot(), disks[2].snapshot());
        let older = older.unwrap_or_else(|| [SimDisk::new(), SimDisk::new(), SimDisk::new()]);
        let restored = archived.max(backed_up.last().copied().unwrap_or_default());
        Ok(Life { env: left, backups, archive, older, states, checkpointed, told, end, restored, backed_up, archived })
    })?;
    let mut life = done.map_err(|error| vec![format!("the life: {error}")])?;
    let whole = restore(&life.backups, &life.archive, schedule)?;
    match whole {
        Ok((state, left)) if left.is_none() && life.states[life.restored..].contains(&state) => {
            life.restored = life.states.iter().rposition(|other| *other == state).unwrap_or_default();
            Ok(life)
        }
        Ok((state, left)) => Err(vec![format!("undamaged backups and archive: {}, {left:?}", shape(&state, &life))]),
        Err(error) => Err(vec![format!("undamaged backups and archive: {error}")]),
    }
}

/// What the damage makes of a file's bytes; no bytes: the file is gone.
fn damage(before: &[u8], old: Option<Vec<u8>>, random: &mut Random) -> Option<(Kind, Option<Vec<u8>>)> {
    let kinds = [
        Kind::Flip,
        Kind::Flip,
        Kind::Cut,
        Kind::Empty,
        Kind::Remove,
        Kind::Swap,
        Kind::Zero,
        Kind::OldBlock,
        Kind::OldFile,
    ];
    let kind = random.pick(&kinds);
    let mut after = before.to_vec();
    if before.is_empty() && kind != Kind::Remove {
        return None;
    }
    let blocks = before.len().div_ceil(BLOCK) as u64;
    let block_at = |no: u64| no as usize * BLOCK..((no as usize + 1) * BLOCK).min(before.len());
    match kind {
        Kind::Flip => {
            for _ in 0..random.between(1, 3) {
                after[random.below(before.len() as u64) as usize] ^= 1 << random.below(8);
            }
        }
        Kind::Cut => after.truncate(random.below(before.len() as u64) as usize),
        Kind::Empty => after.clear(),
        Kind::Remove => return Some((kind, None)),
        Kind::Swap => {
            let (a, b) = (block_at(random.below(blocks)), block_at(random.below(blocks)));
            let len = a.len().min(b.len());
            after[a.start..a.start + len].copy_from_slice(&before[b.start..b.start + len]);
            after[b.start..b.start + len].copy_from_slice(&before[a.start..a.start + len]);
        }
        Kind::Zero => after[block_at(random.below(blocks))].fill(0),
        Kind::OldBlock => {
            let old = old?;
            let block = block_at(random.below(blocks));
            after[block.clone()].copy_from_slice(old.get(block)?);
        }
        Kind::OldFile => after = old?,
    }
    Some((kind, Some(after)))
}

/// X1 to X3.
fn judge_environment(
    life: &Life,
    damaged: &SimDisk,
    damage: &Damage<'_>,
    schedule: u64,
    counters: &mut Counters,
) -> Result<(), Vec<String>> {
    let &Damage { path, kind, .. } = damage;
    let excuse = match path {
        _ if path.starts_with("log/") && life.end != End::Closed => Excuse::LogEnd,
        "data" if matches!(kind, Kind::OldBlock | Kind::OldFile) => Excuse::OldPage,
        FEEDS if matches!(kind, Kind::OldBlock | Kind::OldFile) => Excuse::FeedElsewhere,
        _ => Excuse::None,
    };
    let found = simulate(schedule, damaged, || look(damaged, false))?;
    let error = match found {
        Ok((state, shown)) => {
            let mut is_feed_elsewhere = false;
            // A feed reads the log, and the older page takes nothing from that.
            let committed = if excuse == Excuse::OldPage { life.states.last().unwrap_or(&state) } else { &state };
            match shown.map(|shown| life.check_feed(committed, &shown)) {
                Ok(Err(_)) if excuse == Excuse::FeedElsewhere => is_feed_elsewhere = true,
                Ok(as_told) => as_told?,
                Err(error) => {
                    check_typed(&error)?;
                    counters.add("told_by_feed", 1);
                }
            }
            let is_all = Some(&state) == life.states.last();
            let is_prefix = life.states[life.checkpointed..].contains(&state);
            let name = match excuse {
                _ if is_all && is_feed_elsewhere => "excused_feed_elsewhere",
                _ if is_all => "harmless",
                Excuse::LogEnd if is_prefix => "excused_log_end",
                Excuse::OldPage => "excused_old_page",
                _ => return Err(vec![format!("{} and nobody says so", shape(&state, life))]),
            };
            counters.add(name, 1);
            if excuse == Excuse::OldPage && !is_all {
                return Ok(());
            }
            return go_on(damaged, false, state, schedule);
        }
        Err(error) => error,
    };
    check_typed(&error)?;
    counters.add("detected", 1);
    if !damage.put_back(damaged)? && excuse == Excuse::OldPage {
        // It was a page, and was used as one before it was found.
        counters.add("detected_late", 1);
        return Ok(());
    }
    let mended = simulate(schedule, damaged, || look(damaged, false))?;
    match mended {
        Ok((state, shown)) if Some(&state) == life.states.last() => {
            let shown = shown.map_err(|error| vec![format!("put back, and the feed refused: {error}")])?;
            if excuse == Excuse::FeedElsewhere { Ok(()) } else { life.check_feed(&state, &shown) }
        }
        Ok((state, _)) => Err(vec![format!("told ({error}), put back, and then {}", shape(&state, life))]),
        Err(again) => Err(vec![format!("told ({error}), put back, and still refused: {again}")]),
    }
}

/// X3. Commits, loses the power, and looks again.
fn go_on(disk: &SimDisk, is_raw: bool, mut state: State, schedule: u64) -> Result<(), Vec<String>> {
    let added = simulate(schedule, disk, || -> Result<SimDisk, Error> {
        let env = options().open_on(over(Arc::new(disk.clone()), is_raw, false)?)?;
        for no in 0..20u64 {
            env.transact(|txn| txn.bytes_or_create(TABLES[0])?.put(&no.to_be_bytes(), &[7; 400]))?;
        }
        Ok(disk.after_crash(schedule))
    })?;
    let records = state.entry(TABLES[0].into()).or_default();
    (0..20u64).for_each(|no| drop(records.insert(no.to_be_bytes().to_vec(), vec![7; 400])));
    let after = added.map_err(|error| vec![format!("going on: {error}")])?;
    match simulate(schedule, &after, || look(&after, is_raw))? {
        Ok((found, _)) if found == state => Ok(()),
        Ok(_) => Err(vec!["commits after the damage were lost".into()]),
        Err(error) => Err(vec![format!("after the damage, commits and a power loss: {error}")]),
    }
}

/// X4. `least`: so much must be there at least, although nobody can say that more is missing.
fn judge_restore(
    life: &Life,
    backups: &SimDisk,
    archive: &SimDisk,
    least: Option<usize>,
    schedule: u64,
    counters: &mut Counters,
) -> Result<(), Vec<String>> {
    let (state, left_out) = match restore(backups, archive, schedule)? {
        Ok(restored) => restored,
        Err(error) => {
            counters.add("detected", 1);
            return check_typed(&error);
        }
    };
    let is_told = verify(backups, archive).is_err();
    let name = match left_out {
        _ if state == life.states[life.restored] && is_told => "detected",
        _ if state == life.states[life.restored] => "harmless",
        Some(_) if life.states.contains(&state) => "told_shorter",
        None if least.is_some_and(|least| life.states[least..].contains(&state)) => "excused_newest",
        _ => return Err(vec![format!("restored, {}, and verification: {is_told}", shape(&state, life))]),
    };
    counters.add(name, 1);
    Ok(())
}

/// Restores all that backups and archive have. With what was left out of it, if anything.
#[allow(clippy::type_complexity)] // Two results: what the harness met, and what the engine said.
fn restore(
    backups: &SimDisk,
    archive: &SimDisk,
    schedule: u64,
) -> Result<Result<(State, Option<String>), Error>, Vec<String>> {
    let target = SimDisk::new();
    simulate(schedule, &target.clone(), || {
        let set = Backup::open_on(backups)?;
        // Nothing may be archived yet.
        let logs = match ArchiveDirectory::open_on(Arc::new(archive.clone()))?.log() {
            Err(Error::NoArchive) if archive.files().iter().all(|file| !file.starts_with("log/")) => Vec::new(),
            log => vec![log?],
        };
        let report = set.restore_on(Arc::new(target.clone()), RestoreTo::End, &logs, |_| ())?;
        let left_out = report.left_out.first().map(|left| format!("{}: {}", left.what, left.why));
        Ok((look(&target, false)?.0, left_out))
    })
}

fn verify(backups: &SimDisk, archive: &SimDisk) -> Result<(), Error> {
    Backup::open_on(backups)?.verify()?;
    let segments = ArchiveDirectory::open_on(Arc::new(archive.clone()))?.verify()?;
    match segments.into_iter().find_map(|segment| segment.problem) {
        Some(what) => Err(Error::Corrupt { what }),
        None => Ok(()),
    }
}

/// How an environment says that it has failed because page and log contradict each other.
const NOT_REPEATED: &str = "what the log says could not be repeated: ";

fn check_typed(error: &Error) -> Result<(), Vec<String>> {
    match error {
        // Found when the page came in, behind the opening (D3 in `pending.rs` of recovery): whoever comes later is told
        // why.
        Error::Failed { why } if why.starts_with(NOT_REPEATED) => Ok(()),
        Error::Panicked(_) | Error::Failed { .. } | Error::LockTimeout { .. } | Error::Deadlock { .. } => {
            Err(vec![format!("no error for damage: {error:?}")])
        }
        _ => Ok(()),
    }
}

fn shape(found: &State, life: &Life) -> String {
    let at = life.states.iter().rposition(|state| state == found);
    let counts: Vec<_> = found.iter().map(|(name, records)| format!("{name} {}", records.len())).collect();
    let (newest, kept) = (life.states.len() - 1, life.checkpointed);
    format!("found {counts:?}, which is commit {at:?} of {newest} (checkpoint after {kept})")
}

/// Keys by table.
type Keys = BTreeSet<(String, Vec<u8>)>;

/// Opens, reads all, and verifies. Also what the feed shows: not what is in the way of the others need be in its way.
#[allow(clippy::type_complexity)] // What the environment says, and what the feed does.
fn look(disk: &SimDisk, is_raw: bool) -> Result<(State, Result<Keys, Error>), Error> {
    let env = options().open_on(over(Arc::new(disk.clone()), is_raw, false)?)?;
    let mut state = State::new();
    let txn = env.begin()?;
    for name in txn.table_names()? {
        let records = txn.bytes(&name)?.range(..)?.collect::<Result<_, _>>()?;
        state.insert(name, records);
    }
    txn.commit()?;
    let shown = shown_by_feed(&env);
    let report = env.verify()?;
    if let Some(problem) = report.problems.first() {
        return Err(Error::Corrupt { what: format!("{}: {}", problem.place, problem.what) });
    }
    env.close()?;
    Ok((state, shown))
}

fn shown_by_feed(env: &Environment) -> Result<Keys, Error> {
    let mut feed = env.named_changes(FEED)?;
    let mut keys = Keys::new();
    while let Some(commit) = feed.next()? {
        keys.extend(commit.changes().map(|change| (change.table.to_string(), change.key.clone())));
    }
    Ok(keys)
}

fn replace(disk: &SimDisk, path: &str, bytes: Option<&[u8]>) -> Result<(), Vec<String>> {
    disk.replace(path, bytes).map_err(|error| vec![format!("the damage itself: {error}")])
}
