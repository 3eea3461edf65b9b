//! What a command answers, and how it is shown.
//!
//! ```text
//! mode    lines  for
//! plain   one    pipes: ok, ok VALUE, ok COUNT ..., none, waiting for NAME, error KIND: what; words as `words::quote` writes them
//! json    one    programs: an object with "ok", and "value", "records" ... or "error" and "message", or "waiting"
//! table   many   people
//! list    many   other programs of a pipe: records a line each, as `ledgerstone scan` prints them; everything else as plain
//! csv     many   spreadsheets: records as key,value; everything else as plain
//! ```
//! A terminal sees at most 1000 records unless asked for more, and escapes where bytes are not letters. What `list` and
//! `csv` write anywhere else is whole, and `csv` has the values as they are.
//!
//! Keys and values are shown as the types of their table say ([`Forms`]): what is shown can be typed again.

use comfy_table::{Table, presets};
use ledgerstone::Error;
use serde_json::{Map, Value, json};

use super::words::{quote, split};
use crate::commands::{index_key_json, record_json};
use crate::inspect::figures_text;
use crate::outcome::error_kind;
use crate::output::{escaped, json_text};
use crate::text::{PLAIN, Text, readable};

/// How answers are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// For people: a value as it is, records as a table.
    Table,
    /// One line an answer.
    Plain,
    /// One object an answer.
    Json,
    /// A record a line: key, tab, value.
    List,
    /// Records as comma-separated values.
    Csv,
}

impl Mode {
    /// All of them.
    pub const ALL: [Mode; 5] = [Mode::Table, Mode::Plain, Mode::Json, Mode::List, Mode::Csv];

    /// As it is typed.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Mode::Table => "table",
            Mode::Plain => "plain",
            Mode::Json => "json",
            Mode::List => "list",
            Mode::Csv => "csv",
        }
    }
}

/// How the two parts of records are written.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Forms {
    /// Key and value of a table.
    Record(Text),
    /// Key of an index, and key of its table.
    Entry { index: Text, table: Text },
    /// Text whose escapes are in it already.
    Line,
}

impl Forms {
    /// What is text as it is.
    pub(crate) const PLAIN: Forms = Forms::Record(PLAIN);

    fn first(&self, key: &[u8]) -> Option<String> {
        match self {
            Forms::Record(text) | Forms::Entry { index: text, .. } => text.key_text(key),
            Forms::Line => PLAIN.key_text(key),
        }
    }

    fn second(&self, bytes: &[u8]) -> Option<String> {
        match self {
            Forms::Record(text) => text.value_text(bytes),
            Forms::Entry { table, .. } => table.key_text(bytes),
            Forms::Line => PLAIN.value_text(bytes),
        }
    }

    fn json(&self, first: &[u8], second: Option<&[u8]>) -> Value {
        match (self, second) {
            (Forms::Record(text), value) => record_json(text, first, value),
            (Forms::Line, value) => record_json(&PLAIN, first, value),
            (Forms::Entry { index, table }, key) => {
                let mut entry = record_json(table, key.unwrap_or_default(), None);
                index_key_json(index, first, &mut entry);
                entry
            }
        }
    }
}

/// What a command answers.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Answer {
    /// It was done.
    Done,
    /// There was nothing to do it to.
    NotThere,
    /// A value, and how it is written.
    Value(Vec<u8>, Text),
    Count(u64),
    Names(Vec<String>),
    Records {
        records: Vec<(Vec<u8>, Option<Vec<u8>>)>,
        has_more: bool,
        forms: Box<Forms>,
    },
    /// Names and figures.
    Figures(Map<String, Value>),
    /// Lines of text for people; the plain form is the first, and how many there are.
    Lines(Vec<(String, String)>),
    /// How commands are written, and what they do: as `Lines`, but for a table that fits a terminal.
    Usage(Vec<(String, String)>),
    /// The command goes on in its transaction; its answer comes later.
    Waiting {
        who: String,
        waits_for: Vec<String>,
        what: String,
    },
    Failed {
        kind: &'static str,
        message: String,
    },
    /// An answer whose JSON has the members that the command line answers with.
    Told {
        plain: Box<Answer>,
        json: Map<String, Value>,
    },
    /// What a command of the command line has printed, and then the answer.
    Printed {
        data: Vec<u8>,
        then: Box<Answer>,
    },
}

