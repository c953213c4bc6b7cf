//! Figures for a monitoring system, see docs/metrics.md.

mod exposition;
mod histogram;
mod http;
mod operations;
mod own;
mod render;

pub use http::{bind, serve};
pub use operations::{Operation, Operations};
pub use render::render;
