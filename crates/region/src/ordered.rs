//! Ordered maps and sets by numbers and by names, whose trees are compiled once.
//!
//! The compiler makes a `BTreeMap` anew for each type of value, in each crate that has one: that was a quarter of the
//! code of the engine. Here the tree leads from a key to a place, and the values stand at their places in a vector. So
//! the tree is the same code for all types of values, and only this crate has it.

use std::collections::{BTreeMap, btree_map};
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Bound, RangeBounds};

/// What is a number, or two numbers in their order: a key of [`ByNumber`] and [`NumberSet`].
pub trait Number: Copy {
    /// The number. Larger keys have larger numbers.
    fn to_number(self) -> u128;
    /// The key whose number it is.
    fn from_number(number: u128) -> Self;
}

/// A map by numbers, in their order.
pub struct ByNumber<K, V> {
    tree: Numbers,
    values: Values<V>,
    key: PhantomData<fn(K) -> K>,
}

/// A set of numbers, in their order.
pub struct NumberSet<K> {
    tree: Numbers,
    key: PhantomData<fn(K) -> K>,
}

/// What is bytes: a key of [`ByName`].
pub trait Name {
    /// The bytes.
    fn to_bytes(&self) -> &[u8];
    /// The name whose bytes they are.
    fn from_bytes(bytes: &[u8]) -> &Self;
}

/// A map by names, in the order of their bytes.
pub struct ByName<N: ?Sized, V> {
    tree: Names,
    values: Values<V>,
    name: PhantomData<fn(&N)>,
}

/// Where a value stands. Of four bytes, because trees are mostly these.
type Place = u32;

/// The values of a map, each at its place. A place whose value was taken out is used again.
struct Values<V> {
    at: Vec<Option<V>>,
    free: Vec<Place>,
}

/// From a number to the place of its value.
#[derive(Clone, Default)]
struct Numbers(BTreeMap<u128, Place>);

/// From a name to the place of its value.
#[derive(Default)]
struct Names(BTreeMap<Vec<u8>, Place>);

/// Entries of a [`ByNumber`], see [`ByNumber::iter`].
pub struct Entries<'m, K, V> {
    steps: Steps<'m>,
    values: &'m Values<V>,
    key: PhantomData<K>,
}

/// Numbers of a [`NumberSet`], see [`NumberSet::iter`].
pub struct Keys<'m, K> {
    steps: Steps<'m>,
    key: PhantomData<K>,
}

/// Entries of a [`ByName`], see [`ByName::iter`].
pub struct NamedEntries<'m, N: ?Sized, V> {
    steps: NameSteps<'m>,
    values: &'m Values<V>,
    name: PhantomData<&'m N>,
}

#[derive(Clone)]
struct Steps<'m>(btree_map::Range<'m, u128, Place>);

struct NameSteps<'m>(btree_map::Iter<'m, Vec<u8>, Place>);

impl<K: Number, V> ByNumber<K, V> {
    /// An empty map.
    pub const fn new() -> Self {
        ByNumber { tree: Numbers::new(), values: Values::new(), key: PhantomData }
    }

    /// How many entries it has.
    pub fn len(&self) -> usize {
        self.tree.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The value of `key`.
    pub fn get(&self, key: K) -> Option<&V> {
        self.values.get(self.tree.get(key.to_number())?)
    }

    /// The value of `key`, to change it.
    pub fn get_mut(&mut self, key: K) -> Option<&mut V> {
        self.values.get_mut(self.tree.get(key.to_number())?)
    }

    /// Whether `key` has a value.
    pub fn contains(&self, key: K) -> bool {
        self.tree.get(key.to_number()).is_some()
    }

    /// Gives `key` a value, and returns the one that it had.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        let place = self.values.next();
        match self.tree.insert(key.to_number(), place) {
            None => {
                self.values.put(place, value);
                None
            }
            Some(there) => self.values.replace(there, value),
        }
    }

    /// The value of `key`. If it has none, it gets the one that `make` makes.
    pub fn get_or_insert_with(&mut self, key: K, make: impl FnOnce() -> V) -> &mut V {
        let place = match self.tree.get(key.to_number()) {
            Some(place) => place,
            None => {
                let (place, value) = (self.values.next(), make());
                self.tree.insert(key.to_number(), place);
                self.values.put(place, value);
                place
            }
        };
        self.values.at(place)
    }

