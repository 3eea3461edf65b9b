//! What can be typed in the shell, and the parser of a line: pure, for any text.
//!
//! ```text
//! line     = [ "@" NAME ] command        the command runs in that transaction
//! command  = see [`COMMANDS`]
//! ```

use std::time::Duration;

use ledgerstone::config::Unit;
use ledgerstone::{Durability, IndexKeys, Isolation, quoted};
use thiserror::Error;

use super::answer::Mode;
use super::outer;
use super::words::{Word, WordError, assert_quotes_agree, commands, split};

/// A command with how it is used and what it does. `help`, completion and the guide come from this table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// The first word.
    pub name: &'static str,
    /// The whole line.
    pub usage: &'static str,
    /// A sentence.
    pub about: &'static str,
}

const fn usage(name: &'static str, usage: &'static str, about: &'static str) -> Usage {
    Usage { name, usage, about }
}

/// Every command of the shell.
pub const COMMANDS: &[Usage] = &[
    usage("tables", "tables", "List the tables."),
    usage("create", "create TABLE", "Make a table."),
    usage("drop", "drop TABLE", "Drop a table and all that is in it."),
    usage("rename", "rename TABLE NEW", "Give a table another name."),
    usage("indexes", "indexes TABLE", "List the indexes of a table."),
    usage(
        "index",
        "index TABLE INDEX KEYS [unique]",
        "Make an index of a table. KEYS: value, bytes:FROM..TO, field:NUMBER, field:NUMBER:SEPARATOR, json:MEMBER. \
         Or as on the command line: index create, drop, list, lookup.",
    ),
    usage("unindex", "unindex TABLE INDEX", "Drop an index."),
    usage(
        "lookup",
        "lookup TABLE INDEX [is KEY] [from KEY] [to KEY] [prefix KEY] [reverse] [limit N] [keys]",
        "Show records by an index, in the order of their index keys; keys shows index keys and keys only.",
    ),
    usage("put", "put TABLE KEY VALUE", "Set the value of a key."),
    usage("insert", "insert TABLE KEY VALUE", "Set the value of a key that has none."),
    usage("get", "get TABLE KEY [for-update]", "Show the value of a key; for-update locks it for a change."),
    usage("del", "del TABLE KEY", "Delete a key."),
    usage(
        "scan",
        "scan TABLE [from KEY] [to KEY] [prefix KEY] [reverse] [limit N] [keys]",
        "Show records in the order of their keys, at most 1000 unless limit says otherwise; to is exclusive.",
    ),
    usage("count", "count TABLE", "Count the records."),
    usage(
        "begin",
        "begin [NAME] [LEVEL] [read-only] [timeout TIME] [durability WHEN]",
        "Begin a transaction and make it the current one. LEVEL: serializable, snapshot, read-committed, read-uncommitted; \
         timeout is how long it waits for a lock; WHEN: sync, pipelined, async, volatile.",
    ),
    usage("commit", "commit [NAME]", "Commit the current transaction, or the named one."),
    usage("abort", "abort [NAME]", "Roll the current transaction back, or the named one."),
    usage("savepoint", "savepoint NAME", "Mark this point of the transaction."),
    usage("rollback", "rollback to NAME", "Take back what was done since that savepoint; the transaction goes on."),
    usage("release", "release NAME", "Forget that savepoint; what was done since stays."),
    usage(
        "prepare",
        "prepare ID",
        "Prepare the transaction for a two-phase commit: it ends here and stays in doubt as ID.",
    ),
    usage("in-doubt", "in-doubt", "List the prepared transactions that nobody has decided."),
    usage("decide", "decide commit|abort ID", "Commit or abort the transaction that was prepared as ID."),
    usage(
        "use",
        "use [NAME]",
        "Make a transaction the current one; without a name, none: each command commits itself.",
    ),
    usage("transactions", "transactions", "List the open transactions and what each waits for."),
    usage("wait", "wait [NAME]", "Wait for the answer of a command that was waiting."),
    usage("stat", "stat", "Show counters and sizes."),
    usage(
        "changes",
        "changes [from LSN] [limit N]",
        "Show what was committed, the oldest first, from the log that is there.",
    ),
    usage("checkpoint", "checkpoint", "Take a checkpoint."),
    usage("compact", "compact", "Shorten the data file to what its records need."),
    usage("verify", "verify", "Check every page and every table."),
    usage("open", "open DIR", "Close this environment and open another."),
    usage(".read", ".read FILE", "Run the commands of a file."),
    usage(
        ".output",
        ".output [FILE]",
        "Write answers into a file; without FILE, or with stdout, show them again. The file appears, in place of an \
         older one, at the next .output or at the end.",
    ),
    usage(
        ".mode",
        ".mode table|plain|json|list|csv",
        "How answers are shown; plain and json are one line each, list and csv a line a record.",
    ),
    usage(".timer", ".timer on|off", "Show how long each command took."),
    usage(
        "help",
        "help [COMMAND]",
        "Show this. Every command may be written with a dot before it: .help. With options (--hex), a command is that of \
         the command line.",
    ),
    usage("quit", "quit", "Leave; open transactions are rolled back."),
];

