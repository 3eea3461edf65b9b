//! Import: rows of a file become records of a table, in one transaction or in batches.
//!
//! A row's key is one column, or several joined; its value is one column, or the whole row as a JSON object. A line
//! that is not a row, or a row that the table refuses, is named with its number and its reason; then the import stops,
//! or leaves it out. What a stop leaves behind is said: nothing with one transaction, whole batches otherwise.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use anyhow::{Context, anyhow, bail};
use flate2::read::MultiGzDecoder;
use ledgerstone::{Environment, Error, SortedLoader, Transaction, quoted};
use serde_json::Value;

use crate::interrupt;
use crate::opening::{TableArgs, open};
use crate::outcome::Outcome;
use crate::output::{Output, counted, file_named};
use crate::progress::{Progress, Unit};
use crate::rows::{BadLine, ColumnType, FieldType, Format, GZIP_ENDING, Reason, Row, Rows, json_kind};
use crate::text::{Text, TextArgs};

/// `import`
#[derive(Clone, Debug, clap::Args)]
pub struct ImportArgs {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub table: TableArgs,
    /// The file, or `-` for standard input. A file whose name ends in .gz is read compressed.
    pub file: String,
    /// The format of the file. Without this, the ending of its name tells.
    #[arg(long, value_enum)]
    pub format: Option<Format>,
    /// The column that is the key. Several columns are joined by --separator, in this order. Without this, the key is
    /// the first column of CSV and TSV.
    #[arg(long, value_name = "COLUMN", value_delimiter = ',')]
    pub key: Vec<String>,
    /// The column that is the value. Without this, the value is the whole row as a JSON object.
    #[arg(long, value_name = "COLUMN")]
    pub value: Option<String>,
    /// What to put between the columns of a key.
    #[arg(long, default_value = ":")]
    pub separator: String,
    /// The byte between the fields of CSV.
    #[arg(long, default_value = ",")]
    pub delimiter: String,
    /// Types of CSV and TSV columns in the JSON object. Empty numbers and truth values become null. `auto` makes a
    /// number or a truth value of every field that is one in JSON. Without --types, all fields are text.
    #[arg(long, value_name = "auto|COLUMN=text|number|bool|auto", value_delimiter = ',', conflicts_with = "value")]
    pub types: Vec<ColumnType>,
    /// Names of the columns, if the first line of the file does not name them.
    #[arg(long, value_name = "COLUMN", value_delimiter = ',')]
    pub columns: Option<Vec<String>>,
    /// Import all rows or none, in one transaction.
    #[arg(long, conflicts_with = "batch")]
    pub one_transaction: bool,
    /// Load rows that are in the order of their keys, as bytes, into full pages with less log. All rows are one
    /// transaction. Any keys that the table has must be below those of the file.
    #[arg(long, conflicts_with_all = ["batch", "one_transaction"])]
    pub sorted: bool,
    /// Commit after this many rows.
    #[arg(long, value_name = "ROWS", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..))]
    pub batch: u64,
    /// Report malformed lines and go on (exit code 1 if there are any). Without this, the first one stops the import.
    #[arg(long)]
    pub keep_going: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub text: TextArgs,
}

