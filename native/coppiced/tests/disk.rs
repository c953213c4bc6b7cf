//! Disks of guests: the files that VMMs are given to write to.

#![allow(clippy::unwrap_used)]

mod common;

use std::fs;

use common::{Client, Daemon, get, map, number, text};
use coppice_wire::Value;
use coppice_wire::blank::{BLOCK_BYTES, Blank};

fn blank() -> Vec<u8> {
    let blank = Blank {
        disk_blocks: 2048,
        places: vec![0],
    };
    blank.encode(&[[7; BLOCK_BYTES]])
}

fn boot_with(client: &mut Client, daemon: &Daemon, disk: Vec<u8>) -> Result<String, coppice_wire::client::Failure> {
    let Value::Map(mut params) = client.image(daemon, "") else {
        panic!("no map")
    };
    params.push(("disk".into(), Value::Binary(disk)));
    let booted = client.try_call("sandbox.boot", Value::Map(params))?;
    Ok(text(&booted, "sandbox"))
}

fn of(sandbox: &str) -> Value {
    map([("sandbox", sandbox.into())])
}

#[test]
fn booted_guest_gets_its_disk_and_a_file_to_write_to_when_it_asks() {
    let daemon = Daemon::start();
    let mut client = daemon.client();
    let sandbox = boot_with(&mut client, &daemon, blank()).unwrap();
    let before = client.agent(&sandbox, "disk").unwrap();
    assert_eq!(number(&before, "blankBytes"), blank().len() as u64);
    assert_eq!(get(&before, "blankIsReadOnly"), &true.into());
    assert_eq!(get(&before, "writable"), &false.into());
    client.agent(&sandbox, "wantExtent").unwrap();
    let after = client.agent(&sandbox, "disk").unwrap();
    assert_eq!(text(&after, "contents"), "written");
    assert_eq!(get(&after, "isReadOnly"), &true.into());
    let entries = fs::read_dir(daemon.directory.join("state/extents")).unwrap();
    assert_eq!(entries.count(), 0, "the files have no names");
    let usage = client.call("memory.usage", of(&sandbox));
    assert!(number(&usage, "diskBytes") >= 2 * BLOCK_BYTES as u64, "{usage}");
}

#[test]
fn guest_without_a_disk_boots_without_a_file() {
    let daemon = Daemon::start();
    let mut client = daemon.client();
    let sandbox = client.boot(&daemon, "");
    assert_eq!(number(&client.agent(&sandbox, "disk").unwrap(), "blankBytes"), 0);
}

#[test]
fn each_life_gets_one_file_and_a_child_its_own() {
    let daemon = Daemon::start();
    let mut client = daemon.client();
    let sandbox = boot_with(&mut client, &daemon, blank()).unwrap();
    client.agent(&sandbox, "wantExtent").unwrap();
    let parked = client.call("sandbox.park", of(&sandbox));
    assert_eq!(number(&parked, "dirtyBlocks"), 1);
    for _ in 0..2 {
        let child = client.fork_one(&text(&parked, "checkpoint"));
        let inherited = client.agent(&child, "disk").unwrap();
        assert_eq!(
            (text(&inherited, "contents").as_str(), get(&inherited, "writable")),
            ("written", &false.into())
        );
        client.agent(&child, "wantExtent").unwrap();
        assert_eq!(get(&client.agent(&child, "disk").unwrap(), "writable"), &true.into());
    }
}

#[test]
fn vmm_that_asks_for_a_second_file_in_one_life_is_poisoned() {
    let daemon = Daemon::start();
    let mut client = daemon.client();
    let sandbox = boot_with(&mut client, &daemon, blank()).unwrap();
    client.agent(&sandbox, "wantExtent").unwrap();
    let error = client.agent(&sandbox, "wantExtent").unwrap_err();
    assert_eq!(error.code, "SANDBOX_POISONED");
}

#[test]
fn host_that_can_make_no_file_refuses_it_and_a_boot_with_a_disk_and_nothing_else() {
    let daemon = Daemon::start_with(&["--extents-dir", "/proc/version/extents"]);
    let mut client = daemon.client();
    let error = boot_with(&mut client, &daemon, blank()).unwrap_err();
    assert_eq!(error.code, "HOST_FULL");
    let sandbox = client.boot(&daemon, "");
    for refused in 1..3 {
        client.agent(&sandbox, "wantExtent").unwrap();
        assert_eq!(number(&client.agent(&sandbox, "disk").unwrap(), "refused"), refused);
    }
    let log = daemon.log();
    assert_eq!(
        log.matches("The guest can't write").count(),
        1,
        "a guest does not fill the log: {log}"
    );
    let stats = client.call("host.stats", map([]));
    assert_eq!(number(get(&stats, "disk"), "availableBytes"), 0);
}

#[test]
fn disk_that_is_no_blank_disk_is_the_callers_mistake() {
    let daemon = Daemon::start();
    let mut client = daemon.client();
    for disk in [Vec::new(), vec![0; 8192], blank()[..BLOCK_BYTES].to_vec()] {
        let error = boot_with(&mut client, &daemon, disk).unwrap_err();
        assert_eq!(error.code, "INVALID_ARGUMENT", "{error:?}");
        assert!(error.message.contains("`disk`"), "{error:?}");
    }
}

#[test]
fn host_says_how_much_room_there_is_for_disks() {
    let daemon = Daemon::start();
    let stats = daemon.client().call("host.stats", map([]));
    let disk = get(&stats, "disk");
    assert!(number(disk, "availableBytes") > 0 && number(disk, "availableBytes") <= number(disk, "totalBytes"));
}

#[test]
fn host_below_its_disk_reserve_gives_no_disks_and_no_files_to_write_to() {
    let daemon = Daemon::start_with(&["--disk-reserve-mib", "1000000000000"]);
    let mut client = daemon.client();
    let error = boot_with(&mut client, &daemon, blank()).unwrap_err();
    assert_eq!(error.code, "HOST_FULL");
    assert!(error.message.contains("in reserve"), "{error:?}");
    let sandbox = client.boot(&daemon, "");
    client.agent(&sandbox, "wantExtent").unwrap();
    assert_eq!(number(&client.agent(&sandbox, "disk").unwrap(), "refused"), 1);
}

#[test]
fn extents_in_a_directory_behind_a_symbolic_link_are_counted() {
    let directory = std::env::temp_dir().join(format!("coppiced-linked-extents-{}", std::process::id()));
    let link = directory.join("link");
    fs::create_dir_all(directory.join("real")).unwrap();
    std::os::unix::fs::symlink(directory.join("real"), &link).unwrap();
    let daemon = Daemon::start_with(&["--extents-dir", link.to_str().unwrap()]);
    let mut client = daemon.client();
    let sandbox = boot_with(&mut client, &daemon, blank()).unwrap();
    let usage = client.call("memory.usage", of(&sandbox));
    fs::remove_dir_all(directory).unwrap();
    assert!(number(&usage, "diskBytes") >= BLOCK_BYTES as u64, "{usage}");
}

#[test]
fn host_whose_extents_lie_in_memory_says_so() {
    for (arguments, in_memory) in [(&["--extents-dir", "/proc"][..], true), (&[], false)] {
        let daemon = Daemon::start_with(arguments);
        let stats = daemon.client().call("host.stats", map([]));
        assert_eq!(get(get(&stats, "disk"), "inMemory"), &in_memory.into());
    }
}
