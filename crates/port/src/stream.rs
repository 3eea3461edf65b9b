//! Streams between sites: bulk data and wide-area links, over TCP with TLS 1.3.
//!
//! The library is rustls. Sites have no certificates but raw public keys (RFC 7250), the ones in the table of sites,
//! and both sides prove that they have the secret. On a trusted network a stream is plain TCP.
//!
//! ```text
//! after the connection is sealed, the opener says, 48 bytes:
//! offset  size  field
//!      0     4  magic, "LSST"
//!      4     4  version, 1
//!      8     4  its site u32
//!     12     4  zero
//!     16    16  address that it wants
//!     32    16  its own address
//! ```

use crate::address::{Address, Site};
use crate::net::{SitePublic, SiteSecret, Trust};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer};
use rustls::{ClientConnection, ServerConnection, StreamOwned};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;

const MAGIC: [u8; 4] = *b"LSST";
const VERSION: u32 = 1;
const PRELUDE_BYTES: usize = 48;
/// How long the other side may take for the handshake.
const HANDSHAKE_WITHIN: Duration = Duration::from_secs(10);
/// What goes before an Ed25519 key in PKCS #8, and before a public one in a SubjectPublicKeyInfo (RFC 8410).
const PRIVATE_PREFIX: [u8; 16] = [0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];
const PUBLIC_PREFIX: [u8; 12] = [0x30, 0x2a, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 3, 0x21, 0];

/// A stream did not come about.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StreamError {
    /// The connection failed.
    #[error("no stream with {address}: {source}")]
    Connection {
        /// The other side.
        address: SocketAddr,
        /// What went wrong.
        source: io::Error,
    },
    /// Keys or protocol do not fit.
    #[error("no stream with {address}: {source}")]
    Tls {
        /// The other side.
        address: SocketAddr,
        /// What went wrong.
        source: rustls::Error,
    },
    /// The first bytes do not begin a stream, or they come from another site than the key says.
    #[error("{address} does not begin a stream as a site does")]
    Prelude {
        /// The other side.
        address: SocketAddr,
    },
}

/// An ordered, reliable stream of bytes with a server of another site: read and write it as any other.
pub struct Stream {
    inner: Kind,
    peer: Address,
    wanted: Address,
}

enum Kind {
    Plain(TcpStream),
    Client(Box<StreamOwned<ClientConnection, TcpStream>>),
    Server(Box<StreamOwned<ServerConnection, TcpStream>>),
}

impl Stream {
    /// Opens a stream from one of our addresses to one of another site, which listens for streams at `address`. `key`
    /// is the site's, and is not looked at on a trusted network.
    ///
    /// # Errors
    /// See [`StreamError`]. Waits for the other side, some seconds at most.
    pub fn open(
        trust: &Trust,
        from: Address,
        to: Address,
        address: SocketAddr,
        key: Option<SitePublic>,
    ) -> Result<Stream, StreamError> {
        let failed = |source| StreamError::Connection { address, source };
        let tcp = TcpStream::connect_timeout(&address, HANDSHAKE_WITHIN).map_err(failed)?;
        prepare(&tcp).map_err(failed)?;
        let inner = match (trust, key) {
            (Trust::Network, _) => Kind::Plain(tcp),
            (Trust::Keys(secret), Some(key)) => {
                let tls = |source| StreamError::Tls { address, source };
                let config = tls::client(secret, vec![(to.site().unwrap_or(Site(0)), key)]).map_err(tls)?;
                let name = ServerName::try_from("site").map_err(|_| StreamError::Prelude { address })?;
                let connection = ClientConnection::new(config, name).map_err(tls)?;
                Kind::Client(Box::new(StreamOwned::new(connection, tcp)))
            }
            (Trust::Keys(_), None) => return Err(StreamError::Prelude { address }),
        };
        let mut stream = Stream { inner, peer: to, wanted: to };
        let mut prelude = [0; PRELUDE_BYTES];
        prelude[..4].copy_from_slice(&MAGIC);
        prelude[4..8].copy_from_slice(&VERSION.to_le_bytes());
        prelude[8..12].copy_from_slice(&from.site().map_or(0, |site| site.0).to_le_bytes());
        prelude[16..32].copy_from_slice(&to.to_bytes());
        prelude[32..].copy_from_slice(&from.to_bytes());
        stream.write_all(&prelude).and_then(|()| stream.flush()).map_err(failed)?;
        stream.patient().map_err(failed)?;
        Ok(stream)
    }

