//! Export: a table becomes a file of rows that `import` can read, in one transaction, so that it is one moment's state.
//!
//! E1. What is exported reads back: text that a format cannot hold is refused with advice, never bent.
//! E2. A file is replaced whole or not at all (`target`).

use std::io::Write;

use anyhow::{Context, anyhow, bail, ensure};
use flate2::Compression;
use flate2::write::GzEncoder;
use ledgerstone::{Range, quoted};
use serde_json::{Map, Value, json};

use crate::commands::record_json;
use crate::interrupt;
use crate::opening::{TableArgs, open_to_read};
use crate::outcome::Outcome;
use crate::output::{Output, counted, json_text};
use crate::progress::{Progress, Unit};
use crate::rows::{Format, GZIP_ENDING, tsv_escape};
use crate::target::Target;
use crate::text::{Text, TextArgs};

/// `export`
#[derive(Clone, Debug, clap::Args)]
pub struct ExportArgs {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub table: TableArgs,
    /// The file, or `-` for standard output. A name that ends in .gz means a compressed file.
    #[arg(default_value = "-")]
    pub file: String,
    /// The format. Without this, the ending of the file's name tells. It is JSON lines if nothing else is known.
    #[arg(long, value_enum)]
    pub format: Option<Format>,
    /// Write the members of the values as columns, and no column for the key. The values must be JSON objects, as
    /// `import` stores rows. The first record names the columns of CSV and TSV, so a table without records has none.
    #[arg(long, conflicts_with = "hex")]
    pub rows: bool,
    /// Replace the file if it exists.
    #[arg(long)]
    pub force: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub text: TextArgs,
}

pub(crate) fn run(args: &ExportArgs, output: &Output) -> anyhow::Result<Outcome> {
    let format = args.format.or_else(|| Format::of_name(&args.file)).unwrap_or(Format::Jsonl);
    let env = open_to_read(&args.table.at, output)?;
    let txn = env.begin()?;
    let table = txn.bytes(&args.table.table)?; // Before the file is touched: the table may not exist.
    let (text, range) = (args.text.of(&table)?, table.range(..)?);

    let mut target = Target::open_new(&args.file, args.force, "--force replaces it", output)?;
    let progress = Progress::new(output);
    let about = progress.about(|| table.estimated_count());
    let count = if args.file.ends_with(GZIP_ENDING) {
        let mut compressed = GzEncoder::new(target.writer(), Compression::default());
        let count = write(args, Writer::new(args, &text, format, &mut compressed), range, (progress, about))?;
        compressed.finish()?;
        count
    } else {
        write(args, Writer::new(args, &text, format, target.writer()), range, (progress, about))?
    };
    target.finish()?;
    txn.end()?;
    env.close()?;
    if output.is_json && args.file != "-" {
        output.json(&json!({ "table": args.table.table, "file": args.file, "record_count": count }))?;
        output.flush()?;
    }
    output.note(format_args!("{} exported from {}", counted(count, "record"), args.table.table));
    Ok(Outcome::Done)
}

fn write(
    args: &ExportArgs,
    mut writer: Writer<'_>,
    range: Range,
    (mut progress, about): (Progress, u64),
) -> anyhow::Result<u64> {
    let _heeding = interrupt::heed();
    let mut count = 0_u64;
    for record in range {
        interrupt::check(|| target_left(&args.file, count))?;
        let (key, value) = record?;
        count += 1;
        writer.record(&key, &value).with_context(|| format!("record {count}"))?;
        if count.is_multiple_of(4096) {
            progress.show_about("export", count, about, Unit::Count("records"));
        }
    }
    writer.finish()?;
    Ok(count)
}

/// What an interrupted command leaves of its file.
pub(crate) fn target_left(name: &str, count: u64) -> String {
    match name {
        "-" => format!("after {count} records: the output is not whole"),
        _ => format!("after {count} records: {name} was not written"),
    }
}

/// Writes records in one of the formats.
struct Writer<'a> {
    args: &'a ExportArgs,
    text: &'a Text,
    how: How<'a>,
    /// With `--rows`: the columns, from the first record.
    columns: Option<Vec<String>>,
}

