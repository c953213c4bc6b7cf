//! Kernel modules: the files of /modules in the order of /modules/order.

use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::kmod::{ModuleInitFlags, finit_module};

#[derive(Debug, thiserror::Error)]
pub enum ModuleError {
    #[error("{path} can't be read: {source}")]
    Order { path: PathBuf, source: io::Error },
    #[error("Module {name} is listed in the order but its file is missing")]
    Missing { name: String },
    #[error("Module {name} has parameters with a zero byte")]
    Parameters { name: String },
    #[error("Module {name} can't be loaded: {source}")]
    Load { name: String, source: io::Error },
}

/// One line: a name, and after a blank its parameters.
#[derive(Debug, PartialEq, Eq)]
struct Line<'a> {
    name: &'a str,
    parameters: &'a str,
}

pub fn load_all(directory: &Path) -> Result<usize, ModuleError> {
    let path = directory.join("order");
    let order = fs::read_to_string(&path).map_err(|source| ModuleError::Order { path, source })?;
    let lines = parse(&order);
    for line in &lines {
        load(directory, line)?;
    }
    Ok(lines.len())
}

fn parse(order: &str) -> Vec<Line<'_>> {
    let lines = order
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let (name, parameters) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
            Line {
                name,
                parameters: parameters.trim(),
            }
        })
        .collect()
}

fn load(directory: &Path, line: &Line) -> Result<(), ModuleError> {
    let name = line.name.to_owned();
    let path = find(directory, line.name).ok_or_else(|| ModuleError::Missing { name: name.clone() })?;
    let parameters = CString::new(line.parameters).map_err(|_| ModuleError::Parameters { name: name.clone() })?;
    let failed = |source| ModuleError::Load {
        name: name.clone(),
        source,
    };
    let file = File::open(path).map_err(failed)?;
    match finit_module(&file, &parameters, ModuleInitFlags::empty()) {
        Ok(()) | Err(Errno::EEXIST) => Ok(()),
        Err(error) => Err(failed(error.into())),
    }
}

/// A line may say the file's name or the module's (`kvm-amd.ko`, `kvm_amd`).
fn find(directory: &Path, name: &str) -> Option<PathBuf> {
    let stem = name.strip_suffix(".ko").unwrap_or(name);
    let spellings = [stem.to_owned(), stem.replace('_', "-"), stem.replace('-', "_")];
    let files = spellings.map(|spelling| directory.join(format!("{spelling}.ko")));
    files
        .into_iter()
        .chain([directory.join(name)])
        .find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse_given_parameters_blanks_and_comments_reads_the_lines() {
        let lines = parse("# order\nvirtio_ring.ko\n\nkvm_amd  nested=0 npt=1\n");
        assert_eq!(
            lines[0],
            Line {
                name: "virtio_ring.ko",
                parameters: ""
            }
        );
        assert_eq!(
            lines[1],
            Line {
                name: "kvm_amd",
                parameters: "nested=0 npt=1"
            }
        );
        assert_eq!(lines.len(), 2);
    }

    #[test]
    fn find_given_either_spelling_finds_the_file() {
        let directory = std::env::temp_dir().join(format!("coppiced-modules-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("kvm-amd.ko"), "").unwrap();
        fs::write(directory.join("virtio_net.ko"), "").unwrap();
        for name in [
            "kvm_amd",
            "kvm-amd",
            "kvm-amd.ko",
            "kvm_amd.ko",
            "virtio_net.ko",
            "virtio-net",
        ] {
            assert!(find(&directory, name).is_some(), "{name}");
        }
        assert!(find(&directory, "erofs").is_none());
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn load_all_given_a_missing_module_names_it() {
        let directory = std::env::temp_dir().join(format!("coppiced-no-module-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("order"), "nothing.ko\n").unwrap();
        assert!(matches!(load_all(&directory), Err(ModuleError::Missing { name }) if name == "nothing.ko"));
        fs::remove_dir_all(directory).unwrap();
    }
}
