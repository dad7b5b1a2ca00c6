"""Cuts in frames that are more than a function's: while exceptions are handled, in generators, under operators. Each
program is cut after every k-th instruction; what it returns, and what it does to a log, must be CPython's."""
import gc
import sys
import traceback
import weakref

import pytest
import test_capture_opcodes as opcodes
import test_capture_versions as versions
from capture_driver import ct, program_list

KS = (1, 2, 3, 4, 5, 7, 10, 13, 17, 23, 31, 43)
PROGRAMS, program = program_list()


def shown(error):
    """All that a handler can see of an exception."""
    if error is None:
        return None
    rows = [(r.name, r.lineno) for r in traceback.extract_tb(error.__traceback__) if r.filename == __file__]
    return (type(error).__name__, error.args, rows, shown(error.__cause__), shown(error.__context__),
            error.__suppress_context__, getattr(error, "__notes__", None))


# ---- handled exceptions

def fail(kind, *args):
    raise kind(*args)


@program(3)
def handlers(a):
    out = []
    for i in range(a):
        try:
            if i == 1:
                fail(KeyError, i)
            out.append(1 // (i - 2) if i else fail(ValueError, "zero"))
        except (ValueError, ZeroDivisionError) as error:
            out.append(i + len(out))
            out.append((type(error).__name__, str(error)))
        except KeyError as error:
            out.append(error.args[0] + 1)
        else:
            out.append("else")
        finally:
            out.append(sys.exc_info()[0])
            out.append(i)
    return out, sys.exc_info()


@program()
def raised_again():
    log = []
    for reraise in (True, False):
        try:
            try:
                fail(ValueError, 1)
            except ValueError:
                log.append(len(log))
                if reraise:
                    raise
                log.append(sys.exc_info()[0].__name__)
                raise KeyError(2)
            finally:
                log.append("finally")
        except Exception as error:
            log.append(shown(error))
    try:
        raise
    except RuntimeError as error:
        log.append(error.args)
    return log


@program()
def contexts_and_causes():
    log = []
    try:
        try:
            try:
                fail(ValueError, "inner")
            except ValueError as inner:
                log.append(1)
                raise TypeError("middle") from inner
        except TypeError as middle:
            log.append(2)
            middle.__suppress_context__ = False
            try:
                fail(KeyError, "k")
            except KeyError:
                log.append(3)
                raise IndexError("outer") from None
    except IndexError as error:
        log.append(shown(error))
    return log


class Custom(Exception):
    def __init__(self, text, *, code):
        super().__init__(text)
        self.code = code


class Slotted(KeyError):
    __slots__ = ("extra",)


@program()
def exceptions_as_values():
    kept = []
    for make in (lambda: fail(Custom("text", code=3)) if 0 else (_ for _ in ()).throw(Custom("text", code=3)),
                 lambda: fail(OSError, 2, "missing", "file"), lambda: fail(UnicodeDecodeError, "utf8", b"ab", 0, 1, "why"),
                 lambda: fail(StopIteration, 5), lambda: fail(ImportError, "no"), lambda: [][3], lambda: {}["k"],
                 lambda: fail(FileNotFoundError, 2, "gone")):
        try:
            make()
        except Exception as error:
            kept.append(error)
            text = repr(error), str(error), getattr(error, "code", None), getattr(error, "errno", None), \
                getattr(error, "filename", None), getattr(error, "value", None)
            kept.append(text)
    slotted = Slotted("s")
    slotted.extra = 4
    kept.append((slotted.extra, slotted.args))
    return [shown(k) if isinstance(k, BaseException) else k for k in kept]


class Manager:
    def __init__(self, log, swallow):
        self.log, self.swallow = log, swallow

    def __enter__(self):
        self.log.append("enter")
        return self

    def __exit__(self, kind, value, tb):
        self.log.append((kind and kind.__name__, value and value.args, sys.exc_info()[0] is kind,
                         tb and len(traceback.extract_tb(tb))))
        try:
            fail(KeyError, 0)
        except KeyError as error:
            self.log.append(shown(error.__context__) == shown(value))
        return self.swallow


@program()
def managers_that_catch():
    log = []
    for swallow in (True, False):
        try:
            with Manager(log, swallow) as m:
                log.append(m.swallow)
                with Manager(log, False):
                    fail(ValueError, swallow)
        except ValueError as error:
            log.append(shown(error))
    return log


@program()
def exceptions_through_frames():
    log = []

    def third(n):
        try:
            log.append(n)
            if n > 1:
                raise IndexError(n)
            return n
        finally:
            log.append(("third", n))

    def second(n):
        try:
            return third(n)
        except KeyError:
            log.append("never")
        finally:
            log.append(("second", sys.exc_info()[0]))

    def first(n):
        try:
            return second(n) + 1
        except IndexError as error:
            log.append(shown(error))
            return second(0)

    return [first(n) for n in range(3)], log


# ---- generators

def countdown(n, log):
    try:
        while n:
            log.append(n)
            got = yield n
            if got:
                log.append(("got", got))
            n -= 1
    except KeyError as error:
        log.append(("thrown", error.args))
        yield "caught"
    finally:
        log.append("done")
    return "end"


@program()
def loops_over_generators():
    log = []
    total = 0
    for v in countdown(3, log):
        total += v
        log.append(("body", total))
    for v in (w * 2 for w in countdown(2, log)):
        total += v
    return total, log


@program()
def generators_that_are_left():
    log = []
    for v in countdown(3, log):
        log.append(("first", v))
        break
    log.append("between")
    live = countdown(2, log)
    log.append(next(live))

    def inner():
        for v in countdown(5, log):
            if v == 4:
                return v
    log.append(inner())
    live = None
    log.append("after")
    return log


@program()
def driven_generators():
    log = []
    g = countdown(4, log)
    out = [next(g), g.send("a"), next(g)]
    try:
        out.append(g.throw(KeyError("k")))
        next(g)
    except StopIteration as stop:
        out.append(stop.value)
    h = countdown(1, log)
    out.append(next(h))
    out.append(next(h, "default"))
    out.append(next(h, "again"))
    k = countdown(2, log)
    next(k)
    k.close()
    return out, log


@program()
def delegation():
    log = []

    def middle(n):
        result = yield from countdown(n, log)
        log.append(result)
        yield from [10, 20]
        return (yield from inner())

    def inner():
        yield 30
        return 40

    def outer():
        log.append((yield from middle(2)))

    return list(outer()), tuple(outer()), set(outer()), log


@program()
def recursive_generators():
    def tree(n):
        if n > 0:
            yield from tree(n - 1)
            yield n
            for v in tree(n - 2):
                yield -v

    return list(tree(4)), sum(tree(3)), max(tree(3)), sorted(tree(4)), [v for v in tree(2)]


@program()
def generators_with_handlers():
    log = []

    def g():
        for i in range(3):
            try:
                if i == 1:
                    fail(ValueError, i)
                yield i
            except ValueError as error:
                log.append(sys.exc_info()[0].__name__)
                yield error.args
                log.append(sys.exc_info()[0].__name__)
                try:
                    fail(KeyError, "k")
                except KeyError as other:
                    log.append(shown(other.__context__))
                yield "out"

    out = []
    try:
        fail(TypeError, 1)
    except TypeError:
        for v in g():
            out.append((v, sys.exc_info()[0].__name__))
    return out, log, sys.exc_info()


@program()
def errors_in_generators():
    log = []

    def g():
        yield 1
        fail(ValueError, "in")

    def stops():
        yield 1
        fail(StopIteration)

    for make in (g, stops):
        try:
            for v in make():
                log.append(v)
        except Exception as error:
            log.append(shown(error))
    return log


@program()
def generators_in_variables_and_containers():
    def g(n):
        for i in range(n):
            yield i, n

    a, b = g(3), g(2)
    held = [g(2)]
    again = a
    out = [next(a), next(b), next(again), next(held[0])]

    def use():
        return next(a), next(held[0])
    out.append(use())
    for v in b:
        out.append(v)
    exhausted = g(0)
    out.append(next(exhausted, None))
    return out, list(exhausted), list(held[0])


@program()
def pairs():
    def g(n):
        x = 0
        while x < n:
            x += 1
            yield x
    out = [list(zip(g(3), g(2))), [(i, v) for i, v in enumerate(g(2))], list(map(lambda v: v + 1, g(2)))]
    with_keys = {k: v for k, v in zip(g(2), map(str, g(2)))}
    first, *rest = g(3)
    return out, with_keys, first, rest, 2 in g(3), 9 in g(1), any(v > 1 for v in g(2)), all(v > 1 for v in g(2))


# ---- operators

class Number:
    def __init__(self, v, log):
        self.v, self.log = v, log

    def note(self, name, other):
        self.log.append((type(self).__name__, name, getattr(other, "v", type(other).__name__)))

    def __add__(self, other):
        self.note("add", other)
        if isinstance(other, str):
            return NotImplemented
        return Number(self.v + getattr(other, "v", other), self.log)

    def __radd__(self, other):
        self.note("radd", other)
        return NotImplemented if isinstance(other, list) else Number(100 + self.v, self.log)

    def __iadd__(self, other):
        self.note("iadd", other)
        return NotImplemented if isinstance(other, Number) else self

    def __neg__(self):
        self.note("neg", None)
        return -self.v

    def __invert__(self):
        return ~self.v

    def __eq__(self, other):
        self.note("eq", other)
        return self.v == other.v if isinstance(other, Number) else NotImplemented

    def __lt__(self, other):
        self.note("lt", other)
        return NotImplemented if isinstance(other, Derived) else self.v < getattr(other, "v", other)

    def __gt__(self, other):
        self.note("gt", other)
        return self.v > getattr(other, "v", other)

    def __contains__(self, item):
        self.note("contains", item)
        return item

    def __bool__(self):
        self.note("bool", None)
        return self.v > 0

    def __iter__(self):
        self.note("iter", None)
        return iter((self.v, self.v + 1))

    def __getitem__(self, key):
        self.note("getitem", key)
        return key

    def __setitem__(self, key, value):
        self.note("setitem", key)


class Derived(Number):
    def __radd__(self, other):
        self.note("radd of derived", other)
        return NotImplemented if other.v == 3 else -1

    def __lt__(self, other):
        self.note("lt of derived", other)
        return NotImplemented


@program()
def operators():
    log = []
    a, b, d = Number(1, log), Number(3, log), Derived(2, log)
    out = [(a + b).v, (a + 2).v, (2 + a).v, a + d, (b + d).v, -a, ~b]
    a += 5
    b += a
    out += [a.v, b.v]
    for make in (lambda: a + "s", lambda: [] + a, lambda: object() + a, lambda: a < object()):
        try:
            out.append(getattr(make(), "v", None))
        except (TypeError, AttributeError) as error:
            out.append(str(error).split("'")[0])
    return out, log


@program()
def comparisons():
    log = []
    a, b, d = Number(1, log), Number(1, log), Derived(2, log)
    out = [a == b, a != b, a == 1, a != 1, a < b, a < d, d < a, a > d, d > d, a == d, 1 == a, 3 > a]
    try:
        d < d
    except TypeError as error:
        out.append(str(error))
    out += [5 in a, 0 not in a, a in [b], d in (a, b), [b].index(a), a and b, d or a, not a, (a and 3) or 4]
    out += [list(a), [*a], tuple(a), 7 in [Number(7, log)]]
    x, y = a
    out += [x, y, a[1], a[1:2], a["k"]]
    a[3] = 1
    a[1:2] = 2
    if a:
        out.append("true")
    while Number(-1, log):
        out.append("never")
    return [getattr(v, "v", v) for v in out], log


class Missing(dict):
    def __missing__(self, key):
        self[key] = key * 2
        return key + "!"


class NotAnIterator:
    def __iter__(self):
        return 3


@program()
def subclasses_of_builtins():
    m = Missing(a=1)
    out = [m["a"], m["b"], m["b"], len(m)]
    try:
        for _ in NotAnIterator():
            pass
    except TypeError as error:
        out.append(str(error))
    return out


@program()
def missing_attributes():
    class WithGetattr:
        def __getattr__(self, name):
            raise AttributeError("none")

    out = []
    for obj in (Number(1, []), WithGetattr(), Custom):
        try:
            obj.absent
        except AttributeError as error:
            out.append((error.name, error.obj is obj, error.args))
        try:
            obj.missing()
        except AttributeError as error:
            out.append((error.name, error.obj is obj))
    return out


@pytest.mark.parametrize(("fn", "args"), PROGRAMS)
@pytest.mark.parametrize("most_segments", [1, 2, 1000])
def test_cut_everywhere(fn, args, most_segments):
    expected = fn(*args)
    for k in KS:
        assert opcodes.same(expected, ct.run(fn, args, None, k, most_segments)[0]), k


def outcome(call):
    try:
        return call()
    except Exception as error:
        return type(error), error.args


@pytest.mark.parametrize(("fn", "args"), PROGRAMS)
def test_under_a_handled_exception(fn, args):
    """The caller handles an exception, which is the program's to see."""
    for k in (2, 5, 13, 10 ** 6):
        try:
            fail(LookupError, "outside")
        except LookupError as outside:
            expected = outcome(lambda: fn(*args))
            assert opcodes.same(expected, outcome(lambda: ct.run(fn, args, None, k, 1000)[0])), k  # noqa: B023
            assert sys.exc_info()[1] is outside


@pytest.mark.parametrize("fn", [handlers, raised_again, contexts_and_causes, managers_that_catch, loops_over_generators,
                                delegation, operators, comparisons])
def test_segments_start_again_behind_the_cut(fn):
    args = (3,) if fn is handlers else ()
    _, segments, _ = ct.run(fn, args, None, 25, 1000)
    assert segments > 5


@pytest.mark.parametrize("k", [1, 2, 3, 5, 8, 10 ** 6])
def test_an_existing_exception_stays_the_same_object(k):
    kept = []

    def program(outer):
        try:
            fail(ValueError, 1)
        except ValueError as error:
            kept.append(error)
            len(kept)
            try:
                raise
            except ValueError as again:
                kept.append(again is error)
                return again is kept[0], error.__context__ is outer

    try:
        fail(KeyError)
    except KeyError as outer:
        assert ct.run(program, (outer,), None, k, 1000)[0] == (True, True)
    assert kept[1] is True


@pytest.mark.parametrize("k", [0, 1, 2, 3, 7, 10 ** 6])
def test_generators_that_are_dropped_in_a_cycle(k):
    def program():
        log = []

        def cyclic():
            try:
                self = yield
                yield self
            finally:
                log.append("collected")
        g = cyclic()
        next(g)
        g.send(g)
        del g
        gc.collect()
        return log

    assert ct.run(program, (), None, k, 1000)[0] == ["collected"]


def test_generators_that_are_dropped_with_a_list():
    def program():
        log = []
        held = [countdown(3, log)]
        next(held[0])
        held = None
        log.append("list")
        return log

    assert ct.run(program, (), None, 10 ** 6, 1000)[0] == [3, "done", "list"]


def test_frames_that_the_program_looks_at():
    def program(n):
        total, captured = n * 2, n
        frame = sys._getframe()
        try:
            fail(ValueError, lambda: captured)
        except ValueError as error:
            seen = [r.f_locals.get("args") is not None or r is frame for r, _ in traceback.walk_tb(error.__traceback__)]
        total += 1
        return frame is sys._getframe(), frame.f_locals["total"], frame.f_locals["captured"], seen

    for k in KS:
        assert ct.run(program, (3,), None, k, 1000)[0] == program(3)


def test_variables_of_frames_in_tracebacks_can_be_asked_for():
    def program(n):
        def inner():
            len(str(n))
            fail(ValueError, n)
        try:
            inner()
        except ValueError as error:
            return len([row.f_locals for row, _ in traceback.walk_tb(error.__traceback__)])

    for k in KS:
        assert ct.run(program, (3,), None, k, 1000)[0] == 3


# ---- leaks

@pytest.mark.parametrize(("fn", "args"), opcodes.PROGRAMS + versions.PROGRAMS + PROGRAMS)
def test_nothing_leaks(fn, args):
    """Objects and references are as many after many runs as after a few: whole, cut, and left to CPython."""
    watched = [fn, fn.__code__, *args, None, True, Number, ValueError, countdown]

    def rounds(n):
        for _ in range(n):
            for k in (0, 3, 10):
                ct.run(fn, args, None, k, 1000)
        gc.collect()

    def counts():
        return [sys.getrefcount(o) for o in watched]
    rounds(3)
    before, objects = counts(), len(gc.get_objects())
    rounds(8)
    assert len(gc.get_objects()) - objects < 8
    assert all(b - a < 8 or a > 2 ** 30 for a, b in zip(before, counts())), list(zip(before, counts()))


@pytest.mark.parametrize("k", [0, 1, 2, 3, 5, 8])
def test_what_frames_held_dies(k):
    class Thing:
        pass

    def make(n):
        try:
            kept = Thing()
            things.append(weakref.ref(kept))
            yield n
            fail(ValueError, kept)
        except ValueError as error:
            things.append(weakref.ref(error.args[0]))
            yield n + 1

    def program():
        total = 0
        for v in make(1):
            total += v
        g = make(5)
        return total + next(g)

    for most_segments in (1, 2, 1000):
        things = []
        assert ct.run(program, (), None, k, most_segments)[0] == 8
        gc.collect()
        assert len(things) >= 3 and all(ref() is None for ref in things)
