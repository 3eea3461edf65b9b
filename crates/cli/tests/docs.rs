//! What the pages tell people to type is run here, as it stands: all pages of the repository but those of
//! [`ELSEWHERE`]. The blocks of a page run one after the other, in one directory for each page.
//!
//! D1. A block ```` ```console ```` holds commands behind `$ `, and what they print; `...` stands for anything.
//! D2. A block ```` ```sh ```` holds commands only. Each must succeed.
//! D3. A block that cannot be run has `<!-- not run: REASON -->` on the line above it, and is in [`NOT_RUN`]. What it
//!     says is looked at all the same: the options of our commands, and the names of make targets.
//! D4. Nothing else shows commands: a block without a language has none.
//! D5. A block of Rust is compiled. The page is a doc comment of the file that [`COMPILED`] names, or a test in it
//!     compares the page with what it compiles.
//! D6. No line has more than 120 columns, but for rows of tables and lines of blocks.
//! D7. Each file and folder that `ARCHITECTURE.md` names is there. A paragraph that begins with a crate and its folder
//!     names files of that crate. Elsewhere a name is the end of a path, in which `crates/` and `src/` may be left out.
#![allow(missing_docs)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use clap::Parser;
use ledgerstone_cli::args::Args;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// The blocks that no test can run: page, and the reason that the page gives.
const NOT_RUN: &[(&str, &str)] = &[
    ("CONTRIBUTING.md", "they take minutes"),
    ("CONTRIBUTING.md", "they take minutes, and the seed stands for yours"),
    ("README.md", "they are what CI runs"),
    ("README.md", "they take minutes"),
    ("crates/port/README.md", "they are built with all optimizations first"),
    ("docs/benchmarks.md", "it takes minutes"),
    ("docs/flash.md", "they take from seconds to hours"),
    ("docs/guide.md", "it takes a block device"),
    ("docs/probe-example.md", "it takes minutes"),
    ("docs/probe.md", "they take minutes"),
    ("docs/scale.md", "it takes hours, and 20 GB"),
    ("docs/tutorial.md", "examples/tests/tutorial.rs runs it"),
    ("docs/tutorial.md", "examples/tests/tutorial.rs runs it"),
];

/// Pages without commands to type: history.
const ELSEWHERE: &[&str] = &["CHANGELOG.md"];

/// Pages with Rust, and the sources that compile it.
const COMPILED: &[(&str, &str)] = &[
    ("README.md", "examples/src/lib.rs"),
    ("crates/port/README.md", "crates/port/src/lib.rs"),
    ("docs/flash.md", "crates/flash/src/lib.rs"),
    ("docs/operations.md", "examples/src/lib.rs"),
    ("docs/processes.md", "examples/src/lib.rs"),
    ("docs/probe.md", "crates/probe/src/experiments/sleep.rs"),
    ("docs/tutorial.md", "examples/tests/tutorial.rs"),
];

/// The widest line of a page.
const COLUMNS_MAX: usize = 120;

/// What a page's blocks find in their directory.
const BEFORE: &[(&str, &str)] = &[("docs/tutorial.md", "ledgerstone init jobs")];

struct Block {
    line_no: usize,
    language: String,
    text: String,
    not_run: Option<String>,
}

fn blocks(page: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let (mut is_inside, mut above) = (false, "");
    for (no, line) in page.lines().enumerate() {
        match line.strip_prefix("```") {
            Some(_) if is_inside => is_inside = false,
            Some(language) => {
                is_inside = true;
                let reason = above.strip_prefix("<!-- not run: ").and_then(|rest| rest.strip_suffix(" -->"));
                let (language, not_run) = (language.to_owned(), reason.map(str::to_owned));
                blocks.push(Block { line_no: no + 1, language, text: String::new(), not_run });
            }
            None if is_inside => {
                let block = blocks.last_mut().unwrap();
                block.text += &format!("{line}\n");
            }
            None => above = line,
        }
    }
    blocks
}

