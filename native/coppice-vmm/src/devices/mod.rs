//! The machine's devices and where they are.

use serde::{Deserialize, Serialize};
use virtio_queue::Error as QueueError;

mod block;
mod console;
mod console_meter;
mod disk;
mod request;
mod ring;
mod scatter;
mod serial;
mod transport;

#[cfg(test)]
mod block_tests;
#[cfg(test)]
mod console_tests;
#[cfg(test)]
mod disk_tests;
#[cfg(test)]
pub mod fixture;
#[cfg(test)]
mod transport_tests;

/// What the confinement's drills exercise.
#[cfg(test)]
pub mod drilled {
    pub use super::ring::Buffer;
    pub use super::scatter::Scatter;
}

pub use block::Block;
pub use console::Console;
pub use console_meter::Passed;
pub use disk::{BlankFile, Disk, Extent};
pub use ring::Abuse;
pub use serial::{COM1_GSI, COM1_PORT, COM1_PORTS};
pub use transport::WINDOW_BYTES;

use serial::SerialPort;
use transport::{Transport, TransportState};

use crate::memory::{MMIO_HOLE_START, Memory};

/// Register windows of the virtio devices, one after the other.
pub const VIRTIO_BASE: u64 = MMIO_HOLE_START + 0x1000_0000;
/// Interrupts of the virtio devices (edge-triggered, active high), in the order of their windows.
pub const VIRTIO_GSIS: [u32; 3] = [5, 6, 7];

const BLOCK_WINDOW: u64 = 0;
const CONSOLE_WINDOW: u64 = 1;
/// The last: not every machine has it.
const DISK_WINDOW: u64 = 2;

/// ACPI registers of hardware-reduced machines.
pub const SLEEP_CONTROL_PORT: u16 = 0x600;
pub const SLEEP_STATUS_PORT: u16 = 0x601;
pub const RESET_PORT: u16 = 0x602;
pub const RESET_VALUE: u8 = 1;
/// SLP_EN of the sleep control register.
const SLEEP_ENABLE: u8 = 1 << 5;

/// What a port write asks of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PortEffect {
    None,
    PowerOff,
    Reset,
}

/// All devices of one machine. Everything in here is memory: a fork copies it.
pub struct Devices {
    serial: SerialPort,
    block: Transport<Block>,
    console: Transport<Console>,
    disk: Option<Transport<Disk>>,
    /// Levels of the virtio lines that the interrupt controller knows.
    lines: [bool; VIRTIO_GSIS.len()],
}

/// The devices of a machine that is still, less what is the same in each.
#[derive(Serialize, Deserialize)]
pub struct DevicesState {
    serial: serial::SerialState,
    block: TransportState,
    console: TransportState,
    agent: console::ConsoleState,
}

/// How many virtio devices a machine has.
pub fn virtio_devices(has_disk: bool) -> usize {
    VIRTIO_GSIS.len() - usize::from(!has_disk)
}

impl Devices {
    pub fn new(image: Block, disk: Option<Disk>, console_bytes_per_second: u32) -> Result<Self, QueueError> {
        Ok(Self {
            serial: SerialPort::new(console_bytes_per_second),
            block: Transport::new(image)?,
            console: Transport::new(Console::new())?,
            disk: disk.map(Transport::new).transpose()?,
            lines: [false; VIRTIO_GSIS.len()],
        })
    }

