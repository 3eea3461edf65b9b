//! Who is at the other end, as the kernel says.

/// The process at the other end of a connection at the time when it connected, as the kernel says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// Its process id, in our process namespace; 0 if it is not visible from here.
    pub pid: i32,
    /// Its effective user.
    pub uid: u32,
    /// Its effective group.
    pub gid: u32,
}

impl Credentials {
    pub(crate) fn of_peer(socket: impl rustix::fd::AsFd) -> Result<Credentials, crate::error::SystemError> {
        let peer = rustix::net::sockopt::socket_peercred(socket)
            .map_err(|error| crate::error::SystemError::new("getsockopt(SO_PEERCRED)", error))?;
        Ok(Credentials { pid: peer.pid.as_raw_pid(), uid: peer.uid.as_raw(), gid: peer.gid.as_raw() })
    }
}
