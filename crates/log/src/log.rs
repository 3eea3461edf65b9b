//! The log itself: opening it, its positions, its failure and its numbers.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use std::sync::{Arc, OnceLock};

use ledgerstone_disk::{AlignedBuf, DiskError};
use ledgerstone_page::{Lsn, OpId, Xid};
use ledgerstone_region::sync::{self, JoinHandle, ThreadMark};
use ledgerstone_region::{ForkMark, Handle, Latch, SlotNo, SlotTable};
use ledgerstone_region::{Mutex, atomic};

use crate::EnvironmentId;
use crate::config::LogConfig;
use crate::control::ControlFile;
use crate::error::{LogError, Malformed};
use crate::flush::write_buffer_bytes;
use crate::group_commit::GroupCommit;
use crate::handle_table::HandleTable;
use crate::notifier::Waiting;
use crate::own::Own;
use crate::pins::Pins;
use crate::places::Places;
use crate::probe::{Beginning, Whose, first_record};
use crate::record::{FIRST_LSN, LSN_LIMIT, NewRecord, RecordKind};
use crate::ring;
use crate::room::LOOK_NS;
use crate::scan::LogScan;
use crate::seal::{Seal, Seals};
use crate::segment::{BLOCK_BYTES, LOG_DIR, NoSegment, Segments};
use crate::state::LogState;

/// The log of an environment. Shared by all threads through an `Arc`.
pub struct Log {
    pub(crate) state: Handle<LogState>,
    pub(crate) ring: Handle<[atomic::AtomicU64]>,
    /// What each thread slot has of the log.
    pub(crate) own: Handle<[Own]>,
    pub(crate) slots: Arc<SlotTable>,
    /// Some slot of this process, once a thread has come with one.
    pub(crate) a_slot: OnceLock<SlotNo>,
    pub(crate) segments: Segments,
    pub(crate) environment: EnvironmentId,
    /// For the records that are appended.
    pub(crate) seal: Seal,
    /// From which LSN on which seal is in force; ascending, never empty.
    pub(crate) eras: Vec<(u64, Seal)>,
    /// Smaller LSNs were never in this buffer.
    pub(crate) first_in_ring: u64,
    /// Behind the record that begins the incarnation.
    pub(crate) begun: u64,
    pub(crate) claim_bytes_max: u64,
    pub(crate) kept_claim_bytes: u64,
    pub(crate) long_kept_bytes: u64,
    pub(crate) long_keeper_count: u32,
    pub(crate) group: GroupCommit,
    pub(crate) async_delay_ns: u64,
    pub(crate) spare_segments: u64,
    /// The leader's; taken out while it writes (W5).
    pub(crate) write_buffer: Mutex<Option<AlignedBuf>>,
    /// Who wants to know when which LSN is durable.
    pub(crate) waiting: Arc<Waiting>,
    pub(crate) cause: Mutex<Option<Arc<DiskError>>>,
    pub(crate) flusher: Mutex<Option<JoinHandle<()>>>,
    /// Which thread it is or was.
    pub(crate) flusher_mark: Mutex<Option<ThreadMark>>,
    pub(crate) flusher_stops: AtomicBool,
    /// Not 0: the thread has its slot, or none was free.
    pub(crate) flusher_began: atomic::AtomicU32,
    /// Who holds the log back. Held for a look or a change only.
    pub(crate) pins: Mutex<Pins>,
    /// What this handle tells other processes.
    pub(crate) handles: Arc<HandleTable>,
    pub(crate) control: Option<Arc<ControlFile>>,
    pub(crate) disk: Arc<dyn ledgerstone_disk::Disk>,
    /// As it was asked for.
    #[cfg(feature = "deaths")]
    pub(crate) kept_claim_count: u32,
    /// What its repairs leave out.
    #[cfg(feature = "deaths")]
    pub(crate) forgotten: Option<crate::planted::Part>,
    /// See [`Log::leave`].
    pub(crate) has_left: AtomicBool,
    /// Tells the process that opened it from its children, which must neither wait for it nor write it.
    pub(crate) fork: ForkMark,
}

