//! Keys and values as people write them, and bytes as people can read them.
//!
//! T1. Numbers become the bytes that the library's typed tables use: keys in the numbers' order.
//! T2. What [`readable`] shows is one line of valid text, and different bytes never look alike.
//! T3. A table that has types says what its keys and values are. Nothing of another type is written into it, but bytes
//!     (`--hex`).

use std::fmt::{Display, Write as _};
use std::ops::Bound;
use std::str::FromStr;

use anyhow::bail;
use ledgerstone::typed::{Key, Value};
use ledgerstone::{BytesTable, Error, JsonKey, Readable, TableTypes, Transaction, quoted};

/// What a key is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum KeyType {
    /// Its text.
    Text,
    /// A number from 0 to 255: 1 byte.
    U8,
    /// A number below 2^16: 2 bytes.
    U16,
    /// A number below 2^32: 4 bytes.
    U32,
    /// A number below 2^64: 8 bytes.
    U64,
    /// A number below 2^128: 16 bytes.
    U128,
    /// A number from -128 to 127: 1 byte.
    I8,
    /// A number from -2^15 to 2^15 - 1: 2 bytes.
    I16,
    /// A number from -2^31 to 2^31 - 1: 4 bytes.
    I32,
    /// A number from -2^63 to 2^63 - 1: 8 bytes.
    I64,
    /// A number from -2^127 to 2^127 - 1: 16 bytes.
    I128,
}

impl KeyType {
    /// The type that the catalog calls so, if people can write it.
    fn named(name: &str) -> Option<KeyType> {
        Some(match name {
            "string" | "bytes" => KeyType::Text,
            "u8" => KeyType::U8,
            "u16" => KeyType::U16,
            "u32" => KeyType::U32,
            "u64" => KeyType::U64,
            "u128" => KeyType::U128,
            "i8" => KeyType::I8,
            "i16" => KeyType::I16,
            "i32" => KeyType::I32,
            "i64" => KeyType::I64,
            "i128" => KeyType::I128,
            _ => return None,
        })
    }

    /// What the catalog calls a number's type; keys that are text may be anything.
    fn name(self) -> Option<&'static str> {
        Some(match self {
            KeyType::Text => return None,
            KeyType::U8 => "u8",
            KeyType::U16 => "u16",
            KeyType::U32 => "u32",
            KeyType::U64 => "u64",
            KeyType::U128 => "u128",
            KeyType::I8 => "i8",
            KeyType::I16 => "i16",
            KeyType::I32 => "i32",
            KeyType::I64 => "i64",
            KeyType::I128 => "i128",
        })
    }

    fn encode(self, text: &str) -> Result<Vec<u8>, String> {
        fn number<N: Key + FromStr>(text: &str) -> Result<Vec<u8>, String> {
            let number: N = text.trim().parse().map_err(|_| format!("{} is not of type {}", quoted(text), N::TYPE))?;
            let mut bytes = Vec::new();
            number.encode(&mut bytes).map_err(|error| error.to_string())?;
            Ok(bytes)
        }
        match self {
            KeyType::Text => Ok(text.as_bytes().to_vec()),
            KeyType::U8 => number::<u8>(text),
            KeyType::U16 => number::<u16>(text),
            KeyType::U32 => number::<u32>(text),
            KeyType::U64 => number::<u64>(text),
            KeyType::U128 => number::<u128>(text),
            KeyType::I8 => number::<i8>(text),
            KeyType::I16 => number::<i16>(text),
            KeyType::I32 => number::<i32>(text),
            KeyType::I64 => number::<i64>(text),
            KeyType::I128 => number::<i128>(text),
        }
    }

    fn decode(self, key: &[u8]) -> Option<String> {
        fn number<N: Key + Display>(key: &[u8]) -> Option<String> {
            N::decode(key).ok().map(|number| number.to_string())
        }
        match self {
            KeyType::Text => String::from_utf8(key.to_vec()).ok(),
            KeyType::U8 => number::<u8>(key),
            KeyType::U16 => number::<u16>(key),
            KeyType::U32 => number::<u32>(key),
            KeyType::U64 => number::<u64>(key),
            KeyType::U128 => number::<u128>(key),
            KeyType::I8 => number::<i8>(key),
            KeyType::I16 => number::<i16>(key),
            KeyType::I32 => number::<i32>(key),
            KeyType::I64 => number::<i64>(key),
            KeyType::I128 => number::<i128>(key),
        }
    }
}