pub(crate) fn run(args: &ImportArgs, output: &Output) -> anyhow::Result<Outcome> {
    let (input, all_bytes) = input(&args.file)?;
    let read_bytes = Arc::new(AtomicU64::new(0));
    let input = Counted { input, count: Arc::clone(&read_bytes) };
    let input: Box<dyn Read> =
        if args.file.ends_with(GZIP_ENDING) { Box::new(MultiGzDecoder::new(input)) } else { Box::new(input) };
    let input = BufReader::with_capacity(1 << 16, input);
    let file = file_named(&args.file);
    let format = args.format.or_else(|| Format::of_name(&args.file)).with_context(|| match args.file.as_str() {
        "-" => "standard input has no name that tells its format: say --format csv, tsv or jsonl".to_owned(),
        file => {
            format!("the name {} does not tell the format of the file: say --format csv, tsv or jsonl", quoted(file))
        }
    })?;
    let &[delimiter] = args.delimiter.as_bytes() else {
        bail!("--delimiter takes one byte, not {}", quoted(&args.delimiter))
    };
    if matches!(delimiter, b'"' | b'\n' | b'\r') {
        bail!("--delimiter {} has a meaning of its own in CSV: take another", quoted(&args.delimiter));
    }
    let rows = Rows::open(input, format, delimiter, args.columns.clone());
    let mut rows = rows.with_context(|| format!("cannot import {file}"))?;
    check_columns(args, rows.columns())?;
    let key = key_columns(args, rows.columns())?;
    if args.key.is_empty() {
        output.note(format_args!("the key is column {}, the first one; --key names another", quoted(&key.join(", "))));
    }
    if format == Format::Jsonl && !args.types.is_empty() {
        bail!("JSON lines say themselves what their members are: leave --types out");
    }

    let env = open(&args.table.at, output)?;
    let began = Instant::now();
    let mut progress = Progress::new(output);
    let text = env.try_transact(|txn| match txn.bytes(&args.table.table) {
        Err(Error::NoSuchTable(_)) => args.text.of_new(),
        table => args.text.of(&table?),
    })?;
    if args.value.is_none() && !text.takes_any_value() {
        bail!(
            "values of table {} are not JSON objects: name the column that is the value with --value",
            args.table.table
        );
    }
    let mut import =
        Import { env: &env, args, key, text, txn: None, loader: None, row_count: 0, uncommitted: 0, bad_count: 0 };
    let _heeding = interrupt::heed();
    while let Some(row) = next_row(&mut rows, &import)? {
        interrupt::check(|| format!("after {}: {}", counted(import.row_count, "row"), import.what_stays()))?;
        match row.and_then(|(line, row)| Ok((line, import.record(line, &row)?))) {
            Ok((line, (key, value))) => {
                if let Some(bad) = import.put(line, &key, &value)? {
                    import.left_out(bad, &progress)?;
                }
            }
            Err(bad) => import.left_out(bad, &progress)?,
        }
        if (import.row_count + import.bad_count).is_multiple_of(512) {
            progress.show("import", read_bytes.load(Relaxed), all_bytes, Unit::Bytes);
        }
    }
    import.commit()?;
    let (row_count, bad_count) = (import.row_count, import.bad_count);
    drop(progress);
    let seconds = began.elapsed().as_secs_f64();
    env.close()?;

    if output.is_json {
        let table = &args.table.table;
        output.json(
            &serde_json::json!({ "table": table, "row_count": row_count, "left_out_count": bad_count, "seconds": seconds }),
        )?;
        output.flush()?;
    } else {
        output.note(format_args!(
            "{} imported into {} in {seconds:.2} s{}",
            counted(row_count, "row"),
            args.table.table,
            if bad_count == 0 { String::new() } else { format!("; {} left out", counted(bad_count, "line")) }
        ));
    }
    Ok(if bad_count == 0 { Outcome::Done } else { Outcome::Not })
}

/// The file and its size, 0 if that is not known.
fn input(name: &str) -> anyhow::Result<(Box<dyn Read>, u64)> {
    if name == "-" {
        return Ok((Box::new(std::io::stdin().lock()), 0));
    }
    let file = File::open(name).with_context(|| format!("cannot read {name}"))?;
    let about = file.metadata().with_context(|| format!("cannot read {name}"))?;
    anyhow::ensure!(!about.is_dir(), "cannot read {name}: it is a directory");
    Ok((Box::new(file), if about.is_file() { about.len() } else { 0 }))
}

/// Counts what is read, for the progress bar.
struct Counted<R> {
    input: R,
    count: Arc<AtomicU64>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        let count = self.input.read(buf)?;
        self.count.fetch_add(count as u64, Relaxed); // Only shown.
        Ok(count)
    }
}

