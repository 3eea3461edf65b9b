//! Background threads. The housekeeper takes checkpoints by log volume and does deferred frees, in one thread. A
//! detector of deadlocks runs in another, if the settings ask for one. Each keeper that works, such as the archive, has
//! its own.
//!
//! It wakes on a nudge (a dropped table, a replaced large value, a close) and otherwise a few times a second to look
//! how much log there is. Where nothing has happened for a while, it sleeps until the log grows. Page write-back and
//! log flushing have threads of their own in `buffer` and `log`.

use std::sync::Arc;
use std::task::Waker;

use ledgerstone_log::WakerNo;
use ledgerstone_page::Lsn;
use ledgerstone_region::sync;

use crate::inner::{Inner, PERIOD_NS};

/// Looks for deadlocks every `period_ns` until the environment is closed or fails (LIBTP 4.1).
pub(crate) fn detect_deadlocks(env: &Arc<Inner>, period_ns: u64) {
    while !env.bell().is_stopped_within(period_ns) && !env.engine().is_failed() {
        env.engine().locks.detect();
    }
}

/// Has a keeper work as the log grows. A thread of its own: one that stalls keeps the log, and nothing else.
pub(crate) fn keep_log(env: &Arc<Inner>, no: usize, period_ns: u64) {
    while !env.bell().is_stopped_within(period_ns) && !env.engine().is_failed() {
        env.work_for(no);
    }
}

/// When the reclaimer looks again after a round that freed nothing, since somebody held all there was. It looks later
/// and later, and at once when those who may hold it are others.
///
/// What is dropped meanwhile takes room. So the rest is over, too, when the log has grown by [`Rest::GROWTH_BYTES`] and
/// the oldest reader is another, but not before it was as long as the round. So not much more can pile up than that,
/// and what is dropped during a round and as long again. The oldest reader may be another all the time, while a
/// transaction in doubt holds everything. Looking then takes half of the time at most.
#[derive(Debug)]
struct Rest {
    ended_ns: u64,
    took_ns: u64,
    /// A rest that follows from that, whoever asks.
    at_least_ns: u64,
    pause_ns: u64,
    holders: (Lsn, u32),
    /// The oldest reader, and where the log ended, when the last round did.
    oldest: Lsn,
    tail: Lsn,
}

impl Rest {
    const PAUSE_NS_MAX: u64 = 60_000_000_000;
    /// A round that frees nothing is followed by a pause of so many times its length at least.
    const PAUSE_ROUNDS: u64 = 20;
    /// But not longer. The process may have been stopped during the round, or its machine.
    const ROUNDS_NS_MAX: u64 = 600_000_000_000;
    const GROWTH_BYTES: u64 = 16 << 20;

    fn none() -> Rest {
        let (holders, oldest, tail) = ((Lsn(0), 0), Lsn(0), Lsn(0));
        Rest { ended_ns: 0, took_ns: 0, at_least_ns: 0, pause_ns: 0, holders, oldest, tail }
    }

    /// There is something new to look at. How long the last round took still counts. Every dropped table asks again,
    /// and that must not make the housekeeper work all the time on what is held.
    fn shorten(&mut self) {
        self.pause_ns = 0;
    }

    /// Somebody was refused for want of room. What is dropped would give it. So the rest is no longer than the round
    /// was, whoever holds what.
    fn hurry(&mut self) {
        self.pause_ns = 0;
        self.at_least_ns = self.took_ns.min(Rest::ROUNDS_NS_MAX);
    }

    fn is_over(&mut self, now_ns: u64, holders: (Lsn, u32), tail: Lsn) -> bool {
        if self.holders != holders {
            self.holders = holders;
            self.shorten();
        }
        let has_grown = tail.0.saturating_sub(self.tail.0) >= Rest::GROWTH_BYTES && holders.0 != self.oldest;
        let pause_ns = self.pause_ns.max(self.at_least_ns);
        let rested_ns = now_ns.saturating_sub(self.ended_ns);
        rested_ns >= pause_ns || has_grown && rested_ns >= self.took_ns.min(Rest::ROUNDS_NS_MAX)
    }

