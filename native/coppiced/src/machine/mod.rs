//! One VMM process, the sandbox that it is, and the agent inside.

pub mod agent_link;
pub mod barriers;
pub mod boot;
pub mod console;
pub mod control_socket;
pub mod copy;
pub mod custody;
pub mod extent_grant;
pub mod fork;
pub mod handout;
pub mod lend;
pub mod priority;
pub mod process;
pub mod rewind;
pub mod sandbox;
pub mod spawn;
pub mod state;
pub mod supervisor;
pub mod whole;