/// A command, and what it prints.
struct Example {
    line_no: usize,
    command: String,
    output: Vec<String>,
}

fn examples(block: &Block) -> Vec<Example> {
    let mut examples: Vec<Example> = Vec::new();
    let mut is_document = false;
    for (no, line) in block.text.lines().enumerate() {
        let line_no = block.line_no + no + 1;
        match line.strip_prefix("$ ") {
            Some(command) if !is_document => {
                is_document = command.ends_with("<<'END'");
                examples.push(Example { line_no, command: command.to_owned(), output: Vec::new() });
                continue;
            }
            _ => {}
        }
        let example = examples.last_mut().unwrap_or_else(|| panic!("line {line_no}: no command"));
        if is_document {
            example.command += &format!("\n{line}");
            is_document = line != "END";
        } else {
            example.output.push(line.to_owned());
        }
    }
    examples
}

/// Whether the text is the pattern, in which `...` stands for anything.
fn is_like(text: &str, pattern: &str) -> bool {
    let mut pieces = pattern.split("...");
    let Some(mut rest) = text.strip_prefix(pieces.next().unwrap_or_default()) else { return false };
    for piece in pieces {
        let Some(at) = rest.find(piece) else { return false };
        rest = &rest[at + piece.len()..];
    }
    rest.is_empty() || pattern.ends_with("...")
}

/// Where the commands of a page run, and how.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Place {
        let place = Place(tempfile::tempdir().unwrap());
        // The sources, as pages name them: the data set, and the library beside a new program.
        for (name, target) in [("data", "data"), ("ledgerstone", ".")] {
            std::os::unix::fs::symlink(Path::new(ROOT).join(target), place.0.path().join(name)).unwrap();
        }
        place
    }

    fn run(&self, script: &str) -> Output {
        // A device is the machine's own, and what is on it would be lost.
        let has_device = script.split(['"', '\'', '=', ' ', '\n']).any(|word| {
            word.starts_with("/dev/")
                && !["/dev/null", "/dev/shm", "/dev/std"].iter().any(|safe| word.starts_with(safe))
        });
        assert!(!has_device, "a page has a device in a block that is run:\n{script}");
        let program = assert_cmd::cargo::cargo_bin!("ledgerstone");
        let own = program.parent().unwrap().to_path_buf();
        let path = std::env::split_paths(&std::env::var_os("PATH").unwrap()).collect::<Vec<_>>();
        let path = std::env::join_paths(std::iter::once(own).chain(path)).unwrap();
        let mut command = Command::new("bash");
        command.args(["-e", "-o", "pipefail", "-c", script]).current_dir(self.0.path()).env("PATH", path);
        command.env("CARGO_NET_OFFLINE", "true").env_remove("CARGO_TARGET_DIR").stdin(Stdio::null()).output().unwrap()
    }
}

fn run_page(page: &str, blocks: &[Block]) -> usize {
    let place = Place::new();
    for (_, script) in BEFORE.iter().filter(|(of, _)| *of == page) {
        assert!(place.run(script).status.success(), "{page}: {script}");
    }
    let mut count = 0;
    for block in blocks.iter().filter(|block| block.not_run.is_none()) {
        if block.language == "sh" {
            let ran = place.run(&block.text);
            let error = String::from_utf8_lossy(&ran.stderr);
            assert!(ran.status.success(), "{page}, line {}:\n{}{error}", block.line_no, block.text);
            count += 1;
        }
        if block.language != "console" {
            continue;
        }
        for Example { line_no, command, output } in examples(block) {
            let ran = place.run(&command);
            let told = format!("{page}, line {line_no}: {command}\n{}", String::from_utf8_lossy(&ran.stderr));
            assert!(ran.status.success(), "{told}");
            let found = String::from_utf8(ran.stdout).unwrap();
            let is_same = found.lines().count() == output.len()
                && found.lines().zip(&output).all(|(found, expected)| is_like(found, expected));
            assert!(is_same, "{told}prints:\n{found}");
            count += 1;
        }
    }
    count
}