    /// A round that began at `began_ns` has ended; `has_freed` is none if it failed. One that failed has mostly waited:
    /// for the turn of a compaction, or for room in the log. That says nothing of what is held. Or it has met what
    /// cannot be freed, and each round meets that again. So it is tried again soon, but not at once.
    fn begin(&mut self, began_ns: u64, now_ns: u64, has_freed: Option<bool>, holders: (Lsn, u32), tail: Lsn) {
        let took_ns = now_ns.saturating_sub(began_ns);
        let rounds = match has_freed {
            Some(true) => {
                *self = Rest::none();
                return;
            }
            Some(false) => Rest::PAUSE_ROUNDS,
            None => 1,
        };
        let at_least_ns = took_ns.saturating_mul(rounds).min(Rest::ROUNDS_NS_MAX);
        let pause_ns = self.pause_ns.saturating_mul(2).clamp(PERIOD_NS, Rest::PAUSE_NS_MAX);
        *self = Rest { ended_ns: now_ns, took_ns, at_least_ns, pause_ns, holders, oldest: holders.0, tail };
    }
}

/// When a disk that the log has filled gets a checkpoint: what that gives up is used again, and whoever was refused can
/// try again. Each takes some of the room that is left for rollbacks. So one that would give up nothing is taken less
/// and less often, and at once when those who keep the log keep less of it.
#[derive(Debug)]
struct MakeRoom {
    looked_ns: u64,
    /// When the last one was taken, and below what the log could be given up then.
    made_ns: u64,
    kept_from: Lsn,
    pause_ns: u64,
}

impl MakeRoom {
    const LOOK_NS: u64 = 1_000_000_000;
    const PAUSE_NS_MAX: u64 = 600_000_000_000;

    fn new() -> MakeRoom {
        MakeRoom { looked_ns: 0, made_ns: 0, kept_from: Lsn(0), pause_ns: MakeRoom::LOOK_NS }
    }

    /// Somebody was refused: not each time is it worth a look.
    fn is_worth_a_look(&self, now_ns: u64) -> bool {
        now_ns.saturating_sub(self.looked_ns) >= MakeRoom::LOOK_NS
    }

    /// `kept_from`: those who keep the log need it from there on.
    fn is_due(&mut self, now_ns: u64, kept_from: Lsn) -> bool {
        self.looked_ns = now_ns;
        now_ns.saturating_sub(self.made_ns) >= self.pause_ns || kept_from > self.kept_from
    }

    fn made(&mut self, now_ns: u64, has_made_room: bool, kept_from: Lsn) {
        let longer_ns = MakeRoom::PAUSE_NS_MAX.min(self.pause_ns * 2);
        let pause_ns = if has_made_room { MakeRoom::LOOK_NS } else { longer_ns };
        *self = MakeRoom { looked_ns: now_ns, made_ns: now_ns, kept_from, pause_ns };
    }
}

/// When the housekeeper sleeps until it is woken: a program that does nothing wakes no processor.
///
/// Whatever it has to do comes with a change, which appends to the log, or with a ring of the bell. The log wakes it
/// when the next record becomes durable. If no commit waits for that, the log's buffer is flushed when a quarter of it
/// is full. A transaction that finds the disk full changes nothing, and rings.
#[derive(Debug)]
struct Idle {
    tail: Lsn,
    round_count: u32,
    /// The waker that hangs at the log's tail.
    hung: Option<WakerNo>,
}

impl Idle {
    /// After so many rounds without a change.
    const ROUNDS: u32 = 20;
    /// It looks all the same from time to time, should it not be woken.
    const SLEEP_NS: u64 = 10_000_000_000;

    fn new() -> Idle {
        Idle { tail: Lsn(0), round_count: 0, hung: None }
    }

    /// How long to sleep now. Before a long sleep, it hangs a waker at the log's tail.
    fn sleep_ns(&mut self, env: &Inner) -> u64 {
        let log = &env.engine().log;
        let tail = log.tail();
        if tail != self.tail || env.to_free().is_due() {
            (self.tail, self.round_count) = (tail, 0);
        }
        if self.round_count < Idle::ROUNDS {
            self.round_count += 1;
            return PERIOD_NS;
        }
        // From here on a record at the tail wakes it, also one that was appended meanwhile.
        log.on_durable(tail, &mut self.hung, &Waker::from(Arc::clone(env.bell())));
        Idle::SLEEP_NS
    }

    /// The sleep is over.
    fn wake(&mut self, env: &Inner, is_rung: bool) {
        env.engine().log.forget_waker(self.tail, &mut self.hung);
        if is_rung {
            self.round_count = 0;
        }
    }
}

