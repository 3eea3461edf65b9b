//! An environment that simulated processes share.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use ledgerstone::{Environment, Error, Options};
use ledgerstone_disk::{Disk, Open, SimDisk};
use ledgerstone_region::{
    Mutex,
    sync::{self, JoinHandle},
};

use crate::common::read;
use crate::model::Model;
use crate::work::Work;

/// Of a page of the data file.
const PAGE_BYTES: u64 = 4096;

/// What one process has of it.
pub struct Process {
    pub env: Environment,
    pub model: Arc<Mutex<Model>>,
    disk: SimDisk,
}

/// Its limits are met soon.
fn options() -> Options {
    Environment::options()
        .cache_bytes(128 * 4096)
        .page_count_max(1 << 12)
        .log_segment_bytes(256 << 10)
        .log_buffer_bytes(128 << 10)
        .version_store_bytes(1 << 20)
        .lock_count_max(2048)
        .transaction_count_max(24)
        .thread_count_max(60)
        .lock_timeout(Duration::from_secs(30))
}

impl Process {
    /// A new environment, and the process that has its background threads.
    pub fn create() -> Arc<Process> {
        Process::create_with(sync::yield_point) // The others run while the device works.
    }

    /// The same with a hook that is called while the device works.
    pub fn create_with(hook: impl Fn(&'static str) + Send + Sync + 'static) -> Arc<Process> {
        let disk = SimDisk::new();
        disk.set_hook(Arc::new(hook));
        let env = options().open_on(Arc::new(disk.clone())).unwrap();
        Arc::new(Process { env, model: Arc::default(), disk })
    }

    /// A new one with what one thread needs for its work, and nothing else.
    pub fn create_for(thread: u32, work: Work) -> Arc<Process> {
        Process::create_for_with(thread, work, sync::yield_point)
    }

    /// The same with a hook.
    pub fn create_for_with(
        thread: u32,
        work: Work,
        hook: impl Fn(&'static str) + Send + Sync + 'static,
    ) -> Arc<Process> {
        let root = Process::create_with(hook);
        let own = root.view();
        own.prepare_for_all([thread].into_iter());
        own.prepare_for(thread, work);
        root
    }

    /// The same as another process has it.
    pub fn view(&self) -> Process {
        let own: Arc<dyn Disk> = Arc::new(self.disk.clone());
        Process { env: self.env.view(&own).unwrap(), model: Arc::clone(&self.model), disk: self.disk.clone() }
    }

    /// Starts a thread in another process.
    pub fn start(&self, process: u32, name: &str, f: impl FnOnce(&Arc<Process>) + Send + 'static) -> JoinHandle<()> {
        let own = Arc::new(self.view());
        sync::deaths::spawn_in(process, name, move || f(&own))
    }

    /// Repairs if anybody has died, and has a thread end the transactions of the dead.
    pub fn repair(self: &Arc<Self>) -> Option<sync::JoinHandle<()>> {
        self.env.repair_after_deaths().unwrap().then(|| {
            let process = Arc::clone(self);
            sync::spawn("ends", move || process.end_orphans())
        })
    }

    fn end_orphans(&self) {
        self.env.end_orphans().unwrap();
        self.decide();
    }

    /// Decides on what is in doubt.
    pub fn decide(&self) {
        decide(&self.env, &self.model);
    }

    /// After a failure: what was committed is there when the environment is opened again, by the same program.
    pub fn check_when_opened_again(self) {
        let Process { env, model, disk, .. } = self;
        drop(env);
        check_opened(disk, &model);
    }

    /// After a close, whatever became of it: opens again, with a panic perhaps that `arm` prepares, and then once more.
    /// Says whether there was one.
    pub fn open_again(self, arm: impl FnOnce()) -> bool {
        let Process { env, model, disk, .. } = self;
        drop(env);
        arm();
        let opened = catch_unwind(AssertUnwindSafe(|| options().open_on(Arc::new(disk.clone()))));
        sync::deaths::panic_at_step(0);
        let has_panicked = opened.is_err();
        if let Ok(env) = opened {
            env.unwrap().close().unwrap();
        }
        check_opened(disk, &model);
        has_panicked
    }

    /// All records are those of the model, and all structures are whole.
    pub fn check_all(&self) {
        check(&self.env, &self.model.lock().clone());
    }

    /// All processes but this one have ended: all is as the model says, and nothing of the dead is left. Then it is
    /// closed. Returns how many pages the data file says that it has, and how many it has room for.
    pub fn end(&self) -> [u64; 2] {
        self.view().check_all(); // What is known of the catalog there is new. It keeps room in the log until it goes.
        self.env.end_background();
        self.env.assert_nothing_left();
        let page_count = self.env.stat().unwrap().page_count;
        let room = self.disk.open("data", Open::READ).unwrap().len().unwrap() / PAGE_BYTES;
        assert!(page_count <= room, "{page_count} pages in a file with room for {room}"); // G1 in `space/repair.rs`.
        self.env.clone().close().unwrap();
        [page_count, room]
    }

    /// The disk as it is now, and what should be there.
    pub fn lose_power(&self) -> (SimDisk, Model) {
        let model = self.model.lock(); // Nobody begins to commit meanwhile.
        (self.disk.snapshot(), model.clone())
    }

    /// What is synced is there after the power has failed, and all or nothing of what was not.
    pub fn check_after_power_loss(&self, (disk, model): (SimDisk, Model), seed: u64) {
        check_opened(disk.after_crash(seed), &Mutex::new(model));
    }
}

fn check_opened(disk: SimDisk, model: &Mutex<Model>) {
    let env = options().open_on(Arc::new(disk)).unwrap();
    decide(&env, model);
    check(&env, &model.lock());
    env.close().unwrap();
}

/// The coordinator's decisions on what is in doubt.
fn decide(env: &Environment, model: &Mutex<Model>) {
    for found in env.in_doubt() {
        let id = &found.global_id;
        let commits = model.lock().decision(id);
        let decided = if commits { env.commit_in_doubt(id).map(drop) } else { env.abort_in_doubt(id) };
        match decided {
            Ok(()) => model.lock().decided(id),
            Err(Error::NotPrepared { .. }) => {} // Another thread decides.
            Err(error) => panic!("a decision: {error}"),
        }
    }
}

fn check(env: &Environment, model: &Model) {
    let report = env.verify().unwrap();
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    model.check(&read(env).unwrap());
}
