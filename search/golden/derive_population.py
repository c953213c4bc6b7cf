#!/usr/bin/env python3
"""Derives population.json: what becomes of solutions that are offered to archives of MAP-Elites and of CMA-MAE.

Thresholds are exact fractions, found in closed form from the list of all solutions that a cell has accepted, and not step by step: after
accepting f1 ... fn, t = (1 - a)^n t0 + a sum_i (1 - a)^(n - i) fi (unrolled from Fontaine and Nikolaidis, arXiv 2205.10752). Run it in
this folder.
"""

import json
from fractions import Fraction

OFFERS = [("a", 4), ("b", -1), ("a", 3), ("a", 2), ("b", 2), ("a", 6), ("c", 0), ("a", 4), ("b", 1), ("a", 5), ("c", 1), ("b", 7), ("a", 7), ("c", 1)]


def run(alpha, minimum):
    accepted, steps = {}, []
    for cell, f in OFFERS:
        taken = accepted.get(cell, [])
        n = len(taken)
        if minimum is None:
            threshold = max(taken) if taken else None
        else:
            threshold = (1 - alpha) ** n * minimum + alpha * sum((1 - alpha) ** (n - 1 - i) * g for i, g in enumerate(taken))
        if threshold is None or f > threshold:
            placement = "improved" if taken else "new"
            accepted.setdefault(cell, []).append(Fraction(f))
        else:
            placement = "refused"
        value = Fraction(f) if threshold is None else f - threshold
        steps.append({"cell": cell, "objective": f, "placement": placement, "value": float(value)})
    return steps


def options(alpha, minimum):
    given = {"learningRate": float(alpha)}
    if minimum is not None:
        given["thresholdMin"] = float(minimum)
    return given


if __name__ == "__main__":
    cases = [(Fraction(1), None), (Fraction(1, 2), Fraction(0)), (Fraction(1, 4), Fraction(-2)), (Fraction(0), Fraction(3))]
    with open("population.json", "w", encoding="utf-8") as file:
        json.dump({
            "derivation": "Thresholds in closed form from the list of accepted solutions, in exact fractions; derive_population.py.",
            "runs": [{"options": options(a, t), "steps": run(a, t)} for a, t in cases],
        }, file, indent=1)
        file.write("\n")
