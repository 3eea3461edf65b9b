//! What help and the manual pages say behind the options: examples, exit status, files, see also. One table feeds both.
//!
//! H1. Every command that is shown has an entry in [`HELP`]. `tests/help.rs` runs all examples, in the environment that
//!     its script makes.

use clap::{Command, CommandFactory};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use crate::args::Args;

/// What one command's help ends with.
#[derive(Debug)]
pub struct Help {
    /// Its words: `index create`. Nothing is the program itself.
    pub command: &'static str,
    /// Command lines, and what each does.
    pub examples: &'static [(&'static str, &'static str)],
    /// When the exit status is 1; nothing if it never is.
    pub no: &'static str,
    /// Commands that one may want to know next.
    pub see: &'static [&'static str],
}

const fn help(
    command: &'static str,
    examples: &'static [(&'static str, &'static str)],
    no: &'static str,
    see: &'static [&'static str],
) -> Help {
    Help { command, examples, no, see }
}

/// The help of every command, in the order of `ledgerstone help`.
pub const HELP: &[Help] = &[
    help(
        "",
        &[
            ("ledgerstone init new", "Make an environment."),
            ("ledgerstone put new fruit apple red", "Set the value of a key. The table is made, too."),
            ("ledgerstone --json scan new fruit", "Print the table as JSON."),
        ],
        "the answer is no: not found, or a check failed",
        &["init", "shell", "config", "verify"],
    ),
    help(
        "init",
        &[
            ("ledgerstone init new", "Make an environment in the directory new."),
            ("ledgerstone init large --page 16K", "For long keys and large records: pages of 16 KiB."),
        ],
        "",
        &["config", "put", "restore"],
    ),
    help(
        "put",
        &[
            ("ledgerstone put shop fruit plum blue", "Set a value."),
            ("ledgerstone put shop fruit fig purple --new", "Set it only if the key has none yet."),
            ("ledgerstone put shop scores 7 high --key-type u64", "Make a table whose keys are numbers."),
            ("ledgerstone put shop raw ff00 0102 --hex", "Bytes that are not UTF-8, in hexadecimal digits."),
            ("ledgerstone put shop files people - < people.csv", "Store the content of a file."),
        ],
        "the key has a value already (--new)",
        &["get", "del", "import"],
    ),
    help(
        "get",
        &[
            ("ledgerstone get shop fruit apple", "Print a value."),
            ("ledgerstone get shop fruit apple --raw > apple", "Copy it into a file, byte for byte."),
            ("ledgerstone get shop binary ff00 --hex", "The key is not UTF-8: write it in hexadecimal digits."),
        ],
        "the table has no such key",
        &["scan", "put", "index lookup"],
    ),
    help(
        "del",
        &[("ledgerstone del shop fruit apple", "Delete a key.")],
        "the table has no such key",
        &["put", "compact"],
    ),
    help(
        "scan",
        &[
            ("ledgerstone scan shop fruit", "Print the whole table."),
            ("ledgerstone scan shop fruit --from b --to q", "Keys from b on, below q."),
            ("ledgerstone scan shop fruit --prefix ap --limit 10", "The first ten keys that begin with ap."),
            ("ledgerstone scan shop fruit --reverse --limit 1", "The last record."),
            ("ledgerstone scan shop binary --hex", "Keys that are not UTF-8, in hexadecimal digits."),
        ],
        "",
        &["get", "export", "index lookup"],
    ),
    help(
        "tables",
        &[
            ("ledgerstone tables shop", "List the tables."),
            ("ledgerstone tables shop --count", "Count their records, too."),
        ],
        "",
        &["scan", "index list", "stat"],
    ),
    help(
        "rename",
        &[("ledgerstone rename shop fruit fruits", "The table fruit is called fruits from now on.")],
        "",
        &["tables"],
    ),
    help(
        "index",
        &[
            ("ledgerstone index create shop people by_name json:name", "Find people by their name."),
            ("ledgerstone index lookup shop people by_city Bern", "Who lives in Bern?"),
        ],
        "there is no such index or index key",
        &["import", "tables"],
    ),
    help(
        "index create",
        &[
            ("ledgerstone index create shop people by_name json:name", "By a member of the rows that import stores."),
            ("ledgerstone index create shop fruit by_colour value --unique", "No two fruits of the same colour."),
            ("ledgerstone index create shop fruit by_letter bytes:0..1", "By the first byte of the value."),
        ],
        "",
        &["index lookup", "index drop"],
    ),
    help(
        "index drop",
        &[("ledgerstone index drop shop people by_city", "Drop an index. The table stays.")],
        "the table has no such index",
        &["index list"],
    ),
    help(
        "index list",
        &[
            ("ledgerstone index list shop", "The indexes of all tables."),
            ("ledgerstone index list shop people", "The indexes of one."),
        ],
        "",
        &["index create", "tables"],
    ),
    help(
        "index lookup",
        &[
            ("ledgerstone index lookup shop people by_city Bern", "The records with this index key."),
            (
                "ledgerstone index lookup shop people by_city --from C --keys-only",
                "Index keys from C on, without values.",
            ),
            ("ledgerstone index lookup shop people by_city", "All records, in the order of the index."),
        ],
        "no record has the index key",
        &["index create", "scan"],
    ),
    help(
        "import",
        &[
            ("ledgerstone import shop people people.csv --key id", "Each row becomes a JSON object under its id."),
            ("ledgerstone import shop ages people.csv --key id --types age=number", "Ages are numbers, not text."),
            ("ledgerstone import shop cities people.csv --key id --value city", "Only one column is the value."),
            ("ledgerstone import shop lines - --format jsonl --key id < rows.jsonl", "JSON lines from a pipe."),
        ],
        "a line was left out (--keep-going)",
        &["export", "load", "index create"],
    ),
    help(
        "export",
        &[
            ("ledgerstone export shop fruit", "JSON lines with key and value."),
            ("ledgerstone export shop people out.csv --rows", "The rows as import read them."),
            ("ledgerstone export shop people out.jsonl.gz --force", "Into a compressed file, which is replaced."),
            ("ledgerstone export shop binary out.tsv --hex", "Keys and values that are not UTF-8."),
        ],
        "",
        &["import", "dump", "scan"],
    ),
    help(
        "stat",
        &[
            ("ledgerstone stat shop", "Sizes for people."),
            ("ledgerstone stat shop --bytes", "Exact numbers."),
            ("ledgerstone --json stat shop", "The same for programs."),
        ],
        "",
        &["config", "tables", "verify"],
    ),
    help(
        "processes",
        &[("ledgerstone processes shop", "Which processes share it, and which of them leads?")],
        "",
        &["stat"],
    ),
    help(
        "verify",
        &[("ledgerstone verify shop", "Read and check everything.")],
        "something is wrong; the output says what and where",
        &["repair", "backup verify", "stat"],
    ),
    help("compact", &[("ledgerstone compact shop", "Give free space back to the file system.")], "", &["stat"]),
    help(
        "checkpoint",
        &[("ledgerstone checkpoint shop", "Write all changed pages, so that old log can go.")],
        "",
        &["recover", "stat"],
    ),
    help(
        "recover",
        &[
            ("ledgerstone recover shop", "Recover after a crash, and say what was done."),
            ("ledgerstone recover shop --rebuild-control", "The file control is lost: make it anew first."),
            ("ledgerstone recover shop --forget-feeds", "The file feeds is lost: named readers of changes begin anew."),
        ],
        "",
        &["verify", "log", "prepared"],
    ),
    help(
        "log",
        &[
            ("ledgerstone log shop --reverse --limit 20", "The newest twenty records."),
            ("ledgerstone log shop --kind commit", "All commits."),
            ("ledgerstone log shop --table fruit", "Changes of one table."),
        ],
        "",
        &["changes", "recover"],
    ),
    help(
        "shell",
        &[
            ("ledgerstone shell shop", "Type commands. help lists them."),
            ("echo 'count fruit' | ledgerstone shell shop", "Or pipe them in."),
        ],
        "a command of the shell failed",
        &["get", "put", "scan"],
    ),
    help(
        "config",
        &[
            ("ledgerstone config shop", "Each setting, its value, and where it comes from."),
            ("ledgerstone config shop --check", "Look for mistakes in the settings file."),
            ("ledgerstone config --defaults > shop/ledgerstone.toml", "A settings file to begin with."),
        ],
        "the settings file or the control file has a problem (--check)",
        &["init", "probe", "stat"],
    ),
    help(
        "prepared",
        &[("ledgerstone prepared list shop", "Which transactions are in doubt?")],
        "no transaction in doubt has that id",
        &["recover", "shell"],
    ),
    help(
        "prepared list",
        &[("ledgerstone prepared list shop", "Print them, with their locks.")],
        "",
        &["prepared commit", "prepared abort"],
    ),
    help(
        "prepared commit",
        &[("ledgerstone prepared commit shop order-17", "The coordinator says: commit.")],
        "no transaction in doubt has that id",
        &["prepared list", "prepared abort"],
    ),
    help(
        "prepared abort",
        &[("ledgerstone prepared abort shop order-17", "The coordinator says: abort.")],
        "no transaction in doubt has that id",
        &["prepared list", "prepared commit"],
    ),
    help(
        "backup",
        &[
            ("ledgerstone backup shop saved", "A full backup into the directory saved."),
            ("ledgerstone backup shop saved --incremental", "Only the log since the newest one there."),
            ("ledgerstone backup shop - | ledgerstone restore - copy", "Copy an environment through a pipe."),
            ("ledgerstone backup shop shop.backup --file --rate 20M", "Into one file, at most 20 MiB a second."),
        ],
        "",
        &["backup verify", "restore", "archive"],
    ),
    help(
        "backup verify",
        &[("ledgerstone backup verify saved", "Check every backup in the directory.")],
        "a backup is damaged",
        &["backup", "restore"],
    ),
    help(
        "backup list",
        &[("ledgerstone backup list saved", "Print the backups, the oldest first.")],
        "",
        &["backup", "backup verify"],
    ),
    help(
        "restore",
        &[
            ("ledgerstone restore saved again", "Everything that the backups hold."),
            ("ledgerstone restore saved latest --log kept --log shop", "And what archive and lost environment add."),
            ("ledgerstone restore saved noon --to-time 2100-01-01T12:00:00Z", "The commits up to a time."),
        ],
        "a backup or a log was left out; there may be commits in it",
        &["backup", "changes", "verify"],
    ),
    help(
        "repair",
        &[
            ("ledgerstone repair shop --from saved", "Repair all damaged pages."),
            ("ledgerstone repair shop --from saved --log kept --page 3", "One page, with log from an archive."),
        ],
        "",
        &["verify", "backup", "restore"],
    ),
    help(
        "archive",
        &[
            ("ledgerstone archive shop --archive kept --now", "Copy the log up to this moment, and list the archive."),
            ("ledgerstone archive shop --archive kept --verify", "Compare the archive with its checksums."),
            ("ledgerstone archive shop --archive kept --remove-before saved", "Remove what older backups needed."),
        ],
        "a segment is damaged (--verify)",
        &["backup", "restore"],
    ),
    help(
        "dump",
        &[
            ("ledgerstone dump shop -o shop.dump --force", "All tables, into a file."),
            ("ledgerstone dump shop fruit --print", "One table, readable."),
            ("ledgerstone dump shop fruit | ledgerstone load other", "Copy a table into another environment."),
        ],
        "",
        &["load", "export", "backup"],
    ),
    help(
        "load",
        &[
            ("ledgerstone load other shop.dump", "Load all tables of a dump."),
            ("ledgerstone load other shop.dump --one-transaction", "Each table all or nothing."),
        ],
        "",
        &["dump", "import"],
    ),
    help(
        "changes",
        &[
            ("ledgerstone changes shop --table fruit --limit 10", "The oldest ten commits that changed fruit."),
            ("ledgerstone changes shop --name search", "What is new since the last time, for the feed search."),
            ("ledgerstone changes shop --forget search", "Nobody needs this feed any more."),
        ],
        "there is no feed of that name (--forget)",
        &["log", "restore"],
    ),
    help(
        "bench",
        &[("ledgerstone bench tpcb --small --seconds 1 --check", "A bank with one branch, for a second.")],
        "a check of the results failed",
        &["probe"],
    ),
    help(
        "bench tpcb",
        &[
            ("ledgerstone bench tpcb --small --seconds 1 --check", "A small bank; the books must agree."),
            ("ledgerstone bench tpcb --threads 4 --durability pipelined", "The bank of the paper."),
        ],
        "the books do not agree (--check), or an acknowledged commit is missing (--verify-acks)",
        &["bench gates"],
    ),
    help(
        "bench points",
        &[("ledgerstone bench points --records 10000 --seconds 1", "With a small table.")],
        "",
        &["bench scan"],
    ),
    help(
        "bench scan",
        &[("ledgerstone bench scan --records 10000 --rounds 2", "With a small table.")],
        "",
        &["bench points"],
    ),
    help(
        "bench cold",
        &[("ledgerstone bench cold --records 100000 --rounds 2", "With small tables.")],
        "",
        &["bench scan"],
    ),
    help(
        "bench snapshots",
        &[("ledgerstone bench snapshots --records 100000 --seconds 10 --rounds 2", "In ten seconds.")],
        "",
        &["bench points"],
    ),
    help(
        "bench crowd",
        &[("ledgerstone bench crowd --threads 4,50 --seconds 1", "A few threads against 50.")],
        "",
        &["bench tpcb"],
    ),
    help(
        "bench processes",
        &[(
            "ledgerstone bench processes --seconds 1 --rounds 3",
            "Four processes, four threads of one, and both sharing.",
        )],
        "",
        &["bench tpcb", "processes"],
    ),
    help(
        "bench counts",
        &[("ledgerstone bench counts --against docs/costs.md", "What has grown by more than 3 % since the page.")],
        "",
        &["bench points", "bench tpcb"],
    ),
    help(
        "bench settings",
        &[("ledgerstone bench settings shop/ledgerstone.toml", "Is this file better than the defaults?")],
        "the books do not agree",
        &["probe", "config"],
    ),
    help("bench device", &[("ledgerstone bench device --tmp .", "The device of this directory.")], "", &["probe"]),
    help(
        "bench recovery",
        &[("ledgerstone bench recovery --transactions 20000 --accounts 10000", "A small one.")],
        "",
        &["recover"],
    ),
    help("bench loser", &[("ledgerstone bench loser --changes 100000", "A small one.")], "", &["bench rollback"]),
    help("bench rollback", &[("ledgerstone bench rollback --changes 10000", "A small one.")], "", &["bench loser"]),
    help("bench scale", &[("ledgerstone bench scale --cache 64M", "Hours, and 20 GB.")], "", &["bench memory"]),
    help(
        "bench memory",
        &[("ledgerstone bench memory --records 100000 --seconds 1", "A small one.")],
        "",
        &["bench scale"],
    ),
    help(
        "bench gates",
        &[("ledgerstone bench gates --seconds 5", "All experiments; many minutes.")],
        "an experiment failed",
        &["bench tpcb", "probe"],
    ),
    help(
        "probe",
        &[
            ("ledgerstone probe --quick", "Half a minute in this directory."),
            ("ledgerstone probe lock force", "Two experiments only."),
            (
                "ledgerstone probe --html report.html --write-config new",
                "A report, and settings for a new environment.",
            ),
        ],
        "it was stopped before the end",
        &["probe compare", "config", "bench settings"],
    ),
    help(
        "probe compare",
        &[("ledgerstone probe compare one.json other.json", "Two results that --out has written.")],
        "",
        &["probe"],
    ),
    help(
        "flash",
        &[("ledgerstone flash crash --cuts 100", "A hundred power cuts.")],
        "a promise was broken",
        &["bench"],
    ),
    help("flash demo", &[("ledgerstone flash demo", "Some seconds.")], "", &["flash crash"]),
    help(
        "flash crash",
        &[
            ("ledgerstone flash crash --cuts 100", "A hundred power cuts."),
            ("ledgerstone flash crash --cuts 10 --seed 4711", "Those that follow from another seed."),
        ],
        "a promise was broken; the output names the seed",
        &["flash tpcc"],
    ),
    help(
        "flash bench",
        &[("ledgerstone flash bench --figure comparison --out figures", "One figure, and its plot.")],
        "",
        &["flash trace"],
    ),
    help("flash trace", &[("ledgerstone flash trace show trace", "What is in this trace?")], "", &["flash bench"]),
    help(
        "flash trace record",
        &[("ledgerstone flash trace record new.trace", "Record a trace to replay.")],
        "",
        &["flash trace show", "flash bench"],
    ),
    help(
        "flash trace show",
        &[("ledgerstone flash trace show trace", "What is in this trace?")],
        "",
        &["flash trace record"],
    ),
    help(
        "flash tpcc",
        &[("ledgerstone flash tpcc --protocol scc --transactions 10 --cuts 1", "One protocol, one power cut.")],
        "",
        &["flash crash"],
    ),
    help(
        "completions",
        &[("ledgerstone completions bash > completions.bash", "Then: source completions.bash")],
        "",
        &["man"],
    ),
    help(
        "man",
        &[("ledgerstone man man1", "Write the pages into man1. To read one: man -l man1/ledgerstone-put.1")],
        "",
        &["completions"],
    ),
];

