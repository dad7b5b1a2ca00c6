"""What capture costs, as ratios measured in one run: for each figure the bar that it has to meet.

usage: capture.py [bert] [opcodes] [breaks] [handover]

  bert      capture and trace of BERT-base, in milliseconds
  opcodes   the first call of a function of 20,000 opcodes without tensors: braze against Dynamo, both with the back
            end "eager"
  breaks    a loop with one graph break a turn, against the same loop split by hand, in microseconds a break
  handover  Python code that runs after a break and is never captured, against the same code in CPython
"""
import statistics
import threading
import time

import braze
import overheads
import parts
import torch


def seconds(f, *args):
    start = time.perf_counter()
    f(*args)
    return time.perf_counter() - start


def show(name, figure, bar, ok):
    print(f"{name}: {figure}; bar: {bar}{'' if ok else '   MISSED'}", flush=True)


def bert():
    model, ids = overheads.bert()
    with torch.no_grad():
        rows, _ = overheads.trace_times(lambda x: model(x).last_hidden_state, ids, 5, backend="eager")
    runs = [sum(row) for row in rows]
    show("BERT-base, capture and trace", f"{min(runs):.1f} ms (median {statistics.median(runs):.1f})", "60 ms",
         min(runs) < 60)


OPCODES = 20_000
BODY = """
    a, b = b + i, a * 2 % 7
    table[a % 5] = b
    names.append(a)
    if a > b:
        c = (a, b, c[0])
"""


def opcodes():
    """A function of that many opcodes in a row: every one is met once."""
    import dis

    def of(turns):
        source = ("def f(x, i):\n    a, b, c, table, names = 1, 2, (0, 0, 0), {}, []\n" + BODY * turns +
                  "    return x + (a + b + len(names) + len(table) + c[0])\n")
        scope = {}
        exec(source, scope)
        return scope["f"]

    each = len(list(dis.get_instructions(of(2)))) - len(list(dis.get_instructions(of(1))))
    f = of(OPCODES // each)
    x = torch.ones(2)
    assert torch.equal(braze.compile(f, backend="eager", fullgraph=True)(x, 1), f(x, 1))
    ours = []
    for _ in range(5):
        braze.reset()
        ours.append(seconds(braze.compile(f, backend="eager", fullgraph=True), x, 1))
    theirs = []
    for _ in range(2):
        torch._dynamo.reset()
        theirs.append(seconds(torch.compile(f, backend="eager", fullgraph=True), x, 1))
    ratio = min(theirs) / min(ours)
    show(f"{OPCODES} opcodes without tensors",
         f"{min(ours) / OPCODES * 1e9:.0f} ns an opcode, Dynamo {min(theirs) / OPCODES * 1e9:.0f}: {ratio:.1f} times sooner",
         "20 times", ratio > 20)


TURNS = 200


def breaks():
    log = []

    @braze.disable
    def outside(i):
        log.append(i)

    def first(x, i):
        return x + 1, i + 1

    def second(x):
        return x * 0.5

    def whole(x, n):
        i = 0
        while i < n:
            x = x + 1
            i += 1
            outside(i)
            x = x * 0.5
        return x

    step, end = braze.compile(first, fullgraph=True), braze.compile(second, fullgraph=True)

    def by_hand(x, n):
        i = 0
        while i < n:
            x, i = step(x, i)
            log.append(i)
            x = end(x)
        return x

    compiled = braze.compile(whole)
    x = torch.ones(8)
    rows = [], []
    with torch.no_grad():
        for f in (compiled, by_hand) * 2:
            f(x, TURNS)
        for _ in range(15):
            for f, row in zip((compiled, by_hand), rows, strict=True):
                row.append(seconds(f, x, TURNS) / TURNS * 1e6)
        counters = braze.counters()
    more = statistics.median(rows[0]) - statistics.median(rows[1])
    show("a loop with one break a turn", f"{statistics.median(rows[0]):.2f} us a turn, split by hand "
         f"{statistics.median(rows[1]):.2f}: {more:.2f} us a break ({counters['graphs']} graphs, skipped: {counters['skipped']})",
         "5 us", more < 5)


def handover():
    gate = threading.Lock()

    def work(x, n):
        x = x * 2
        total = int(x.sum().item())
        for i in range(n):
            total = (total * 31 + i) % 1000003
            gate.locked()          # a graph break without a graph in between: soon CPython runs the rest
        return total

    compiled = braze.compile(work)
    x, n = torch.ones(4), 200_000
    assert compiled(x, n) == work(x, n)
    rows = [], []
    for _ in range(7):
        for f, row in zip((compiled, work), rows, strict=True):
            row.append(seconds(f, x, n))
    ratio = min(rows[0]) / min(rows[1])
    show("code handed over", f"{ratio:.2f} of CPython's time", "1.05", ratio < 1.05)


PARTS = {"bert": bert, "opcodes": opcodes, "breaks": breaks, "handover": handover}


if __name__ == "__main__":
    parts.run(PARTS)
