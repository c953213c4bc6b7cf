#!/usr/bin/env python3
"""Derives the golden files of the tree searches, by other means than the code that they test.

Everything here is naive: statistics are recomputed from lists of all returns at every choice, trees are nested dictionaries, and the
formulas stand as the papers have them. Nothing is shared with the code under test.

Run it in this folder: python3 derive_tree.py
"""

import json
import math
import re
from fractions import Fraction


def write(name, value):
    """Lists of plain values stand on one line."""
    text = json.dumps(value, indent=1, ensure_ascii=True)
    text = re.sub(r"\[\s+([^][{}]*?)\s+\]", lambda match: "[" + re.sub(r",\s+", ", ", match.group(1)) + "]", text)
    with open(name, "w", encoding="utf-8") as file:
        file.write(text + "\n")


def first_max(scores):
    """Index of the greatest; scores closer than rounding are refused, so that no golden choice hangs on the last bit."""
    best = max(scores)
    close = [i for i, s in enumerate(scores) if s == best or abs(s - best) < 1e-9]
    assert all(scores[i] == best for i in close), scores
    return close[0]


def mean(values):
    return sum(values) / len(values)


# Bandits: arm k returns pulls[k][j] at its j-th pull.
PULLS = [[1, 0, 0, 1, 0, 1, 0, 0, 0, 1] * 6, [0.5] * 60, [0, 1, 1, 1, 0, 1, 1, 1, 1, 0] * 6]


def bandit(rounds, score):
    returns = [[] for _ in PULLS]
    steps = []
    for turn in range(rounds):
        if turn < len(PULLS):
            arm = turn
        else:
            arm = first_max([score(values, turn) for values in returns])
        returns[arm].append(PULLS[arm][len(returns[arm])])
        steps.append({"arm": arm, "visits": [len(v) for v in returns], "means": [mean(v) if v else None for v in returns]})
    return steps


def ucb1(values, total):
    return mean(values) + math.sqrt(2 * math.log(total) / len(values))


def tuned(values, total):
    ratio = math.log(total) / len(values)
    variance = mean([v * v for v in values]) - mean(values) ** 2 + math.sqrt(2 * ratio)
    return mean(values) + math.sqrt(ratio * min(0.25, variance))


# A tree where every state has two actions, "l" and "r": reward and value are read off a table of digits by the path.
ORDINAL = {"l": 1, "r": 2, "m": 3}
PRIME = {"l": 2, "r": 3, "m": 5}


def reward(path):
    return ((37 * sum((i + 1) * ORDINAL[a] for i, a in enumerate(path)) + 11 * len(path)) % 101) / 100 * SCALE


def value(path):
    return ((53 * sum((i + 2) * PRIME[a] for i, a in enumerate(path)) + 7 * len(path)) % 97) / 96 * SCALE


def player(path):
    return len(path) % 2


class Node:
    def __init__(self, path):
        self.path = path
        self.children = {}
        self.returns = []  # of simulations that came through, from this state on
        self.flight = 0


def q_of(node, action, discount, backup):
    child = node.children[action]
    return reward(child.path) + discount * worth(child, discount, backup)


def worth(node, discount, backup):
    tried = [a for a in node.children if node.children[a].returns]
    if backup == "max" and tried:
        qs = [q_of(node, a, discount, backup) for a in tried]
        return max(qs) if node_sign(node) > 0 else min(qs)
    return mean(node.returns)


TWO_PLAYERS = False
SCALE = 1


def node_sign(node):
    return -1 if TWO_PLAYERS and player(node.path) == 1 else 1