/// A line, understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// The transaction that `@NAME` chose.
    pub at: Option<String>,
    /// What to do.
    pub command: Command,
}

/// A command.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)] // The fields are the words of `COMMANDS`.
pub enum Command {
    /// To be run in a transaction.
    Data(Data),
    Begin {
        name: Option<String>,
        how: Begin,
    },
    Commit(Option<String>),
    Abort(Option<String>),
    Prepare(Vec<u8>),
    InDoubt,
    Decide {
        id: Vec<u8>,
        commits: bool,
    },
    Use(Option<String>),
    Transactions,
    Wait(Option<String>),
    Stat,
    Changes {
        from: u64,
        limit: Option<u64>,
    },
    Checkpoint,
    Compact,
    Verify,
    Open(String),
    Read(String),
    Output(Option<String>),
    Mode(Mode),
    Timer(bool),
    Help(Option<&'static Usage>),
    /// Of a command of the command line: its name.
    HelpOuter(String),
    /// A command of the command line, with its words.
    Outer(Vec<OuterWord>),
    /// One of the command line that is not for here.
    Elsewhere(String),
    Quit,
}

/// A word of a command of the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OuterWord {
    /// What it says.
    pub text: String,
    /// It is neither an option nor the name of a command, whatever it says.
    pub is_quoted: bool,
}

/// A command that runs in a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)] // As above.
pub enum Data {
    Tables,
    Create(String),
    Drop(String),
    Rename { table: String, new: String },
    Indexes(String),
    Index { table: String, index: String, keys: IndexKeys, is_unique: bool },
    Unindex { table: String, index: String },
    Lookup { index: String, scan: Scan },
    Put { table: String, key: Word, value: Word, must_be_new: bool },
    Get { table: String, key: Word, for_update: bool },
    Del { table: String, key: Word },
    Scan(Scan),
    Count(String),
    Savepoint(String),
    RollbackTo(String),
    Release(String),
}

/// `begin`
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[allow(missing_docs)] // As above.
pub struct Begin {
    pub isolation: Option<Isolation>,
    pub is_read_only: bool,
    pub timeout: Option<Duration>,
    pub durability: Option<Durability>,
}

/// `scan`
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[allow(missing_docs)] // As above.
pub struct Scan {
    pub table: String,
    pub from: Option<Word>,
    pub to: Option<Word>,
    pub prefix: Option<Word>,
    /// For `lookup`: this index key only.
    pub is: Option<Word>,
    pub is_reverse: bool,
    pub limit: Option<u64>,
    pub keys_only: bool,
}

/// Why a line is not a command.
#[derive(Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum ParseError {
    /// It cannot be taken apart.
    #[error("{0}")]
    Word(#[from] WordError),
    /// No command has that name.
    #[error("there is no command {}; help lists them", quoted(.0))]
    Unknown(String),
    /// A word is missing.
    #[error("{what} is missing; write: {usage}")]
    Missing {
        /// Which.
        what: &'static str,
        /// How it is written.
        usage: &'static str,
    },
    /// A word too many, or one that has no meaning there.
    #[error("{} is not understood; write: {usage}", quoted(.word))]
    Strange {
        /// The word.
        word: String,
        /// How it is written.
        usage: &'static str,
    },
    /// A name, a number or a time that is none.
    #[error("{what}")]
    Value {
        /// What is wrong with it.
        what: String,
    },
}

