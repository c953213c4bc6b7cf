//! virtio-mmio (version 2): registers, status machine and queue set-up, the same for every device.

use serde::{Deserialize, Serialize};
use virtio_bindings::virtio_config::{
    VIRTIO_CONFIG_S_ACKNOWLEDGE, VIRTIO_CONFIG_S_DRIVER, VIRTIO_CONFIG_S_DRIVER_OK, VIRTIO_CONFIG_S_FAILED,
    VIRTIO_CONFIG_S_FEATURES_OK, VIRTIO_F_VERSION_1,
};
use virtio_bindings::virtio_mmio::*;
use virtio_bindings::virtio_ring::VIRTIO_RING_F_EVENT_IDX;
use virtio_queue::{Queue, QueueState, QueueT};

use crate::devices::ring::Abuse;
use crate::memory::Memory;

/// Bytes of one device's register window.
pub const WINDOW_BYTES: u64 = 0x1000;

const MAGIC: u32 = u32::from_le_bytes(*b"virt");
const VERSION: u32 = 2;
/// No meaning to drivers; shown in sysfs.
const VENDOR: u32 = u32::from_le_bytes(*b"copp");

const ACKNOWLEDGE: u32 = VIRTIO_CONFIG_S_ACKNOWLEDGE;
const DRIVER: u32 = VIRTIO_CONFIG_S_DRIVER;
const DRIVER_OK: u32 = VIRTIO_CONFIG_S_DRIVER_OK;
const FEATURES_OK: u32 = VIRTIO_CONFIG_S_FEATURES_OK;
const FAILED: u32 = VIRTIO_CONFIG_S_FAILED;

/// Features of the transport that every device has.
const COMMON_FEATURES: u64 = 1 << VIRTIO_F_VERSION_1 | 1 << VIRTIO_RING_F_EVENT_IDX;

/// What is particular to one kind of device.
pub trait Device {
    const NAME: &'static str;
    /// Type number of the virtio specification.
    const ID: u32;
    /// Feature bits besides the transport's own.
    const FEATURES: u64;
    /// Largest size of each queue, a power of two.
    const QUEUE_SIZES: &'static [u16];

    /// The configuration space, which is read-only.
    fn config(&self) -> &[u8];

    /// The driver reset the device: back to the state it had at first.
    fn reset(&mut self);

    /// Serves queue `index` after a kick; whether the driver wants an interrupt. Never called before activation.
    fn kick(&mut self, index: usize, queues: &mut [Queue], memory: &Memory) -> Result<bool, Abuse>;
}

/// One device behind its registers.
pub struct Transport<D> {
    pub device: D,
    queues: Vec<Queue>,
    status: u32,
    driver_features: u64,
    device_features_select: u32,
    driver_features_select: u32,
    queue_select: usize,
    interrupt_status: u32,
}

/// The registers behind which a device is.
#[derive(Serialize, Deserialize)]
pub struct TransportState {
    queues: Vec<QueueRecord>,
    status: u32,
    driver_features: u64,
    device_features_select: u32,
    driver_features_select: u32,
    queue_select: usize,
    interrupt_status: u32,
}

/// `QueueState`, which can't be encoded.
#[derive(Serialize, Deserialize)]
struct QueueRecord {
    max_size: u16,
    next_avail: u16,
    next_used: u16,
    event_idx_enabled: bool,
    size: u16,
    ready: bool,
    desc_table: u64,
    avail_ring: u64,
    used_ring: u64,
}

/// Both ways, field by field.
macro_rules! same_fields {
    ($from:ty => $to:ty { $($field:ident),* }) => {
        impl From<$from> for $to {
            fn from(from: $from) -> Self {
                Self { $($field: from.$field),* }
            }
        }
    };
}

same_fields!(QueueState => QueueRecord {
    max_size, next_avail, next_used, event_idx_enabled, size, ready, desc_table, avail_ring, used_ring
});
same_fields!(QueueRecord => QueueState {
    max_size, next_avail, next_used, event_idx_enabled, size, ready, desc_table, avail_ring, used_ring
});

