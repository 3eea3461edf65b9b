//! The settings of an environment, declared once.
//!
//! The table at the end of this file is the only place where a setting is declared. It has the setting's name and type,
//! the sentence that explains it, default, unit, limits, and when a change takes effect. [`Config`] (what code or file
//! set), [`Effective`] (what is in force) and the setters of [`Options`] are made from it. So are the reading and
//! checking of `ledgerstone.toml` (`file.rs`, `parse.rs`), and what `ledgerstone config` prints. The operator's guide
//! is checked against it.
//!
//! C1. What the code sets wins over the file; what neither sets has its default.
//! C2. What is fixed at creation comes from the environment itself, whatever code or file say.
//! C3. No value outside its limits reaches the engine.
//!
//! A new setting is one entry in the table; code that uses it reads the field of [`Effective`].

mod file;
mod options;
#[cfg(feature = "settings-file")]
mod parse;
mod recovery_progress;
mod setting;
mod sharing;
mod unit;

use std::time::Duration;

use ledgerstone_core::directory;
use ledgerstone_log::LOG_BYTES_MAX;
#[cfg(feature = "serde")]
use serde::ser::{Serialize, SerializeMap, Serializer};

pub use crate::error::ConfigProblem;
pub use file::CONFIG_FILE;
pub use options::Options;
pub(crate) use options::{Maker, OwnLocking};
pub use recovery_progress::{RecoveryPhase, RecoveryProgress};
pub use setting::{Effect, Limits, Setting, Value};
pub use unit::Unit;

use ledgerstone_disk::SyncMethod;
use ledgerstone_lock::{Conflict, Victim};
use ledgerstone_txn::Durability;

use crate::Error;
use crate::choice::{Locking, LogValues, Replacement, Sharing};
use setting::SettingType;

/// Where the value of a setting comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "lowercase"))]
#[non_exhaustive]
pub enum Source {
    /// The default.
    Default,
    /// `ledgerstone.toml`.
    File,
    /// The program that opened the environment.
    Code,
    /// Fixed when the environment was created.
    Creation,
    /// The first of the processes that share the environment.
    Sharing,
}

impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Source::Default => "default",
            Source::File => "file",
            Source::Code => "code",
            Source::Creation => "creation",
            Source::Sharing => "sharing",
        })
    }
}

/// A setting with its value in force.
#[derive(Debug, Clone)]
pub struct SettingInForce {
    /// The setting.
    pub setting: &'static Setting,
    /// Its value.
    pub value: Value,
    /// Where the value comes from.
    pub source: Source,
}

/// Page sizes that work.
pub(crate) const PAGE_BYTES: Limits = Limits::PowerOfTwo(directory::PAGE_BYTES.0, directory::PAGE_BYTES.1);
/// An hour, in milliseconds.
const HOUR_MS: u64 = 3_600_000;
/// Segment sizes that work.
pub(crate) const LOG_SEGMENT_BYTES: Limits =
    Limits::PowerOfTwo(directory::LOG_SEGMENT_BYTES.0, directory::LOG_SEGMENT_BYTES.1);

/// True if a setter has the name of its setting, but for the unit of a time, which its type says.
const fn has_name(setter: &str, setting: &str) -> bool {
    let Some((name, unit)) = setting.as_bytes().split_at_checked(setter.len()) else { return false };
    let mut at = 0;
    while at < name.len() {
        if name[at] != setter.as_bytes()[at] {
            return false;
        }
        at += 1;
    }
    matches!(unit, b"" | b"_ms" | b"_us")
}

