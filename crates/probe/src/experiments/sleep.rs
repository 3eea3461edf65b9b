//! The experiment that docs/probe.md shows, so that it is compiled.

use std::time::Duration;

use crate::context::{Context, at, timed};
use crate::error::ProbeError;
use crate::experiment::Experiment;
use crate::measure::Batch;
use crate::report::{Better, Unit};

// The page begins here.
pub(crate) struct Sleep;

impl Experiment for Sleep {
    fn id(&self) -> &'static str {
        "sleep"
    }
    fn title(&self) -> &'static str {
        "how long the shortest sleep is"
    }
    fn section(&self) -> &'static str {
        "6"
    }
    fn weight(&self) -> u32 {
        1
    }

    fn run(&self, context: &mut Context<'_>) -> Result<(), ProbeError> {
        context.expect(1); // measurements to come: the time is shared among them
        context.group("least", "The shortest sleep", None, Unit::Nanoseconds, Better::Lower);
        let least = context.measure(at("least", "nanosleep"), Batch::Auto, |n| {
            timed(n, || {
                std::thread::sleep(Duration::from_nanos(1));
                Ok(())
            })
        })?;
        context.say("least", least.map_or("Too noisy to say.".into(), |ns| format!("It takes {:.0} us.", ns / 1e3)));
        Ok(())
    }
}
// The page ends here.

#[test]
fn the_page_shows_this_experiment() {
    let page = include_str!("../../../../docs/probe.md");
    let (_, behind) = include_str!("sleep.rs").split_once("// The page begins here.\n").unwrap();
    let (shown, _) = behind.split_once("// The page ends here.\n").unwrap();
    assert!(page.contains(&format!("```rust\n{shown}```\n")), "docs/probe.md shows another experiment");
    let experiment: &dyn Experiment = &Sleep;
    assert_eq!(experiment.id(), "sleep");
}