def tree_search(options, simulations, choose, window=1):
    """`window` simulations are under way at once; the oldest ends first."""
    global TWO_PLAYERS, SCALE
    SCALE = options.get("scale", 1)
    TWO_PLAYERS = options.get("players", 1) == 2
    discount = options.get("discount", 1)
    root = Node("")
    asked, under_way, tells = [], [], []

    def finish():
        line, leaf = under_way.pop(0)
        for node in line:
            node.flight -= 1
        arrived = value(leaf.path)
        for node in reversed(line):
            node.returns.append(arrived)
            arrived = reward(node.path) + discount * arrived
        tells.append([[node.path, len(node.returns), worth(node, discount, options.get("backup"))] for node in line])

    for _ in range(simulations):
        if len(under_way) == window:
            finish()
        node, line = root, [root]
        while True:
            action = choose(node, options)
            fresh = action not in node.children
            if fresh:
                node.children[action] = Node(node.path + action)
            node = node.children[action]
            line.append(node)
            if fresh:
                break
        asked.append(node.path)
        for at in line:
            at.flight += 1
        under_way.append((line, node))
    while under_way:
        finish()
    return {"asked": asked, "tells": tells}


def in_range(q, options):
    low, high = options["range"]
    return (q - low) / (high - low)


def choose_uct(node, options):
    usable = []
    for action in "lr":
        child = node.children.get(action)
        if child is None:
            return action
        if child.returns:
            usable.append(action)
    rule = options.get("inFlight", "count")
    weight = {"count": 1, "virtual-loss": options.get("virtualLoss", 1), "ignore": 0}[rule]
    n = {a: len(node.children[a].returns) + weight * node.children[a].flight for a in node.children}
    total = sum(n.values())
    scores = []
    for action in usable:
        q = in_range(q_of(node, action, options.get("discount", 1), options.get("backup")), options)
        if node_sign(node) < 0:
            q = 1 - q
        if rule == "virtual-loss":
            done = len(node.children[action].returns)
            q = (q * done + 0 * weight * node.children[action].flight) / n[action]
        scores.append(q + options.get("exploration", math.sqrt(2)) * math.sqrt(math.log(total) / n[action]))
    return usable[first_max(scores)]


def choose_puct(node, options):
    root = node.path == ""
    priors = options["priors"]
    noise = options.get("noise")
    n, q, seen = {}, {}, []
    own = mean(node.returns) if node.returns else 0.0
    for action in "lr":
        child = node.children.get(action)
        n[action] = len(child.returns) if child else 0
        if n[action]:
            q[action] = node_sign(node) * q_of(node, action, options.get("discount", 1), None)
            seen.append(q[action])
    own *= node_sign(node)
    total = 1 + sum(n.values())
    low, high = min([own, *seen]), max([own, *seen])
    scores = []
    for i, action in enumerate("lr"):
        p = priors[i]
        if root and noise:
            p = (1 - noise["fraction"]) * p + noise["fraction"] * noise["given"][i]
        if options["form"] == "alphazero":
            value_term = q.get(action, 0.0)
        else:
            value_term = (q.get(action, low) - low) / max(high - low, 1e-300) if high > low else 0.0
        c = options.get("init", 1.25) + math.log((total + options.get("base", 19652) + 1) / options.get("base", 19652))
        scores.append(value_term + c * math.sqrt(total) * p / (1 + n[action]))
    return "lr"[first_max(scores)]


