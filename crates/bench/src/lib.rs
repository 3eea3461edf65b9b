//! What the engine does, measured
