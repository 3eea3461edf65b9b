//! What may come next on a command line: options, their values, commands, names of tables and indexes. The scripts for
//! bash, zsh and fish ask for it at every press of the tab key, by the hidden command `complete`.
//!
//! An answer is a line: what to type, a tab, and what it is. `:files` and `:dirs` ask the shell for names of files.
//!
//! C1. It never does harm and never complains. Names of tables come from an environment that was closed in order and is
//!     not open anywhere, so nothing is recovered and nobody waits. Otherwise there are none.
//! C2. clap's own engine for this is marked as unstable, and does not tell a completer which directory was typed
//!     before.

use std::path::Path;

use clap::{Arg, Command};
use ledgerstone::{Environment, Error, Transaction, is_obeyed};

use crate::outcome::Outcome;
use crate::output::{Output, escaped};

/// `completions`
#[derive(Clone, Debug, clap::Args)]
pub struct CompletionsArgs {
    /// The shell.
    #[arg(value_enum)]
    pub shell: Shell,
}

/// `complete`
#[derive(Clone, Debug, clap::Args)]
pub struct CompleteArgs {
    /// The line up to the cursor, as it is typed.
    #[arg(long)]
    pub line: Option<String>,
    /// What the shell takes for the word to complete.
    #[arg(long, allow_hyphen_values = true)]
    pub word: Option<String>,
    /// The words of the line behind the program's name; the last one is to be completed.
    #[arg(last = true, conflicts_with = "line")]
    pub words: Vec<String>,
}

/// Memory for the page cache: the least.
const CACHE_BYTES: u64 = 1 << 20;

/// What may be typed, and what it is.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Candidate {
    text: String,
    about: String,
}

impl Candidate {
    fn new(text: impl Into<String>, about: impl ToString) -> Candidate {
        let about = about.to_string();
        Candidate { text: text.into(), about: about.lines().next().unwrap_or_default().to_owned() }
    }
}

pub(crate) fn run(args: &CompleteArgs, output: &Output) -> anyhow::Result<Outcome> {
    let (mut words, skipped) = match &args.line {
        Some(line) => {
            let (words, start) = split(line);
            // The shell replaces what it takes for the word: less than ours, if it holds a `=` or a `:`.
            let typed = line.get(start..).unwrap_or_default();
            let kept =
                args.word.as_deref().filter(|word| typed.ends_with(word)).map_or(0, |word| typed.len() - word.len());
            (words, kept)
        }
        None => (args.words.clone(), 0),
    };
    let last = words.pop().unwrap_or_default();
    for Candidate { text, about } in candidates(crate::help::command(), &words, &last) {
        let is_ask = text.starts_with(':') && about.is_empty();
        // A name with control characters cannot be typed, and would end this line early.
        if !is_ask && (text.chars().any(is_obeyed) || !text.starts_with(&last)) {
            continue;
        }
        let text = if is_ask { &text } else { text.get(skipped..).unwrap_or_default() };
        output.line(format_args!("{text}\t{}", escaped(&about)))?;
    }
    output.flush()?;
    Ok(Outcome::Done)
}

/// What may stand where `last` does, behind the words.
fn candidates(mut root: Command, words: &[String], last: &str) -> Vec<Candidate> {
    root.build();
    let (mut command, mut typed) = (&root, Vec::new());
    let mut wants_value: Option<&Arg> = None;
    let mut is_past_options = false;
    for word in words {
        if wants_value.take().is_some() {
            continue;
        }
        if word == "--" {
            is_past_options = true;
        } else if word.starts_with('-') && word.len() > 1 && !is_past_options {
            wants_value = option(command, word).filter(|arg| arg.get_action().takes_values() && !word.contains('='));
        } else if let Some(inner) =
            command.find_subcommand(word).filter(|_| typed.is_empty() || !has_dir_first(command))
        {
            (command, typed) = (inner, Vec::new());
        } else {
            typed.push(word.as_str());
        }
    }
    if let Some(arg) = wants_value {
        return values(arg, &typed, "");
    }
    if !has_dir_first(command) && !typed.is_empty() {
        return Vec::new(); // A command that there is not.
    }
    if let Some((name, _)) = last.split_once('=').filter(|(name, _)| name.starts_with("--") && !is_past_options) {
        return option(command, name).map_or_else(Vec::new, |arg| values(arg, &typed, &format!("{name}=")));
    }
    if last.starts_with('-') && !is_past_options {
        let options = command.get_arguments().filter(|arg| !arg.is_hide_set());
        return options.filter_map(|arg| Some(Candidate::new(format!("--{}", arg.get_long()?), about(arg)))).collect();
    }
    let mut found = Vec::new();
    if !has_dir_first(command) || command.is_args_conflicts_with_subcommands_set() && typed.is_empty() {
        let is_root = std::ptr::eq(command, &root);
        let is_shown = |inner: &&Command| !inner.is_hide_set() && (is_root || inner.get_name() != "help");
        let inner = command.get_subcommands().filter(is_shown);
        found.extend(
            inner.map(|inner| Candidate::new(inner.get_name(), inner.get_about().cloned().unwrap_or_default())),
        );
    }
    let positionals: Vec<&Arg> = command.get_positionals().collect();
    let at = positionals
        .get(typed.len())
        .or(positionals.last().filter(|arg| arg.get_action().takes_values() && is_many(arg)));
    found.extend(at.map_or_else(Vec::new, |arg| values(arg, &typed, "")));
    found
}