/// A column that the header does not name is told before anything is written.
fn check_columns(args: &ImportArgs, columns: Option<&[String]>) -> anyhow::Result<()> {
    let Some(columns) = columns else { return Ok(()) };
    for wanted in args.key.iter().chain(&args.value).chain(args.types.iter().filter_map(|typed| typed.column.as_ref()))
    {
        if !columns.contains(wanted) {
            let file = file_named(&args.file);
            bail!("{file} has no column {}; its columns are: {}", quoted(wanted), columns.join(", "));
        }
    }
    Ok(())
}

/// The columns that are the key: those that were named, or the first one.
fn key_columns(args: &ImportArgs, columns: Option<&[String]>) -> anyhow::Result<Vec<String>> {
    if !args.key.is_empty() {
        return Ok(args.key.clone());
    }
    let first = columns.map(|columns| columns[..columns.len().min(1)].to_vec());
    first.context("JSON lines have no first column: say which member is the key, with --key")
}

#[allow(clippy::type_complexity)]
fn next_row<R: BufRead>(
    rows: &mut Rows<R>,
    import: &Import<'_>,
) -> anyhow::Result<Option<Result<(u64, Row), BadLine>>> {
    rows.next_row().map_err(|error| {
        let what = format!("cannot import all of {}; {}", file_named(&import.args.file), import.what_stays());
        anyhow!(error).context(what)
    })
}

struct Import<'a> {
    env: &'a Environment,
    args: &'a ImportArgs,
    /// The columns that are the key.
    key: Vec<String>,
    text: Text,
    txn: Option<Transaction>,
    /// With `--sorted`.
    loader: Option<SortedLoader>,
    row_count: u64,
    /// Rows of the running transaction.
    uncommitted: u64,
    bad_count: u64,
}

impl Import<'_> {
    /// Key and value of a row.
    fn record(&self, line: u64, row: &Row) -> Result<(Vec<u8>, Vec<u8>), BadLine> {
        self.record_of(row).map_err(|reason| BadLine { line, reason })
    }

    fn record_of(&self, row: &Row) -> Result<(Vec<u8>, Vec<u8>), Reason> {
        let mut key = String::new();
        for (no, column) in self.key.iter().enumerate() {
            let part = scalar(row, column)?;
            if part.is_empty() {
                return Err(Reason::NothingIn { column: column.clone() });
            }
            if no > 0 {
                key.push_str(&self.args.separator);
            }
            key.push_str(&part);
        }
        let typed = |column: &String| {
            let column = column.clone();
            move |what| Reason::Typed { column, what }
        };
        let key = self.text.key(&key).map_err(typed(&self.key[0]))?;
        let value = match &self.args.value {
            Some(column) => self.text.value(&content(row, column)?).map_err(typed(column))?,
            None => object(row, &self.args.types)?.into_bytes(),
        };
        Ok((key, value))
    }

    /// Puts a record; a row that the table refuses comes back as a bad line.
    fn put(&mut self, line: u64, key: &[u8], value: &[u8]) -> anyhow::Result<Option<BadLine>> {
        if self.txn.is_none() {
            self.txn = Some(self.env.begin()?);
        }
        let Some(txn) = &self.txn else { return Ok(None) };
        let done = if self.args.sorted {
            put_sorted(&mut self.loader, txn, self.args, key, value)
        } else {
            self.args.text.open_or_create(txn, &self.args.table.table).and_then(|table| table.put(key, value))
        };
        match done {
            Ok(()) => {
                self.row_count += 1;
                self.uncommitted += 1;
                if !self.args.one_transaction && !self.args.sorted && self.uncommitted >= self.args.batch {
                    self.commit()?;
                }
                Ok(None)
            }
            Err(error) if is_of_this_row(&error) => {
                Ok(Some(BadLine { line, reason: Reason::Refused { what: error.to_string() } }))
            }
            Err(error) => Err(anyhow!(error).context(format!("line {line}; {}", self.what_stays()))),
        }
    }

    /// Names a line that is left out, or stops.
    fn left_out(&mut self, bad: BadLine, progress: &Progress) -> anyhow::Result<()> {
        if self.args.keep_going {
            self.bad_count += 1;
            progress.say(format_args!("{}: {bad}", file_named(&self.args.file)));
            return Ok(());
        }
        bail!(
            "{}: {bad}\n  {}; mend the line, or leave such lines out with --keep-going",
            file_named(&self.args.file),
            self.what_stays()
        )
    }

    fn commit(&mut self) -> anyhow::Result<()> {
        if let Some(txn) = self.txn.take() {
            let stays = self.what_stays();
            if let Some(loader) = self.loader.take() {
                let _ = loader.finish().map_err(|error| anyhow!(error).context(stays.clone()))?;
            }
            let _ = txn.commit().map_err(|error| anyhow!(error).context(stays))?;
            self.uncommitted = 0;
        } else if self.row_count == 0 {
            // A file without rows makes an empty table, not none.
            self.env.try_transact(|txn| self.args.text.open_or_create(txn, &self.args.table.table).map(drop))?;
        }
        Ok(())
    }

    /// What a stop here leaves in the table.
    fn what_stays(&self) -> String {
        match self.row_count - self.uncommitted {
            0 => "nothing was imported".into(),
            1 => "the first row was imported and stays".into(),
            count => format!("the first {count} rows were imported and stay"),
        }
    }
}