    /// Takes `key` and its value out.
    pub fn remove(&mut self, key: K) -> Option<V> {
        self.values.take(self.tree.remove(key.to_number())?)
    }

    /// Takes everything out.
    pub fn clear(&mut self) {
        self.tree.clear();
        self.values.clear();
    }

    /// The entries in the order of their keys.
    pub fn iter(&self) -> Entries<'_, K, V> {
        self.range(..)
    }

    /// The entries whose keys are in `range`, in their order.
    ///
    /// # Panics
    /// If the range ends before it begins.
    pub fn range(&self, range: impl RangeBounds<K>) -> Entries<'_, K, V> {
        Entries { steps: self.tree.range(bounds(range)), values: &self.values, key: PhantomData }
    }

    /// The keys in their order.
    pub fn keys(&self) -> Keys<'_, K> {
        Keys { steps: self.tree.range(ALL), key: PhantomData }
    }

    /// The values in the order of their keys.
    pub fn values(&self) -> impl DoubleEndedIterator<Item = &V> {
        self.iter().map(|(_, value)| value)
    }

    /// The values in no order, to change them.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.values.at.iter_mut().flatten()
    }

    /// The entry with the lowest key.
    pub fn first(&self) -> Option<(K, &V)> {
        self.iter().next()
    }

    /// The entry with the highest key.
    pub fn last(&self) -> Option<(K, &V)> {
        self.iter().next_back()
    }

    /// Takes out the entry with the lowest key.
    pub fn pop_first(&mut self) -> Option<(K, V)> {
        let (number, place) = self.tree.pop_first()?;
        Some((K::from_number(number), self.values.take(place)?))
    }

    /// Takes out the entry with the highest key.
    pub fn pop_last(&mut self) -> Option<(K, V)> {
        let (number, place) = self.tree.pop_last()?;
        Some((K::from_number(number), self.values.take(place)?))
    }

    /// Keeps the entries for which `keep` is true, asked in the order of their keys.
    pub fn retain(&mut self, mut keep: impl FnMut(K, &mut V) -> bool) {
        let values = &mut self.values;
        self.tree.retain(&mut |number, place| {
            let is_kept = values.get_mut(place).is_some_and(|value| keep(K::from_number(number), value));
            if !is_kept {
                values.take(place);
            }
            is_kept
        });
    }
}

impl<K: Number> NumberSet<K> {
    /// An empty set.
    pub const fn new() -> Self {
        NumberSet { tree: Numbers::new(), key: PhantomData }
    }

    /// How many numbers it has.
    pub fn len(&self) -> usize {
        self.tree.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether `key` is in it.
    pub fn contains(&self, key: K) -> bool {
        self.tree.get(key.to_number()).is_some()
    }

    /// Puts `key` in, and returns whether it is new.
    pub fn insert(&mut self, key: K) -> bool {
        self.tree.insert(key.to_number(), 0).is_none()
    }

    /// Takes `key` out, and returns whether it was there.
    pub fn remove(&mut self, key: K) -> bool {
        self.tree.remove(key.to_number()).is_some()
    }

    /// The numbers in their order.
    pub fn iter(&self) -> Keys<'_, K> {
        self.range(..)
    }

    /// The numbers of `range` in their order.
    ///
    /// # Panics
    /// If the range ends before it begins.
    pub fn range(&self, range: impl RangeBounds<K>) -> Keys<'_, K> {
        Keys { steps: self.tree.range(bounds(range)), key: PhantomData }
    }

    /// The lowest.
    pub fn first(&self) -> Option<K> {
        self.iter().next()
    }

    /// Takes the lowest out.
    pub fn pop_first(&mut self) -> Option<K> {
        self.tree.pop_first().map(|(number, _)| K::from_number(number))
    }
}

impl<N: Name + ?Sized, V> ByName<N, V> {
    /// An empty map.
    pub const fn new() -> Self {
        ByName { tree: Names::new(), values: Values::new(), name: PhantomData }
    }

