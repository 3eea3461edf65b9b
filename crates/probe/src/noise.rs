//! Noticing others: programs that run beside a measurement, and time that the hypervisor took.
//!
//! `/proc/stat` counts the time of all processors by tick. What user time is not ours is others'; kernel threads, which
//! work for us when we write, count as system time and are left out. Steal is what the hypervisor gave to other
//! machines.
//!
//! A tick is 10 ms, so a window is at least [`WINDOW`] long: for short measurements it begins before them.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::sys::{child, usage};

/// The shortest time in which others' part can be told.
const WINDOW: Duration = Duration::from_millis(250);
/// Others may use this part of one processor.
const FOREIGN_MAX: f64 = 0.08;
/// The hypervisor may take this part of one processor.
const STEAL_MAX: f64 = 0.03;

#[derive(Clone, Copy, Debug, Default)]
struct Ticks {
    /// User time of all programs, nice ones too.
    user: u64,
    steal: u64,
}

#[derive(Clone, Copy, Debug)]
struct Moment {
    at: Instant,
    /// Seconds of user time of other programs since some beginning.
    foreign_s: f64,
    steal_s: f64,
}

/// Remembers the last moments looked at.
#[derive(Debug)]
pub(crate) struct NoiseWatch {
    moments: VecDeque<Moment>,
}

impl NoiseWatch {
    pub(crate) fn new() -> NoiseWatch {
        let mut watch = NoiseWatch { moments: VecDeque::new() };
        watch.look();
        watch
    }

    /// Remembers this moment.
    pub(crate) fn look(&mut self) -> Instant {
        let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
        let ticks = parse_stat(&text);
        let per_second = usage::ticks_per_second() as f64;
        let own_s = usage::used().user_ns as f64 / 1e9 + children_user_ticks() as f64 / per_second;
        let at = Instant::now();
        let moment =
            Moment { at, foreign_s: ticks.user as f64 / per_second - own_s, steal_s: ticks.steal as f64 / per_second };
        // Looks come often in short measurements: one in 20 ms is enough to find the beginning of a window.
        if self.moments.back().is_some_and(|last| at - last.at < Duration::from_millis(20)) {
            self.moments.pop_back();
        }
        self.moments.push_back(moment);
        if self.moments.len() > 4096 {
            self.moments.pop_front();
        }
        at
    }

    /// Who disturbed between `since` and now, if anybody did.
    pub(crate) fn disturbance(&mut self, since: Instant) -> Option<String> {
        let now_at = self.look();
        let now = *self.moments.back()?;
        let begin = since.min(now_at.checked_sub(WINDOW).unwrap_or(since));
        let then = *self.moments.iter().rev().find(|m| m.at <= begin).or(self.moments.front())?;
        let wall_s = (now.at - then.at).as_secs_f64();
        judge(wall_s, now.foreign_s - then.foreign_s, now.steal_s - then.steal_s)
    }
}

fn judge(wall_s: f64, foreign_s: f64, steal_s: f64) -> Option<String> {
    if wall_s < 0.04 {
        return None; // Too short to tell; the spread has to.
    }
    // Less than three ticks may be the counting.
    if steal_s >= 0.03 && steal_s > STEAL_MAX * wall_s {
        return Some(format!("the hypervisor took {:.0} % of a processor", steal_s / wall_s * 100.0));
    }
    if foreign_s >= 0.03 && foreign_s > FOREIGN_MAX * wall_s {
        return Some(format!("other programs used {:.0} % of a processor", foreign_s / wall_s * 100.0));
    }
    None
}

/// The first line: `cpu user nice system idle iowait irq softirq steal ...`.
fn parse_stat(text: &str) -> Ticks {
    let mut numbers = text.lines().next().unwrap_or_default().split_ascii_whitespace().skip(1);
    let mut next = || numbers.next().and_then(|n| n.parse::<u64>().ok()).unwrap_or(0);
    let user = next() + next();
    let steal = [next(), next(), next(), next(), next(), next()][5];
    Ticks { user, steal }
}

/// User time of children that were not waited for yet.
fn children_user_ticks() -> u64 {
    child::alive()
        .filter_map(|pid| std::fs::read_to_string(format!("/proc/{pid}/stat")).ok())
        .filter_map(|stat| stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(11)?.parse::<u64>().ok())
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_nice_and_steal_are_read_from_the_first_line() {
        let ticks = parse_stat("cpu  100 20 30 400 5 6 7 8 0 0\ncpu0 1 1 1 1\n");
        assert_eq!((ticks.user, ticks.steal), (120, 8));
        let none = parse_stat("");
        assert_eq!((none.user, none.steal), (0, 0));
    }

    #[test]
    fn a_program_beside_us_is_named_and_a_stray_tick_is_not() {
        assert_eq!(judge(1.0, 0.02, 0.0), None);
        assert_eq!(judge(10.0, 0.5, 0.0), None);
        assert!(judge(1.0, 0.9, 0.0).expect("noisy").contains("other programs used 90 %"));
        assert!(judge(1.0, 0.0, 0.2).expect("noisy").contains("hypervisor took 20 %"));
        assert_eq!(judge(0.01, 0.9, 0.9), None, "a window of one tick tells nothing");
    }
}
