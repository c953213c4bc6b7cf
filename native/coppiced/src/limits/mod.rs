//! What one sandbox may take of its host, and who sees to it: cgroups where there are some, else the daemon itself.

pub mod cgroup;
mod enforce;
mod memory_watch;
mod share;

use serde::{Deserialize, Serialize};

use crate::defaults::{MAX_CONSOLE_RATE, MAX_CPU_SHARE, MIN_CONSOLE_RATE, MIN_CPUS, MIN_GUEST_PROCESSES};
use crate::errors::{FaultDomain, Spec, Typed};
use crate::host::cpus;

pub use enforce::{CgroupChoice, Enforcement, Held, Means};

/// Least memory that a sandbox can be held to: what a child needs to come to life.
const MIN_MEMORY_MIB: u32 = 8;
const MAX_MEMORY_MIB: u32 = 65_536;
const MAX_GUEST_PROCESSES: u32 = 4_194_304;

#[derive(Debug, thiserror::Error)]
pub enum LimitError {
    #[error("`limits.{field}` is {given}; it must be {expected}")]
    OutOfRange {
        field: &'static str,
        given: String,
        expected: String,
    },
    #[error("`limits.{field}` can't be held on this host: {reason}")]
    Unsupported { field: &'static str, reason: String },
    #[error("The limits of sandbox {id} can't be set: {reason}")]
    Failed { id: String, reason: String },
}

impl Typed for LimitError {
    fn spec(&self) -> Spec {
        match self {
            LimitError::OutOfRange { .. } => Spec::new("INVALID_ARGUMENT", FaultDomain::User)
                .remedy("Give a value in the range that the message names, or raise the host's own limit (coppiced serve --help)."),
            LimitError::Unsupported { .. } => Spec::new("LIMIT_UNSUPPORTED", FaultDomain::Host)
                .remedy("Leave the limit out, or give the daemon a cgroup (coppiced serve --cgroup); `coppice doctor` says what is missing."),
            LimitError::Failed { .. } => Spec::new("LIMIT_FAILED", FaultDomain::Host)
                .retryable()
                .remedy("See the message; the sandbox goes on with the limits that it had."),
        }
    }
}

/// Of one sandbox. Absent: no other limit than the host's.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Limits {
    /// Memory that it may add to what its checkpoint has.
    #[serde(rename = "memoryMiB")]
    pub memory_mib: Option<u32>,
    /// Weight against other sandboxes when all want the processors; the usual one is 100.
    pub cpu_share: Option<u32>,
    /// Processors that it may keep busy, whatever the others do.
    pub cpu_max: Option<f64>,
}

impl Limits {
    pub fn is_none(&self) -> bool {
        *self == Limits::default()
    }

    /// As they are, where the host has no stricter ones.
    pub fn checked(self, host: &HostLimits) -> Result<Self, LimitError> {
        let memory_max = host.memory_mib.unwrap_or(MAX_MEMORY_MIB);
        within("memoryMiB", self.memory_mib, MIN_MEMORY_MIB, memory_max)?;
        within("cpuShare", self.cpu_share, 1, MAX_CPU_SHARE)?;
        let cpu_max = host.cpus.unwrap_or(cpus() as f64);
        within("cpuMax", self.cpu_max, MIN_CPUS, cpu_max)?;
        Ok(Limits {
            memory_mib: self.memory_mib.or(host.memory_mib),
            cpu_max: self.cpu_max.or(host.cpus),
            ..self
        })
    }
}

/// Of a guest, from its boot on; everything forked from it has them too.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct GuestLimits {
    #[serde(rename = "memoryMiB")]
    memory_mib: Option<u32>,
    cpu_share: Option<u32>,
    cpu_max: Option<f64>,
    /// Processes and threads in the guest, those of its kernel included.
    pub processes: Option<u32>,
    pub console_bytes_per_second: Option<u32>,
}

impl GuestLimits {
    /// With the host's own limits.
    pub fn checked(self, host: &HostLimits) -> Result<Self, LimitError> {
        within("processes", self.processes, MIN_GUEST_PROCESSES, MAX_GUEST_PROCESSES)?;
        let rate = self.console_bytes_per_second;
        within("consoleBytesPerSecond", rate, MIN_CONSOLE_RATE, host.console_rate)?;
        let Limits {
            memory_mib,
            cpu_share,
            cpu_max,
        } = self.of_host().checked(host)?;
        Ok(GuestLimits {
            memory_mib,
            cpu_share,
            cpu_max,
            ..self
        })
    }

    /// Those that the host sees to.
    pub fn of_host(&self) -> Limits {
        Limits {
            memory_mib: self.memory_mib,
            cpu_share: self.cpu_share,
            cpu_max: self.cpu_max,
        }
    }

    /// For the guest's kernel, which refuses threads above it.
    pub fn kernel_arguments(&self) -> Option<String> {
        self.processes
            .map(|processes| format!("sysctl.kernel.threads-max={processes}"))
    }
}

/// The most that any sandbox of this host may have.
#[derive(Debug, Clone, Copy)]
pub struct HostLimits {
    pub memory_mib: Option<u32>,
    pub cpus: Option<f64>,
    /// Bytes a second of each console.
    pub console_rate: u32,
}

impl Default for HostLimits {
    fn default() -> Self {
        HostLimits {
            memory_mib: None,
            cpus: None,
            console_rate: MAX_CONSOLE_RATE,
        }
    }
}

fn within<T: Copy + PartialOrd + std::fmt::Display>(
    field: &'static str,
    given: Option<T>,
    min: T,
    max: T,
) -> Result<(), LimitError> {
    match given {
        Some(value) if !(min..=max).contains(&value) => Err(LimitError::OutOfRange {
            field,
            given: value.to_string(),
            expected: format!("{min} to {max}"),
        }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limit_out_of_its_range_names_the_field_and_the_range() {
        let host = HostLimits::default();
        let limits = Limits::default();
        let wrong = [
            (
                Limits {
                    memory_mib: Some(1),
                    ..limits
                },
                "limits.memoryMiB",
            ),
            (
                Limits {
                    cpu_share: Some(0),
                    ..limits
                },
                "limits.cpuShare",
            ),
            (
                Limits {
                    cpu_share: Some(10_001),
                    ..limits
                },
                "limits.cpuShare",
            ),
            (
                Limits {
                    cpu_max: Some(0.0),
                    ..limits
                },
                "limits.cpuMax",
            ),
            (
                Limits {
                    cpu_max: Some(f64::NAN),
                    ..limits
                },
                "limits.cpuMax",
            ),
        ];
        for (limits, field) in wrong {
            let error = limits.checked(&host).unwrap_err();
            assert!(error.to_string().contains(field), "{error}");
            assert_eq!(error.spec().code, "INVALID_ARGUMENT");
        }
    }

    #[test]
    fn host_has_the_last_word() {
        let host = HostLimits {
            memory_mib: Some(64),
            cpus: Some(0.5),
            console_rate: 1_024,
        };
        let unlimited = Limits::default().checked(&host).unwrap();
        assert_eq!((unlimited.memory_mib, unlimited.cpu_max), (Some(64), Some(0.5)));
        let less = Limits {
            memory_mib: Some(32),
            ..Limits::default()
        };
        assert_eq!(less.checked(&host).unwrap().memory_mib, Some(32));
        let more = Limits {
            memory_mib: Some(65),
            ..Limits::default()
        };
        assert!(more.checked(&host).is_err());
        let loud = GuestLimits {
            console_bytes_per_second: Some(1_025),
            ..GuestLimits::default()
        };
        assert!(loud.checked(&host).is_err());
    }
}
