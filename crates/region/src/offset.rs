//! Places in a region: numbers, never pointers, so that they mean the same in every process.

use std::fmt;
use std::marker::PhantomData;

/// The place of one `T` in a region. Checked when it is followed, see [`crate::Region::handle`].
pub struct Offset<T>(u64, PhantomData<fn() -> T>);

/// `count` values of `T`, one after the other.
pub struct Span<T> {
    offset: Offset<T>,
    count: u64,
}

impl<T> Offset<T> {
    /// An offset kept somewhere as a number.
    pub const fn from_raw(bytes: u64) -> Self {
        Offset(bytes, PhantomData)
    }

    /// The number to store: bytes from the start of the region. It is never 0 for an allocated value.
    pub const fn to_raw(self) -> u64 {
        self.0
    }
}

impl<T> Span<T> {
    /// The span that begins at `offset`.
    pub const fn new(offset: Offset<T>, count: u64) -> Self {
        Span { offset, count }
    }

    /// Where the first value is.
    pub const fn offset(self) -> Offset<T> {
        self.offset
    }

    /// How many values.
    pub const fn count(self) -> u64 {
        self.count
    }

    /// How many bytes.
    pub const fn len_bytes(self) -> u64 {
        self.count * size_of::<T>() as u64
    }

    /// The place of value `index`, or `None` past the end.
    pub fn at(self, index: u64) -> Option<Offset<T>> {
        (index < self.count).then(|| Offset::from_raw(self.offset.0 + index * size_of::<T>() as u64))
    }

    /// `count` values from `start`, or `None` if they are not all inside.
    pub fn part(self, start: u64, count: u64) -> Option<Span<T>> {
        let end = start.checked_add(count)?;
        (end <= self.count).then(|| Span::new(Offset::from_raw(self.offset.0 + start * size_of::<T>() as u64), count))
    }
}

impl<T> Clone for Offset<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Offset<T> {}
impl<T> PartialEq for Offset<T> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}
impl<T> Eq for Offset<T> {}
impl<T> fmt::Debug for Offset<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Offset({})", self.0)
    }
}
impl<T> Clone for Span<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Span<T> {}
impl<T> PartialEq for Span<T> {
    fn eq(&self, other: &Self) -> bool {
        self.offset == other.offset && self.count == other.count
    }
}
impl<T> Eq for Span<T> {}
impl<T> fmt::Debug for Span<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Span({} x {})", self.offset.0, self.count)
    }
}
