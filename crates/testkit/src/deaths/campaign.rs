//! The rounds of a campaign: a death before each step of each kind of work, one in the repair after it, and deaths at
//! random. Then each part of a repair is left out in turn.

use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind, set_hook, take_hook};

use super::Outcome;
use super::asked::{is_asked, named, number, or_tell, seeds};

/// Which steps are tried.
#[derive(Debug, Clone, Copy)]
pub enum Which {
    /// All.
    Each,
    /// About so many, from the first on; all of them if `EVERY` is set.
    About(u64),
    /// The first, and then one in so many.
    OneIn(usize),
    /// These.
    These(&'static [u64]),
    /// One in so many of these: the first ones, the last ones, and some of all `parts` between. Deaths in the middle of
    /// a fill are all alike.
    Ends {
        /// How many first and last ones.
        edge: u64,
        /// How many there are between, about.
        parts: u64,
        /// One in so many is tried.
        one_in: usize,
    },
}

impl Which {
    /// Those of so many steps. `draw` says which ones, where there is a choice.
    #[must_use]
    pub fn of(self, steps: u64, draw: u64) -> Box<dyn Iterator<Item = u64>> {
        let all = 1..=steps;
        match self {
            Which::Each => Box::new(all),
            Which::About(_) if is_asked("EVERY") => Box::new(all),
            Which::About(count) => Box::new(all.step_by((steps / count).max(1) as usize)),
            Which::OneIn(count) => Box::new(all.step_by(count)),
            Which::These(these) => Box::new(these.iter().copied()),
            Which::Ends { edge, parts, one_in } => {
                let stride = (steps / parts).max(1);
                let is_meant =
                    move |step: &u64| *step <= edge || *step + edge > steps || step % stride == draw % stride;
                Box::new(all.filter(is_meant).step_by(one_in))
            }
        }
    }

    /// At how many of these steps somebody dies. Where each is meant, also at how many behind them: a round with
    /// another seed may have more.
    pub(super) fn count_deaths(self, asked: &str, steps: u64, draw: u64, dies_at: impl Fn(u64) -> bool) -> [u64; 2] {
        if let Some(step) = number(asked) {
            return [u64::from(dies_at(step)), 0];
        }
        let deaths = self.of(steps, draw).filter(|step| dies_at(*step)).count() as u64;
        let behind =
            matches!(self, Which::Each).then(|| (steps + 1..).take_while(|step| dies_at(*step)).count() as u64);
        [deaths, behind.unwrap_or(0)]
    }
}

/// Runs each work with a death before steps of it. Before step 0, nobody dies. `is_enough` looks at the number of
/// deaths in so many steps.
///
/// # Panics
/// A round fails, or there are too few deaths.
pub fn at_each_step<W: Copy + Debug>(
    works: &[W],
    which: Which,
    is_enough: fn(u64, u64) -> bool,
    run: impl Fn(W, u64) -> Outcome,
) {
    for (work, draw) in named("WORK", works).into_iter().zip(0..) {
        let run = |step| or_tell(&[("WORK", &format!("{work:?}")), ("STEP", &step)], || run(work, step));
        let steps = run(0).victim_steps;
        let [deaths, behind] = which.count_deaths("STEP", steps, draw, |step| run(step).victim);
        println!("{work:?}: {deaths} deaths in {steps} steps, and {behind} behind them");
        assert!(is_asked("STEP") || is_enough(deaths, steps), "{work:?}: {deaths} deaths in {steps} steps");
    }
}

/// Runs each work with a death before steps of it, and one before steps of the repair. Before step 0, nobody dies.
///
/// # Panics
/// A round fails, or there are no more pairs of deaths than `least`.
pub fn in_repairs<W: Copy + Debug>(
    works: &[W],
    [of_victim, of_repairer]: [Which; 2],
    least: u64,
    run: impl Fn(W, u64, u64) -> Outcome,
) {
    let mut all = 0;
    for (work, draw) in named("WORK", works).into_iter().zip(0..) {
        let run = |n, r| {
            let asks: [(&str, &dyn std::fmt::Display); 3] =
                [("WORK", &format!("{work:?}")), ("STEP", &n), ("REPAIR_STEP", &r)];
            or_tell(&asks, || run(work, n, r))
        };
        let steps: Vec<u64> = match number("STEP") {
            Some(step) => vec![step],
            None => of_victim.of(run(0, 0).victim_steps, draw).collect(),
        };
        let pairs_at = |n: u64| {
            let steps = run(n, 0).repair_steps;
            let [pairs, behind] = of_repairer.count_deaths("REPAIR_STEP", steps, n, |r| run(n, r).repairer);
            pairs + behind
        };
        let pairs: u64 = steps.into_iter().map(pairs_at).sum();
        println!("{work:?}: {pairs} deaths in repairs");
        all += pairs;
    }
    println!("{all} pairs");
    let is_narrowed = ["WORK", "STEP", "REPAIR_STEP"].into_iter().any(is_asked);
    assert!(is_narrowed || all > least, "{all} pairs of deaths");
}

/// Runs so many rounds, or those that are asked for, and counts what comes in them. The first of it has to come in more
/// than one of `one_in` rounds.
///
/// # Panics
/// A round fails, or there are too few deaths.
pub fn at_random<const N: usize>(rounds: u64, what: [&str; N], one_in: u64, run: impl Fn(u64) -> [u64; N]) {
    let seeds = seeds(rounds);
    let count = seeds.end - seeds.start;
    let mut sums = [0; N];
    for seed in seeds {
        let came = or_tell(&[("SEED", &seed)], || run(seed));
        sums.iter_mut().zip(came).for_each(|(sum, came)| *sum += came);
    }
    let told: Vec<String> = sums.iter().zip(what).map(|(sum, what)| format!("{what}: {sum}")).collect();
    println!("{count} rounds; {}", told.join(", "));
    assert!(count == 1 || sums[0] > count / one_in, "{} in {count} rounds prove little", told[0]);
}

/// Leaves out each part of a repair in turn. `find` says what has missed it.
///
/// # Panics
/// A part is not missed.
pub fn each_part_is_missed<P: Copy + Debug, F: Debug>(parts: &[P], find: impl Fn(P) -> Option<F>) {
    let hook = take_hook();
    set_hook(Box::new(|_| {})); // Each find is a panic.
    let is_missed = |part: &P| {
        let found = find(*part);
        match &found {
            Some(found) => println!("without {part:?}: {found:?}"),
            None => println!("without {part:?}: nobody notices"),
        }
        found.is_some()
    };
    let unmissed = catch_unwind(AssertUnwindSafe(|| {
        named("PART", parts).into_iter().filter(|part| !is_missed(part)).collect::<Vec<_>>()
    }));
    set_hook(hook);
    let unmissed = unmissed.unwrap_or_else(|panic| match panic.downcast::<String>() {
        Ok(what) => panic!("{what}"), // So that it is seen.
        Err(panic) => resume_unwind(panic),
    });
    assert!(unmissed.is_empty(), "these are not missed: {unmissed:?}");
}

/// Whether a round fails.
pub fn fails<T>(round: impl FnOnce() -> T) -> bool {
    catch_unwind(AssertUnwindSafe(round)).is_err()
}
