//! A type of keys and values whose own code calls a hook.

use std::cell::RefCell;

use ledgerstone::typed::{AsKey, AsValue, DecodeError, EncodeError, KeyPrefix};
use ledgerstone::{Error, Key, TableDef, TypeName, Value};

use super::Hook;

/// A byte, which tells when it is encoded or decoded.
#[derive(Clone, Copy, Debug)]
pub struct Told(pub u8);

pub const TOLD: TableDef<'static, Told, Told> = TableDef::new("told");

/// Which of the type's code calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    EncodeKey,
    DecodeKey,
    EncodeValue,
    DecodeValue,
}

thread_local! {
    static WHO: RefCell<Option<(Code, Hook)>> = const { RefCell::new(None) };
}

/// Runs `f`, in which this code of the type calls the hook.
pub fn telling<T>(code: Code, hook: &Hook, f: impl FnOnce() -> Result<T, Error>) -> Result<(), Error> {
    struct Silence;
    impl Drop for Silence {
        fn drop(&mut self) {
            WHO.set(None);
        }
    }
    WHO.set(Some((code, hook.clone())));
    let _silence = Silence;
    f().map(drop)
}

fn tell(code: Code) {
    let hook = WHO.with_borrow(|who| who.as_ref().filter(|who| who.0 == code).map(|who| who.1.clone()));
    if let Some(hook) = hook {
        hook.call();
    }
}

impl Key for Told {
    const TYPE: TypeName = TypeName::Named("test.told");

    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        tell(Code::DecodeKey);
        <u8 as Key>::decode(bytes).map(Told)
    }

    fn decode_part(bytes: &mut &[u8]) -> Result<Self, DecodeError> {
        tell(Code::DecodeKey);
        u8::decode_part(bytes).map(Told)
    }
}

impl AsKey<Told> for Told {
    fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        tell(Code::EncodeKey);
        AsKey::<u8>::encode(&self.0, out)
    }
}

impl KeyPrefix<Told> for Told {
    fn encode_prefix(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        AsKey::<Told>::encode(self, out)
    }
}

impl Value for Told {
    const TYPE: TypeName = TypeName::Named("test.told");

    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        tell(Code::DecodeValue);
        <u8 as Value>::decode(bytes).map(Told)
    }
}

impl AsValue<Told> for Told {
    fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        tell(Code::EncodeValue);
        AsValue::<u8>::encode(&self.0, out)
    }
}
