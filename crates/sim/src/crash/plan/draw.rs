//! Drawing a plan: what a seed makes of the parts that [`super`] defines.

use ledgerstone::{Conflict, Isolation, Locking, Victim};
use ledgerstone_page::planted::{self, Bug};
use ledgerstone_region::Random;

use super::*;

impl Plan {
    /// The plan of a seed.
    pub fn new(seed: u64, wishes: Wishes) -> Plan {
        let mut random = Random::new(seed ^ 0x6c65_6467_6572_7374);
        // What takes long to find is looked for where it shows: where rollbacks are put off.
        let puts_off = planted::is_on(Bug::DeferredWithoutLocks);
        let drawn = FLAVOURS[random.weighted(&FLAVOURS.map(|(_, weight)| weight))].0;
        let flavour = if puts_off { Flavour::Losers } else { drawn };
        let start = [Start::Nothing, Start::Empty, Start::Filled][random.weighted(&[1, 5, 6])];
        let settings = Settings {
            cache_frames: random.pick(&[64, 64, 80, 128]),
            segment_bytes: random.pick(&[64 << 10, 64 << 10, 128 << 10, 256 << 10]),
            buffer_bytes: 128 << 10,
            checkpoint_log_bytes: if flavour == Flavour::Log {
                16 << 10
            } else {
                random.pick(&[32 << 10, 64 << 10, 1 << 20])
            },
            lock_timeout_ms: random.pick(&[1, 5, 10_000]),
            escalate_after: random.pick(&[8, 4096]),
            version_store_bytes: random.pick(&[16 << 10, 64 << 10, 16 << 20]),
            is_lru: random.percent(30),
            is_indexed: random.percent(40),
            locking: (
                [Locking::Hierarchical, Locking::Pages][random.weighted(&[5, 1])],
                [Conflict::Wait, Conflict::NoWait, Conflict::WaitDie][random.weighted(&[8, 1, 1])],
            ),
            victim: random.pick(&[
                Victim::Youngest,
                Victim::Youngest,
                Victim::Oldest,
                Victim::FewestLocks,
                Victim::LeastLog,
                Victim::Random,
            ]),
            deadlock_period_ms: random.pick(&[0, 0, 0, 3]),
            commit: random.pick(&[(4, 90, 256 << 10, 0), (4, 90, 256 << 10, 0), (1, 100, 512, 300), (2, 0, 1, 0)]),
            logs_whole: random.percent(15),
            is_followed: random.percent(35),
            // By itself, so that the rest of a plan is what it was before there was this setting.
            restart_undo_bytes: match puts_off {
                true => 0,
                false => Random::new(seed ^ 0x7075_745f_6f66_6600).pick(&[0, 0, 4 << 10, 64 << 20]),
            },
        };
        let mut lives = Vec::new();
        for generation in 0..[1, 2, 3][random.weighted(&[5, 3, 2])] {
            for _ in 0..if generation == 0 { 0 } else { random.weighted(&[6, 3, 1]) } {
                lives.push(Life::recovery(&mut random));
            }
            lives.push(Life::working(&mut random, flavour, start, generation, wishes));
        }
        let recoveries = if flavour == Flavour::Losers { [0, 1, 3, 6] } else { [6, 3, 2, 1] };
        for _ in 0..random.weighted(&recoveries) {
            lives.push(Life::recovery(&mut random));
        }
        lives.push(Life { crash_in_open: None, verifies: true, closes: true, ..Life::recovery(&mut random) });
        let mut plan = Plan { seed, flavour, start, settings, lives, is_raw: wishes.is_raw };
        if wishes.locks_pages {
            plan.settings.locking.0 = Locking::Pages;
        }
        if seed % 16 == 7 && !wishes.locks_pages {
            plan.do_without_locks();
        }
        if !settings.is_indexed {
            plan.keep_steps(|_, step| !matches!(step, Step::Lookup { .. } | Step::Reindex(_)));
        } else {
            // Indexes are not made at a snapshot, and the model has no tables without them in such a round. A load that
            // another's index key stops has no answer that tells where.
            let makes = |step: &Step| matches!(step, Step::Create(_) | Step::Load(..));
            plan.keep_steps(|isolation, step| isolation != Isolation::Snapshot || !makes(step));
        }
        if !settings.is_followed {
            plan.keep_jobs(|job| !matches!(job, Job::Follow { .. }));
        }
        if wishes.no_drops {
            plan.keep_steps(|_, step| !matches!(step, Step::Drop(_) | Step::DropList(_)));
        }
        plan
    }

