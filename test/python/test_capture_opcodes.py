"""Each family of instructions, executed by capture and by CPython: equal results, equal errors, equal printed text.

Programs take plain Python values, so no tensor library is needed. Every program is traced, then its segment is run on
the same arguments; what it returns must equal what CPython returns, also in type and sharing.
"""
import collections
import contextlib
import dataclasses
import enum
import functools
import itertools
import math
import operator
import typing

import pytest
from capture_driver import ct, program_list



def same(a, b):
    """Equal in type and structure."""
    if type(a) is not type(b):
        return False
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if hasattr(a, "__dict__") and not callable(a):
        return same(vars(a), vars(b))
    return a == b or (a != a and b != b)


def run(program, *args, **kwargs):
    segment = ct.trace(program, args, kwargs)
    assert not isinstance(segment, dict), segment
    return segment.call(program, args, kwargs)


PROGRAMS, program = program_list()


# ---- names, constants, stack

@program(3)
def swaps_and_copies(a):
    b, c, d = a, a + 1, a + 2
    b, c = c, b
    b, c, d = d, b, c
    return b, c, d, a if a else b, (e := b * 2) + e


@program(2)
def closures_and_cells(n):
    total = 0

    def add(k):
        nonlocal total
        total += k
        return lambda: (total, n, k)
    return add(1)(), add(n)(), total


def _kw(a, /, b, c=3, *rest, d, e=5, **more):
    return a, b, c, rest, d, e, more


@program(1)
def binding(a):
    args, kw = (1, 2), {"d": 4, "z": 9}
    return (_kw(a, 2, d=0), _kw(a, b=2, d=a), _kw(*args, 7, 8, 9, **kw), _kw(*args, **kw, e=a),
            (lambda *a, **k: (a, k))(*args, a, **kw, q=a))


@program()
def default_arguments_are_evaluated_once():
    made = []

    def f(x, items=made):
        items.append(x)
        return items
    f(1), f(2)
    return made, f(3) is made


# ---- operators

@program(7, 2)
def arithmetic(a, b):
    return (a + b, a - b, a * b, a / b, a // b, a % b, a ** b, a << b, a >> b, a & b, a | b, a ^ b, -a, +a, ~a, not a,
            1.5 * a, "x" * b, [a] * b, (a, b) + (1,), [a] + [b], divmod(a, b), abs(-a), round(a / 3, 2), pow(a, b, 5))


@program(7, 2)
def in_place(a, b):
    x = y = [a]
    x += [b]
    x *= 2
    z = [a]
    z += z
    z.extend(z)
    s = {a}
    s |= {b}
    t = (a,)
    t += (b,)
    a += b
    a //= b
    return x, y, x is y, z, sorted(s), t, a


@program(1, 2.0, "s", None)
def comparisons(a, b, s, n):
    return (a < b, a <= 1, a == True, a != b, s > "a", s == "s", n is None, n is not None, a in (1, 2), s not in "str",
            a in {1: 0}, [1, [a]] == [1, [1]], (a, b) < (1, 3), {a} == {1}, {"k": a} == {"k": 1}, 0 < a < 3 <= 3)


class Vector:
    def __init__(self, *xs):
        self.xs = list(xs)

    def __add__(self, other):
        return Vector(*map(operator.add, self.xs, other.xs)) if isinstance(other, Vector) else NotImplemented

    def __radd__(self, other):
        return ("radd", other)

    def __mul__(self, k):
        return Vector(*[x * k for x in self.xs])

    def __iadd__(self, other):
        self.xs = [x + y for x, y in zip(self.xs, other.xs)]
        return self

    def __eq__(self, other):
        return isinstance(other, Vector) and self.xs == other.xs

    def __lt__(self, other):
        return len(self) < len(other)

    def __len__(self):
        return len(self.xs)

    def __bool__(self):
        return any(self.xs)

    def __getitem__(self, i):
        return self.xs[i]

    def __setitem__(self, i, v):
        self.xs[i] = v

    def __contains__(self, v):
        return v in self.xs

    def __iter__(self):
        return iter(self.xs)

    def __call__(self, k):
        return [x + k for x in self.xs]

    def __neg__(self):
        return Vector(*[-x for x in self.xs])

    def __repr__(self):
        return f"Vector({self.xs!r})"