impl Answer {
    pub(crate) fn of(result: Result<Answer, Error>) -> Answer {
        result.unwrap_or_else(|error| Answer::Failed { kind: error_kind(&error), message: error.to_string() })
    }

    pub(crate) fn usage(message: impl std::fmt::Display) -> Answer {
        Answer::Failed { kind: "usage", message: message.to_string() }
    }

    /// The same for people, and these members for programs.
    pub(crate) fn with(self, json: Value) -> Answer {
        let Value::Object(json) = json else { return self };
        Answer::Told { plain: Box::new(self), json }
    }

    /// The same, and that it was done, or that there was nothing to do it to.
    pub(crate) fn done(mut json: Value, is_done: bool) -> Answer {
        json["done"] = is_done.into();
        if is_done { Answer::Done.with(json) } else { Answer::NotThere.with(json) }
    }

    /// The answer for people.
    pub(crate) fn for_people(&self) -> &Answer {
        match self {
            Answer::Told { plain: inner, .. } | Answer::Printed { then: inner, .. } => inner.for_people(),
            answer => answer,
        }
    }

    /// What was printed before it.
    pub(crate) fn data(&self) -> &[u8] {
        match self {
            Answer::Printed { data, .. } => data,
            _ => &[],
        }
    }

    /// Says that there is more than what is shown, if so: what `list` and `csv` have no place for.
    pub(crate) fn cut_short(&self) -> Option<String> {
        match self.for_people() {
            Answer::Records { records, has_more: true, .. } => {
                Some(format!("only the first {} are shown: say limit N for more", records.len()))
            }
            _ => None,
        }
    }

    pub(crate) fn is_error(&self) -> bool {
        matches!(self.for_people(), Answer::Failed { .. })
    }

    /// The text to print, without a line ending; `ms` if somebody wants to know how long it took.
    pub(crate) fn show(&self, mode: Mode, ms: Option<f64>) -> String {
        let text = match mode {
            Mode::Json => return json_text(&self.json(ms)).unwrap_or_default(),
            Mode::Plain => self.for_people().plain(),
            Mode::Table => self.for_people().table(),
            Mode::List => self.for_people().list(),
            Mode::Csv => self.for_people().csv(),
        };
        match ms {
            Some(ms) => format!("{text} ({ms:.3} ms)"),
            None => text,
        }
    }

    fn plain(&self) -> String {
        let words = |count: usize, words: &mut dyn Iterator<Item = String>| {
            words.fold(format!("ok {count}"), |line, word| line + " " + &word)
        };
        match self {
            Answer::Done => "ok".into(),
            Answer::NotThere => "none".into(),
            Answer::Value(value, text) => format!("ok {}", word_of(text.value_text(value), value)),
            Answer::Count(count) => format!("ok {count}"),
            Answer::Names(names) => words(names.len(), &mut names.iter().map(|name| quote(name.as_bytes()))),
            Answer::Records { records, has_more, forms } => {
                let mut record = records.iter().map(|(key, value)| {
                    let key = word_of(forms.first(key), key);
                    match value {
                        Some(value) => format!("{key}={}", word_of(forms.second(value), value)),
                        None => key,
                    }
                });
                words(records.len(), &mut record) + if *has_more { " and more" } else { "" }
            }
            Answer::Figures(figures) => {
                let mut figures =
                    figures.iter().map(|(name, figure)| format!("{name}={}", quote(plain(figure).as_bytes())));
                words(figures.len(), &mut figures)
            }
            Answer::Lines(lines) | Answer::Usage(lines) => {
                words(lines.len(), &mut lines.iter().map(|(name, _)| word(name)))
            }
            Answer::Waiting { waits_for, .. } => format!("waiting for {}", waits_for.join(" ")),
            Answer::Failed { kind, message } => format!("error {kind}: {}", escaped(message).replace('\n', "\\n")),
            Answer::Told { .. } | Answer::Printed { .. } => self.for_people().plain(),
        }
    }

