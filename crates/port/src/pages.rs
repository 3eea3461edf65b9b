//! Pages by reference: bulk data between processes of one host without a copy (paper 002, section 5).
//!
//! ```text
//! pages file      page_count pages of page_bytes; the owner writes, sealed so that nobody else can
//! holders file    word p: bit h: receiver h has page p
//! message         flag 1; payload: 0 id of the pages u64, 8 page u32, 12 length u32
//! ```
//!
//! G1. The owner sets the bit before it sends the reference, and the receiver clears it when it is done. A page with a
//!     bit is not written.
//! G2. A number h belongs to one connection. When the connection has ended, however, the owner takes its bits back.
//! G3. The receiver checks id, page, length and its own bit against what it was told when it mapped the pages.

use crate::atomic::{AtomicU64, Ordering};
use crate::bytes::load_bytes;
use crate::error::{MessageError, OpenError, SendError, SystemError};
use crate::lane::{LaneSender, Link};
use crate::link::{HOLDERS_MAX, Offer, PAGE_BYTES_MAX, PAGE_COUNT_MAX};
use crate::memory::Mapping;
use crate::wait::Patience;
use rustix::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicU64 as Counter;

const REFERENCE_BYTES: usize = 16;

/// Pages in shared memory that this process fills and lends to the owners of ports.
///
/// ```
/// # use ledgerstone_port::*;
/// # let directory = tempfile::tempdir()?;
/// # let host = Host::at(directory.path(), Site(1))?;
/// # let ours = host.address(Instance(0), ServerType(1), ServerInstance(0));
/// # let mut port = host.open_port(ours, PortOptions::default())?;
/// # let mut sender = host.connect(ours, ours)?;
/// let mut pages = Pages::create(64 * 1024, 16)?;
/// let mut page = pages.take().expect("a page that nobody has");
/// page[..5].copy_from_slice(b"bytes");
/// page.share(5).send(&mut sender)?;
///
/// let page = port.receive().page()?; // no byte was copied
/// assert_eq!(page.to_vec(), b"bytes");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Pages {
    id: u64,
    page_bytes: u32,
    page_count: u32,
    memory: Mapping,
    file: OwnedFd,
    holders: Mapping,
    holders_file: OwnedFd,
    receivers: Vec<Option<Arc<Link>>>,
    /// The page to look at first.
    next: u32,
}

impl Offer {
    fn page_words(self) -> usize {
        self.page_bytes as usize / 8 * self.page_count as usize
    }
}

impl Pages {
    /// The largest page.
    pub const PAGE_BYTES_MAX: u32 = PAGE_BYTES_MAX;
    /// The most pages.
    pub const PAGE_COUNT_MAX: u32 = PAGE_COUNT_MAX;

    /// Makes pages of `page_bytes` each, a multiple of 4,096.
    ///
    /// # Errors
    /// If the numbers are out of bounds, or memory is short.
    pub fn create(page_bytes: u32, page_count: u32) -> Result<Pages, OpenError> {
        static NEXT: Counter = Counter::new(0);
        // Unique among the senders of a connection, which are of one process.
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        let offer = Offer { id, holder: 0, page_bytes, page_count };
        if !offer.is_valid() {
            let (what, value, allowed) = if page_bytes.is_multiple_of(4096) && page_bytes <= Pages::PAGE_BYTES_MAX {
                ("page_count", page_count, "1 to 65536")
            } else {
                ("page_bytes", page_bytes, "a multiple of 4096 up to 16 MiB")
            };
            return Err(OpenError::Options { what, value: u64::from(value), allowed });
        }
        let (file, memory) = Mapping::create_ours("ledgerstone-pages", offer.page_words())?;
        let (holders_file, holders) = Mapping::create("ledgerstone-page-holders", 0, page_count as usize)?;
        Ok(Pages { id, page_bytes, page_count, memory, file, holders, holders_file, receivers: Vec::new(), next: 0 })
    }

    /// Bytes of a page.
    pub fn page_bytes(&self) -> u32 {
        self.page_bytes
    }