# Gumbel on a bandit of four actions whose states have one action each, so that visits never end.
def halving(considered, budget):
    """Visits that the action of each simulation has before it, by playing the tournament with equal contestants."""
    phases = max(1, math.ceil(math.log2(considered)))
    counts = [0] * considered
    left, order = considered, []
    while len(order) < budget:
        each = max(1, budget // (phases * left))
        for _ in range(each):
            for contestant in range(left):
                order.append(counts[contestant])
                counts[contestant] += 1
        left = max(2, left // 2) if considered > 1 else 1
    return order[:budget]


def gumbel(options, budget):
    q, g, priors, raw = options["q"], options["gumbel"], options["priors"], options["raw"]
    logits = [math.log(p) for p in priors]
    n = [0] * len(q)
    considered = min(options["considered"], len(q))
    schedule = halving(considered, budget)

    def sigma():
        if sum(n) == 0:
            mixed = raw
        else:
            visited = [a for a in range(len(q)) if n[a]]
            weighted = sum(priors[a] * q[a] for a in visited) / sum(priors[a] for a in visited)
            mixed = (raw + sum(n) * weighted) / (1 + sum(n))
        completed = [q[a] if n[a] else mixed for a in range(len(q))]
        low, high = min(completed), max(completed)
        scaled = [(c - low) / (high - low) if high > low else 0.0 for c in completed]
        return completed, [(options["visitInit"] + max(n)) * options["valueScale"] * s for s in scaled]

    chosen = []
    for turn in range(budget):
        _, extra = sigma()
        eligible = [a for a in range(len(q)) if n[a] == schedule[turn]]
        scores = [g[a] + logits[a] + extra[a] for a in eligible]
        a = eligible[first_max(scores)]
        chosen.append(a)
        n[a] += 1
    completed, extra = sigma()
    exps = [math.exp(logits[a] + extra[a]) for a in range(len(q))]
    most = [a for a in range(len(q)) if n[a] == max(n)]
    best = most[first_max([g[a] + logits[a] + extra[a] for a in most])]
    return {"chosen": chosen, "visits": n, "best": best, "completed": completed, "improved": [e / sum(exps) for e in exps]}


def main():
    write("bandits.json", {
        "derivation": "UCB1 and UCB1-tuned of Auer, Cesa-Bianchi and Fischer (2002), from lists of all returns; derive_tree.py.",
        "pulls": PULLS,
        "ucb1": bandit(60, ucb1),
        "tuned": bandit(60, tuned),
    })
    unit = {"range": [0, 3]}
    wide = {"range": [-4, 8]}
    runs = []
    for name, options, count, window in [
        ("average, discount .9", {**unit, "discount": 0.5}, 40, 1),
        ("max, discount .9", {**unit, "discount": 0.5, "backup": "max"}, 40, 1),
        ("two players, average", {**wide, "discount": 0.75, "players": 2}, 40, 1),
        ("two players, max", {**wide, "discount": 0.75, "players": 2, "backup": "max"}, 40, 1),
    ]:
        runs.append({"name": name.replace(".9", str(options["discount"])), "algorithm": "uct", "options": options, "window": window,
                     **tree_search(options, count, choose_uct, window)})
    for name, options in [
        ("alphazero, noise", {"form": "alphazero", "range": [-1, 1], "priors": [0.3, 0.7], "discount": 0.25,
                              "noise": {"fraction": 0.25, "given": [0.9, 0.1]}, "scale": 0.3}),
        ("muzero", {"form": "muzero", "priors": [0.4, 0.6], "discount": 0.5}),
        ("muzero, two players", {"form": "muzero", "priors": [0.55, 0.45], "discount": 0.5, "players": 2}),
    ]:
        runs.append({"name": name, "algorithm": "puct", "options": options, "window": 1, **tree_search(options, 40, choose_puct)})
    write("trees.json", {
        "derivation": "Nested dictionaries that keep every return; formulas as in the papers; derive_tree.py. "
                      "Reward and value of a state are functions of the path, given there and in golden-tree.test.ts. "
                      "tells: path, visits and value of every node that a tell changes, from the root; all others stay as they are.",
        "runs": runs,
    })
    bandits = [
        {"q": [0.2, 0.9, 0.5, 0.4], "gumbel": [0.3, -0.7, 1.1, 0.05], "priors": [0.1, 0.2, 0.3, 0.4], "raw": 0.35,
         "considered": 16, "visitInit": 50, "valueScale": 0.1},
        {"q": [-3, 2, 1, 7], "gumbel": [1.5, 0.2, -0.4, -2.5], "priors": [0.5, 0.25, 0.2, 0.05], "raw": -1,
         "considered": 3, "visitInit": 50, "valueScale": 1},
    ]
    write("gumbel.json", {
        "derivation": "Danihelka and others (ICLR 2022) on bandits of fixed returns; the schedule is found by playing it; derive_tree.py.",
        "schedules": [{"considered": m, "budget": n, "visits": halving(m, n)} for m in [1, 2, 3, 4, 7, 16] for n in [1, 5, 16, 50, 200]],
        "runs": [{"options": b, "budget": n, **gumbel(b, n)} for b in bandits for n in [1, 3, 8, 24]],
    })


def parallel():
    """Dispatch order with three actions a state and `window` simulations under way; returns in [0, 3]."""
    runs = []
    for rule in ["count", "virtual-loss", "ignore"]:
        for window in [2, 4]:
            options = {"range": [0, 3], "discount": 0.5, "inFlight": rule}
            runs.append({"window": window, "options": options, **wide_search(options, 40, window)})
    write("parallel.json", {
        "derivation": "WU-UCT's Q + sqrt(2 ln(N + O) / (n + o)) and virtual loss, sequentially simulated; derive_tree.py. Every state has "
                      "actions l, m, r; an action under way can not be followed, and a simulation that finds nothing else backs up.",
        "runs": runs,
    })


def wide_search(options, simulations, window):
    global SCALE
    SCALE = 1
    discount = options["discount"]
    root = Node("")
    asked, under_way = [], []

    def finish():
        line, leaf = under_way.pop(0)
        for node in line:
            node.flight -= 1
        arrived = value(leaf.path)
        for node in reversed(line):
            node.returns.append(arrived)
            arrived = reward(node.path) + discount * arrived

    def ranked(node):
        """Actions, best first: untried ones, then by score; pending ones are left out."""
        untried = [a for a in "lmr" if a not in node.children]
        rule = options["inFlight"]
        weight = 0 if rule == "ignore" else 1
        n = {a: len(c.returns) + weight * c.flight for a, c in node.children.items()}
        total = sum(n.values())
        scored = []
        for a, c in node.children.items():
            if not c.returns:
                continue
            q = (reward(c.path) + discount * mean(c.returns)) / 3
            if rule == "virtual-loss":
                q = q * len(c.returns) / n[a]
            scored.append((q + math.sqrt(2 * math.log(total) / n[a]) if total > 0 else q, a))
        scored.sort(key=lambda pair: (-pair[0], pair[1]))
        for (one, _), (two, _) in zip(scored, scored[1:]):
            assert one == two or abs(one - two) > 1e-9
        return untried + [a for _, a in scored]

    def descend(node, line):
        for a in ranked(node):
            if a not in node.children:
                return [*line, Node(node.path + a)]
            found = descend(node.children[a], [*line, node.children[a]])
            if found:
                return found
        return None

    for _ in range(simulations):
        if len(under_way) == window:
            finish()
        line = descend(root, [root])
        while line is None:
            finish()
            line = descend(root, [root])
        leaf = line[-1]
        line[-2].children[leaf.path[-1]] = leaf
        asked.append(leaf.path)
        for node in line:
            node.flight += 1
        under_way.append((line, leaf))
    while under_way:
        finish()
    return {"asked": asked, "visits": {a: len(root.children[a].returns) for a in sorted(root.children)}}


def widening():
    """Children that a node may have by the number of simulations that came through: the least whole number that is not below k N^alpha."""
    cases = []
    for k, alpha in [(1, 0.5), (2, 0.5), (0.5, 0.5), (1, 0), (3, 0), (0.25, 1), (1, 0.25), (1.5, 0.75)]:
        k_exact, alpha_exact = Fraction(k), Fraction(alpha)
        counts = []
        for n in range(0, 65):
            through = max(1, n)
            # c >= k N^(p/q) for whole numbers only: (c / k)^q >= N^p.
            children = 1
            while (Fraction(children) / k_exact) ** alpha_exact.denominator < through ** alpha_exact.numerator:
                children += 1
            counts.append(children)
        cases.append({"k": k, "alpha": alpha, "children": counts})
    write("widening.json", {
        "derivation": "Least c with c >= k N^alpha, found in exact fractions, for N from 0 (which counts as 1) to 64; derive_tree.py.",
        "cases": cases,
    })


if __name__ == "__main__":
    main()
    parallel()
    widening()
