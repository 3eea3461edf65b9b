//! The settings of an environment that processes share. Those of the first count for all; some are each process's own.
//!
//! They are handed on as text, `name=value` and a zero byte for each: numbers in the setting's unit.

use super::{Config, Effective, SETTINGS, Source, Value};
use crate::Error;

/// What each process chooses for itself.
const OWN: [&str; 5] = ["sharing", "region_dir", "durability", "lock_timeout_ms", "sync_method"];

impl Effective {
    /// The settings for those who come later.
    pub(crate) fn to_hand_on(&self) -> String {
        let mut text = String::new();
        for set in self.settings() {
            let value = match set.value {
                Value::Number(number) => number.to_string(),
                Value::Text(text) => text.into_owned(),
            };
            text += &format!("{}={value}\0", set.setting.name);
        }
        text
    }

    /// These settings, but what is no process's own as it was handed on.
    ///
    /// # Errors
    /// A setting that is not known here, or its value is not.
    pub(crate) fn over_handed_on(self, text: &str) -> Result<Effective, Error> {
        let mut there = Config::default();
        for line in text.split_terminator('\0') {
            let refused = || {
                let what =
                    format!("{line:?} is not known to this program: it is another version than those that share");
                Error::Setting { name: "sharing".into(), what }
            };
            let (name, value) = line.split_once('=').ok_or_else(refused)?;
            let setting = SETTINGS.iter().find(|setting| setting.name == name).ok_or_else(refused)?;
            let value = match (setting.default)() {
                Value::Number(_) => Value::Number(value.parse().map_err(|_| refused())?),
                Value::Text(_) => Value::Text(value.to_string().into()),
            };
            if !there.set(name, &value) {
                return Err(refused());
            }
        }
        let mut own = Config::default();
        for set in self.settings().into_iter().filter(|set| OWN.contains(&set.setting.name)) {
            own.set(set.setting.name, &set.value);
        }
        let mut all = own.over(&there);
        let is_own = |at: usize| OWN.contains(&SETTINGS[at].name);
        for (at, source) in all.sources.iter_mut().enumerate() {
            *source = if is_own(at) { self.sources[at] } else { Source::Sharing };
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Sharing;

    #[test]
    fn who_comes_later_has_the_settings_of_the_first_and_some_of_its_own() {
        let config = Config { cache_bytes: Some(1 << 20), lock_timeout_ms: Some(1), ..Config::default() };
        let first = Effective::resolve(&config, &Config::default(), None).unwrap();
        let text = first.to_hand_on();
        let config = Config { sharing: Some(Sharing::Shared), lock_timeout_ms: Some(2), ..Config::default() };
        let own = Effective::resolve(&config, &Config::default(), None).unwrap();
        let all = own.clone().over_handed_on(&text).unwrap();
        assert_eq!((all.cache_bytes, all.lock_timeout_ms, all.sharing), (1 << 20, 2, Sharing::Shared));
        let source = |name| all.settings().into_iter().find(|set| set.setting.name == name).map(|set| set.source);
        assert_eq!((source("cache_bytes"), source("lock_timeout_ms")), (Some(Source::Sharing), Some(Source::Code)));
        for damaged in ["cache_bytes", "colour=red", "cache_bytes=red", "locking=red"] {
            assert!(own.clone().over_handed_on(damaged).unwrap_err().to_string().contains(damaged), "{damaged}");
        }
    }

    #[test]
    fn own_settings_are_settings() {
        assert!(OWN.iter().all(|own| SETTINGS.iter().any(|setting| setting.name == *own)));
    }
}