fn is_many(arg: &Arg) -> bool {
    arg.get_num_args().is_some_and(|count| count.max_values() > 1)
}

/// Whether words come where the command's own commands could: `backup DIR TARGET`.
fn has_dir_first(command: &Command) -> bool {
    command.get_positionals().next().is_some()
}

fn option<'a>(command: &'a Command, word: &str) -> Option<&'a Arg> {
    let name = word.split('=').next().unwrap_or_default();
    command.get_arguments().find(|arg| match name.strip_prefix("--") {
        Some(long) => arg.get_long() == Some(long),
        None => arg.get_short().is_some_and(|short| name.ends_with(short)),
    })
}

fn about(arg: &Arg) -> String {
    arg.get_help().map(ToString::to_string).unwrap_or_default()
}

/// The values of an argument behind the positional words, each behind `prefix`.
fn values(arg: &Arg, typed: &[&str], prefix: &str) -> Vec<Candidate> {
    let possible = arg.get_possible_values();
    if !possible.is_empty() {
        let about = |help: Option<&clap::builder::StyledStr>| help.map(ToString::to_string).unwrap_or_default();
        return possible
            .iter()
            .map(|value| Candidate::new(format!("{prefix}{}", value.get_name()), about(value.get_help())))
            .collect();
    }
    let dir = typed.first().map(Path::new);
    let named = |names: Option<Vec<String>>, what: &str| {
        let names = names.unwrap_or_default();
        names.into_iter().map(|name| Candidate::new(format!("{prefix}{name}"), what)).collect()
    };
    let value_name = arg.get_value_names().and_then(<[_]>::first).map_or("", |name| name.as_str());
    match (arg.get_id().as_str(), value_name) {
        ("table" | "tables", _) => named(dir.and_then(tables), "table"),
        (_, "INDEX") => named(dir.zip(typed.get(1)).and_then(|(dir, table)| indexes(dir, table)), "index"),
        ("dir", _) | (_, "DIR") => vec![Candidate::new(":dirs", "")],
        ("file" | "backup" | "target" | "a" | "b", _) | (_, "FILE" | "BACKUP") => vec![Candidate::new(":files", "")],
        _ => Vec::new(),
    }
}

fn tables(dir: &Path) -> Option<Vec<String>> {
    ask(dir, |txn| txn.table_names())
}

fn indexes(dir: &Path, table: &str) -> Option<Vec<String>> {
    ask(dir, |txn| Ok(txn.bytes(table)?.indexes().iter().map(|index| index.name().to_owned()).collect()))
}

/// Asks an environment that can be read as it is (C1).
fn ask<T>(dir: &Path, question: impl FnOnce(&Transaction) -> Result<T, Error>) -> Option<T> {
    if !Environment::was_closed(dir).ok()? {
        return None;
    }
    let options = Environment::options().create(false).read_only(true).cache_bytes(CACHE_BYTES);
    let env = options.open(dir).ok()?;
    let txn = env.snapshot().ok()?;
    let answer = question(&txn).ok();
    txn.abort().ok()?;
    env.close().ok()?;
    answer
}

/// The words of a line behind the program's name as a shell takes them, with what begins last (perhaps nothing), and
/// where that begins. Variables and patterns stay as they are.
fn split(line: &str) -> (Vec<String>, usize) {
    let (mut words, mut word, mut start) = (Vec::new(), String::new(), 0);
    let (mut quote, mut is_escaped, mut is_inside) = (None, false, false);
    for (at, c) in line.char_indices() {
        if !is_inside && !c.is_whitespace() {
            (is_inside, start) = (true, at);
        }
        match (quote, c) {
            _ if is_escaped => {
                word.push(c);
                is_escaped = false;
            }
            (None | Some('"'), '\\') => is_escaped = true,
            (None, '\'' | '"') => quote = Some(c),
            (Some(open), _) if open == c => quote = None,
            (None, _) if c.is_whitespace() => {
                if is_inside {
                    words.push(at_home(std::mem::take(&mut word)));
                    is_inside = false;
                }
            }
            _ => word.push(c),
        }
    }
    words.push(at_home(word));
    (words.into_iter().skip(1).collect(), if is_inside { start } else { line.len() })
}

