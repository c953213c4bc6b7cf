#!/usr/bin/env python3
"""Derives the golden files beside it, by other means than the code that they test.

- draws.json: SipHash-2-4 on Python's big integers, checked here against the vector in appendix A of its paper.
- go-explore.json, paper-atari.json, score-high.json: tables filled in by hand from the rules in docs/search/go-explore.md. Each
  weight is the sum of fractions as it stands there, evaluated by Python. The script only checks that the tables agree with
  themselves: that the draw falls on the cell that the table says is chosen.

Run it in this folder: python3 derive.py
"""

import json
import math

MASK = (1 << 64) - 1


def rotate(x, by):
    return ((x << by) | (x >> (64 - by))) & MASK


def siphash(key0, key1, data):
    v = [key0 ^ 0x736F6D6570736575, key1 ^ 0x646F72616E646F6D, key0 ^ 0x6C7967656E657261, key1 ^ 0x7465646279746573]

    def rounds(n):
        for _ in range(n):
            v[0] = (v[0] + v[1]) & MASK
            v[2] = (v[2] + v[3]) & MASK
            v[1] = rotate(v[1], 13) ^ v[0]
            v[3] = rotate(v[3], 16) ^ v[2]
            v[0] = rotate(v[0], 32)
            v[2] = (v[2] + v[1]) & MASK
            v[0] = (v[0] + v[3]) & MASK
            v[1] = rotate(v[1], 17) ^ v[2]
            v[3] = rotate(v[3], 21) ^ v[0]
            v[2] = rotate(v[2], 32)

    padded = data + bytes(-(len(data) + 1) % 8) + bytes([len(data) & 255])
    for at in range(0, len(padded), 8):
        word = int.from_bytes(padded[at : at + 8], "little")
        v[3] ^= word
        rounds(2)
        v[0] ^= word
    v[2] ^= 0xFF
    rounds(4)
    return v[0] ^ v[1] ^ v[2] ^ v[3]


PAPER_KEY = (0x0706050403020100, 0x0F0E0D0C0B0A0908)
assert siphash(*PAPER_KEY, bytes(range(15))) == 0xA129CA6149BE45E5


