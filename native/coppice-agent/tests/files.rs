//! File requests on a real file system.

#![allow(clippy::unwrap_used)]

mod common;

use std::os::fd::OwnedFd;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use common::{Agent, Answer, field, map};
use coppice_wire::Value;
use nix::fcntl::{OFlag, open, openat};
use nix::sys::stat::{Mode, mkdirat};
use nix::unistd::symlinkat;

fn path_of(path: &Path) -> Value {
    path.to_str().unwrap().into()
}

fn write(agent: &mut Agent, path: &Path, data: &[u8]) -> Answer {
    agent.call(
        "file.write",
        map([("path", path_of(path)), ("data", Value::Binary(data.to_vec()))]),
    )
}

fn read(agent: &mut Agent, path: &Path) -> Answer {
    agent.call("file.read", map([("path", path_of(path))]))
}

fn remove(agent: &mut Agent, path: &Path, recursive: bool) -> Answer {
    agent.call(
        "file.remove",
        map([("path", path_of(path)), ("recursive", recursive.into())]),
    )
}

fn open_directory(at: Option<&OwnedFd>, path: &str) -> OwnedFd {
    let flags = OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    match at {
        Some(at) => openat(at, path, flags, Mode::empty()).unwrap(),
        None => open(path, flags, Mode::empty()).unwrap(),
    }
}

fn mode_of(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

#[test]
fn write_then_read_of_many_bytes_returns_them_in_chunks() {
    let mut agent = Agent::start();
    let path = agent.directory.join("data");
    let data: Vec<u8> = (0..5_000_000u32).map(|index| (index % 253) as u8).collect();
    assert!(write(&mut agent, &path, &data).ok.is_some());
    let answer = read(&mut agent, &path);
    assert!(answer.stream("data") == data);
    assert_eq!(answer.field("size").as_u64(), Some(5_000_000));
    assert!(answer.largest_chunk <= 64 * 1024);
    assert_eq!(mode_of(&path), 0o644);
}

#[test]
fn read_with_offset_and_limit_returns_that_part() {
    let mut agent = Agent::start();
    let path = agent.directory.join("data");
    std::fs::write(&path, "0123456789").unwrap();
    let mut part = |offset: u64, limit: u64| {
        let entries = [
            ("path", path_of(&path)),
            ("offset", offset.into()),
            ("limit", limit.into()),
        ];
        String::from_utf8(agent.call("file.read", map(entries)).stream("data").to_vec()).unwrap()
    };
    assert_eq!(part(3, 4), "3456");
    assert_eq!(part(8, 100), "89");
    assert_eq!(part(100, 5), "");
}

#[test]
fn read_of_a_file_without_a_size_returns_its_contents() {
    let answer = read(&mut Agent::start(), Path::new("/proc/self/status"));
    assert!(answer.stream("data").starts_with(b"Name:\tcoppice-agent"));
}

#[test]
fn read_of_a_fifo_nobody_writes_does_not_wait() {
    let mut agent = Agent::start();
    let path = agent.directory.join("fifo");
    agent.shell(&format!("mkfifo {}", path.display()));
    let answer = read(&mut agent, &path);
    assert_eq!(answer.field("size").as_u64(), Some(0));
}

#[test]
fn write_over_a_file_keeps_its_mode_and_leaves_nothing_beside_it() {
    let mut agent = Agent::start();
    let path = agent.directory.join("tool");
    std::fs::write(&path, "old and longer").unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
    write(&mut agent, &path, b"new");
    assert_eq!(
        (std::fs::read(&path).unwrap().as_slice(), mode_of(&path)),
        (b"new".as_slice(), 0o755)
    );
    let entries = [("path", path_of(&path)), ("data", "x".into()), ("mode", 0o600.into())];
    agent.call("file.write", map(entries));
    assert_eq!(mode_of(&path), 0o600);
    assert!(
        std::fs::read_dir(&agent.directory)
            .unwrap()
            .flatten()
            .all(|entry| { !entry.file_name().to_str().unwrap().starts_with(".coppice") })
    );
}

#[test]
fn write_is_seen_whole_or_not_at_all_by_a_reader_meanwhile() {
    let mut agent = Agent::start();
    let path = agent.directory.join("state");
    write(&mut agent, &path, &[b'a'; 100_000]);
    let id = {
        let script = format!(
            "i=0; while [ $i -lt 40 ]; do i=$((i+1)); tr -d a < {0} | tr -d b | wc -c; wc -c < {0}; done | sort | uniq",
            path.display()
        );
        agent.post("exec", map([("argv", common::sh(&script))]))
    };
    for index in 0..100 {
        write(&mut agent, &path, &[if index % 2 == 0 { b'b' } else { b'a' }; 100_000]);
    }
    assert_eq!(agent.wait(id).stdout(), "0\n100000\n");
}

#[test]
fn write_through_a_link_replaces_what_it_names() {
    let mut agent = Agent::start();
    let (target, link) = (agent.directory.join("target"), agent.directory.join("link"));
    std::fs::write(&target, "old").unwrap();
    symlink(&target, &link).unwrap();
    write(&mut agent, &link, b"new");
    assert_eq!(std::fs::read(&target).unwrap(), b"new");
    assert!(link.is_symlink());
}

#[test]
fn append_adds_to_the_end() {
    let mut agent = Agent::start();
    let path = agent.directory.join("log");
    for text in ["one\n", "two\n"] {
        let entries = [("path", path_of(&path)), ("data", text.into()), ("append", true.into())];
        assert!(agent.call("file.write", map(entries)).ok.is_some());
    }
    assert_eq!(std::fs::read(&path).unwrap(), b"one\ntwo\n");
}

#[test]
fn stat_and_list_tell_kinds_sizes_and_names_in_order() {
    let mut agent = Agent::start();
    let root = agent.directory.join("root");
    let answer = agent.call(
        "file.mkdir",
        map([("path", path_of(&root.join("a/b"))), ("mode", 0o700.into())]),
    );
    assert!(answer.ok.is_some());
    assert_eq!((mode_of(&root.join("a/b")), mode_of(&root.join("a"))), (0o700, 0o755));
    std::fs::write(root.join("z"), "12345").unwrap();
    symlink("nowhere", root.join("link")).unwrap();
    let listed = agent
        .call("file.list", map([("path", path_of(&root))]))
        .field("entries");
    let listed: Vec<String> = listed
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| {
            format!(
                "{} {}",
                field(entry, "name").as_str().unwrap(),
                field(entry, "kind").as_str().unwrap()
            )
        })
        .collect();
    assert_eq!(listed, ["a directory", "link symlink", "z file"]);
    let stat = agent.call("file.stat", map([("path", path_of(&root.join("z")))]));
    assert_eq!(
        (stat.text("kind").as_str(), stat.field("size").as_u64()),
        ("file", Some(5))
    );
    assert_eq!(stat.field("mode").as_u64(), Some(0o644));
    assert!(stat.field("mtimeNs").as_u64().unwrap() > 1_600_000_000_000_000_000);
    let link = agent.call("file.stat", map([("path", path_of(&root.join("link")))]));
    assert_eq!(link.text("kind"), "symlink");
}

