#!/usr/bin/env python3
"""Derives roads.json: ways on the road map of Romania of Russell and Norvig, "Artificial Intelligence: A Modern Approach", figures
3.1 (roads) and 3.16 (straight lines to Bucharest) of the fourth edition, found by listing every way without a repeated town and measuring it.

The book has two results of its own, which must come out: A* finds 418 by Sibiu, Rimnicu Vilcea and Pitesti, greedy search 450 by Sibiu and
Fagaras. Run it in this folder.
"""

import json

ROADS = [("Arad", "Zerind", 75), ("Arad", "Sibiu", 140), ("Arad", "Timisoara", 118), ("Zerind", "Oradea", 71), ("Oradea", "Sibiu", 151),
         ("Timisoara", "Lugoj", 111), ("Lugoj", "Mehadia", 70), ("Mehadia", "Drobeta", 75), ("Drobeta", "Craiova", 120),
         ("Craiova", "Rimnicu Vilcea", 146), ("Craiova", "Pitesti", 138), ("Sibiu", "Fagaras", 99), ("Sibiu", "Rimnicu Vilcea", 80),
         ("Rimnicu Vilcea", "Pitesti", 97), ("Fagaras", "Bucharest", 211), ("Pitesti", "Bucharest", 101), ("Bucharest", "Giurgiu", 90),
         ("Bucharest", "Urziceni", 85), ("Urziceni", "Hirsova", 98), ("Hirsova", "Eforie", 86), ("Urziceni", "Vaslui", 142),
         ("Vaslui", "Iasi", 92), ("Iasi", "Neamt", 87)]
STRAIGHT = {"Arad": 366, "Bucharest": 0, "Craiova": 160, "Drobeta": 242, "Eforie": 161, "Fagaras": 176, "Giurgiu": 77, "Hirsova": 151,
            "Iasi": 226, "Lugoj": 244, "Mehadia": 241, "Neamt": 234, "Oradea": 380, "Pitesti": 100, "Rimnicu Vilcea": 193, "Sibiu": 253,
            "Timisoara": 329, "Urziceni": 80, "Vaslui": 199, "Zerind": 374}
START, GOAL = "Arad", "Bucharest"

length = {}
for a, b, km in ROADS:
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
        town = min((t for t in known if t not in done), key=STRAIGHT.get)
        done.add(town)
        for (a, b) in length:
            if a == town and b not in known:
                known[b] = [*known[a], b]
    return known[GOAL]


best_length, best = shortest(GOAL)
assert (best_length, best) == (418, ["Arad", "Sibiu", "Rimnicu Vilcea", "Pitesti", "Bucharest"])
assert (measure(greedy()), greedy()) == (450, ["Arad", "Sibiu", "Fagaras", "Bucharest"])
# Straight lines are never longer than roads: with them A* finds the shortest way from anywhere.
for town, line in STRAIGHT.items():
    assert line <= min(measure(way) for way in ways(town, GOAL, {town})), town

with open("roads.json", "w", encoding="utf-8") as file:
    json.dump({
        "derivation": "The road map of Romania of Russell and Norvig (AIMA, 4th edition, figures 3.1 and 3.16). Every way without a repeated "
                      "town, listed and measured; the book's own results, 418 by A* and 450 by greedy search, are among them; derive_roads.py.",
        "roads": ROADS,
        "straight": STRAIGHT,
        "start": START,
        "goal": GOAL,
        "shortest": best,
        "length": best_length,
        "fewest": min(len(way) - 1 for way in ways(START, GOAL, {START})),
        "greedy": greedy(),
        "greedyLength": measure(greedy()),
        "distances": {town: 0 if town == START else shortest(town)[0] for town in STRAIGHT},
    }, file, indent=1)
    file.write("\n")
