//! Placement: which processor the measuring thread runs on, and which one its partner. It decides a factor of a
//! hundred.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::error::{On, ProbeError};

/// The processors that this process may use.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    all: CpuSet,
    here: usize,
    other: Option<usize>,
    count: usize,
}

impl Places {
    pub(crate) fn look() -> Result<Places, ProbeError> {
        let all = sched_getaffinity(None).on("sched_getaffinity")?;
        let numbers: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|cpu| all.is_set(*cpu)).collect();
        // The first processor takes most interrupts: the partner sits there, the measuring thread on the last one.
        let here = numbers.last().copied().unwrap_or(0);
        let others = || numbers.iter().copied().filter(|cpu| *cpu != here);
        let siblings = siblings(here);
        // Another core, if there is one: two threads of one core share too much to be two processors.
        let other = others().find(|cpu| !siblings.contains(cpu)).or_else(|| others().next());
        Ok(Places { all, here, other, count: numbers.len() })
    }

    pub(crate) fn count(&self) -> usize {
        self.count
    }

    pub(crate) fn here(&self) -> usize {
        self.here
    }

    /// Another processor than `here`, or why there is none.
    pub(crate) fn other(&self) -> Result<usize, ProbeError> {
        self.other.ok_or_else(|| ProbeError::Missing("only one processor may be used".into()))
    }

    /// Keeps the calling thread on one processor until the result is dropped.
    pub(crate) fn pin(&self, cpu: usize) -> Result<Pinned, ProbeError> {
        pin(cpu)?;
        Ok(Pinned { all: self.all })
    }
}

/// Keeps the calling thread on one processor; for threads and children that end there. No allocation.
pub(crate) fn pin(cpu: usize) -> Result<(), ProbeError> {
    let mut one = CpuSet::new();
    one.set(cpu);
    sched_setaffinity(None, &one).on("sched_setaffinity")
}

/// The thread goes back to all processors when this is dropped.
#[derive(Debug)]
pub(crate) struct Pinned {
    all: CpuSet,
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let _ = sched_setaffinity(None, &self.all); // Refused only if processors went away meanwhile.
    }
}

/// The processors of the same core, `cpu` among them.
fn siblings(cpu: usize) -> Vec<usize> {
    let path = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
    parse_list(&std::fs::read_to_string(path).unwrap_or_default())
}

/// `0-2,8` is 0, 1, 2, 8. What is not a number is left out.
pub(crate) fn parse_list(text: &str) -> Vec<usize> {
    let mut list = Vec::new();
    for part in text.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.parse::<usize>(), last.parse::<usize>()) {
            list.extend(first..=last.min(first.saturating_add(4096)));
        }
    }
    list
}

#[cfg(test)]
mod tests {
    use super::parse_list;

    #[test]
    fn lists_of_processors_are_read_and_nonsense_is_left_out() {
        assert_eq!(parse_list("0-2,8\n"), [0, 1, 2, 8]);
        assert_eq!(parse_list(""), Vec::<usize>::new());
        assert_eq!(parse_list("x,5,7-"), [5]);
    }
}
