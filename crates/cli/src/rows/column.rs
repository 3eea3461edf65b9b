//! What the fields of a column are, where a file does not say it: text, numbers, truth values.

use std::str::FromStr;

use ledgerstone::{JsonNumber, quoted};
use serde_json::Value;

/// What a field is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldType {
    /// Its text.
    Text,
    /// A number as JSON writes it.
    Number,
    /// `true` or `false`.
    Bool,
    /// A number or a truth value if JSON writes it so, and its text otherwise: `007` is text.
    Auto,
}

/// A column and what its fields are, as `zip=number`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnType {
    /// The column's name; none: all that no other names.
    pub column: Option<String>,
    /// What its fields are.
    pub field: FieldType,
}

impl FromStr for ColumnType {
    type Err = String;

    fn from_str(text: &str) -> Result<ColumnType, String> {
        if text == "auto" {
            return Ok(ColumnType { column: None, field: FieldType::Auto });
        }
        let expected = "write COLUMN=text, COLUMN=number, COLUMN=bool or COLUMN=auto, or auto for all columns";
        let (column, field) = text.rsplit_once('=').ok_or(expected)?;
        let field = match field {
            "text" => FieldType::Text,
            "number" => FieldType::Number,
            "bool" => FieldType::Bool,
            "auto" => FieldType::Auto,
            other => {
                return Err(format!("{} is not a type of a column: text, number, bool and auto are", quoted(other)));
            }
        };
        Ok(ColumnType { column: Some(column.to_string()), field })
    }
}

impl FieldType {
    /// A field as JSON, digit by digit as it is; nothing is null, but for a text.
    pub(crate) fn json(self, field: &str) -> Result<String, String> {
        match (self, field.trim()) {
            (FieldType::Auto, number) if number.parse::<JsonNumber>().is_ok() => Ok(number.to_string()),
            (FieldType::Auto, truth @ ("true" | "false")) => Ok(truth.to_string()),
            (FieldType::Text | FieldType::Auto, _) => Ok(Value::from(field).to_string()),
            (_, "") => Ok("null".into()),
            (FieldType::Number, number) if number.parse::<JsonNumber>().is_ok() => Ok(number.to_string()),
            (FieldType::Bool, truth @ ("true" | "false")) => Ok(truth.to_string()),
            (FieldType::Number, _) => Err(format!("{} is not a number", quoted(field))),
            (FieldType::Bool, _) => Err(format!("{} is neither true nor false", quoted(field))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_what_their_column_says() {
        assert_eq!(FieldType::Number.json(" 1.50 "), Ok("1.50".into()));
        assert_eq!(FieldType::Number.json("123456789012345678901"), Ok("123456789012345678901".into()));
        assert_eq!(FieldType::Number.json(""), Ok("null".into()));
        assert!(FieldType::Number.json("007").is_err() && FieldType::Bool.json("yes").is_err());
        assert_eq!(FieldType::Bool.json("true"), Ok("true".into()));
        assert_eq!(FieldType::Text.json("a\"b"), Ok("\"a\\\"b\"".into()));
        let typed = "a=b=number".parse::<ColumnType>();
        assert_eq!(typed, Ok(ColumnType { column: Some("a=b".into()), field: FieldType::Number }));
        assert_eq!("auto".parse(), Ok(ColumnType { column: None, field: FieldType::Auto }));
        for (field, json) in [("7", "7"), ("007", "\"007\""), ("true", "true"), ("", "\"\""), ("a", "\"a\"")] {
            assert_eq!(FieldType::Auto.json(field).as_deref(), Ok(json));
        }
        assert!("a".parse::<ColumnType>().is_err() && "a=int".parse::<ColumnType>().is_err());
    }
}
