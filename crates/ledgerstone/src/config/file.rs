//! `ledgerstone.toml`: found and read. What its text says is for `parse.rs`, behind the feature `settings-file`.

use std::path::Path;

use ledgerstone_disk::Device;

use super::Config;
use crate::Error;

/// Name of the settings file in the environment's directory.
pub const CONFIG_FILE: &str = "ledgerstone.toml";

impl Config {
    /// The settings of the file in `dir`. Empty if there is no file.
    ///
    /// # Errors
    /// [`Error::SettingsFile`], or the file cannot be read. [`Error::NotBuilt`] without the feature `settings-file`, so
    /// that a file is never passed over.
    pub fn read(dir: &Path) -> Result<Config, Error> {
        if Device::is_at(dir) {
            return Ok(Config::default()); // Its names are not the system's.
        }
        let path = dir.join(CONFIG_FILE);
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Config::default()),
            Err(e) => return Err(Error::of_io("read", &path, &e)),
        };
        Config::of_file(&path, &bytes)
    }

    #[cfg(not(feature = "settings-file"))]
    fn of_file(path: &Path, _bytes: &[u8]) -> Result<Config, Error> {
        Err(Error::NotBuilt { what: path.display().to_string(), feature: "settings-file" })
    }

    #[cfg(feature = "settings-file")]
    fn of_file(path: &Path, bytes: &[u8]) -> Result<Config, Error> {
        let text = str::from_utf8(bytes).map_err(|e| {
            let line = 1 + bytes[..e.valid_up_to()].iter().filter(|&&byte| byte == b'\n').count();
            vec![super::ConfigProblem { line, setting: String::new(), what: "not UTF-8".into() }]
        });
        text.and_then(Config::parse)
            .map_err(|problems| Error::SettingsFile { path: path.display().to_string(), problems })
    }
}
