//! Holds a sandbox while something happens to it that must either succeed or end it.

use std::rc::Rc;

use crate::host::Host;
use crate::machine::sandbox::Sandbox;

/// Closes the sandbox when dropped, unless `release`d: a request that was cancelled, timed out or failed half-way leaves
/// nothing behind whose state nobody knows.
pub struct Custody {
    host: Rc<Host>,
    sandbox: Rc<Sandbox>,
    armed: bool,
}

impl Custody {
    pub fn new(host: &Rc<Host>, sandbox: &Rc<Sandbox>) -> Self {
        Custody {
            host: Rc::clone(host),
            sandbox: Rc::clone(sandbox),
            armed: true,
        }
    }

    /// All went well: the sandbox lives on.
    pub fn release(mut self) {
        self.armed = false;
    }
}

impl Drop for Custody {
    fn drop(&mut self) {
        if self.armed {
            self.host.discard(&self.sandbox);
        }
    }
}