    /// One client at a time, which leaves nothing in doubt: a program without locks keeps its transactions apart
    /// itself. The housekeeper runs beside it as ever.
    fn do_without_locks(&mut self) {
        self.settings.locking.0 = Locking::None;
        for life in &mut self.lives {
            life.clients.truncate(1);
            for job in life.clients.iter_mut().flatten() {
                if let Job::Transaction(transaction) = job
                    && matches!(transaction.end, End::Prepare { .. })
                {
                    transaction.end = End::Abort;
                }
            }
        }
    }
}

impl Plan {
    /// Takes away the jobs that are not wanted.
    fn keep_jobs(&mut self, wanted: impl Fn(&Job) -> bool) {
        self.lives.iter_mut().flat_map(|life| &mut life.clients).for_each(|jobs| jobs.retain(&wanted));
    }

    /// Takes away the steps that are not wanted.
    fn keep_steps(&mut self, wanted: impl Fn(Isolation, &Step) -> bool) {
        let jobs = self.lives.iter_mut().flat_map(|life| life.clients.iter_mut().flatten());
        for job in jobs {
            if let Job::Transaction(transaction) = job {
                transaction.steps.retain(|step| wanted(transaction.isolation, step));
            }
        }
    }
}

impl Life {
    /// Opens, crashes on the way, or looks and loses its power.
    fn recovery(random: &mut Random) -> Life {
        Life {
            schedule_seed: random.number(),
            crash_in_open: Some(crash_point(random, 40)),
            clients: Vec::new(),
            crash_after: Some(crash_point(random, 20)),
            closes: random.percent(30),
            space_bytes: None,
            verifies: random.percent(50),
            ending: Ending::draw(random),
            survival_seed: random.number(),
        }
    }

    fn working(random: &mut Random, flavour: Flavour, start: Start, generation: u64, wishes: Wishes) -> Life {
        let (clients_max, jobs_max, scale) = match flavour {
            Flavour::Short => (2, 3, 15),
            Flavour::Losers => (3, 4, 30),
            Flavour::Crowded => (6, 10, 150),
            Flavour::Splits | Flavour::Large | Flavour::Log => (3, 8, 200),
            Flavour::Mixed | Flavour::Catalog => (4, 8, 100),
            Flavour::Snapshots => (4, 6, 150),
        };
        let client_count = wishes.client_count.unwrap_or_else(|| random.between(1, clients_max));
        let creates = start == Start::Nothing && generation == 0;
        let clients = (0..client_count).map(|_| {
            let job_count = random.between(1, jobs_max);
            let mut random = random.fork();
            (0..job_count).map(|_| job(&mut random, flavour)).collect()
        });
        let mut clients: Vec<Vec<Job>> = clients.collect();
        if flavour == Flavour::Losers {
            clients.push(vec![Job::Transaction(loser(random, flavour))]);
        }
        let crash_in_open =
            (creates && random.percent(60) || generation > 0 && random.percent(15)).then(|| crash_point(random, 40));
        let out_of_space = !wishes.no_space_trouble && random.percent(4);
        Life {
            schedule_seed: random.number(),
            crash_in_open,
            clients,
            crash_after: random.percent(92).then(|| crash_point(random, scale)),
            closes: random.percent(70),
            space_bytes: out_of_space.then(|| random.between(0, 400 << 10)),
            verifies: random.percent(50),
            ending: Ending::draw(random),
            survival_seed: random.number(),
        }
    }
}

impl Ending {
    fn draw(random: &mut Random) -> Ending {
        let bytes = random.pick(&[u64::MAX, u64::MAX, 0, 4096, 12_288]);
        if random.percent(45) { Ending::Kill { bytes } } else { Ending::PowerLoss }
    }
}

/// When to crash: soon half of the time, and now and then very late.
fn crash_point(random: &mut Random, scale: u64) -> u64 {
    let high = [scale / 4, scale, scale * 4][random.weighted(&[3, 5, 2])];
    random.between(1, high.max(2))
}