/// Understands a command, one of [`commands`]; `None` for a blank one or a comment.
///
/// # Errors
/// See [`ParseError`].
pub fn parse(command_text: &str) -> Result<Option<Line>, ParseError> {
    let mut words = split(command_text)?.into_iter();
    let Some(mut first) = words.next() else { return Ok(None) };
    let mut at = None;
    if first.is_bare
        && let Some(name) = text(&first)?.strip_prefix('@')
    {
        at = Some(check_name(name)?);
        first = words.next().ok_or(ParseError::Missing { what: "the command", usage: "@NAME COMMAND" })?;
    }
    // As sqlite3's shell has it: .tables, .quit, .exit; and in any case.
    let name = match text(&first)?.to_ascii_lowercase().as_str() {
        "exit" | ".exit" => "quit".to_owned(),
        name => name.to_owned(),
    };
    let known = |name: &str| COMMANDS.iter().find(|command| command.name == name);
    let own = known(&name).or_else(|| known(name.strip_prefix('.')?));
    let is_outer = own.is_none_or(|own| is_as_outside(own.name, words.as_slice()));
    if is_outer && outer::find(&name).is_some() {
        let name = Ok(OuterWord { text: name, is_quoted: false });
        let rest = words.map(|word| Ok(OuterWord { text: text(&word)?, is_quoted: !word.is_bare }));
        let words = std::iter::once(name).chain(rest).collect::<Result<Vec<_>, ParseError>>()?;
        return Ok(Some(Line { at, command: Command::Outer(words) }));
    }
    let Some(usage) = own else {
        return match outer::is_elsewhere(&name) {
            true => Ok(Some(Line { at, command: Command::Elsewhere(name) })),
            false => Err(ParseError::Unknown(name)),
        };
    };
    let mut rest = Rest { words: words.peekable(), usage: usage.usage };
    let command = command(usage.name, &mut rest)?;
    rest.end()?;
    Ok(Some(Line { at, command }))
}

/// Whether a command that the shell has itself is written as on the command line: with an option, or as `index create`.
fn is_as_outside(name: &str, words: &[Word]) -> bool {
    let is_option = |word: &Word| word.is_bare && word.bytes.len() > 2 && word.bytes.starts_with(b"--");
    let is_of_index = |word: &Word| word.is_bare && outer::INDEX_COMMANDS.iter().any(|of| of.as_bytes() == word.bytes);
    words.iter().any(is_option) || name == "index" && words.first().is_some_and(is_of_index)
}