    fn json(&self, ms: Option<f64>) -> Value {
        let mut object = Map::new();
        object.insert("ok".into(), (!self.is_error()).into());
        let (name, value) = match self {
            Answer::Done => ("done", true.into()),
            Answer::NotThere => ("value", Value::Null),
            Answer::Value(value, text) => {
                let Value::Object(mut record) = record_json(text, b"", Some(value)) else { return Value::Null };
                record.remove("key");
                record.remove("key_hex");
                object.append(&mut record);
                ("", Value::Null)
            }
            Answer::Count(count) => ("count", (*count).into()),
            Answer::Records { records, has_more, forms } => {
                let record = |(key, value): &(Vec<u8>, Option<Vec<u8>>)| forms.json(key, value.as_deref());
                object.insert("more".into(), (*has_more).into());
                ("records", records.iter().map(record).collect())
            }
            // For people; programs are told the command line's members beside them.
            Answer::Names(_) | Answer::Figures(_) => ("", Value::Null),
            Answer::Lines(lines) | Answer::Usage(lines) => {
                ("lines", lines.iter().map(|(name, text)| json!({ "name": name, "text": text })).collect())
            }
            Answer::Waiting { who, waits_for, .. } => {
                object.insert("transaction".into(), who.as_str().into());
                ("waiting", waits_for.clone().into())
            }
            Answer::Failed { kind, message } => {
                object.insert("message".into(), message.as_str().into());
                ("error", (*kind).into())
            }
            Answer::Told { plain, json } => {
                if let Answer::Failed { kind, message } = plain.for_people() {
                    object.insert("error".into(), (*kind).into());
                    object.insert("message".into(), message.as_str().into());
                }
                object.extend(json.clone());
                ("", Value::Null)
            }
            Answer::Printed { then, .. } => return then.json(ms),
        };
        if !name.is_empty() {
            object.insert(name.into(), value);
        }
        if let Some(ms) = ms {
            object.insert("ms".into(), json!(ms));
        }
        object.into()
    }

    fn table(&self) -> String {
        match self {
            Answer::NotThere => "(none)".into(),
            Answer::Value(value, text) => shown(text.value_text(value), value),
            Answer::Count(count) => count.to_string(),
            Answer::Names(names) => {
                let mut lines: Vec<String> = names.iter().map(|name| readable(name.as_bytes())).collect();
                lines.push(counted(names.len(), false));
                lines.join("\n")
            }
            Answer::Records { records, has_more, forms } => {
                let mut table = Table::new();
                table.load_style(presets::NOTHING);
                for row in rows(records, forms) {
                    table.add_row(row);
                }
                let count = counted(records.len(), *has_more);
                if records.is_empty() { count } else { format!("{}\n{count}", table.trim_fmt()) }
            }
            Answer::Figures(figures) => figures_text(&figures.clone().into()),
            Answer::Lines(lines) => {
                let mut table = Table::new();
                table.load_style(presets::NOTHING);
                for (name, text) in lines {
                    table.add_row([name, text]);
                }
                table.trim_fmt()
            }
            Answer::Usage(lines) => usage_table(lines),
            Answer::Waiting { who, waits_for, what } => {
                let whom = waits_for.join(", ");
                format!("{who} waits for {whom} ({what}); its answer will come when it is there")
            }
            Answer::Failed { kind, message } => format!("error {kind}: {message}"),
            Answer::Done | Answer::Told { .. } | Answer::Printed { .. } => self.for_people().plain(),
        }
    }

