//! What a VMM must refuse, and be none the worse for it.

use coppice_wire::vmm::{Command, Event};

use crate::Rig;
use crate::checks::{ensure, equal};
use crate::vmm::{Outcome, Vmm};

fn refused(vmm: &mut Vmm, command: &Command, code: &str) -> Outcome<()> {
    vmm.send(command)?;
    match vmm.answer()? {
        Event::Failed {
            code: given, poisons, ..
        } => equal("refusal", (given.as_str(), poisons), (code, false)),
        other => Err(format!("{command:?}: expected Failed, got {other:?}").into()),
    }
}

fn fork(tag: u64) -> Command {
    Command::Fork {
        tag,
        at_ns: 0,
        rewindable: false,
    }
}

pub fn wrong_state_is_refused(rig: &mut Rig) -> Outcome<()> {
    let boot = Command::Boot {
        config: rig.config.clone(),
    };
    let mut child = rig.child()?;
    for command in [
        &boot,
        &Command::Resume { at_ns: None },
        &fork(1),
        &Command::Rewind { at_ns: 0 },
        &Command::Compare,
    ] {
        refused(&mut child, command, "VMM_WRONG_STATE")?;
    }
    child.request_fork(2)?;
    ensure("fork with a socket", matches!(child.answer()?, Event::Failed { .. }))?;
    equal("count", child.number("count")?, 2)?;
    child.park()?;
    for command in [
        &boot,
        &Command::Pause { when_idle: false },
        &Command::Resume { at_ns: None },
        &Command::Park,
        &Command::Rewind { at_ns: 0 },
        &Command::Agent { data: vec![] },
    ] {
        refused(&mut child, command, "VMM_WRONG_STATE")?;
    }
    refused(&mut child, &fork(3), "VMM_PROTOCOL")?;
    refused(&mut child, &Command::Compare, "VMM_PROTOCOL")?;
    let mut grandchild = child.fork()?.child;
    equal("count", grandchild.number("count")?, 3)?;
    grandchild.close()?;
    child.close()
}

pub fn bad_boots_are_refused(rig: &mut Rig) -> Outcome<()> {
    let good = rig.config.clone();
    let mut vmm = Vmm::spawn(&rig.vmm)?;
    for (change, code) in [
        (
            coppice_wire::vmm::BootConfig {
                memory_mib: 1,
                ..good.clone()
            },
            "VMM_BAD_SIZE",
        ),
        (
            coppice_wire::vmm::BootConfig {
                vcpus: 0,
                ..good.clone()
            },
            "VMM_BAD_SIZE",
        ),
        (
            coppice_wire::vmm::BootConfig {
                vcpus: 5,
                ..good.clone()
            },
            "VMM_BAD_SIZE",
        ),
        (
            coppice_wire::vmm::BootConfig {
                kernel: "/nowhere".into(),
                ..good.clone()
            },
            "VMM_BOOT_FILES",
        ),
        (
            coppice_wire::vmm::BootConfig {
                kernel: good.initrd.clone(),
                ..good.clone()
            },
            "VMM_BOOT_FILES",
        ),
        (
            coppice_wire::vmm::BootConfig {
                image: "/nowhere".into(),
                ..good.clone()
            },
            "VMM_BOOT_FILES",
        ),
        (
            coppice_wire::vmm::BootConfig {
                initrd: "/nowhere".into(),
                ..good.clone()
            },
            "VMM_BOOT_FILES",
        ),
        (
            coppice_wire::vmm::BootConfig {
                console_bytes_per_second: 64 * 1024,
                extra_cmdline: "x".repeat(3000),
                ..good.clone()
            },
            "VMM_BOOT_FILES",
        ),
    ] {
        refused(&mut vmm, &Command::Boot { config: change }, code)?;
    }
    let disk_that_does_not_come = coppice_wire::vmm::BootConfig {
        disk: true,
        ..good.clone()
    };
    let config = disk_that_does_not_come;
    refused(&mut vmm, &Command::Boot { config }, "VMM_PROTOCOL")?;
    vmm.send(&Command::Boot { config: good })?;
    ensure(
        "good boot after bad ones",
        matches!(vmm.answer()?, Event::Started { .. }),
    )?;
    vmm.close()
}