/// What a log has done since it was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogStat {
    /// Bytes appended.
    pub appended_bytes: u64,
    /// Records made durable.
    pub record_count: u64,
    /// Flushes.
    pub flush_count: u64,
    /// Bytes written to the device, blocks rewritten included.
    pub written_bytes: u64,
    /// Time that the writes took.
    pub write_ns: u64,
    /// Waits for durability that flushes ended. Divided by `flush_count`, this is the size of a group.
    pub grouped_count: u64,
    /// The largest group.
    pub group_count_max: u64,
    /// Claims that had to wait for space.
    pub claim_wait_count: u64,
    /// Bytes claimed now and not used.
    pub claimed_bytes: u64,
    /// Segments that are there now.
    pub segment_count: u64,
}

impl Log {
    /// Opens the log for appending at `config.end`. Makes the segment for it if it is missing, and appends the record
    /// of the new incarnation, which becomes durable with the first flush. Waits for the device.
    ///
    /// # Errors
    /// A setting that cannot work, no space, the disk's errors.
    pub fn open(config: LogConfig) -> Result<Arc<Log>, LogError> {
        config.check()?;
        let places = Places::of(&config)?;
        let (state, ring) = (&places.state, &places.ring);
        let segments = Segments::new(Arc::clone(&config.disk), config.segment_bytes, false);
        if !config.is_read_only {
            segments.prepare_dir()?;
        }
        let end = config.end.0;
        let (oldest, prepared_end) = open_segments(&segments, end, config.is_read_only)?;
        let block = end & !(BLOCK_BYTES - 1);
        if block < end {
            ring::preload(ring, block, &read_surely(&segments, block)?[..(end - block) as usize]);
        }
        for word in [&state.tail, &state.claim_head, &state.first, &state.durable] {
            word.store(end, SeqCst);
        }
        state.flushing_to.store(u64::MAX, SeqCst);
        state.zero_begun.store(end + config.buffer_bytes / 2, SeqCst);
        state.zeroed_limit.store(end + config.buffer_bytes / 2, SeqCst);
        state.prepared_end.store(prepared_end, SeqCst);
        state.oldest.store(oldest.max(FIRST_LSN.0), SeqCst);
        state.gone_below.store(oldest, SeqCst);

        let seal = Seal::new(config.env_id, config.incarnation);
        let mut eras: Vec<_> =
            config.incarnations.iter().map(|&(from, number)| (from.0, Seal::new(config.env_id, number))).collect();
        if eras.last().is_none_or(|(_, last)| *last != seal) {
            eras.push((end, seal));
        }
        let shared_settings = (config.segment_bytes, config.kept_claim_count);
        let (is_read_only, next, opened) = (config.is_read_only, config.next_incarnation, places.opened.clone());
        let mut log = Log::with(config, places, (seal, eras), end)?;
        if !is_read_only {
            log.name_segments_below(prepared_end)?;
        }
        if let Some(next) = next {
            log.begin_incarnation(next)?;
        }
        opened.fill(log.begun, &log.eras, log.seal.incarnation(), shared_settings);
        Ok(Arc::new(log))
    }

    /// The log of a region that another process has made, as [`Log::open`] has left it there. Where it ends and under
    /// which incarnation is asked of the region, and not of `config`. What else that says is as it was said there.
    ///
    /// # Errors
    /// As [`Region::place`](ledgerstone_region::Region::place). [`LogError::Setting`]: one that all have to share.
    pub fn join(config: LogConfig) -> Result<Arc<Log>, LogError> {
        Log::joined(config).map(Arc::new)
    }

    pub(crate) fn joined(config: LogConfig) -> Result<Log, LogError> {
        let places = Places::of(&config)?;
        places.opened.check(&config)?;
        let begun = places.opened.begun.load(Relaxed); // Whoever joins has been let in since.
        let seal = Seal::new(config.env_id, places.opened.incarnation.load(Relaxed));
        let of = |(from, number)| (from, Seal::new(config.env_id, number));
        let mut eras: Vec<_> = places.opened.eras().map(of).collect();
        if eras.is_empty() {
            eras.push((begun, seal)); // Nobody opens a log without, but a region can be damaged.
        }
        Log::with(config, places, (seal, eras), begun)
    }