/// A value of a type that the catalog names, from text; `None` for types that people cannot write.
fn encode_value(name: &str, text: &str) -> Option<Result<Vec<u8>, String>> {
    fn of<V: Value + FromStr>(text: &str) -> Option<Result<Vec<u8>, String>> {
        Some(text.trim().parse::<V>().map_err(|_| format!("{} is not of type {}", quoted(text), V::TYPE)).and_then(
            |value| {
                let mut bytes = Vec::new();
                value.encode(&mut bytes).map_err(|error| error.to_string())?;
                Ok(bytes)
            },
        ))
    }
    match name {
        "string" | "bytes" => Some(Ok(text.as_bytes().to_vec())),
        "u8" => of::<u8>(text),
        "u16" => of::<u16>(text),
        "u32" => of::<u32>(text),
        "u64" => of::<u64>(text),
        "u128" => of::<u128>(text),
        "i8" => of::<i8>(text),
        "i16" => of::<i16>(text),
        "i32" => of::<i32>(text),
        "i64" => of::<i64>(text),
        "i128" => of::<i128>(text),
        "f32" => of::<f32>(text),
        "f64" => of::<f64>(text),
        "bool" => of::<bool>(text),
        _ => None,
    }
}

/// The text of a value that is not text; `None` for types that people cannot read.
fn decode_value(name: &str, value: &[u8]) -> Option<String> {
    fn of<V: Value + Display>(value: &[u8]) -> Option<String> {
        V::decode(value).ok().map(|value| value.to_string())
    }
    match name {
        "u8" => of::<u8>(value),
        "u16" => of::<u16>(value),
        "u32" => of::<u32>(value),
        "u64" => of::<u64>(value),
        "u128" => of::<u128>(value),
        "i8" => of::<i8>(value),
        "i16" => of::<i16>(value),
        "i32" => of::<i32>(value),
        "i64" => of::<i64>(value),
        "i128" => of::<i128>(value),
        "f32" => of::<f32>(value),
        "f64" => of::<f64>(value),
        "bool" => of::<bool>(value),
        _ => None,
    }
}

/// How many, for options.
pub(crate) fn parse_count(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| "a whole number from 0 on is wanted, like 10".into())
}

/// How keys and values are written.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct TextArgs {
    /// Read and print keys and values as hexadecimal digits. Keys that are not UTF-8 can only be written this way.
    #[arg(long, conflicts_with = "key_type")]
    pub hex: bool,
    /// The type of the keys: text, or numbers in their order. A table that has a type for its keys needs no option.
    #[arg(long, value_enum, value_name = "TYPE")]
    pub key_type: Option<KeyType>,
}

/// How keys and values of a table are written: by the options, then by the table's types.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Text {
    pub hex: bool,
    key: KeyForm,
    value: Option<String>,
}

#[derive(Clone, Debug, PartialEq)]
enum KeyForm {
    Of(KeyType),
    /// Keys of an index by a JSON member.
    Json,
    /// Of a type that people cannot write.
    Strange(String),
}

impl KeyForm {
    fn named(name: &str) -> KeyForm {
        match KeyType::named(name) {
            Some(known) => KeyForm::Of(known),
            None if name == JsonKey::TYPE.to_string() => KeyForm::Json,
            None => KeyForm::Strange(name.to_string()),
        }
    }
}

