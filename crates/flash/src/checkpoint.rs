//! Fuzzy checkpoints (4.3), the same for every protocol with a log. A checkpoint notes the changed pages and where a
//! restart would begin. Each later commit writes one of these pages, and the checkpoint is over when all are written.
//! Then the next may come.
//!
//! This file knows neither what a change is nor how a page is written.

use crate::Lba;
use crate::buffer::Buffer;
use crate::error::Result;
use crate::ftl::{Core, Protocol};
use crate::log::{Log, LogRecord, RecordKind, force};
use crate::nand::Nand;

/// What is left of the last checkpoint, and when the next one is due.
#[derive(Clone, Debug)]
pub(crate) struct Checkpoints {
    log_pages_max: u32,
    noted: Vec<Lba>,
}

/// What a commit has to do in passing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// To write a page that the last checkpoint has noted.
    Page(Lba),
    /// The next checkpoint.
    Checkpoint,
}

impl Checkpoints {
    /// With so many log pages between two, but at most a 32nd of the device's reserve.
    pub fn new(log_pages_max: u32, reserve_pages: u32) -> Self {
        Self { log_pages_max: log_pages_max.min(reserve_pages / 32), noted: Vec::new() }
    }

    pub fn due(&mut self, log: &Log) -> Option<Due> {
        let next = || (log.pages_since_checkpoint >= self.log_pages_max).then_some(Due::Checkpoint);
        self.noted.pop().map(Due::Page).or_else(next)
    }

    /// Notes the changed pages of a buffer. Returns the lowest of the LSNs since which they have been changed, or
    /// `lsn` if there are none.
    pub fn note<T>(&mut self, lsn: u64, buffer: &mut Buffer<T>, rec_lsn: impl Fn(&T) -> Option<u64>) -> u64 {
        let mut start = lsn;
        for lba in buffer.lbas() {
            if let Some(rec_lsn) = buffer.peek(lba).and_then(|frame| rec_lsn(&frame.state)) {
                start = start.min(rec_lsn);
                self.noted.push(lba);
            }
        }
        start
    }

    /// Nothing that was noted is left to be written.
    pub fn is_over(&mut self) {
        self.noted.clear();
    }
}

/// Tells the log where a restart would begin, and drops the log before.
pub(crate) fn mark<N: Nand, P: Protocol<N> + AsMut<Log>>(
    core: &mut Core<N>,
    owner: &mut P,
    lsn: u64,
    start: u64,
) -> Result<()> {
    let mark = LogRecord { other_lsn: start, ..LogRecord::mark(RecordKind::Checkpoint, 0, lsn) };
    owner.as_mut().append(&mark);
    force(core, owner)?;
    let log = owner.as_mut();
    log.pages_since_checkpoint = 0;
    log.drop_before(core, start);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkpoint_comes_when_the_one_before_has_nothing_left_to_write() {
        let mut buffer = Buffer::new(4);
        for (lba, rec_lsn) in [(7, Some(30)), (8, None), (9, Some(20))] {
            buffer.insert(lba, Box::default(), rec_lsn);
        }
        let mut log = Log::default();
        let mut own = Checkpoints::new(10, 320);
        assert_eq!((own.due(&log), own.note(50, &mut buffer, |rec_lsn| *rec_lsn)), (None, 20));
        log.pages_since_checkpoint = 10;
        let due = [own.due(&log), own.due(&log), own.due(&log)];
        assert_eq!(due, [Some(Due::Page(9)), Some(Due::Page(7)), Some(Due::Checkpoint)]);
        assert_eq!(Checkpoints::new(10, 64).log_pages_max, 2);
    }
}