    /// A page that nobody has, to be filled. `None` if receivers still have all of them.
    pub fn take(&mut self) -> Option<PageMut<'_>> {
        let no = self.find_free().or_else(|| {
            self.forget_the_dead();
            self.find_free()
        })?;
        self.next = (no + 1) % self.page_count;
        Some(PageMut { pages: self, no })
    }

    /// Pages that receivers have.
    pub fn lent(&mut self) -> usize {
        self.forget_the_dead();
        // Relaxed: only counted.
        self.holders.words().iter().filter(|holders| holders.load(Ordering::Relaxed) != 0).count()
    }

    fn find_free(&self) -> Option<u32> {
        let holders = self.holders.words();
        let mut order = (self.next..self.page_count).chain(0..self.next);
        // Pairs with the Release in `Page::drop`: the receiver has done reading.
        order.find(|no| holders[*no as usize].load(Ordering::Acquire) == 0)
    }

    /// Takes back the bits of connections that ended (G2).
    fn forget_the_dead(&mut self) {
        for (holder, receiver) in self.receivers.iter_mut().enumerate() {
            if receiver.as_ref().is_some_and(|link| link.is_closed()) {
                *receiver = None;
                for holders in self.holders.words() {
                    holders.fetch_and(!(1 << holder), Ordering::Acquire);
                }
            }
        }
    }

    /// The number of the receiver at the other end; offers it the pages if it does not have them yet.
    fn holder(&mut self, lane: &LaneSender) -> Result<usize, SendError> {
        let is_it = |receiver: &Option<Arc<Link>>| receiver.as_ref().is_some_and(|link| Arc::ptr_eq(link, lane.link()));
        if let Some(holder) = self.receivers.iter().position(is_it) {
            return Ok(holder);
        }
        self.forget_the_dead();
        let holder = match self.receivers.iter().position(Option::is_none) {
            Some(free) => free,
            None if self.receivers.len() < HOLDERS_MAX => {
                self.receivers.push(None);
                self.receivers.len() - 1
            }
            None => return Err(SendError::ReceiversExhausted { receivers_max: HOLDERS_MAX }),
        };
        let (page_bytes, page_count) = (self.page_bytes, self.page_count);
        let offer = Offer { id: self.id, holder: holder as u32, page_bytes, page_count };
        lane.offer(offer, &self.file, &self.holders_file)?;
        self.receivers[holder] = Some(Arc::clone(lane.link()));
        Ok(holder)
    }
}

/// A page to be filled: dereferences to its bytes, which are whatever was there before.
pub struct PageMut<'p> {
    pages: &'p mut Pages,
    no: u32,
}

impl<'p> PageMut<'p> {
    /// The page is filled, its first `len` bytes (at most all) are what is sent.
    pub fn share(self, len: usize) -> PageShare<'p> {
        let len = len.min(self.pages.page_bytes as usize) as u32;
        PageShare { pages: self.pages, no: self.no, len }
    }

    fn start(&self) -> std::ptr::NonNull<u8> {
        let bytes = self.pages.page_bytes as usize;
        self.pages.memory.bytes_at(self.no as usize * (bytes / 8), bytes)
    }
}

impl std::ops::Deref for PageMut<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: inside the mapping; nobody else can write (sealed), and nobody reads a page without a bit (G1).
        unsafe { std::slice::from_raw_parts(self.start().as_ptr(), self.pages.page_bytes as usize) }
    }
}

impl std::ops::DerefMut for PageMut<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and we borrow the pages mutably.
        unsafe { std::slice::from_raw_parts_mut(self.start().as_ptr(), self.pages.page_bytes as usize) }
    }
}

/// A filled page, to be sent to as many as you like. It is free again when the last of them is done with it.
pub struct PageShare<'p> {
    pages: &'p mut Pages,
    no: u32,
    len: u32,
}

impl PageShare<'_> {
    /// Sends the reference over a lane, as [`PageShare::send`] says.
    pub(crate) fn send_on(&mut self, lane: &mut LaneSender) -> Result<(), SendError> {
        let bit = 1 << self.pages.holder(lane)?;
        let mut reference = [0; REFERENCE_BYTES];
        reference[..8].copy_from_slice(&self.pages.id.to_le_bytes());
        reference[8..12].copy_from_slice(&self.no.to_le_bytes());
        reference[12..].copy_from_slice(&self.len.to_le_bytes());
        lane.wait_for_room(REFERENCE_BYTES, Patience::Endless)?;
        self.pages.holders.words()[self.no as usize].fetch_or(bit, Ordering::Relaxed); // Released by the message.
        lane.send_reference(&reference);
        Ok(())
    }
}

/// Addresses that the pages of others take in this process, and how many they may take. That is a quarter of what a
/// process has, so that no number of senders can take all of them.
static MAPPED_BYTES: Counter = Counter::new(0);
const MAPPED_BYTES_MAX: u64 = 1 << 45;

/// Another process's pages, as a receiver has them.
pub(crate) struct Incoming {
    offer: Offer,
    memory: Mapping,
    holders: Mapping,
    space: Space,
}

/// So many bytes of our addresses, until it is dropped.
struct Space(u64);