    /// How many entries it has.
    pub fn len(&self) -> usize {
        self.tree.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The value of `name`.
    pub fn get(&self, name: &N) -> Option<&V> {
        self.values.get(self.tree.get(name.to_bytes())?)
    }

    /// The value of `name`, to change it.
    pub fn get_mut(&mut self, name: &N) -> Option<&mut V> {
        self.values.get_mut(self.tree.get(name.to_bytes())?)
    }

    /// Whether `name` has a value.
    pub fn contains(&self, name: &N) -> bool {
        self.tree.get(name.to_bytes()).is_some()
    }

    /// Gives `name` a value, and returns the one that it had.
    pub fn insert(&mut self, name: &N, value: V) -> Option<V> {
        let place = self.values.next();
        match self.tree.insert(name.to_bytes(), place) {
            None => {
                self.values.put(place, value);
                None
            }
            Some(there) => self.values.replace(there, value),
        }
    }

    /// The value of `name`. If it has none, it gets the one that `make` makes.
    pub fn get_or_insert_with(&mut self, name: &N, make: impl FnOnce() -> V) -> &mut V {
        let place = match self.tree.get(name.to_bytes()) {
            Some(place) => place,
            None => {
                let (place, value) = (self.values.next(), make());
                self.tree.insert(name.to_bytes(), place);
                self.values.put(place, value);
                place
            }
        };
        self.values.at(place)
    }

    /// Takes `name` and its value out.
    pub fn remove(&mut self, name: &N) -> Option<V> {
        self.values.take(self.tree.remove(name.to_bytes())?)
    }

    /// The entries in the order of their names.
    pub fn iter(&self) -> NamedEntries<'_, N, V> {
        NamedEntries { steps: self.tree.iter(), values: &self.values, name: PhantomData }
    }

    /// The names in their order.
    pub fn keys(&self) -> impl Iterator<Item = &N> {
        self.iter().map(|(name, _)| name)
    }

    /// The values in the order of their names.
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.iter().map(|(_, value)| value)
    }

    /// Keeps the entries for which `keep` is true, asked in the order of their names.
    pub fn retain(&mut self, mut keep: impl FnMut(&N, &mut V) -> bool) {
        let values = &mut self.values;
        self.tree.retain(&mut |name, place| {
            let is_kept = values.get_mut(place).is_some_and(|value| keep(N::from_bytes(name), value));
            if !is_kept {
                values.take(place);
            }
            is_kept
        });
    }
}

const ALL: (Bound<u128>, Bound<u128>) = (Bound::Unbounded, Bound::Unbounded);

fn bounds<K: Number>(range: impl RangeBounds<K>) -> (Bound<u128>, Bound<u128>) {
    let number = |bound: Bound<&K>| bound.map(|&key| key.to_number());
    (number(range.start_bound()), number(range.end_bound()))
}

impl<V> Values<V> {
    const fn new() -> Self {
        Values { at: Vec::new(), free: Vec::new() }
    }

    /// Where the next value goes.
    fn next(&self) -> Place {
        let end = || Place::try_from(self.at.len()).expect("a map has less than 2^32 entries");
        self.free.last().copied().unwrap_or_else(end)
    }

    /// Puts `value` at `place`, which [`next`](Self::next) has given.
    fn put(&mut self, place: Place, value: V) {
        if self.free.pop().is_none() {
            self.at.push(None);
        }
        self.at[place as usize] = Some(value);
    }

    fn get(&self, place: Place) -> Option<&V> {
        self.at.get(place as usize)?.as_ref()
    }

    fn get_mut(&mut self, place: Place) -> Option<&mut V> {
        self.at.get_mut(place as usize)?.as_mut()
    }

    /// The value at `place`, which the tree has.
    fn at(&mut self, place: Place) -> &mut V {
        self.at[place as usize].as_mut().unwrap_or_else(|| unreachable!("a place of the tree has a value"))
    }

    fn replace(&mut self, place: Place, value: V) -> Option<V> {
        self.at[place as usize].replace(value)
    }

