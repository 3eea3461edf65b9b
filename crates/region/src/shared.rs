//! What may live in a region, and the macro with which crates that forbid unsafe code declare it.
#![cfg(not(loom))]

use crate::Latch;
use crate::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64};

/// Types that may live in a region.
///
/// # Safety
/// The type is `repr(C)` or transparent, valid for any bits (so that zeroed memory is a value), and has no `Drop`. It
/// consists of atomics only: no pointer, reference, `bool`, enum or `NonZero`, and no field that a plain store changes.
pub unsafe trait Shared: Sized + Send + Sync + 'static {
    /// A number for what the type's memory means: its fields' names, places and types. Programs that differ in it do
    /// not share a region.
    const LAYOUT: u64;
}

// SAFETY: an atomic integer is valid for any bits and changes by atomic access only (R4).
unsafe impl Shared for AtomicU64 {
    const LAYOUT: u64 = layout_of(&[("u64", 0, 8)]);
}
// SAFETY: as above.
unsafe impl Shared for AtomicU32 {
    const LAYOUT: u64 = layout_of(&[("u32", 0, 4)]);
}
// SAFETY: as above.
unsafe impl Shared for AtomicU16 {
    const LAYOUT: u64 = layout_of(&[("u16", 0, 2)]);
}
// SAFETY: as above.
unsafe impl Shared for AtomicU8 {
    const LAYOUT: u64 = layout_of(&[("u8", 0, 1)]);
}
// SAFETY: transparent over an AtomicU64.
unsafe impl Shared for Latch {
    const LAYOUT: u64 = layout_of(&[("latch", 0, 8)]);
}
// SAFETY: values one after the other are what their element is.
unsafe impl<T: Shared, const N: usize> Shared for [T; N] {
    const LAYOUT: u64 = layout_of(&[("array", N, T::LAYOUT)]);
}

/// The number of a layout, from its fields: their names, where they begin, and the numbers of their types.
#[must_use]
pub const fn layout_of(fields: &[(&str, usize, u64)]) -> u64 {
    // FNV-1a: numbers that differ, not ones that nobody can forge.
    const fn mix(mut hash: u64, bytes: &[u8]) -> u64 {
        let mut at = 0;
        while at < bytes.len() {
            hash = (hash ^ bytes[at] as u64).wrapping_mul(0x0100_0000_01b3);
            at += 1;
        }
        hash
    }
    let (mut hash, mut no) = (0xcbf2_9ce4_8422_2325, 0);
    while no < fields.len() {
        let (name, at, layout) = fields[no];
        hash = mix(hash, &(name.len() as u64).to_le_bytes());
        hash = mix(hash, name.as_bytes());
        hash = mix(hash, &(at as u64).to_le_bytes());
        hash = mix(hash, &layout.to_le_bytes());
        no += 1;
    }
    hash
}

/// Declares a structure that lives in a region.
///
/// The structure is `repr(C)`. Every field is checked to be [`Shared`], the size is asserted, and so is that the fields
/// fill it. Padding is written out as a field, so that the picture of the memory is complete.
///
/// ```
/// use ledgerstone_region::{Latch, shared};
/// use ledgerstone_region::atomic::{AtomicU32, AtomicU64};
/// shared! {
///     /// One bucket.
///     pub struct Bucket {
///         /// Guards the chain.
///         pub latch: Latch,
///         /// Largest commit LSN.
///         pub commit_lsn: AtomicU64,
///         /// First and last node.
///         pub chain: [AtomicU32; 2],
///     } size 24
/// }
/// ```
#[macro_export]
macro_rules! shared {
    (
        $(#[$meta:meta])*
        $vis:vis struct $name:ident {
            $( $(#[$field_meta:meta])* $field_vis:vis $field:ident : $type:ty ),+ $(,)?
        } size $size:expr
    ) => {
        $(#[$meta])*
        #[repr(C)]
        $vis struct $name {
            $( $(#[$field_meta])* $field_vis $field : $type, )+
        }

        const _: () = {
            const fn is_shared<T: $crate::Shared>() -> usize {
                ::core::mem::size_of::<T>()
            }
            assert!(::core::mem::size_of::<$name>() == $size, "the structure has not the size that is written");
            assert!(0 $( + is_shared::<$type>() )+ == $size, "the fields do not fill the structure");
        };

        // SAFETY: repr(C), and each field was just checked to be `Shared`, which has no `Drop` and is atomics only.
        unsafe impl $crate::Shared for $name {
            const LAYOUT: u64 = $crate::layout_of(&[
                $( (stringify!($field), ::core::mem::offset_of!($name, $field), <$type as $crate::Shared>::LAYOUT), )+
            ]);
        }
    };
}