    fn with(
        config: LogConfig,
        Places { state, ring, slots, own, handles, opened: _ }: Places,
        (seal, eras): (Seal, Vec<(u64, Seal)>),
        begun: u64,
    ) -> Result<Log, LogError> {
        let handles = Arc::new(HandleTable::new(handles, Arc::clone(&slots)));
        Ok(Log {
            first_in_ring: state.first.load(Relaxed), // Set once.
            waiting: Arc::new(Waiting::new(state.clone(), Arc::clone(&slots), Arc::clone(&handles))),
            state,
            ring,
            own,
            slots,
            a_slot: OnceLock::new(),
            segments: Segments::new(Arc::clone(&config.disk), config.segment_bytes, false),
            environment: config.env_id,
            seal,
            eras,
            begun,
            claim_bytes_max: config.claim_bytes_max(),
            kept_claim_bytes: config.kept_claim_bytes(),
            long_kept_bytes: config.long_kept_bytes(),
            long_keeper_count: config.long_keeper_count(),
            group: config.group,
            async_delay_ns: config.async_delay_ns,
            spare_segments: config.spare_segments,
            write_buffer: Mutex::new(Some(AlignedBuf::new(write_buffer_bytes(config.buffer_bytes)))),
            cause: Mutex::new(None),
            flusher: Mutex::new(None),
            flusher_mark: Mutex::new(None),
            flusher_stops: AtomicBool::new(false),
            flusher_began: atomic::AtomicU32::new(0),
            pins: Mutex::new(Pins::default()),
            handles,
            #[cfg(feature = "deaths")]
            kept_claim_count: config.kept_claim_count,
            control: config.control,
            disk: config.disk,
            #[cfg(feature = "deaths")]
            forgotten: None,
            has_left: AtomicBool::new(false),
            fork: ForkMark::new()?,
        })
    }

    /// Appends the record that puts `next` in force, sealed for the incarnation before, and seals with it from then on.
    fn begin_incarnation(&mut self, next: u64) -> Result<(), LogError> {
        let body = next.to_le_bytes();
        let record = NewRecord {
            kind: RecordKind::Incarnation,
            xid: Xid(0),
            prev_lsn: Lsn(0),
            op: OpId(0),
            flags: 0,
            page: None,
            body: &[&body],
        };
        // An environment that has used up its LSNs is opened still.
        let mut claim = self.claim_undo(record.len_bytes())?;
        self.append(&mut claim, &record);
        self.give_back(claim);
        self.seal = Seal::new(self.environment, next);
        self.begun = self.tail().0;
        self.eras.push((self.begun, self.seal));
        Ok(())
    }

    /// Where the next record will be reserved. Sequentially consistent, as marks of dirty pages and transactions need
    /// it that are set before a record is reserved.
    #[inline]
    pub fn tail(&self) -> Lsn {
        Lsn(self.state.tail.load(SeqCst))
    }

    /// Where the log began when it was opened, behind the record that begins its incarnation. There is nothing below
    /// that must be made durable: all of it is durable except that record, and the record is needed only by later ones.
    /// So a log on a full disk does not grow by one record for each restart.
    #[inline]
    pub fn begun_lsn(&self) -> Lsn {
        Lsn(self.begun)
    }

    /// Whether anything was appended since it was opened, but for the record that begins its incarnation.
    #[inline]
    pub fn has_news(&self) -> bool {
        self.tail() > self.begun_lsn()
    }

    /// Records that begin below are durable (W1).
    #[inline]
    pub fn durable_lsn(&self) -> Lsn {
        Lsn(self.state.durable.load(Acquire))
    }

    /// Whether the record that begins at `lsn` is durable.
    #[inline]
    pub fn is_durable(&self, lsn: Lsn) -> bool {
        self.durable_lsn() > lsn
    }

    /// The oldest LSN that is kept.
    pub fn oldest_lsn(&self) -> Lsn {
        Lsn(self.state.oldest.load(Acquire))
    }

    /// The incarnation that the records appended now belong to.
    pub fn incarnation(&self) -> u64 {
        self.seal.incarnation()
    }

    /// The incarnation in force at `lsn`: what a scan that begins there needs. Below all that is known, the oldest
    /// known.
    pub fn incarnation_at(&self, lsn: Lsn) -> u64 {
        self.seal_at(lsn.0).unwrap_or(self.eras[0].1).incarnation()
    }

    pub(crate) fn seal_at(&self, lsn: u64) -> Option<Seal> {
        let behind = self.eras.partition_point(|(from, _)| *from <= lsn);
        behind.checked_sub(1).map(|no| self.eras[no].1)
    }

    /// The seals that a record at `lsn` can have: one, or those of all incarnations up to the oldest that is known.
    pub(crate) fn seals_at(&self, lsn: u64) -> Seals {
        let (oldest, newest) = match self.seal_at(lsn) {
            Some(seal) => (seal.incarnation(), seal.incarnation()),
            None => (1, self.eras[0].1.incarnation()),
        };
        Seals::new(self.environment, oldest, newest)
    }

