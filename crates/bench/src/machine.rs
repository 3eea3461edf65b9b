//! What a figure was measured on. A number without its machine is not a number.

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
        let count = std::thread::available_parallelism().map_or(1, usize::from);
        let machine = ledgerstone_probe::Machine::look(path, count);
        Machine {
            processor: machine.processor,
            processor_count: count,
            memory_mib: machine.memory_bytes >> 20,
            kernel: machine.kernel,
            file_system: format!("{} on {}", machine.mount.kind, machine.mount.source),
        }
    }
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