    /// What a machine without a disk that is still has to be saved of; or why it can't be.
    pub fn state(&self) -> Result<DevicesState, &'static str> {
        if self.disk.is_some() {
            return Err("it has a disk");
        }
        if self.is_unfinished() {
            return Err("a request of its disk is half-way");
        }
        Ok(DevicesState {
            serial: self.serial.state(),
            block: self.block.state(),
            console: self.console.state(),
            agent: self.console.device.state()?,
        })
    }

    /// The devices of a machine that was saved.
    pub fn from_state(image: Block, state: DevicesState) -> Result<Self, QueueError> {
        Ok(Self {
            serial: SerialPort::from_state(state.serial),
            block: Transport::from_state(image, state.block)?,
            console: Transport::from_state(Console::from_state(state.agent), state.console)?,
            disk: None,
            lines: [false; VIRTIO_GSIS.len()],
        })
    }

    /// The same devices in the same state, as a fork of the process has them.
    pub fn duplicate(&self) -> Result<Self, QueueError> {
        Ok(Self {
            serial: self.serial.duplicate(),
            block: self.block.duplicate()?,
            console: self.console.duplicate()?,
            disk: self.disk.as_ref().map(Transport::duplicate).transpose()?,
            lines: self.lines,
        })
    }

    /// Pulls every interrupt line low, as in a VM that is new.
    pub fn lower_lines<E>(&mut self, mut set: impl FnMut(u32) -> Result<(), E>) -> Result<(), E> {
        for (line, gsi) in self.lines.iter_mut().zip(VIRTIO_GSIS) {
            if std::mem::take(line) {
                set(gsi)?;
            }
        }
        Ok(())
    }

    pub fn disk(&self) -> Option<&Disk> {
        self.disk.as_ref().map(|disk| &disk.device)
    }

    pub fn disk_mut(&mut self) -> Option<&mut Disk> {
        self.disk.as_mut().map(|disk| &mut disk.device)
    }

    /// The answer to a disk's wish for an extent; `None`: it gets none. Serves what has waited for it.
    pub fn give_extent(&mut self, extent: Option<Extent>, memory: &Memory) -> Result<(), Abuse> {
        let Some(disk) = &mut self.disk else { return Ok(()) };
        match disk.device.take_extent(extent) {
            true => disk.serve(Disk::QUEUE, memory),
            false => Ok(()),
        }
    }

    pub fn port_read(&mut self, port: u16, data: &mut [u8]) {
        data.fill(match port.checked_sub(COM1_PORT) {
            Some(register) if register < COM1_PORTS => self.serial.read(register as u8),
            // Sleep status reads as 0 or the guest waits for it; every other port is empty.
            _ if port == SLEEP_STATUS_PORT => 0,
            _ => 0xff,
        });
    }

    pub fn port_write(&mut self, port: u16, data: &[u8]) -> PortEffect {
        match port {
            SLEEP_CONTROL_PORT if data.iter().any(|byte| byte & SLEEP_ENABLE != 0) => PortEffect::PowerOff,
            RESET_PORT if data.contains(&RESET_VALUE) => PortEffect::Reset,
            _ => {
                if let Some(register) = port.checked_sub(COM1_PORT).filter(|register| *register < COM1_PORTS) {
                    data.iter().for_each(|byte| self.serial.write(register as u8, *byte));
                }
                PortEffect::None
            }
        }
    }

    pub fn mmio_read(&self, address: u64, data: &mut [u8]) {
        match window(address) {
            Some((BLOCK_WINDOW, offset)) => self.block.read(offset, data),
            Some((CONSOLE_WINDOW, offset)) => self.console.read(offset, data),
            Some((DISK_WINDOW, offset)) => match &self.disk {
                Some(disk) => disk.read(offset, data),
                None => data.fill(0xff),
            },
            _ => data.fill(0xff),
        }
    }

    pub fn mmio_write(&mut self, address: u64, data: &[u8], memory: &Memory) -> Result<(), Abuse> {
        match window(address) {
            Some((BLOCK_WINDOW, offset)) => self.block.write(offset, data, memory),
            Some((CONSOLE_WINDOW, offset)) => self.console.write(offset, data, memory),
            Some((DISK_WINDOW, offset)) => match &mut self.disk {
                Some(disk) => disk.write(offset, data, memory),
                None => Ok(()),
            },
            _ => Ok(()),
        }
    }

    /// Queues a payload for the agent; `false` where too much waits already. It is delivered by `serve_waiting`: payloads
    /// that come together go into one buffer, with one interrupt.
    pub fn push_agent(&mut self, payload: &[u8]) -> bool {
        self.console.device.push(payload)
    }

    /// Next payload from the agent.
    pub fn pop_agent(&mut self, memory: &Memory) -> Result<Option<Vec<u8>>, Abuse> {
        let payload = self.console.device.pop();
        if payload.is_some() {
            self.serve_console(memory)?;
        }
        Ok(payload)
    }

    /// A disk has requests for its next turn, which no kick will announce.
    pub fn is_unfinished(&self) -> bool {
        let is_image = self.block.device.is_unfinished() && self.block.can_serve(Block::QUEUE);
        let mut disks = self.disk.iter();
        is_image || disks.any(|disk| disk.device.is_unfinished() && disk.can_serve(Disk::QUEUE))
    }

    /// Serves what no kick will announce: queues that were left because of a full buffer or at the end of a turn.
    pub fn serve_waiting(&mut self, memory: &Memory) -> Result<(), Abuse> {
        if self.block.device.is_unfinished() {
            self.block.serve(Block::QUEUE, memory)?;
        }
        if let Some(disk) = self.disk.as_mut().filter(|disk| disk.device.is_unfinished()) {
            disk.serve(Disk::QUEUE, memory)?;
        }
        self.serve_console(memory)
    }

    fn serve_console(&mut self, memory: &Memory) -> Result<(), Abuse> {
        for queue in self.console.device.waiting_queues().into_iter().flatten() {
            self.console.serve(queue, memory)?;
        }
        Ok(())
    }

    /// In a new VM, whose interrupt lines are all low: serves what waited in the last life.
    pub fn begin_life(&mut self, memory: &Memory) -> Result<(), Abuse> {
        self.lines = [false; VIRTIO_GSIS.len()];
        if let Some(disk) = self.disk_mut() {
            disk.begin_life();
        }
        if let Some(disk) = self.disk.as_mut().filter(|disk| disk.device.is_stalled()) {
            disk.serve(Disk::QUEUE, memory)?;
        }
        self.serve_waiting(memory)
    }

    /// Console lines that the guest has ended; with `all` also the one that it has not.
    pub fn take_console(&mut self, all: bool) -> Option<Passed> {
        if all {
            self.serial.take_rest()
        } else {
            self.serial.take_lines()
        }
    }

    /// Reports every interrupt line whose level changed, and the UART's edge, as `(gsi, level)`.
    pub fn sync_lines<E>(&mut self, mut set: impl FnMut(u32, bool) -> Result<(), E>) -> Result<(), E> {
        if self.serial.take_interrupt() {
            set(COM1_GSI, true)?;
            set(COM1_GSI, false)?;
        }
        let disk = self.disk.as_ref().is_some_and(Transport::line);
        for (index, level) in [self.block.line(), self.console.line(), disk].into_iter().enumerate() {
            if self.lines[index] != level {
                set(VIRTIO_GSIS[index], level)?;
                self.lines[index] = level;
            }
        }
        Ok(())
    }
}

/// Number of the virtio window that an address lies in, and the offset in it.
fn window(address: u64) -> Option<(u64, u64)> {
    let offset = address.checked_sub(VIRTIO_BASE)?;
    Some((offset / WINDOW_BYTES, offset % WINDOW_BYTES))
}
