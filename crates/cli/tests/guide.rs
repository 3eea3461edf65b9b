//! The operator's guide names every command, every setting and every command of the shell, as the program knows them.
//!
//! The tables between `<!-- NAME -->` and `<!-- end of NAME -->` are made here: `WRITE_GUIDE=1 cargo test --test guide`
//! writes them anew. `docs.rs` runs its examples.
#![allow(missing_docs)]

use clap::CommandFactory;
use ledgerstone::config::Setting;
use ledgerstone_cli::args::Args;
use ledgerstone_cli::shell::command::COMMANDS;

const GUIDE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide.md");

fn check(name: &str, header: &[&str], rows: &[Vec<String>]) {
    let row = |cells: &mut dyn Iterator<Item = String>| {
        cells.map(|cell| format!("| {} ", cell.replace('|', "\\|"))).collect::<String>() + "|\n"
    };
    let mut table = row(&mut header.iter().map(|&cell| cell.to_owned()));
    table += &row(&mut header.iter().map(|_| "---".to_owned()));
    for cells in rows {
        table += &row(&mut cells.iter().cloned());
    }
    let text = std::fs::read_to_string(GUIDE).unwrap();
    let (begin, end) = (format!("<!-- {name} -->\n"), format!("<!-- end of {name} -->\n"));
    let from = text.find(&begin).unwrap() + begin.len();
    let to = text.find(&end).unwrap();
    if std::env::var_os("WRITE_GUIDE").is_some() {
        std::fs::write(GUIDE, format!("{}{table}{}", &text[..from], &text[to..])).unwrap();
    } else {
        assert!(
            text[from..to] == table,
            "the table of {name} in docs/guide.md is out of date: WRITE_GUIDE=1 cargo test --test guide"
        );
    }
}

/// One test, because writing goes through one file.
#[test]
fn the_guide_is_what_the_program_knows() {
    let line = |about: Option<&clap::builder::StyledStr>| about.map(ToString::to_string).unwrap_or_default();
    let mut commands = Vec::new();
    let is_shown = |command: &&clap::Command| !command.is_hide_set();
    for command in Args::command().get_subcommands().filter(is_shown) {
        commands.push(vec![format!("`{}`", command.get_name()), line(command.get_about())]);
        for inner in command.get_subcommands().filter(is_shown) {
            commands.push(vec![format!("`{} {}`", command.get_name(), inner.get_name()), line(inner.get_about())]);
        }
    }
    check("commands", &["command", "what it does"], &commands);

    let setting = |setting: &Setting| {
        vec![
            format!("`{}`", setting.name),
            setting.show(&setting.default_value()),
            setting.allowed(),
            setting.effect.to_string(),
            setting.about.to_owned(),
        ]
    };
    let settings: Vec<_> = Setting::all().iter().map(setting).collect();
    check("settings", &["setting", "default", "allowed", "takes effect", "what it does"], &settings);

    let shell: Vec<_> =
        COMMANDS.iter().map(|usage| vec![format!("`{}`", usage.usage), usage.about.to_owned()]).collect();
    check("shell", &["command", "what it does"], &shell);
    let text = std::fs::read_to_string(GUIDE).unwrap();
    for outer in ledgerstone_cli::shell::outer::commands() {
        let (_, section) = text.split_once("\n## Shell\n").unwrap();
        let section = section.split("\n## ").next().unwrap();
        assert!(section.contains(&format!("`{}`", outer.name)), "docs/guide.md: the shell has {}", outer.name);
    }
    check_sections();
    check_ctrl_c();
}

/// Each command is in the table that says how it ends on Ctrl-C.
fn check_ctrl_c() {
    let text = std::fs::read_to_string(GUIDE).unwrap();
    let (_, table) = text.split_once("<!-- ctrl-c -->").unwrap();
    let (table, _) = table.split_once("<!-- end of ctrl-c -->").unwrap();
    for command in Args::command().get_subcommands().filter(|command| !command.is_hide_set()) {
        let name = command.get_name();
        let is_there = table.contains(&format!("`{name}`")) || table.contains(&format!("`{name} "));
        assert!(is_there || name == "help", "docs/guide.md does not say how {name} ends on Ctrl-C");
    }
}

fn check_sections() {
    let text = std::fs::read_to_string(GUIDE).unwrap();
    let anchors: Vec<String> = text
        .lines()
        .filter(|line| line.starts_with('#'))
        .map(|line| {
            let title = line.trim_start_matches('#').trim().to_lowercase();
            title
                .chars()
                .filter(|c| c.is_alphanumeric() || *c == ' ' || *c == '-' || *c == '_')
                .collect::<String>()
                .replace(' ', "-")
        })
        .collect();
    for link in text.split("](#").skip(1) {
        let anchor = link.split(')').next().unwrap();
        assert!(anchors.iter().any(|known| known == anchor), "docs/guide.md: there is no section #{anchor}");
    }
}
