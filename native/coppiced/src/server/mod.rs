//! Clients: listening, handshake, requests.

pub mod connection;
pub mod handshake;
pub mod listener;
pub mod refusals;
mod remote;
mod requests;
pub mod run;
mod suspects;
pub mod tls;
pub mod unix_socket;