/// The next row of a sorted load, which begins with the first.
fn put_sorted(
    loader: &mut Option<SortedLoader>,
    txn: &Transaction,
    args: &ImportArgs,
    key: &[u8],
    value: &[u8],
) -> Result<(), Error> {
    let loader = match loader {
        Some(loader) => loader,
        None => loader.insert(args.text.open_or_create(txn, &args.table.table)?.sorted_loader()?),
    };
    loader.push(key, value)
}

/// True if the table refuses the row for what it is, and took no harm.
fn is_of_this_row(error: &Error) -> bool {
    matches!(
        error,
        Error::KeyTooLarge { .. }
            | Error::ValueTooLarge { .. }
            | Error::IndexKeyExists { .. }
            | Error::IndexKeyTooLarge { .. }
            | Error::NotIndexable { .. }
    )
}

/// The text of a column that is to be a key, or a part of one.
fn scalar(row: &Row, column: &str) -> Result<String, Reason> {
    let nothing = || Reason::NothingIn { column: column.to_owned() };
    match row {
        Row::Fields { .. } => content(row, column),
        Row::Object { object, .. } => match object.get(column).ok_or_else(nothing)? {
            Value::Null => Err(nothing()),
            value @ (Value::Array(_) | Value::Object(_)) => {
                Err(Reason::NoKey { column: column.to_owned(), found: json_kind(value) })
            }
            _ => content(row, column),
        },
    }
}

/// The text of a column: a string as it is, anything else as JSON.
fn content(row: &Row, column: &str) -> Result<String, Reason> {
    let found = match row {
        Row::Fields { columns, fields } => {
            columns.iter().zip(fields).find(|(name, _)| *name == column).map(|(_, f)| f.clone())
        }
        Row::Object { object, .. } => object.get(column).map(|value| match value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        }),
    };
    found.ok_or_else(|| Reason::NothingIn { column: column.to_owned() })
}

/// The whole row as a JSON object: the columns in the order of the file.
fn object(row: &Row, types: &[ColumnType]) -> Result<String, Reason> {
    match row {
        Row::Object { text, .. } => Ok(text.clone()),
        Row::Fields { columns, fields } => {
            let mut text = String::from("{");
            for (no, (column, field)) in columns.iter().zip(fields).enumerate() {
                if no > 0 {
                    text.push(',');
                }
                // A JSON string of a Rust string; `Value`'s Display writes exactly that.
                text.push_str(&Value::from(column.as_str()).to_string());
                text.push(':');
                let typed = types.iter().find(|typed| typed.column.as_ref() == Some(column));
                let typed = typed.or_else(|| types.iter().find(|typed| typed.column.is_none()));
                let typed = typed.map_or(FieldType::Text, |typed| typed.field);
                let json = typed.json(field).map_err(|what| Reason::Typed { column: column.clone(), what })?;
                text.push_str(&json);
            }
            text.push('}');
            Ok(text)
        }
    }
}
