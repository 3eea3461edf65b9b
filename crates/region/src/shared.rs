//! What may live in a region, and the macro with which crates that forbid unsafe code declare it.
#![cfg(not(loom))]

use crate::Latch;
use crate::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64};

/// Types that may live in a region.
///
/// # Safety
/// The type is `repr(C)` or transparent, valid for any bits (so that zeroed memory is a value), and has no `Drop`. It
/// consists of atomics only: no pointer, reference, `bool`, enum or `NonZero`, and no field that a plain store changes.
pub unsafe trait Shared: Sized + Send + Sync + 'static {}

// SAFETY: an atomic integer is valid for any bits and changes by atomic access only (R4).
unsafe impl Shared for AtomicU64 {}
// SAFETY: as above.
unsafe impl Shared for AtomicU32 {}
// SAFETY: as above.
unsafe impl Shared for AtomicU16 {}
// SAFETY: as above.
unsafe impl Shared for AtomicU8 {}
// SAFETY: transparent over an AtomicU64.
unsafe impl Shared for Latch {}
// SAFETY: values one after the other are what their element is.
unsafe impl<T: Shared, const N: usize> Shared for [T; N] {}

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
        unsafe impl $crate::Shared for $name {}
    };
}
