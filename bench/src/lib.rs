//! What the measurements share.
#![forbid(unsafe_code)]

pub mod medians;
pub mod orders;
pub mod pipelines;
