//! Repairs that find the data file harmed, or that nobody may write it any more.

use super::*;

/// Dirty when a world begins, and in the log by no format.
const PAGE: PageId = PageId(5);

/// Repeats what the log has from there on, and believes that the page has the rest.
struct Trusting(FromLog);

impl Rebuild for Trusting {
    fn rebuild(&self, page: &mut ExclusivePage<'_>, from: Lsn, _is_void: bool) -> Result<(), BufferError> {
        self.0.repeat(page, from);
        Ok(())
    }
}

/// Process 1 dies before that step of a change of the page, and is known to be dead.
fn die_in_change(world: &World, plan: &Plan, step: u64) -> Result<(), Failure> {
    let victim = world.process(plan);
    let dies = spawn_in(1, "victim", move || {
        victim.slots.current();
        kill_at_step(1, step);
        victim.write(PAGE)
    });
    join(dies)?;
    sync::sleep_ns(3_000_000);
    Ok(())
}

fn simulated(seed: u64, f: impl FnOnce() -> Result<bool, Failure> + Send) -> Result<bool, Failure> {
    tried(seed, seed, STEPS_MAX, f)
}

/// The device fails while a page is built again. Process 2 repairs and dies before a step of that, or does not: then
/// false. Process 3 wants the page meanwhile, and repairs afterwards.
fn fail_to_build_again(seed: u64, death_in_repair: u64) -> Result<bool, Failure> {
    let plan = Plan::of(Change, seed);
    simulated(seed, || {
        let world = begin(&plan);
        die_in_change(&world, &plan, 100)?;
        world.harm.unreadable.store(PAGE.0, SeqCst);
        let [second, third] = [world.process(&plan), world.process(&plan)];
        let reads = Arc::clone(&third);
        let reader = spawn_in(3, "reader", move || {
            for _ in 0..50 {
                if let Ok(page) = reads.fixture.cache.shared(PAGE) {
                    reads.check(PAGE, page.page_lsn(), page.words())?;
                }
                sync::yield_point("has read");
            }
            Ok(())
        });
        yield_at_steps(2, 2, seed);
        let repairer = spawn_in(2, "repairer", move || {
            second.slots.current();
            kill_at_step(2, death_in_repair);
            second.repair(|| ());
            kill_at_step(2, 0);
            Ok(())
        });
        join(repairer)?;
        sync::sleep_ns(3_000_000);
        let repairs = Arc::clone(&third);
        let last = spawn_in(3, "repairer", move || {
            repairs.repair(|| ());
            Ok(())
        });
        join(last)?;
        join(reader)?;
        if !world.root.fixture.cache.is_failed() {
            world.root.check_shared(PAGE)?;
        }
        Ok(is_dead(2))
    })
    .map_err(|what| format!("seed {seed}, death at step {death_in_repair} of the repair: {what}"))
}

#[test]
fn a_page_that_cannot_be_built_again_after_deaths_is_read_by_nobody() {
    for seed in 0..40 {
        assert_eq!(fail_to_build_again(seed, 0), Ok(false));
    }
    let deaths = (1..).take_while(|step| fail_to_build_again(*step, *step).unwrap_or_else(|what| panic!("{what}")));
    assert!(deaths.count() > 5, "the repair was cut short nowhere");
}

/// The page is damaged at home, where it was written last. The area has a whole copy, but of an earlier write. The
/// victim dies before a step of its next change of the page, or does not: then false.
fn build_again_damaged(step: u64) -> Result<bool, Failure> {
    let plan = Plan::of(Change, step);
    simulated(step, || {
        let world = begin(&plan);
        let (root, failure) = (&world.root, |error: BufferError| error.to_string());
        let cache = &root.fixture.cache;
        cache.write_back_all().map_err(failure)?; // The last of a batch.
        for id in [PAGE, PageId(6)] {
            root.write(id)?;
            cache.write_back_page(id).map_err(failure)?; // Both in the first place of the lane.
        }
        assert_ne!(cache.double_write.find_copy(PAGE).map_err(failure)?, None, "an old copy is there");
        root.fixture.data.write_at(PAGE.0 * u64::from(PAGE_BYTES) + 2048, &[7; 512]).expect("the disk is on");
        die_in_change(&world, &plan, step)?;
        let trusting = Trusting(FromLog(Arc::clone(&root.fixture.log)));
        let repairer = world.process(&plan);
        repairer.slots.repair(|dead| repairer.fixture.cache.repairer(&trusting).repair(dead)).expect("a slot is free");
        if !cache.is_failed() {
            root.check_shared(PAGE).or_else(|what| match cache.shared(PAGE) {
                Err(BufferError::Damaged { .. }) => Ok(()),
                _ => Err(what),
            })?;
        }
        Ok(is_dead(1))
    })
    .map_err(|what| format!("death at step {step}: {what}"))
}

#[test]
fn a_page_is_never_built_again_after_deaths_from_the_copy_of_an_earlier_write() {
    let deaths = (1..).take_while(|step| build_again_damaged(*step).unwrap_or_else(|what| panic!("{what}")));
    assert!(deaths.count() > 500, "deaths in all of the page");
}

