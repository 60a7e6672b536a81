//! The three kinds of patch.
