//! The last handle goes in a thread of the library's, and the system has no thread left that could close. Alone in a
//! process of its own, whose address space is limited.

use std::future::Future;
use std::pin::pin;
use std::process::Command;
use std::sync::{Arc, Barrier, Condvar, Mutex};
use std::task::{Context, Wake, Waker};
use std::thread::{Builder, JoinHandle, sleep};
use std::time::{Duration, Instant};

use ledgerstone::{Durability, Environment, Options, TransactionOptions};
use ledgerstone_disk::{Disk, SimDisk};

const IN_THE_CHILD: &str = "LEDGERSTONE_NO_THREAD_LEFT";
/// What a thread takes beside its stack, at most.
const SPARE_BYTES: usize = 256 << 10;
const PATIENCE: Duration = Duration::from_secs(60);

/// Threads that stay until they are let go.
#[derive(Default)]
struct Stay {
    may_go: Mutex<bool>,
    goes: Condvar,
}

impl Stay {
    /// Starts threads until there is no room for another stack of this size, and what else a thread needs to start.
    fn fill(self: &Arc<Self>, stack_bytes: usize, threads: &mut Vec<JoinHandle<()>>) {
        loop {
            if Vec::<u8>::new().try_reserve_exact(stack_bytes + SPARE_BYTES).is_err() {
                return;
            }
            let (stay, started) = (Arc::clone(self), Arc::new(Barrier::new(2)));
            let starts = Arc::clone(&started);
            let body = move || {
                starts.wait();
                let may_go = stay.may_go.lock().unwrap();
                drop(stay.goes.wait_while(may_go, |may_go| !*may_go));
            };
            let Ok(thread) = Builder::new().stack_size(stack_bytes).spawn(body) else { return };
            started.wait();
            threads.push(thread);
        }
    }
}

/// All that keeps the environment.
#[derive(Default)]
struct Last(Mutex<Option<Environment>>);

impl Wake for Last {
    fn wake(self: Arc<Self>) {
        drop(self.0.lock().unwrap().take());
    }
}

fn options() -> Options {
    Environment::options().cache_bytes(4 << 20).page_count_max(1 << 14).log_buffer_bytes(1 << 20)
}

#[test]
fn an_environment_that_no_thread_can_close_is_let_go_and_recovered() {
    if std::env::var_os(IN_THE_CHILD).is_some() {
        return in_the_child();
    }
    let program = std::env::current_exe().unwrap();
    let script = format!("ulimit -v 3000000; exec '{}' --nocapture --test-threads 1", program.display());
    let said = Command::new("sh").args(["-c", &script]).env(IN_THE_CHILD, "1").output().unwrap();
    let text = String::from_utf8_lossy(&said.stdout).into_owned() + &String::from_utf8_lossy(&said.stderr);
    assert!(said.status.success() && text.contains("recovered without a close"), "{text}");
}

fn in_the_child() {
    let sim = SimDisk::new();
    let env = options().durability(Durability::Pipelined).open_on(Arc::new(sim.clone())).unwrap();
    env.transact(|txn| txn.create_table("t")?.put(b"k", b"acknowledged")).unwrap();
    let (stay, mut threads) = (Arc::<Stay>::default(), Vec::new());
    let room = vec![1_u8; 512 << 10];
    for stack_bytes in [64 << 20, 8 << 20, 1 << 20] {
        stay.fill(stack_bytes, &mut threads);
    }
    drop(room); // For all that is not a thread. With it, there is less than a stack of the usual 2 MiB.
    assert!(Builder::new().spawn(|| ()).is_err(), "{} threads, and there is room for one more", threads.len());

    let volatile = TransactionOptions { durability: Some(Durability::Volatile), ..TransactionOptions::default() };
    let last = Arc::new(Last::default());
    let waker = Waker::from(Arc::clone(&last));
    let mut env = env;
    // A ticket that is dropped wakes nobody.
    let _ticket = loop {
        let (_, committed) = env.transact_ticket(volatile, |txn| txn.bytes("t")?.put(b"l", b"v")).unwrap();
        let mut ticket = committed.ticket;
        *last.0.lock().unwrap() = Some(env);
        if pin!(&mut ticket).poll(&mut Context::from_waker(&waker)).is_pending() {
            break ticket;
        }
        // It was durable already, and nobody is woken.
        env = last.0.lock().unwrap().take().unwrap();
    };
    let began = Instant::now();
    // Its lock is given back. Then there may be threads again.
    while sim.lock("lock").is_err() {
        assert!(began.elapsed() < PATIENCE, "it is never let go");
        sleep(Duration::from_millis(5));
    }
    *stay.may_go.lock().unwrap() = true;
    stay.goes.notify_all();
    threads.into_iter().for_each(|thread| thread.join().unwrap());

    let env = options().open_on(Arc::new(sim)).unwrap();
    assert!(!env.recovery_report().was_clean, "somebody has closed it");
    for key in [b"k", b"l"] {
        assert!(env.transact(|txn| txn.bytes("t")?.get(key)).unwrap().is_some());
    }
    env.close().unwrap();
    println!("recovered without a close");
}