/// The command line with all its help.
#[must_use]
pub fn command() -> Command {
    HELP.iter().fold(Args::command(), |command, help| {
        let words: Vec<&str> = help.command.split_whitespace().collect();
        with(command, &words, help)
    })
}

fn with(command: Command, words: &[&str], help: &Help) -> Command {
    match words.split_first() {
        Some((first, rest)) => command.mut_subcommand(first, |inner| with(inner, rest, help)),
        None => {
            let text = sections(help, &command).iter().map(Section::text).collect::<Vec<_>>().join("\n\n");
            command.after_long_help(text)
        }
    }
}

/// A part of the help: lines of a thing and what is said of it.
struct Section {
    title: &'static str,
    lines: Vec<(String, String)>,
    /// What is said of a thing comes below it, not beside it.
    is_long: bool,
}

impl Section {
    fn text(&self) -> String {
        let width = self.lines.iter().map(|(thing, _)| thing.len()).max().unwrap_or(0);
        let line = |(thing, about): &(String, String)| match (about.is_empty(), self.is_long) {
            (true, _) => format!("\n  {thing}"),
            (false, true) => format!("\n  {thing}\n          {about}"),
            (false, false) => format!("\n  {thing:width$}  {about}"),
        };
        format!("{}:{}", self.title, self.lines.iter().map(line).collect::<String>())
    }