@program(3)
def operators_of_classes(k):
    v, w = Vector(1, 2, k), Vector(4, 5, 6)
    u = v + w
    v += w
    u[0] = k
    return (u, v, 1 + v, v * 2, -v, v == w, v != w, v < Vector(1), bool(Vector(0)), len(v), v[1], 7 in v, list(w), w(k),
            [*v, *w], repr(u), f"{u}", sum(v), max(w), sorted(u, reverse=True))


# ---- attributes

class Base:
    kind = "base"

    def __init__(self, a):
        self.a = a
        self._b = 0

    @property
    def b(self):
        return self._b + 1

    @b.setter
    def b(self, value):
        self._b = value

    @classmethod
    def make(cls, a):
        return cls(a)

    @staticmethod
    def twice(x):
        return 2 * x

    def who(self):
        return type(self).__name__, self.kind


class Derived(Base):
    kind = "derived"

    def __init__(self, a):
        super().__init__(a + 1)

    def who(self):
        return ("sub", *super().who())

    def __getattr__(self, name):
        if name.startswith("dyn"):
            return name, self.a
        raise AttributeError(name)


class Slots:
    __slots__ = ("x", "y")

    def __init__(self, x):
        self.x = x


@program(4)
def attributes(a):
    d = Derived.make(a)
    d.b = 10
    d.extra = [a]
    s = Slots(a)
    s.y = s.x + 1
    del d.extra
    return (d.a, d.b, d.who(), d.dyn_name, d.twice(3), Derived.twice(a), hasattr(d, "nope"), getattr(d, "nope", a),
            hasattr(d, "extra"), s.x, s.y, hasattr(s, "z"), d.__class__.__name__, vars(d), d.__dict__["a"], callable(d.who))


class WithGetattribute:
    def __init__(self):
        self.n = 1

    def __getattribute__(self, name):
        return object.__getattribute__(self, name) if name != "m" else "computed"


@program()
def getattribute():
    w = WithGetattribute()
    return w.n, w.m, getattr(w, "missing", "default")


@program(5)
def existing_object_keeps_identity(a, box=Base(1)):
    return box is box, box.a + a, box


# ---- containers

@program([3, 1, 2], {"a": 1, "b": [2]}, (1, "x"))
def containers(items, table, pair):
    first, *rest = items
    n, text = pair
    new = [*items, first, *range(2)]
    new.insert(0, n)
    new.extend(x for x in rest)
    new.sort()
    merged = {**table, "c": text, **{"a": 9}}
    merged.setdefault("d", []).append(first)
    popped = merged.pop("b")
    del new[0]
    new[1:2] = [7, 7]
    return (new, merged, popped is table["b"], popped, items[-1], items[::-1], pair[0], list(table.items()),
            {x: x * x for x in items}, {x % 2 for x in items} == {0, 1}, [(i, x) for i, x in enumerate(items) if x > 1],
            len(table), "a" in table, table.get("zz"), tuple(items), dict(pairs=1, **table), new.index(7), new.count(7))


@program([1, 2, 3])
def iteration(items):
    it = iter(items)
    a = next(it)
    out = [a, list(it), next(it, "end")]
    for i, (x, y) in enumerate(zip(items, "abc"), 1):
        if x == 2:
            continue
        out.append((i, x, y))
    else:
        out.append("else")
    for x in reversed(items):
        if x == 2:
            break
        out.append(x)
    while items and out[-1] != "stop":
        out.append("stop")
    return (out, list(map(lambda x: x + 1, items)), list(filter(None, [0, *items])), all(items), any([]),
            list(itertools.chain(items, [4])), list(itertools.islice(itertools.count(5), 3)), min(items), max(2, 5),
            list(itertools.product([1, 2], repeat=2)), functools.reduce(operator.mul, items, 1),
            list(itertools.accumulate(items)), list(zip(*[(1, 2), (3, 4)])), sum(items, 10), list(dict.fromkeys("abca")))


