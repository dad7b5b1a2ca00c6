"""What the compilers of Python's versions write in different ways, executed by capture and by CPython."""
import functools

import pytest
from capture_driver import program_list
from test_capture_opcodes import run, same

PROGRAMS, program = program_list()


@program(3)
def comprehensions_share_their_function(n):
    x, y = "outer", [n]
    squares = [x * x for x in range(n) if x]
    nested = [[(x, y) for y in range(x)] for x in range(n)]
    makers = [lambda: x for x in range(n)]
    keyed = {x: {y for y in range(x)} for x in "ab" for x in range(2)}
    try:
        [1 // (x - 1) for x in range(n)]
    except ZeroDivisionError:
        caught = x
    z = [x for z in range(n)]
    return x, y, squares, nested, [f() for f in makers], keyed, caught, z, [a := n, [a for _ in y]], a


@program([1, 2, 3, 4, 5], "text")
def slices(items, text):
    own = list(items)
    own[1:3] = "abc"
    own[:1] = []
    own[-1:] = (n for n in (7, 8))
    own[::2] = [0] * len(own[::2])
    del own[1:2]
    i, j = 1, None
    return own, items[i:j], items[j:-i], text[i:i + 2], items[::-1], text[:j], (1, 2, 3)[i:]


class Root:
    kind = "root"

    def __init__(self, a, *, b=2):
        self.parts = [a, b]

    @classmethod
    def make(cls, *args, **kwargs):
        return cls(*args, **kwargs)

    @property
    def total(self):
        return sum(self.parts)

    def grow(self, by=1):
        return [self.parts, by]


class Leaf(Root):
    kind = "leaf"

    def __init__(self, a, **kwargs):
        super().__init__(a, **kwargs)
        self.parts.append(super().kind)

    @classmethod
    def make(cls, *args):
        return super().make(*args, b=5)

    @property
    def total(self):
        return [super().total, super(Leaf, self).kind, super(Root, self).__init__ is not None] if self.parts.pop() else None

    def grow(self, by=3):
        found = super().grow
        return found(by=by), super().grow(), [super(Leaf, self).grow(x) for x in range(2)], __class__.kind


@program(4)
def super_calls(a):
    leaf, made = Leaf(a, b=1), Leaf.make(a)
    return leaf.parts[:], made.parts, leaf.grow(), made.grow(by=a), leaf.total


def _receiver(a, *rest, key=0, **more):
    return a, rest, key, more


@program(1, {"key": 5, "z": 6})
def keyword_calls(a, table):
    bound = functools.partial(_receiver, a, key=2)
    return (_receiver(a, key=a), _receiver(a=a), _receiver(*[a, 2], **table), _receiver(a, *(), **{}, k=1), bound(3, more=4),
            "{} {x}".format(a, x=a + 1), dict(a=1, **table), sorted([3, a], key=lambda v: -v), max([a, 2], default=None))


@program(2)
def functions_and_their_parts(n):
    def plain(a, b=n, *, c=n + 1) -> int:
        return a + b + c

    def annotated(x: "text" = n, *args: int, y: float = 1.0) -> None:
        return x, args, y, n

    def counter():
        nonlocal n
        n += 1
        return n
    twice = [counter(), counter()]
    return (plain(1), plain(1, 2, c=3), plain.__defaults__, plain.__kwdefaults__["c"], annotated(), annotated.__name__,
            (lambda *a, k=n: (a, k))(1, k=2), twice, n)


@program(0, 3, [])
def truth(a, b, empty):
    out = []
    if not a and b or empty:
        out.append("first")
    if not (a or empty) and not b > 3 and a < b <= 3 != a:
        out.append("second")
    while b and not empty:
        b -= 1
        if b == 1:
            continue
        out.append(b)
    out += [a or b or empty, a and b, not empty, a if empty else b, (a or empty) is empty, None if b is None else 1]
    assert b == 0 and not out[0] == 1, "message"
    return out, [x for x in [0, 1, None, "", "s", [], [0]] if x], all([1, b == 0]), any([a, empty])


def _inner(log):
    try:
        while True:
            try:
                log.append((yield len(log)))
            except KeyError as error:
                log.append(repr(error))
                yield "caught"
    finally:
        log.append("closed")


def _delegating(log):
    value = yield from _inner(log)
    log.append(("result", value))
    return "end"


def _returning(log):
    try:
        yield 1
    except ValueError:
        return "from the handler"
    return "late"


def _stopping():
    yield 1
    raise StopIteration("early")


@program(2)
def delegation(n):
    log = []
    g = _delegating(log)
    out = [next(g), g.send("a"), g.throw(KeyError("k")), next(g)]
    g.close()

    def outer():
        result = yield from _returning(log)
        yield result
        got = yield from [1, n]
        return got
    o = outer()
    out += [next(o), o.throw(ValueError("v")), list(o)]
    try:
        list(_stopping())
    except RuntimeError as error:
        out.append((str(error), repr(error.__cause__), error.__context__ is error.__cause__))
    try:
        _delegating(log).throw(ZeroDivisionError("before the start"))
    except ZeroDivisionError as error:
        out.append(str(error))
    return out, log


@program("text", 3.14159, 12)
def text_of_values(s, f, n):
    width = 8
    return (f"{s}|{s!r}|{s!s:>6}|{s!a}", f"{f:.2f}{f!r:>10}", f"{n:>{width}}|{n:0{width}x}", f"{n=}", f"{s + s:^{n}}", f"",
            f"{None}{True}", "%s and %d" % (s, n))


@program(5)
def deletions(n):
    a, b = n, [n]
    del a
    try:
        a
    except UnboundLocalError as error:
        text = str(error)
    for i in range(2):
        del b
        b = i
    try:
        exec_error = missing
    except NameError as error:
        exec_error = str(error)
    return text, b, exec_error


@program(3)
def errors_with_context(n):
    log = []
    for i in range(n):
        try:
            try:
                try:
                    if i == 0:
                        raise KeyError(i)
                    if i == 1:
                        {}["missing"]
                    log.append(i // (i - 2))
                except KeyError as error:
                    raise ValueError(i) from error
                finally:
                    log.append("finally")
            except ValueError:
                raise
            else:
                log.append("else")
        except Exception as error:
            log.append((type(error).__name__, repr(error.__cause__), repr(error.__context__)))
    return log


@pytest.mark.parametrize("fn, args", PROGRAMS)
def test_program(fn, args):
    want = fn(*args)
    got = run(fn, *args)
    assert same(want, got), (want, got)


def test_the_recursion_limit_is_pythons_own():
    def deep(n):
        return 0 if n == 0 else 1 + deep(n - 1)

    def fn():
        try:
            return deep(10 ** 6)
        except RecursionError as error:
            return str(error)
    assert run(deep, 300) == 300
    assert "recursion depth" in run(fn)
