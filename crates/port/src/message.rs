//! Messages, as the receiver holds them.

use crate::address::{Address, Xid};
use crate::bytes::load_bytes;
use crate::credentials::Credentials;
use crate::error::MessageError;
use crate::inbox::{Current, Elsewhere, Found, Inbox};
use crate::link::{CARRIED_BYTES, FLAG_CARRIED, FLAG_PAGE};
use crate::listener::Lane;
use crate::pages::Page;
use crate::ring::Header;
use crate::typed::{Kind, Typed};
use std::sync::PoisonError;

/// A message in the receiver's ring. Its buffer is the sender's again when this is dropped.
///
/// Length and type are the receiver's own copy, made and checked once. The bytes are still in memory that the sender
/// can write: a good sender does not, a bad one can change them at any time. So the safe ways to read them copy, and
/// what is checked is the copy.
pub struct Message<'p> {
    /// What it is, is in `current` as long as nobody looks for another one, which we keep everybody from.
    inbox: &'p mut Inbox,
}

impl<'p> Message<'p> {
    #[inline]
    pub(crate) fn new(inbox: &'p mut Inbox, _: Found) -> Message<'p> {
        let mut message = Message { inbox };
        if message.current().lane.is_some() && message.header().flags & FLAG_CARRIED != 0 {
            message.unwrap_carried();
        }
        message
    }

    /// Takes the sender's address off a message of another site.
    #[cold]
    fn unwrap_carried(&mut self) {
        let mut bytes = [0; CARRIED_BYTES];
        let len = self.copy_to(&mut bytes);
        let Some(lane) = self.sender() else { return };
        if let Some(from) = lane.carried_from(self.header(), &bytes[..len]) {
            let peer = Some(lane.peer);
            let current = &mut self.inbox.current;
            current.elsewhere = Some(Elsewhere { from, peer, group: None });
            current.header.len -= CARRIED_BYTES as u32;
            current.skipped_words = CARRIED_BYTES / 8;
        }
    }

    #[inline]
    fn current(&self) -> &Current {
        &self.inbox.current
    }

    /// The lane of a message in place.
    #[inline]
    fn sender(&self) -> Option<&Lane> {
        Some(&self.inbox.lanes.get(self.current().lane?)?.lane)
    }

    /// Bytes of the message.
    #[allow(clippy::len_without_is_empty, reason = "an empty message is a message")]
    #[inline]
    pub fn len(&self) -> usize {
        self.header().len as usize
    }

    /// Type and version that the sender gave it.
    pub fn kind(&self) -> Kind {
        Kind { id: self.header().kind, version: self.header().version }
    }

    /// The address to answer to, as the sender says. Decisions about access belong on [`peer`](Message::peer).
    pub fn from(&self) -> Address {
        match (&self.current().elsewhere, self.sender()) {
            (Some(elsewhere), _) => elsewhere.from,
            (None, Some(lane)) => lane.from,
            (None, None) => self.inbox.shared.address, // There is always one of the two.
        }
    }

    /// The process that sent it, as the kernel says. For a message of another site: the local process that carries
    /// messages between sites. `None` for a multicast, whose ring all members can write.
    pub fn peer(&self) -> Option<Credentials> {
        match &self.current().elsewhere {
            Some(elsewhere) => elsewhere.peer,
            None => self.sender().map(|lane| lane.peer),
        }
    }

    /// The transaction whose group the message was sent to, or `None` if it was for this port alone.
    pub fn group(&self) -> Option<Xid> {
        self.current().elsewhere.as_ref()?.group
    }

    /// Copies the first bytes of the message into `into`, and returns how many it copied.
    #[inline]
    pub fn copy_to(&self, into: &mut [u8]) -> usize {
        let len = self.len().min(into.len());
        self.load(&mut into[..len]);
        len
    }

    /// A copy of the bytes.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len()];
        self.load(&mut bytes);
        bytes
    }

    /// The message as a value of a type with a fixed layout: a copy as long as the type, checked, nothing decoded.
    ///
    /// # Errors
    /// The message is of another type or version, has another length, or is not a value of the type.
    #[inline]
    pub fn typed<T: Typed>(&self) -> Result<T, MessageError> {
        let (found, expected) = (self.kind(), T::KIND);
        if found.id != expected.id {
            return Err(MessageError::Kind { found: found.id, expected: expected.id });
        }
        if found.version != expected.version {
            return Err(MessageError::Version { kind: found.id, found: found.version, expected: expected.version });
        }
        if self.len() != size_of::<T>() {
            return Err(MessageError::Length { kind: found.id, found: self.len(), expected: size_of::<T>() });
        }
        let mut value = T::new_zeroed();
        self.load(value.as_mut_bytes());
        if value.is_valid() { Ok(value) } else { Err(MessageError::Invalid { kind: found.id }) }
    }

    /// The page that the message is a reference to. It stays lent to this process until the result is dropped.
    ///
    /// # Errors
    /// [`MessageError::NoPage`]: the message is not a reference, or it refers to a page that was not lent to this
    /// port.
    pub fn page(&self) -> Result<Page, MessageError> {
        let lane = self.current().lane.filter(|_| self.header().flags & FLAG_PAGE != 0).ok_or(MessageError::NoPage)?;
        let known = self.inbox.lanes[lane].lane.pages.lock().unwrap_or_else(PoisonError::into_inner);
        Page::from_reference(&self.to_vec(), &known)
    }

    /// The bytes where they are, without a copy.
    ///
    /// # Safety
    /// No process that can write into the buffer does so while the slice lives. Senders that use this library never
    /// do. So a program may call this for senders that it trusts as itself: [`peer`](Message::peer) says which process
    /// sent the message.
    pub unsafe fn bytes_in_place(&self) -> &[u8] {
        match self.current().lane {
            None => &self.inbox.scratch,
            Some(no) => {
                let incoming = &self.inbox.lanes[no];
                let start =
                    incoming.lane.memory.bytes_at(incoming.reader.payload() + self.current().skipped_words, self.len());
                // SAFETY: inside the mapping (asserted there), which lives as long as the lane, which we borrow; not
                // written meanwhile by the promise of the caller and by N1.
                unsafe { std::slice::from_raw_parts(start.as_ptr(), self.len()) }
            }
        }
    }

    #[cfg(test)]
    pub(crate) fn flags(&self) -> u8 {
        self.header().flags
    }

    #[inline]
    fn header(&self) -> &Header {
        &self.current().header
    }

    #[inline]
    fn load(&self, into: &mut [u8]) {
        match self.current().lane {
            None => into.copy_from_slice(&self.inbox.scratch[..into.len()]),
            Some(no) => {
                let incoming = &self.inbox.lanes[no];
                load_bytes(
                    &incoming.lane.memory.words()[incoming.reader.payload() + self.current().skipped_words..],
                    into,
                );
            }
        }
    }
}

impl Drop for Message<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(no) = self.current().lane {
            self.inbox.advance(no);
        }
    }
}

impl std::fmt::Debug for Message<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Message")
            .field("from", &self.from())
            .field("kind", &self.kind())
            .field("len", &self.len())
            .finish()
    }
}