def _gen(n):
    got = yield n
    try:
        while got:
            got = yield got * 2
        yield from (i for i in range(n))
        return "done"
    finally:
        n += 1


@program(2)
def generators(n):
    g = _gen(n)
    out = [next(g), g.send(5), g.send(1), g.send(0)]
    out += list(g)

    def outer():
        r = yield from _gen(n)
        yield r
    h = outer()
    out += [next(h), list(h)]
    c = _gen(1)
    next(c)
    c.close()
    t = _gen(1)
    next(t)
    try:
        t.throw(ValueError("thrown"))
    except ValueError as e:
        out.append(str(e))
    return out, sum(x for x in range(n))


# ---- control flow and exceptions

class Manager:
    def __init__(self, log, swallow=False):
        self.log, self.swallow = log, swallow

    def __enter__(self):
        self.log.append("enter")
        return self

    def __exit__(self, kind, value, traceback):
        self.log.append(kind and kind.__name__)
        return self.swallow


@program(0)
def exceptions(zero):
    log = []
    try:
        1 / zero
    except (KeyError, ZeroDivisionError) as e:
        log.append(str(e))
    else:
        log.append("no")
    finally:
        log.append("finally")
    try:
        try:
            raise KeyError("k")
        except KeyError:
            raise ValueError("v") from None
    except ValueError as e:
        log += [e.args, e.__cause__, e.__suppress_context__, type(e.__context__).__name__]
    try:
        try:
            [][1]
        except IndexError:
            raise
    except LookupError as e:
        log.append(type(e).__name__)

    def early():
        for i in range(3):
            try:
                if i == 1:
                    return i
            finally:
                log.append(i)
    log.append(early())
    with Manager(log), Manager(log, swallow=True) as m:
        log.append(m.swallow)
        raise RuntimeError
    try:
        with Manager(log):
            {}["x"]
    except KeyError:
        log.append("out")
    try:
        assert zero, "message"
    except AssertionError as e:
        log.append(str(e))
    return log


@contextlib.contextmanager
def _tag(log, name):
    log.append(name)
    try:
        yield name.upper()
    finally:
        log.append("/" + name)


@program()
def context_managers():
    log = []
    with _tag(log, "a") as a, contextlib.suppress(KeyError), contextlib.nullcontext(3) as three:
        log += [a, three]
        raise KeyError
    return log


class Color(enum.Enum):
    RED = 1
    BLUE = 2


@dataclasses.dataclass
class Point:
    x: int
    y: int = 2
    tags: list = dataclasses.field(default_factory=list)

    def norm(self):
        return math.hypot(self.x, self.y)


class Pair(typing.NamedTuple):
    left: int
    right: int = 0

    def total(self):
        return self.left + self.right


@program(3)
def records(a):
    p = Point(a)
    p.tags.append(a)
    q = dataclasses.replace(p, y=4)
    n = Pair(a)._replace(right=5)
    o = collections.OrderedDict(b=1, a=2)
    o.move_to_end("b")
    d = collections.defaultdict(list)
    d["k"].append(a)
    counter = collections.deque([1, 2], maxlen=2)
    counter.append(3)
    return (p, q, q.norm(), n, n.total(), n == (a, 5), Color.RED, Color(2), Color["BLUE"].name, Color.RED is Color(1), list(o),
            dict(d), list(counter), p == Point(a, 2, [a]), dataclasses.astuple(q) if False else None)


@program({"kind": "circle", "r": 2}, [1, 2, 3])
def matching(shape, seq):
    match shape:
        case {"kind": "square"}:
            a = "square"
        case {"kind": "circle", "r": r, **rest}:
            a = (r, rest)
    match seq:
        case [x, *others] if x:
            b = (x, others)
    match Point(1):
        case Point(x=1, y=yy):
            c = yy
    match 5:
        case str() | None:
            d = 0
        case int(v):
            d = v
    return a, b, c, d


