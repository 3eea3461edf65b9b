//! What an experiment is given: a directory, a time, ways to measure, and a place for what it found.

use std::time::{Duration, Instant};

use crate::clock::Clock;
use crate::error::ProbeError;
use crate::measure::{self, Batch, Limits};
use crate::noise::NoiseWatch;
use crate::place::Places;
use crate::plan::Effort;
use crate::report::{Axis, Better, Fact, Group, Outcome, Point, Skip, Unit, Value};
use crate::retake::{self, Spot};
use crate::stop::Stop;
use crate::workdir::{WorkDir, WorkFile};

/// Where a run is.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress {
    /// The experiment under way.
    pub experiment: &'static str,
    /// What it measures.
    pub what: String,
    /// The part of the run that is over, 0 to 1.
    pub part: f64,
    /// The run ends within this time.
    pub left_max: Duration,
}

/// Where a value belongs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct At<'a> {
    pub(crate) group: &'a str,
    pub(crate) series: &'a str,
    pub(crate) x: Option<f64>,
}

pub(crate) fn at<'a>(group: &'a str, series: &'a str) -> At<'a> {
    At { group, series, x: None }
}

impl<'a> At<'a> {
    pub(crate) fn x(self, x: impl Into<f64>) -> At<'a> {
        At { x: Some(x.into()), ..self }
    }

    pub(crate) fn bytes(self, bytes: u64) -> At<'a> {
        At { x: Some(bytes as f64), ..self }
    }
}

/// The hands of an experiment.
pub struct Context<'a> {
    pub(crate) effort: Effort,
    pub(crate) clock: &'a Clock,
    pub(crate) stop: &'a Stop,
    pub(crate) work: &'a WorkDir,
    pub(crate) places: &'a Places,
    pub(crate) noise: &'a mut NoiseWatch,
    pub(crate) deadline: Instant,
    pub(crate) began: Instant,
    pub(crate) run_ends: Instant,
    pub(crate) steps_left: u32,
    /// What the time did not suffice for.
    pub(crate) missed: Vec<Spot>,
    /// In a retake: all that is measured. Anything else keeps the value that it has.
    pub(crate) only: Option<Vec<Spot>>,
    pub(crate) experiment: &'static str,
    pub(crate) outcome: Outcome,
    pub(crate) progress: &'a mut dyn FnMut(&Progress),
}

impl<'a> Context<'a> {
    /// How long the run may take.
    #[must_use]
    pub fn effort(&self) -> Effort {
        self.effort
    }

    /// Says how many measurements are to come, so that the time is shared among them. A retake knows it already.
    pub(crate) fn expect(&mut self, steps: usize) {
        let steps = self.only.as_ref().map_or(steps, Vec::len);
        self.steps_left = u32::try_from(steps).unwrap_or(u32::MAX);
    }

    /// Whether the experiment's time is over.
    pub(crate) fn is_over(&self) -> bool {
        Instant::now() >= self.deadline
    }

    /// # Errors
    /// [`ProbeError::Stopped`] when the run was asked to.
    pub(crate) fn check(&self) -> Result<(), ProbeError> {
        self.stop.check()
    }

    /// A file that may grow to `bytes`, counted against the disk that the run may use.
    pub(crate) fn file(&self, name: &str, bytes: u64) -> Result<WorkFile, ProbeError> {
        self.work.file(name, bytes)
    }

    /// Opens a group of values. `says` is set by [`Context::say`] once they are known.
    pub(crate) fn group(&mut self, id: &str, title: &str, x: Option<(&str, Unit)>, unit: Unit, better: Better) {
        if self.find(id).is_some() {
            return; // A retake.
        }
        self.outcome.groups.push(Group {
            id: self.full(id),
            title: title.into(),
            x: x.map(|(label, unit)| Axis { label: label.into(), unit }),
            unit,
            better,
            says: String::new(),
            points: Vec::new(),
        });
    }

