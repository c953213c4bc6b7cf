//! The VMM's integration tests and figures, for a host with working KVM (or an emulated one).
//!
//! `rig --vmm PATH --kernel VMLINUX --initrd CPIO --image FILE [--figures N] [--only TEXT] [--vcpus N]` prints one PASS or FAIL line a
//! check, then stage timings, and exits with 1 where a check failed. As the first process of a machine it takes the files
//! that `test/vmm.e2e.test.ts` puts beside it, and powers the machine off. The initrd is the `guest` example as `/init` with
//! `/modules/order` naming the virtio modules beside it.

use std::env;
use std::process::ExitCode;
use std::time::Instant;

use coppice_wire::vmm::BootConfig;

use crate::vmm::{Outcome, Vmm};

mod checks;
mod disk;
mod figures;
mod host;
mod refusals;
mod rewind;
mod vcpus;
mod vmm;

/// What every check starts from. The machines that it boots have a disk.
pub struct Rig {
    pub vmm: String,
    pub config: BootConfig,
    /// Frozen; made by the first check that needs it.
    template: Option<Vmm>,
}

impl Rig {
    /// A guest that has booted.
    pub fn boot(&self) -> Outcome<Vmm> {
        Ok(Vmm::boot(&self.vmm, &self.config)?.0)
    }

    /// The shared frozen template, parked before its guest did anything.
    pub fn template(&mut self) -> Outcome<&mut Vmm> {
        if self.template.is_none() {
            let mut vmm = self.boot()?;
            vmm.ask("count")?;
            vmm.park()?;
            self.template = Some(vmm);
        }
        self.template.as_mut().ok_or_else(|| "no template".into())
    }

    /// A running child of the template.
    pub fn child(&mut self) -> Outcome<Vmm> {
        Ok(self.template()?.fork()?.child)
    }
}

/// What an initramfs of ours holds.
const IN_INITRAMFS: [&str; 8] = [
    "--vmm",
    "/coppice-vmm",
    "--kernel",
    "/vmlinux",
    "--initrd",
    "/guest",
    "--image",
    "/image",
];

fn main() -> ExitCode {
    if std::process::id() != 1 {
        return run(&env::args().skip(1).collect::<Vec<_>>());
    }
    match host::set_up() {
        Ok(()) => {
            let fixed = IN_INITRAMFS.into_iter().map(str::to_owned);
            // What follows `--` on the kernel's command line.
            run(&fixed.chain(env::args().skip(1)).collect::<Vec<_>>());
        }
        Err(error) => println!("FAIL host: {error}"),
    }
    host::power_off();
    ExitCode::FAILURE
}

fn run(arguments: &[String]) -> ExitCode {
    let option = |name: &str| {
        arguments
            .iter()
            .position(|argument| argument == name)
            .and_then(|at| arguments.get(at + 1))
            .cloned()
    };
    let (Some(vmm), Some(kernel), Some(initrd), Some(image)) = (
        option("--vmm"),
        option("--kernel"),
        option("--initrd"),
        option("--image"),
    ) else {
        eprintln!("usage: rig --vmm PATH --kernel VMLINUX --initrd CPIO --image FILE [--figures N] [--only TEXT]");
        return ExitCode::from(2);
    };
    let memory_mib = option("--memory").and_then(|text| text.parse().ok()).unwrap_or(192);
    let config = BootConfig {
        kernel,
        initrd,
        image,
        memory_mib,
        vcpus: option("--vcpus").and_then(|text| text.parse().ok()).unwrap_or(1),
        disk: false,
        disk_reserve_bytes: 0,
        console_bytes_per_second: 64 * 1024,
        extra_cmdline: option("--cmdline").unwrap_or_default(),
    };
    let mut rig = Rig {
        vmm,
        config,
        template: None,
    };
    let only = option("--only").unwrap_or_default();
    let mut failed = 0;
    for (name, check) in checks::ALL.iter().filter(|(name, _)| name.contains(&only)) {
        let start = Instant::now();
        match check(&mut rig) {
            Ok(()) => println!("PASS {name} ({} ms)", start.elapsed().as_millis()),
            Err(error) => {
                failed += 1;
                println!("FAIL {name}: {error}");
            }
        }
    }
    let rounds = option("--figures").and_then(|text| text.parse().ok()).unwrap_or(0);
    if rounds > 0
        && let Err(error) = figures::print(&mut rig, rounds)
    {
        failed += 1;
        println!("FAIL figures: {error}");
    }
    println!("{failed} failed");
    if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
