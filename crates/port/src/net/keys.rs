//! A site's identity: keys for datagrams (Noise, X25519) and for streams (TLS, Ed25519).

use snow::Builder;
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

const PATTERN: &str = "Noise_KK_25519_ChaChaPoly_BLAKE2s";
const SECRET_BYTES: usize = 96;
const PUBLIC_BYTES: usize = 64;

/// What handshakes, and the keys for them, are made with.
pub(crate) fn builder() -> Result<Builder<'static>, snow::Error> {
    Ok(Builder::new(PATTERN.parse()?))
}

/// A number that nobody guesses.
pub(crate) fn random() -> u64 {
    use ring::rand::SecureRandom;
    let mut bytes = [0; 8];
    // Without randomness sessions are as good as their number is unique; keys do not depend on it.
    let _ = ring::rand::SystemRandom::new().fill(&mut bytes);
    u64::from_le_bytes(bytes)
}

/// A site's secret, with which the site proves its identity. Keep it in a file that only the site's user can read. As
/// text, it has 192 hexadecimal digits.
#[derive(Clone)]
pub struct SiteSecret {
    pub(crate) datagram_private: [u8; 32],
    datagram_public: [u8; 32],
    pub(crate) stream_seed: [u8; 32],
}

/// The public key by which other sites know a site. In configurations it has 128 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SitePublic {
    pub(crate) datagram: [u8; 32],
    pub(crate) stream: [u8; 32],
}

/// Text or bytes that are not a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a key is {digits} hexadecimal digits")]
pub struct KeyError {
    /// How many digits it should have.
    pub digits: usize,
}

impl SiteSecret {
    /// A new secret from the system's randomness.
    ///
    /// # Errors
    /// If the system has none.
    pub fn generate() -> Result<SiteSecret, KeyError> {
        use ring::rand::SecureRandom;
        let error = KeyError { digits: SECRET_BYTES * 2 };
        let pair = builder().map_err(|_| error)?.generate_keypair().map_err(|_| error)?;
        let mut stream_seed = [0; 32];
        ring::rand::SystemRandom::new().fill(&mut stream_seed).map_err(|_| error)?;
        Ok(SiteSecret {
            datagram_private: pair.private.try_into().map_err(|_| error)?,
            datagram_public: pair.public.try_into().map_err(|_| error)?,
            stream_seed,
        })
    }

    /// What other sites are to know.
    pub fn public(&self) -> SitePublic {
        use ring::signature::KeyPair;
        let mut stream = [0; 32];
        if let Ok(pair) = ring::signature::Ed25519KeyPair::from_seed_unchecked(&self.stream_seed) {
            stream.copy_from_slice(pair.public_key().as_ref());
        }
        SitePublic { datagram: self.datagram_public, stream }
    }

    /// The secret as text, for its file.
    pub fn to_text(&self) -> String {
        hex(&[self.datagram_private, self.datagram_public, self.stream_seed].concat())
    }
}

impl FromStr for SiteSecret {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<SiteSecret, KeyError> {
        let bytes: [u8; SECRET_BYTES] = unhex(text)?;
        let part = |no: usize| std::array::from_fn(|i| bytes[no * 32 + i]);
        Ok(SiteSecret { datagram_private: part(0), datagram_public: part(1), stream_seed: part(2) })
    }
}

impl fmt::Debug for SiteSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SiteSecret")
    }
}

impl FromStr for SitePublic {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<SitePublic, KeyError> {
        let bytes: [u8; PUBLIC_BYTES] = unhex(text)?;
        let part = |no: usize| std::array::from_fn(|i| bytes[no * 32 + i]);
        Ok(SitePublic { datagram: part(0), stream: part(1) })
    }
}

impl fmt::Display for SitePublic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&[self.datagram, self.stream].concat()))
    }
}

impl fmt::Debug for SitePublic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex<const N: usize>(text: &str) -> Result<[u8; N], KeyError> {
    let error = KeyError { digits: N * 2 };
    let digits = text.trim().as_bytes();
    if digits.len() != N * 2 || !digits.iter().all(u8::is_ascii_hexdigit) {
        return Err(error);
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks(2)) {
        let pair = std::str::from_utf8(pair).map_err(|_| error)?;
        *byte = u8::from_str_radix(pair, 16).map_err(|_| error)?;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_back_from_their_text() {
        let secret = SiteSecret::generate().unwrap();
        let again: SiteSecret = secret.to_text().parse().unwrap();
        assert_eq!(again.to_text(), secret.to_text());
        assert_eq!(secret.public().to_string().parse(), Ok(again.public()));
        assert_ne!(SiteSecret::generate().unwrap().public(), secret.public());
        assert_eq!("12".parse::<SitePublic>(), Err(KeyError { digits: 128 }));
        assert!(!format!("{secret:?}").contains(&secret.to_text()[..8]));
    }
}