    /// The first place from `lsn` on where a record is known to begin, or the log to end.
    pub(crate) fn known_from(&self, lsn: u64) -> Option<u64> {
        let behind = self.eras.partition_point(|(from, _)| *from < lsn);
        self.eras.get(behind).map(|(from, _)| *from)
    }

    /// The first record at or behind `from` that is durable, with its incarnation. `None`: none begins within the
    /// length of the longest record.
    ///
    /// # Errors
    /// The disk's.
    pub fn beginning_from(&self, from: Lsn) -> Result<Option<Beginning>, LogError> {
        let (seals_at, known_from) = (&|lsn| self.seals_at(lsn), &|lsn| self.known_from(lsn));
        let whose = Whose { environment: self.environment, seals_at, known_from, is_to_be_whole: true };
        first_record(&self.segments, &whose, from, self.durable_lsn())
    }

    /// Bytes of a segment.
    pub fn segment_bytes(&self) -> u64 {
        self.segments.segment_bytes()
    }

    /// The longest claim that can be granted.
    pub fn claim_bytes_max(&self) -> u64 {
        self.claim_bytes_max
    }

    /// A scan from `from` to the end of what is durable now. [`LogScan::set_limit`] lets it go on from there.
    ///
    /// # Errors
    /// There is no segment for `from`.
    pub fn scan(&self, from: Lsn) -> Result<LogScan, LogError> {
        let (disk, bytes) = (Arc::clone(&self.disk), self.segments.segment_bytes());
        let mut scan = LogScan::new(disk, self.environment, bytes, from, self.incarnation_at(from))?;
        scan.set_limit(self.durable_lsn());
        Ok(scan)
    }

    /// What [`Log::recycle_before`] would give up now: from where to where. Empty if both are the same.
    pub fn to_give_up(&self, lsn: Lsn) -> (Lsn, Lsn) {
        let state = &*self.state;
        let limit = lsn.0.min(state.durable.load(Acquire));
        let start = self.segments.start_of(state.oldest.load(SeqCst));
        self.refresh_pins();
        let low = self.lowest_pinned(limit);
        (Lsn(start), Lsn(self.segments.start_of(low).max(start)))
    }

    /// Gives up records that begin below `lsn` and that are not pinned ([`Log::pin`]). Their segments become spare ones
    /// for later, or are removed. Waits for the device. Returns how many segments were given up.
    ///
    /// # Errors
    /// A failure of the disk. The next call goes on with the segment at which this one failed, whatever its `lsn`.
    /// [`LogError::Region`]: the thread has no slot, and none is free.
    pub fn recycle_before(&self, lsn: Lsn) -> Result<u64, LogError> {
        self.check_failed()?;
        let me = self.me()?;
        let state = &*self.state;
        let bytes = self.segments.segment_bytes();
        let limit = lsn.0.min(state.durable.load(Acquire));
        let mut count = 0;
        loop {
            // The latch for each: a claim that waits for a segment waits for one of these, not for all.
            let inside = self.latch_segments(me)?;
            let start = state.gone_below.load(Relaxed);
            // If a call before has failed at it, it goes first: none may be missing behind it (F8).
            let is_again = start < self.segments.start_of(state.oldest.load(Relaxed));
            if !is_again {
                if start + bytes > limit {
                    return Ok(count);
                }
                self.refresh_pins();
                if !self.giving_up().give_up_below(start + bytes, || self.lowest_pinned(u64::MAX)) {
                    return Ok(count);
                }
            }
            self.give_up(start, is_again)?;
            state.gone_below.store(start + bytes, SeqCst);
            count += 1;
            inside.let_others_in();
        }
    }

