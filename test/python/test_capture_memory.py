"""Traces leave no reference behind, and the thread's state as it was."""
import gc
import sys
import weakref

import pytest
from capture_driver import ct



class Thing:
    def __init__(self, n):
        self.n = n
        self.items = [n, str(n)]

    def __call__(self, k):
        return [self.n + k, *self.items, {"k": k}]


def loops(thing, extra):
    def gen():
        for i in range(3):
            try:
                yield thing(i)
            except ValueError:
                pass
    out = list(gen())
    try:
        {}[extra]
    except KeyError as e:
        out.append(str(e))
    live = gen()
    next(live)
    with thing_context(thing) as t:
        out.append(t.n)
    return out


class thing_context:
    def __init__(self, thing):
        self.thing = thing

    def __enter__(self):
        return self.thing

    def __exit__(self, *exc):
        return False


def refuses(thing):
    try:
        for x in thing.items:
            with thing_context(thing):
                hash(object())
    finally:
        thing.n


def raises(thing):
    try:
        raise ValueError(thing.n)
    except ValueError:
        raise KeyError(thing.n)


@pytest.mark.parametrize("fn, args", [(loops, (Thing(1), "x")), (refuses, (Thing(2),)), (raises, (Thing(3),))])
def test_reference_counts_are_steady(fn, args):
    watched = [*args, args[0].items, fn, fn.__code__, Thing, None, True, ValueError]

    def counts():
        gc.collect()
        return [sys.getrefcount(o) for o in watched]
    for _ in range(3):
        ct.trace(fn, args)
    before = counts()
    objects = len(gc.get_objects())
    for _ in range(50):
        ct.trace(fn, args)
    after = counts()
    assert all(b - a < 25 for a, b in zip(before, after)), list(zip(before, after))
    assert len(gc.get_objects()) - objects < 25


def test_segments_run_without_leaks():
    thing = Thing(4)
    segment = ct.trace(loops, (thing, "x"))
    assert not isinstance(segment, dict), segment
    for _ in range(3):
        segment.call(loops, (thing, "x"))
    gc.collect()
    before, objects = sys.getrefcount(thing), len(gc.get_objects())
    for _ in range(100):
        segment.call(loops, (thing, "x"))
    gc.collect()
    assert sys.getrefcount(thing) == before and len(gc.get_objects()) - objects < 10


def test_segments_do_not_keep_arguments_alive():
    thing = Thing(5)
    ref = weakref.ref(thing)
    segment = ct.trace(Thing.__call__, (thing, 1))
    assert not isinstance(segment, dict), segment
    del thing
    gc.collect()
    assert ref() is None


@pytest.mark.parametrize("fn", [loops, refuses, raises])
def test_thread_state_is_restored(fn):
    args = (Thing(6), "x") if fn is loops else (Thing(6),)
    assert gc.isenabled()
    try:
        raise RuntimeError("outer")
    except RuntimeError as outer:
        ct.trace(fn, args)
        assert sys.exc_info()[1] is outer
    assert sys.exc_info() == (None, None, None)
    assert gc.isenabled()

    def depth(n):
        return n if n == 0 else depth(n - 1)
    for _ in range(2000):
        ct.trace(fn, args)
    assert depth(500) == 0          # the recursion budget is whole


def test_generator_finally_does_not_run_for_a_dropped_trace():
    log = []

    def gen():
        try:
            yield 1
        finally:
            log.append("ran")

    def fn():
        g = gen()
        next(g)
        hash(object())
    assert isinstance(ct.trace(fn, ()), dict)
    gc.collect()
    assert log == []


def test_deep_recursion_is_an_error_of_the_program():
    def down(n):
        return 0 if n == 0 else 1 + down(n - 1)
    assert ct.trace(down, (200,)).call(down, (200,)) == 200
    assert "RecursionError" in ct.trace(down, (100000,))["reason"]


def test_keyboard_interrupt_propagates():
    def fn():
        raise KeyboardInterrupt
    with pytest.raises(KeyboardInterrupt):
        ct.trace(fn, ())


def test_a_debugger_is_left_alone():
    def fn(x):
        return x + 1
    sys.settrace(lambda *a: None)
    try:
        outcome = ct.trace(fn, (1,))
    finally:
        sys.settrace(None)
    assert outcome["reason"] == "a debugger or profiler is active"


@pytest.mark.skipif(sys.version_info < (3, 12), reason="sys.monitoring is new in Python 3.12")
def test_a_monitoring_tool_is_left_alone():
    def fn(x):
        return x + 1
    monitoring = sys.monitoring
    monitoring.use_tool_id(3, "test")
    try:
        assert not isinstance(ct.trace(fn, (1,)), dict)
        monitoring.set_events(3, monitoring.events.LINE)
        assert ct.trace(fn, (1,))["reason"] == "a debugger or profiler is active"
        monitoring.set_events(3, 0)
    finally:
        monitoring.free_tool_id(3)


def test_other_threads_run_on_meanwhile():
    import threading
    stop, errors, counts = threading.Event(), [], [0, 0]

    def work():            # ordinary Python, generators and collections included
        def gen(n):
            for i in range(n):
                yield from (i, [i])
        while not stop.is_set():
            if len(list(gen(20))) != 40:
                errors.append("wrong")
            gc.collect(0)
            counts[0] += 1

    def traces():
        while not stop.is_set():
            outcome = ct.trace(loops, (Thing(1), "x"))
            if isinstance(outcome, dict):
                errors.append(outcome["reason"])
            counts[1] += 1
    threads = [threading.Thread(target=f) for f in (work, work, traces, traces)]
    for t in threads:
        t.start()
    for _ in range(10):
        ct.trace(loops, (Thing(2), "x"))
        gc.collect()
    stop.set()
    for t in threads:
        t.join()
    assert not errors and min(counts) > 0


def test_a_collection_inside_a_trace_is_harmless():
    def gen(n):
        kept = [object() for _ in range(n)]
        for i in range(n):
            yield i, len(kept)

    def fn(collect):
        out = []
        for item in gen(5):
            out.append(item)
            out.append(collect())
        return out
    assert "gc.collect" in ct.trace(fn, (gc.collect,))["reason"]


def test_this_python_passes_the_probes():
    assert ct.python_behaves()