macro_rules! settings {
    ($(
        $(#[doc = $about:literal])+
        $name:ident: $type:ty {
            default: $default:expr,
            unit: $unit:ident,
            limits: $limits:expr,
            effect: $effect:ident,
            setter: $setter:ident($given:ident: $given_type:ty) => $stored:expr,
        }
    )+) => {
        /// Settings as code or `ledgerstone.toml` make them. What is `None` has been left open.
        #[derive(Debug, Clone, Default, PartialEq, Eq)]
        pub struct Config {
            $($(#[doc = $about])+ pub $name: Option<$type>,)+
        }

        /// Every setting with the value in force.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct Effective {
            $($(#[doc = $about])+ pub $name: $type,)+
            sources: [Source; SETTINGS.len()],
        }

        pub(crate) static SETTINGS: &[Setting] = &[$(
            Setting {
                name: stringify!($name),
                about: concat!($($about),+).trim_ascii(),
                unit: Unit::$unit,
                choices: <$type as SettingType>::CHOICES,
                limits: $limits,
                effect: Effect::$effect,
                default: || <$type as SettingType>::to_value(&$default),
            },
        )+];

        impl Config {
            /// Sets the setting of that name; false if there is none, or its type cannot hold the value.
            fn set(&mut self, name: &str, value: &Value) -> bool {
                match name {
                    $(stringify!($name) => {
                        self.$name = <$type as SettingType>::from_value(value);
                        self.$name.is_some()
                    })+
                    _ => false,
                }
            }

            /// What is set here, checked against the limits (C3).
            fn check(&self) -> Result<(), Error> {
                $(if let Some(value) = &self.$name {
                    let setting = find(stringify!($name));
                    setting.check(&value.to_value()).map_err(|what| Error::Setting { name: setting.name.into(), what })?;
                })+
                Ok(())
            }

            /// These settings over those of `file`, over the defaults (C1).
            fn over(&self, file: &Config) -> Effective {
                let sources = [$(match (&self.$name, &file.$name) {
                    (Some(_), _) => Source::Code,
                    (None, Some(_)) => Source::File,
                    (None, None) => Source::Default,
                }),+];
                Effective {
                    $($name: self.$name.clone().or_else(|| file.$name.clone()).unwrap_or_else(|| $default),)+
                    sources,
                }
            }
        }

        impl Effective {
            /// Every setting with its value and where the value comes from.
            #[must_use]
            pub fn settings(&self) -> Vec<SettingInForce> {
                let values = [$(self.$name.to_value()),+];
                SETTINGS
                    .iter()
                    .zip(values)
                    .zip(self.sources)
                    .map(|((setting, value), source)| SettingInForce { setting, value, source })
                    .collect()
            }
        }

        $(const _: () = assert!(
            has_name(stringify!($setter), stringify!($name)),
            concat!("the setter of ", stringify!($name), " has another name"),
        );)+

        /// Setters, one for each setting of `ledgerstone.toml`; they win over the file.
        impl Options {
            $(
                $(#[doc = $about])+
                #[doc = concat!("\n\nSetting `", stringify!($name), "`; default `", stringify!($default), "`.")]
                #[must_use]
                pub fn $setter(mut self, $given: $given_type) -> Self {
                    self.config.$name = Some($stored);
                    self
                }
            )+
        }
    };
}

/// A declaration by its name.
fn find(name: &str) -> &'static Setting {
    SETTINGS
        .iter()
        .find(|setting| setting.name == name)
        .expect("the macro makes names and declarations of the same entries")
}

impl Effective {
    /// What would be in force with these settings. `fixed` are page and segment size of an environment that exists
    /// (C2).
    ///
    /// # Errors
    /// [`Error::Setting`], [`Error::WrongPageSize`].
    pub(crate) fn resolve(code: &Config, file: &Config, fixed: Option<(u32, u64)>) -> Result<Effective, Error> {
        code.check()?;
        file.check()?;
        let mut effective = code.over(file);
        if let Some((page_bytes, log_segment_bytes)) = fixed {
            if let Some(asked) = code.page_bytes.or(file.page_bytes)
                && asked != page_bytes
            {
                return Err(Error::WrongPageSize { found: page_bytes, asked });
            }
            (effective.page_bytes, effective.log_segment_bytes) = (page_bytes, log_segment_bytes);
            for (source, setting) in effective.sources.iter_mut().zip(SETTINGS) {
                if setting.effect == Effect::Creation {
                    *source = Source::Creation;
                }
            }
        }
        if effective.cache_bytes < 64 * u64::from(effective.page_bytes) {
            let what = format!("at least 64 pages of {} bytes are needed", effective.page_bytes);
            return Err(Error::Setting { name: "cache_bytes".into(), what });
        }
        Ok(effective)
    }
}

#[cfg(feature = "serde")]
impl Serialize for Effective {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(SETTINGS.len()))?;
        for SettingInForce { setting, value, .. } in self.settings() {
            map.serialize_entry(setting.name, &value)?;
        }
        map.end()
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

settings! {
    /// Who has the environment open at the same time: `private` (this process alone), `shared` (all processes that open
    /// it so) or `as-found` (shared if others share it, private otherwise). Shared memory lies in `region_dir`.
    sharing: Sharing {
        default: Sharing::Private,
        unit: Count,
        limits: Limits::Any,
        effect: Open,
        setter: sharing(sharing: Sharing) => sharing,
    }

    /// The directory for the memory that processes share: in a file system in memory, and the same for all of them.
    /// All that the settings ask for is taken there at once.
    region_dir: String {
        default: "/dev/shm".into(),
        unit: Count,
        limits: Limits::Any,
        effect: Open,
        setter: region_dir(directory: impl AsRef<std::path::Path>) => directory.as_ref().to_string_lossy().into_owned(),
    }

    /// Memory for pages: a hard limit, taken when the environment is opened.
    cache_bytes: u64 {
        default: 64 << 20,
        unit: Bytes,
        limits: Limits::AtLeast(64 * 4096),
        effect: Open,
        setter: cache_bytes(bytes: u64) => bytes,
    }

    /// Size of a page. An environment that exists is not opened with another size.
    page_bytes: u32 {
        default: 4096,
        unit: Bytes,
        limits: PAGE_BYTES,
        effect: Creation,
        setter: page_bytes(bytes: u32) => bytes,
    }

    /// Size of a segment file of the log.
    log_segment_bytes: u64 {
        default: 4 << 20,
        unit: Bytes,
        limits: LOG_SEGMENT_BYTES,
        effect: Creation,
        setter: log_segment_bytes(bytes: u64) => bytes,
    }

    /// Memory for log records: half of it for those on their way to the disk, and half for those written last. A
    /// rollback that finds its records there reads nothing. The longest log record has to fit several times.
    log_buffer_bytes: u64 {
        default: 8 << 20,
        unit: Bytes,
        limits: Limits::PowerOfTwo(128 << 10, LOG_BYTES_MAX),
        effect: Open,
        setter: log_buffer_bytes(bytes: u64) => bytes,
    }

    /// A checkpoint is taken after this many bytes of log. It limits the size of the log and the time of a restart.
    checkpoint_log_bytes: u64 {
        default: 64 << 20,
        unit: Bytes,
        limits: Limits::Range(4 << 10, 1 << 40),
        effect: Open,
        setter: checkpoint_log_bytes(bytes: u64) => bytes,
    }

    /// When a commit returns, unless its transaction chooses another durability: `sync` (it is durable), `pipelined` (a
    /// flush is under way), `async` (durable after `async_delay_ms` at the latest) or `volatile` (durable when
    /// something else flushes the log).
    durability: Durability {
        default: Durability::Sync,
        unit: Count,
        limits: Limits::Any,
        effect: Open,
        setter: durability(durability: Durability) => durability,
    }

    /// How writes of the log are made durable: `dsync` (one call that writes durably) or `fdatasync` (a write, then a
    /// sync of the file). `ledgerstone probe` measures which is faster. It has no effect on disks that a program
    /// brings itself.
    sync_method: SyncMethod {
        default: SyncMethod::Dsync,
        unit: Count,
        limits: Limits::Any,
        effect: Open,
        setter: sync_method(method: SyncMethod) => method,
    }

    /// How long an `async` commit may stay in memory only.
    async_delay_ms: u64 {
        default: 10,
        unit: Milliseconds,
        limits: Limits::Range(1, HOUR_MS),
        effect: Open,
        setter: async_delay(delay: Duration) => milliseconds(delay),
    }

    /// How long a call waits for a lock before it fails with a lock time-out. With 0 it fails at once.
    lock_timeout_ms: u64 {
        default: 10_000,
        unit: Milliseconds,
        limits: Limits::Range(0, 365 * 24 * HOUR_MS),
        effect: Open,
        setter: lock_timeout(timeout: Duration) => milliseconds(timeout),
    }

    /// Key locks of one transaction on one table before it tries to lock the whole table instead.
    escalate_after: u32 {
        default: 4096,
        unit: Count,
        limits: Limits::Range(1, u32::MAX as u64),
        effect: Open,
        setter: escalate_after(lock_count: u32) => lock_count,
    }

    /// Locks that all transactions together may hold, 64 bytes of memory each.
    lock_count_max: u32 {
        default: 131_072,
        unit: Count,
        limits: Limits::Range(1024, u32::MAX as u64),
        effect: Open,
        setter: lock_count_max(count: u32) => count,
    }

    /// Memory for the earlier versions of changed records, which snapshots read. Old snapshots and heavy writing need
    /// more. When it is full, the oldest snapshots fail as too old.
    version_store_bytes: u64 {
        default: 32 << 20,
        unit: Bytes,
        limits: Limits::Range(16 << 10, 1 << 38),
        effect: Open,
        setter: version_store_bytes(bytes: u64) => bytes,
    }

    /// What is locked. `hierarchical`: keys and gaps, with intentions on tables and escalation to them. `pages`: leaves
    /// instead of keys, for fewer locks and less concurrency. `none`: nothing, for one transaction at a time, or
    /// programs that keep their transactions apart by design.
    locking: Locking {
        default: Locking::Hierarchical,
        unit: Count,
        limits: Limits::Any,
        effect: Open,
        setter: locking(locking: Locking) => locking,
    }

    /// What becomes of a lock that somebody else holds: `wait` (and deadlocks are found), `no-wait` (the transaction is
    /// rolled back at once) or `wait-die` (it waits for younger transactions only, and is rolled back otherwise).
    lock_conflict: Conflict {
        default: Conflict::Wait,
        unit: Count,
        limits: Limits::Any,
        effect: Open,
        setter: lock_conflict(conflict: Conflict) => conflict,
    }

    /// Which transaction of a deadlock is rolled back: the `youngest` (no transaction starves then), the `oldest`, the
    /// one with the `fewest-locks`, with the `least-log`, or a `random` one.
    deadlock_victim: Victim {
        default: Victim::Youngest,
        unit: Count,
        limits: Limits::Any,
        effect: Open,
        setter: deadlock_victim(victim: Victim) => victim,
    }

    /// How often a background thread looks for deadlocks. With 0 a transaction looks whenever it must wait for a lock,
    /// so each deadlock is found at once.
    deadlock_period_ms: u64 {
        default: 0,
        unit: Milliseconds,
        limits: Limits::Range(0, HOUR_MS),
        effect: Open,
        setter: deadlock_period(period: Duration) => milliseconds(period),
    }

    /// Group commit, group threshold: a flush does not wait if fewer threads than this are committing.
    commit_group_min: u32 {
        default: 4,
        unit: Count,
        limits: Limits::Range(1, 16_000),
        effect: Open,
        setter: commit_group_min(thread_count: u32) => thread_count,
    }

    /// Group commit, wait threshold: the log is flushed once this share of the committing threads is waiting, in
    /// percent. With 0 a flush does not wait.
    commit_wait_percent: u32 {
        default: 90,
        unit: Count,
        limits: Limits::Range(0, 100),
        effect: Open,
        setter: commit_wait_percent(percent: u32) => percent,
    }

    /// Group commit, log delay threshold: the log is flushed once this much of it is not durable.
    commit_log_delay_bytes: u64 {
        default: 256 << 10,
        unit: Bytes,
        limits: Limits::Range(1, 1 << 32),
        effect: Open,
        setter: commit_log_delay_bytes(bytes: u64) => bytes,
    }

    /// Group commit: how long a flush waits for more commits to join it. With 0 it waits half the time of recent
    /// flushes.
    commit_delay_us: u64 {
        default: 0,
        unit: Microseconds,
        limits: Limits::Range(0, 10_000_000),
        effect: Open,
        setter: commit_delay(delay: Duration) => u64::try_from(delay.as_micros()).unwrap_or(u64::MAX),
    }

    /// Transactions that may run at once.
    transaction_count_max: u32 {
        default: 1024,
        unit: Count,
        limits: Limits::Range(1, 16_000),
        effect: Open,
        setter: transaction_count_max(count: u32) => count,
    }

    /// Threads that may use the environment at once, those of the library included. A thread counts from its first call
    /// to its end. With 64 or more, up to 8 of them are threads that read ahead of scans.
    thread_count_max: u32 {
        default: 16_000,
        unit: Count,
        limits: Limits::Range(4, 16_000),
        effect: Open,
        setter: thread_count_max(count: u32) => count,
    }

    /// Which page leaves the cache first: `clock` (second chance: cheap, nearly as good) or `lru` (least recently
    /// used).
    replacement: Replacement {
        default: Replacement::Clock,
        unit: Count,
        limits: Limits::Any,
        effect: Open,
        setter: replacement(replacement: Replacement) => replacement,
    }

    /// What a change of a record puts into the log: `changed` (the bytes that differ; the least that recovery needs) or
    /// `whole` (old and new value, so that the change feed can tell them; large values stay out).
    log_values: LogValues {
        default: LogValues::Changed,
        unit: Count,
        limits: Limits::Any,
        effect: Open,
        setter: log_values(values: LogValues) => values,
    }

    /// The most log that is kept for a reader of changes, named or open. A reader that falls further behind gets an
    /// error and misses the changes that are gone.
    feed_log_bytes_max: u64 {
        default: 1 << 30,
        unit: Bytes,
        limits: Limits::Range(64 << 10, 1 << 50),
        effect: Open,
        setter: feed_log_bytes_max(bytes: u64) => bytes,
    }

    /// The directory to which segments of the log are copied before they are deleted. A relative path begins at the
    /// environment's directory, and the place must be outside of it. Empty: no archive. Each environment needs a
    /// directory of its own.
    archive_dir: String {
        default: String::new(),
        unit: Count,
        limits: Limits::Any,
        effect: Open,
        setter: archive_dir(directory: impl AsRef<std::path::Path>) => directory.as_ref().to_string_lossy().into_owned(),
    }

    /// How much log of interrupted transactions is undone before an open returns. If there is more, the largest
    /// transactions are rolled back afterwards, in the background. Until then they keep the tables that they changed
    /// locked. With 0 all of them are left to the background, except those that made, dropped or changed tables, or
    /// wrote large values. With the largest number nothing is left to the background: pages have all of their changes,
    /// too, when the open returns.
    restart_undo_bytes: u64 {
        default: 64 << 20,
        unit: Bytes,
        limits: Limits::AtLeast(0),
        effect: Open,
        setter: restart_undo_bytes(bytes: u64) => bytes,
    }

    /// Workers that repeat the log at a restart.
    redo_worker_count: u32 {
        default: 2,
        unit: Count,
        limits: Limits::Range(1, 64),
        effect: Open,
        setter: redo_worker_count(count: u32) => count,
    }

    /// The most pages that the data file may have. Pages that it does not have yet take no memory and no address space.
    page_count_max: u64 {
        default: 1 << 31,
        unit: Count,
        limits: Limits::Range(1 << 10, 1 << 40),
        effect: Open,
        setter: page_count_max(count: u64) => count,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_wins_over_the_file_and_the_file_over_the_default() {
        let code = Config { cache_bytes: Some(1 << 20), ..Config::default() };
        let file = Config { cache_bytes: Some(2 << 20), lock_timeout_ms: Some(7), ..Config::default() };
        let effective = Effective::resolve(&code, &file, None).unwrap();
        assert_eq!((effective.cache_bytes, effective.lock_timeout_ms, effective.async_delay_ms), (1 << 20, 7, 10));
        let source = |name| effective.settings().into_iter().find(|s| s.setting.name == name).map(|s| s.source);
        assert_eq!(source("cache_bytes"), Some(Source::Code));
        assert_eq!(source("lock_timeout_ms"), Some(Source::File));
        assert_eq!(source("async_delay_ms"), Some(Source::Default));
    }

    #[test]
    fn what_is_fixed_at_creation_comes_from_the_environment() {
        let file = Config { log_segment_bytes: Some(1 << 20), ..Config::default() };
        let effective = Effective::resolve(&Config::default(), &file, Some((8192, 1 << 24))).unwrap();
        assert_eq!((effective.page_bytes, effective.log_segment_bytes), (8192, 1 << 24));
        let page_bytes = effective.settings().into_iter().find(|set| set.setting.name == "page_bytes");
        assert_eq!(page_bytes.map(|set| set.source), Some(Source::Creation));
        let code = Config { page_bytes: Some(4096), ..Config::default() };
        let refused = Effective::resolve(&code, &file, Some((8192, 1 << 24)));
        assert!(matches!(refused, Err(Error::WrongPageSize { found: 8192, asked: 4096 })));
    }

    /// The log refuses more itself, in words about bytes that nobody set.
    #[test]
    fn the_log_takes_every_size_that_the_settings_allow() {
        for name in ["log_segment_bytes", "log_buffer_bytes"] {
            let setting = Setting::all().iter().find(|setting| setting.name == name).unwrap();
            assert_eq!(setting.check(&Value::Number(LOG_BYTES_MAX)), Ok(()), "{name}");
            assert!(setting.check(&Value::Number(2 * LOG_BYTES_MAX)).is_err(), "{name}");
        }
    }

    #[test]
    fn every_declaration_is_whole_and_its_default_is_allowed() {
        for setting in Setting::all() {
            let value = setting.default_value();
            assert_eq!(setting.check(&value), Ok(()), "{}", setting.name);
            assert!(
                setting.about.ends_with('.') && !setting.about.contains("  "),
                "{}: {}",
                setting.name,
                setting.about
            );
            assert!(Config::default().set(setting.name, &value), "{}", setting.name);
            if let Value::Text(word) = &value {
                assert!(setting.choices.is_empty() || setting.choices.contains(&&**word), "{}", setting.name);
            }
        }
    }

    #[test]
    fn every_number_has_limits_and_a_zero_that_is_allowed_is_explained() {
        for setting in Setting::all() {
            let Value::Number(_) = setting.default_value() else { continue };
            assert_ne!(setting.limits, Limits::Any, "{}", setting.name);
            let is_zero_allowed = setting.check(&Value::Number(0)).is_ok();
            assert_eq!(is_zero_allowed, setting.about.contains("With 0 "), "{}", setting.name);
            assert!(setting.limits.allow(u64::MAX) == matches!(setting.limits, Limits::AtLeast(_)), "{}", setting.name);
        }
        let nonsense = Config { checkpoint_log_bytes: Some(0), ..Config::default() };
        let refused = Effective::resolve(&nonsense, &Config::default(), None).unwrap_err().to_string();
        assert!(refused.contains("checkpoint_log_bytes") && refused.contains("4 KiB to 1 TiB"), "{refused}");
    }

    #[test]
    fn defaults_written_as_a_file_are_read_back() {
        let line = |setting: &Setting| format!("{} = {:?}\n", setting.name, setting.show(&setting.default_value()));
        let file: String = Setting::all().iter().map(line).collect();
        let read = Config::parse(&file).unwrap();
        let defaults = Effective::resolve(&Config::default(), &Config::default(), None).unwrap();
        let mut effective = Effective::resolve(&Config::default(), &read, None).unwrap();
        assert!(effective.sources.iter().all(|source| *source == Source::File));
        effective.sources = defaults.sources;
        assert_eq!(effective, defaults);
    }
}
