//! A run: the experiments of a plan one after the other, each with its share of the time that is left.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::clock::Clock;
use crate::context::{Context, Progress};
use crate::error::ProbeError;
use crate::machine::Machine;
use crate::noise::NoiseWatch;
use crate::place::Places;
use crate::plan::Plan;
use crate::report::{Outcome, Report, Status};
use crate::stop::Stop;
use crate::workdir::WorkDir;

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
    let mut weight_left: u32 = plan.experiments.iter().map(|e| e.weight()).sum();
    for experiment in &plan.experiments {
        let begin = Instant::now();
        let left = run_ends.saturating_duration_since(begin);
        let share = left.mul_f64(f64::from(experiment.weight()) / f64::from(weight_left.max(1)));
        weight_left -= experiment.weight();
        let mut context = Context {
            effort: plan.effort,
            clock: &report.clock,
            stop,
            work: &work,
            places: &places,
            noise: &mut noise,
            deadline: begin + share,
            began,
            run_ends,
            steps_left: 10,
            not_in_time: 0,
            experiment: experiment.id(),
            outcome: Outcome {
                id: experiment.id().into(),
                title: experiment.title().into(),
                section: experiment.section().into(),
                status: Status::Whole,
                seconds: 0.0,
                groups: Vec::new(),
                facts: Vec::new(),
                skipped: Vec::new(),
            },
            progress,
        };
        let result = if stop.is_asked() { Err(ProbeError::Stopped) } else { experiment.run(&mut context) };
        let not_in_time = context.not_in_time;
        let mut outcome = context.outcome;
        outcome.groups.retain(|group| !group.points.is_empty());
        outcome.seconds = begin.elapsed().as_secs_f64();
        outcome.status = match result {
            Err(error) if outcome.groups.is_empty() && outcome.facts.is_empty() => Status::Skipped(error.to_string()),
            Err(error) => Status::Partial(error.to_string()),
            Ok(()) if not_in_time > 0 => Status::Partial(format!("the time was out for {not_in_time} measurements")),
            Ok(()) => Status::Whole,
        };
        report.experiments.push(outcome);
    }
    if stop.is_asked() {
        report.stopped = Some("somebody asked to stop".into());
    }
    drop(work);
    report.conclude();
    report.seconds = Duration::as_secs_f64(&began.elapsed());
    Ok(report)
}
