//! The text of a `ledgerstone.toml`, checked against the declarations.
//!
//! F1. Every problem of a file is found at once, each with its line, the setting, and what is allowed.
//! F2. A name that is not known is never skipped: a slip of the pen must not mean a default.
//! F3. Any bytes give settings or problems.

use ledgerstone_disk::quoted;
use toml::de::{DeTable, DeValue};

use super::setting::{Setting, Value};
use super::{Config, ConfigProblem};

impl Config {
    /// The settings that the text of a `ledgerstone.toml` makes.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn parse(text: &str) -> Result<Config, Vec<ConfigProblem>> {
        let line = |at: usize| 1 + text.as_bytes().iter().take(at).filter(|&&byte| byte == b'\n').count();
        let (table, errors) = DeTable::parse_recoverable(text);
        if !errors.is_empty() {
            let problem = |error: &toml::de::Error| ConfigProblem {
                line: line(error.span().map_or(0, |span| span.start)),
                setting: String::new(),
                what: format!("not TOML: {}", error.message().replace('\n', ", ")),
            };
            return Err(errors.iter().map(problem).collect());
        }
        let (mut config, mut problems) = (Config::default(), Vec::new());
        for (name, value) in table.get_ref() {
            if let Err(what) = config.take(name.get_ref(), value.get_ref()) {
                let setting = name.get_ref().chars().take(80).collect();
                problems.push(ConfigProblem { line: line(name.span().start), setting, what });
            }
        }
        problems.sort_by_key(|problem| problem.line);
        if problems.is_empty() { Ok(config) } else { Err(problems) }
    }

    fn take(&mut self, name: &str, value: &DeValue<'_>) -> Result<(), String> {
        let Some(setting) = Setting::all().iter().find(|setting| setting.name == name) else {
            let names = Setting::all().iter().map(|setting| setting.name);
            return Err(match nearest(name, names) {
                Some(near) => format!("there is no such setting; did you mean {near}?"),
                None => "there is no such setting".into(),
            });
        };
        let value = read_value(setting, value)?;
        setting.check(&value)?;
        if self.set(name, &value) { Ok(()) } else { Err(refused(setting, &setting.show(&value))) }
    }
}

fn read_value(setting: &Setting, value: &DeValue<'_>) -> Result<Value, String> {
    let is_number = matches!(setting.default_value(), Value::Number(_));
    match value {
        DeValue::Integer(number) if is_number => match u64::from_str_radix(number.as_str(), number.radix()) {
            Ok(number) => Ok(Value::Number(number)),
            Err(_) => Err(refused(setting, number.as_str())),
        },
        DeValue::String(text) if is_number => setting.unit.parse(text).map(Value::Number),
        DeValue::String(text) if !setting.choices.is_empty() && !setting.choices.contains(&&**text) => {
            let near = nearest(text, setting.choices.iter().copied())
                .map_or(String::new(), |near| format!("; did you mean {near}?"));
            Err(format!("{}{near}", refused(setting, &quoted(text).to_string())))
        }
        DeValue::String(text) if !is_number => Ok(Value::Text(text.to_string().into())),
        other => {
            let wanted = if is_number { setting.unit.wanted() } else { "text: write it between quotes" };
            Err(format!("a value of type {} is not a {wanted}; allowed is {}", other.type_str(), setting.allowed()))
        }
    }
}

fn refused(setting: &Setting, shown: &str) -> String {
    format!("{shown} is not allowed; allowed is {}", setting.allowed())
}

/// The name that was probably meant: the nearest, if no more than a third of it was mistyped.
fn nearest<'n>(name: &str, names: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    if name.len() > 80 {
        return None;
    }
    let lower = name.to_ascii_lowercase();
    names
        .map(|near| (distance(&lower, near), near))
        .filter(|(far, near)| *far <= near.len().div_ceil(3))
        .min()
        .map(|(_, near)| near)
}

/// Letters to insert, remove or replace to make `b` of `a` (Levenshtein's distance), one row of the matrix at a time.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, to) in b.iter().enumerate() {
            let change = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = change.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(text: &str) -> Vec<String> {
        Config::parse(text).unwrap_err().iter().map(ToString::to_string).collect()
    }

    fn check(text: &str, said: &[&str]) {
        let problems = problems(text);
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(said.iter().all(|word| problems[0].contains(word)), "{text:?}: {problems:?}");
    }

    #[test]
    fn numbers_texts_with_units_and_words_are_read() {
        let config = Config::parse(
            "# ours\ncache_bytes = \"64M\"\nlock_timeout_ms = '5 s'\nescalate_after = 0x10\nreplacement = \"lru\"\n",
        );
        let wanted = Config {
            cache_bytes: Some(64 << 20),
            lock_timeout_ms: Some(5000),
            escalate_after: Some(16),
            replacement: Some(crate::Replacement::Lru),
            ..Config::default()
        };
        assert_eq!(config, Ok(wanted));
        assert_eq!(Config::parse(""), Ok(Config::default()));
    }

    #[test]
    fn unknown_names_are_refused_with_the_nearest_one() {
        check("\n\nchache_bites = 3\n", &["line 3: setting chache_bites", "did you mean cache_bytes?"]);
        check("lock_timeout = 3", &["did you mean lock_timeout_ms?"]);
        check("colour = 3", &["setting colour: there is no such setting"]);
        check("[cache]\nbytes = 3", &["line 1: setting cache", "no such setting"]);
    }

    #[test]
    fn wrong_types_and_values_out_of_limits_say_what_is_allowed() {
        check("cache_bytes = true", &["a value of type boolean is not a size", "at least 256 KiB"]);
        check("cache_bytes = 1.5", &["a value of type float is not a size"]);
        check("cache_bytes = \"much\"", &["\"much\" is not a size"]);
        check("cache_bytes = -1", &["-1 is not allowed; allowed is at least 256 KiB"]);
        check("cache_bytes = 1", &["1 byte is not allowed; allowed is at least 256 KiB"]);
        check("cache_bytes = 5", &["5 bytes is not allowed; allowed is at least 256 KiB"]);
        check("page_bytes = \"5K\"", &["5 KiB is not allowed; allowed is a power of two from 4 KiB to 32 KiB"]);
        check("escalate_after = 5000000000", &["5000000000 is not allowed"]);
        check("replacement = \"lruu\"", &["\"lruu\" is not allowed; allowed is clock, lru", "did you mean lru?"]);
        check("replacement = 3", &["a value of type integer is not a text", "allowed is clock, lru"]);
    }

    #[test]
    fn every_problem_of_a_file_is_found_at_once() {
        assert_eq!(problems("cache_bytes = 1\nnonsense = 2\n\nredo_worker_count = 0\n").len(), 3);
        check("cache_bytes = 1M\n", &["line 1: not TOML"]);
        check("cache_bytes = 1000000\ncache_bytes = 2000000\n", &["line 2: not TOML", "duplicate"]);
    }

    #[test]
    fn the_distance_of_words_counts_the_letters_that_differ() {
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("same", "same"), 0);
    }
}
