//! The contract of an experiment.

use crate::context::Context;
use crate::error::ProbeError;

/// One question to the machine. Lives in one file under `experiments/` and has one line in [`crate::experiments::ALL`].
///
/// An experiment measures through its [`Context`] and holds no result itself. It may leave files in the context's
/// directory, which is removed; it leaves nothing anywhere else, also when it ends early.
pub trait Experiment: Sync {
    /// Its name on the command line and in reports.
    fn id(&self) -> &'static str;

    /// What it asks, in a few words.
    fn title(&self) -> &'static str;

    /// Where in the paper.
    fn section(&self) -> &'static str;

    /// Its share of the time among all experiments.
    fn weight(&self) -> u32;

    /// Measures.
    ///
    /// # Errors
    /// What keeps it from going on. Everything measured until then stays in the report. A refused measurement is not an
    /// error: `Context::measure` notes it and goes on.
    fn run(&self, context: &mut Context<'_>) -> Result<(), ProbeError>;
}
