//! What JSON text cannot give back, found before it is stored: numbers that are not finite, values nested too
//! deeply, and `Some` of nothing.
//!
//! `serde_json` writes the first and the last as `null`, and reads no more than 127 arrays and objects inside each
//! other. This goes through a value as its serializer does, and writes nothing.

use serde::Serialize;
use serde::ser::{self, Serializer};

/// `serde_json` reads so many arrays and objects inside each other.
const DEPTH_MAX: usize = 127;

/// # Errors
/// JSON text of the value would not be read as the same value; or the value's own error.
pub(super) fn check(value: &(impl Serialize + ?Sized)) -> Result<(), Refused> {
    value.serialize(Check { depth: 0, in_some: false })
}

/// Why a value is refused.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct Refused(String);

impl ser::Error for Refused {
    fn custom<T: std::fmt::Display>(message: T) -> Refused {
        Refused(message.to_string())
    }
}

#[derive(Clone, Copy)]
struct Check {
    /// Inside of so many arrays and objects.
    depth: usize,
    /// In a `Some`: what is written as `null` would come back as `None`.
    in_some: bool,
}

impl Check {
    fn inside(self, levels: usize) -> Result<Check, Refused> {
        let depth = self.depth + levels;
        if depth > DEPTH_MAX {
            return Err(Refused(format!(
                "JSON is read back only up to {DEPTH_MAX} arrays and objects inside each other"
            )));
        }
        Ok(Check { depth, in_some: false })
    }

    fn null(self) -> Result<(), Refused> {
        if self.in_some {
            Err(Refused("JSON has only one null: `Some` of nothing is read back as `None`".into()))
        } else {
            Ok(())
        }
    }

    fn finite(self, is_finite: bool, number: impl std::fmt::Display) -> Result<(), Refused> {
        if is_finite { Ok(()) } else { Err(Refused(format!("JSON has no number {number}"))) }
    }
}

macro_rules! anything {
    ($($method:ident: $t:ty),*) => {$(
        fn $method(self, _: $t) -> Result<(), Refused> {
            Ok(())
        }
    )*};
}

impl Serializer for Check {
    type Ok = ();
    type Error = Refused;
    type SerializeSeq = Check;
    type SerializeTuple = Check;
    type SerializeTupleStruct = Check;
    type SerializeTupleVariant = Check;
    type SerializeMap = Check;
    type SerializeStruct = Check;
    type SerializeStructVariant = Check;

    anything!(
        serialize_bool: bool, serialize_char: char, serialize_str: &str,
        serialize_i8: i8, serialize_i16: i16, serialize_i32: i32, serialize_i64: i64, serialize_i128: i128,
        serialize_u8: u8, serialize_u16: u16, serialize_u32: u32, serialize_u64: u64, serialize_u128: u128
    );

    fn serialize_f32(self, number: f32) -> Result<(), Refused> {
        self.finite(number.is_finite(), number)
    }

    fn serialize_f64(self, number: f64) -> Result<(), Refused> {
        self.finite(number.is_finite(), number)
    }

    fn serialize_bytes(self, _: &[u8]) -> Result<(), Refused> {
        self.inside(1).map(drop)
    }

    fn serialize_none(self) -> Result<(), Refused> {
        self.null()
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), Refused> {
        value.serialize(Check { in_some: true, ..self })
    }

    fn serialize_unit(self) -> Result<(), Refused> {
        self.null()
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<(), Refused> {
        self.null()
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, _: &'static str) -> Result<(), Refused> {
        Ok(())
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, value: &T) -> Result<(), Refused> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        value: &T,
    ) -> Result<(), Refused> {
        value.serialize(self.inside(1)?)
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Check, Refused> {
        self.inside(1)
    }

    fn serialize_tuple(self, _: usize) -> Result<Check, Refused> {
        self.inside(1)
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Check, Refused> {
        self.inside(1)
    }

    fn serialize_tuple_variant(self, _: &'static str, _: u32, _: &'static str, _: usize) -> Result<Check, Refused> {
        self.inside(2)
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Check, Refused> {
        self.inside(1)
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Check, Refused> {
        self.inside(1)
    }

    fn serialize_struct_variant(self, _: &'static str, _: u32, _: &'static str, _: usize) -> Result<Check, Refused> {
        self.inside(2)
    }

    fn collect_str<T: std::fmt::Display + ?Sized>(self, _: &T) -> Result<(), Refused> {
        Ok(())
    }
}

macro_rules! parts {
    ($($kind:ident $method:ident $(($key:ty))?),*) => {$(
        impl ser::$kind for Check {
            type Ok = ();
            type Error = Refused;

            fn $method<T: Serialize + ?Sized>(&mut self, $(_: $key,)? value: &T) -> Result<(), Refused> {
                value.serialize(*self)
            }

            fn end(self) -> Result<(), Refused> {
                Ok(())
            }
        }
    )*};
}

parts!(
    SerializeSeq serialize_element,
    SerializeTuple serialize_element,
    SerializeTupleStruct serialize_field,
    SerializeTupleVariant serialize_field,
    SerializeStruct serialize_field(&'static str),
    SerializeStructVariant serialize_field(&'static str)
);

impl ser::SerializeMap for Check {
    type Ok = ();
    type Error = Refused;

    /// Keys are text, or `serde_json` refuses them.
    fn serialize_key<T: Serialize + ?Sized>(&mut self, _: &T) -> Result<(), Refused> {
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Refused> {
        value.serialize(*self)
    }

    fn end(self) -> Result<(), Refused> {
        Ok(())
    }
}