def encode(names):
    out = b""
    for name in names:
        if isinstance(name, int):
            out += b"\x01" + name.to_bytes(8, "little", signed=True)
        else:
            units = name.encode("utf-16-le", "surrogatepass")
            out += b"\x02" + (len(units) // 2).to_bytes(4, "little") + units
    return out


def uniform(seed, *names):
    return (siphash(seed, 0, encode(names)) >> 11) * 2.0**-53


def write(name, value):
    with open(name, "w", encoding="utf-8") as file:
        json.dump(value, file, indent=2, ensure_ascii=True)
        file.write("\n")


def draws():
    calls = [
        (0, []),
        (0, [0]),
        (0, ["0"]),
        (7, ["choose", 0]),
        (7, ["choose", 1]),
        (7, ["choose", -1]),
        (2**53 - 1, ["trial", 2**53 - 1]),
        (7, ["a", "bc"]),
        (7, ["ab", "c"]),
        (7, ["\u00e9\U0001f332"]),
    ]
    return {
        "derivation": "SipHash-2-4 on Python's integers, in derive.py; vectors: key 00 01 .. 0f, message 00 01 .. (length - 1).",
        "vectors": [f"{siphash(*PAPER_KEY, bytes(range(length))):016x}" for length in range(64)],
        "draws": [
            {"seed": seed, "names": names, "uniform": uniform(seed, *names), "seedDrawn": siphash(seed, 0, encode(names)) >> 11}
            for seed, names in calls
        ],
    }


def evaluate(expression):
    return float(eval(expression, {"sqrt": math.sqrt, "__builtins__": {}}))


def cell(key, node, seen, chosen, since, actions, weight):
    return {
        "cell": key,
        "node": node,
        "seen": seen,
        "chosen": chosen,
        "chosenSinceNew": since,
        "actions": actions,
        "derivation": weight,
        "weight": evaluate(weight),
    }


def check_choices(seed, stages):
    """The draw for each trial must fall on the start that the table names, by the weights of the stage before it."""
    for before, after in zip(stages, stages[1:]):
        if after["trial"] is None:
            continue
        weights = [(c["cell"], c["weight"]) for c in before["cells"]]
        rest = uniform(seed, "choose", after["trial"]) * sum(weight for _, weight in weights)
        for key, weight in weights:
            if rest < weight:
                break
            rest -= weight
        if key != after["start"]:
            return False
    return True


def first_seed(stages):
    return next(seed for seed in range(1_000_000) if check_choices(seed, stages))


def visit(action, cell_key, reward, checkpoint=None, terminated=False):
    step = {"action": action, "cell": cell_key, "reward": reward, "terminated": terminated}
    if checkpoint is not None:
        step["candidate"] = {"checkpoint": checkpoint}
    return step


def value(*visits):
    return {"kind": "value", "visits": list(visits)}


FAILURE = {"kind": "infrastructure-failure", "reason": "host lost"}
REJECTED = {"kind": "rejected", "reason": "no action fits"}


def stage(trial, start, outcomes, released, cells, nodes, why):
    return {"trial": trial, "start": start, "why": why, "outcomes": outcomes, "released": released, "cells": cells, "nodes": nodes}


def node(index, parent, cell_key, score, length, trial, actions):
    return {"node": index, "parent": parent, "cell": cell_key, "score": score, "length": length, "trial": trial, "actions": actions}


def go_explore():
    # Weight: .1/(seen+1) + 1/(chosen+1) + .1/sqrt(actions+1) + 1/(chosenSinceNew+1)
    root = node(0, None, "R", 0, 0, None, [])
    a1 = node(1, 0, "A", 1, 1, 0, ["go"])
    b1 = node(2, 1, "B", 1, 3, 0, ["wait", "go"])
    b2 = node(3, 1, "B", 2, 2, 1, ["jump"])
    done = node(4, 3, None, 2, 3, 1, ["fall"])
    r2 = node(5, 3, "R", 1, 4, 2, ["back", "back"])
    stages = [
        stage(None, None, [], [], [cell("R", 0, 0, 0, 0, 0, ".1/1 + 1/1 + .1/sqrt(1) + 1/1")], [root], "nothing but the root"),
        stage(
            0,
            "R",
            [value(visit("go", "A", 1, "a1"), visit("wait", "A", 0), visit("go", "B", 0, "b1"), visit("home", "R", 0))],
            [],
            [
                cell("R", 0, 1, 1, 0, 1, ".1/2 + 1/2 + .1/sqrt(2) + 1/1"),
                cell("A", 1, 1, 0, 0, 2, ".1/2 + 1/1 + .1/sqrt(3) + 1/1"),
                cell("B", 2, 1, 0, 0, 1, ".1/2 + 1/1 + .1/sqrt(2) + 1/1"),
            ],
            [root, a1, b1],
            "A is seen once though two steps arrive there; R was seen as the start; R improved something, so it begins anew",
        ),
        stage(
            1,
            "A",
            [value(visit("jump", "B", 1, "b2"), visit("fall", "grave", 0, None, True))],
            ["b1"],
            [
                cell(None, 4, 1, 0, 0, 1, "0"),
                cell("R", 0, 1, 1, 0, 1, ".1/2 + 1/2 + .1/sqrt(2) + 1/1"),
                cell("A", 1, 2, 1, 0, 2, ".1/3 + 1/2 + .1/sqrt(3) + 1/1"),
                cell("B", 3, 2, 0, 0, 2, ".1/3 + 1/1 + .1/sqrt(3) + 1/1"),
            ],
            [root, a1, b1, b2, done],
            "B gets a better state; the end is a cell of weight 0, whatever the cell was called",
        ),
        stage(
            2,
            "B",
            [FAILURE, value(visit("back", "A", -1, "a2"), visit("back", "R", 0, "r2"))],
            ["a2"],
            [
                cell(None, 4, 1, 0, 0, 1, "0"),
                cell("R", 5, 2, 1, 0, 2, ".1/3 + 1/2 + .1/sqrt(3) + 1/1"),
                cell("A", 1, 3, 1, 0, 3, ".1/4 + 1/2 + .1/sqrt(4) + 1/1"),
                cell("B", 3, 3, 1, 0, 2, ".1/4 + 1/2 + .1/sqrt(3) + 1/1"),
            ],
            [root, a1, b1, b2, done, r2],
            "a retry; A is refused (equal score, longer); R is accepted although longer, because its score is greater",
        ),
        stage(
            3,
            "R",
            [value(visit("go", "A", 0, "a3"), visit("jump", "B", 0))],
            ["a3"],
            [
                cell(None, 4, 1, 0, 0, 1, "0"),
                cell("R", 5, 3, 2, 1, 2, ".1/4 + 1/3 + .1/sqrt(3) + 1/2"),
                cell("A", 1, 4, 1, 0, 4, ".1/5 + 1/2 + .1/sqrt(5) + 1/1"),
                cell("B", 3, 4, 1, 0, 3, ".1/5 + 1/2 + .1/sqrt(4) + 1/1"),
            ],
            [root, a1, b1, b2, done, r2],
            "nothing improved: R was chosen once since it was new",
        ),
        stage(
            4,
            "A",
            [REJECTED],
            [],
            [
                cell(None, 4, 1, 0, 0, 1, "0"),
                cell("R", 5, 3, 2, 1, 2, ".1/4 + 1/3 + .1/sqrt(3) + 1/2"),
                cell("A", 1, 5, 2, 1, 4, ".1/6 + 1/3 + .1/sqrt(5) + 1/2"),
                cell("B", 3, 4, 1, 0, 3, ".1/5 + 1/2 + .1/sqrt(4) + 1/1"),
            ],
            [root, a1, b1, b2, done, r2],
            "a rejection counts as chosen and seen, and takes no step",
        ),
        stage(
            5,
            "B",
            [FAILURE, FAILURE],
            [],
            [
                cell(None, 4, 1, 0, 0, 1, "0"),
                cell("R", 5, 3, 2, 1, 2, ".1/4 + 1/3 + .1/sqrt(3) + 1/2"),
                cell("A", 1, 5, 2, 1, 4, ".1/6 + 1/3 + .1/sqrt(5) + 1/2"),
                cell("B", 3, 4, 1, 0, 3, ".1/5 + 1/2 + .1/sqrt(4) + 1/1"),
            ],
            [root, a1, b1, b2, done, r2],
            "both attempts lost: as if it had never been asked",
        ),
    ]
    return {
        "derivation": "Filled in by hand from the rules, see derive.py. The seed is the first whose draws choose these starts.",
        "options": {"root": {"cell": "R"}, "stepsPerTrial": 4, "window": 1, "maxAttempts": 2},
        "seed": first_seed(stages),
        "stages": stages,
    }


def paper_atari():
    # Weight: 1/sqrt(seen+1); counters of a cell begin anew when its state is replaced.
    root = node(0, None, "R", 0, 0, None, [])
    a1 = node(1, 0, "A", 0, 1, 0, ["go"])
    b1 = node(2, 1, "B", 0, 3, 0, ["wait", "go"])
    b2 = node(3, 1, "B", 0, 2, 1, ["go"])
    stages = [
        stage(None, None, [], [], [cell("R", 0, 0, 0, 0, 0, "1/sqrt(1)")], [root], "nothing but the root"),
        stage(
            0,
            "R",
            [value(visit("go", "A", 0, "a1"), visit("wait", "A", 0), visit("go", "B", 0, "b1"))],
            [],
            [
                cell("R", 0, 1, 1, 0, 0, "1/sqrt(2)"),
                cell("A", 1, 0, 0, 0, 0, "1/sqrt(1)"),
                cell("B", 2, 0, 0, 0, 0, "1/sqrt(1)"),
            ],
            [root, a1, b1],
            "new cells are updated cells: their counters are 0, the start keeps its own",
        ),
        stage(
            1,
            "A",
            [value(visit("wait", "A", 0), visit("wait", "A", 0))],
            [],
            [
                cell("R", 0, 1, 1, 0, 0, "1/sqrt(2)"),
                cell("A", 1, 1, 1, 1, 2, "1/sqrt(2)"),
                cell("B", 2, 0, 0, 0, 0, "1/sqrt(1)"),
            ],
            [root, a1, b1],
            "nothing is updated, nothing begins anew",
        ),
        stage(
            2,
            "A",
            [value(visit("go", "B", 0, "b2"))],
            ["b1"],
            [
                cell("R", 0, 1, 1, 0, 0, "1/sqrt(2)"),
                cell("A", 1, 2, 2, 0, 2, "1/sqrt(3)"),
                cell("B", 3, 0, 0, 0, 0, "1/sqrt(1)"),
            ],
            [root, a1, b1, dict(b2, trial=2)],
            "B is reached on a shorter way with equal score",
        ),
    ]
    return {
        "derivation": "Filled in by hand from the rules, see derive.py. The seed is the first whose draws choose these starts.",
        "options": {"root": {"cell": "R"}, "window": 1},
        "seed": first_seed(stages),
        "stages": stages,
    }


def score_high():
    # Weight: 2/sqrt(rank of the score among the different scores in the archive); all other terms 0.
    root = node(0, None, "R", 0, 0, None, [])
    a1 = node(1, 0, "A", 5, 1, 0, ["go"])
    b1 = node(2, 1, "B", 5, 2, 0, ["go"])
    c1 = node(3, 2, "C", 9, 3, 0, ["go"])
    a2 = node(4, 3, "A", 9, 4, 0, ["back"])
    stages = [
        stage(None, None, [], [], [cell("R", 0, 0, 0, 0, 0, "2/sqrt(1)")], [root], "nothing but the root"),
        stage(
            0,
            "R",
            [value(visit("go", "A", 5, "a1"), visit("go", "B", 0, "b1"), visit("go", "C", 4, "c1"), visit("back", "A", 0, "a2"))],
            ["a1"],
            [
                cell("R", 0, 1, 1, 0, 0, "2/sqrt(3)"),
                cell("A", 4, 1, 0, 0, 2, "2/sqrt(1)"),
                cell("B", 2, 1, 0, 0, 1, "2/sqrt(2)"),
                cell("C", 3, 1, 0, 0, 1, "2/sqrt(1)"),
            ],
            [root, a1, b1, c1, a2],
            "scores 9, 9, 5, 0: equal scores share a rank; A is replaced in the same trial by a longer path with a greater score",
        ),
    ]
    nothing = {"weight": 0, "power": 1}
    weights = {"seen": nothing, "chosen": nothing, "actions": nothing, "chosenSinceNew": nothing, "scoreHigh": 2}
    return {
        "derivation": "Filled in by hand from the rules, see derive.py. The seed is the first whose draws choose these starts.",
        "options": {"root": {"cell": "R"}, "window": 1, "weights": weights},
        "seed": first_seed(stages),
        "stages": stages,
    }


if __name__ == "__main__":
    write("draws.json", draws())
    write("go-explore.json", go_explore())
    write("paper-atari.json", paper_atari())
    write("score-high.json", score_high())