/// Runs until the bell says stop or the environment fails.
pub(crate) fn keep_house(env: &Arc<Inner>) {
    let mut rest = Rest::none();
    let mut room = MakeRoom::new();
    let mut idle = Idle::new();
    loop {
        let sleep_ns = idle.sleep_ns(env);
        let asked = env.bell().wait(sleep_ns);
        idle.wake(env, asked.is_rung);
        if env.engine().is_failed() {
            // The log may have failed by itself: those who wait for locks learn of it here.
            env.engine().fail(&env.engine().why_failed());
            return;
        }
        if asked.stop {
            return;
        }
        let _ = env.checkpoint_of_opening();
        env.engine().lower_used();
        // What fails here fails the environment or is tried again at a later round: nobody waits for the result.
        if asked.reclaim {
            rest.shorten();
        }
        if asked.lacks {
            rest.hurry();
        }
        let began_ns = sync::now_ns();
        if (asked.reclaim || env.to_free().is_due()) && rest.is_over(began_ns, env.holders(), env.engine().log.tail()) {
            let freed = env.reclaim(&|| !env.bell().is_stopping());
            rest.begin(began_ns, sync::now_ns(), freed.ok(), env.holders(), env.engine().log.tail());
        }
        if room.is_worth_a_look(sync::now_ns()) && env.engine().log.has_lacked_space() {
            env.ask_keepers();
            let _ = env.give_up_what_was_held();
            // Before the checkpoint: those who end while it is taken are seen at the next look.
            let kept_from = whole_segments(env, env.log_is_kept_from());
            if room.is_due(sync::now_ns(), kept_from) {
                let oldest = env.engine().log.oldest_lsn();
                let _ = env.checkpoint();
                let has_made_room = env.engine().log.oldest_lsn() > oldest;
                room.made(sync::now_ns(), has_made_room, kept_from);
            }
        }
        let _ = env.checkpoint_if_due();
    }
}