/// What a command that is not run would do wrong at once.
fn look_at(page: &str, block: &Block) {
    let targets = std::fs::read_to_string(Path::new(ROOT).join("Makefile")).unwrap();
    for line in block.text.lines() {
        let line = line.strip_prefix("$ ").unwrap_or(line);
        let command = line.split(['#', '>', '|', '<']).next().unwrap_or_default();
        let words: Vec<&str> = command.split_whitespace().collect();
        let told = format!("{page}, line {}: {line}", block.line_no);
        match words.as_slice() {
            ["ledgerstone", ..] => {
                let parsed = Args::try_parse_from(&words);
                assert!(!parsed.is_err_and(|error| error.exit_code() != 0), "{told}: not understood");
            }
            ["make", target, ..] => assert!(targets.contains(&format!("\n{target}:")), "{told}: no such target"),
            _ => {}
        }
    }
}

/// All pages of the repository, and none of what was built or unpacked in it.
fn pages() -> Vec<PathBuf> {
    let root = Path::new(ROOT);
    let names_in = |dir: &str| {
        let names = std::fs::read_dir(root.join(dir)).unwrap().map(|entry| entry.unwrap().file_name());
        names.map(|name| Path::new(dir).join(name)).collect::<Vec<PathBuf>>()
    };
    let mut pages: Vec<PathBuf> =
        ["", "data", "docs", "docs/format", "examples"].into_iter().flat_map(names_in).collect();
    pages.extend(
        names_in("crates").into_iter().map(|dir| dir.join("README.md")).filter(|page| root.join(page).exists()),
    );
    pages.retain(|page| page.extension().is_some_and(|ending| ending == "md"));
    pages.sort();
    pages
}

fn is_elsewhere(page: &Path) -> bool {
    ELSEWHERE.iter().any(|name| page == Path::new(name))
}

#[test]
fn what_the_pages_tell_people_to_type_does_what_they_say() {
    let (mut count, mut not_run) = (0, Vec::new());
    for page in pages().into_iter().filter(|page| !is_elsewhere(page)) {
        let text = std::fs::read_to_string(Path::new(ROOT).join(&page)).unwrap();
        let (page, blocks) = (page.display().to_string(), blocks(&text));
        for block in &blocks {
            let shows_commands = |line: &str| line.starts_with("$ ") || line.starts_with("ledgerstone ");
            let is_run = matches!(block.language.as_str(), "sh" | "console");
            let is_known = is_run || !block.text.lines().any(shows_commands);
            assert!(is_known, "{page}, line {}: commands in a block that is neither sh nor console", block.line_no);
            if let Some(reason) = &block.not_run {
                look_at(&page, block);
                not_run.push((page.clone(), reason.clone()));
            }
        }
        if blocks.iter().any(|block| matches!(block.language.as_str(), "sh" | "console") && block.not_run.is_none()) {
            count += run_page(&page, &blocks);
        }
    }
    assert!(count > 50, "{count} commands");
    let listed: Vec<_> = NOT_RUN.iter().map(|(page, reason)| (page.to_string(), reason.to_string())).collect();
    assert_eq!(not_run, listed, "the blocks that are not run");
}

#[test]
fn the_rust_of_pages_is_compiled() {
    for page in pages().into_iter().filter(|page| !is_elsewhere(page)) {
        let text = std::fs::read_to_string(Path::new(ROOT).join(&page)).unwrap();
        let rust: Vec<usize> = blocks(&text)
            .into_iter()
            .filter(|block| block.language.starts_with("rust"))
            .inspect(|block| assert!(!block.language.contains("ignore"), "{}: rust,ignore", page.display()))
            .map(|block| block.line_no)
            .collect();
        let by = COMPILED.iter().find(|(name, _)| page == Path::new(name)).map(|(_, source)| *source);
        assert_eq!(!rust.is_empty(), by.is_some(), "{}: Rust in lines {rust:?}, compiled by {by:?}", page.display());
        if let Some(source) = by {
            let text = std::fs::read_to_string(Path::new(ROOT).join(source)).unwrap();
            let name = page.file_name().unwrap().to_str().unwrap();
            assert!(text.contains(&format!("{name}\")")), "{source} compiles {}", page.display());
        }
    }
}

