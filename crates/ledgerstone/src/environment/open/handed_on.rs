//! What the first of those that share an environment hands on as text: its settings, and what its program has
//! registered.

use ledgerstone_region::Region;
use ledgerstone_region::atomic::{AtomicU64, Ordering::Relaxed};

use crate::Error;
use crate::config::{Effective, Options};

/// Names in the region.
const SETTINGS: &str = "environment.settings";
const PROGRAM: &str = "environment.program";
/// A text takes so many words at most, behind one for its length.
const SETTINGS_WORDS: u64 = 1023;
const PROGRAM_WORDS: u64 = 8191;

/// Hands the settings on to those who come later, and what the program has registered.
pub(super) fn hand_on(region: &Region, effective: &Effective, options: &Options) -> Result<(), Error> {
    put_text(region, SETTINGS, SETTINGS_WORDS, &effective.to_hand_on())?;
    put_text(region, PROGRAM, PROGRAM_WORDS, &registered(options).join("\0"))
}

/// The settings that the first has handed on, as text.
pub(super) fn handed_on(region: &Region) -> Result<String, Error> {
    text(region, SETTINGS, SETTINGS_WORDS)
}

/// Refuses a program that has not registered what the first has, since it could not undo what others have done. Refuses
/// one that has registered more, too: others could not undo what it does.
pub(super) fn check_program(region: &Region, options: &Options) -> Result<(), Error> {
    let (there, here) = (text(region, PROGRAM, PROGRAM_WORDS)?, registered(options));
    let there: Vec<&str> = there.split_terminator('\0').collect();
    let cannot = |what: String| Err(Error::CannotShare { what });
    if let Some(missing) = there.iter().find(|name| !here.iter().any(|own| own == *name)) {
        return cannot(format!("this program has not registered {missing}, which those that share it have"));
    }
    match here.iter().find(|own| !there.contains(&own.as_str())) {
        Some(more) => cannot(format!("this program has registered {more}, which those that share it have not")),
        None => Ok(()),
    }
}

fn registered(options: &Options) -> Vec<String> {
    let mut names = options.extensions.names();
    names.extend(options.extractors.names());
    names
}

/// A text in the region: its length in bytes, and the bytes, zeroes behind them.
fn put_text(region: &Region, name: &'static str, words_max: u64, text: &str) -> Result<(), Error> {
    if text.len() as u64 > words_max * 8 {
        let what = format!(
            "{} bytes of settings or of names of structures, and there is room for {}",
            text.len(),
            words_max * 8
        );
        return Err(Error::CannotShare { what });
    }
    let words = region.place::<AtomicU64>(name, words_max + 1, 8)?;
    words[0].store(text.len() as u64, Relaxed); // Nobody joins yet.
    for (word, bytes) in words[1..].iter().zip(text.as_bytes().chunks(8)) {
        let mut eight = [0; 8];
        eight[..bytes.len()].copy_from_slice(bytes);
        word.store(u64::from_le_bytes(eight), Relaxed);
    }
    Ok(())
}

fn text(region: &Region, name: &'static str, words_max: u64) -> Result<String, Error> {
    let words = region.place::<AtomicU64>(name, words_max + 1, 8)?;
    let len = words[0].load(Relaxed).min(words_max * 8) as usize; // Whoever joins was let in.
    let mut bytes: Vec<u8> = words[1..].iter().flat_map(|word| word.load(Relaxed).to_le_bytes()).collect();
    bytes.truncate(len);
    let refused = |_| Error::CannotShare { what: format!("{name} in the region is damaged") };
    String::from_utf8(bytes).map_err(refused)
}
