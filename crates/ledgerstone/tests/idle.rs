//! An environment that nobody uses wakes no processor. Alone in its process, whose threads are looked at.

use std::time::{Duration, Instant};

use ledgerstone::{Durability, Environment, Error};

/// How often the threads of the engine have gone to sleep, all of them: neither the process's first nor this one.
fn sleeps() -> u64 {
    let own = std::fs::read_link("/proc/thread-self").unwrap();
    let others = [own.file_name().unwrap().to_owned(), std::process::id().to_string().into()];
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let mine: Vec<_> = tasks.filter(|task| !others.contains(&task.file_name())).collect();
    let has = |name: &str| {
        let is_so = |task: &std::fs::DirEntry| {
            std::fs::read_to_string(task.path().join("comm")).is_ok_and(|comm| comm.trim_end() == name)
        };
        mine.iter().any(is_so)
    };
    assert!(has("housekeeper") && has("log flusher") && has("page writer"), "{} threads", mine.len());
    let sleeps_of = |task: &std::fs::DirEntry| {
        let status = std::fs::read_to_string(task.path().join("status")).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        line.and_then(|count| count.trim().parse::<u64>().ok()).unwrap_or(0)
    };
    mine.iter().map(sleeps_of).sum()
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
            let before = sleeps();
            std::thread::sleep(Duration::from_secs(2));
            if sleeps() - before <= 1 {
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