#[test]
fn no_line_of_a_page_is_wider_than_120_columns() {
    let mut wide = Vec::new();
    for page in pages() {
        let text = std::fs::read_to_string(Path::new(ROOT).join(&page)).unwrap();
        let mut is_inside = false;
        for (no, line) in text.lines().enumerate() {
            let is_fence = line.trim_start().starts_with("```");
            is_inside ^= is_fence;
            let may_be_wide = is_inside || is_fence || line.starts_with('|');
            if !may_be_wide && line.chars().count() > COLUMNS_MAX {
                wide.push(format!("{}, line {}: {} columns", page.display(), no + 1, line.chars().count()));
            }
        }
    }
    assert!(wide.is_empty(), "{wide:#?}");
}

/// Each path of the repository that D7 knows, as it is and without `crates/` and `src/`.
fn paths() -> Vec<String> {
    fn add(dir: &Path, all: &mut Vec<String>) {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(ROOT).unwrap().display().to_string();
            if path.is_dir() {
                add(&path, all);
            }
            let name = if path.is_dir() { name + "/" } else { name };
            if let Some((of, rest)) = name.strip_prefix("crates/").and_then(|name| name.split_once("/src/")) {
                all.push(format!("{of}/{rest}"));
            }
            all.push(name);
        }
    }
    let mut all: Vec<String> = ["CONTRIBUTING.md", "SECURITY.md", "README.md", "Cargo.toml", "deny.toml", "Makefile"]
        .map(str::to_string)
        .into();
    for dir in ["crates", "docs", "examples", "fuzz", "peers", "scripts", "data"] {
        add(&Path::new(ROOT).join(dir), &mut all);
    }
    all
}

/// The files and folders that a paragraph names: what ends like a file of ours, and names in backticks that end with a
/// slash.
fn named_in(paragraph: &str) -> Vec<String> {
    let is_of_path = |c: char| c.is_ascii_alphanumeric() || "_-./".contains(c);
    let in_ticks: Vec<&str> = paragraph.split('`').skip(1).step_by(2).collect();
    let is_folder = |word: &&str| word.ends_with('/') && word.chars().all(is_of_path);
    let is_file = |word: &&str| [".rs", ".md", ".sh", ".toml"].iter().any(|end| word.len() > 3 && word.ends_with(end));
    let words = paragraph.split(|c| !is_of_path(c)).map(|word| word.trim_end_matches('.'));
    words.filter(is_file).chain(in_ticks.into_iter().filter(is_folder)).map(str::to_string).collect()
}

#[test]
fn what_the_architecture_names_is_there() {
    let (paths, text) = (paths(), std::fs::read_to_string(Path::new(ROOT).join("ARCHITECTURE.md")).unwrap());
    let (mut count, mut missing) = (0, Vec::new());
    for paragraph in text.split("\n\n") {
        let of = paragraph.strip_prefix("**").and_then(|rest| rest.split_once("** (`crates/")?.1.split_once('`'));
        for name in named_in(paragraph) {
            let is_there = |path: &String| {
                let is_end = path.strip_suffix(&name).is_some_and(|before| before.is_empty() || before.ends_with('/'));
                let is_in = of.is_none_or(|(of, _)| path.starts_with(&format!("crates/{of}/"))) || *path == name;
                is_end && is_in
            };
            count += 1;
            if !paths.iter().any(is_there) {
                missing.push(format!("{name}, in: {}", paragraph.lines().next().unwrap_or_default()));
            }
        }
    }
    assert!(count > 100, "{count} names");
    assert!(missing.is_empty(), "{missing:#?}");
}
