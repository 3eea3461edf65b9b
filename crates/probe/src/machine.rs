//! What a run was made on: processor, memory, kernel, and the directory's file system and device. A number without its
//! machine is not a number.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// The machine, as far as its system tells.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// The processor's name.
    pub processor: String,
    /// Processors that this process may use.
    pub processor_count: usize,
    /// Whether a hypervisor is below.
    pub is_virtual: bool,
    /// How the processor's clock is governed; `unknown` in most virtual machines.
    pub governor: String,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// The control group's memory limit, if there is one.
    pub memory_limit_bytes: Option<u64>,
    /// The kernel's release.
    pub kernel: String,
    /// The file system that was measured.
    pub mount: Mount,
    /// The device below it, if it is one.
    pub device: Option<Device>,
}

/// A mounted file system.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mount {
    /// Its type.
    pub kind: String,
    /// What is mounted.
    pub source: String,
    /// Where.
    pub at: String,
    /// How.
    pub options: String,
    /// Major and minor number of its device.
    pub device_number: String,
}

/// A block device, as it declares itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// Its name in the kernel.
    pub name: String,
    /// Its model, if it tells.
    pub model: String,
    /// What its queue says: `write_cache`, `logical_block_size` and so on.
    pub queue: BTreeMap<String, String>,
}

const QUEUE: [&str; 12] = [
    "write_cache",
    "fua",
    "rotational",
    "scheduler",
    "logical_block_size",
    "physical_block_size",
    "optimal_io_size",
    "nr_requests",
    "read_ahead_kb",
    "max_sectors_kb",
    "atomic_write_unit_max_bytes",
    "discard_max_bytes",
];

impl Machine {
    /// This machine, and the file system that holds `dir`.
    #[must_use]
    pub fn look(dir: &Path, processor_count: usize) -> Machine {
        let cpuinfo = read("/proc/cpuinfo");
        let mount = find_mount(dir, &read("/proc/self/mountinfo"));
        Machine {
            processor: field(&cpuinfo, "model name").unwrap_or_else(|| "unknown".into()),
            processor_count,
            is_virtual: field(&cpuinfo, "flags").is_some_and(|flags| flags.split(' ').any(|f| f == "hypervisor")),
            governor: or_unknown(read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor").trim()),
            memory_bytes: kib(field(&read("/proc/meminfo"), "MemTotal")),
            memory_limit_bytes: memory_limit(),
            kernel: or_unknown(read("/proc/sys/kernel/osrelease").trim()),
            device: find_device(&mount.device_number),
            mount,
        }
    }

    /// Whether what is written here is gone with the power.
    #[must_use]
    pub fn is_memory_only(&self) -> bool {
        matches!(self.mount.kind.as_str(), "tmpfs" | "ramfs")
    }
}

impl Device {
    /// One of the queue's values as a number.
    #[must_use]
    pub fn number(&self, name: &str) -> Option<u64> {
        self.queue.get(name)?.parse().ok()
    }
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

fn or_unknown(text: &str) -> String {
    if text.is_empty() { "unknown".into() } else { text.into() }
}

/// The value of a line `name : value`.
fn field(text: &str, name: &str) -> Option<String> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn kib(text: Option<String>) -> u64 {
    text.and_then(|t| t.split(' ').next()?.parse::<u64>().ok()).unwrap_or(0) * 1024
}

/// The smallest memory limit of our control group and those above it, of either version of the groups.
fn memory_limit() -> Option<u64> {
    let groups = read("/proc/self/cgroup");
    let mut limits = Vec::new();
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let (root, file) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.max"),
            c if c.split(',').any(|c| c == "memory") => ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
            _ => continue,
        };
        // In a container the path is that of the host; the files at the root are then ours.
        for group in Path::new(path).ancestors() {
            let group = group.to_string_lossy();
            limits.extend(read(&format!("{root}{}/{file}", group.trim_end_matches('/'))).trim().parse::<u64>().ok());
        }
    }
    limits.into_iter().min().filter(|limit| *limit < 1 << 60)
}

/// The mount with the longest path above `dir`; the last one, if several are on top of each other.
fn find_mount(dir: &Path, mountinfo: &str) -> Mount {
    let dir = dir.canonicalize().unwrap_or_else(|_| dir.to_owned());
    let mut best = Mount { kind: "unknown".into(), ..Mount::default() };
    for line in mountinfo.lines() {
        // 27 1 254:0 / /mnt rw,relatime shared:1 - ext4 /dev/vda rw,discard
        let Some((left, right)) = line.split_once(" - ") else { continue };
        let left: Vec<&str> = left.split(' ').collect();
        let right: Vec<&str> = right.split(' ').collect();
        let (Some(number), Some(at), Some(options)) = (left.get(2), left.get(4), left.get(5)) else { continue };
        let at = unescape(at);
        if !dir.starts_with(&at) || at.len() < best.at.len() {
            continue;
        }
        let of_file_system = right.get(2).unwrap_or(&"");
        best = Mount {
            kind: (*right.first().unwrap_or(&"unknown")).to_owned(),
            source: unescape(right.get(1).unwrap_or(&"")),
            at,
            options: if of_file_system.is_empty() {
                (*options).to_owned()
            } else {
                format!("{options}; {of_file_system}")
            },
            device_number: (*number).to_owned(),
        };
    }
    best
}

/// The kernel writes blanks and the like in octal.
fn unescape(text: &str) -> String {
    [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
        .iter()
        .fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
}

/// The device of a number, or for a partition the disk that it is a part of.
fn find_device(number: &str) -> Option<Device> {
    let path = fs::canonicalize(format!("/sys/dev/block/{number}")).ok()?;
    let disk = path.ancestors().take(2).find(|p| p.join("queue").is_dir())?;
    let queue = QUEUE
        .iter()
        .filter_map(|name| Some((*name, fs::read_to_string(disk.join("queue").join(name)).ok()?)))
        .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
        .collect();
    let model = fs::read_to_string(disk.join("device/model")).unwrap_or_default();
    Some(Device { name: path.file_name()?.to_string_lossy().into_owned(), model: or_unknown(model.trim()), queue })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deepest_mount_above_the_directory_is_found() {
        let info = "27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard\n\
                    30 27 0:27 / /no rw shared:1 - tmpfs tmpfs rw,size=9k\n\
                    31 27 0:28 / /no/such\\040place rw,nosuid - xfs /dev/b rw\n";
        let mount = find_mount(Path::new("/no/such place/x"), info);
        assert_eq!(
            (mount.kind.as_str(), mount.at.as_str(), mount.options.as_str()),
            ("xfs", "/no/such place", "rw,nosuid; rw")
        );
        assert_eq!(find_mount(Path::new("/nothing"), info).kind, "ext4");
        assert_eq!(find_mount(Path::new("/nothing"), "broken\n - \n").kind, "unknown");
    }
}
