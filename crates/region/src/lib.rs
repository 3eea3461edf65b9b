//! Memory that processes share: offsets, words, latches, slots, and the one door to time and waiting