    /// What a group's values say, in a sentence.
    pub(crate) fn say(&mut self, group: &str, says: impl Into<String>) {
        let id = self.full(group);
        if let Some(group) = self.outcome.groups.iter_mut().find(|g| g.id == id) {
            group.says = says.into();
        }
    }

    /// Measures the time of an iteration. A refusal is noted as skipped, with the system's words; the result is then
    /// none.
    ///
    /// # Errors
    /// Only [`ProbeError::Stopped`].
    pub(crate) fn measure(
        &mut self,
        at: At<'_>,
        batch: Batch,
        run: impl FnMut(u64) -> Result<Duration, ProbeError>,
    ) -> Result<Option<f64>, ProbeError> {
        self.measure_amount(at, batch, 1.0, run)
    }

    /// Measures a rate: an iteration does or moves `amount`.
    ///
    /// # Errors
    /// Only [`ProbeError::Stopped`].
    pub(crate) fn measure_amount(
        &mut self,
        at: At<'_>,
        batch: Batch,
        amount: f64,
        mut run: impl FnMut(u64) -> Result<Duration, ProbeError>,
    ) -> Result<Option<f64>, ProbeError> {
        let unit = self.find(at.group).map_or(Unit::Nanoseconds, |g| g.unit);
        self.within(at, |limits, noise| measure::measure(limits, noise, batch, unit, amount, &mut run))
    }

    /// Notes values that a run returns itself, in the group's unit.
    ///
    /// # Errors
    /// Only [`ProbeError::Stopped`].
    pub(crate) fn sample(
        &mut self,
        at: At<'_>,
        mut run: impl FnMut() -> Result<f64, ProbeError>,
    ) -> Result<Option<f64>, ProbeError> {
        self.within(at, |limits, noise| measure::sample(limits, noise, &mut run))
    }

