#!/usr/bin/env python3
"""Derives halving.json: the order in which rollouts are carried on, by the algorithms as the papers have them.

ASHA is kept as its paper's Algorithm 2 does: lists of results for each rung and sets of those promoted. Successive halving sorts whole
rungs. Scores are a made-up function of rollout and rung. Run it in this folder.
"""

import json
import math


def score(candidate, rung):
    return (candidate * 37 + 11) % 101 + rung * ((candidate * 13) % 7) * 5


def rungs(low, high, factor):
    steps = []
    while low < high:
        steps.append(low)
        low *= factor
    return [*steps, high]


def asha(count, levels, factor, jobs):
    results = [[] for _ in levels]
    promoted = [set() for _ in levels]
    order, begun = [], 0

    def get_job():
        for rung in reversed(range(len(levels) - 1)):
            ranked = sorted(results[rung], key=lambda r: (-r[0], r[1]))
            for _, candidate in ranked[: len(ranked) // factor]:
                if candidate not in promoted[rung]:
                    promoted[rung].add(candidate)
                    return candidate, rung + 1
        return None

    while len(order) < jobs:
        job = get_job()
        if job is None:
            if begun == count:
                break
            job = (begun, 0)
            begun += 1
        order.append(job)
        results[job[1]].append((score(*job), job[0]))
    return order


def halving(count, levels, factor):
    order, alive = [], list(range(count))
    for rung in range(len(levels)):
        order += [(candidate, rung) for candidate in alive]
        alive.sort(key=lambda candidate: (-score(candidate, rung), candidate))
        alive = alive[: max(1, math.floor(len(alive) / factor))]
    return order


cases = []
for count, low, high, factor in [(9, 1, 9, 3), (16, 2, 50, 2), (5, 4, 4, 2), (30, 1, 64, 4)]:
    levels = rungs(low, high, factor)
    cases.append({
        "options": {"candidates": count, "minSteps": low, "maxSteps": high, "factor": factor},
        "rungs": levels,
        "halving": halving(count, levels, factor),
        "asha": asha(count, levels, factor, 1000),
    })
with open("halving.json", "w", encoding="utf-8") as file:
    json.dump({"derivation": "The papers' algorithms with lists and sets; score(candidate, rung) as given there; derive_halving.py.",
               "cases": cases}, file)
    file.write("\n")