#[test]
fn remove_takes_a_tree_of_any_depth_and_never_follows_a_link_out_of_it() {
    let mut agent = Agent::start();
    let (outside, root) = (agent.directory.join("outside"), agent.directory.join("root"));
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(outside.join("precious"), "").unwrap();
    std::fs::create_dir(&root).unwrap();
    // Deeper than descriptors or a path's length allow at once.
    let mut level = open_directory(None, root.to_str().unwrap());
    for _ in 0..1_200 {
        for name in ["d", "e"] {
            mkdirat(&level, name, Mode::S_IRWXU).unwrap();
        }
        symlinkat(&outside, &level, "link").unwrap();
        level = open_directory(Some(&level), "d");
    }
    assert_eq!(remove(&mut agent, &root, false).code(), "FILE_NOT_EMPTY");
    let answer = remove(&mut agent, &root, true);
    assert!(answer.ok.is_some(), "{}", answer.message());
    assert!(!root.exists() && outside.join("precious").exists());
}

#[test]
fn remove_of_a_link_removes_the_link_alone() {
    let mut agent = Agent::start();
    let (target, link) = (agent.directory.join("target"), agent.directory.join("link"));
    std::fs::create_dir(&target).unwrap();
    for recursive in [false, true] {
        symlink(&target, &link).unwrap();
        assert!(remove(&mut agent, &link, recursive).ok.is_some());
        assert!(target.exists() && !link.is_symlink());
    }
    assert!(remove(&mut agent, &target, false).ok.is_some());
}

#[test]
fn other_requests_are_served_while_a_large_tree_is_removed() {
    let mut agent = Agent::start();
    let root = agent.directory.join("root");
    agent.shell(&format!(
        "mkdir {0} && cd {0} && seq 10000 | xargs touch",
        root.display()
    ));
    let removal = agent.post(
        "file.remove",
        map([("path", path_of(&root)), ("recursive", true.into())]),
    );
    let ping = agent.post("ping", map([]));
    assert_eq!(agent.next().id, ping);
    assert!(agent.wait(removal).ok.is_some());
    assert!(!root.exists());
}