    fn take(&mut self, place: Place) -> Option<V> {
        let value = self.at[place as usize].take();
        self.free.push(place);
        if self.free.len() == self.at.len() {
            self.clear();
        }
        value
    }

    fn clear(&mut self) {
        (self.at, self.free) = (Vec::new(), Vec::new());
    }
}

impl Numbers {
    const fn new() -> Numbers {
        Numbers(BTreeMap::new())
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    fn get(&self, number: u128) -> Option<Place> {
        self.0.get(&number).copied()
    }

    /// Inserts `number` with `place` if it is not there. Otherwise it keeps its place, which is returned.
    fn insert(&mut self, number: u128, place: Place) -> Option<Place> {
        match self.0.entry(number) {
            btree_map::Entry::Occupied(there) => Some(*there.get()),
            btree_map::Entry::Vacant(gap) => {
                gap.insert(place);
                None
            }
        }
    }

    fn remove(&mut self, number: u128) -> Option<Place> {
        self.0.remove(&number)
    }

    fn pop_first(&mut self) -> Option<(u128, Place)> {
        self.0.pop_first()
    }

    fn pop_last(&mut self) -> Option<(u128, Place)> {
        self.0.pop_last()
    }

    fn clear(&mut self) {
        self.0.clear();
    }

    fn range(&self, range: (Bound<u128>, Bound<u128>)) -> Steps<'_> {
        Steps(self.0.range(range))
    }

    fn retain(&mut self, keep: &mut dyn FnMut(u128, Place) -> bool) {
        self.0.retain(|&number, place| keep(number, *place));
    }
}

impl Names {
    const fn new() -> Names {
        Names(BTreeMap::new())
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    fn get(&self, name: &[u8]) -> Option<Place> {
        self.0.get(name).copied()
    }

    /// As [`Numbers::insert`].
    fn insert(&mut self, name: &[u8], place: Place) -> Option<Place> {
        match self.0.entry(name.to_vec()) {
            btree_map::Entry::Occupied(there) => Some(*there.get()),
            btree_map::Entry::Vacant(gap) => {
                gap.insert(place);
                None
            }
        }
    }

    fn remove(&mut self, name: &[u8]) -> Option<Place> {
        self.0.remove(name)
    }

    fn iter(&self) -> NameSteps<'_> {
        NameSteps(self.0.iter())
    }

    fn retain(&mut self, keep: &mut dyn FnMut(&[u8], Place) -> bool) {
        self.0.retain(|name, place| keep(name, *place));
    }
}

impl Steps<'_> {
    fn next(&mut self) -> Option<(u128, Place)> {
        self.0.next().map(|(&number, &place)| (number, place))
    }

    fn next_back(&mut self) -> Option<(u128, Place)> {
        self.0.next_back().map(|(&number, &place)| (number, place))
    }
}

impl<'m> NameSteps<'m> {
    fn next(&mut self) -> Option<(&'m [u8], Place)> {
        self.0.next().map(|(name, &place)| (&**name, place))
    }
}

impl<'m, K: Number, V> Iterator for Entries<'m, K, V> {
    type Item = (K, &'m V);

    fn next(&mut self) -> Option<(K, &'m V)> {
        let (number, place) = self.steps.next()?;
        Some((K::from_number(number), self.values.get(place)?))
    }
}

impl<K, V> Clone for Entries<'_, K, V> {
    fn clone(&self) -> Self {
        Entries { steps: self.steps.clone(), values: self.values, key: PhantomData }
    }
}

impl<K: Number, V> DoubleEndedIterator for Entries<'_, K, V> {
    fn next_back(&mut self) -> Option<Self::Item> {
        let (number, place) = self.steps.next_back()?;
        Some((K::from_number(number), self.values.get(place)?))
    }
}

impl<K: Number> Iterator for Keys<'_, K> {
    type Item = K;

    fn next(&mut self) -> Option<K> {
        self.steps.next().map(|(number, _)| K::from_number(number))
    }
}

impl<K: Number> DoubleEndedIterator for Keys<'_, K> {
    fn next_back(&mut self) -> Option<K> {
        self.steps.next_back().map(|(number, _)| K::from_number(number))
    }
}

impl<'m, N: Name + ?Sized, V> Iterator for NamedEntries<'m, N, V> {
    type Item = (&'m N, &'m V);

