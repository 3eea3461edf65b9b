//! What happened how often, by name; adds up over rounds, workers and processes.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// Counts under names. Printed as `name=count` separated by blanks, and read back from that.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counters(BTreeMap<String, u64>);

impl Counters {
    /// Counts `count` more of `name`.
    pub fn add(&mut self, name: &str, count: u64) {
        if count > 0 {
            *self.0.entry(name.to_owned()).or_insert(0) += count;
        }
    }

    /// Adds all of another.
    pub fn merge(&mut self, other: &Counters) {
        for (name, count) in &other.0 {
            self.add(name, *count);
        }
    }

    /// How many of `name`.
    pub fn get(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or(0)
    }
}

impl fmt::Display for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (name, count)) in self.0.iter().enumerate() {
            write!(f, "{}{name}={count}", if index > 0 { " " } else { "" })?;
        }
        Ok(())
    }
}

impl FromStr for Counters {
    type Err = ();

    fn from_str(text: &str) -> Result<Counters, ()> {
        let mut counters = Counters::default();
        for part in text.split_whitespace() {
            let (name, count) = part.split_once('=').ok_or(())?;
            counters.add(name, count.parse().map_err(|_| ())?);
        }
        Ok(counters)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_survive_a_pipe() {
        let mut counters = Counters::default();
        counters.add("rounds", 3);
        counters.add("lost", 0);
        counters.add("crashes", 7);
        let mut read: Counters = counters.to_string().parse().unwrap();
        assert_eq!(read, counters);
        read.merge(&counters);
        assert_eq!(read.get("crashes"), 14);
    }
}
