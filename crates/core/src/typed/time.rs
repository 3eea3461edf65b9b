//! Times as keys and values: whole seconds, and nanoseconds below a second.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::key::{split, whole};
use super::{AsKey, AsValue, DecodeError, EncodeError, Key, TypeName, Value};

const SECOND_NS: u32 = 1_000_000_000;

fn duration(secs: u64, nanos: u32) -> Option<Duration> {
    (nanos < SECOND_NS).then(|| Duration::new(secs, nanos))
}

/// Seconds since 1970, rounded down, and the nanoseconds behind them.
fn parts(time: SystemTime) -> Result<(i64, u32), EncodeError> {
    let (secs, nanos) = match time.duration_since(UNIX_EPOCH) {
        Ok(since) => (i128::from(since.as_secs()), since.subsec_nanos()),
        Err(before) => match (i128::from(before.duration().as_secs()), before.duration().subsec_nanos()) {
            (secs, 0) => (-secs, 0),
            (secs, nanos) => (-secs - 1, SECOND_NS - nanos),
        },
    };
    let secs = i64::try_from(secs).map_err(|_| EncodeError::of::<SystemTime>("more than 2^63 seconds from 1970"))?;
    Ok((secs, nanos))
}

fn time(secs: i64, nanos: u32) -> Option<SystemTime> {
    let whole = Duration::from_secs(secs.unsigned_abs());
    let time = if secs < 0 { UNIX_EPOCH.checked_sub(whole)? } else { UNIX_EPOCH.checked_add(whole)? };
    time.checked_add(duration(0, nanos)?)
}

impl AsKey<Duration> for Duration {
    fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        AsKey::<(u64, u32)>::encode(&(self.as_secs(), self.subsec_nanos()), out)
    }
}

impl Key for Duration {
    const TYPE: TypeName = TypeName::Named("duration");
    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        whole(bytes)
    }
    fn decode_part(bytes: &mut &[u8]) -> Result<Self, DecodeError> {
        let part = split::<Self>(bytes, 12)?;
        let (secs, nanos) = <(u64, u32) as Key>::decode(part)?;
        duration(secs, nanos).ok_or_else(|| DecodeError::of::<Self>(part))
    }
}

impl AsValue<Duration> for Duration {
    fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        out.extend_from_slice(&self.as_secs().to_le_bytes());
        out.extend_from_slice(&self.subsec_nanos().to_le_bytes());
        Ok(())
    }
}

/// Eight bytes and four.
fn words(bytes: &[u8]) -> Option<([u8; 8], [u8; 4])> {
    let (first, rest) = bytes.split_first_chunk()?;
    Some((*first, rest.try_into().ok()?))
}

impl Value for Duration {
    const TYPE: TypeName = TypeName::Named("duration");
    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let found = words(bytes).and_then(|(s, n)| duration(u64::from_le_bytes(s), u32::from_le_bytes(n)));
        found.ok_or_else(|| DecodeError::of::<Self>(bytes))
    }
}

impl AsKey<SystemTime> for SystemTime {
    fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        AsKey::<(i64, u32)>::encode(&parts(*self)?, out)
    }
}

impl Key for SystemTime {
    const TYPE: TypeName = TypeName::Named("time");
    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        whole(bytes)
    }
    fn decode_part(bytes: &mut &[u8]) -> Result<Self, DecodeError> {
        let part = split::<Self>(bytes, 12)?;
        let (secs, nanos) = <(i64, u32) as Key>::decode(part)?;
        time(secs, nanos).ok_or_else(|| DecodeError::of::<Self>(part))
    }
}

impl AsValue<SystemTime> for SystemTime {
    fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let (secs, nanos) = parts(*self)?;
        out.extend_from_slice(&secs.to_le_bytes());
        out.extend_from_slice(&nanos.to_le_bytes());
        Ok(())
    }
}

impl Value for SystemTime {
    const TYPE: TypeName = TypeName::Named("time");
    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let found = words(bytes).and_then(|(s, n)| time(i64::from_le_bytes(s), u32::from_le_bytes(n)));
        found.ok_or_else(|| DecodeError::of::<Self>(bytes))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key<K: Key>(key: &K) -> Vec<u8> {
        let mut out = Vec::new();
        key.encode(&mut out).unwrap();
        out
    }

    fn value<V: Value>(value: &V) -> Vec<u8> {
        let mut out = Vec::new();
        value.encode(&mut out).unwrap();
        out
    }

    /// These bytes are in files: a change of one is a new format.
    #[test]
    fn the_encodings_are_what_the_files_hold() {
        let half_past = Duration::new(1, 500_000_000);
        assert_eq!(key(&half_past), [0, 0, 0, 0, 0, 0, 0, 1, 0x1d, 0xcd, 0x65, 0]);
        assert_eq!(value(&half_past), [1, 0, 0, 0, 0, 0, 0, 0, 0, 0x65, 0xcd, 0x1d]);
        assert_eq!(key(&(UNIX_EPOCH + half_past)), [0x80, 0, 0, 0, 0, 0, 0, 1, 0x1d, 0xcd, 0x65, 0]);
        assert_eq!(value(&(UNIX_EPOCH + half_past)), value(&half_past));
        // Half a second before minus one: minus two, and half a second.
        assert_eq!(
            key(&(UNIX_EPOCH - half_past)),
            [0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xfe, 0x1d, 0xcd, 0x65, 0]
        );
    }

    fn nanos() -> impl Strategy<Value = u32> {
        prop_oneof![Just(0), Just(1), Just(SECOND_NS - 1), 0..SECOND_NS]
    }

    fn secs() -> impl Strategy<Value = i64> {
        prop_oneof![-2_i64..3, Just(i64::MIN), Just(i64::MAX), any::<i64>()]
    }

    proptest! {
        #[test]
        fn times_order_and_come_back(a in (secs(), nanos()), b in (secs(), nanos())) {
            let ((a_time, b_time), (a_secs, b_secs)) =
                ((time(a.0, a.1).unwrap(), time(b.0, b.1).unwrap()), (a.0.unsigned_abs(), b.0.unsigned_abs()));
            prop_assert_eq!(key(&a_time).cmp(&key(&b_time)), a_time.cmp(&b_time));
            prop_assert_eq!(<SystemTime as Key>::decode(&key(&a_time)), Ok(a_time));
            prop_assert_eq!(<SystemTime as Value>::decode(&value(&a_time)), Ok(a_time));
            let (a, b) = (Duration::new(a_secs, a.1), Duration::new(b_secs, b.1));
            prop_assert_eq!(key(&a).cmp(&key(&b)), a.cmp(&b));
            prop_assert_eq!(<Duration as Key>::decode(&key(&a)), Ok(a));
            prop_assert_eq!(<Duration as Value>::decode(&value(&a)), Ok(a));
        }

        #[test]
        fn any_bytes_are_a_time_or_an_error(any in prop::collection::vec(any::<u8>(), 10..14)) {
            if let Ok(time) = <SystemTime as Key>::decode(&any) {
                prop_assert_eq!(key(&time), any.clone());
            }
            if let Ok(time) = <SystemTime as Value>::decode(&any) {
                prop_assert_eq!(value(&time), any.clone());
            }
            if let Ok(duration) = <Duration as Key>::decode(&any) {
                prop_assert_eq!(key(&duration), any.clone());
            }
            if let Ok(duration) = <Duration as Value>::decode(&any) {
                prop_assert_eq!(value(&duration), any);
            }
        }
    }
}
