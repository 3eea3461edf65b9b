//! A process that forks with an environment open. The child's handles say so and touch nothing, and the parent works
//! on. The child opens its own when the parent has closed it.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use ledgerstone::{BackupOptions, Durability, Environment, Error, Lsn, Options};
use ledgerstone_dump::{Dump, DumpOptions, LoadOptions};

fn options() -> Options {
    Environment::options().cache_bytes(2 << 20).page_count_max(1 << 14).durability(Durability::Sync)
}

fn key(n: u64) -> [u8; 8] {
    n.to_be_bytes()
}

/// How a child ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    /// Without destructors of anything on the stack.
    Exit,
    /// As a program that returns from `main`: what `child` was given is dropped first.
    Return,
}

/// A child, to be waited for.
struct Child(libc::pid_t);

/// Runs `child` in a process that is forked off here. It fails if it panics or does not end.
fn fork(end: End, child: impl FnOnce()) -> Child {
    // SAFETY: the child goes on with a copy of this thread alone. It takes no lock that another thread of the test may
    // hold: what is tested is that the library keeps this, and a hang ends by the alarm.
    match unsafe { libc::fork() } {
        -1 => panic!("fork: {}", std::io::Error::last_os_error()),
        0 => {
            // SAFETY: sets a timer that kills this process.
            unsafe { libc::alarm(60) };
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(child));
            let code = i32::from(done.is_err());
            match end {
                // SAFETY: ends the process, with what C runs at an exit.
                End::Exit => unsafe { libc::exit(code) },
                // SAFETY: ends the process at once; all destructors have run.
                End::Return => unsafe { libc::_exit(code) },
            }
        }
        pid => Child(pid),
    }
}

impl Child {
    fn wait(self, what: &str) {
        let mut status = 0;
        // SAFETY: waits for a child of ours, and writes its status to a variable of ours.
        let waited = unsafe { libc::waitpid(self.0, &raw mut status, 0) };
        assert_eq!(waited, self.0, "{what}");
        assert_eq!(status, 0, "{what}: the child ended with {status:#x}");
    }
}

fn is_forked<T: std::fmt::Debug>(what: &str, result: Result<T, Error>) {
    assert!(matches!(result, Err(Error::Forked)), "{what}: {result:?}");
}

fn read_all(path: &Path) -> Vec<(Vec<u8>, Vec<u8>)> {
    let env = options().open(path).unwrap();
    let report = env.verify().unwrap();
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    let txn = env.begin().unwrap();
    txn.bytes("t").unwrap().range(..).unwrap().collect::<Result<_, _>>().unwrap()
}

/// Every file with its content, but those that a running parent writes.
fn assert_parent_works(env: &Environment, from: u64) {
    for n in from..from + 20 {
        env.transact(|txn| txn.bytes("t")?.put(&key(n), &key(n))).unwrap();
    }
    env.checkpoint().unwrap();
}