impl Space {
    fn take(bytes: u64) -> Option<Space> {
        let taken = Space(bytes); // Given back if it was too much.
        // Relaxed: only counted.
        let before = MAPPED_BYTES.fetch_add(bytes, Ordering::Relaxed);
        (before.saturating_add(bytes) <= MAPPED_BYTES_MAX).then_some(taken)
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        MAPPED_BYTES.fetch_sub(self.0, Ordering::Relaxed); // As above.
    }
}

impl Incoming {
    pub(crate) fn map(offer: Offer, file: &OwnedFd, holders_file: &OwnedFd) -> Result<Incoming, SystemError> {
        if !offer.is_valid() {
            return Err(SystemError::new("offer of pages", rustix::io::Errno::INVAL));
        }
        let space = Space::take(offer.bytes()).ok_or(SystemError::new("offer of pages", rustix::io::Errno::NOMEM))?;
        let memory = Mapping::attach(file, 0, offer.page_words(), false)?;
        let holders = Mapping::attach(holders_file, 0, offer.page_count as usize, true)?;
        Ok(Incoming { offer, memory, holders, space })
    }

    /// Bytes of our addresses that it takes.
    pub(crate) fn bytes(&self) -> u64 {
        self.space.0
    }
}

/// A page of another process, lent to this one. The owner can fill it again when this is dropped.
pub struct Page {
    pages: Arc<Incoming>,
    no: u32,
    len: u32,
}

impl Page {
    /// Checks a reference (G3).
    pub(crate) fn from_reference(bytes: &[u8], known: &[Arc<Incoming>]) -> Result<Page, MessageError> {
        let bytes: &[u8; REFERENCE_BYTES] = bytes.try_into().map_err(|_| MessageError::NoPage)?;
        let (id, rest) = bytes.split_first_chunk::<8>().ok_or(MessageError::NoPage)?;
        let (no, len) = rest.split_first_chunk::<4>().ok_or(MessageError::NoPage)?;
        let (id, no) = (u64::from_le_bytes(*id), u32::from_le_bytes(*no));
        let len = u32::from_le_bytes(len.try_into().map_err(|_| MessageError::NoPage)?);
        let pages = known.iter().find(|pages| pages.offer.id == id).ok_or(MessageError::NoPage)?;
        let offer = pages.offer;
        let is_ours = |holders: &AtomicU64| holders.load(Ordering::Relaxed) >> offer.holder & 1 == 1;
        if no >= offer.page_count || len > offer.page_bytes || !is_ours(&pages.holders.words()[no as usize]) {
            return Err(MessageError::NoPage);
        }
        Ok(Page { pages: Arc::clone(pages), no, len })
    }

    /// Bytes of the page that are meant.
    #[allow(clippy::len_without_is_empty, reason = "an empty page is a page")]
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Copies the first bytes into `into`, and returns how many it copied. This is safe whatever the owner does.
    pub fn copy_to(&self, into: &mut [u8]) -> usize {
        let len = self.len().min(into.len());
        load_bytes(&self.pages.memory.words()[self.first_word()..], &mut into[..len]);
        len
    }

    /// A copy of the bytes.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len()];
        self.copy_to(&mut bytes);
        bytes
    }

    /// The bytes where they are, without a copy.
    ///
    /// # Safety
    /// The owner of the pages does not write the page while it is lent. An owner that uses this library never does, so
    /// this is right for owners that are trusted as one trusts oneself.
    pub unsafe fn bytes_in_place(&self) -> &[u8] {
        let start = self.pages.memory.bytes_at(self.first_word(), self.len());
        // SAFETY: inside the mapping (asserted there), which lives as long as `self`; not written while it is lent, by
        // the promise of the caller and by G1.
        unsafe { std::slice::from_raw_parts(start.as_ptr(), self.len()) }
    }

    fn first_word(&self) -> usize {
        self.no as usize * (self.pages.offer.page_bytes as usize / 8)
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        let holders = &self.pages.holders.words()[self.no as usize];
        holders.fetch_and(!(1 << self.pages.offer.holder), Ordering::Release); // Pairs with `Pages::find_free`.
    }
}

impl std::fmt::Debug for Page {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Page").field("no", &self.no).field("len", &self.len).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Pages {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Pages { page_bytes, page_count, .. } = self;
        f.debug_struct("Pages").field("page_bytes", page_bytes).field("page_count", page_count).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_number_of_offers_takes_all_addresses() {
        let offer = Offer { id: 1, holder: 0, page_bytes: Pages::PAGE_BYTES_MAX, page_count: Pages::PAGE_COUNT_MAX };
        let taken: Vec<_> = std::iter::from_fn(|| Space::take(offer.bytes())).take(1000).collect();
        assert!((30..=32).contains(&taken.len()), "{}", taken.len());
        drop(taken);
        assert!(Space::take(offer.bytes()).is_some());
    }
}