fn job(random: &mut Random, flavour: Flavour) -> Job {
    let checkpoints = if flavour == Flavour::Log { 10 } else { 4 };
    let compactions = if matches!(flavour, Flavour::Splits | Flavour::Large) { 14 } else { 4 };
    match random.weighted(&[86, checkpoints, 6, compactions, 6, 4, 10, 3]) {
        0 => Job::Transaction(transaction(random, flavour)),
        1 => Job::Checkpoint,
        2 if random.percent(30) => Job::Sync { commits: random.percent(50) },
        2 => Job::WaitForTicket,
        3 => Job::Compact,
        4 => Job::Decide,
        6 => Job::Follow {
            count: random.pick(&[1, 3, 1000]),
            acknowledges: random.percent(60).then(|| random.pick(&[0, 0, 1, 4])),
        },
        7 => Job::Dump { prints: random.percent(50) },
        _ => Job::Sleep(random.between(1, 20_000)),
    }
}

fn transaction(random: &mut Random, flavour: Flavour) -> TransactionPlan {
    if random.percent(if flavour == Flavour::Snapshots { 25 } else { 2 }) {
        return watcher(random, flavour);
    }
    if flavour == Flavour::Splits && random.percent(12) {
        return splitter(random);
    }
    let step_count = match flavour {
        Flavour::Short | Flavour::Crowded | Flavour::Snapshots => random.between(1, 4),
        _ => random.between(1, 7),
    };
    let mut steps: Vec<Step> = (0..step_count).map(|_| step(random, flavour)).collect();
    if flavour == Flavour::Crowded && random.percent(30) {
        steps.retain(is_reading); // A client that is told what others have not been told yet.
    }
    let goes_back = random.percent(25);
    if goes_back {
        add_savepoints(random, &mut steps);
    }
    let writes = steps.iter().any(|step| !is_reading(step));
    // A mark that is taken back would tell nothing: with savepoints it is set before or after them all.
    let mark_at = random.below(step_count + 1) as usize;
    let mark_at = if goes_back && mark_at > 0 { usize::MAX } else { mark_at };
    let isolation = isolation(random, flavour, writes);
    steps.retain(|step| is_for(isolation, step));
    TransactionPlan {
        isolation,
        durability: durability(random, flavour, writes),
        end: match random.weighted(&[46, 28, 12, 6, if flavour == Flavour::Snapshots { 2 } else { 8 }]) {
            0 => End::Commit,
            1 => End::CommitAndWait,
            2 => End::Abort,
            3 => End::Drop,
            _ if !writes && isolation == Isolation::Snapshot => End::Commit,
            _ => End::Prepare { commits: random.percent(60), is_left: random.percent(60) },
        },
        retries: random.pick(&[0, 1, 3]),
        mark_at: writes.then_some(mark_at),
        steps,
    }
}

/// Opens a snapshot, and looks through it again and again while others write.
fn watcher(random: &mut Random, flavour: Flavour) -> TransactionPlan {
    let mut steps = Vec::new();
    for _ in 0..random.between(1, 4) {
        let key = key(random, flavour);
        steps.push(Step::Pause(random.between(1, 20_000)));
        steps.push(match random.below(4) {
            0 => Step::Get(key),
            1 => Step::Lookup { table: key.table, from: 0, to: 255, backward: random.percent(40) },
            _ => Step::Scan { from: Key { number: 0, ..key }, to: 500, backward: random.percent(40), limit: 1000 },
        });
    }
    TransactionPlan {
        isolation: Isolation::Snapshot,
        durability: random.pick(&[Durability::Sync, Durability::Volatile]),
        end: End::Commit,
        retries: 0,
        mark_at: None,
        steps,
    }
}

/// Counts so much that pages of a list become two, and takes it back after others have counted there.
fn splitter(random: &mut Random) -> TransactionPlan {
    let count = |random: &mut Random, counts: &[u64]| Step::Count {
        list: 0,
        from: random.below(COUNTER_COUNT),
        count: random.pick(counts),
        delta: 1,
    };
    let mut steps = vec![count(random, &[1, 60, 150]), Step::Pause(random.between(1, 8000))];
    if random.percent(30) {
        steps.push(count(random, &[1, 5]));
    }
    TransactionPlan {
        isolation: Isolation::Serializable,
        durability: random.pick(&[Durability::Sync, Durability::Volatile]),
        end: random.pick(&[End::Commit, End::Abort, End::Abort, End::Drop]),
        retries: random.pick(&[0, 1]),
        mark_at: Some(0),
        steps,
    }
}

