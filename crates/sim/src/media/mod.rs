//! The media harness: backups taken at random beside random transactions, power failures, and what can be made of them.
//!
//! A round is one life of an environment with clients and a keeper, which takes full and incremental backups and
//! checkpoints, and fills the archive. The life ends in order or by a power failure; the disks of backups and archive
//! lose theirs with it, before it, or not at all. In some rounds the process is also killed on the way. Another
//! process goes on from what the kernel has, until the power fails. That is a life beside the first, proved like it.
//! Then:
//!
//! - M1. The backups that say that they are complete are proved by verification.
//! - M2. An environment that was restored to the end, or to the LSN of a commit, holds exactly the transactions whose
//!   commits lie at or before that moment. It holds every one that was acknowledged with such an LSN, none with a later
//!   one, and no part of any other. Each transaction leaves its mark in a journal, so that what is there says which
//!   those are.
//! - M3. Pages damaged at random places are repaired from backup and log, in a closed environment or beside a writer,
//!   and everything is as it was. Without the log since the backup, the repair is refused.
//! - M4. In no case a panic or a hang.
//! - M5. Damage at random places of the backups is found out by verification, and nothing is restored from what it hit.
//! - M6. Backups that were acknowledged are there, and everything that the log has given up is archived. An
//!   environment is restored from the backups, the archive and the log that is left, in any order. It holds what the
//!   lost one holds after its recovery: every commit that was acknowledged as durable.
//! - M7. A restore that loses the power leaves no environment; one that returned survives a loss of power, and so does
//!   what is committed to it. Its life adds nothing to archive and backups of the old one.

mod life;
mod proof;

use std::sync::Arc;

use ledgerstone::Options;
use ledgerstone_disk::SimDisk;

use crate::age::age;
use crate::counters::Counters;
use ledgerstone_region::Random;

/// The disks of a round.
#[derive(Clone)]
struct Disks {
    env: SimDisk,
    backups: SimDisk,
    archive: Option<SimDisk>,
}

impl Disks {
    fn all(&self) -> impl Iterator<Item = &SimDisk> {
        [&self.env, &self.backups].into_iter().chain(&self.archive)
    }

    /// As a process leaves them that is killed now.
    fn snapshot(&self) -> Disks {
        self.each(SimDisk::snapshot)
    }

    /// As the next start of the machine finds them.
    fn settled(&self, random: &mut Random) -> Disks {
        let disks =
            self.each(|disk| if disk.is_crashed() { disk.after_crash(random.number()) } else { disk.snapshot() });
        age(&disks.env, random.number());
        disks
    }

    fn each(&self, mut make: impl FnMut(&SimDisk) -> SimDisk) -> Disks {
        Disks { env: make(&self.env), backups: make(&self.backups), archive: self.archive.as_ref().map(make) }
    }

    fn options(&self) -> Options {
        match &self.archive {
            Some(archive) => options().archive_on(Arc::new(archive.clone())),
            None => options(),
        }
    }
}

/// Runs the round of a seed.
///
/// # Errors
/// What the engine did that it must not do.
pub fn run(seed: u64) -> Result<Counters, Vec<String>> {
    crate::planted::take_rare_branches(seed);
    let mut random = Random::new(seed);
    let archive = random.percent(70).then(SimDisk::new);
    let disks = Disks { env: SimDisk::new(), backups: SimDisk::new(), archive };
    let mut counters = Counters::default();
    let told = life::live(&disks, &mut random, &mut counters)?;
    proof::prove(&disks, &told, &mut random, &mut counters)?;
    if let Some(killed) = told.killed {
        let (disks, told) = life::go_on(*killed, &mut random, &mut counters)?;
        let beside =
            |lines: Vec<String>| lines.into_iter().map(|line| format!("after a kill: {line}")).collect::<Vec<_>>();
        proof::prove(&disks, &told, &mut random, &mut counters).map_err(beside)?;
    }
    counters.add("rounds", 1);
    Ok(counters)
}

/// Settings with which much happens in little time.
fn options() -> Options {
    ledgerstone::Environment::options()
        .cache_bytes(64 * 4096)
        .page_count_max(1 << 14)
        .log_segment_bytes(64 << 10)
        .log_buffer_bytes(128 << 10)
        .checkpoint_log_bytes(96 << 10)
        .lock_count_max(4096)
        .transaction_count_max(16)
}