fn command(name: &str, rest: &mut Rest) -> Result<Command, ParseError> {
    let data = |data| Ok(Command::Data(data));
    match name {
        "tables" => data(Data::Tables),
        "create" => data(Data::Create(rest.table()?)),
        "drop" => data(Data::Drop(rest.table()?)),
        "rename" => data(Data::Rename { table: rest.table()?, new: rest.text("NEW")? }),
        "indexes" => data(Data::Indexes(rest.table()?)),
        "index" => {
            let (table, index, keys) = (rest.table()?, rest.text("INDEX")?, rest.text("KEYS")?);
            let keys =
                keys.parse().map_err(|error: ledgerstone::Error| ParseError::Value { what: error.to_string() })?;
            data(Data::Index { table, index, keys, is_unique: rest.takes("unique") })
        }
        "unindex" => data(Data::Unindex { table: rest.table()?, index: rest.text("INDEX")? }),
        "lookup" => {
            let table = rest.table()?;
            let index = rest.text("INDEX")?;
            let is = if rest.takes("is") { Some(rest.word("KEY")?) } else { None };
            let scan = scan(rest, table)?;
            if is.is_some() && (scan.from.is_some() || scan.to.is_some() || scan.prefix.is_some()) {
                return Err(ParseError::Value { what: "is goes without from, to and prefix".into() });
            }
            data(Data::Lookup { index, scan: Scan { is, ..scan } })
        }
        "put" | "insert" => {
            let (table, key, value) = (rest.table()?, rest.word("KEY")?, rest.word("VALUE")?);
            data(Data::Put { table, key, value, must_be_new: name == "insert" })
        }
        "get" => {
            let (table, key) = (rest.table()?, rest.word("KEY")?);
            data(Data::Get { table, key, for_update: rest.takes("for-update") })
        }
        "del" => data(Data::Del { table: rest.table()?, key: rest.word("KEY")? }),
        "scan" => {
            let table = rest.table()?;
            data(Data::Scan(scan(rest, table)?))
        }
        "count" => data(Data::Count(rest.table()?)),
        "savepoint" => data(Data::Savepoint(rest.name()?)),
        "rollback" if rest.takes("to") => data(Data::RollbackTo(rest.name()?)),
        "rollback" => Err(ParseError::Missing { what: "the word to", usage: rest.usage }),
        "release" => data(Data::Release(rest.name()?)),
        "begin" => begin(rest),
        "commit" => Ok(Command::Commit(rest.optional_name()?)),
        "abort" => Ok(Command::Abort(rest.optional_name()?)),
        "prepare" => Ok(Command::Prepare(rest.bytes("ID")?)),
        "in-doubt" => Ok(Command::InDoubt),
        "decide" if rest.takes("commit") => Ok(Command::Decide { id: rest.bytes("ID")?, commits: true }),
        "decide" if rest.takes("abort") => Ok(Command::Decide { id: rest.bytes("ID")?, commits: false }),
        "decide" => Err(ParseError::Missing { what: "commit or abort", usage: rest.usage }),
        "use" => Ok(Command::Use(rest.optional_name()?)),
        "transactions" => Ok(Command::Transactions),
        "wait" => Ok(Command::Wait(rest.optional_name()?)),
        "stat" => Ok(Command::Stat),
        "changes" => {
            let from = if rest.takes("from") { rest.number("LSN", "bytes of the log")? } else { 0 };
            let limit = if rest.takes("limit") { Some(rest.number("N", "commits")?) } else { None };
            Ok(Command::Changes { from, limit })
        }
        "checkpoint" => Ok(Command::Checkpoint),
        "compact" => Ok(Command::Compact),
        "verify" => Ok(Command::Verify),
        "open" => Ok(Command::Open(rest.text("DIR")?)),
        ".read" => Ok(Command::Read(rest.text("FILE")?)),
        // As sqlite3's shell has it; a file of that name is 'stdout' or ./stdout.
        ".output" if rest.words.peek().is_none() || rest.takes("stdout") => Ok(Command::Output(None)),
        ".output" => Ok(Command::Output(Some(rest.text("FILE")?))),
        ".mode" => {
            let mode = rest.text("the mode")?;
            Mode::ALL
                .into_iter()
                .find(|known| known.name() == mode)
                .map(Command::Mode)
                .ok_or(ParseError::Strange { word: mode, usage: rest.usage })
        }
        ".timer" if rest.takes("on") => Ok(Command::Timer(true)),
        ".timer" if rest.takes("off") => Ok(Command::Timer(false)),
        ".timer" => Err(ParseError::Missing { what: "on or off", usage: rest.usage }),
        "help" if rest.words.peek().is_none() => Ok(Command::Help(None)),
        "help" => {
            let name = rest.text("COMMAND")?;
            match (COMMANDS.iter().find(|usage| usage.name == name), outer::find(&name)) {
                (Some(about), _) => Ok(Command::Help(Some(about))),
                (None, Some(outer)) => Ok(Command::HelpOuter(outer.to_owned())),
                (None, None) if outer::is_elsewhere(&name) => Ok(Command::Elsewhere(name)),
                (None, None) => Err(ParseError::Unknown(name)),
            }
        }
        _ => Ok(Command::Quit),
    }
}

fn scan(rest: &mut Rest, table: String) -> Result<Scan, ParseError> {
    let mut scan = Scan { table, ..Scan::default() };
    while rest.words.peek().is_some() {
        if rest.takes("from") {
            once(&mut scan.from, rest.word("KEY")?, "from")?;
        } else if rest.takes("to") {
            once(&mut scan.to, rest.word("KEY")?, "to")?;
        } else if rest.takes("prefix") {
            once(&mut scan.prefix, rest.word("KEY")?, "prefix")?;
        } else if rest.takes("reverse") {
            scan.is_reverse = true;
        } else if rest.takes("keys") {
            scan.keys_only = true;
        } else if rest.takes("limit") {
            once(&mut scan.limit, rest.number("N", "records")?, "limit")?;
        } else {
            break;
        }
    }
    if scan.prefix.is_some() && (scan.from.is_some() || scan.to.is_some()) {
        return Err(ParseError::Value { what: "prefix goes without from and to".into() });
    }
    Ok(scan)
}

/// Keeps what is said once.
fn once<T>(slot: &mut Option<T>, value: T, what: &str) -> Result<(), ParseError> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(ParseError::Value { what: format!("{what} is given twice") }),
    }
}