enum How<'a> {
    Csv(Box<csv::Writer<&'a mut dyn Write>>),
    Tsv(&'a mut dyn Write),
    Jsonl(&'a mut dyn Write),
}

impl<'a> Writer<'a> {
    fn new(args: &'a ExportArgs, text: &'a Text, format: Format, out: &'a mut dyn Write) -> Writer<'a> {
        let how = match format {
            Format::Csv => How::Csv(Box::new(csv::Writer::from_writer(out))),
            Format::Tsv => How::Tsv(out),
            Format::Jsonl => How::Jsonl(out),
        };
        Writer { args, text, how, columns: None }
    }

    fn record(&mut self, key: &[u8], value: &[u8]) -> anyhow::Result<()> {
        let text = self.text;
        if self.args.rows {
            return self.row(value);
        }
        if let How::Jsonl(out) = &mut self.how {
            // JSON has its own way for what is not text.
            writeln!(out, "{}", json_text(&record_json(text, key, Some(value)))?)?;
            return Ok(());
        }
        let not_text = |what: &str| anyhow!("the {what} is not text of its type; --hex exports any bytes");
        let key = text.key_text(key).ok_or_else(|| not_text("key"))?;
        let value = text.value_text(value).ok_or_else(|| not_text("value"))?;
        self.header()?;
        self.fields(&[key, value])
    }

    /// Names the columns of keys and values, once.
    fn header(&mut self) -> anyhow::Result<()> {
        if self.columns.is_none() {
            let columns = vec!["key".to_owned(), "value".to_owned()];
            self.fields(&columns)?;
            self.columns = Some(columns);
        }
        Ok(())
    }

    /// A value that is a JSON object, as a row.
    fn row(&mut self, value: &[u8]) -> anyhow::Result<()> {
        let object = serde_json::from_slice::<Map<String, Value>>(value);
        let no_object = "the value is not a JSON object, so it has no columns; export it without --rows";
        let object = object.map_err(|_| anyhow!(no_object))?; // What the parser says of it helps nobody.
        if let How::Jsonl(out) = &mut self.how {
            out.write_all(&one_line(value.trim_ascii()))?;
            return Ok(out.write_all(b"\n")?);
        }
        let columns = match &self.columns {
            Some(columns) => columns.clone(),
            None => {
                let columns = object.keys().cloned().collect::<Vec<String>>();
                self.fields(&columns)?;
                self.columns = Some(columns.clone());
                columns
            }
        };
        if let Some(strange) = object.keys().find(|name| !columns.contains(name)) {
            bail!(
                "column {} is not among those of the first record ({}); JSON lines can hold it",
                quoted(strange),
                columns.join(", ")
            );
        }
        let fields: Vec<String> = columns
            .iter()
            .map(|name| match object.get(name) {
                None | Some(Value::Null) => String::new(),
                Some(Value::String(text)) => text.clone(),
                Some(other) => other.to_string(),
            })
            .collect();
        self.fields(&fields)
    }

    fn fields(&mut self, fields: &[String]) -> anyhow::Result<()> {
        match &mut self.how {
            How::Csv(writer) => writer.write_record(fields)?,
            How::Tsv(out) => {
                let line: Vec<String> = fields.iter().map(|field| tsv_escape(field)).collect();
                let line = line.join("\t");
                // Only with a single column: an empty line is not a row for TSV, as for most programs that write it.
                ensure!(!line.is_empty(), "a line of one empty field would not read back; CSV can hold it");
                writeln!(out, "{line}")?;
            }
            How::Jsonl(_) => {}
        }
        Ok(())
    }

    fn finish(mut self) -> anyhow::Result<()> {
        if !self.args.rows {
            self.header()?; // A table without records has these columns, too.
        }
        if let How::Csv(writer) = &mut self.how {
            writer.flush()?;
        }
        Ok(())
    }
}

/// JSON on one line: without the blanks between its parts, if there are line ends among them. Nothing else changes: not
/// the order of the members, no digit of a number.
fn one_line(json: &[u8]) -> std::borrow::Cow<'_, [u8]> {
    if !json.iter().any(|byte| matches!(byte, b'\n' | b'\r')) {
        return json.into();
    }
    let (mut is_text, mut is_escaped) = (false, false);
    let stays = |byte: &u8| {
        if !is_text {
            is_text = *byte == b'"';
            return !byte.is_ascii_whitespace();
        }
        is_text = is_escaped || *byte != b'"';
        is_escaped = !is_escaped && *byte == b'\\';
        true
    };
    json.iter().copied().filter(stays).collect::<Vec<u8>>().into()
}
