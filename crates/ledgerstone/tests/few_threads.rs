//! A program whose threads take all thread slots leaves the library's own threads theirs.

mod common;

use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use common::{key, read, tiny};
use ledgerstone::{Environment, Error, Options};
use ledgerstone_disk::SimDisk;

/// Threads of the program, each of which stays.
struct Crowd {
    stay: Arc<Barrier>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

impl Crowd {
    /// Takes all slots that there are, and one try more.
    fn of(env: &Environment, count: usize) -> Crowd {
        let (stay, come) = (Arc::new(Barrier::new(count + 1)), Arc::new(Barrier::new(count + 1)));
        let threads = (0..count).map(|_| {
            let (env, stay, come) = (env.clone(), Arc::clone(&stay), Arc::clone(&come));
            std::thread::spawn(move || {
                match env.transact(|txn| txn.table_names()) {
                    Ok(_) | Err(Error::TooManyThreads(_)) => {}
                    Err(error) => panic!("{error}"),
                }
                drop(env);
                come.wait();
                stay.wait();
            })
        });
        let threads = threads.collect();
        come.wait();
        Crowd { stay, threads }
    }

    fn leave(self) {
        self.stay.wait();
        self.threads.into_iter().for_each(|thread| thread.join().unwrap());
    }
}

fn few(options: Options) -> Options {
    options.thread_count_max(4)
}

#[test]
fn checkpoints_are_taken_and_the_log_is_archived() {
    let disk = SimDisk::new();
    tiny().open_on(Arc::new(disk.clone())).unwrap().transact(|txn| txn.create_table("t").map(drop)).unwrap();
    for _ in 0..20 {
        let (disk, archive) = (disk.snapshot(), SimDisk::new());
        let options = few(tiny()).checkpoint_log_bytes(256 << 10).archive_on(Arc::new(archive));
        let env = options.open_on(Arc::new(disk)).unwrap();
        let crowd = Crowd::of(&env, 32);
        let (begun, before) = (Instant::now(), env.stat().unwrap());
        for n in 0u64.. {
            env.transact(|txn| txn.bytes("t")?.put(&key(n % 200), &[n as u8; 500])).unwrap();
            let now = env.stat().unwrap();
            if now.checkpoint_count > before.checkpoint_count && now.log_pins[0].lsn > before.log_pins[0].lsn {
                break;
            }
            assert!(begun.elapsed() < Duration::from_secs(20), "the log grows: {now:?}");
        }
        crowd.leave();
        env.close().unwrap();
    }
}

#[test]
fn what_was_put_off_is_rolled_back() {
    let disk = SimDisk::new();
    let env = tiny().open_on(Arc::new(disk.clone())).unwrap();
    env.transact(|txn| txn.create_table("big")?.put(&key(0), b"before")).unwrap();
    let txn = env.begin().unwrap();
    (0..2000).try_for_each(|n| txn.bytes("big")?.put(&key(n), &[1; 200])).unwrap();
    env.sync().unwrap();
    disk.crash_now();
    drop((txn, env));
    for _ in 0..20 {
        let disk = disk.after_crash(1);
        let env = few(tiny()).restart_undo_bytes(0).open_on(Arc::new(disk)).unwrap();
        assert_eq!(env.recovery_report().put_off_count, 1);
        let crowd = Crowd::of(&env, 32);
        let begun = Instant::now();
        while !env.rolling_back().is_empty() {
            assert!(begun.elapsed() < Duration::from_secs(20), "the rollback waits for a thread slot");
            std::thread::sleep(Duration::from_millis(1));
        }
        crowd.leave();
        assert_eq!(read(&env).unwrap()["big"].len(), 1);
    }
}