    fn list(&self) -> String {
        let Answer::Records { records, forms, .. } = self else { return self.plain() };
        let line = |([first, second], has_value): ([String; 2], bool)| match has_value {
            true => format!("{first}\t{second}"),
            false => first,
        };
        let lines: Vec<String> =
            rows(records, forms).zip(records).map(|(row, (_, value))| line((row, value.is_some()))).collect();
        lines.join("\n")
    }

    fn csv(&self) -> String {
        match self {
            Answer::Records { records, forms, .. } => csv_lines(rows(records, forms)),
            _ => self.plain(),
        }
    }

    /// Records as CSV for a program or a file, without a line ending: every key and value as it is, because quotes can
    /// hold any text. Nothing for other answers.
    ///
    /// # Errors
    /// A key or a value that is not text: `export` refuses it, too.
    pub(crate) fn exact_csv(&self) -> Option<Result<String, Answer>> {
        let Answer::Records { records, forms, .. } = self.for_people() else { return None };
        let not_text = |what: &str, key: &[u8]| Answer::Failed {
            kind: "not-text",
            message: format!(
                "the {what} {} is not text, and CSV holds text only; export --hex writes it",
                readable(key)
            ),
        };
        let row = |(first, second): &(Vec<u8>, Option<Vec<u8>>)| {
            let key = forms.first(first).ok_or_else(|| not_text("key", first))?;
            let value = second.as_ref().map(|value| forms.second(value).ok_or_else(|| not_text("value of key", first)));
            Ok([key, value.transpose()?.unwrap_or_default()])
        };
        Some(records.iter().map(row).collect::<Result<Vec<_>, Answer>>().map(|rows| csv_lines(rows.into_iter())))
    }
}

/// The text beside its name, or below a name that is long, in no more columns than a terminal has.
fn usage_table(lines: &[(String, String)]) -> String {
    const WIDTH: usize = 79;
    const NAME: usize = 30;
    let mut out = Vec::new();
    for (name, text) in lines {
        let mut left = wrapped(name, WIDTH - 1, 4);
        let mut right = wrapped(text, WIDTH - NAME - 2, 0).into_iter();
        if left.len() == 1 && left[0].chars().count() <= NAME {
            left[0] = format!("{:NAME$} {}", left[0], right.next().unwrap_or_default());
        }
        out.extend(left.iter().map(|line| format!(" {line}").trim_end().to_owned()));
        out.extend(right.map(|line| format!("{:1$}{line}", "", NAME + 2)));
    }
    out.join("\n")
}

/// A text in lines of at most `width` columns, all but the first indented. A longer word has a line of its own.
fn wrapped(text: &str, width: usize, indent: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = &lines[lines.len() - 1];
        let is_empty = line.trim().is_empty();
        if !is_empty && line.chars().count() + 1 + word.chars().count() > width {
            lines.push(" ".repeat(indent) + word);
        } else if let Some(line) = lines.last_mut() {
            line.push_str(if is_empty { "" } else { " " });
            line.push_str(word);
        }
    }
    lines
}

fn csv_lines(rows: impl Iterator<Item = [String; 2]>) -> String {
    let mut writer = csv::Writer::from_writer(b"key,value\n".to_vec());
    for row in rows {
        let _ = writer.write_record(row); // Writing to memory cannot fail.
    }
    let mut lines = writer.into_inner().unwrap_or_default();
    lines.pop(); // The last line ending.
    String::from_utf8_lossy(&lines).into_owned()
}

/// Records as people read them.
fn rows<'a>(records: &'a [(Vec<u8>, Option<Vec<u8>>)], forms: &'a Forms) -> impl Iterator<Item = [String; 2]> + 'a {
    let shown = move |text: Option<String>, bytes: &[u8]| match (forms, text) {
        (Forms::Line, Some(line)) => line,
        (_, text) => shown(text, bytes),
    };
    records.iter().map(move |(first, second)| {
        let second = second.as_ref().map_or_else(String::new, |second| shown(forms.second(second), second));
        [shown(forms.first(first), first), second]
    })
}