    fn next(&mut self) -> Option<(&'m N, &'m V)> {
        let (name, place) = self.steps.next()?;
        Some((N::from_bytes(name), self.values.get(place)?))
    }
}

impl<'m, K: Number, V> IntoIterator for &'m ByNumber<K, V> {
    type Item = (K, &'m V);
    type IntoIter = Entries<'m, K, V>;

    fn into_iter(self) -> Entries<'m, K, V> {
        self.iter()
    }
}

impl<'m, K: Number> IntoIterator for &'m NumberSet<K> {
    type Item = K;
    type IntoIter = Keys<'m, K>;

    fn into_iter(self) -> Keys<'m, K> {
        self.iter()
    }
}

impl<'m, N: Name + ?Sized, V> IntoIterator for &'m ByName<N, V> {
    type Item = (&'m N, &'m V);
    type IntoIter = NamedEntries<'m, N, V>;

    fn into_iter(self) -> NamedEntries<'m, N, V> {
        self.iter()
    }
}

impl<K: Number, V> IntoIterator for ByNumber<K, V> {
    type Item = (K, V);
    type IntoIter = std::vec::IntoIter<(K, V)>;

    fn into_iter(mut self) -> Self::IntoIter {
        let mut all = Vec::with_capacity(self.len());
        while let Some(entry) = self.pop_first() {
            all.push(entry);
        }
        all.into_iter()
    }
}

impl<K: Number, V> Extend<(K, V)> for ByNumber<K, V> {
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, entries: I) {
        for (key, value) in entries {
            self.insert(key, value);
        }
    }
}

impl<K: Number, V> FromIterator<(K, V)> for ByNumber<K, V> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        let mut map = Self::new();
        map.extend(entries);
        map
    }
}

impl<K: Number> Extend<K> for NumberSet<K> {
    fn extend<I: IntoIterator<Item = K>>(&mut self, keys: I) {
        for key in keys {
            self.insert(key);
        }
    }
}

impl<K: Number> FromIterator<K> for NumberSet<K> {
    fn from_iter<I: IntoIterator<Item = K>>(keys: I) -> Self {
        let mut set = Self::new();
        set.extend(keys);
        set
    }
}

impl<K: Number, V> Default for ByNumber<K, V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Number> Default for NumberSet<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<'n, N: Name + ?Sized, V> FromIterator<(&'n N, V)> for ByName<N, V> {
    fn from_iter<I: IntoIterator<Item = (&'n N, V)>>(entries: I) -> Self {
        let mut map = Self::new();
        for (name, value) in entries {
            map.insert(name, value);
        }
        map
    }
}

impl<N: Name + ?Sized, V> Default for ByName<N, V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Number, V: Clone> Clone for ByNumber<K, V> {
    fn clone(&self) -> Self {
        self.iter().map(|(key, value)| (key, value.clone())).collect()
    }
}

impl<K: Number> Clone for NumberSet<K> {
    fn clone(&self) -> Self {
        NumberSet { tree: self.tree.clone(), key: PhantomData }
    }
}

impl<K: Number + PartialEq, V: PartialEq> PartialEq for ByNumber<K, V> {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().eq(other)
    }
}

impl<K: Number + Eq, V: Eq> Eq for ByNumber<K, V> {}

impl<K: Number> PartialEq for NumberSet<K> {
    fn eq(&self, other: &Self) -> bool {
        self.tree.0 == other.tree.0
    }
}

impl<K: Number> Eq for NumberSet<K> {}

impl<N: Name + PartialEq + ?Sized, V: PartialEq> PartialEq for ByName<N, V> {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().eq(other)
    }
}

impl<K: Number + fmt::Debug, V: fmt::Debug> fmt::Debug for ByNumber<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self).finish()
    }
}

impl<K: Number + fmt::Debug> fmt::Debug for NumberSet<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self).finish()
    }
}

impl<N: Name + Eq + ?Sized, V: Eq> Eq for ByName<N, V> {}

impl<N: Name + fmt::Debug + ?Sized, V: fmt::Debug> fmt::Debug for ByName<N, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self).finish()
    }
}

