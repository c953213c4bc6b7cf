//! Virtio disks by serial number.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::defaults::DISK_WAIT;

const POLL: Duration = Duration::from_millis(20);

/// Device of the disk with a serial, e.g. `/dev/vdb`.
pub fn disk_by_serial(serial: &str) -> Option<PathBuf> {
    find(Path::new("/sys/block"), serial).map(|name| Path::new("/dev").join(name))
}

/// As `disk_by_serial`, for a disk that was attached a moment ago.
pub async fn wait_for_disk(serial: &str) -> Option<PathBuf> {
    let begin = Instant::now();
    loop {
        match disk_by_serial(serial) {
            Some(path) if path.exists() => return Some(path),
            _ if begin.elapsed() > DISK_WAIT => return None,
            _ => tokio::time::sleep(POLL).await,
        }
    }
}

fn find(directory: &Path, serial: &str) -> Option<String> {
    for entry in fs::read_dir(directory).ok()?.flatten() {
        let name = entry.file_name().into_string().ok()?;
        let found = fs::read_to_string(entry.path().join("serial")).unwrap_or_default();
        if name.starts_with("vd") && !serial.is_empty() && found.trim_end_matches(['\n', '\0']) == serial {
            return Some(name);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn find_given_several_disks_matches_the_whole_serial() {
        let directory = std::env::temp_dir().join(format!("coppiced-disks-{}", std::process::id()));
        for (name, serial) in [("vda", "coppice-guest\n"), ("vdb", "coppice-config"), ("sda", "other")] {
            fs::create_dir_all(directory.join(name)).unwrap();
            fs::write(directory.join(name).join("serial"), serial).unwrap();
        }
        assert_eq!(find(&directory, "coppice-guest").as_deref(), Some("vda"));
        assert_eq!(find(&directory, "coppice").as_deref(), None);
        assert_eq!(find(&directory, "other").as_deref(), None);
        assert_eq!(find(&directory, "").as_deref(), None);
        fs::remove_dir_all(directory).unwrap();
    }
}
