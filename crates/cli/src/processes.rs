//! `processes`: who has the environment open.

use comfy_table::{Table, presets};

use crate::opening::{DirArgs, open_to_read};
use crate::outcome::Outcome;
use crate::output::Output;

pub(crate) fn run(args: &DirArgs, output: &Output) -> anyhow::Result<Outcome> {
    let env = open_to_read(args, output)?;
    let processes = env.processes();
    env.close()?;
    if output.is_json {
        for process in &processes {
            output.json(process)?;
        }
    } else {
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        table.set_header(["number", "pid", "threads", "transactions", ""]);
        for process in &processes {
            let about = match (process.is_this, process.is_dead, process.leads) {
                (true, _, _) => "this command",
                (_, true, _) => "has died",
                (_, _, true) => "leads",
                _ => "",
            };
            let numbers = [process.number, process.pid, process.thread_count, process.transaction_count];
            table.add_row(numbers.map(|number| number.to_string()).into_iter().chain([about.to_owned()]));
        }
        output.line(table.to_string())?;
    }
    output.flush()?;
    Ok(Outcome::Done)
}