/// The log has failed: perhaps another environment has the files now. Process 1 dies in the middle of a write.
#[test]
fn nothing_is_written_home_after_deaths_when_the_log_has_failed() {
    let mut torn_count = 0;
    for (seed, step) in (0..6).flat_map(|seed| (1..20).map(move |step| (seed, step))) {
        let plan = Plan { tear: true, ..Plan::of(WriteBackOne, seed) };
        let ran = simulated(seed, || {
            let world = begin(&plan);
            let victim = world.process(&plan);
            let dies = spawn_in(1, "victim", move || {
                victim.slots.current();
                kill_at_step(1, step);
                victim.operate(WriteBackOne, &[])
            });
            join(dies)?;
            let is_torn = !world.tear_home().is_empty();
            sync::sleep_ns(3_000_000);
            world.root.fixture.log.fail();
            let before = world.harm.writes.load(SeqCst);
            world.process(&plan).repair(|| ());
            assert_eq!(world.harm.writes.load(SeqCst), before, "seed {seed}, step {step}");
            Ok(is_torn)
        });
        torn_count += u32::from(ran.expect("not stuck"));
    }
    assert!(torn_count > 0, "nothing was torn");
}

/// Process 1 dies before a step of a write of that page, or does not: then false.
fn die_in_write(world: &World, plan: &Plan, id: PageId, step: u64) -> Result<bool, Failure> {
    let victim = world.process(plan);
    let dies = spawn_in(1, "victim", move || {
        victim.slots.current();
        kill_at_step(1, step);
        victim.fixture.cache.write_back_page(id).map(drop).map_err(|error| error.to_string())
    });
    join(dies)?;
    sync::sleep_ns(3_000_000);
    Ok(is_dead(1))
}

/// Or else the power could fail when another write has the lane, and nothing is whole of the page.
#[test]
fn what_the_dead_wrote_home_is_durable_before_their_lane_is_free() {
    let dies_at = |step| {
        let plan = Plan::of(WriteBackOne, step);
        let ran = simulated(step, || {
            let world = begin(&plan);
            let has_died = die_in_write(&world, &plan, PAGE, step)?;
            world.process(&plan).repair(|| ());
            assert!(!world.harm.is_unsynced.load(SeqCst), "step {step}");
            Ok(has_died)
        });
        ran.unwrap_or_else(|what| panic!("{what}"))
    };
    assert!((1..).take_while(|step| dies_at(*step)).count() > 10, "deaths in all of the write");
}

/// The lane of the dead has a whole copy of a page that a living process is writing from another lane. What is at home
/// looks as if that copy belonged there.
fn mend_home_beside_a_write(step: u64) -> Result<bool, Failure> {
    let plan = Plan::of(WriteBackOne, step);
    simulated(step, || {
        let world = begin(&plan);
        let (root, failure) = (&world.root, |error: BufferError| error.to_string());
        root.fixture.cache.write_back_all().map_err(failure)?; // The page is the last of a batch.
        [PAGE, PageId(6)].into_iter().try_for_each(|id| root.write(id))?;
        let has_died = die_in_write(&world, &plan, PageId(6), step)?;
        world.harm.half_ns.store(20_000_000, SeqCst);
        let writes = world.process(&plan);
        let writer = spawn_in(2, "writer", move || {
            writes.fixture.cache.write_back_page(PAGE).map(drop).map_err(|error| error.to_string())
        });
        sync::sleep_ns(5_000_000);
        world.process(&plan).repair(|| ());
        join(writer)?;
        root.fixture.cache.read_page_direct(PAGE).map_err(failure)?;
        Ok(has_died)
    })
}

#[test]
fn copies_of_pages_that_the_dead_did_not_write_are_put_nowhere() {
    let dies_at = |step| mend_home_beside_a_write(step).unwrap_or_else(|what| panic!("step {step}: {what}"));
    assert!((1..).take_while(|step| dies_at(*step)).count() > 10, "deaths in all of the write");
}

/// Process 1 dies in a write of a page, and after the repair process 2 dies with the page latched.
#[test]
fn what_a_dead_thread_was_writing_stays_dirty_when_another_dies_with_its_latch() {
    let dies_at = |step| {
        let plan = Plan::of(WriteBackOne, step);
        let ran = simulated(step, || {
            let world = begin(&plan);
            let has_died = die_in_write(&world, &plan, PAGE, step)?;
            world.process(&plan).repair(|| ());
            let holds = world.process(&plan);
            let holder = spawn_in(2, "holder", move || {
                let _page = holds.fixture.cache.exclusive(PAGE).map_err(|error| error.to_string())?;
                kill(2);
                Ok(())
            });
            join(holder)?;
            sync::sleep_ns(3_000_000);
            world.process(&plan).repair(|| ());
            world.root.check_shared(PAGE)?;
            Ok(has_died)
        });
        ran.unwrap_or_else(|what| panic!("step {step}: {what}"))
    };
    assert!((1..).take_while(|step| dies_at(*step)).count() > 10, "deaths in all of the write");
}