    fn write(&self, roff: &mut Roff) {
        roff.control("SH", [self.title.to_uppercase().as_str()]);
        for (thing, about) in &self.lines {
            roff.control("TP", []);
            roff.text([bold(thing.as_str())]);
            roff.text([roman(about.as_str())]);
        }
    }
}

fn sections(help: &Help, command: &Command) -> Vec<Section> {
    let lines = |pairs: &[(&str, &str)]| pairs.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect();
    let examples = Section { title: "Examples", lines: lines(help.examples), is_long: true };
    let codes = [
        ("0", "done"),
        ("1", help.no),
        ("2", "an error; the message says what to do"),
        ("130", "interrupted by Ctrl-C"),
    ];
    let codes: Vec<_> = codes.into_iter().filter(|(_, about)| !about.is_empty()).collect();
    let status = Section { title: "Exit status", lines: lines(&codes), is_long: false };
    let files = Section { title: "Files", lines: lines(&files(help.command, command)), is_long: false };
    let see: Vec<(String, String)> = help.see.iter().map(|see| (format!("ledgerstone {see}"), String::new())).collect();
    let see = Section { title: "See also", lines: see, is_long: false };
    [examples, status, files, see].into_iter().filter(|section| !section.lines.is_empty()).collect()
}

/// What a command reads and writes, by its path; its arguments tell where it has a directory or a backup of its own.
fn files(path: &str, command: &Command) -> Vec<(&'static str, &'static str)> {
    const ENVIRONMENT: [(&str, &str); 2] = [
        ("DIR", "the environment: data, double_write, control, lock and the log below log/"),
        ("DIR/ledgerstone.toml", "its settings"),
    ];
    const HISTORY: (&str, &str) = ("~/.local/state/ledgerstone/history", "the lines that were typed in the shell");
    const MEASURED: (&str, &str) =
        ("TMP/ledgerstone-bench-*", "the environment that is measured, removed at the end (--tmp; kept with --keep)");
    let has = |name: &str| command.get_arguments().any(|arg| arg.get_id() == name);
    match path {
        "" | "shell" => [&ENVIRONMENT[..], &[HISTORY]].concat(),
        "backup" | "backup verify" | "backup list" => {
            let backups =
                [("BACKUP/NNNNNN-full.backup", "a full backup"), ("BACKUP/NNNNNN-log.backup", "an incremental one")];
            backups.to_vec()
        }
        "probe" => vec![
            ("DIR/ledgerstone.toml", "the recommended settings (--write-config)"),
            ("FILE", "the results (--out), and the report (--html)"),
        ],
        "probe compare" => vec![("FILE", "results that probe --out has written")],
        "bench settings" => vec![("FILE", "the settings to compare, as probe --write-config writes them"), MEASURED],
        "bench gates" => vec![("FILE", "the page with the table of results (--out)"), MEASURED],
        "flash demo" => vec![("TMPDIR/flash-demo-*", "the image of the flash, removed at the end")],
        "flash bench" => vec![("FILE", "the trace to replay (--trace)"), ("DIR", "the figures (--out)")],
        "flash trace" | "flash trace record" | "flash trace show" => vec![("FILE", "the trace")],
        "man" => vec![("DIR/ledgerstone-COMMAND.1", "a page of each command")],
        "completions" => vec![
            ("PREFIX/share/bash-completion/completions/ledgerstone", "where make install puts the script of bash"),
            ("PREFIX/share/zsh/site-functions/_ledgerstone", "that of zsh"),
            ("PREFIX/share/fish/vendor_completions.d/ledgerstone.fish", "that of fish"),
        ],
        _ if has("dir") => ENVIRONMENT.to_vec(),
        _ if has("tmp") => vec![MEASURED],
        _ if path.starts_with("index") || path.starts_with("prepared") => ENVIRONMENT.to_vec(),
        "bench" => vec![MEASURED],
        _ => Vec::new(), // Raw flash in memory.
    }
}

/// The manual page of each command that is shown, with the name of its file.
pub(crate) fn pages() -> std::io::Result<Vec<(String, Vec<u8>)>> {
    let mut command = command().disable_help_subcommand(true);
    command.build();
    let mut pages = Vec::new();
    add_page(&command, "", &mut pages)?;
    Ok(pages)
}

fn add_page(command: &Command, path: &str, pages: &mut Vec<(String, Vec<u8>)>) -> std::io::Result<()> {
    for inner in command.get_subcommands().filter(|inner| !inner.is_hide_set()) {
        add_page(inner, format!("{path} {}", inner.get_name()).trim(), pages)?;
    }
    let man = Man::new(command.clone());
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.get_subcommands().any(|inner| !inner.is_hide_set()) {
        man.render_subcommands_section(&mut page)?;
    }
    if let Some(help) = HELP.iter().find(|help| help.command == path) {
        let mut roff = Roff::new();
        sections(help, command).iter().for_each(|section| section.write(&mut roff));
        roff.to_writer(&mut page)?;
    }
    pages.push((man.get_filename(), page));
    Ok(())
}