    /// The address at the other end.
    pub fn peer(&self) -> Address {
        self.peer
    }

    /// The address that the stream was opened to.
    pub fn wanted(&self) -> Address {
        self.wanted
    }

    /// Says that nothing more will be written. The other side reads to the end.
    ///
    /// # Errors
    /// If the connection is broken.
    pub fn finish(&mut self) -> io::Result<()> {
        match &mut self.inner {
            Kind::Plain(_) => {}
            Kind::Client(stream) => stream.conn.send_close_notify(),
            Kind::Server(stream) => stream.conn.send_close_notify(),
        }
        self.flush()?;
        self.tcp().shutdown(std::net::Shutdown::Write)
    }

    fn tcp(&self) -> &TcpStream {
        match &self.inner {
            Kind::Plain(tcp) => tcp,
            Kind::Client(stream) => &stream.sock,
            Kind::Server(stream) => &stream.sock,
        }
    }

    /// From now on reading and writing take the time they take.
    fn patient(&self) -> io::Result<()> {
        self.tcp().set_read_timeout(None)?;
        self.tcp().set_write_timeout(None)
    }
}

impl Read for Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match &mut self.inner {
            Kind::Plain(stream) => stream.read(into),
            Kind::Client(stream) => stream.read(into),
            Kind::Server(stream) => stream.read(into),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.inner {
            Kind::Plain(stream) => stream.write(bytes),
            Kind::Client(stream) => stream.write(bytes),
            Kind::Server(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.inner {
            Kind::Plain(stream) => stream.flush(),
            Kind::Client(stream) => stream.flush(),
            Kind::Server(stream) => stream.flush(),
        }
    }
}

/// Where a site listens for streams of others.
pub struct StreamListener {
    listener: TcpListener,
    trust: Trust,
    sites: Vec<(Site, SitePublic)>,
}

impl StreamListener {
    /// Listens for streams of the given sites.
    ///
    /// # Errors
    /// If the socket cannot be had.
    pub fn bind(
        address: SocketAddr,
        trust: Trust,
        sites: Vec<(Site, SitePublic)>,
    ) -> Result<StreamListener, StreamError> {
        let listener = TcpListener::bind(address).map_err(|source| StreamError::Connection { address, source })?;
        Ok(StreamListener { listener, trust, sites })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// What the system says.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// The next stream. Waits for a stream. A stream that fails is returned as an error, and the next call waits for
    /// another.
    ///
    /// # Errors
    /// See [`StreamError`].
    pub fn accept(&self) -> Result<Stream, StreamError> {
        let unknown = SocketAddr::from(([0, 0, 0, 0], 0));
        let accepted = self.listener.accept();
        let (tcp, address) = accepted.map_err(|source| StreamError::Connection { address: unknown, source })?;
        let failed = |source| StreamError::Connection { address, source };
        prepare(&tcp).map_err(failed)?;
        let inner = match &self.trust {
            Trust::Network => Kind::Plain(tcp),
            Trust::Keys(secret) => {
                let tls = |source| StreamError::Tls { address, source };
                let config = tls::server(secret, self.sites.clone()).map_err(tls)?;
                let connection = ServerConnection::new(config).map_err(tls)?;
                Kind::Server(Box::new(StreamOwned::new(connection, tcp)))
            }
        };
        let nobody = Address::group(crate::Instance(0), crate::ServerType(0), crate::Xid(0));
        let mut stream = Stream { inner, peer: nobody, wanted: nobody };
        let mut prelude = [0; PRELUDE_BYTES];
        stream.read_exact(&mut prelude).map_err(failed)?;
        let (site, wanted, peer) = parse(&prelude).ok_or(StreamError::Prelude { address })?;
        if peer.site() != Some(site) || !self.is_whose_key(&stream, site) {
            return Err(StreamError::Prelude { address });
        }
        (stream.peer, stream.wanted) = (peer, wanted);
        stream.patient().map_err(failed)?;
        Ok(stream)
    }

    /// Whether the key that the other side proved to have is the site's.
    fn is_whose_key(&self, stream: &Stream, site: Site) -> bool {
        let Kind::Server(stream) = &stream.inner else { return matches!(self.trust, Trust::Network) };
        let proved = stream.conn.peer_certificates().and_then(|certificates| certificates.first());
        let known = self.sites.iter().find(|(known, _)| *known == site);
        proved.zip(known).is_some_and(|(proved, (_, key))| proved.as_ref() == public_der(key))
    }
}

fn prepare(tcp: &TcpStream) -> io::Result<()> {
    tcp.set_nodelay(true)?;
    tcp.set_read_timeout(Some(HANDSHAKE_WITHIN))?;
    tcp.set_write_timeout(Some(HANDSHAKE_WITHIN))
}

fn parse(prelude: &[u8; PRELUDE_BYTES]) -> Option<(Site, Address, Address)> {
    let word = |at: usize| u32::from_le_bytes([prelude[at], prelude[at + 1], prelude[at + 2], prelude[at + 3]]);
    if prelude[..4] != MAGIC || word(4) != VERSION {
        return None;
    }
    let address = |at: usize| Address::from_bytes(prelude[at..at + 16].try_into().ok()?).ok();
    Some((Site(word(8)), address(16)?, address(32)?))
}

fn public_der(key: &SitePublic) -> Vec<u8> {
    [&PUBLIC_PREFIX[..], &key.stream].concat()
}

/// Configurations of rustls with raw public keys.
mod tls {
    use super::*;
    use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
    use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, verify_tls13_signature_with_raw_key};
    use rustls::pki_types::UnixTime;
    use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
    use rustls::sign::CertifiedKey;
    use rustls::{
        CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error, PeerIncompatible,
        ServerConfig, SignatureScheme,
    };

