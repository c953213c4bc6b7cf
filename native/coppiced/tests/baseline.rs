//! The benchmark's baseline: a whole machine into a file and out of it.

#![allow(clippy::unwrap_used)]

mod common;

use common::{Client, Daemon, call, map, number, text};
use coppice_wire::Value;

fn restore(checkpoint: &str, image: &str) -> Value {
    map([("checkpoint", checkpoint.into()), ("image", image.into())])
}

/// A parked machine, and its image's id.
fn parked(client: &mut Client, daemon: &Daemon, faults: &str) -> (String, String) {
    let boot = client.image(daemon, faults);
    let image = text(&boot, "image");
    let sandbox = text(&client.call("sandbox.boot", boot), "sandbox");
    (client.park(&sandbox), image)
}

#[test]
fn saved_machine_is_restored_as_a_sandbox_with_a_life_of_its_own_as_often_as_wanted() {
    let daemon = Daemon::start();
    let mut client = daemon.client();
    let (checkpoint, image) = parked(&mut client, &daemon, "");
    let saved = client.call("baseline.save", map([("checkpoint", checkpoint.as_str().into())]));
    assert!(number(&saved, "fileBytes") > 0);
    let generations = [(); 2].map(|()| {
        let restored = client.call("baseline.restore", restore(&checkpoint, &image));
        client.agent(&text(&restored, "sandbox"), "ping").unwrap();
        number(&restored, "generation")
    });
    assert_ne!(generations[0], generations[1]);
    assert_eq!(daemon.vmms().len(), 3);
}

#[test]
fn restore_of_what_this_session_has_not_saved_is_refused() {
    let daemon = Daemon::start();
    let mut client = daemon.client();
    let (checkpoint, image) = parked(&mut client, &daemon, "");
    let (other, _) = parked(&mut client, &daemon, "");
    let refused = client.try_call("baseline.restore", restore(&checkpoint, &image));
    assert_eq!(refused.unwrap_err().code, "INVALID_ARGUMENT");
    client.call("baseline.save", map([("checkpoint", other.as_str().into())]));
    let refused = client.try_call("baseline.restore", restore(&checkpoint, &image));
    assert_eq!(refused.unwrap_err().code, "INVALID_ARGUMENT");
    assert_eq!(daemon.vmms().len(), 2);
}

#[test]
fn machine_that_cannot_be_saved_says_why_and_can_be_forked_on() {
    let daemon = Daemon::start();
    let mut client = daemon.client();
    let (checkpoint, _) = parked(&mut client, &daemon, "save=fail");
    let refused = client.try_call("baseline.save", map([("checkpoint", checkpoint.as_str().into())]));
    assert_eq!(refused.unwrap_err().code, "VMM_WHOLE");
    let child = client.fork_one(&checkpoint);
    client.try_call("sandbox.call", call(&child, "ping", map([]))).unwrap();
}