fn shown(text: Option<String>, bytes: &[u8]) -> String {
    text.map_or_else(|| readable(bytes), |text| readable(text.as_bytes()))
}

/// What is written so, as a word; bytes where nothing is.
fn word_of(text: Option<String>, bytes: &[u8]) -> String {
    text.map_or_else(|| quote(bytes), |text| quote(text.as_bytes()))
}

/// A text as a word, unless it is one already.
fn word(text: &str) -> String {
    match split(text).as_deref() {
        Ok([_]) => text.to_owned(),
        _ => quote(text.as_bytes()),
    }
}

fn counted(count: usize, has_more: bool) -> String {
    format!("({count}{})", if has_more { ", and more: say limit N" } else { "" })
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(answer: &Answer, plain: &str, json: &str) {
        assert_eq!(answer.show(Mode::Plain, None), plain);
        assert_eq!(answer.show(Mode::Json, None), json);
    }

    #[test]
    fn plain_and_json_answers_are_one_line_each_whatever_is_in_them() {
        check(&Answer::Done, "ok", r#"{"ok":true,"done":true}"#);
        check(&Answer::NotThere, "none", r#"{"ok":true,"value":null}"#);
        check(&Answer::Value(b"a\nb".to_vec(), PLAIN), r#"ok "a\nb""#, r#"{"ok":true,"value":"a\nb"}"#);
        check(&Answer::Value(b"\xff".to_vec(), PLAIN), r#"ok "\xff""#, r#"{"ok":true,"value_hex":"ff"}"#);
        let records = vec![(b"k 1".to_vec(), Some(b"v".to_vec())), (b"k2".to_vec(), None)];
        check(
            &Answer::Records { records, has_more: true, forms: Box::new(Forms::PLAIN) },
            r#"ok 2 "k 1"=v k2 and more"#,
            r#"{"ok":true,"more":true,"records":[{"key":"k 1","value":"v"},{"key":"k2"}]}"#,
        );
        check(
            &Answer::Failed { kind: "usage", message: "two\nlines".into() },
            r"error usage: two\nlines",
            r#"{"ok":false,"message":"two\nlines","error":"usage"}"#,
        );
        check(
            &Answer::Waiting { who: "b".into(), waits_for: vec!["a".into()], what: "X".into() },
            "waiting for a",
            r#"{"ok":true,"transaction":"b","waiting":["a"]}"#,
        );
    }

    #[test]
    fn csv_for_a_file_has_every_value_as_it_is_and_refuses_what_is_not_text() {
        let exact = |key: &[u8], value: &[u8]| {
            let records = vec![(key.to_vec(), Some(value.to_vec()))];
            let records = Answer::Records { records, has_more: false, forms: Box::new(Forms::PLAIN) };
            records.exact_csv().unwrap().map_err(|refused| refused.show(Mode::Plain, None))
        };
        assert_eq!(exact(b"k", b"C:\\new\x1b\r"), Ok("key,value\nk,\"C:\\new\x1b\r\"".into()));
        assert_eq!(exact(b"k", b"a\n\"b\"\n"), Ok("key,value\nk,\"a\n\"\"b\"\"\n\"".into()));
        for (key, value, what) in [(b"\xff", b"a", "the key \\xff"), (b"k", b"\xff", "the value of key k")] {
            assert!(exact(key, value).unwrap_err().starts_with(&format!("error not-text: {what} is not text")));
        }
        assert!(Answer::Done.exact_csv().is_none());
    }

    #[test]
    fn tables_and_csv_show_records_a_line_each() {
        let records = vec![(b"k".to_vec(), Some(b"a,b".to_vec()))];
        let records = Answer::Records { records, has_more: false, forms: Box::new(Forms::PLAIN) };
        assert_eq!(records.show(Mode::List, None), "k\ta,b");
        assert_eq!(records.show(Mode::Csv, None), "key,value\nk,\"a,b\"");
        let table = records.show(Mode::Table, None);
        assert!(table.contains("a,b") && table.ends_with("(1)"), "{table}");
    }
}