    /// Accepts the keys of the sites in the table, and nothing else.
    #[derive(Debug)]
    struct Known {
        keys: Vec<Vec<u8>>,
        algorithms: WebPkiSupportedAlgorithms,
    }

    impl Known {
        fn check(&self, presented: &CertificateDer<'_>) -> Result<(), Error> {
            let is_known = self.keys.iter().any(|key| key == presented.as_ref());
            if is_known { Ok(()) } else { Err(Error::InvalidCertificate(CertificateError::UnknownIssuer)) }
        }

        fn signature(
            &self,
            message: &[u8],
            presented: &CertificateDer<'_>,
            signed: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            let key = SubjectPublicKeyInfoDer::from(presented.as_ref());
            verify_tls13_signature_with_raw_key(message, &key, signed, &self.algorithms)
        }
    }

    impl ServerCertVerifier for Known {
        fn verify_server_cert(
            &self,
            end_entity: &CertificateDer<'_>,
            _: &[CertificateDer<'_>],
            _: &ServerName<'_>,
            _: &[u8],
            _: UnixTime,
        ) -> Result<ServerCertVerified, Error> {
            self.check(end_entity).map(|()| ServerCertVerified::assertion())
        }

        fn verify_tls12_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            Err(Error::PeerIncompatible(PeerIncompatible::Tls12NotOffered))
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            cert: &CertificateDer<'_>,
            signed: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            self.signature(message, cert, signed)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            vec![SignatureScheme::ED25519]
        }

        fn requires_raw_public_keys(&self) -> bool {
            true
        }
    }

    impl ClientCertVerifier for Known {
        fn root_hint_subjects(&self) -> &[DistinguishedName] {
            &[]
        }

        fn verify_client_cert(
            &self,
            end_entity: &CertificateDer<'_>,
            _: &[CertificateDer<'_>],
            _: UnixTime,
        ) -> Result<ClientCertVerified, Error> {
            self.check(end_entity).map(|()| ClientCertVerified::assertion())
        }

        fn verify_tls12_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            Err(Error::PeerIncompatible(PeerIncompatible::Tls12NotOffered))
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            cert: &CertificateDer<'_>,
            signed: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            self.signature(message, cert, signed)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            vec![SignatureScheme::ED25519]
        }

        fn requires_raw_public_keys(&self) -> bool {
            true
        }
    }

    /// What both sides are made of: the cryptography, the keys that are known, our own.
    type Parts = (Arc<CryptoProvider>, Arc<Known>, Arc<CertifiedKey>);