    /// Takes the latch of those who make, rename or remove segments. Waits for the device.
    pub(crate) fn latch_segments(&self, me: SlotNo) -> Result<InSegments<'_>, LogError> {
        let latch = &self.state.segments_latch;
        while latch.exclusive_within(me, LOOK_NS).is_err() {
            self.check_failed()?;
        }
        Ok(InSegments(latch, me))
    }

    /// Under the latch of segments. `is_again`: it may be gone already, and only that not be durable.
    fn give_up(&self, start: u64, is_again: bool) -> Result<(), LogError> {
        let state = &*self.state;
        let bytes = self.segments.segment_bytes();
        let prepared_end = state.prepared_end.load(Relaxed);
        let ahead = prepared_end.saturating_sub(self.segments.start_of(state.tail.load(Relaxed)) + bytes) / bytes;
        let is_wanted = !is_again && ahead < self.spare_segments && prepared_end + bytes <= LSN_LIMIT.0;
        let is_renamed = is_wanted
            && self.segments.file(start)?.len()? >= bytes
            && match self.segments.recycle(start, prepared_end) {
                // Removed like those that nobody wants: it would stay for ever, with a gap behind it (F8).
                Err(NoSegment::Refused(error)) if error.is_no_space() => false,
                renamed => renamed.map(|()| true).map_err(|error| self.explain(error))?,
            };
        if is_renamed {
            self.name_segments_below(prepared_end + bytes)?;
            state.prepared_end.store(prepared_end + bytes, SeqCst);
        } else {
            match self.segments.remove(start) {
                Err(error) if is_again && error.is_not_found() => {}
                removed => removed?,
            }
            // F8. A sync that failed is not tried again and believed. One that had no space had not begun.
            self.disk.sync_dir(LOG_DIR).map_err(|error| match error.is_no_space() {
                true => LogError::Disk(error),
                false => self.explain(NoSegment::Unsure(error)),
            })?;
        }
        Ok(())
    }

    /// F5.
    pub(crate) fn explain(&self, error: NoSegment) -> LogError {
        match error {
            NoSegment::Refused(error) => LogError::Disk(error),
            NoSegment::Unsure(error) => self.fail_with(Some(error)),
        }
    }

    /// Whether space was refused since this was asked last, by any process: a checkpoint may give some up.
    pub fn has_lacked_space(&self) -> bool {
        // A hint: a caller that misses it is told by the next refusal.
        self.state.lacked_space.load(Relaxed) != 0 && self.state.lacked_space.swap(0, Relaxed) != 0
    }

    /// Has the control file name the newest segment, whose name is durable, before anything is written there (F3).
    pub(crate) fn name_segments_below(&self, prepared_end: u64) -> Result<(), LogError> {
        let newest = Lsn(prepared_end - self.segments.segment_bytes());
        match &self.control {
            Some(control) if control.state().newest_segment < newest => {
                let durable = self.durable_lsn();
                Ok(control.change(|state| {
                    state.newest_segment = newest;
                    state.durable_lsn = state.durable_lsn.max(durable);
                })?)
            }
            _ => Ok(()),
        }
    }

    /// Fails the log for good. All waiting threads are woken, and nothing more is written (W3).
    pub fn fail(&self) {
        self.fail_with(None);
    }

    pub(crate) fn fail_with(&self, cause: Option<DiskError>) -> LogError {
        {
            let mut first = self.cause.lock();
            if first.is_none() && self.state.failed.load(SeqCst) == 0 {
                *first = cause.map(Arc::new);
            }
            self.state.failed.store(1, SeqCst);
        }
        self.wake_everybody();
        self.failed_error()
    }

    /// Ends this handle, while others go on: refuses every later call that waits or claims, and wakes those threads and
    /// tasks of this process that wait. The log itself does not change. What they had claimed they give back as ever,
    /// and a pin holds until it is dropped. To be called when no transaction of this handle is open.
    pub fn leave(&self) {
        self.has_left.store(true, SeqCst);
        self.waiting.leave();
        if !self.is_flusher() {
            self.stop_flusher();
        }
        self.wake_everybody(); // Those of other processes look again, and go on.
    }

    /// Whether the log has failed, or this handle has left it, or is another process's, from which this one was forked.
    #[inline]
    pub fn is_failed(&self) -> bool {
        self.state.failed.load(Acquire) != 0 || self.has_left.load(Relaxed) || self.fork.is_inherited()
    }

    /// Whether the log has failed since the disk refused a write or a sync of it.
    #[must_use]
    pub fn is_failed_by_disk(&self) -> bool {
        self.cause.lock().is_some()
    }

    #[inline]
    pub(crate) fn check_failed(&self) -> Result<(), LogError> {
        if self.is_failed() { Err(self.failed_error()) } else { Ok(()) }
    }

    #[cold]
    pub(crate) fn failed_error(&self) -> LogError {
        if self.state.failed.load(SeqCst) == 0 && self.has_left.load(Relaxed) {
            return LogError::Closed;
        }
        LogError::Failed { cause: self.cause.lock().clone() }
    }

    /// Numbers.
    pub fn stat(&self) -> LogStat {
        let state = &*self.state;
        let bytes = self.segments.segment_bytes();
        let tail = state.tail.load(SeqCst);
        LogStat {
            appended_bytes: tail - self.first_in_ring,
            record_count: state.record_count.load(Relaxed),
            flush_count: state.flush_count.load(Relaxed),
            written_bytes: state.written_bytes.load(Relaxed),
            write_ns: state.write_ns.load(Relaxed),
            grouped_count: state.grouped_count.load(Relaxed),
            group_count_max: state.group_count_max.load(Relaxed),
            claim_wait_count: state.claim_wait_count.load(Relaxed),
            claimed_bytes: state.claim_head.load(SeqCst).saturating_sub(tail),
            segment_count: (state.prepared_end.load(Relaxed) - state.gone_below.load(Relaxed)) / bytes,
        }
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        if !self.fork.is_inherited() {
            self.waiting.stop();
            self.handles.leave();
        }
    }
}