/// As the text that they are.
pub(crate) const PLAIN: Text = Text { hex: false, key: KeyForm::Of(KeyType::Text), value: None };

impl TextArgs {
    /// How keys and values of this table are written (T3).
    pub(crate) fn of(&self, table: &BytesTable) -> anyhow::Result<Text> {
        self.of_types(table.name(), table.types())
    }

    /// How keys of an index are written.
    pub(crate) fn of_index_keys(&self, key_type: Option<&str>) -> Text {
        Text { hex: self.hex, ..Text::of_index_keys(key_type) }
    }

    /// The same of a table that is yet to be made.
    pub(crate) fn of_new(&self) -> anyhow::Result<Text> {
        self.of_types("", &TableTypes::default())
    }

    fn of_types(&self, table: &str, types: &TableTypes) -> anyhow::Result<Text> {
        let value = types.value.clone();
        let key = match (&types.key, self.key_type) {
            (None, asked) => KeyForm::Of(asked.unwrap_or(KeyType::Text)),
            (Some(stored), None) => KeyForm::named(stored),
            (Some(stored), Some(asked)) if KeyType::named(stored) == Some(asked) => KeyForm::Of(asked),
            (Some(stored), Some(_)) => {
                bail!("table {table} has keys of type {stored}: leave --key-type out, or give their bytes with --hex")
            }
        };
        Ok(Text { hex: self.hex, key, value })
    }

    /// The table to write to, made if it is missing, with the type of keys that the options name.
    pub(crate) fn open_or_create(&self, txn: &Transaction, table: &str) -> Result<BytesTable, Error> {
        match (txn.bytes(table), self.key_type.and_then(KeyType::name)) {
            (Err(Error::NoSuchTable(_)), None) => txn.bytes_or_create(table),
            (Err(Error::NoSuchTable(_)), Some(key)) => {
                txn.bytes_or_create(table)?;
                txn.set_table_types(table, &TableTypes { key: Some(key.to_string()), value: None })?;
                txn.bytes(table)
            }
            (found, _) => found,
        }
    }
}

impl Text {
    /// How keys and values of a table are written by its types alone.
    pub(crate) fn of_table(table: &BytesTable) -> Text {
        Text::of_types(table.types())
    }

    /// How keys and values of these types are written.
    pub(crate) fn of_types(types: &TableTypes) -> Text {
        let key = types.key.as_deref().map_or(KeyForm::Of(KeyType::Text), KeyForm::named);
        Text { hex: false, key, value: types.value.clone() }
    }

    /// How keys of an index are written.
    pub(crate) fn of_index_keys(key_type: Option<&str>) -> Text {
        Text { hex: false, key: key_type.map_or(KeyForm::Of(KeyType::Text), KeyForm::named), value: None }
    }

    /// The bytes of a key.
    pub(crate) fn key(&self, text: &str) -> Result<Vec<u8>, String> {
        match &self.key {
            _ if self.hex => from_hex(text),
            KeyForm::Of(known) => known.encode(text),
            KeyForm::Json => {
                let Ok(key) = text.parse::<JsonKey>();
                Ok(key.to_bytes())
            }
            KeyForm::Strange(name) => {
                Err(format!("keys of type {name} cannot be written as text: give their bytes with --hex"))
            }
        }
    }

    /// The bytes of the beginning of keys.
    pub(crate) fn prefix(&self, text: &str) -> Result<Vec<u8>, String> {
        match &self.key {
            KeyForm::Of(known) if !self.hex && known.name().is_some() => {
                Err("numbers have no beginnings: say from which to which".into())
            }
            KeyForm::Json if !self.hex => Ok(text.as_bytes().to_vec()),
            _ => self.key(text),
        }
    }

    /// The bytes of a value.
    pub(crate) fn value(&self, text: &str) -> Result<Vec<u8>, String> {
        match &self.value {
            _ if self.hex => from_hex(text),
            None => Ok(text.as_bytes().to_vec()),
            Some(name) => encode_value(name, text).unwrap_or_else(|| {
                Err(format!("values of type {name} cannot be written as text: give their bytes with --hex"))
            }),
        }
    }