#[test]
fn a_childs_inherited_handles_say_so_and_touch_nothing() {
    for end in [End::Exit, End::Return] {
        let dir = tempfile::tempdir().unwrap();
        let env = options().open(dir.path()).unwrap();
        env.transact(|txn| txn.bytes_or_create("t")?.put(&key(0), &key(0))).unwrap();
        let running = env.begin().unwrap();
        let table = running.bytes("t").unwrap();
        table.put(&key(1000), b"of a transaction that is open while the fork happens").unwrap();
        let snapshot = env.snapshot().unwrap();
        let mut range = snapshot.bytes("t").unwrap().range(..).unwrap();
        range.next();
        let mut feed = env.changes(Lsn(u64::MAX)).unwrap();
        let mut reader = env.log_reader(Lsn(0)).unwrap();
        let pipelined = env.begin().unwrap();
        pipelined.bytes("t").unwrap().put(&key(2000), b"2000").unwrap();
        let ticket = pipelined.commit_with(Durability::Volatile).unwrap().ticket;

        let of_env = env.table("t").unwrap();
        let handles = (env.clone(), table.clone(), ticket.clone(), dir.path().to_path_buf());
        let mut moved = Some((running, snapshot, range, feed_taken(&env), env.log_reader(Lsn(0)).unwrap()));
        let child = fork(end, || {
            let (env, table, ticket, path) = &handles;
            is_forked("begin", env.begin());
            is_forked("snapshot", env.snapshot());
            is_forked("transact", env.transact(|txn| txn.bytes("t")?.put(b"k", b"child")));
            is_forked("get", table.get(&key(0)));
            is_forked("put", table.put(&key(0), b"child"));
            is_forked("range", table.range(..).map(drop));
            is_forked("count", table.count());
            is_forked("modify", table.modify(&key(0), |_| Some(b"child".to_vec())));
            let (running, snapshot, ..) = moved.as_ref().unwrap();
            for txn in [running, snapshot] {
                is_forked("get by the environment's table", of_env.get(txn, key(0)));
                is_forked("put by the environment's table", of_env.put(txn, key(0), b"child"));
                is_forked("range of the environment's table", of_env.range(txn, ..).map(drop));
                is_forked("the environment's table in a transaction", of_env.of(txn).map(drop));
            }
            is_forked("table", env.table("t").map(drop));
            is_forked("table or create", env.table_or_create("made by a child").map(drop));
            is_forked("checkpoint", env.checkpoint());
            is_forked("sync", env.sync());
            is_forked("reclaim", env.reclaim());
            is_forked("stat", env.stat().map(drop));
            is_forked("verify", env.verify());
            is_forked("compact", env.compact());
            is_forked("backup", env.backup_to(&mut Vec::new(), BackupOptions::default(), |_| ()));
            is_forked("dump", env.dump(&mut Vec::new(), &DumpOptions::default()));
            let text = "VERSION=3\nformat=print\ndatabase=u\ntype=btree\nHEADER=END\n k\n v\nDATA=END\n";
            is_forked("load", env.load(&mut text.as_bytes(), &LoadOptions::default()));
            is_forked("changes", env.changes(Lsn(0)).map(drop));
            is_forked("named changes", env.named_changes("child").map(drop));
            is_forked("forget changes", env.forget_changes("child"));
            is_forked("log reader", env.log_reader(Lsn(0)).map(drop));
            is_forked("feed", feed.next());
            is_forked("feed, following", feed.follow(Some(Duration::from_secs(30))));
            is_forked("log", reader.next());
            is_forked("log, following", reader.follow(Some(Duration::from_secs(30))));
            is_forked("log, waiting", reader.wait(None));
            is_forked("commit in doubt", env.commit_in_doubt(b"x").map(drop));
            is_forked("damaged pages", env.damaged_pages());
            is_forked("ticket", if ticket.is_durable() { Err(Error::Forked) } else { ticket.wait() });
            assert!(env.is_failed());
            is_forked("close", env.clone().close());
            // The parent has it.
            let opened = options().open(path);
            assert!(matches!(opened, Err(Error::AlreadyOpen { .. })), "{opened:?}");
            if let (End::Return, Some((running, snapshot, mut range, feed, reader))) = (end, moved.take()) {
                is_forked("savepoint", running.savepoint());
                assert!(matches!(range.next(), Some(Err(Error::Forked)) | None));
                drop((range, snapshot, feed, reader));
                is_forked("commit", running.commit().map(drop));
            }
        });
        assert_parent_works(&env, 1);
        child.wait("inherited handles");
        assert_parent_works(&env, 21);
        let (running, ..) = moved.unwrap();
        table.put(&key(1001), b"after the fork").unwrap();
        running.commit().unwrap();
        // Nobody else can open it: the child's end has not given the parent's lock back.
        fork(End::Return, || {
            assert!(matches!(options().open(dir.path()), Err(Error::AlreadyOpen { .. })));
        })
        .wait("the parent's lock");
        drop((table, ticket, feed, reader));
        drop(handles);
        env.close().unwrap();
        assert_eq!(read_all(dir.path()).len(), 1 + 40 + 3, "{end:?}");
    }
}

fn feed_taken(env: &Environment) -> ledgerstone::ChangeFeed {
    env.changes(Lsn(u64::MAX)).unwrap()
}

