//! Root file systems that guests boot from.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use crate::disks;
use crate::errors::{FaultDomain, Spec, Typed};

/// Longest id that is taken.
const MAX_ID_BYTES: usize = 256;

#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    #[error("Image {id} is not attached")]
    NotFound { id: String },
    #[error("Image id must be 1 to {MAX_ID_BYTES} printable characters without blanks")]
    BadId,
    #[error("Image source must be either a path or a disk's serial, not {given}")]
    BadSource { given: &'static str },
    #[error("Image path {path} must be absolute")]
    RelativePath { path: String },
    #[error("Image {path} can't be opened: {source}")]
    Unreadable { path: String, source: io::Error },
    #[error("Image {path} is neither a file nor a block device")]
    WrongKind { path: String },
    #[error("This host has no disk with serial {serial}")]
    NoDisk { serial: String },
}

impl Typed for ImageError {
    fn spec(&self) -> Spec {
        match self {
            ImageError::NotFound { .. } => Spec::new("IMAGE_NOT_FOUND", FaultDomain::User)
                .remedy("Build it and attach it first (host.images.build, image.attach)."),
            ImageError::BadId | ImageError::BadSource { .. } | ImageError::RelativePath { .. } => {
                Spec::new("INVALID_ARGUMENT", FaultDomain::User)
                    .remedy("Correct the parameter; docs/protocol.md lists the parameters of every method.")
            }
            ImageError::Unreadable { .. } | ImageError::WrongKind { .. } => {
                Spec::new("IMAGE_UNREADABLE", FaultDomain::User)
                    .remedy("Check that the file exists on the host and that coppiced may read it.")
            }
            ImageError::NoDisk { .. } => Spec::new("IMAGE_DISK_MISSING", FaultDomain::Host)
                .retryable()
                .remedy("Attach the disk to the carrier first, then call image.attach again."),
        }
    }
}

/// Images by id. They stay for the daemon's life.
#[derive(Default)]
pub struct Images {
    by_id: RefCell<BTreeMap<String, PathBuf>>,
}

impl Images {
    pub async fn attach(&self, id: &str, path: Option<&str>, serial: Option<&str>) -> Result<(), ImageError> {
        let printable = id.bytes().all(|byte| byte.is_ascii_graphic());
        if id.is_empty() || id.len() > MAX_ID_BYTES || !printable {
            return Err(ImageError::BadId);
        }
        // The same id is the same content, so what is known and still there is kept.
        let known = self.by_id.borrow().get(id).cloned();
        if known.is_some_and(|known| check(&known).is_ok()) {
            return Ok(());
        }
        let path = match (path, serial) {
            (Some(path), None) => PathBuf::from(path),
            (None, Some(serial)) => {
                let missing = || ImageError::NoDisk {
                    serial: serial.to_owned(),
                };
                disks::wait_for_disk(serial).await.ok_or_else(missing)?
            }
            (Some(_), Some(_)) => return Err(ImageError::BadSource { given: "both" }),
            (None, None) => return Err(ImageError::BadSource { given: "neither" }),
        };
        check(&path)?;
        tracing::info!(image = id, path = %path.display(), "Image attached");
        self.by_id.borrow_mut().insert(id.to_owned(), path);
        Ok(())
    }

    pub fn path(&self, id: &str) -> Result<PathBuf, ImageError> {
        self.by_id
            .borrow()
            .get(id)
            .cloned()
            .ok_or_else(|| ImageError::NotFound { id: id.to_owned() })
    }

    pub fn ids(&self) -> Vec<String> {
        self.by_id.borrow().keys().cloned().collect()
    }
}

fn check(path: &Path) -> Result<(), ImageError> {
    let name = || path.display().to_string();
    if !path.is_absolute() {
        return Err(ImageError::RelativePath { path: name() });
    }
    let unreadable = |source| ImageError::Unreadable { path: name(), source };
    // Looked at before it is opened: opening a FIFO would wait for its other end.
    let kind = fs::metadata(path).map_err(unreadable)?.file_type();
    if !kind.is_file() && !kind.is_block_device() {
        return Err(ImageError::WrongKind { path: name() });
    }
    File::open(path).map(drop).map_err(unreadable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn attach_given_a_bad_source_is_refused() {
        let images = Images::default();
        assert!(matches!(
            images.attach("i", None, None).await,
            Err(ImageError::BadSource { .. })
        ));
        assert!(matches!(
            images.attach("i", Some("a"), Some("b")).await,
            Err(ImageError::BadSource { .. })
        ));
        assert!(matches!(
            images.attach("i", Some("relative"), None).await,
            Err(ImageError::RelativePath { .. })
        ));
        assert!(matches!(
            images.attach("i", Some("/no/such"), None).await,
            Err(ImageError::Unreadable { .. })
        ));
        assert!(matches!(
            images.attach("i", Some("/proc"), None).await,
            Err(ImageError::WrongKind { .. })
        ));
        assert!(matches!(
            images.attach("a b", Some("/proc"), None).await,
            Err(ImageError::BadId)
        ));
    }

    #[tokio::test]
    async fn attach_given_the_same_id_twice_keeps_the_first() {
        let images = Images::default();
        images.attach("sha256:1", Some("/proc/self/exe"), None).await.unwrap();
        images.attach("sha256:1", Some("/proc/version"), None).await.unwrap();
        assert_eq!(images.path("sha256:1").unwrap(), Path::new("/proc/self/exe"));
    }
}
