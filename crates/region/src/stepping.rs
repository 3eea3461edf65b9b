//! The standard library's atomics, whose every store is a step at which a simulated process may die.
//!
//! A death comes before the store: what was stored until then stays for the survivors, and nothing more comes. So a
//! death between any two stores to a region is one at the second of them.

use std::fmt;
use std::sync::atomic::Ordering;

use crate::sync::step;

macro_rules! stepping {
    ($($name:ident over $value:ty;)+) => {$(
        /// The standard library's, with steps.
        #[repr(transparent)]
        #[derive(Default)]
        pub struct $name(std::sync::atomic::$name);

        #[allow(clippy::inline_always, reason = "as the standard library's")]
        impl $name {
            /// As the standard library's.
            pub const fn new(value: $value) -> $name {
                $name(std::sync::atomic::$name::new(value))
            }

            /// As the standard library's. A look is no step.
            #[inline(always)]
            pub fn load(&self, order: Ordering) -> $value {
                self.0.load(order)
            }

            /// A step, then as the standard library's.
            #[inline(always)]
            pub fn store(&self, value: $value, order: Ordering) {
                step();
                self.0.store(value, order);
            }

            /// A step, then as the standard library's.
            #[inline(always)]
            pub fn swap(&self, value: $value, order: Ordering) -> $value {
                step();
                self.0.swap(value, order)
            }

            /// A step, then as the standard library's.
            ///
            /// # Errors
            /// As the standard library's.
            pub fn fetch_update(
                &self,
                set: Ordering,
                fetch: Ordering,
                f: impl FnMut($value) -> Option<$value>,
            ) -> Result<$value, $value> {
                step();
                self.0.fetch_update(set, fetch, f)
            }

            /// As the standard library's: nobody else can reach it.
            #[inline(always)]
            pub fn get_mut(&mut self) -> &mut $value {
                self.0.get_mut()
            }

            /// As the standard library's: nobody else can reach it.
            #[inline(always)]
            pub fn into_inner(self) -> $value {
                self.0.into_inner()
            }

            /// As the standard library's.
            #[inline(always)]
            pub const fn as_ptr(&self) -> *mut $value {
                self.0.as_ptr()
            }
        }

        stepping!(@exchange $name $value: compare_exchange compare_exchange_weak);
        stepping!(@rmw $name $value: fetch_add fetch_sub fetch_and fetch_or fetch_max fetch_min);

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    )+};
    (@exchange $name:ident $value:ty: $($exchange:ident)+) => {
        #[allow(clippy::inline_always, reason = "as the standard library's")]
        impl $name {$(
            /// A step, then as the standard library's.
            ///
            /// # Errors
            /// As the standard library's.
            #[inline(always)]
            pub fn $exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                step();
                self.0.$exchange(current, new, success, failure)
            }
        )+}
    };
    (@rmw $name:ident $value:ty: $($fetch:ident)+) => {
        #[allow(clippy::inline_always, reason = "as the standard library's")]
        impl $name {$(
            /// A step, then as the standard library's.
            #[inline(always)]
            pub fn $fetch(&self, value: $value, order: Ordering) -> $value {
                step();
                self.0.$fetch(value, order)
            }
        )+}
    };
}

stepping! {
    AtomicU8 over u8;
    AtomicU16 over u16;
    AtomicU32 over u32;
    AtomicU64 over u64;
}