    fn within(
        &mut self,
        at: At<'_>,
        measure: impl FnOnce(&Limits<'_>, &mut NoiseWatch) -> Result<Value, ProbeError>,
    ) -> Result<Option<f64>, ProbeError> {
        self.check()?;
        if !self.is_taken_now(&at) {
            return Ok(self.median(at));
        }
        self.report_progress(&at);
        if self.is_over() {
            self.missed.push(self.spot(&at));
            return Ok(self.median(at));
        }
        let limits = self.limits();
        match measure(&limits, self.noise) {
            Ok(value) => Ok(self.record(at, value)),
            Err(error) if error.is_stop() => Err(error),
            Err(error) => {
                self.skip_at(at, &error);
                Ok(None)
            }
        }
    }

    /// Measures several steps of one thing together, or several things by turns: a run pushes a value for each place,
    /// and the runs go on until each is known narrowly.
    ///
    /// # Errors
    /// Only [`ProbeError::Stopped`].
    pub(crate) fn sample_all(
        &mut self,
        ats: &[At<'_>],
        mut run: impl FnMut(&mut Vec<f64>) -> Result<(), ProbeError>,
    ) -> Result<(), ProbeError> {
        self.check()?;
        let Some(first) = ats.first() else { return Ok(()) };
        if !ats.iter().any(|at| self.is_taken_now(at)) {
            return Ok(());
        }
        self.report_progress(first);
        if self.is_over() {
            self.missed.push(self.spot(first));
            return Ok(());
        }
        let limits = self.limits();
        let values = match measure::sample_all(&limits, self.noise, ats.len(), &mut run) {
            Ok(values) => values,
            Err(error) if error.is_stop() => return Err(error),
            Err(error) => {
                self.skip_at(*first, &error);
                return Ok(());
            }
        };
        let known: Vec<&Value> = ats.iter().filter_map(|at| self.value(*at)).collect();
        if known.len() == values.len() && !retake::is_better(&values.iter().collect::<Vec<_>>(), &known) {
            return Ok(());
        }
        for (at, value) in ats.iter().zip(values) {
            self.put(*at, value);
        }
        Ok(())
    }

    /// Whether a value is to be measured in this pass.
    fn is_taken_now(&self, at: &At<'_>) -> bool {
        self.only.as_ref().is_none_or(|only| only.contains(&self.spot(at)))
    }

    fn spot(&self, at: &At<'_>) -> Spot {
        Spot { group: self.full(at.group), series: at.series.into(), x: at.x }
    }

    /// The time left, shared among the measurements to come; a measurement that needs less leaves it to the others.
    fn limits(&mut self) -> Limits<'a> {
        let share = self.deadline.saturating_duration_since(Instant::now()) / self.steps_left.max(2);
        self.steps_left = self.steps_left.saturating_sub(1);
        Limits {
            effort: self.effort,
            // A retake gets more: what it is for was too little known before.
            time: share.min(self.effort.measurement_time_max() * if self.only.is_some() { 3 } else { 1 }),
            deadline: self.deadline,
            clock: self.clock,
            stop: self.stop,
        }
    }

    /// Notes a value, unless a better one is known already. The result is the median that is known now.
    pub(crate) fn record(&mut self, at: At<'_>, value: Value) -> Option<f64> {
        match self.value(at) {
            Some(known) if !retake::is_better(&[&value], &[known]) => known.median,
            _ => self.put(at, value),
        }
    }

    fn put(&mut self, at: At<'_>, value: Value) -> Option<f64> {
        let id = self.full(at.group);
        let median = value.median;
        if let Some(group) = self.outcome.groups.iter_mut().find(|g| g.id == id) {
            match group.points.iter_mut().find(|p| p.series == at.series && p.x == at.x) {
                Some(point) => point.value = value,
                None => group.points.push(Point { series: at.series.into(), x: at.x, value }),
            }
        }
        median
    }

    fn find(&self, group: &str) -> Option<&Group> {
        let id = self.full(group);
        self.outcome.groups.iter().find(|g| g.id == id)
    }

    /// A value measured before.
    pub(crate) fn value(&self, at: At<'_>) -> Option<&Value> {
        self.find(at.group)?.points.iter().find(|p| p.series == at.series && p.x == at.x).map(|p| &p.value)
    }

    /// A median measured before, if it is not noise.
    pub(crate) fn median(&self, at: At<'_>) -> Option<f64> {
        self.value(at)?.median
    }

    /// Notes something found without measuring. What is found later counts.
    pub(crate) fn fact(&mut self, name: &str, value: impl Into<String>, means: impl Into<String>) {
        let found = Fact { name: name.into(), value: value.into(), means: means.into() };
        match self.outcome.facts.iter_mut().find(|fact| fact.name == name) {
            Some(fact) => *fact = found,
            None => self.outcome.facts.push(found),
        }
    }

    /// Notes what is not measured, and why.
    pub(crate) fn skip(&mut self, what: impl Into<String>, why: impl Into<String>) {
        let (what, why) = (what.into(), why.into());
        // The same refusal at every size is one line.
        if !self.outcome.skipped.iter().any(|s| s.what == what && s.why == why) {
            self.outcome.skipped.push(Skip { what, why });
        }
    }

    pub(crate) fn skip_at(&mut self, at: At<'_>, error: &ProbeError) {
        self.skip(format!("{}: {}", at.group, at.series), error.to_string());
    }

    fn full(&self, group: &str) -> String {
        format!("{}/{group}", self.experiment)
    }

    fn report_progress(&mut self, at: &At<'_>) {
        let now = Instant::now();
        let whole = (self.run_ends - self.began).as_secs_f64().max(1e-9);
        let progress = Progress {
            experiment: self.experiment,
            what: at.series.into(),
            part: ((now - self.began).as_secs_f64() / whole).min(1.0),
            left_max: self.run_ends.saturating_duration_since(now),
        };
        (self.progress)(&progress);
    }
}

/// Times `n` iterations.
pub(crate) fn timed(n: u64, mut iteration: impl FnMut() -> Result<(), ProbeError>) -> Result<Duration, ProbeError> {
    let begin = Instant::now();
    for _ in 0..n {
        iteration()?;
    }
    Ok(begin.elapsed())
}