fn begin(rest: &mut Rest) -> Result<Command, ParseError> {
    let (mut name, mut how) = (None, Begin::default());
    let mut is_first = true;
    while rest.words.peek().is_some() {
        if rest.takes("timeout") {
            let time = rest.text("TIME")?;
            let ms = Unit::Milliseconds.parse(&time).map_err(|what| ParseError::Value { what })?;
            once(&mut how.timeout, Duration::from_millis(ms), "timeout")?;
        } else if rest.takes("durability") {
            let word = rest.text("WHEN")?;
            let when = match word.as_str() {
                "sync" => Durability::Sync,
                "pipelined" => Durability::Pipelined,
                "async" => Durability::Async,
                "volatile" => Durability::Volatile,
                _ => return Err(ParseError::Strange { word, usage: "durability sync|pipelined|async|volatile" }),
            };
            once(&mut how.durability, when, "durability")?;
        } else if rest.takes("read-only") {
            how.is_read_only = true;
        } else if let Some(level) = rest.isolation() {
            once(&mut how.isolation, level, "the level")?;
        } else if is_first {
            name = Some(rest.name()?);
        } else {
            break;
        }
        is_first = false;
    }
    Ok(Command::Begin { name, how })
}

/// The words after the command.
struct Rest {
    words: std::iter::Peekable<std::vec::IntoIter<Word>>,
    usage: &'static str,
}

impl Rest {
    fn word(&mut self, what: &'static str) -> Result<Word, ParseError> {
        self.words.next().ok_or(ParseError::Missing { what, usage: self.usage })
    }

    fn bytes(&mut self, what: &'static str) -> Result<Vec<u8>, ParseError> {
        self.word(what).map(|word| word.bytes)
    }

    fn text(&mut self, what: &'static str) -> Result<String, ParseError> {
        text(&self.word(what)?)
    }

    fn number(&mut self, what: &'static str, of: &str) -> Result<u64, ParseError> {
        let number = self.text(what)?;
        number.parse().map_err(|_| ParseError::Value { what: format!("{} is not a number of {of}", quoted(&number)) })
    }

    fn table(&mut self) -> Result<String, ParseError> {
        self.text("TABLE")
    }

    fn name(&mut self) -> Result<String, ParseError> {
        check_name(&self.text("NAME")?)
    }

    fn optional_name(&mut self) -> Result<Option<String>, ParseError> {
        if self.words.peek().is_some() { self.name().map(Some) } else { Ok(None) }
    }

    /// Takes the next word if it is this keyword.
    fn takes(&mut self, keyword: &str) -> bool {
        self.words.next_if(|word| word.is_bare && word.bytes.eq_ignore_ascii_case(keyword.as_bytes())).is_some()
    }

    /// A level's name, with hyphens for the blanks in it.
    fn isolation(&mut self) -> Option<Isolation> {
        Isolation::ALL.into_iter().find(|level| self.takes(&level.name().replace(' ', "-")))
    }

    fn end(&mut self) -> Result<(), ParseError> {
        match self.words.next() {
            None => Ok(()),
            Some(word) => Err(ParseError::Strange { word: shown(&word), usage: self.usage }),
        }
    }
}

fn text(word: &Word) -> Result<String, ParseError> {
    String::from_utf8(word.bytes.clone())
        .map_err(|_| ParseError::Value { what: format!("{} is not text", shown(word)) })
}

fn shown(word: &Word) -> String {
    String::from_utf8_lossy(&word.bytes).chars().take(80).collect()
}

/// Names of transactions and savepoints: short, and nothing that could be taken for something else.
fn check_name(name: &str) -> Result<String, ParseError> {
    let is_plain = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.');
    if name.is_empty() || name.chars().count() > 64 || !name.chars().all(is_plain) {
        let shown: String = name.chars().take(80).collect();
        return Err(ParseError::Value {
            what: format!("{} is not a name: use letters, digits, _ - and ., at most 64", quoted(&shown)),
        });
    }
    Ok(name.to_owned())
}

