//! What a figure was measured on. A number without its machine is no number.

use std::path::Path;

use serde::Serialize;

/// The machine, as far as its system tells.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// The processor's name.
    pub processor: String,
    /// Processors that this process may use.
    pub processor_count: usize,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// The kernel's release.
    pub kernel: String,
    /// Device and type of the file system that was measured.
    pub file_system: String,
}

impl Machine {
    /// This machine, and the file system that holds `path`.
    #[must_use]
    pub fn here(path: &Path) -> Machine {
        let read = |file: &str| std::fs::read_to_string(file).unwrap_or_default();
        let field = |text: &str, name: &str| {
            text.lines()
                .find(|line| line.starts_with(name))
                .and_then(|line| line.split_once(':'))
                .map(|(_, value)| value.trim().to_owned())
        };
        let memory = field(&read("/proc/meminfo"), "MemTotal").unwrap_or_default();
        Machine {
            processor: field(&read("/proc/cpuinfo"), "model name").unwrap_or_else(|| "unknown".into()),
            processor_count: std::thread::available_parallelism().map_or(1, usize::from),
            memory_mib: memory.split(' ').next().and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) / 1024,
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            file_system: file_system(path, &read("/proc/self/mounts")),
        }
    }
}

/// The mount with the longest path above `path`.
fn file_system(path: &Path, mounts: &str) -> String {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let mut best = (0, "unknown".to_owned());
    for line in mounts.lines() {
        let mut words = line.split(' ');
        let (Some(device), Some(at), Some(kind)) = (words.next(), words.next(), words.next()) else { continue };
        if path.starts_with(at) && at.len() >= best.0 {
            best = (at.len(), format!("{kind} on {device}"));
        }
    }
    best.1
}

impl std::fmt::Display for Machine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{}, {} processors, {} MiB, Linux {}, {}",
            self.processor, self.processor_count, self.memory_mib, self.kernel, self.file_system
        )
    }
}

/// A field of /proc/self/status in bytes: `VmRSS` now, `VmHWM` at its highest.
pub(crate) fn memory_bytes(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with(field)).unwrap_or_default();
    line.split_ascii_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) * 1024
}

/// Bytes that this process has had read from and written to devices so far.
pub(crate) fn moved_bytes() -> (u64, u64) {
    let io = std::fs::read_to_string("/proc/self/io").unwrap_or_default();
    let of = |field: &str| {
        let line = io.lines().find_map(|line| line.strip_prefix(field));
        line.and_then(|rest| rest.trim().parse().ok()).unwrap_or(0)
    };
    (of("read_bytes:"), of("write_bytes:"))
}