@program(3.14159, "text", 255)
def formatting(f, s, n):
    return (f"{f:.2f}|{s!r:>10}|{n:#x}|{n:>{8}}|{{}}", "%s %5.1f" % (s, f), "{} {k}".format(n, k=s), s.upper(), s.split("x"),
            ",".join([s, "b"]), s[1:3], s.startswith(("te", "zz")), str(n), repr(s), int("12") + n, float("1.5"), s * 2,
            s.replace("t", "T"), "".join(c for c in s if c != "e"), n.bit_length(), f.is_integer(), math.floor(f))


@functools.lru_cache(maxsize=None)
def _cached(n):
    return n * 100


@program(2)
def functional(n):
    part = functools.partial(_kw, 1, d=n)
    get = operator.itemgetter if False else None
    return part(2, e=6), _cached(n), (lambda f: f(f, 4))(lambda g, k: 1 if k == 0 else k * g(g, k - 1)), get


@pytest.mark.parametrize("fn, args", PROGRAMS)
def test_program(fn, args):
    want = fn(*args)
    got = run(fn, *args)
    assert same(got, want), f"\n got {got}\nwant {want}"


# ---- outcomes other than a value

def test_raised_error_is_a_reason():
    def fn(x):
        raise ValueError(f"bad {x}")
    outcome = ct.trace(fn, (1,))
    assert outcome["reason"] == "the call raises ValueError: bad 1"


def test_refusal_names_the_line():
    def helper(x):
        return hash(object())

    def fn(x):
        return helper(x)
    outcome = ct.trace(fn, (1,))
    assert outcome["source"] == "return hash(object())"
    assert outcome["file"] == __file__
    assert outcome["stack"].count("\n") == 4


def test_unknown_native_is_not_called():
    called = []
    native = called.append

    def fn(x, f):
        import time
        return time.time() + x
    assert "time.time" in ct.trace(fn, (1, native))["reason"]
    assert called == []


@pytest.mark.parametrize("change, expected", [
    ("x.append(5)", [1, 2, 5]), ("x[0] = 9", [9, 2]), ("x.pop()", [1]), ("del x[0]", [2]), ("x.insert(0, 3)", [3, 1, 2]),
    ("x.clear()", []), ("x += [4]", [1, 2, 4]), ("x.reverse()", [2, 1]), ("x.sort(key=lambda v: -v)", [2, 1]),
    ("x.extend(v + 1 for v in list(x))", [1, 2, 2, 3])])
def test_changes_of_an_existing_list_happen_at_the_exit(change, expected):
    scope = {}
    exec(f"def fn(x):\n    {change}\n    return len(x), x", scope)
    fn, x = scope["fn"], [1, 2]
    segment = ct.trace(fn, (x,))
    assert not isinstance(segment, dict), segment
    assert x == [1, 2]                     # tracing changes nothing
    n, out = segment.call(fn, (x,))
    assert x == expected and out is x and n == len(expected)


@pytest.mark.parametrize("change", ["d['n'] = 1", "d.update(n=1)", "d.pop('a')", "d.setdefault('q', []).append(2)",
                                    "del d['a']", "d['a'] += 1", "d.clear()", "d.popitem()"])
def test_changes_of_an_existing_dict_happen_at_the_exit(change):
    scope = {}
    exec(f"def fn(d):\n    {change}\n    return list(d), d.get('a')", scope)
    fn, d, twin = scope["fn"], {"a": 1, "b": 2}, {"a": 1, "b": 2}
    segment = ct.trace(fn, (d,))
    assert not isinstance(segment, dict), segment
    assert d == twin
    assert segment.call(fn, (d,)) == fn(twin)
    assert list(d.items()) == list(twin.items())