impl<D: Device> Transport<D> {
    pub fn new(device: D) -> Result<Self, virtio_queue::Error> {
        let queues = D::QUEUE_SIZES
            .iter()
            .map(|size| Queue::new(*size))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            device,
            queues,
            status: 0,
            driver_features: 0,
            device_features_select: 0,
            driver_features_select: 0,
            queue_select: 0,
            interrupt_status: 0,
        })
    }

    pub fn state(&self) -> TransportState {
        TransportState {
            queues: self
                .queues
                .iter()
                .map(|queue| QueueRecord::from(queue.state()))
                .collect(),
            status: self.status,
            driver_features: self.driver_features,
            device_features_select: self.device_features_select,
            driver_features_select: self.driver_features_select,
            queue_select: self.queue_select,
            interrupt_status: self.interrupt_status,
        }
    }

    pub fn from_state(device: D, state: TransportState) -> Result<Self, virtio_queue::Error> {
        let queues = state
            .queues
            .into_iter()
            .map(|queue| Queue::try_from(QueueState::from(queue)));
        Ok(Self {
            device,
            queues: queues.collect::<Result<_, _>>()?,
            status: state.status,
            driver_features: state.driver_features,
            device_features_select: state.device_features_select,
            driver_features_select: state.driver_features_select,
            queue_select: state.queue_select,
            interrupt_status: state.interrupt_status,
        })
    }

    /// Another device in the same state, as a fork of the process has it.
    pub fn duplicate(&self) -> Result<Self, virtio_queue::Error>
    where
        D: Clone,
    {
        let queues = self.queues.iter().map(|queue| Queue::try_from(queue.state()));
        Ok(Self {
            device: self.device.clone(),
            queues: queues.collect::<Result<_, _>>()?,
            ..*self
        })
    }

    /// Level of the device's interrupt line.
    pub fn line(&self) -> bool {
        self.interrupt_status != 0
    }

    fn is_active(&self) -> bool {
        self.status & (DRIVER_OK | FAILED) == DRIVER_OK
    }

    /// Whether the driver has set the queue up.
    pub fn can_serve(&self, index: usize) -> bool {
        self.is_active() && self.queues.get(index).is_some_and(QueueT::ready)
    }

    /// Serves one queue as if the driver had kicked it; used when the device has got something to do by itself.
    pub fn serve(&mut self, index: usize, memory: &Memory) -> Result<(), Abuse> {
        if self.can_serve(index) && self.device.kick(index, &mut self.queues, memory)? {
            self.interrupt_status |= VIRTIO_MMIO_INT_VRING;
        }
        Ok(())
    }

    pub fn read(&self, offset: u64, data: &mut [u8]) {
        data.fill(0);
        if offset >= u64::from(VIRTIO_MMIO_CONFIG) {
            let start = (offset - u64::from(VIRTIO_MMIO_CONFIG)) as usize;
            if let Some(config) = self.device.config().get(start..) {
                let length = config.len().min(data.len());
                data[..length].copy_from_slice(&config[..length]);
            }
        } else if data.len() == 4 && offset.is_multiple_of(4) {
            data.copy_from_slice(&self.read_register(offset as u32).to_le_bytes());
        }
    }

    fn read_register(&self, offset: u32) -> u32 {
        match offset {
            VIRTIO_MMIO_MAGIC_VALUE => MAGIC,
            VIRTIO_MMIO_VERSION => VERSION,
            VIRTIO_MMIO_DEVICE_ID => D::ID,
            VIRTIO_MMIO_VENDOR_ID => VENDOR,
            VIRTIO_MMIO_DEVICE_FEATURES => word(COMMON_FEATURES | D::FEATURES, self.device_features_select),
            VIRTIO_MMIO_QUEUE_NUM_MAX => self
                .queues
                .get(self.queue_select)
                .map_or(0, |queue| queue.max_size().into()),
            VIRTIO_MMIO_QUEUE_READY => self
                .queues
                .get(self.queue_select)
                .map_or(0, |queue| queue.ready().into()),
            VIRTIO_MMIO_INTERRUPT_STATUS => self.interrupt_status,
            VIRTIO_MMIO_STATUS => self.status,
            // No shared memory regions: length and base are all ones.
            VIRTIO_MMIO_SHM_LEN_LOW
            | VIRTIO_MMIO_SHM_LEN_HIGH
            | VIRTIO_MMIO_SHM_BASE_LOW
            | VIRTIO_MMIO_SHM_BASE_HIGH => u32::MAX,
            _ => 0,
        }
    }

    /// Registers that may not be written in the present state ignore the write.
    pub fn write(&mut self, offset: u64, data: &[u8], memory: &Memory) -> Result<(), Abuse> {
        let Ok(bytes) = <[u8; 4]>::try_from(data) else {
            return Ok(());
        };
        let value = u32::from_le_bytes(bytes);
        match offset as u32 {
            _ if offset >= u64::from(VIRTIO_MMIO_CONFIG) => {}
            VIRTIO_MMIO_QUEUE_NOTIFY => self.serve(value as usize, memory)?,
            VIRTIO_MMIO_INTERRUPT_ACK => self.interrupt_status &= !value,
            VIRTIO_MMIO_STATUS => self.write_status(value, memory)?,
            VIRTIO_MMIO_DEVICE_FEATURES_SEL => self.device_features_select = value,
            VIRTIO_MMIO_DRIVER_FEATURES_SEL => self.driver_features_select = value,
            VIRTIO_MMIO_DRIVER_FEATURES if self.status & (DRIVER | FEATURES_OK) == DRIVER => {
                set_word(&mut self.driver_features, self.driver_features_select, value);
            }
            VIRTIO_MMIO_QUEUE_SEL => self.queue_select = value as usize,
            register => self.write_queue_register(register, value),
        }
        Ok(())
    }

    fn write_queue_register(&mut self, register: u32, value: u32) {
        let may_configure = self.status & (FEATURES_OK | DRIVER_OK | FAILED) == FEATURES_OK;
        let event_idx = self.driver_features & (1 << VIRTIO_RING_F_EVENT_IDX) != 0;
        let Some(queue) = self.queues.get_mut(self.queue_select).filter(|_| may_configure) else {
            return;
        };
        match register {
            VIRTIO_MMIO_QUEUE_READY => {
                queue.set_event_idx(event_idx);
                queue.set_ready(value == 1);
            }
            _ if queue.ready() => {}
            VIRTIO_MMIO_QUEUE_NUM => queue.set_size(u16::try_from(value).unwrap_or(0)),
            VIRTIO_MMIO_QUEUE_DESC_LOW => queue.set_desc_table_address(Some(value), None),
            VIRTIO_MMIO_QUEUE_DESC_HIGH => queue.set_desc_table_address(None, Some(value)),
            VIRTIO_MMIO_QUEUE_AVAIL_LOW => queue.set_avail_ring_address(Some(value), None),
            VIRTIO_MMIO_QUEUE_AVAIL_HIGH => queue.set_avail_ring_address(None, Some(value)),
            VIRTIO_MMIO_QUEUE_USED_LOW => queue.set_used_ring_address(Some(value), None),
            VIRTIO_MMIO_QUEUE_USED_HIGH => queue.set_used_ring_address(None, Some(value)),
            _ => {}
        }
    }

    /// Moves the status forward: bits are set in order and cleared only by a reset.
    fn write_status(&mut self, value: u32, memory: &Memory) -> Result<(), Abuse> {
        if value == 0 {
            self.reset();
            return Ok(());
        }
        let added = value & !self.status;
        if value & self.status != self.status {
            return Ok(());
        }
        match added {
            ACKNOWLEDGE | FAILED => self.status |= added,
            DRIVER if self.status & ACKNOWLEDGE != 0 => self.status |= added,
            FEATURES_OK if self.status & DRIVER != 0 && self.features_are_acceptable() => self.status |= added,
            DRIVER_OK if self.status & FEATURES_OK != 0 => {
                self.check_queues(memory)?;
                self.status |= added;
            }
            // Some drivers set the first two at once.
            added if added == ACKNOWLEDGE | DRIVER => self.status |= added,
            _ => {}
        }
        Ok(())
    }

    fn features_are_acceptable(&self) -> bool {
        self.driver_features & !(COMMON_FEATURES | D::FEATURES) == 0
            && self.driver_features & (1 << VIRTIO_F_VERSION_1) != 0
    }

    fn check_queues(&self, memory: &Memory) -> Result<(), Abuse> {
        let broken = |queue: &Queue| queue.ready() && !queue.is_valid(memory);
        match self.queues.iter().position(broken) {
            None => Ok(()),
            Some(queue) => Err(Abuse::RingAddress { device: D::NAME, queue }),
        }
    }

    fn reset(&mut self) {
        self.device.reset();
        self.queues.iter_mut().for_each(QueueT::reset);
        self.status = 0;
        self.driver_features = 0;
        self.device_features_select = 0;
        self.driver_features_select = 0;
        self.queue_select = 0;
        self.interrupt_status = 0;
    }
}

/// The 32 bits of `value` that a select register names; 0 beyond them.
fn word(value: u64, select: u32) -> u32 {
    match select {
        0 => value as u32,
        1 => (value >> 32) as u32,
        _ => 0,
    }
}

fn set_word(value: &mut u64, select: u32, word: u32) {
    match select {
        0 => *value = *value & !0xffff_ffff | u64::from(word),
        1 => *value = *value & 0xffff_ffff | u64::from(word) << 32,
        _ => {}
    }
}