impl<N: Name + ?Sized, V: Clone> Clone for ByName<N, V> {
    fn clone(&self) -> Self {
        self.iter().map(|(name, value)| (name, value.clone())).collect()
    }
}

impl Name for [u8] {
    fn to_bytes(&self) -> &[u8] {
        self
    }

    fn from_bytes(bytes: &[u8]) -> &[u8] {
        bytes
    }
}

impl Name for str {
    fn to_bytes(&self) -> &[u8] {
        self.as_bytes()
    }

    fn from_bytes(bytes: &[u8]) -> &str {
        std::str::from_utf8(bytes).unwrap_or_else(|_| unreachable!("the bytes of a name are text"))
    }
}

macro_rules! numbers {
    ($($number:ty)*) => {$(
        impl Number for $number {
            fn to_number(self) -> u128 {
                self as u128
            }

            fn from_number(number: u128) -> $number {
                number as $number // It was made from one.
            }
        }
    )*};
}

numbers!(u8 u16 u32 u64 usize);

/// Two numbers of at most 64 bits each, ordered by the first of them.
macro_rules! pairs {
    ($(($first:ty, $second:ty))*) => {$(
        impl Number for ($first, $second) {
            fn to_number(self) -> u128 {
                u128::from(self.0) << 64 | u128::from(self.1)
            }

            fn from_number(number: u128) -> ($first, $second) {
                ((number >> 64) as $first, number as $second)
            }
        }
    )*};
}

pairs!((u64, u32)(u64, u64));

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Random;

    #[test]
    fn a_map_by_numbers_is_a_map() {
        let mut random = Random::new(7);
        let (mut map, mut model) = (ByNumber::new(), BTreeMap::new());
        for n in 0..20_000_u64 {
            let key = random.below(500);
            match random.below(10) {
                0..4 => assert_eq!(map.insert(key, n), model.insert(key, n)),
                4..8 => assert_eq!(map.remove(key), model.remove(&key)),
                8 => assert_eq!(map.get_or_insert_with(key, || n), model.entry(key).or_insert(n)),
                _ => assert_eq!(map.pop_first(), model.pop_first()),
            }
            assert_eq!((map.get(key), map.len()), (model.get(&key), model.len()));
            assert_eq!(
                map.range(..=key).next_back(),
                model.range(..=key).next_back().map(|(&key, value)| (key, value))
            );
            assert_eq!(map.range(key..).next(), model.range(key..).next().map(|(&key, value)| (key, value)));
            if n % 2_000 == 0 {
                map.retain(|key, value| (key + *value) % 3 != 0);
                model.retain(|key, value| (key + *value) % 3 != 0);
                assert!(map.clone().into_iter().eq(model.clone()), "entry by entry");
                assert_eq!((map.clone() == map, map.values.at.len() <= 500), (true, true), "places are used again");
            }
        }
        map.clear();
        assert!(map.is_empty() && map.values.at.is_empty());
    }

    #[test]
    fn pairs_are_ordered_by_their_first() {
        let all = [(0, u32::MAX), (1_u64, 0), (1, 7), (u64::MAX, 3)];
        let mut set: NumberSet<(u64, u32)> = all.iter().rev().copied().collect();
        assert!(set.iter().eq(all));
        assert!(set.contains((1, 7)) && !set.insert((1, 7)) && set.remove((1, 7)) && !set.remove((1, 7)));
        assert_eq!((set.first(), set.pop_first(), set.len()), (Some(all[0]), Some(all[0]), 2));
    }

    #[test]
    fn a_map_by_names_is_a_map() {
        let mut map = ByName::<str, usize>::new();
        for (n, name) in ["b", "", "a", "ö", "b"].into_iter().enumerate() {
            assert_eq!(map.insert(name, n), (n == 4).then_some(0));
        }
        assert!(map.iter().eq([("", &1), ("a", &2), ("b", &4), ("ö", &3)]));
        assert_eq!((map.remove("a"), map.remove("a"), map.contains("b"), map.get("c")), (Some(2), None, true, None));
        map.retain(|name, _| name != "ö");
        assert!(map.keys().eq(["", "b"]));
    }
}