#[test]
fn file_requests_that_can_not_be_done_say_why_with_a_code_of_their_own() {
    let mut agent = Agent::start();
    let directory = agent.directory.clone();
    let missing = directory.join("missing");
    let below = directory.join("boot_id/below");
    assert_eq!(read(&mut agent, &missing).code(), "FILE_NOT_FOUND");
    assert_eq!(read(&mut agent, &directory).code(), "FILE_WRONG_KIND");
    assert_eq!(read(&mut agent, &below).code(), "FILE_WRONG_KIND");
    assert_eq!(write(&mut agent, &missing.join("x"), b"").code(), "FILE_NOT_FOUND");
    assert_eq!(write(&mut agent, &directory, b"").code(), "FILE_WRONG_KIND");
    assert_eq!(remove(&mut agent, &missing, false).code(), "FILE_NOT_FOUND");
    assert_eq!(remove(&mut agent, &missing, true).code(), "FILE_NOT_FOUND");
    assert_eq!(remove(&mut agent, Path::new("/"), true).code(), "INVALID_ARGUMENT");
    assert_eq!(
        remove(&mut agent, Path::new("relative"), true).code(),
        "INVALID_ARGUMENT"
    );
    assert_eq!(remove(&mut agent, Path::new("/proc/self"), true).code(), "FILE_FAILED");
    let list = agent.call("file.list", map([("path", path_of(&directory.join("boot_id")))]));
    assert_eq!(list.code(), "FILE_WRONG_KIND");
    let make = agent.call("file.mkdir", map([("path", path_of(&directory.join("boot_id")))]));
    assert_eq!(make.code(), "FILE_WRONG_KIND");
    let full = agent.call(
        "file.write",
        map([
            ("path", "/dev/full".into()),
            ("data", "x".into()),
            ("append", true.into()),
        ]),
    );
    assert_eq!(full.code(), "FILE_NO_SPACE");
}

#[test]
fn file_moved_takes_the_place_of_another_and_a_directory_keeps_its_entries() {
    let mut agent = Agent::start();
    let directory = agent.directory.clone();
    let path = |name: &str| directory.join(name).to_str().unwrap().to_owned();
    std::fs::create_dir(path("dir")).unwrap();
    std::fs::write(path("dir/inside"), "inside").unwrap();
    std::fs::write(path("old"), "old").unwrap();
    std::fs::write(path("new"), "new").unwrap();
    for (from, to) in [("new", "old"), ("dir", "moved")] {
        let moved = agent.call("file.move", map([("from", path(from).into()), ("to", path(to).into())]));
        assert!(moved.ok.is_some(), "{}", moved.message());
    }
    assert_eq!(std::fs::read(path("old")).unwrap(), b"new");
    assert_eq!(std::fs::read(path("moved/inside")).unwrap(), b"inside");
    let missing = agent.call(
        "file.move",
        map([("from", path("new").into()), ("to", path("x").into())]),
    );
    assert_eq!(missing.code(), "FILE_NOT_FOUND");
}

#[test]
fn link_is_made_and_read_and_a_file_is_none() {
    let mut agent = Agent::start();
    let link = agent.directory.join("link").to_str().unwrap().to_owned();
    agent.call(
        "file.symlink",
        map([("target", "no/such/place".into()), ("path", link.clone().into())]),
    );
    let read = agent.call("file.readlink", map([("path", link.clone().into())]));
    assert_eq!(read.text("target"), "no/such/place");
    let again = agent.call("file.symlink", map([("target", "x".into()), ("path", link.into())]));
    assert_eq!(again.code(), "FILE_FAILED");
    let none = agent.call("file.readlink", map([("path", "/etc/passwd".into())]));
    assert_eq!(none.code(), "FILE_WRONG_KIND");
}

#[test]
fn uploads_beyond_the_limit_drop_the_one_that_was_used_the_longest_ago() {
    let mut agent = Agent::start();
    let directory = agent.directory.join("uploads");
    std::fs::create_dir(&directory).unwrap();
    let path = directory.join("file").to_str().unwrap().to_owned();
    let begin = |agent: &mut Agent| {
        let begun = agent.call("upload.begin", map([("path", path.clone().into())]));
        begun.field("upload")
    };
    let write = |agent: &mut Agent, upload: &Value| {
        let data = Value::Binary(b"x".to_vec());
        agent.call("upload.write", map([("upload", upload.clone()), ("data", data)]))
    };
    let first = begin(&mut agent);
    let second = begin(&mut agent);
    for _ in 2..64 {
        begin(&mut agent);
    }
    assert!(write(&mut agent, &first).err.is_none());
    begin(&mut agent);
    assert_eq!(write(&mut agent, &second).code(), "FILE_UPLOAD_NOT_FOUND");
    assert!(write(&mut agent, &first).err.is_none());
    assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 64);
}