/// `~/` as the shell will have it.
fn at_home(word: String) -> String {
    match (word.strip_prefix("~/"), std::env::var("HOME")) {
        (Some(rest), Ok(home)) => format!("{home}/{rest}"),
        _ => word,
    }
}

/// The script for a shell.
pub(crate) fn script(shell: Shell) -> &'static str {
    match shell {
        Shell::Bash => BASH,
        Shell::Zsh => ZSH,
        Shell::Fish => FISH,
    }
}

/// A shell that there is a script for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Shell {
    /// GNU bash, from 4.4 on.
    Bash,
    /// The Z shell.
    Zsh,
    /// fish, from 3.0 on.
    Fish,
}

const BASH: &str = r#"# Completions of ledgerstone for bash: source this file, or put it where bash-completion looks.
_ledgerstone() {
  local value about quoted
  COMPREPLY=()
  while IFS=$'\t' read -r value about; do
    case $value in
      :files) compopt -o filenames; mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -f -- "$2") ;;
      :dirs) compopt -o filenames; mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -d -- "$2") ;;
      *) printf -v quoted %q "$value"; COMPREPLY+=("$quoted") ;;
    esac
  done < <("$1" complete --line "${COMP_LINE:0:COMP_POINT}" --word "$2" 2>/dev/null)
}
complete -F _ledgerstone ledgerstone
"#;

const ZSH: &str = r#"#compdef ledgerstone
# Completions of ledgerstone for zsh: a file _ledgerstone in a directory of $fpath.
_ledgerstone() {
  local -a found
  local value about
  while IFS=$'\t' read -r value about; do
    case $value in
      :files) _files ;;
      :dirs) _files -/ ;;
      *) found+=("${value//:/\\:}:$about") ;;
    esac
  done < <("${(Q)words[1]}" complete -- "${(@Q)words[2,CURRENT]}" 2>/dev/null)
  (( $#found )) && _describe ledgerstone found
}
if [[ $funcstack[1] == _ledgerstone ]]; then
  _ledgerstone "$@"
else
  compdef _ledgerstone ledgerstone
fi
"#;

const FISH: &str = r#"# Completions of ledgerstone for fish: a file ledgerstone.fish in a directory of $fish_complete_path.
function __ledgerstone_complete
    set -l words (commandline -opc) (commandline -ct)
    for line in ($words[1] complete -- $words[2..-1] 2>/dev/null)
        switch $line
            case ':files*'
                __fish_complete_path (commandline -ct)
            case ':dirs*'
                __fish_complete_directories (commandline -ct)
            case '*'
                echo $line
        end
    end
end
complete -c ledgerstone -f -a '(__ledgerstone_complete)'
"#;

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(line: &str) -> Vec<String> {
        let (mut words, _) = split(line);
        let last = words.pop().unwrap();
        let found = candidates(crate::help::command(), &words, &last);
        found
            .into_iter()
            .map(|candidate| candidate.text)
            .filter(|text| text.starts_with(&last) || text.starts_with(':'))
            .collect()
    }

    #[test]
    fn a_line_is_taken_apart_as_a_shell_does() {
        let words = |line: &str| split(line).0;
        assert_eq!(words("l scan "), ["scan", ""]);
        assert_eq!(words("l scan 'my env' a\\ b \"c d"), ["scan", "my env", "a b", "c d"]);
        assert_eq!(split("l export x --format=c").1, 11);
        assert_eq!(words(""), Vec::<String>::new());
    }

    #[test]
    fn commands_options_and_values_are_found() {
        assert_eq!(texts("l ver"), ["verify"]);
        assert_eq!(texts("l index l"), ["list", "lookup"]);
        assert_eq!(texts("l --json index dr"), ["drop"]);
        assert_eq!(texts("l scan d t --rev"), ["--reverse"]);
        assert_eq!(texts("l export d t f --format t"), ["tsv"]);
        assert_eq!(texts("l export d t f --format=c"), ["--format=csv"]);
        assert_eq!(texts("l put d t k v --key-type u1"), ["u16", "u128"]);
        assert_eq!(texts("l prepared co"), ["commit"]);
        assert_eq!(texts("l backup "), ["verify", "list", ":dirs"]);
        assert_eq!(texts("l scan "), [":dirs"]);
        assert_eq!(texts("l restore x "), [":dirs"]);
        assert_eq!(texts("l dump d -o "), [":files"]);
        assert!(texts("l get d t ").is_empty() && texts("l nonsense x ").is_empty());
        assert!(!texts("l ").iter().any(|text| text == "complete"), "hidden commands are not shown");
    }
}
