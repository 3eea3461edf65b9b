//! The parts of a repair that somebody could forget. A test leaves out each, and sees that it is missed.

use crate::log::Log;

/// A part of a repair, see `repair.rs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The flush that the dead led ends.
    Lead,
    /// The room behind what it has made durable is given out.
    Zeroing,
    /// The living that are about to publish are waited for.
    Living,
    /// What the dead had reserved and named is filled.
    Named,
    /// What the dead had reserved and not named is filled.
    Gaps,
    /// The bytes of these are counted.
    GapBytes,
    /// Where the next repairer finds one that is being filled.
    GapBegun,
    /// What was claimed is given back.
    Claims,
    /// The sums are added up.
    Sums,
    /// Those that wait beside the line are counted again.
    Beside,
    /// Those that keep more are counted again.
    Keepers,
    /// The places of the dead in line are taken back.
    Places,
    /// The head of the line is passed on.
    Head,
    /// The latch of segments is given back.
    Segments,
    /// The latch of the control file is given back.
    Control,
    /// The pins of the dead are forgotten.
    Pins,
    /// Whoever sleeps is woken.
    Wakes,
}

impl Log {
    /// Whether the repairs of this log leave a part out: in tests only.
    #[inline]
    pub(crate) fn forgets(&self, part: Part) -> bool {
        #[cfg(feature = "deaths")]
        return self.forgotten == Some(part);
        #[cfg(not(feature = "deaths"))]
        {
            let _ = part;
            false
        }
    }
}

#[cfg(feature = "deaths")]
impl Part {
    /// All parts.
    pub const ALL: [Part; 17] = [
        Part::Lead,
        Part::Zeroing,
        Part::Living,
        Part::Named,
        Part::Gaps,
        Part::GapBytes,
        Part::GapBegun,
        Part::Claims,
        Part::Sums,
        Part::Beside,
        Part::Keepers,
        Part::Places,
        Part::Head,
        Part::Segments,
        Part::Control,
        Part::Pins,
        Part::Wakes,
    ];
}
