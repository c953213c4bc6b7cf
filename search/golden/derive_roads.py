#!/usr/bin/env python3
"""Derives roads.json: ways on a small road map, found by listing every way without a repeated town and measuring it.

The map is made up: towns on a grid of kilometres, roads somewhat longer than the straight line. Run it in this folder.
"""

import json
import math

TOWNS = {"Ash": (0, 0), "Birch": (30, 40), "Cedar": (70, 10), "Elm": (60, 60), "Fir": (110, 30), "Hazel": (100, 80), "Larch": (20, 80),
         "Maple": (150, 60), "Oak": (140, 5), "Pine": (60, 110), "Rowan": (130, 110), "Yew": (190, 40)}
ROADS = [("Ash", "Birch", 1.10), ("Ash", "Cedar", 1.05), ("Birch", "Elm", 1.20), ("Birch", "Larch", 1.15), ("Cedar", "Elm", 1.30),
         ("Cedar", "Fir", 1.60), ("Elm", "Fir", 1.12), ("Elm", "Hazel", 1.08), ("Elm", "Pine", 1.25), ("Fir", "Oak", 1.18),
         ("Fir", "Maple", 1.55), ("Hazel", "Maple", 1.04), ("Hazel", "Rowan", 1.22), ("Larch", "Pine", 1.07), ("Maple", "Yew", 1.09),
         ("Oak", "Yew", 1.90), ("Pine", "Rowan", 1.11), ("Rowan", "Yew", 1.45)]
START, GOAL = "Ash", "Yew"


def straight(one, two):
    return math.dist(TOWNS[one], TOWNS[two])


roads = [(a, b, math.ceil(straight(a, b) * factor)) for a, b, factor in ROADS]
length = {}
for a, b, km in roads:
    length[a, b] = length[b, a] = km


def ways(town, goal, seen):
    """Every way that comes to no town twice."""
    if town == goal:
        yield [town]
        return
    for (a, b) in length:
        if a == town and b not in seen:
            for rest in ways(b, goal, seen | {b}):
                yield [town, *rest]


def measure(way):
    return sum(length[a, b] for a, b in zip(way, way[1:]))


def shortest(goal):
    every = sorted((measure(way), way) for way in ways(START, goal, {START}))
    assert len(every) == 1 or every[0][0] < every[1][0], every[:2]
    return every[0]


def greedy():
    """Always on from the known town nearest to the goal as the crow flies."""
    known, done = {START: [START]}, set()
    while GOAL not in known:
        town = min((t for t in known if t not in done), key=lambda t: straight(t, GOAL))
        done.add(town)
        for (a, b) in length:
            if a == town and b not in known:
                known[b] = [*known[a], b]
    return known[GOAL]


best_length, best = shortest(GOAL)
with open("roads.json", "w", encoding="utf-8") as file:
    json.dump({
        "derivation": "Every way without a repeated town, listed and measured; derive_roads.py.",
        "roads": roads,
        "straight": {town: math.floor(straight(town, GOAL)) for town in TOWNS},
        "start": START,
        "goal": GOAL,
        "shortest": best,
        "length": best_length,
        "fewest": min(len(way) - 1 for way in ways(START, GOAL, {START})),
        "greedy": greedy(),
        "greedyLength": measure(greedy()),
        "distances": {town: 0 if town == START else shortest(town)[0] for town in TOWNS},
    }, file, indent=1)
    file.write("\n")