    /// The bytes of a value that comes from standard input: as they are, unless the values are of a type that is
    /// written as text.
    pub(crate) fn piped_value(&self, bytes: &[u8]) -> Result<Vec<u8>, String> {
        let is_any = self.hex || self.value.as_deref().is_none_or(|name| name == "bytes");
        match std::str::from_utf8(bytes) {
            _ if is_any => Ok(bytes.to_vec()),
            Ok(text) => self.value(text),
            Err(_) => Err("it is not text: give its bytes with --hex".into()),
        }
    }

    /// Whether values are bytes as they are.
    pub(crate) fn takes_any_value(&self) -> bool {
        self.value.as_deref().is_none_or(|name| name == "bytes" || name == "string")
    }

    /// A key as its type writes it; bytes that are none of that type come as `None`.
    pub(crate) fn key_text(&self, key: &[u8]) -> Option<String> {
        match &self.key {
            _ if self.hex => Some(to_hex(key)),
            KeyForm::Of(known) => known.decode(key),
            KeyForm::Json => JsonKey::decode(key).ok().map(|key| key.to_string()),
            KeyForm::Strange(_) => None,
        }
    }

    /// A key as JSON: a number as a number, with all its digits. None with `--hex`, or if it is not what its type says.
    pub(crate) fn key_json(&self, key: &[u8]) -> Option<serde_json::Value> {
        if self.hex {
            return None;
        }
        let text = self.key_text(key)?;
        let number = match &self.key {
            KeyForm::Of(known) if known.name().is_some() => number_json(&text),
            KeyForm::Json => match JsonKey::decode(key).ok()? {
                JsonKey::Text(text) => Some(text.into()),
                _ => number_json(&text),
            },
            _ => None,
        };
        Some(number.unwrap_or_else(|| text.into()))
    }

    /// The parts of an index that hold this key or lie between these bounds. In an index by a JSON member a bound holds
    /// among keys of its kind, and a number among texts, too; in double quotes it is text only.
    pub(crate) fn index_parts(
        &self,
        key: Option<&str>,
        from: Option<&str>,
        to: Option<&str>,
    ) -> Result<Vec<Part>, String> {
        let plain = |text: Option<&str>| text.map(|text| self.key(text)).transpose();
        if self.hex || !matches!(self.key, KeyForm::Json) {
            let included = |bytes: Option<Vec<u8>>| bytes.map_or(Bound::Unbounded, Bound::Included);
            return Ok(vec![match plain(key)? {
                Some(key) => (Bound::Included(key.clone()), Bound::Included(key)),
                None => (included(plain(from)?), plain(to)?.map_or(Bound::Unbounded, Bound::Excluded)),
            }]);
        }
        let mut parts = Vec::new();
        for kind in 0..3 {
            // What a bound is among keys of this kind; none: nothing.
            let of = |text: &str| -> Option<Vec<u8>> {
                let Ok(parsed) = text.parse::<JsonKey>();
                match (kind, &parsed) {
                    (0, JsonKey::Text(_)) | (1, JsonKey::Number(_)) | (2, JsonKey::Bool(_)) => Some(parsed.to_bytes()),
                    (0, _) => Some(text.as_bytes().to_vec()),
                    _ => None,
                }
            };
            let part = match key {
                Some(key) => of(key).map(|key| (Bound::Included(key.clone()), Bound::Included(key))),
                None => {
                    let low = from.map_or(Some(KINDS[kind].map_or(Vec::new(), |tag| vec![tag])), of);
                    let high = match to {
                        Some(to) => of(to).map(Bound::Excluded),
                        None => Some(KINDS[kind + 1].map_or(Bound::Unbounded, |tag| Bound::Excluded(vec![tag]))),
                    };
                    low.zip(high).map(|(low, high)| (Bound::Included(low), high))
                }
            };
            parts.extend(part);
        }
        Ok(parts)
    }

