"""Traces that end in the middle of a call: frames rebuilt from the exit run on as if nothing had happened.

Every program of test_capture_opcodes and test_capture_versions is cut after every k-th instruction; the instruction behind a cut runs for real,
then a new segment starts, or CPython takes over.
"""
import sys
import traceback

import pytest
import test_capture_opcodes as opcodes
import test_capture_versions as versions
from capture_driver import ct

KS = (1, 2, 3, 5, 7, 11, 19)


def outcome(call):
    try:
        return call(), None
    except Exception as error:
        return None, (type(error), str(error), [f.name for f in traceback.extract_tb(error.__traceback__)][1:])


def run(program, args, k, most_segments=1000):
    return ct.run(program, args, None, k, most_segments)[0]


@pytest.mark.parametrize(("program", "args"), opcodes.PROGRAMS + versions.PROGRAMS)
@pytest.mark.parametrize("most_segments", [1, 1000])
def test_cut_everywhere(program, args, most_segments):
    expected = program(*args)
    for k in KS:
        assert opcodes.same(expected, run(program, args, k, most_segments)), k


def leaf(a, log):
    log.append(("leaf", a))
    if a == 3:
        raise ValueError("three")
    return a * 2


class Guarded:
    def __init__(self, log):
        self.log = log

    def __enter__(self):
        self.log.append("enter")
        return self

    def __exit__(self, kind, value, tb):
        self.log.append(("exit", kind.__name__ if kind else None))
        return False


def chain(values, log):
    total = 0
    for i, v in enumerate(values):
        with Guarded(log):
            try:
                total += leaf(v, log)
            except ValueError as error:
                log.append(str(error))
                total -= 1
            finally:
                log.append(i)
    return total, [x for x in log]


def escapes(values, log):
    with Guarded(log):
        return [leaf(v, log) for v in values]


def closure(values, log):
    count = 0

    def add(v):
        nonlocal count
        count += leaf(v, log)
        return lambda: count + v

    functions = [add(v) for v in values]
    return [f() for f in functions], count


def keywords(values, log):
    def inner(a, /, b, *rest, c, d=4, **more):
        log.append((a, b, rest, c, d, more))
        return leaf(a, log) + c

    return [inner(v, 1, 2, 3, c=v, e=5) for v in values] + [inner(*values, **{"c": 1})]


class Base:
    def method(self, v, log):
        return [v, leaf(v, log)]


class Derived(Base):
    def method(self, v, log):
        return super().method(v, log) + [sys._getframe().f_code.co_name]


def classes(values, log):
    d = Derived()
    return [d.method(v, log) for v in values]


@pytest.mark.parametrize("program", [chain, escapes, closure, keywords, classes])
@pytest.mark.parametrize("values", [(1, 2), (1, 3, 2)])
@pytest.mark.parametrize("most_segments", [1, 2, 1000])
def test_stacks_of_frames(program, values, most_segments):
    expected_log = []
    expected = outcome(lambda: program(values, expected_log))
    for k in (1, 2, 3, 4, 5, 6, 8, 11, 15, 21, 29, 40, 41, 42, 55, 76, 105):
        log = []
        got = outcome(lambda: run(program, (values, log), k, most_segments))  # noqa: B023
        assert got[0] == expected[0], k
        assert (got[1] or [None])[:2] == (expected[1] or [None])[:2], k
        assert log == expected_log, k


def test_unknown_natives_break_the_graph():
    import random

    def program(a):
        r = random.Random(a)
        x = r.random()
        y = [x, r.random()]
        return y, x > 0.5

    result, segments, reasons = ct.run(program, (4,), None, 0, 100)
    assert result == program(4)
    assert segments >= 2
    assert reasons


def test_nothing_leaks():
    class Thing:
        pass

    def program(thing):
        kept = [thing, Thing()]
        print("", end="")
        id(kept)
        return kept

    thing = Thing()
    for k in (0, 1, 3, 5):
        before = sys.getrefcount(thing)
        for _ in range(3):
            ct.run(program, (thing,), None, k, 100)
        assert sys.getrefcount(thing) == before