    fn parts(secret: &SiteSecret, sites: Vec<(Site, SitePublic)>) -> Result<Parts, Error> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let keys = sites.iter().map(|(_, key)| public_der(key)).collect();
        let known = Arc::new(Known { keys, algorithms: provider.signature_verification_algorithms });
        let private = [&PRIVATE_PREFIX[..], &secret.stream_seed].concat();
        let private = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(private));
        let key = provider.key_provider.load_private_key(private)?;
        let ours = CertificateDer::from(public_der(&secret.public()));
        Ok((provider, known, Arc::new(CertifiedKey::new(vec![ours], key))))
    }

    pub(super) fn client(secret: &SiteSecret, sites: Vec<(Site, SitePublic)>) -> Result<Arc<ClientConfig>, Error> {
        let (provider, known, ours) = parts(secret, sites)?;
        let resolver = rustls::client::AlwaysResolvesClientRawPublicKeys::new(ours);
        let builder =
            ClientConfig::builder_with_provider(provider).with_protocol_versions(&[&rustls::version::TLS13])?;
        let builder = builder.dangerous().with_custom_certificate_verifier(known);
        Ok(Arc::new(builder.with_client_cert_resolver(Arc::new(resolver))))
    }

    pub(super) fn server(secret: &SiteSecret, sites: Vec<(Site, SitePublic)>) -> Result<Arc<ServerConfig>, Error> {
        let (provider, known, ours) = parts(secret, sites)?;
        let resolver = rustls::server::AlwaysResolvesServerRawPublicKeys::new(ours);
        let builder =
            ServerConfig::builder_with_provider(provider).with_protocol_versions(&[&rustls::version::TLS13])?;
        let mut config = builder.with_client_cert_verifier(known).with_cert_resolver(Arc::new(resolver));
        // A ticket that nobody reads would reset the connection when its other side has sent all and closes.
        config.send_tls13_tickets = 0;
        Ok(Arc::new(config))
    }
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stream").field("peer", &self.peer).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Instance, ServerInstance, ServerType};

    fn name(site: u32) -> Address {
        Address::port(Instance(1), ServerType(2), ServerInstance(3), Site(site))
    }

    fn bytes() -> Vec<u8> {
        (0..1_000_000u32).flat_map(u32::to_le_bytes).collect()
    }

    fn pass(ours: Trust, theirs: Trust, keys: [SitePublic; 2], from: u32) -> Result<Vec<u8>, StreamError> {
        let listener = StreamListener::bind(([127, 0, 0, 1], 0).into(), theirs, vec![(Site(1), keys[0])])?;
        let address = listener.local_address().unwrap();
        let sends = std::thread::spawn(move || {
            let mut stream = Stream::open(&ours, name(from), name(2), address, Some(keys[1]))?;
            let failed = |source| StreamError::Connection { address, source };
            stream.write_all(&bytes()).map_err(failed)?;
            stream.finish().map_err(failed)
        });
        let accepted = listener.accept().and_then(|mut stream| {
            assert_eq!((stream.peer(), stream.wanted()), (name(1), name(2)));
            let mut into = Vec::new();
            stream.read_to_end(&mut into).map_err(|source| StreamError::Connection { address, source })?;
            Ok(into)
        });
        drop(listener);
        let _ = sends.join();
        accepted
    }

    #[test]
    fn a_stream_carries_all_bytes_between_sites_that_know_each_other() {
        let [a, b] = std::array::from_fn(|_| SiteSecret::generate().unwrap());
        let keys = [a.public(), b.public()];
        assert!(pass(Trust::Keys(a), Trust::Keys(b), keys, 1).unwrap() == bytes());
        assert!(pass(Trust::Network, Trust::Network, keys, 1).unwrap() == bytes());
    }

    #[test]
    fn a_stream_of_a_stranger_or_under_anothers_name_is_refused() {
        let [a, b, stranger] = std::array::from_fn(|_| SiteSecret::generate().unwrap());
        let keys = [a.public(), b.public()];
        let refused = pass(Trust::Keys(stranger), Trust::Keys(b.clone()), keys, 1);
        assert!(refused.is_err(), "{:?}", refused.map(|bytes| bytes.len()));
        let refused = pass(Trust::Keys(a.clone()), Trust::Keys(b.clone()), keys, 7);
        assert!(matches!(refused, Err(StreamError::Prelude { .. })), "{:?}", refused.map(|bytes| bytes.len()));
        let refused = pass(Trust::Network, Trust::Keys(b), keys, 1);
        assert!(refused.is_err(), "{:?}", refused.map(|bytes| bytes.len()));
    }
}
