/** `coppice host metrics`: a host's figures as a monitoring system reads them. */

import type { Command } from "commander";

import { CoppiceError } from "../../sandbox-pool/index.js";
import { type HostKind, hostOption } from "./arguments.js";
import { EXIT } from "./exit-codes.js";
import type { ProgramParts } from "./program.js";
import { connectRunningHost } from "./running-host.js";

interface MetricsOptions {
  readonly host: HostKind;
}

export function addMetrics(host: Command, parts: ProgramParts): void {
  host
    .command("metrics")
    .summary("figures of the running host in Prometheus' text format")
    .description(
      "Prints the counters, states and durations of the running host in Prometheus' text format, once. docs/metrics.md explains each, and how a scraper gets them.",
    )
    .addOption(hostOption())
    .addHelpText(
      "after",
      "\nExamples:\n  coppice host metrics\n  coppice host metrics > /var/lib/node_exporter/textfile/coppice.prom",
    )
    .action(async (options: MetricsOptions) => parts.onDone(await metrics(options, parts)));
}

async function metrics(options: MetricsOptions, parts: ProgramParts): Promise<number> {
  await using host = await connectRunningHost(options.host, parts);
  if (host === undefined) {
    throw new CoppiceError("No host is running, so there are no figures", {
      code: "HOST_NOT_RUNNING",
      faultDomain: "user",
      remedy: "`coppice host start` starts one and leaves it running.",
    });
  }
  parts.terminal.print((await host.metrics({ signal: parts.signal })).trimEnd());
  return EXIT.done;
}
