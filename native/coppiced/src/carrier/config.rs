//! The carrier's configuration: JSON on a disk of its own.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde::Deserialize;

/// Larger than any configuration, smaller than any mistake.
const MAX_BYTES: u64 = 64 * 1024;

#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("Configuration disk {disk} can't be read: {source}")]
    Unreadable { disk: PathBuf, source: io::Error },
    #[error("Configuration is not valid: {0}")]
    Invalid(String),
}

#[derive(Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct CarrierConfig {
    /// What a client's first frame must carry.
    pub token: String,
    pub port: u16,
    /// Power off when no client was connected for this long; absent: never.
    #[serde(default, alias = "idleSeconds")]
    pub idle_exit_seconds: Option<u64>,
    #[serde(default = "default_vmm")]
    pub vmm: PathBuf,
    #[serde(default = "default_kernel")]
    pub kernel: PathBuf,
    #[serde(default = "default_initrd")]
    pub initrd: PathBuf,
}

fn default_vmm() -> PathBuf {
    PathBuf::from("/coppice-vmm")
}

fn default_kernel() -> PathBuf {
    PathBuf::from("/guest/vmlinux")
}

fn default_initrd() -> PathBuf {
    PathBuf::from("/guest/initrd")
}

pub fn read(disk: &Path) -> Result<CarrierConfig, ConfigError> {
    let mut bytes = Vec::new();
    let opened = File::open(disk).and_then(|file| file.take(MAX_BYTES).read_to_end(&mut bytes));
    opened.map_err(|source| ConfigError::Unreadable {
        disk: disk.to_owned(),
        source,
    })?;
    parse(&bytes)
}

/// The JSON ends where the padding begins.
fn parse(bytes: &[u8]) -> Result<CarrierConfig, ConfigError> {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    let config: CarrierConfig =
        serde_json::from_slice(&bytes[..end]).map_err(|error| ConfigError::Invalid(error.to_string()))?;
    match config.idle_exit_seconds {
        Some(0) => Err(ConfigError::Invalid("idleExitSeconds must be at least 1".to_owned())),
        _ => Ok(config),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse_given_padding_reads_what_is_before_it() {
        let mut disk = br#"{"token":"0123456789abcdef","port":7000,"idleSeconds":60}  "#.to_vec();
        disk.resize(4096, 0);
        let config = parse(&disk).unwrap();
        assert_eq!((config.port, config.idle_exit_seconds), (7000, Some(60)));
        assert_eq!(config.kernel, Path::new("/guest/vmlinux"));
    }

    #[test]
    fn parse_given_a_bad_field_names_it() {
        let message = parse(br#"{"token":"t","port":"x"}"#).unwrap_err().to_string();
        assert!(message.contains("u16"), "{message}");
        let message = parse(br#"{"port":1}"#).unwrap_err().to_string();
        assert!(message.contains("token"), "{message}");
        assert!(parse(&[0; 512]).is_err());
    }
}