    /// What sort of JSON an index key by a JSON member is: `text`, `number` or `bool`. None of other keys.
    pub(crate) fn json_kind(&self, key: &[u8]) -> Option<&'static str> {
        match (&self.key, JsonKey::decode(key)) {
            (KeyForm::Json, Ok(JsonKey::Text(_))) => Some("text"),
            (KeyForm::Json, Ok(JsonKey::Number(_))) => Some("number"),
            (KeyForm::Json, Ok(JsonKey::Bool(_))) => Some("bool"),
            _ => None,
        }
    }

    /// A value as its type writes it: as text, if it is text.
    pub(crate) fn value_text(&self, value: &[u8]) -> Option<String> {
        if self.hex {
            return Some(to_hex(value));
        }
        let typed = self.value.as_deref().and_then(|name| decode_value(name, value));
        typed.or_else(|| String::from_utf8(value.to_vec()).ok())
    }

    /// A value as JSON: a number or a truth value as such, other text as text. None with `--hex`, or if it is not text.
    pub(crate) fn value_json(&self, value: &[u8]) -> Option<serde_json::Value> {
        if self.hex {
            return None;
        }
        let text = self.value_text(value)?;
        let number = match self.value.as_deref() {
            // In the way of doubles, which tells them from integers of as many digits.
            Some("f32" | "f64") => {
                text.parse().ok().and_then(serde_json::Number::from_f64).map(serde_json::Value::from)
            }
            Some(name) => decode_value(name, value).and_then(|text| number_json(&text)),
            None => None,
        };
        Some(number.unwrap_or_else(|| text.into()))
    }
}

/// Text as a key of a table of these types, if they say that its keys are numbers.
pub(crate) fn typed_key(types: &TableTypes, text: &str) -> Option<Result<Vec<u8>, String>> {
    let known = types.key.as_deref().and_then(KeyType::named)?;
    let name = known.name()?;
    Some(known.encode(text).map_err(|_| format!("the key is not of type {name}: {}", quoted(text))))
}

/// Text as a value of a table of these types, if they say what its values are.
pub(crate) fn typed_value(types: &TableTypes, text: &str) -> Option<Result<Vec<u8>, String>> {
    let name = types.value.as_deref()?;
    Some(encode_value(name, text)?.map_err(|_| format!("the value is not of type {name}: {}", quoted(text))))
}

/// What is wrong with bytes as a key or a value of a table of these types. Of types that are not known here, nothing
/// is.
pub(crate) fn check_types(types: &TableTypes, key: &[u8], value: &[u8]) -> Result<(), String> {
    let is_key = |name: &str| name == "bytes" || KeyType::named(name).is_none_or(|known| known.decode(key).is_some());
    if let Some(name) = types.key.as_deref().filter(|name| !is_key(name)) {
        return Err(format!("the key is not of type {name}: write {name}:... or its bytes as x'...'"));
    }
    let is_value = |name: &str| match name {
        "string" => std::str::from_utf8(value).is_ok(),
        "bytes" => true,
        _ => encode_value(name, "").is_none() || decode_value(name, value).is_some(),
    };
    match types.value.as_deref().filter(|name| !is_value(name)) {
        Some(name) => Err(format!("the value is not of type {name}: write its bytes as x'...'")),
        None => Ok(()),
    }
}

/// Index keys from one on, up to another.
pub(crate) type Part = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// What keys of a JSON member begin with: texts, numbers, truth values, and the end (docs/format/index.md).
const KINDS: [Option<u8>; 4] = [None, Some(0xf8), Some(0xf9), None];

/// Numbers, digit by digit as they are, and truth values.
fn number_json(text: &str) -> Option<serde_json::Value> {
    serde_json::from_str(text).ok()
}

/// Bytes as one line of text, as the library's messages show them.
pub(crate) fn readable(bytes: &[u8]) -> String {
    Readable(bytes).to_string()
}