#[test]
fn upload_is_there_after_its_commit_and_leaves_nothing_otherwise() {
    let mut agent = Agent::start();
    let directory = agent.directory.join("up");
    std::fs::create_dir(&directory).unwrap();
    let path = directory.join("file").to_str().unwrap().to_owned();
    let names = || std::fs::read_dir(&directory).unwrap().count();
    let begin = |agent: &mut Agent| {
        let begun = agent.call("upload.begin", map([("path", path.clone().into())]));
        begun.field("upload")
    };
    let write = |agent: &mut Agent, upload: &Value, data: &[u8]| {
        let data = Value::Binary(data.to_vec());
        agent.call("upload.write", map([("upload", upload.clone()), ("data", data)]))
    };
    let upload = begin(&mut agent);
    write(&mut agent, &upload, b"first ");
    write(&mut agent, &upload, b"second");
    assert!(!std::path::Path::new(&path).exists());
    agent.call(
        "upload.commit",
        map([("upload", upload.clone()), ("mode", 0o640.into())]),
    );
    assert_eq!(std::fs::read(&path).unwrap(), b"first second");
    assert_eq!(write(&mut agent, &upload, b"late").code(), "FILE_UPLOAD_NOT_FOUND");

    let upload = begin(&mut agent);
    write(&mut agent, &upload, b"half");
    agent.call("upload.abort", map([("upload", upload)]));
    assert_eq!(std::fs::read(&path).unwrap(), b"first second");
    assert_eq!(names(), 1, "no temporary file is left");
}

#[test]
fn file_of_128_mib_goes_up_and_down_in_pieces() {
    const PIECE: usize = 1 << 20;
    let mut agent = Agent::start();
    let path = agent.directory.join("large").to_str().unwrap().to_owned();
    let piece = |number: usize| -> Vec<u8> { (0..PIECE).map(|at| (at * 31 + number * 7) as u8).collect() };
    let upload = agent
        .call("upload.begin", map([("path", path.clone().into())]))
        .field("upload");
    for number in 0..128 {
        let data = Value::Binary(piece(number));
        let written = agent.call("upload.write", map([("upload", upload.clone()), ("data", data)]));
        assert!(written.ok.is_some(), "{}", written.message());
    }
    agent.call("upload.commit", map([("upload", upload)]));
    let read = |agent: &mut Agent, offset: usize| {
        let args = map([
            ("path", path.clone().into()),
            ("offset", offset.into()),
            ("limit", PIECE.into()),
        ]);
        agent.call("file.read", args)
    };
    let file = read(&mut agent, 0).text("file");
    for number in 0..128 {
        let answer = read(&mut agent, number * PIECE);
        assert!(answer.stream("data") == piece(number), "piece {number}");
        assert_eq!(answer.text("file"), file);
    }
    assert_eq!(read(&mut agent, 128 * PIECE).field("size").as_u64(), Some(0));
}

#[test]
fn held_upload_is_gone_without_a_trace_when_its_request_is_cancelled() {
    let mut agent = Agent::start();
    let directory = agent.directory.join("held");
    std::fs::create_dir(&directory).unwrap();
    let path = path_of(&directory.join("file"));
    let entries = [("path", path), ("held", true.into())];
    let begun = agent.post("upload.begin", map(entries.clone()));
    agent.call("ping", map([]));
    assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 1);
    let cancelled = agent.call("cancel", map([("target", begun.into())]));
    assert_eq!(cancelled.field("found").as_bool(), Some(true));
    assert_eq!(agent.wait(begun).code(), "CANCELLED");
    assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 0);

    let begun = agent.post("upload.begin", map(entries));
    agent.call("upload.commit", map([("upload", 2.into())]));
    let answer = agent.wait(begun);
    assert_eq!(answer.stream("started"), b"2");
    assert_eq!(answer.field("upload").as_u64(), Some(2));
    assert!(directory.join("file").exists());
    let late = agent.call("cancel", map([("target", begun.into())]));
    assert_eq!(late.field("found").as_bool(), Some(false));
}
