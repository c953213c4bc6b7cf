//! COM1: the guest's console. Output only; nothing is ever typed into it.

use std::convert::Infallible;
use std::io::{self, Write};
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use serde::{Deserialize, Serialize};
use vm_superio::serial::NoEvents;
use vm_superio::{Serial, Trigger};

use super::console_meter::{Meter, Passed};

pub const COM1_PORT: u16 = 0x3f8;
pub const COM1_PORTS: u16 = 8;
pub const COM1_GSI: u32 = 4;

/// A line is passed on when it ends or reaches this length.
const LINE_BYTES: usize = 512;

/// The interrupt that the UART asks for, until somebody raises it.
#[derive(Clone, Default)]
struct Request(Arc<AtomicBool>);

impl Trigger for Request {
    type E = Infallible;

    fn trigger(&self) -> Result<(), Infallible> {
        self.0.store(true, Ordering::Relaxed);
        Ok(())
    }
}

/// What the guest printed and nobody fetched.
#[derive(Default)]
struct Output {
    bytes: Vec<u8>,
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The UART's registers.
#[derive(Serialize, Deserialize)]
pub struct SerialState {
    /// Low and high byte.
    baud_divisor: [u8; 2],
    /// Enable, identification.
    interrupt: [u8; 2],
    /// Control, status.
    line: [u8; 2],
    /// Control, status.
    modem: [u8; 2],
    scratch: u8,
    is_requested: bool,
    bytes_per_second: u32,
}

/// The UART.
pub struct SerialPort {
    uart: Serial<Request, NoEvents, Output>,
    request: Request,
    meter: Meter,
}

impl SerialPort {
    pub fn new(bytes_per_second: u32) -> Self {
        let request = Request::default();
        Self {
            uart: Serial::new(request.clone(), Output::default()),
            request,
            meter: Meter::new(bytes_per_second),
        }
    }

    pub fn state(&self) -> SerialState {
        let uart = self.uart.state();
        SerialState {
            baud_divisor: [uart.baud_divisor_low, uart.baud_divisor_high],
            interrupt: [uart.interrupt_enable, uart.interrupt_identification],
            line: [uart.line_control, uart.line_status],
            modem: [uart.modem_control, uart.modem_status],
            scratch: uart.scratch,
            is_requested: self.request.0.load(Ordering::Relaxed),
            bytes_per_second: self.meter.bytes_per_second(),
        }
    }

    pub fn from_state(state: SerialState) -> Self {
        let request = Request::default();
        let uart = vm_superio::SerialState {
            baud_divisor_low: state.baud_divisor[0],
            baud_divisor_high: state.baud_divisor[1],
            interrupt_enable: state.interrupt[0],
            interrupt_identification: state.interrupt[1],
            line_control: state.line[0],
            line_status: state.line[1],
            modem_control: state.modem[0],
            modem_status: state.modem[1],
            scratch: state.scratch,
            in_buffer: Vec::new(),
        };
        let uart = Serial::from_state(&uart, request.clone(), NoEvents, Output::default());
        request.0.store(state.is_requested, Ordering::Relaxed);
        match uart {
            Ok(uart) => Self {
                uart,
                request,
                meter: Meter::new(state.bytes_per_second),
            },
            // Neither its trigger nor an empty buffer can fail.
            Err(_) => Self::new(state.bytes_per_second),
        }
    }

    /// Another port in the same state, with what nobody has fetched yet.
    pub fn duplicate(&self) -> Self {
        let mut port = Self::from_state(self.state());
        port.uart.writer_mut().bytes.clone_from(&self.uart.writer().bytes);
        port.meter = self.meter.clone();
        port
    }

    pub fn read(&mut self, register: u8) -> u8 {
        self.uart.read(register)
    }

    pub fn write(&mut self, register: u8, value: u8) {
        // Neither the trigger nor the buffer can fail.
        let _ = self.uart.write(register, value);
    }

    /// Whether the UART has asked for an (edge) interrupt since the last call.
    pub fn take_interrupt(&self) -> bool {
        self.request.0.swap(false, Ordering::Relaxed)
    }

    /// Output that is worth passing on, whole lines or long pieces of one, as far as the guest's rate allows.
    pub fn take_lines(&mut self) -> Option<Passed> {
        let bytes = &self.uart.writer().bytes;
        if bytes.last() == Some(&b'\n') || bytes.len() >= LINE_BYTES {
            let bytes = self.take();
            self.meter.pass(bytes, Instant::now)
        } else {
            None
        }
    }

    /// All output.
    pub fn take_rest(&mut self) -> Option<Passed> {
        let bytes = self.take();
        self.meter.rest(bytes)
    }

    fn take(&mut self) -> Vec<u8> {
        mem::take(&mut self.uart.writer_mut().bytes)
    }
}
