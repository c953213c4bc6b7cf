//! Clients: listening, handshake, requests.

pub mod connection;
pub mod handshake;
pub mod listener;
mod requests;
pub mod run;
pub mod unix_socket;