pub(crate) fn to_hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

pub(crate) fn from_hex(text: &str) -> Result<Vec<u8>, String> {
    let text = text.trim();
    let digits: Vec<u8> = text
        .chars()
        .enumerate()
        .map(|(at, c)| {
            let strange = || format!("{} at position {} is not a hexadecimal digit", quoted(&c.to_string()), at + 1);
            Ok(c.to_digit(16).ok_or_else(strange)? as u8)
        })
        .collect::<Result<_, String>>()?;
    if digits.len() % 2 == 1 {
        return Err(format!("{} hexadecimal digits do not make whole bytes: an even number is needed", digits.len()));
    }
    Ok(digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(key: &str, value: &str) -> Text {
        let types = TableTypes { key: Some(key.into()), value: Some(value.into()) };
        TextArgs { hex: false, key_type: None }.of_types("t", &types).unwrap()
    }

    #[test]
    fn numbers_keep_their_order_and_read_back() {
        let check = |key_type: KeyType, numbers: &[&str]| {
            let args = Text { key: KeyForm::Of(key_type), ..PLAIN };
            let keys: Vec<_> = numbers.iter().map(|number| args.key(number).unwrap()).collect();
            assert!(keys.is_sorted(), "{numbers:?}");
            let back: Vec<_> = keys.iter().map(|key| args.key_text(key).unwrap()).collect();
            assert_eq!(back, numbers);
            assert_eq!(KeyType::named(key_type.name().unwrap()), Some(key_type));
        };
        check(KeyType::U8, &["0", "255"]);
        check(KeyType::U32, &["0", "255", "256", "4294967295"]);
        check(KeyType::U64, &["0", "255", "256", "18446744073709551615"]);
        check(KeyType::I16, &["-32768", "-1", "0", "32767"]);
        check(KeyType::I64, &["-9223372036854775808", "-256", "-1", "0", "7", "9223372036854775807"]);
        check(KeyType::I128, &["-9223372036854775809", "0", "9223372036854775808"]);
        assert_eq!(
            Text { key: KeyForm::Of(KeyType::U32), ..PLAIN }.key("-1").unwrap_err(),
            "\"-1\" is not of type u32"
        );
        assert_eq!(text("u64", "bytes").key_text(b"short"), None);
    }

    #[test]
    fn the_types_of_a_table_say_how_its_records_are_written() {
        let numbers = text("u64", "f64");
        assert_eq!(numbers.key("7"), Ok(vec![0, 0, 0, 0, 0, 0, 0, 7]));
        assert_eq!(numbers.value("1.5").map(|value| numbers.value_text(&value)), Ok(Some("1.5".into())));
        assert_eq!(numbers.value("one"), Err("\"one\" is not of type f64".into()));
        assert!(numbers.prefix("7").is_err());
        let strange = text("(u64, string)", "shop.item");
        assert!(strange.key("7").unwrap_err().contains("--hex") && strange.value("7").unwrap_err().contains("--hex"));
        assert_eq!(strange.value_text(b"seen"), Some("seen".into()));
        let types = TableTypes { key: Some("u64".into()), value: None };
        assert!(TextArgs { hex: false, key_type: Some(KeyType::I64) }.of_types("t", &types).is_err());
        assert!(TextArgs { hex: false, key_type: Some(KeyType::U64) }.of_types("t", &types).is_ok());
    }

    #[test]
    fn hexadecimal_reads_back_and_names_what_is_wrong() {
        assert_eq!(from_hex(&to_hex(b"\x00\xfe~")), Ok(b"\x00\xfe~".to_vec()));
        assert_eq!(from_hex("C3a4"), Ok(vec![0xc3, 0xa4]));
        assert!(from_hex("abc").unwrap_err().contains("even number"));
        assert!(from_hex("0g").unwrap_err().contains("\"g\" at position 2"));
    }
}
