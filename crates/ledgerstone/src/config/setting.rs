//! What a setting is: name, kind, default, limits, when it takes effect; and the values that settings have.

use std::borrow::Cow;
use std::fmt;

use super::unit::Unit;

/// A setting as it is declared. All of them: [`Setting::all`].
#[derive(Debug, Clone, Copy)]
pub struct Setting {
    /// Its name, in `ledgerstone.toml` and in [`crate::Effective`].
    pub name: &'static str,
    /// A sentence on what it does.
    pub about: &'static str,
    /// The unit of its number.
    pub unit: Unit,
    /// The words to choose from. Empty for a number or for any text.
    pub choices: &'static [&'static str],
    /// What values are allowed.
    pub limits: Limits,
    /// When a change takes effect.
    pub effect: Effect,
    pub(super) default: fn() -> Value,
}

/// The value of a setting.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Value {
    /// A number in the setting's unit.
    Number(u64),
    /// A text, or one of the setting's choices.
    Text(Cow<'static, str>),
}

#[cfg(feature = "serde")]
impl serde::Serialize for Value {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Value::Number(number) => serializer.serialize_u64(*number),
            Value::Text(text) => serializer.serialize_str(text),
        }
    }
}

/// The values that a setting allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Limits {
    /// Whatever its type holds.
    Any,
    /// At least this.
    AtLeast(u64),
    /// From the first to the second.
    Range(u64, u64),
    /// A power of two from the first to the second.
    PowerOfTwo(u64, u64),
}

impl Limits {
    /// True if `number` lies within.
    #[must_use]
    pub fn allow(self, number: u64) -> bool {
        match self {
            Limits::Any => true,
            Limits::AtLeast(min) => number >= min,
            Limits::Range(min, max) => (min..=max).contains(&number),
            Limits::PowerOfTwo(min, max) => number.is_power_of_two() && (min..=max).contains(&number),
        }
    }
}

/// When a change of a setting takes effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Effect {
    /// When the environment is opened the next time.
    Open,
    /// When the environment is created. It cannot be changed afterwards.
    Creation,
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Effect::Open => "at the next open",
            Effect::Creation => "at creation only",
        })
    }
}

impl Setting {
    /// Every setting there is, in the order in which they are shown.
    #[must_use]
    pub fn all() -> &'static [Setting] {
        super::SETTINGS
    }

    /// The value that it has if it is not set.
    #[must_use]
    pub fn default_value(&self) -> Value {
        (self.default)()
    }

    /// The allowed values in words.
    #[must_use]
    pub fn allowed(&self) -> String {
        if !self.choices.is_empty() {
            return self.choices.join(", ");
        }
        let show = |number| self.unit.show(number);
        match self.limits {
            Limits::Any if matches!(self.default_value(), Value::Text(_)) => "any text".into(),
            Limits::Any => "any".into(),
            Limits::AtLeast(min) => format!("at least {}", show(min)),
            Limits::Range(min, max) => format!("{} to {}", show(min), show(max)),
            Limits::PowerOfTwo(min, max) => format!("a power of two from {} to {}", show(min), show(max)),
        }
    }

    /// A value as people read it, and as `ledgerstone.toml` takes it between quotes.
    #[must_use]
    pub fn show(&self, value: &Value) -> String {
        match value {
            Value::Number(number) => self.unit.show(*number),
            Value::Text(text) => text.to_string(),
        }
    }

    /// Refuses a value outside the limits.
    pub(super) fn check(&self, value: &Value) -> Result<(), String> {
        match value {
            Value::Number(number) if !self.limits.allow(*number) => {
                Err(format!("{} is not allowed; allowed is {}", self.show(value), self.allowed()))
            }
            _ => Ok(()),
        }
    }
}

/// A type that a setting can have.
pub(super) trait SettingType: Sized {
    const CHOICES: &'static [&'static str] = &[];
    fn to_value(&self) -> Value;
    /// `None`: not of this type, or beyond what it holds.
    fn from_value(value: &Value) -> Option<Self>;
}

impl SettingType for u64 {
    fn to_value(&self) -> Value {
        Value::Number(*self)
    }

    fn from_value(value: &Value) -> Option<u64> {
        match value {
            Value::Number(number) => Some(*number),
            Value::Text(_) => None,
        }
    }
}

impl SettingType for u32 {
    fn to_value(&self) -> Value {
        Value::Number(u64::from(*self))
    }

    fn from_value(value: &Value) -> Option<u32> {
        u64::from_value(value)?.try_into().ok()
    }
}

impl SettingType for String {
    fn to_value(&self) -> Value {
        Value::Text(Cow::Owned(self.clone()))
    }

    fn from_value(value: &Value) -> Option<String> {
        match value {
            Value::Text(text) => Some(text.to_string()),
            Value::Number(_) => None,
        }
    }
}

/// Makes an enum without data the type of a setting: `choices!(Replacement { Clock = "clock", Lru = "lru" });`
macro_rules! choices {
    ($type:ty { $($variant:ident = $word:literal),+ $(,)? }) => {
        impl SettingType for $type {
            const CHOICES: &'static [&'static str] = &[$($word),+];

            fn to_value(&self) -> Value {
                Value::Text(Cow::Borrowed(match self {
                    $(<$type>::$variant => $word),+
                }))
            }

            fn from_value(value: &Value) -> Option<$type> {
                match value {
                    $(Value::Text(text) if text == $word => Some(<$type>::$variant),)+
                    _ => None,
                }
            }
        }
    };
}

choices!(crate::choice::Replacement { Clock = "clock", Lru = "lru" });
choices!(crate::choice::Sharing { Private = "private", Shared = "shared", AsFound = "as-found" });
choices!(crate::choice::LogValues { Changed = "changed", Whole = "whole" });
choices!(ledgerstone_txn::Durability { Sync = "sync", Pipelined = "pipelined", Async = "async", Volatile = "volatile" });
choices!(ledgerstone_disk::SyncMethod { Dsync = "dsync", Fdatasync = "fdatasync" });
choices!(crate::choice::Locking { Hierarchical = "hierarchical", Pages = "pages", None = "none" });
choices!(ledgerstone_lock::Conflict { Wait = "wait", NoWait = "no-wait", WaitDie = "wait-die" });
choices!(ledgerstone_lock::Victim {
    Youngest = "youngest",
    Oldest = "oldest",
    FewestLocks = "fewest-locks",
    LeastLog = "least-log",
    Random = "random",
});
