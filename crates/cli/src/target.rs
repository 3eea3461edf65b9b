//! Where commands write: the output, or a file that is replaced whole or not at all.
//!
//! G1. A file is written beside its place, made durable and renamed, so that nobody ever finds a half one there.
//!     While such a file is there, Ctrl-C is heeded: the first one leaves time to remove the file or to rename it.
//! G2. No file of an environment is written over.

use std::fs::File;
use std::io::{BufWriter, Error, Write};
use std::path::{Path, PathBuf};

use anyhow::ensure;
use ledgerstone::quoted;

use crate::interrupt::{self, Heeding};
use crate::output::Output;

const BUFFER_BYTES: usize = 1 << 16;

/// What an environment lives in, beside its log.
const ENVIRONMENT_FILES: [&str; 4] = ["control", "data", "double_write", "lock"];

/// An open file or the output. Dropped before [`Target::finish`], it leaves nothing.
pub(crate) struct Target<'o> {
    out: BufWriter<Out<'o>>,
    rename: Option<Rename>,
}

/// From where to where. Until the part is removed or renamed, the first Ctrl-C does not end the process.
struct Rename {
    part: PathBuf,
    path: PathBuf,
    _heeding: Heeding,
}

/// Its errors say what cannot be written.
enum Out<'o> {
    Output(&'o Output),
    File { file: File, name: String },
}

/// Whether a file is one that an environment lives in. Nothing replaces those, not even what replaces files otherwise.
fn is_of_environment(path: &Path) -> bool {
    let is_environment = |dir: &Path| dir.join("control").is_file() && dir.join("log").is_dir();
    let Some(path) = path.canonicalize().ok().filter(|path| path.is_file()) else { return false };
    let mut dirs = path.ancestors().skip(1);
    let (dir, above) = (dirs.next(), dirs.next());
    let is_own = path.file_name().is_some_and(|name| ENVIRONMENT_FILES.iter().any(|own| name == *own));
    let is_log = dir.is_some_and(|dir| dir.ends_with("log")) && above.is_some_and(is_environment);
    is_own && dir.is_some_and(is_environment) || is_log
}

/// G2.
fn check_not_of_environment(path: &Path) -> anyhow::Result<()> {
    let name = path.display();
    ensure!(!is_of_environment(path), "cannot write {name}: it is a file of an environment; name another place");
    Ok(())
}

fn cannot_write(name: &str) -> impl Fn(Error) -> Error {
    move |error| Error::new(error.kind(), format!("cannot write {name}: {error}"))
}

impl Write for Out<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        match self {
            Out::Output(output) => output.bytes(bytes).map(|()| bytes.len()),
            Out::File { file, name } => file.write(bytes).map_err(cannot_write(name)),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        match self {
            Out::Output(output) => output.flush(),
            Out::File { file, name } => file.flush().map_err(cannot_write(name)),
        }
    }
}

impl<'o> Target<'o> {
    /// Opens the file of that name; `-` is the output. A file that is there stays until [`Target::finish`].
    pub(crate) fn open(name: &str, output: &'o Output) -> anyhow::Result<Target<'o>> {
        match name {
            "-" => Ok(Target { out: BufWriter::with_capacity(BUFFER_BYTES, Out::Output(output)), rename: None }),
            _ => Target::file(Path::new(name)),
        }
    }

    /// Opens a file, never the output.
    pub(crate) fn file(path: &Path) -> anyhow::Result<Target<'static>> {
        check_not_of_environment(path)?;
        let name = &path.display().to_string();
        ensure!(!path.is_dir(), "cannot write {name}: it is a directory");
        ensure!(path.file_name().is_some(), "cannot write {}: it is not the name of a file", quoted(name));
        let target = |file, rename| {
            let out = Out::File { file, name: name.to_owned() };
            Target { out: BufWriter::with_capacity(BUFFER_BYTES, out), rename }
        };
        if path.exists() && !path.is_file() {
            // A pipe or a device: written straight away.
            let file = File::options().write(true).open(path).map_err(cannot_write(name))?;
            return Ok(target(file, None));
        }
        // Nobody else's: two that write the same file, and a file of the user's, keep out of each other's way.
        let mut part = path.as_os_str().to_owned();
        part.push(format!(".{}.part", std::process::id()));
        let rename = Rename { part: part.into(), path: path.to_owned(), _heeding: interrupt::heed() };
        let file = File::create_new(&rename.part).map_err(cannot_write(name))?;
        let target = target(file, Some(rename));
        if let (Ok(there), Out::File { file, .. }) = (path.metadata(), target.out.get_ref()) {
            file.set_permissions(there.permissions()).map_err(cannot_write(name))?;
        }
        Ok(target)
    }

    /// A second handle of the file, which writes behind what was written here.
    pub(crate) fn share(&mut self) -> std::io::Result<File> {
        self.out.flush()?;
        match self.out.get_ref() {
            Out::File { file, .. } => file.try_clone(),
            Out::Output(_) => Err(Error::other("standard output has no second handle")),
        }
    }

    /// The same, but a file that is there is only replaced with `may_replace`; `instead` says what to do then.
    pub(crate) fn open_new(
        name: &str,
        may_replace: bool,
        instead: &str,
        output: &'o Output,
    ) -> anyhow::Result<Target<'o>> {
        if name != "-" {
            Target::check_new(Path::new(name), may_replace, instead)?;
        }
        Target::open(name, output)
    }

    /// Refuses a file that is there, unless it may be replaced; `instead` says what to do then.
    pub(crate) fn check_new(path: &Path, may_replace: bool, instead: &str) -> anyhow::Result<()> {
        check_not_of_environment(path)?; // First: nothing lets such a file be replaced.
        ensure!(may_replace || !path.is_file(), "{} is there already; {instead}", path.display());
        Ok(())
    }

    /// Writes a whole file.
    pub(crate) fn write(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
        let mut target = Target::file(path)?;
        target.writer().write_all(bytes)?;
        target.finish()
    }

    pub(crate) fn writer(&mut self) -> &mut dyn Write {
        &mut self.out
    }

    /// Makes the file durable and gives it its name.
    pub(crate) fn finish(mut self) -> anyhow::Result<()> {
        self.out.flush()?;
        if let (Some(Rename { part, path, .. }), Out::File { file, name }) = (&self.rename, self.out.get_ref()) {
            file.sync_all().map_err(cannot_write(name))?;
            std::fs::rename(part, path).map_err(cannot_write(name))?;
            let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
            File::open(directory).and_then(|directory| directory.sync_all()).map_err(cannot_write(name))?;
            self.rename = None;
        }
        Ok(())
    }
}

impl Drop for Target<'_> {
    fn drop(&mut self) {
        if let Some(Rename { part, .. }) = &self.rename {
            let _ = std::fs::remove_file(part); // What failed or was interrupted leaves nothing.
        }
    }
}