/// Everything is dropped by the child that a program drops when it returns from `main`.
#[test]
fn destructors_in_a_child_write_nothing_wait_for_nobody_and_leave_the_lock() {
    let dir = tempfile::tempdir().unwrap();
    let env = options().open(dir.path()).unwrap();
    env.transact(|txn| txn.bytes_or_create("t").map(drop)).unwrap();
    // Others are in the middle of things when the fork comes.
    let stop = Arc::new(AtomicBool::new(false));
    let threads: Vec<_> = (0..3u64)
        .map(|no| {
            let (env, stop) = (env.clone(), Arc::clone(&stop));
            std::thread::spawn(move || {
                let mut count = 0;
                while !stop.load(Relaxed) {
                    env.transact(|txn| txn.bytes("t")?.put(&key(no << 32 | count), &[1; 100])).unwrap();
                    count += 1;
                }
                count
            })
        })
        .collect();
    for round in 0..10 {
        let running = env.begin().unwrap();
        running.bytes("t").unwrap().put(&key(u64::MAX - round), b"rolled back").unwrap();
        let mut owned = Some((env.clone(), running, env.snapshot().unwrap(), feed_taken(&env)));
        let child = fork(End::Return, || {
            drop(owned.take());
        });
        child.wait("destructors");
        drop(owned);
    }
    // The last handle of a child: all of it is dropped there.
    let mut last = Some(env);
    let child = fork(End::Return, || drop(last.take()));
    child.wait("the last handle");
    let env = last.unwrap();
    stop.store(true, Relaxed);
    let count: u64 = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
    env.checkpoint().unwrap();
    env.close().unwrap();
    assert_eq!(read_all(dir.path()).len() as u64, count, "every commit that was acknowledged, and nothing else");
}

#[test]
fn a_child_opens_its_own_when_the_parent_has_closed() {
    let dir = tempfile::tempdir().unwrap();
    let env = options().open(dir.path()).unwrap();
    env.transact(|txn| txn.bytes_or_create("t")?.put(&key(1), b"parent")).unwrap();
    let (mut to_child, mut from_parent) = UnixStream::pair().unwrap();
    let (mut to_parent, mut from_child) = UnixStream::pair().unwrap();
    let mut inherited = Some(env);
    let child = fork(End::Return, || {
        from_parent.read_exact(&mut [0]).unwrap();
        let own = options().open(dir.path()).unwrap();
        own.transact(|txn| txn.bytes("t")?.put(&key(2), b"child")).unwrap();
        is_forked("the inherited one", inherited.as_ref().unwrap().begin());
        drop(inherited.take()); // It must not give back the lock that the child has now.
        to_parent.write_all(&[1]).unwrap();
        from_parent.read_exact(&mut [0]).unwrap();
        own.transact(|txn| txn.bytes("t")?.put(&key(3), b"child")).unwrap();
        own.close().unwrap();
    });
    inherited.take().unwrap().close().unwrap();
    to_child.write_all(&[1]).unwrap();
    from_child.read_exact(&mut [0]).unwrap();
    let opened = options().open(dir.path());
    assert!(matches!(opened, Err(Error::AlreadyOpen { .. })), "the child has it: {opened:?}");
    to_child.write_all(&[1]).unwrap();
    child.wait("its own environment");
    let values: Vec<_> = read_all(dir.path()).into_iter().map(|(_, value)| value).collect();
    assert_eq!(values, [&b"parent"[..], b"child", b"child"]);
}

/// What a server that is killed leaves behind: children that it forked, which know nothing of the environment.
#[test]
fn the_lock_of_a_killed_parent_ends_with_it_whatever_its_children_do() {
    let dir = tempfile::tempdir().unwrap();
    let (mut to_test, mut from_parent) = UnixStream::pair().unwrap();
    let (to_grandchild, mut from_test) = UnixStream::pair().unwrap();
    let parent = fork(End::Return, || {
        let env = options().open(dir.path()).unwrap();
        env.transact(|txn| txn.bytes_or_create("t")?.put(&key(1), b"parent")).unwrap();
        fork(End::Return, || {}).wait("a child that ends at once");
        let _sleeps = fork(End::Return, || {
            to_test.write_all(b"s").unwrap();
            let _ = from_test.read(&mut [0]); // Until the test ends it: it calls nothing of ours.
        });
        // SAFETY: waits for a signal; the alarm ends it, if the test does not.
        unsafe { libc::pause() };
    });
    from_parent.read_exact(&mut [0]).unwrap();
    let opened = options().open(dir.path());
    assert!(
        matches!(opened, Err(Error::AlreadyOpen { .. })),
        "a child that ended took the parent's lock along: {opened:?}"
    );
    // SAFETY: kills and collects a child of ours.
    let status = unsafe {
        let mut status = 0;
        libc::kill(parent.0, libc::SIGKILL);
        libc::waitpid(parent.0, &raw mut status, 0);
        status
    };
    assert!(libc::WIFSIGNALED(status), "the parent ended with {status:#x} before it was killed");
    let opened = options().open(dir.path());
    (&to_grandchild).write_all(b"e").unwrap();
    let env = opened.expect("the sleeping child keeps no lock");
    assert_eq!(env.transact(|txn| txn.bytes("t")?.get(&key(1))).unwrap().as_deref(), Some(&b"parent"[..]));
}
