//! Begin, commit, abort; updates that are logged and applied in one step
