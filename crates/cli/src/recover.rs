//! `recover`: opens the environment, shows how recovery gets on, reports what it did, and closes in order.

use comfy_table::{Table, presets};
use ledgerstone::{Environment, RecoveryReport};
use ledgerstone_bench::Recovery;
use serde_json::json;

use crate::opening::{DirArgs, open_recovered};
use crate::outcome::Outcome;
use crate::output::Output;

/// `recover`
#[derive(Clone, Debug, clap::Args)]
pub struct RecoverArgs {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub at: DirArgs,
    /// First make a new control file from data and log. Use this if it is lost, damaged, or of another environment.
    #[arg(long)]
    pub rebuild_control: bool,
    /// First forget all named feeds. Use this if the file of their positions, feeds, is lost or damaged.
    #[arg(long)]
    pub forget_feeds: bool,
}

pub(crate) fn run(args: &RecoverArgs, output: &Output) -> anyhow::Result<Outcome> {
    if args.rebuild_control && !Environment::rebuild_control(&args.at.dir)? {
        output.note("the control file that is there can be used; it was not changed");
    }
    if args.forget_feeds {
        Environment::forget_all_changes(&args.at.dir)?;
    }
    let env = open_recovered(&args.at, output)?;
    let report = env.recovery_report().clone();
    let in_doubt = env.in_doubt().len();
    env.close()?;
    print(&report, in_doubt, output)?;
    if in_doubt > 0 {
        output
            .note("transactions in doubt hold their locks until somebody decides them: ledgerstone prepared list DIR");
    }
    Ok(Outcome::Done)
}

fn print(report: &RecoveryReport, in_doubt: usize, output: &Output) -> std::io::Result<()> {
    let ms = |ns: u64| ns as f64 / 1e6;
    if output.is_json {
        // As `stat` has it, and more.
        let mut told = serde_json::to_value(Recovery::from(report))?;
        told["scan_lsn"] = report.scan_lsn.0.into();
        told["end_lsn"] = report.end_lsn.0.into();
        told["incarnation"] = report.incarnation.into();
        told["torn_pages"] = report.torn_pages.iter().map(|page| page.0).collect();
        told["damaged_control_slot"] = json!(report.damaged_control_slot);
        told["damaged_table_slot"] = json!(report.damaged_table_slot);
        told["in_doubt_count"] = in_doubt.into();
        told["put_off_count"] = report.put_off_count.into();
        told["redo_put_off_count"] = report.redo_put_off_count.into();
        output.json(&told)?;
        return output.flush();
    }
    if let Some(slot) = report.damaged_control_slot {
        output.note(format_args!(
            "slot {slot} of the control file could not be read; the other one was whole, and now both are"
        ));
    }
    if report.was_clean {
        output.line("the environment had been closed in order: there was nothing to recover")?;
        return output.flush();
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    let mut row = |name: &str, figure: String| {
        table.add_row([name.to_owned(), figure]);
    };
    row("log read", format!("LSN {} to {}", report.scan_lsn, report.end_lsn));
    row("records", report.record_count.to_string());
    row("commits found", report.winner_count.to_string());
    row("transactions rolled back", report.loser_count.to_string());
    if report.put_off_count > 0 {
        row("of these after the opening", report.put_off_count.to_string());
    }
    row("transactions in doubt", in_doubt.to_string());
    row("updates repeated", report.redo_applied_count.to_string());
    if report.redo_put_off_count > 0 {
        row("updates looked at after the opening", report.redo_put_off_count.to_string());
    }
    row("updates already there", report.redo_skipped_count.to_string());
    row("updates undone", report.undone_count.to_string());
    let torn: Vec<String> = report.torn_pages.iter().map(|page| page.0.to_string()).collect();
    row("torn pages restored", if torn.is_empty() { "none".to_owned() } else { torn.join(", ") });
    row(
        "time",
        format!(
            "{:.1} ms: torn pages {:.1}, analysis {:.1}, redo {:.1}, undo {:.1}, checkpoint {:.1}",
            ms(report.total_ns()),
            ms(report.torn_ns),
            ms(report.analysis_ns),
            ms(report.redo_ns),
            ms(report.undo_ns),
            ms(report.checkpoint_ns)
        ),
    );
    output.line(table.trim_fmt())?;
    output.flush()
}
