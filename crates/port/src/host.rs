//! The ports of one host: the directory in which they meet, and how a dead owner's leavings are cleared away.
//!
//! A port is a socket file in this directory, named by the 32 hexadecimal digits of its address. The lock file beside
//! it stays locked while the port's owner lives. There is nothing else with a name: memory is in memory files, which
//! the kernel frees when the last process that has them ends, however it ends. So a dead owner leaves only two empty
//! names. Opening the port again removes them, and so does [`Host::reclaim`].
//!
//! H1. A socket file is bound, replaced and removed only by a process that holds the lock of the file beside it.
//! H2. A lock counts only if the file that is locked is still the one that has the name.

use crate::address::{Address, Instance, ServerInstance, ServerType, Site};
use crate::error::OpenError;
use crate::link::{BACKLOG, seqpacket};
use crate::net;
use rustix::fd::OwnedFd;
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::net::SocketAddrUnix;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// One site on this host: where its ports meet. Cheap to clone.
#[derive(Clone)]
pub struct Host {
    inner: Arc<Inner>,
}

struct Inner {
    directory: PathBuf,
    site: Site,
    /// The site's network, while it is started in this process.
    network: Mutex<Option<Weak<net::Inner>>>,
}

impl Host {
    /// The site's ports in the user's own directory: `$LEDGERSTONE_PORTS`, else `$XDG_RUNTIME_DIR/ledgerstone-ports`,
    /// else `/dev/shm/ledgerstone-ports-UID`. It is made, for this user only, if it is missing.
    ///
    /// # Errors
    /// If the directory can neither be used nor made.
    pub fn open(site: Site) -> Result<Host, OpenError> {
        let directory = if let Some(set) = std::env::var_os("LEDGERSTONE_PORTS") {
            PathBuf::from(set)
        } else if let Some(runtime) = std::env::var_os("XDG_RUNTIME_DIR") {
            Path::new(&runtime).join("ledgerstone-ports")
        } else {
            PathBuf::from(format!("/dev/shm/ledgerstone-ports-{}", rustix::process::geteuid().as_raw()))
        };
        Host::at(directory, site)
    }

    /// The site's ports in a directory of your choice, made for this user only if it is missing. For ports that other
    /// users may reach, make it yourself with the permissions that you want.
    ///
    /// # Errors
    /// If the directory can neither be used nor made, or belongs to another user who is not root.
    pub fn at(directory: impl Into<PathBuf>, site: Site) -> Result<Host, OpenError> {
        let directory = directory.into();
        let error = |what, source: std::io::Error| OpenError::Directory { path: directory.clone(), what, source };
        match rustix::fs::mkdir(&directory, Mode::RWXU) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(source) => return Err(error("mkdir", source.into())),
        }
        let stat = rustix::fs::stat(&directory).map_err(|source| error("stat", source.into()))?;
        if stat.st_uid != 0 && stat.st_uid != rustix::process::geteuid().as_raw() {
            // Its owner could put sockets of his own there.
            return Err(error("stat: it belongs to another user", rustix::io::Errno::PERM.into()));
        }
        Ok(Host { inner: Arc::new(Inner { directory, site, network: Mutex::default() }) })
    }

    /// This site.
    pub fn site(&self) -> Site {
        self.inner.site
    }

    /// Where the ports meet.
    pub fn directory(&self) -> &Path {
        &self.inner.directory
    }

    /// The address of one of this site's ports.
    pub fn address(&self, instance: Instance, server_type: ServerType, server: ServerInstance) -> Address {
        Address::port(instance, server_type, server, self.site())
    }

    /// Removes the names of all ports whose owners are dead, and returns how many there were. Their memory is gone
    /// already.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub fn reclaim(&self) -> Result<usize, OpenError> {
        let directory = self.directory();
        let error = |source| OpenError::Directory { path: directory.to_owned(), what: "read", source };
        let mut count = 0;
        for entry in std::fs::read_dir(directory).map_err(error)? {
            let path = entry.map_err(error)?.path();
            if path.extension().is_some_and(|extension| extension == "lock") {
                let socket = path.with_extension("");
                if let Some(lease) = Lease::take(&socket)? {
                    drop(lease);
                    count += 1;
                }
            }
        }
        Ok(count)
    }

    /// The network of this site, if it was started in this process.
    pub(crate) fn network(&self) -> Option<Weak<net::Inner>> {
        self.inner.network.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sets or takes away the network; `false` if there is one already.
    pub(crate) fn set_network(&self, network: Option<Weak<net::Inner>>) -> bool {
        let mut place = self.inner.network.lock().unwrap_or_else(PoisonError::into_inner);
        let is_free = place.is_none() || network.is_none();
        if is_free {
            *place = network;
        }
        is_free
    }

    /// Where the port's socket is.
    pub(crate) fn socket_path(&self, address: Address) -> PathBuf {
        self.directory().join(format!("{:032x}", address.to_bits()))
    }
}