/// Where the segment of this LSN begins: log is given up by segments, and a checkpoint's own record makes none free.
fn whole_segments(env: &Inner, lsn: Lsn) -> Lsn {
    Lsn(lsn.0 - lsn.0 % env.effective.log_segment_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOLDERS: (Lsn, u32) = (Lsn(4096), 1);
    const TAIL: Lsn = Lsn(1 << 20);

    /// How many rounds of `took_ns` that free nothing there are in `all_ns`, if somebody looks each period.
    fn rounds(all_ns: u64, took_ns: u64, holders: impl Fn(u64) -> (Lsn, u32)) -> u64 {
        let (mut now_ns, mut count, mut rest) = (1, 0, Rest::none());
        while now_ns < all_ns {
            if rest.is_over(now_ns, holders(now_ns), Lsn(0)) {
                rest.begin(now_ns, now_ns + took_ns, Some(false), holders(now_ns + took_ns), Lsn(0));
                now_ns += took_ns;
                count += 1;
            }
            now_ns += PERIOD_NS;
        }
        count
    }

    #[test]
    fn what_stays_held_is_looked_at_less_and_less_often() {
        const HOUR_NS: u64 = 3_600_000_000_000;
        assert!(rounds(HOUR_NS, 1_000_000, |_| HOLDERS) < 80);
        assert!(rounds(HOUR_NS, 10_000_000_000, |_| HOLDERS) < 20);
        // However much changes beside it, a twentieth of the time is all that it takes.
        let busy = |now_ns| (Lsn(now_ns), 3);
        assert!(rounds(HOUR_NS, 1_000_000_000, busy) <= 3600 / 20);
        assert!(rounds(HOUR_NS, 1_000_000, busy) > 10_000);
    }

    #[test]
    fn a_change_ends_the_rest() {
        let mut rest = Rest::none();
        let mut now_ns = 0;
        for _ in 0..30 {
            now_ns += 2 * Rest::PAUSE_NS_MAX;
            assert!(rest.is_over(now_ns, HOLDERS, TAIL));
            rest.begin(now_ns, now_ns + 1000, Some(false), HOLDERS, TAIL);
        }
        now_ns += PERIOD_NS;
        assert!(!rest.is_over(now_ns, HOLDERS, TAIL));
        assert!(rest.is_over(now_ns, (Lsn(4096), 0), TAIL), "a transaction has ended");
        rest.begin(now_ns, now_ns + 1000, Some(false), HOLDERS, TAIL);
        rest.shorten();
        assert!(rest.is_over(now_ns + PERIOD_NS, HOLDERS, TAIL), "somebody asked");
        let long_ns = 100 * PERIOD_NS;
        rest.begin(now_ns, now_ns + long_ns, Some(false), HOLDERS, TAIL);
        rest.shorten();
        assert!(!rest.is_over(now_ns + 2 * long_ns, HOLDERS, TAIL), "asked after a long round");
        assert!(rest.is_over(now_ns + (1 + Rest::PAUSE_ROUNDS) * long_ns, HOLDERS, TAIL), "asked long after it");
        rest.begin(now_ns, now_ns + PERIOD_NS, Some(true), HOLDERS, TAIL);
        assert!(rest.is_over(now_ns + PERIOD_NS, HOLDERS, TAIL), "something was freed");
    }

    #[test]
    fn what_is_dropped_meanwhile_does_not_pile_up() {
        const LONG_NS: u64 = 1_000_000_000;
        let grown = Lsn(TAIL.0 + Rest::GROWTH_BYTES);
        let mut rest = Rest::none();
        rest.begin(0, LONG_NS, Some(false), HOLDERS, TAIL);
        assert!(!rest.is_over(LONG_NS + PERIOD_NS, (Lsn(8192), 1), grown), "it has just looked for as long");
        let soon_ns = 2 * LONG_NS + PERIOD_NS;
        assert!(!rest.is_over(soon_ns, (Lsn(8192), 1), TAIL), "it took long, and not much can have been dropped");
        assert!(!rest.is_over(soon_ns, HOLDERS, grown), "the same reader holds it");
        assert!(!rest.is_over(soon_ns, (Lsn(4096), 2), grown), "it is still the oldest");
        assert!(rest.is_over(soon_ns, (Lsn(8192), 1), grown));
    }

    #[test]
    fn a_round_that_only_waited_is_tried_again_soon() {
        const LONG_NS: u64 = 5_000_000_000;
        let mut rest = Rest::none();
        rest.begin(0, LONG_NS, None, HOLDERS, TAIL);
        assert!(rest.is_over(2 * LONG_NS + PERIOD_NS, HOLDERS, TAIL));
        // What fails again and again is tried less and less often.
        for _ in 0..30 {
            rest.begin(0, LONG_NS, None, HOLDERS, TAIL);
        }
        assert!(!rest.is_over(LONG_NS + 100 * PERIOD_NS, HOLDERS, TAIL));
    }

    /// Somebody asks each period, the holders are others each time, and the log grows by much.
    fn part_at_work(took_ns: u64, has_freed: Option<bool>) -> f64 {
        const HOUR_NS: u64 = 3_600_000_000_000;
        let (mut now_ns, mut worked_ns, mut rest) = (1, 0, Rest::none());
        while now_ns < HOUR_NS {
            let (holders, tail) = (|now_ns| (Lsn(now_ns), 3), |now_ns| Lsn(now_ns << 4));
            rest.shorten();
            if rest.is_over(now_ns, holders(now_ns), tail(now_ns)) {
                let began_ns = now_ns;
                now_ns += took_ns;
                worked_ns += took_ns;
                rest.begin(began_ns, now_ns, has_freed, holders(now_ns), tail(now_ns));
            }
            now_ns += PERIOD_NS;
        }
        worked_ns as f64 / HOUR_NS as f64
    }

    #[test]
    fn whatever_goes_on_beside_it_a_round_in_vain_takes_half_of_the_time_at_most() {
        for took_ns in [10_000_000, 1_000_000_000, 20_000_000_000] {
            for has_freed in [Some(false), None] {
                let part = part_at_work(took_ns, has_freed);
                assert!(part <= 0.51, "{took_ns} {has_freed:?}: {part}");
            }
        }
    }

    #[test]
    fn somebody_who_lacks_room_does_not_wait_for_a_long_rest() {
        const LONG_NS: u64 = 1_000_000_000;
        let mut rest = Rest::none();
        for _ in 0..10 {
            rest.begin(0, LONG_NS, Some(false), HOLDERS, TAIL);
        }
        rest.hurry();
        assert!(!rest.is_over(2 * LONG_NS - 1, HOLDERS, TAIL), "as long as the round at least");
        assert!(rest.is_over(2 * LONG_NS, HOLDERS, TAIL));
        rest.begin(0, LONG_NS, Some(false), HOLDERS, TAIL);
        assert!(!rest.is_over(2 * LONG_NS, HOLDERS, TAIL), "asked once for one round");
    }

    #[test]
    fn a_process_that_was_stopped_during_a_round_does_not_rest_for_days() {
        const DAY_NS: u64 = 86_400_000_000_000;
        for has_freed in [Some(false), None] {
            let mut rest = Rest::none();
            rest.begin(0, DAY_NS, has_freed, HOLDERS, TAIL);
            assert!(!rest.is_over(DAY_NS + Rest::ROUNDS_NS_MAX / 2, (Lsn(8192), 0), TAIL), "{has_freed:?}");
            assert!(rest.is_over(DAY_NS + Rest::ROUNDS_NS_MAX, HOLDERS, TAIL), "{has_freed:?}");
        }
    }
}
