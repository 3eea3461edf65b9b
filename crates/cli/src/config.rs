//! `config`: the settings in force, the settings file checked, or a file to begin with. Opens no environment.

use std::path::{Path, PathBuf};

use anyhow::Context;
use comfy_table::{Table, presets};
use ledgerstone::config::{CONFIG_FILE, Setting, SettingInForce, Unit, Value};
use ledgerstone::{Environment, Error};
use serde_json::json;

use crate::opening::is_device;
use crate::outcome::Outcome;
use crate::output::Output;

/// `config`
#[derive(Clone, Debug, clap::Args)]
pub struct ConfigArgs {
    /// Directory of the environment. The command does not open it, so a program may have it open.
    #[arg(required_unless_present = "defaults")]
    pub dir: Option<PathBuf>,
    /// Report what is wrong with the settings file (exit code 1), and nothing else.
    #[arg(long, conflicts_with = "defaults")]
    pub check: bool,
    /// Print a settings file to start from, with every setting, its default and what it does.
    #[arg(long)]
    pub defaults: bool,
}

pub(crate) fn run(args: &ConfigArgs, output: &Output) -> anyhow::Result<Outcome> {
    if args.defaults {
        return defaults(output);
    }
    let dir = args.dir.as_deref().context("which directory? ledgerstone config DIR")?;
    anyhow::ensure!(!dir.is_file(), "{} is a file, not a directory", dir.display());
    if args.check { check(dir, output) } else { show(dir, output) }
}

fn show(dir: &Path, output: &Output) -> anyhow::Result<Outcome> {
    let effective = Environment::options().settings_in(dir)?;
    if !dir.is_dir() && !is_device(dir) {
        output
            .note(format_args!("{} does not exist: a new environment there would have these settings", dir.display()));
    }
    if output.is_json {
        for SettingInForce { setting, value, source } in effective.settings() {
            output.json(&json!({
                "name": setting.name,
                "value": value,
                "source": source,
                "default": setting.default_value(),
                "unit": setting.unit.name(),
                "allowed": setting.allowed(),
                "effect": setting.effect.to_string(),
                "about": setting.about,
            }))?;
        }
    } else {
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        for SettingInForce { setting, value, source } in effective.settings() {
            table.add_row([setting.name.to_owned(), setting.show(&value), source.to_string()]);
        }
        output.line(table.trim_fmt())?;
    }
    output.flush()?;
    Ok(Outcome::Done)
}

fn check(dir: &Path, output: &Output) -> anyhow::Result<Outcome> {
    let file = dir.join(CONFIG_FILE);
    let problems = match Environment::options().settings_in(dir) {
        Ok(_) if is_device(dir) => {
            output.note(format_args!("{} is a device, which has no settings file", dir.display()));
            Vec::new()
        }
        Ok(_) if !file.exists() => {
            output.note(format_args!("{} does not exist: every setting has its default", file.display()));
            Vec::new()
        }
        Ok(_) => Vec::new(),
        Err(Error::SettingsFile { problems, .. }) => {
            problems.into_iter().map(|problem| (Some(problem.line), problem.setting, problem.what)).collect()
        }
        Err(Error::Setting { name, what }) => vec![(None, name, what)],
        Err(error @ Error::WrongPageSize { .. }) => vec![(None, "page_bytes".to_owned(), error.to_string())],
        Err(error @ Error::InsideEnvironment { .. }) => vec![(None, "archive_dir".to_owned(), error.to_string())],
        Err(other) => return Err(other.into()),
    };
    for (line, setting, what) in &problems {
        if output.is_json {
            output.json(&json!({ "file": file, "line": line, "setting": setting, "problem": what }))?;
        } else {
            let line = line.map_or(String::new(), |line| format!(":{line}"));
            let setting = if setting.is_empty() { String::new() } else { format!("{setting}: ") };
            output.line(format_args!("{}{line}: {setting}{what}", file.display()))?;
        }
    }
    let has_control = dir.join("control").exists() || is_device(dir) && Environment::was_closed(dir).is_ok();
    let damaged_slot = if has_control { Environment::damaged_control_slot(dir)? } else { None };
    if let Some(slot) = damaged_slot {
        let what = format!(
            "slot {slot} is damaged, or was being written when the power failed; the other one is whole, and the next \
             recovery or checkpoint makes both whole"
        );
        let file = dir.join("control");
        if output.is_json {
            output.json(&json!({ "file": file, "line": null, "setting": "", "problem": what }))?;
        } else {
            output.line(format_args!("{}: {what}", file.display()))?;
        }
    }
    output.flush()?;
    if problems.is_empty() && damaged_slot.is_none() {
        output.note(format_args!("{}: nothing is wrong", dir.display()));
        return Ok(Outcome::Done);
    }
    Ok(Outcome::Not)
}

/// A settings file that changes nothing: every line is a comment until somebody takes its mark away.
fn defaults(output: &Output) -> anyhow::Result<Outcome> {
    if output.is_json {
        for setting in Setting::all() {
            output.json(&json!({ "name": setting.name, "value": setting.default_value() }))?;
        }
    } else {
        output.line(format_args!("# {CONFIG_FILE}: settings of the environment in this directory."))?;
        output.line(
            "# A number counts what the name ends with; a text has its unit: \"64M\" (sizes: K, M, G, T, powers of",
        )?;
        output.line("# 1024), \"10ms\" (times: us, ms, s, min, h).")?;
        for setting in Setting::all() {
            output.line(format_args!("\n{}", wrapped(setting.about)))?;
            output.line(format_args!("# Allowed: {}. Takes effect {}.", setting.allowed(), setting.effect))?;
            let value = match setting.default_value() {
                Value::Number(number) if setting.unit == Unit::Count => number.to_string(),
                value => format!("{:?}", setting.show(&value)),
            };
            output.line(format_args!("#{} = {value}", setting.name))?;
        }
    }
    output.flush()?;
    Ok(Outcome::Done)
}

/// A sentence as comment lines of at most 100 letters.
fn wrapped(text: &str) -> String {
    let (mut lines, mut width) = (String::from("#"), 1);
    for word in text.split(' ') {
        if width + 1 + word.len() > 100 {
            lines.push_str("\n#");
            width = 1;
        }
        lines.push(' ');
        lines.push_str(word);
        width += 1 + word.len();
    }
    lines
}