impl std::fmt::Debug for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Inner { directory, site, .. } = &*self.inner;
        f.debug_struct("Host").field("directory", directory).field("site", site).finish_non_exhaustive()
    }
}

/// A socket file's name, held until dropped or until the process ends (H1).
#[derive(Debug)]
pub(crate) struct Lease {
    socket: PathBuf,
    lock: PathBuf,
    _locked: OwnedFd,
}

impl Lease {
    /// The lease, or `None` if a living process holds it.
    pub(crate) fn take(socket: &Path) -> Result<Option<Lease>, OpenError> {
        let lock = socket.with_extension("lock");
        let error = |what| {
            move |source: rustix::io::Errno| OpenError::Directory {
                path: socket.to_owned(),
                what,
                source: source.into(),
            }
        };
        loop {
            let flags = OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
            let fd = rustix::fs::open(&lock, flags, Mode::RUSR | Mode::WUSR).map_err(error("open"))?;
            match rustix::fs::flock(&fd, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
                Err(source) => return Err(error("flock")(source)),
            }
            let ours = rustix::fs::fstat(&fd).map_err(error("fstat"))?;
            match rustix::fs::stat(&lock) {
                Ok(named) if (named.st_dev, named.st_ino) == (ours.st_dev, ours.st_ino) => {
                    return Ok(Some(Lease { socket: socket.to_owned(), lock, _locked: fd }));
                }
                // Its holder took the name away while we waited for nothing: try the new file (H2).
                Ok(_) | Err(rustix::io::Errno::NOENT) => {}
                Err(source) => return Err(error("stat")(source)),
            }
        }
    }

    /// Binds the socket file, in place of what a dead owner left, and listens.
    pub(crate) fn listen(&self, mode: u32) -> Result<OwnedFd, OpenError> {
        let error = |what| {
            move |source: rustix::io::Errno| OpenError::Directory {
                path: self.socket.clone(),
                what,
                source: source.into(),
            }
        };
        let socket = seqpacket().map_err(OpenError::System)?;
        match rustix::fs::unlink(&self.socket) {
            Ok(()) | Err(rustix::io::Errno::NOENT) => {}
            Err(source) => return Err(error("unlink")(source)),
        }
        let address = SocketAddrUnix::new(&self.socket).map_err(error("socket path"))?;
        rustix::net::bind(&socket, &address).map_err(error("bind"))?;
        // Nobody can connect before the socket listens, so the permissions hold from the first moment.
        rustix::fs::chmod(&self.socket, Mode::from_raw_mode(mode)).map_err(error("chmod"))?;
        rustix::net::listen(&socket, BACKLOG).map_err(error("listen"))?;
        rustix::io::ioctl_fionbio(&socket, true).map_err(error("ioctl(FIONBIO)"))?;
        Ok(socket)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // Names that are gone already are as good as taken away.
        let _ = rustix::fs::unlink(&self.socket);
        let _ = rustix::fs::unlink(&self.lock);
    }
}