/// Changes much of all kinds, and is still open when others have made that durable. Its updates are so many that the
/// log is written more than once while they are taken back.
fn loser(random: &mut Random, flavour: Flavour) -> TransactionPlan {
    let mut steps = Vec::new();
    for _ in 0..random.between(3, 8) {
        steps.push(match random.below(3) {
            0 => Step::Fill(key(random, flavour), random.between(20, 100), random.pick(&[30, 300])),
            _ => Step::Count {
                list: random.below(LISTS.len() as u64),
                from: random.below(COUNTER_COUNT),
                count: random.pick(&[60, 300, 600]),
                delta: 1,
            },
        });
        steps.push(Step::Pause(random.between(1, 8000)));
    }
    steps.push(Step::Pause(1_000_000));
    TransactionPlan {
        isolation: Isolation::Serializable,
        durability: Durability::Sync,
        end: random.pick(&[End::Commit, End::Abort, End::Drop]),
        retries: 0,
        mark_at: Some(0),
        steps,
    }
}

/// Where many meet, writers that nobody waits for, and readers that want to be sure of what they were told.
fn durability(random: &mut Random, flavour: Flavour, writes: bool) -> Durability {
    let weights = match (flavour, writes) {
        (Flavour::Crowded, true) => [10, 15, 15, 60],
        (_, true) => [30, 35, 15, 20],
        (_, false) => [60, 15, 5, 20],
    };
    [Durability::Sync, Durability::Pipelined, Durability::Async, Durability::Volatile][random.weighted(&weights)]
}

/// Mostly serializable; of those that only read, most at a snapshot.
fn isolation(random: &mut Random, flavour: Flavour, writes: bool) -> Isolation {
    let weights = match (flavour, writes) {
        (Flavour::Snapshots, true) => [4, 6, 60, 30],
        (_, true) => [5, 5, 12, 78],
        (Flavour::Crowded, false) => [4, 6, 20, 70],
        (_, false) => [4, 6, 60, 30],
    };
    Isolation::ALL[random.weighted(&weights)]
}

/// Whether a transaction of this level may do the step. Structures of users want locks, and indexes are not made of
/// what there was.
fn is_for(isolation: Isolation, step: &Step) -> bool {
    match step {
        Step::Count { .. } | Step::Total(..) | Step::Tally(_) | Step::CreateList(_) | Step::DropList(_) => {
            isolation == Isolation::Serializable
        }
        Step::Reindex(_) => isolation != Isolation::Snapshot,
        _ => true,
    }
}

/// True if the step changes nothing.
fn is_reading(step: &Step) -> bool {
    matches!(step, Step::Get(_) | Step::Scan { .. } | Step::Lookup { .. } | Step::List | Step::Pause(_))
}

/// Puts savepoints, rollbacks to them and nested transactions between the steps.
fn add_savepoints(random: &mut Random, steps: &mut Vec<Step>) {
    for _ in 0..random.between(1, 5) {
        let step = match random.weighted(&[4, 5, 1, 4]) {
            0 => Step::Savepoint,
            1 => Step::RollbackTo(random.below(4) as usize),
            2 => Step::Release(random.below(4) as usize),
            _ => Step::Nest { steps: random.between(1, 4) as usize, commits: random.percent(50) },
        };
        let at = random.below(steps.len() as u64 + 1) as usize;
        steps.insert(at, step);
    }
    if random.percent(50) {
        steps.insert(0, Step::Savepoint); // So that there is something to go back to.
    }
}

