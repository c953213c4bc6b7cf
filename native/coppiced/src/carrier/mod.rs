//! Process 1 of an emulated host, see docs/carrier.md.

pub mod clock;
mod config;
mod modules;
mod mounts;
mod network;
mod start;

pub use start::run;