/// What the fuzz target calls: any text is a line or an error, and words read back.
pub fn exercise(text: &str) {
    if let Ok(words) = split(text) {
        for word in &words {
            let again = split(&super::words::quote(&word.bytes));
            assert!(matches!(again.as_deref(), Ok([back]) if back.bytes == word.bytes), "{word:?}: {again:?}");
        }
    }
    for error in commands(text).into_iter().filter_map(|command| parse(command).err()) {
        assert!(!error.to_string().is_empty());
    }
    assert_quotes_agree(text);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command_of(line: &str) -> Command {
        parse(line).unwrap().unwrap().command
    }

    #[test]
    fn lines_are_understood() {
        let word = |text: &str, is_bare| Word { bytes: text.into(), is_bare, is_text: true };
        let (key, value) = (word("k", true), word("a b", false));
        let put = Data::Put { table: "t".into(), key, value, must_be_new: false };
        assert_eq!(parse("@a put t k 'a b'"), Ok(Some(Line { at: Some("a".into()), command: Command::Data(put) })));
        let scan = Scan {
            table: "t".into(),
            from: Some(word("to", true)),
            limit: Some(3),
            is_reverse: true,
            ..Scan::default()
        };
        assert_eq!(command_of("scan t from to reverse limit 3"), Command::Data(Data::Scan(scan)));
        let begin = |name: Option<&str>, how| Command::Begin { name: name.map(str::to_owned), how };
        let how = Begin {
            timeout: Some(Duration::from_millis(100)),
            durability: Some(Durability::Async),
            ..Begin::default()
        };
        assert_eq!(command_of("begin a timeout 100ms durability async"), begin(Some("a"), how));
        let how = Begin { isolation: Some(Isolation::ReadCommitted), is_read_only: true, ..Begin::default() };
        assert_eq!(command_of("begin a read-committed read-only"), begin(Some("a"), how));
        let how = Begin { isolation: Some(Isolation::Snapshot), ..Begin::default() };
        assert_eq!(command_of("begin snapshot"), begin(None, how));
        assert_eq!(command_of("rollback to s1"), Command::Data(Data::RollbackTo("s1".into())));
        let lookup = Data::Lookup {
            index: "by_city".into(),
            scan: Scan { table: "t".into(), is: Some(word("Bern", true)), keys_only: true, ..Scan::default() },
        };
        assert_eq!(command_of("lookup t by_city is Bern keys"), Command::Data(lookup));
        let keys = IndexKeys::Field { number: 2, separator: b';' };
        let index = Data::Index { table: "t".into(), index: "i".into(), keys, is_unique: true };
        assert_eq!(command_of("index t i field:2:; unique"), Command::Data(index));
        assert_eq!(command_of("changes limit 3"), Command::Changes { from: 0, limit: Some(3) });
        assert_eq!(command_of("exit"), Command::Quit);
        assert_eq!(command_of(".output stdout"), Command::Output(None));
        assert_eq!(command_of(".output 'stdout'"), Command::Output(Some("stdout".into())));
        assert_eq!(command_of(".quit"), Command::Quit);
        assert_eq!(command_of("@a commit"), Command::Commit(None));
        assert_eq!(parse("  # nothing"), Ok(None));
        assert_eq!(parse(""), Ok(None));
    }

    #[test]
    fn what_is_no_command_says_what_would_be() {
        let check = |line: &str, said: &str| {
            let error = parse(line).unwrap_err().to_string();
            assert!(error.contains(said), "{line}: {error}");
        };
        check("fetch t k", "no command \"fetch\"");
        check("put t k", "VALUE is missing; write: put TABLE KEY VALUE");
        check("get t k k", "\"k\" is not understood");
        check("scan t limit many", "not a number");
        check("scan t prefix a from b", "prefix goes without");
        check("index t i somewhere", "does not say what to index by");
        check("lookup t i is a from b", "is goes without");
        check("changes from now", "not a number of bytes of the log");
        check("begin a timeout soon", "is not a time");
        check("begin a b", "\"b\" is not understood");
        check("use a/b", "is not a name");
        check("rollback s", "the word to is missing");
        check(".mode box", "\"box\" is not understood");
        check("@a", "the command is missing");
        check("create \"\\xff\"", "is not text");
    }

    #[test]
    fn every_command_of_the_table_is_parsed() {
        for usage in COMMANDS {
            let error = parse(usage.name).err().map(|error| error.to_string()).unwrap_or_default();
            assert!(!error.contains("no command"), "{}: {error}", usage.name);
            assert!(usage.usage.starts_with(usage.name) && usage.about.ends_with('.'), "{}", usage.name);
        }
    }
}
