//! An environment that nobody uses wakes no processor. Alone in its process, whose threads are looked at.

use std::time::{Duration, Instant};

use ledgerstone::{Durability, Environment, Error};

/// How often the housekeeper has gone to sleep.
fn sleeps_of_the_housekeeper() -> u64 {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let read = |path: std::path::PathBuf| std::fs::read_to_string(path).unwrap_or_default();
    let mut mine = tasks.filter(|task| read(task.path().join("comm")).trim_end() == "housekeeper");
    let status = read(mine.next().expect("a housekeeper").path().join("status"));
    let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")).unwrap();
    line.trim().parse().unwrap()
}

#[test]
fn an_idle_environment_sleeps_and_wakes_for_its_log() -> Result<(), Error> {
    const PATIENCE: Duration = Duration::from_mins(2);
    for durability in [Durability::Sync, Durability::Volatile] {
        let dir = tempfile::tempdir().unwrap();
        let options = Environment::options().cache_bytes(32 << 20).durability(durability);
        let env = options.checkpoint_log_bytes(8 << 20).open(dir.path())?;
        env.transact(|txn| txn.bytes_or_create("t")?.put(b"k", b"v"))?;
        // It comes to rest: two seconds with at most one look.
        let began = Instant::now();
        loop {
            let before = sleeps_of_the_housekeeper();
            std::thread::sleep(Duration::from_secs(2));
            if sleeps_of_the_housekeeper() - before <= 1 {
                break;
            }
            assert!(began.elapsed() < PATIENCE, "it never rests");
        }
        // And wakes for a checkpoint as soon as there is log enough.
        let (before, began) = (env.stat()?.checkpoint_count, Instant::now());
        for no in 0_u64.. {
            env.transact(|txn| txn.bytes("t")?.put(&no.to_be_bytes(), &[b'.'; 2000]))?;
            if env.stat()?.checkpoint_count > before {
                break;
            }
            assert!(began.elapsed() < PATIENCE, "it never wakes");
        }
        env.close()?;
    }
    Ok(())
}