/// The latch of segments, held. Given back when dropped.
pub(crate) struct InSegments<'l>(&'l Latch, SlotNo);

impl InSegments<'_> {
    /// Gives the latch back, and whoever sleeps for it a chance to have it before the caller takes it again.
    fn let_others_in(self) {
        let (latch, is_awaited) = (self.0, self.0.is_awaited());
        drop(self);
        let since = latch.version();
        for _ in 0..LET_IN_ROUNDS {
            if !is_awaited || latch.owner().is_some() || latch.version() != since {
                return;
            }
            sync::sleep_ns(LET_IN_NS);
        }
    }
}

impl Drop for InSegments<'_> {
    fn drop(&mut self) {
        // Not if a repair has taken it over: the thread's process counts as dead.
        if self.0.owner() == Some(self.1) {
            self.0.unlatch_exclusive();
        }
    }
}

/// How long whoever was woken may take: it may have died.
const LET_IN_NS: u64 = 20_000;
const LET_IN_ROUNDS: u32 = 50;

/// Threads that can use a log of its own slots.
pub(crate) const OWN_SLOTS: u32 = 256;

/// How often the block is read again.
const SURE_TRIES_MAX: u32 = 3;

/// The block of the log's end, which the first flush writes once more. Nothing proves its records here, and a bit that
/// was read wrong would be written. So two reads have to agree.
fn read_surely(segments: &Segments, block: u64) -> Result<AlignedBuf, LogError> {
    let start = segments.start_of(block);
    let file = segments.file(start)?;
    let [mut bytes, mut again] = [AlignedBuf::new(BLOCK_BYTES as usize), AlignedBuf::new(BLOCK_BYTES as usize)];
    file.read_at(block - start, &mut bytes)?;
    for _ in 0..SURE_TRIES_MAX {
        file.read_at(block - start, &mut again)?;
        if bytes[..] == again[..] {
            return Ok(bytes);
        }
        std::mem::swap(&mut bytes, &mut again);
    }
    let (expected, found) = (crc32c::crc32c(&bytes), crc32c::crc32c(&again));
    Err(LogError::Invalid { lsn: Lsn(block), why: Malformed::Checksum { expected, found } })
}

/// Looks at the segments that are there. Makes the one for `end` if it is missing; removes those behind a gap behind
/// the end, which hold nothing. Those before a gap stay: no crash leaves one there (F8), and an operator who puts back
/// what is missing has all of them again. Returns where the oldest begins and where the last one without a gap ends.
fn open_segments(segments: &Segments, end: u64, is_read_only: bool) -> Result<(u64, u64), LogError> {
    let starts = segments.list()?;
    let bytes = segments.segment_bytes();
    let here = segments.start_of(end);
    let mut oldest = here;
    while oldest > 0 && starts.binary_search(&(oldest - bytes)).is_ok() {
        oldest -= bytes;
    }
    let mut prepared_end = here;
    while starts.binary_search(&prepared_end).is_ok() {
        prepared_end += bytes;
    }
    if is_read_only {
        return Ok((oldest, prepared_end));
    }
    for stray in starts.into_iter().filter(|start| *start > prepared_end) {
        segments.remove(stray)?;
    }
    if prepared_end == here {
        segments.create(here).map_err(|error| match error.into_error() {
            error if error.is_no_space() => LogError::NoSpace { needed: bytes, prepared_end: Lsn(here) },
            error => LogError::Disk(error),
        })?;
        prepared_end += bytes;
    }
    Ok((oldest, prepared_end))
}
