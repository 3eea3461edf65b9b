//! Many datagrams with one system call: where this crate's unsafe code about sockets lives.

use socket2::SockAddr;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;

/// Datagrams in one call.
pub(crate) const BATCH: usize = 32;
/// The longest datagram that is received whole.
pub(crate) const DATAGRAM_BYTES_MAX: usize = 9216;

/// Sends all datagrams, in as few calls as there can be. What the system refuses is lost, as datagrams are.
pub(crate) fn send(socket: &UdpSocket, datagrams: &[(SocketAddr, Vec<u8>)]) {
    for batch in datagrams.chunks(BATCH) {
        let addresses: Vec<SockAddr> = batch.iter().map(|(to, _)| SockAddr::from(*to)).collect();
        let mut vectors: Vec<libc::iovec> = batch
            .iter()
            .map(|(_, bytes)| libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() })
            .collect();
        let mut headers: Vec<libc::mmsghdr> = addresses
            .iter()
            .zip(&mut vectors)
            .map(|(to, vector)| header(to.as_ptr().cast_mut().cast(), to.len(), vector))
            .collect();
        let mut sent = 0;
        while sent < headers.len() {
            // SAFETY: each header names an address and a vector that live until the call has returned; the kernel only
            // reads what they name.
            let count = unsafe {
                let rest = headers.as_mut_ptr().add(sent);
                libc::sendmmsg(socket.as_raw_fd(), rest.cast(), (headers.len() - sent) as u32, libc::MSG_NOSIGNAL)
            };
            // The first of the rest was refused: go on behind it.
            sent += usize::try_from(count).unwrap_or(0).max(1);
        }
    }
}

/// Buffers for datagrams that come in.
pub(crate) struct Inlet {
    bytes: Vec<u8>,
    addresses: Vec<libc::sockaddr_storage>,
    lengths: Vec<(usize, libc::socklen_t)>,
}

impl Inlet {
    pub(crate) fn new() -> Inlet {
        // SAFETY: zeros are an address of no family.
        let none: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
        Inlet { bytes: vec![0; BATCH * DATAGRAM_BYTES_MAX], addresses: vec![none; BATCH], lengths: Vec::new() }
    }

    /// Takes what has come, up to a batch, without waiting, and returns how many.
    pub(crate) fn receive(&mut self, socket: &UdpSocket) -> usize {
        let mut vectors: Vec<libc::iovec> = self
            .bytes
            .chunks_mut(DATAGRAM_BYTES_MAX)
            .map(|chunk| libc::iovec { iov_base: chunk.as_mut_ptr().cast(), iov_len: chunk.len() })
            .collect();
        let mut headers: Vec<libc::mmsghdr> = self
            .addresses
            .iter_mut()
            .zip(&mut vectors)
            .map(|(from, vector)| {
                header(std::ptr::from_mut(from).cast(), size_of::<libc::sockaddr_storage>() as u32, vector)
            })
            .collect();
        // SAFETY: each header names an address and a vector of ours, apart from each other, which the kernel fills up
        // to the lengths given.
        let count = unsafe {
            let flags = libc::MSG_DONTWAIT;
            libc::recvmmsg(socket.as_raw_fd(), headers.as_mut_ptr().cast(), BATCH as u32, flags, std::ptr::null_mut())
        };
        let count = usize::try_from(count).unwrap_or(0);
        self.lengths.clear();
        self.lengths
            .extend(headers[..count].iter().map(|header| (header.msg_len as usize, header.msg_hdr.msg_namelen)));
        count
    }

    /// One of the datagrams of the last call.
    pub(crate) fn datagram(&self, no: usize) -> Option<(SocketAddr, &[u8])> {
        let (len, address_len) = *self.lengths.get(no)?;
        let mut storage = socket2::SockAddrStorage::zeroed();
        // SAFETY: both are the system's storage for addresses of any family.
        unsafe { *storage.view_as::<libc::sockaddr_storage>() = self.addresses[no] };
        // SAFETY: the kernel filled the storage and said how far.
        let from = unsafe { SockAddr::new(storage, address_len) }.as_socket()?;
        let start = no * DATAGRAM_BYTES_MAX;
        Some((from, &self.bytes[start..start + len.min(DATAGRAM_BYTES_MAX)]))
    }
}

fn header(name: *mut libc::c_void, name_len: libc::socklen_t, vector: &mut libc::iovec) -> libc::mmsghdr {
    // SAFETY: zeros are a header that names nothing; it has fields that differ from system to system.
    let mut header: libc::mmsghdr = unsafe { std::mem::zeroed() };
    header.msg_hdr.msg_name = name;
    header.msg_hdr.msg_namelen = name_len;
    header.msg_hdr.msg_iov = vector;
    header.msg_hdr.msg_iovlen = 1;
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagrams_arrive_whole_and_say_where_they_come_from() {
        let [a, b] = std::array::from_fn(|_| UdpSocket::bind("127.0.0.1:0").unwrap());
        let to = b.local_addr().unwrap();
        let datagrams: Vec<_> = (0..BATCH as u8 + 8).map(|no| (to, vec![no; 1 + no as usize])).collect();
        send(&a, &datagrams);
        let mut inlet = Inlet::new();
        let mut next = 0u8;
        while next < BATCH as u8 + 8 {
            for no in 0..inlet.receive(&b) {
                let expected = (a.local_addr().unwrap(), &vec![next; 1 + next as usize][..]);
                assert_eq!(inlet.datagram(no), Some(expected));
                next += 1;
            }
        }
        assert_eq!(inlet.receive(&b), 0);
    }
}