fn step(random: &mut Random, flavour: Flavour) -> Step {
    let key = key(random, flavour);
    let length = value_length(random, flavour);
    //            get upd put ins del mod scan fill clear create drop list pause range load rename part counters lookup
    //            reindex rewrite pop
    let weights = match flavour {
        Flavour::Mixed | Flavour::Short | Flavour::Losers => {
            [10, 6, 30, 8, 12, 14, 8, 4, 3, 2, 1, 1, 2, 2, 2, 1, 3, 6, 8, 1, 6, 8]
        }
        Flavour::Splits => [5, 3, 10, 10, 10, 5, 6, 30, 20, 1, 1, 0, 2, 8, 10, 0, 1, 10, 5, 2, 3, 6],
        Flavour::Large => [8, 3, 34, 10, 12, 20, 4, 2, 3, 1, 3, 0, 2, 3, 4, 1, 16, 0, 4, 1, 4, 4],
        Flavour::Catalog => [5, 2, 20, 6, 6, 5, 4, 10, 2, 18, 18, 4, 2, 2, 8, 10, 1, 12, 6, 8, 2, 3],
        Flavour::Crowded => [20, 10, 24, 8, 10, 14, 12, 0, 1, 1, 0, 0, 5, 2, 0, 0, 3, 10, 12, 0, 14, 12],
        Flavour::Log => [4, 2, 40, 8, 8, 20, 2, 12, 3, 1, 1, 0, 2, 2, 3, 0, 3, 4, 4, 1, 4, 4],
        Flavour::Snapshots => [12, 4, 24, 10, 26, 10, 6, 3, 6, 1, 1, 0, 4, 4, 0, 1, 6, 1, 6, 1, 12, 26],
    };
    match random.weighted(&weights) {
        0 => Step::Get(key),
        1 => Step::GetForUpdate(key),
        2 => Step::Put(key, length),
        3 => Step::Insert(key, length),
        4 => Step::Delete(key),
        5 => {
            let change = change(random);
            Step::Modify(key, random.percent(90).then_some(change))
        }
        6 => Step::Scan {
            from: key,
            to: key.number + random.between(0, 60),
            backward: random.percent(40),
            limit: random.pick(&[1, 5, 1000]),
        },
        7 => Step::Fill(key, random.between(2, 40), length.min(600)),
        8 => Step::Clear(key, random.between(2, 60)),
        9 => Step::Create(key.table),
        10 => Step::Drop(key.table),
        11 => Step::List,
        13 => Step::ClearRange(key, random.between(1, 200)),
        14 => Step::Load(key, random.between(1, 150), length.min(5000)),
        15 => Step::Rename(key.table, random.below(TABLE_COUNT)),
        16 => {
            let bound = random.pick(&[600, 20_000]);
            let at = random.below(bound) as usize;
            match random.below(5) {
                0 => Step::SetLen(key, at),
                1 => Step::ReadPart(key, at, length),
                _ => Step::WritePart(key, at, length.min(9000)),
            }
        }
        17 => counters_step(random, flavour),
        18 => {
            let from = random.below(256) as u8;
            let to = from.saturating_add(random.pick(&[0, 3, 40]));
            Step::Lookup { table: key.table, from, to, backward: random.percent(40) }
        }
        19 => Step::Reindex(key.table),
        20 => Step::Rewrite(key, change(random)),
        21 => Step::Pop { table: key.table, backward: random.percent(25) },
        _ => Step::Pause(random.between(1, 8000)),
    }
}

/// Where a value changes, and by how much its length does.
fn change(random: &mut Random) -> (usize, i32) {
    (random.below(2000) as usize, random.pick(&[0, 0, 0, 10, -10, 400, -400]))
}

fn counters_step(random: &mut Random, flavour: Flavour) -> Step {
    // A list of counters fails in more ways than single ones do.
    let list = if flavour == Flavour::Catalog {
        random.pick(&[0, 0, 0, 1, 2, 3, 4])
    } else {
        random.pick(&[0, 0, 0, 1, 2, 3])
    };
    let key = random.below(if flavour == Flavour::Crowded { 8 } else { COUNTER_COUNT });
    let comes_and_goes = if flavour == Flavour::Catalog { 4 } else { 1 };
    match random.weighted(&[10, 4, 1, comes_and_goes, comes_and_goes]) {
        0 => Step::Count {
            list,
            from: key,
            count: random.pick(&[1, 1, 1, 5, 60]),
            delta: random.pick(&[1, -1, 1000, i64::MAX]),
        },
        1 => Step::Total(list, key),
        2 => Step::Tally(list),
        3 => Step::CreateList(list),
        _ => Step::DropList(list),
    }
}

fn key(random: &mut Random, flavour: Flavour) -> Key {
    let (tables, keys) = match flavour {
        Flavour::Crowded => (2, 6),
        Flavour::Short => (2, 20),
        Flavour::Splits => (2, 300),
        Flavour::Large => (2, 30),
        Flavour::Snapshots => (2, 40),
        Flavour::Mixed | Flavour::Catalog | Flavour::Log | Flavour::Losers => (TABLE_COUNT, 120),
    };
    Key { table: random.below(tables), number: random.below(keys) }
}

fn value_length(random: &mut Random, flavour: Flavour) -> usize {
    let weights = match flavour {
        Flavour::Large => [20, 20, 30, 30],
        Flavour::Crowded | Flavour::Short => [80, 15, 4, 1],
        _ => [60, 28, 9, 3],
    };
    (match random.weighted(&weights) {
        0 => random.between(0, 120),
        // In the leaf, in a page of their own, in a run of pages, and with an index.
        1 => random.between(120, 2000),
        2 => random.between(1900, 4200),
        _ => random.between(4000, 40_000),
    }) as usize
}
