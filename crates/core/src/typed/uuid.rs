//! [`Uuid`] as a key and a value: its 16 bytes, which order as it does.

use uuid::Uuid;

use super::{AsKey, AsValue, DecodeError, EncodeError, Key, TypeName, Value};

impl AsKey<Uuid> for Uuid {
    fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        out.extend_from_slice(self.as_bytes());
        Ok(())
    }
}

impl Key for Uuid {
    const TYPE: TypeName = TypeName::Named("uuid");
    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        Uuid::from_slice(bytes).map_err(|_| DecodeError::of::<Uuid>(bytes))
    }
    fn decode_part(bytes: &mut &[u8]) -> Result<Self, DecodeError> {
        <[u8; 16] as Key>::decode_part(bytes).map(Uuid::from_bytes)
    }
}

impl AsValue<Uuid> for Uuid {
    fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        AsKey::<Uuid>::encode(self, out)
    }
}

impl Value for Uuid {
    const TYPE: TypeName = TypeName::Named("uuid");
    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        <Uuid as Key>::decode(bytes)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bytes(uuid: Uuid) -> Vec<u8> {
        let mut out = Vec::new();
        AsKey::<Uuid>::encode(&uuid, &mut out).unwrap();
        out
    }

    proptest! {
        #[test]
        fn uuids_are_their_bytes(a: [u8; 16], b: [u8; 16], any: Vec<u8>) {
            let (a_uuid, b_uuid) = (Uuid::from_bytes(a), Uuid::from_bytes(b));
            prop_assert_eq!(bytes(a_uuid), a.to_vec());
            prop_assert_eq!(bytes(a_uuid).cmp(&bytes(b_uuid)), a_uuid.cmp(&b_uuid));
            prop_assert_eq!(<Uuid as Key>::decode(&a), Ok(a_uuid));
            prop_assert_eq!(<(Uuid, u8) as Key>::decode(&[&a[..], &[7]].concat()), Ok((a_uuid, 7)));
            prop_assert_eq!(<Uuid as Value>::decode(&any).is_ok(), any.len() == 16);
        }
    }
}
