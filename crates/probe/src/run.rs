//! A run: the experiments of a plan one after the other, each with its share of the time that is left. The time left
//! over goes to experiments that were noisy, not reached or not decided (`retake`).

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::clock::Clock;
use crate::context::{Context, Progress};
use crate::error::ProbeError;
use crate::experiment::Experiment;
use crate::machine::Machine;
use crate::noise::NoiseWatch;
use crate::place::Places;
use crate::plan::{Effort, Plan};
use crate::report::{Outcome, Report, Status};
use crate::retake::{self, Spot};
use crate::stop::Stop;
use crate::workdir::WorkDir;

/// Passes after the first one. What is still noisy then is noisy.
const RETAKES_MAX: usize = 3;

/// Runs a plan. Whatever happens to single experiments, the report has what was found until then; everything that was
/// made on disk is gone afterwards.
///
/// Takes minutes; `progress` is called before every measurement.
///
/// # Errors
/// What keeps a run from beginning: [`ProbeError::Directory`], [`ProbeError::NoSpace`]. A request to stop is none: the
/// report then says so.
pub fn run(plan: &Plan, stop: &Stop, progress: &mut dyn FnMut(&Progress)) -> Result<Report, ProbeError> {
    let began = Instant::now();
    let work = WorkDir::make(&plan.dir, plan.disk_bytes_max)?;
    let places = Places::look()?;
    let clock = Clock::look();
    let mut noise = NoiseWatch::new();
    let run_ends = began + plan.time();
    let mut report = Report {
        format: Report::FORMAT,
        version: env!("CARGO_PKG_VERSION").into(),
        started_unix_s: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs()),
        seconds: 0.0,
        effort: plan.effort,
        stopped: None,
        machine: Machine::look(work.path(), places.count()),
        clock,
        experiments: Vec::new(),
        claims: Vec::new(),
        services: Vec::new(),
        advice: Vec::new(),
    };
    let mut pass = Pass { plan, stop, work: &work, places: &places, noise: &mut noise, began, run_ends, progress };
    let mut missed = Vec::new();
    let mut weight_left: u32 = plan.experiments.iter().map(|e| e.weight()).sum();
    for experiment in &plan.experiments {
        let share = pass.share(experiment.weight(), weight_left);
        weight_left -= experiment.weight();
        missed.extend(pass.take(&mut report, *experiment, share, None));
    }
    let retakes = if plan.effort == Effort::Quick { 0 } else { RETAKES_MAX };
    for _ in 0..retakes {
        let wanted = retake::wanted(&report, &missed);
        let left = run_ends.saturating_duration_since(Instant::now());
        if wanted.is_empty() || stop.is_asked() || left < plan.time() / 10 {
            break;
        }
        missed.clear();
        let mut count_left = wanted.len();
        for experiment in &plan.experiments {
            let mine: Vec<_> = wanted.iter().filter(|spot| spot.experiment() == experiment.id()).cloned().collect();
            if mine.is_empty() {
                continue;
            }
            let share = pass.share(mine.len() as u32, count_left as u32);
            count_left -= mine.len();
            missed.extend(pass.take(&mut report, *experiment, share, Some(mine)));
        }
    }
    if stop.is_asked() {
        report.stopped = Some("somebody asked to stop".into());
    }
    drop(work);
    report.conclude();
    report.seconds = Duration::as_secs_f64(&began.elapsed());
    Ok(report)
}

/// Once through experiments: what all of them are given.
struct Pass<'a> {
    plan: &'a Plan,
    stop: &'a Stop,
    work: &'a WorkDir,
    places: &'a Places,
    noise: &'a mut NoiseWatch,
    began: Instant,
    run_ends: Instant,
    progress: &'a mut dyn FnMut(&Progress),
}

impl Pass<'_> {
    /// The part of the time left that has this weight.
    fn share(&self, weight: u32, of: u32) -> Duration {
        let left = self.run_ends.saturating_duration_since(Instant::now());
        left.mul_f64(f64::from(weight) / f64::from(of.max(1)))
    }

    /// Runs one experiment, or takes only those values again. The result is what the time did not suffice for.
    fn take(
        &mut self,
        report: &mut Report,
        experiment: &dyn Experiment,
        share: Duration,
        only: Option<Vec<Spot>>,
    ) -> Vec<Spot> {
        let begin = Instant::now();
        let place = report.experiments.iter().position(|e| e.id == experiment.id());
        let outcome = place.map_or_else(|| outcome_of(experiment), |place| report.experiments[place].clone());
        let before = outcome.seconds;
        let mut context = Context {
            effort: self.plan.effort,
            clock: &report.clock,
            stop: self.stop,
            work: self.work,
            places: self.places,
            noise: &mut *self.noise,
            deadline: begin + share,
            began: self.began,
            run_ends: self.run_ends,
            steps_left: 10,
            missed: Vec::new(),
            only,
            experiment: experiment.id(),
            outcome,
            progress: &mut *self.progress,
        };
        let result = if self.stop.is_asked() { Err(ProbeError::Stopped) } else { experiment.run(&mut context) };
        let Context { mut outcome, mut missed, .. } = context;
        outcome.groups.retain(|group| !group.points.is_empty());
        // A value that has been taken once is not missing, whatever happened to its retake.
        let is_known = |spot: &Spot| {
            let group = outcome.groups.iter().find(|g| g.id == spot.group);
            group.is_some_and(|g| g.points.iter().any(|p| p.series == spot.series && p.x == spot.x))
        };
        missed.retain(|spot| !is_known(spot));
        outcome.seconds = before + begin.elapsed().as_secs_f64();
        outcome.status = match result {
            Err(error) if outcome.groups.is_empty() && outcome.facts.is_empty() => Status::Skipped(error.to_string()),
            Err(error) => Status::Partial(error.to_string()),
            Ok(()) if !missed.is_empty() => {
                Status::Partial(format!("the time was out for {} measurements", missed.len()))
            }
            Ok(()) => Status::Whole,
        };
        match place {
            Some(place) => report.experiments[place] = outcome,
            None => report.experiments.push(outcome),
        }
        missed
    }
}

fn outcome_of(experiment: &dyn Experiment) -> Outcome {
    Outcome {
        id: experiment.id().into(),
        title: experiment.title().into(),
        section: experiment.section().into(),
        status: Status::Whole,
        seconds: 0.0,
        groups: Vec::new(),
        facts: Vec::new(),
        skipped: Vec::new(),
    }
}