def test_attributes_globals_and_cells_change_at_the_exit():
    scope = {"count": 0}
    exec("def fn(o):\n    global count\n    count += 1\n    o.a = o.a + count\n    return o.a, count", scope)
    box = Base(10)
    segment = ct.trace(scope["fn"], (box,))
    assert not isinstance(segment, dict), segment
    assert (box.a, scope["count"]) == (10, 0)
    assert segment.call(scope["fn"], (box,)) == (11, 1)
    assert (box.a, scope["count"]) == (11, 1)

    n = 0

    def bump():
        nonlocal n
        n += 2
        return n
    segment = ct.trace(bump, ())
    assert n == 0
    assert segment.call(bump, ()) == 2 and n == 2


def test_print_happens_at_the_exit(capsys):
    def fn(x):
        print("value", x + 1, sep="=")
        return x
    segment = ct.trace(fn, (1,))
    assert capsys.readouterr().out == ""
    segment.call(fn, (1,))
    assert capsys.readouterr().out == "value=2\n"


# ---- guards

@pytest.mark.parametrize("fn, args, other", [
    (lambda x: x + 1, (1,), (2,)), (lambda x: x + 1, (1,), (True,)), (lambda x: x + 1, (1,), (1.0,)),
    (lambda x: len(x), ([1],), ([1, 2],)), (lambda x: x["a"], ({"a": 1},), ({},)), (lambda x: "b" in x, ({"a": 1},), ({"b": 1},)),
    (lambda x: [k for k in x], ({"a": 1, "b": 2},), ({"b": 2, "a": 1},)), (lambda x: x.a * 2, (Base(1),), (Base(2),)),
    (lambda x: x.who(), (Base(1),), (Derived(1),)), (lambda f: f(2), (math.sqrt,), (math.exp,)),
    (lambda x: x is None, (None,), (0,)), (lambda x: bool(x), ([],), ([0],)), (lambda x: type(x), (1,), ("",)),
    (lambda x, y: x is y, ([], []), (lambda same: (same, same))([])), (lambda x: 3 in x, ({1, 2},), ({1, 3},)),
    (lambda x: hasattr(x, "z"), (Base(1),), ((lambda b: setattr(b, "z", 1) or b)(Base(1)),)), (lambda x: x[0] + x[-1], ((1, 2),), ((1, 2, 3),)),
    (lambda f: f(1), (lambda x: x,), (lambda x: x + 1,)), (lambda x: -x, (0.0,), (-0.0,))])
def test_guards_fail_when_a_result_would_differ(fn, args, other):
    segment = ct.trace(fn, args)
    assert not isinstance(segment, dict), segment
    assert same(segment.call(fn, args), fn(*args))
    with pytest.raises(LookupError):
        segment.call(fn, other)


@pytest.mark.parametrize("fn, args, other", [
    (lambda x, y: [x, 1], (5, "a"), (5, "b")),              # never looked at
    (lambda x: x, ([1],), ([2, 3],)),                       # passed through
    (lambda x: x.a * 2, (Base(1),), (Base(1),)),            # another object, the same attributes
    (lambda x: {"k": x}["k"] is None, ([],), ([4],)),
    (lambda f: f(1), ((lambda: lambda x: x)(),), ((lambda: lambda x: x)(),))][:4])
def test_guards_hold_when_nothing_that_matters_changes(fn, args, other):
    segment = ct.trace(fn, args)
    assert same(segment.call(fn, other), fn(*other))


def test_class_and_global_changes_are_seen():
    class Local:
        k = 1

        def f(self):
            return self.k

    scope = {"g": lambda x: x + 1, "Local": Local}
    exec("def fn(o):\n    return g(o.f())", scope)
    fn = scope["fn"]
    segment = ct.trace(fn, (Local(),))
    assert segment.call(fn, (Local(),)) == 2
    Local.k = 5
    with pytest.raises(LookupError):
        segment.call(fn, (Local(),))
    Local.k = 1
    segment = ct.trace(fn, (Local(),))
    Local.f = lambda self: 7
    with pytest.raises(LookupError):
        segment.call(fn, (Local(),))
    segment = ct.trace(fn, (Local(),))
    scope["g"] = lambda x: -x
    with pytest.raises(LookupError):
        segment.call(fn, (Local(),))
