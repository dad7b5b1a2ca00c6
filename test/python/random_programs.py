"""Random Python programs without tensors, for comparing capture with CPython.

A program is a tree of statements over variables whose first letter tells what they usually hold: i integers, l lists,
d dicts, s sets, t tuples, w strings, o objects, f functions, g generators. Every block has a scope of its own if it is a
function's. Programs end: loops count, and functions call only what was defined before them.

usage: random_programs.py FIRST_SEED COUNT     compares them, shrinks what differs and prints it
"""
import marshal
import random
import sys

from capture_driver import ct

KINDS = "ildstwo"
VARIABLES = {"i0": "1", "i1": "2", "i2": "0", "l0": "[4, 5]", "l1": "[]", "d0": "{1: 2}", "d1": "{}", "s0": "{3}", "t0": "(6, 7)",
             "w0": "'m'", "o0": "Slim(1)", "o1": "Thing(2)", "g0": "counting(2, log)"}
ERRORS = ["ValueError", "KeyError", "IndexError", "TypeError", "ZeroDivisionError", "StopIteration", "Problem"]

PRELUDE = """
import contextlib, functools, sys, itertools, operator, collections

TOTAL = 5

class Problem(Exception):
    pass

class Thing:
    shared = 3
    def __init__(self, a, b=2):
        self.a, self.b = a, b
    def __repr__(self):
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in sorted(vars(self).items()))})"
    def __eq__(self, other):
        return isinstance(other, Thing) and vars(self) == vars(other)
    __hash__ = None
    def __add__(self, other):
        return type(self)(self.a, other)
    def __iadd__(self, other):
        self.b = other
        return self
    def __len__(self):
        return 2
    def __iter__(self):
        yield self.a
        yield self.b
    def __getitem__(self, key):
        return (self.a, self.b)[key]
    def __call__(self, *args, **kwargs):
        return (self.a, args, kwargs)
    @property
    def doubled(self):
        return self.a * 2
    @doubled.setter
    def doubled(self, value):
        self.a = value
    @classmethod
    def make(cls, *args):
        return cls(*args)
    @staticmethod
    def plain(a, b=1):
        return a, b

class Slim:
    __slots__ = ("a", "b")
    __match_args__ = ("a", "b")
    def __init__(self, a, b=7):
        self.a, self.b = a, b
    def __repr__(self):
        return f"Slim({getattr(self, 'a', '-')!r}, {getattr(self, 'b', '-')!r})"
    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        return len(name)
    def __bool__(self):
        return bool(self.a)
    def __lt__(self, other):
        return repr(self) < repr(other)

class Manager:
    def __init__(self, log, name, swallows=False):
        self.log, self.name, self.swallows = log, name, swallows
    def __enter__(self):
        self.log.append(("enter", self.name))
        return self.name
    def __exit__(self, kind, value, trace):
        self.log.append(("exit", self.name, kind and kind.__name__))
        return self.swallows and isinstance(value, (Problem, ValueError))

@contextlib.contextmanager
def managed(log, name):
    log.append(("begin", name))
    try:
        yield name
    except KeyError as error:
        log.append(("caught", repr(error)))
    finally:
        log.append(("end", name))

def decorated(function):
    @functools.wraps(function)
    def inner(*args, **kwargs):
        return function(*args, **kwargs), len(args)
    return inner

def counting(n, log):
    try:
        for i in range(n):
            got = yield i
            if got is not None:
                log.append(("got", got))
    finally:
        log.append(("closed", n))
    return n * 10

def wrapping(n, log):
    result = yield from counting(n, log)
    log.append(("result", result))
    yield result
"""


class Statement:
    """Lines of text, or clauses: a head and the block under it each."""

    def __init__(self, line=None, clauses=()):
        self.line, self.clauses = line, list(clauses)

    def write(self, depth, out):
        if self.line is not None:
            out.extend("    " * depth + part for part in self.line.split("\n"))
        for head, block in self.clauses:
            out.append("    " * depth + head)
            write_block(block, depth + 1, out)


def write_block(block, depth, out):
    for statement in block:
        statement.write(depth, out)
    if not block:
        out.append("    " * depth + "pass")


class Generator:
    def __init__(self, seed):
        self.r = random.Random(seed)
        self.functions = []      # names of functions in scope, innermost last
        self.fresh = 0
        self.in_loop = self.in_function = 0
        self.generator = False   # the function may yield

    def pick(self, *choices):
        return self.r.choice(choices)()

    def name(self, kind):
        return f"{kind}{self.r.randrange(3)}"

    def new(self, kind):
        self.fresh += 1
        return f"{kind}{self.fresh + 2}"

    # ---- expressions

    def i(self, depth=2):
        r = self.r
        if depth == 0:
            return r.choice([self.name("i"), str(r.randrange(-3, 9)), self.name("i"), "TOTAL"])
        d = depth - 1
        return self.pick(
            lambda: self.name("i"), lambda: self.name("i"), lambda: str(r.randrange(-3, 9)),
            lambda: f"({self.i(d)} {r.choice(['+', '-', '&', '|', '^'])} {self.i(d)})", lambda: f"({self.i(d)} * {self.i(d)} % 101)",
            lambda: f"({self.i(d)} {r.choice(['//', '%'])} {self.i(d)})",
            lambda: f"({r.choice(['-', '~', '+'])}{self.i(d)})",
            lambda: f"len({self.any(d)})", lambda: f"{self.name('l')}[{self.i(0)}]", lambda: f"{self.name('d')}[{self.i(0)}]",
            lambda: f"{self.name('d')}.get({self.i(0)}, {self.i(0)})", lambda: f"{self.name('t')}[{self.i(0)}]",
            lambda: f"({self.i(d)} if {self.condition(d)} else {self.i(d)})",
            lambda: f"({self.name('i')} := {self.i(d)})", lambda: f"sum({self.iterable(d)})",
            lambda: f"{r.choice(['max', 'min'])}({self.iterable(d)}, default={self.i(0)})",
            lambda: f"{r.choice(['max', 'min'])}({self.i(d)}, {self.i(d)})",
            lambda: f"next(iter({self.iterable(d)}), {self.i(0)})", lambda: f"{self.name('l')}.pop({r.choice(['', '0', '-1'])})",
            lambda: f"abs({self.i(d)})", lambda: f"{self.name('o')}.{r.choice(['a', 'b', 'shared', 'doubled'])}",
            lambda: f"{self.name('l')}.index({self.i(0)})", lambda: f"functools.reduce(operator.add, {self.iterable(d)}, 0)",
            lambda: f"(lambda x, y={self.i(0)}: x + y)({self.i(d)})", lambda: f"int({self.condition(d)})")

    def condition(self, depth=2):
        r = self.r
        if depth == 0:
            return r.choice([self.name(r.choice(KINDS)), f"{self.name('i')} > {self.i(0)}"])
        d = depth - 1
        return self.pick(
            lambda: f"{self.i(d)} {r.choice(['<', '>', '==', '!=', '<=', '>='])} {self.i(d)}",
            lambda: f"{self.i(0)} < {self.i(0)} <= {self.i(d)}", lambda: f"{self.i(0)} {r.choice(['in', 'not in'])} {self.any(d)}",
            lambda: f"not {self.any(0)}", lambda: f"({self.condition(d)} {r.choice(['and', 'or'])} {self.condition(d)})",
            lambda: f"{self.any(d)} {r.choice(['==', '!='])} {self.any(d)}",
            lambda: f"{self.any(0)} is {r.choice(['', 'not '])}{r.choice(['None', self.any(0)])}",
            lambda: f"isinstance({self.any(0)}, {r.choice(['int', 'list', '(dict, tuple)', 'Thing', 'Slim', 'str'])})",
            lambda: f"hasattr({self.name('o')}, {r.choice(['a', 'c', '_z'])!r})", lambda: f"{r.choice(['any', 'all'])}({self.iterable(d)})")

    def iterable(self, depth=1):
        r, d = self.r, max(depth - 1, 0)
        x = f"x{r.randrange(2)}"
        filters = r.choice(["", "", f" if {x} > {self.i(0)}", f" if {x}"])
        return self.pick(
            lambda: f"range({self.i(0)} % 5)", lambda: self.name("l"), lambda: self.name("t"), lambda: self.name("l"),
            lambda: f"{self.name('d')}.{r.choice(['keys', 'values'])}()", lambda: f"sorted({self.name('s')})",
            lambda: f"[{x} * {self.i(d)} for {x} in {self.iterable(d)}{filters}]",
            lambda: f"({x} + {self.i(d)} for {x} in {self.iterable(d)}{filters})",
            lambda: f"[{x} + y for {x} in {self.iterable(d)} for y in {self.iterable(0)}]" if depth else self.name("l"),
            lambda: f"map(lambda {x}: {x} + {self.i(0)}, {self.iterable(d)})", lambda: f"filter(None, {self.iterable(d)})",
            lambda: f"reversed({self.l(d)})", lambda: f"itertools.chain({self.iterable(d)}, {self.iterable(d)})",
            lambda: f"itertools.islice({self.iterable(d)}, {r.randrange(4)})", lambda: f"counting({r.randrange(4)}, log)",
            lambda: f"wrapping({r.randrange(3)}, log)", lambda: f"itertools.accumulate({self.iterable(d)})")

    def l(self, depth=2):
        r, d = self.r, max(depth - 1, 0)
        return self.pick(
            lambda: self.name("l"), lambda: f"[{self.i(d)}, {self.i(d)}]", lambda: f"[*{self.iterable(d)}, {self.i(d)}][-6:]",
            lambda: f"list({self.iterable(d)})", lambda: f"{self.name('l')}[{self.slice()}]", lambda: f"({self.name('l')} + {self.name('l')})[:9]",
            lambda: f"sorted({self.iterable(d)}, key=lambda x: {r.choice(['-x', 'x % 3', '(x, 1)'])}, reverse={self.condition(0)})",
            lambda: f"[{self.i(0)}] * {r.randrange(4)}", lambda: "[]", lambda: f"[x for x in {self.iterable(d)} if x > {self.i(0)}]")

    def slice(self):
        def bound():
            return self.r.choice(["", "", self.i(0), str(self.r.randrange(-3, 4))])
        return f"{bound()}:{bound()}" + self.r.choice(["", ":2", ":-1"])

    def d(self, depth=2):
        d = max(depth - 1, 0)
        return self.pick(
            lambda: self.name("d"), lambda: f"{{{self.i(0)}: {self.i(d)}, {self.i(0)}: {self.i(d)}}}", lambda: "{}",
            lambda: f"{{**{self.name('d')}, {self.i(0)}: {self.i(d)}}}", lambda: f"{{x: x * {self.i(0)} for x in {self.iterable(d)}}}",
            lambda: f"dict(zip({self.iterable(d)}, {self.iterable(d)}))", lambda: f"({self.name('d')} | {self.name('d')})",
            lambda: f"dict.fromkeys({self.iterable(d)}, {self.i(0)})", lambda: f"{self.name('d')}.copy()",
            lambda: f"collections.Counter({self.iterable(d)})")

    def s(self, depth=2):
        d = max(depth - 1, 0)
        return self.pick(
            lambda: self.name("s"), lambda: f"{{{self.i(d)}, {self.i(d)}}}", lambda: f"set({self.iterable(d)})",
            lambda: f"({self.name('s')} {self.r.choice('|&-^')} {self.name('s')})", lambda: f"{{x % 4 for x in {self.iterable(d)}}}",
            lambda: f"frozenset({self.iterable(d)})")

    def t(self, depth=2):
        d = max(depth - 1, 0)
        return self.pick(
            lambda: self.name("t"), lambda: f"({self.i(d)}, {self.i(d)})", lambda: f"tuple({self.iterable(d)})", lambda: "()",
            lambda: f"(*{self.iterable(d)}, {self.i(0)})[-6:]", lambda: f"{self.name('t')}[{self.slice()}]",
            lambda: f"divmod({self.i(d)}, {self.i(0)})")

    def w(self, depth=2):
        d = max(depth - 1, 0)
        return self.pick(
            lambda: self.name("w"), lambda: repr(self.r.choice(["", "a", "bc", "x y"])), lambda: f"f\"{{{self.i(0)}}}-{{{self.name('w')}!r:.6}}\"",
            lambda: f"str({self.i(d)})", lambda: f"({self.name('w')} + {self.name('w')})[:9]", lambda: f"{self.name('w')}[{self.slice()}]",
            lambda: f"','.join(map(str, {self.iterable(d)}))", lambda: f"'%s:%d' % ({self.i(0)}, {self.i(0)})")

    def o(self, depth=2):
        d = max(depth - 1, 0)
        return self.pick(
            lambda: self.name("o"), lambda: self.name("o"), lambda: f"Thing({self.i(d)})", lambda: f"Thing({self.i(d)}, b={self.any(d)})",
            lambda: f"Slim({self.i(d)})", lambda: f"({self.name('o')} + {self.i(d)})", lambda: f"Thing.make({self.i(d)})",
            lambda: f"type({self.name('o')})({self.i(0)})")

    def any(self, depth=2):
        return getattr(self, self.r.choice(KINDS))(max(depth, 0))

    def call(self):
        r = self.r
        if not self.functions:
            return f"Thing.plain({self.i(1)}, b={self.any(1)})"
        f = r.choice(self.functions)
        return f + r.choice([f"({self.i(1)})", f"({self.i(1)}, {self.any(1)})", f"(*{self.name('l')})", f"({self.i(0)}, k={self.any(1)})",
                             f"({self.i(0)}, **{{'k': {self.i(0)}, 'z': {self.any(0)}}})", f"(*{self.name('t')}, k={self.i(0)})"])

    # ---- statements

    def simple(self):
        r = self.r
        kind = r.choice(KINDS)
        choices = [
            lambda: f"{self.name(kind)} = {getattr(self, kind)()}",
            lambda: f"{self.name(kind)} = {getattr(self, kind)()}",
            lambda: f"log.append({self.any()})", lambda: f"log.append({self.call()})", lambda: f"{self.name('i')} = {self.i(3)}",
            lambda: f"{self.name('i')} {r.choice(['+', '-', '//', '%', '&', '|', '^'])}= {self.i()}",
            lambda: f"{self.name('l')} += itertools.islice({self.iterable()}, 5)", lambda: f"{self.name('d')} |= {self.d(1)}",
            lambda: f"{self.name('s')} {r.choice('|&-^')}= {self.s(1)}", lambda: f"{self.name('t')} += {self.t(1)}[:3]",
            lambda: f"{self.name('o')} += {self.any(1)}", lambda: f"{self.name('w')} += {self.w(1)}[:3]",
            lambda: f"{self.name('l')}[{self.i(0)}] = {self.any(1)}", lambda: f"{self.name('l')}[{self.i(0)}] += {self.i(1)}",
            lambda: f"{self.name('d')}[{self.i(0)}] = {self.any(1)}", lambda: f"{self.name('d')}[{self.i(0)}] -= {self.i(1)}",
            lambda: f"{self.name('l')}[{self.slice()}] = itertools.islice({self.iterable()}, 4)", lambda: f"{self.name('o')}.{r.choice('abc')} = {self.any(1)}",
            lambda: f"{self.name('o')}.{r.choice(['a', 'b', 'doubled'])} += {self.i(1)}", lambda: f"{self.name('o')}.doubled = {self.i(1)}",
            lambda: f"{self.name('i')}, {self.name('i')} = {self.pick(self.t, self.l, lambda: f'{self.i(1)}, {self.i(1)}')}",
            lambda: f"{self.name('i')}, *{self.name('l')} = {self.iterable()}", lambda: f"{self.name('i')} = {self.name('i')} = {self.i(1)}",
            lambda: f"({self.name('i')}, {self.name('w')}), {self.name('i')} = ({self.i(1)}, {self.w(1)}), {self.i(1)}",
            lambda: f"{self.name('l')}, {self.name('l')} = {self.name('l')}, {self.name('l')}",
            lambda: f"del {self.name(kind)}", lambda: f"del {self.name('l')}[{r.choice([self.i(0), self.slice()])}]",
            lambda: f"del {self.name('d')}[{self.i(0)}]", lambda: f"del {self.name('o')}.{r.choice('abc')}",
            lambda: f"{self.name('l')}.{r.choice(['append', 'remove'])}({self.i(1)})", lambda: f"{self.name('l')}.extend(itertools.islice({self.iterable()}, 4))",
            lambda: f"{self.name('l')}.insert({self.i(0)}, {self.i(1)})", lambda: f"{self.name('l')}.{r.choice(['sort', 'reverse', 'clear'])}()",
            lambda: f"{self.name('d')}.update({self.d(1)})", lambda: f"{self.name('i')} = {self.name('d')}.pop({self.i(0)}, {self.i(0)})",
            lambda: f"{self.name('i')} = {self.name('d')}.setdefault({self.i(0)}, {self.i(0)})", lambda: f"{self.name('s')}.{r.choice(['add', 'discard', 'remove'])}({self.i(1)})",
            lambda: f"g{r.randrange(2)} = {r.choice(['counting', 'wrapping'])}({r.randrange(4)}, log)",
            lambda: f"log.append(next(g{r.randrange(2)}))", lambda: f"log.append(next(g{r.randrange(2)}, {self.any(0)}))",
            lambda: f"log.append(g{r.randrange(2)}.send({self.i(0)}))", lambda: f"g{r.randrange(2)}.close()",
            lambda: f"g{r.randrange(2)}.throw({r.choice(ERRORS)}({self.i(0)}))", lambda: f"{self.name('l')}.extend(itertools.islice(g{r.randrange(2)}, 3))",
            lambda: f"{self.name('o')}.c = {r.choice(['counting', 'wrapping'])}({r.randrange(4)}, log)", lambda: f"log.append(next({self.name('o')}.c))",
            lambda: f"g0, g1 = [wrapping(n, log) for n in (2, {r.randrange(4)})]", lambda: f"assert {self.condition()}, {self.w(0)}",
            lambda: f"log.append([next(g) for g in (g0, g1) for _ in range({r.randrange(3)})])",
            lambda: f"raise {r.choice(ERRORS)}({self.any(0)})" if r.random() < 0.3 else f"{self.name('i')} += 1",
            lambda: f"log.append(sorted({{**locals()}})[{r.randrange(4)}:{r.randrange(9)}])" if r.random() < 0.2 else f"{self.name('i')} += 1",
        ]
        if self.in_loop and r.random() < 0.12:
            return r.choice(["break", "continue"])
        if self.in_function and r.random() < 0.06:
            return f"return {self.any(1)}"
        if self.generator and r.random() < 0.3:
            return self.pick(lambda: f"yield {self.any(1)}", lambda: f"{self.name('i')} = yield {self.i(1)}", lambda: f"yield from {self.iterable()}",
                             lambda: f"log.append((yield {self.i(0)}))", lambda: f"{self.name('w')} = yield from counting({r.randrange(3)}, log)")
        return self.pick(*choices)

    def block(self, depth, size=None):
        size = size or self.r.randrange(1, 4)
        return [self.statement(depth) for _ in range(size)]

    def loop_body(self, depth):
        self.in_loop += 1
        body = self.block(depth)
        self.in_loop -= 1
        return body

    def statement(self, depth):
        r = self.r
        if depth <= 0 or r.random() < 0.55:
            return Statement(self.simple())
        d = depth - 1
        return r.choice([self.branch, self.loop, self.loop, self.count_down, self.guarded, self.guarded, self.guarded, self.managed,
                         self.managed, self.function, self.function, self.match, self.klass])(d)

    def branch(self, d):
        clauses = [(f"if {self.condition()}:", self.block(d))]
        if self.r.random() < 0.3:
            clauses.append((f"elif {self.condition()}:", self.block(d)))
        if self.r.random() < 0.5:
            clauses.append(("else:", self.block(d)))
        return Statement(clauses=clauses)

    def loop(self, d):
        head = self.pick(
            lambda: f"for {self.name('i')} in {self.iterable()}:", lambda: f"for {self.name('i')} in {self.iterable()}:",
            lambda: f"for {self.name('i')}, {self.name('i')} in enumerate({self.iterable()}, {self.i(0)}):",
            lambda: f"for {self.name('i')}, {self.name('i')} in zip({self.iterable()}, {self.iterable()}):",
            lambda: f"for {self.name('i')}, {self.name('i')} in {self.name('d')}.items():", lambda: f"for {self.name('i')} in g{self.r.randrange(2)}:",
            lambda: f"for {self.name('l')}[{self.i(0)}] in {self.iterable()}:")
        clauses = [(head, self.loop_body(d))]
        if self.r.random() < 0.3:
            clauses.append(("else:", self.block(d)))
        return Statement(clauses=clauses)

    def count_down(self, d):
        n = self.new("n")
        clauses = [(f"while {n} > 0{self.r.choice(['', f' and {self.condition(1)}'])}:", [Statement(f"{n} -= 1"), *self.loop_body(d)])]
        if self.r.random() < 0.3:
            clauses.append(("else:", self.block(d)))
        return Statement(f"{n} = {self.r.randrange(1, 5)}", clauses)

    def guarded(self, d):
        r = self.r
        clauses = [("try:", self.block(d))]
        handlers = r.randrange(0, 3)
        for _ in range(handlers):
            error = self.new("e")
            body = self.block(d)
            tail = r.choice([f"log.append(repr({error}))", f"log.append(({error}.args, repr({error}.__context__)))", "raise",
                             f"raise {r.choice(ERRORS)}({self.i(0)}) from {error}", f"raise {r.choice(ERRORS)}({self.i(0)})",
                             f"log.append(type({error}).__name__)", "log.append(repr(sys.exc_info()[1]))", f"log.append(repr({error}))"])
            body.insert(r.randrange(len(body) + 1), Statement(tail))
            kinds = r.choice(["Exception", "Exception", r.choice(ERRORS), f"({r.choice(ERRORS)}, {r.choice(ERRORS)}, NameError)"])
            clauses.append((f"except {kinds} as {error}:", body))
        if handlers and r.random() < 0.25:
            clauses.append(("else:", self.block(d)))
        if not handlers or r.random() < 0.3:
            clauses.append(("finally:", self.block(d)))
        return Statement(clauses=clauses)

    def managed(self, d):
        def item():
            as_ = self.r.choice(["", f" as {self.name('w')}"])
            return self.pick(lambda: f"Manager(log, {self.w(0)}, {self.condition(0)}){as_}", lambda: f"managed(log, {self.w(0)}){as_}",
                             lambda: "contextlib.suppress(ValueError, Problem)", lambda: f"Manager(log, {self.w(0)}, True){as_}")
        return Statement(clauses=[(f"with {', '.join(item() for _ in range(self.r.choice([1, 1, 2])))}:", self.block(d))])

    def function(self, d):
        r = self.r
        f = self.new("f")
        parameters = r.choice(["i0, i1=2, *t0, k=0, **d1", "i0, k=None, **d1", "i0, /, i1=1, *, k=5, **d0", "*t0, k=1, **d1", "i2, i0=TOTAL, k=3, **d2"])
        saved = self.in_loop, self.in_function, self.generator
        kind = r.random()
        self.in_loop, self.in_function, self.generator = 0, 1, kind < 0.3
        names = {n.strip(" *").split("=")[0] for n in parameters.split(",")}
        captured = [n for n in VARIABLES if n not in names and r.random() < 0.4] if saved[1] else []
        own = [n for n in VARIABLES if n not in names and n not in captured and r.random() < 0.8]
        head = [Statement(f"nonlocal {', '.join(captured)}")] if captured else []
        if r.random() < 0.3:
            head += [Statement("global TOTAL"), Statement(f"TOTAL += {self.i(0)}")]
        head += [Statement(f"{n} = {VARIABLES[n]}") for n in own]
        if self.generator:
            head.append(Statement(f"yield {self.i(0)}"))
        body = head + self.block(d, r.randrange(2, 5)) + [Statement(f"return {self.any(1)}")]
        was = self.generator
        self.in_loop, self.in_function, self.generator = saved
        clauses = [(f"def {f}({parameters}):", body)]
        after = []
        if was:
            user = r.choice([f"log.extend({f}({self.i(0)}))", f"g{r.randrange(2)} = {f}({self.i(0)})", f"{self.name('l')} = [*{f}({self.i(0)}, k=1)]",
                             f"log.append(next({f}(1), None))", f"g{r.randrange(2)} = {f}({self.i(0)})\nlog.append(next(g0))"])
            after.append(Statement(user))
        else:
            self.functions.append(f)
            after.append(Statement(f"log.append({self.call()})"))
        decorator = "@decorated" if r.random() < 0.15 else None
        return Statement(clauses=[("if True:", [Statement(decorator, clauses), *after])])

    def match(self, d):
        r = self.r
        patterns = [lambda: str(r.randrange(4)), lambda: "[i0, *l0]", lambda: "[i1, i2]", lambda: "{1: i0, **d0}", lambda: "Slim(i0, b=i1)",
                    lambda: "Thing(a=i0)", lambda: "int() | str()", lambda: "(0 | 1) as i2", lambda: f"i0 if i0 == {self.i(0)}", lambda: "None"]
        clauses = [(f"case {r.choice(patterns)()}:", self.block(d)) for _ in range(r.randrange(1, 4))]
        if r.random() < 0.5:
            clauses.append(("case _:", self.block(d)))
        inner = Statement(clauses=clauses)
        return Statement(clauses=[(f"match {self.any()}:", [inner])])

    def klass(self, d):
        c = self.new("C")
        saved = self.in_loop, self.in_function, self.generator
        self.in_loop, self.in_function, self.generator = 0, 1, False
        method = [Statement(f"{n} = {v}") for n, v in VARIABLES.items()] + [Statement("i0 = self.a"), *self.block(d), Statement(f"return {self.any(1)}")]
        init = [Statement("super().__init__(4, *args)"), Statement(f"self.c = {self.r.randrange(5)}")]
        self.in_loop, self.in_function, self.generator = saved
        base = self.r.choice(["Thing", "Thing", "Slim"])
        body = [Statement(f"shared = {self.i(0)}"), Statement(clauses=[("def __init__(self, *args):", init)]),
                Statement(clauses=[("def work(self, i3=1):", method)]),
                Statement(clauses=[("def __repr__(self):", [Statement(f"return super().__repr__() + {self.r.choice(['str(self.shared)', repr('!')])}")])])]
        user = self.r.choice([f"log.append({c}().work())", f"{self.name('o')} = {c}({self.i(0)})", f"log.append(repr({c}()))"])
        return Statement(clauses=[("if True:", [Statement(clauses=[(f"class {c}({base}):", body)]), Statement(user)])])

    def program(self):
        self.in_function = 1
        setup = ["i0, i1, i2 = n, 2, len(items)", "l0, l1, l2 = items, [1, 2, 3], []", "d0, d1, d2 = table, {1: 1, 2: 4}, {}",
                 "s0, s1, s2 = {1, 2}, {2, 3, 5}, set()", "t0, t1, t2 = (1, 2), tuple(items), ()", "w0, w1, w2 = 'ab', '', name",
                 "o0, o1, o2 = thing, Slim(3), Thing(1, [2])", "g0, g1 = counting(3, log), wrapping(2, log)"]
        body = [Statement(line) for line in setup]
        for statement in self.block(3, self.r.randrange(5, 12)):
            if self.r.random() < 0.7:
                statement = Statement(clauses=[("try:", [statement]),
                                               ("except Exception as error:", [Statement("log.append(repr(error))")])])
            body.append(statement)
        body.append(Statement("return [" + ", ".join(f"{k}{j}" for k in KINDS for j in range(3)) + "]"))
        return body


def source_of(program):
    out = []
    write_block(program, 1, out)
    return PRELUDE + "\ndef main(n, items, table, name, thing, log):\n" + "\n".join(out) + "\n"


# ---- comparison with CPython

MOST_LINES = 4000
CUTS = [1, 2, 3, 5, 7, 11, 17, 29, 1000, 10**6]


class TooLong(BaseException):
    pass


def limited(call):
    """The call, ended after so many lines."""
    left = MOST_LINES

    def trace(frame, event, _):
        nonlocal left
        left -= 1
        if left < 0:
            raise TooLong
        return trace
    sys.settrace(trace)
    try:
        return call()
    finally:
        sys.settrace(None)


def lines_of(trace):
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == "<program>":
            yield trace.tb_lineno, trace.tb_frame.f_code.co_name
        trace = trace.tb_next


def described(error):
    if error is None:
        return None
    return (type(error).__name__, repr(error.args), list(lines_of(error.__traceback__)), described(error.__cause__),
            described(error.__context__))


def observed(code, variant, runner):
    """What the program does: result or error, log, arguments and globals afterwards. runner(main, arguments) calls it."""
    names = {"__name__": "program"}
    exec(marshal.loads(marshal.dumps(code)), names)   # its own code objects: CPython 3.11 changes lines of errors in hot ones
    thing = names["Thing"](1, [3])
    log = []
    arguments = [(4, [3, 1, 2], {1: 5, 3: 2}, "abc", thing, log), (0, [7], {2: 2}, "", names["Thing"](5), log)][variant]
    try:
        result = repr(runner(names["main"], arguments))
    except TooLong:
        raise
    except Exception as error:
        result = described(error)
    if sys.exc_info()[1] is not None:
        result = "left handled", described(sys.exc_info()[1])
    # A traceback keeps its frames, and they their generators, which capture closes at other times: that is not compared.
    rest = [entry for entry in log if not (isinstance(entry, tuple) and entry[:1] == ("closed",))]
    return result, repr(rest), repr(arguments[:5]), names["TOTAL"]


def difference(source, cuts):
    """A text that says where capture differs from CPython; None if nowhere, or if the program is none."""
    try:
        code = compile(source, "<program>", "exec")
        observed(code, 0, lambda main, arguments: limited(lambda: main(*arguments)))
        observed(code, 1, lambda main, arguments: limited(lambda: main(*arguments)))
    except (SyntaxError, TooLong):
        return None
    want = observed(code, 0, lambda main, arguments: main(*arguments))
    if " at 0x" in str(want):
        return None
    for k in cuts:
        got = observed(code, 0, lambda main, arguments: ct.run(main, arguments, None, k, 10**4)[0])   # noqa: B023
        if got != want:
            return f"cut after every {k} instructions:\n  {got}\ninstead of\n  {want}"
    segments = []

    def traced(main, arguments):
        segments.append(ct.trace(main, arguments))
        return segments[0].call(main, arguments) if not isinstance(segments[0], dict) else main(*arguments)

    got = observed(code, 0, traced)
    if got != want:
        return f"traced:\n  {got}\ninstead of\n  {want}"
    return None


def shrink(program, differs):
    """A smaller program that differs(program), made by leaving out statements and by putting blocks in their places."""
    def smaller(block):
        for i, statement in enumerate(block):
            yield block[:i] + block[i + 1:]
            for _, inner in statement.clauses:
                yield block[:i] + inner + block[i + 1:]
            for j, (head, inner) in enumerate(statement.clauses):
                for less in smaller(inner):
                    clauses = statement.clauses[:j] + [(head, less)] + statement.clauses[j + 1:]
                    yield block[:i] + [Statement(statement.line, clauses)] + block[i + 1:]
                if j:
                    yield block[:i] + [Statement(statement.line, statement.clauses[:j] + statement.clauses[j + 1:])] + block[i + 1:]
    found = True
    while found:
        found = False
        for candidate in smaller(program):
            if differs(candidate):
                program, found = candidate, True
                break
    return program


def check(seed):
    """None, or a report about the program of this seed."""
    generator = Generator(seed)
    program = generator.program()
    cuts = generator.r.sample(CUTS, 3)
    problem = difference(source_of(program), cuts)
    if problem is None:
        return None
    small = shrink(program, lambda p: difference(source_of(p), cuts) is not None)
    source = source_of(small)
    return f"seed {seed}\n{source[source.index('def main'):]}{difference(source, cuts)}"


def main():
    first, count = map(int, sys.argv[1:])
    for seed in range(first, first + count):
        print(f"{seed}", file=sys.stderr, flush=True)
        report = check(seed)
        if report:
            print(report, flush=True)


if __name__ == "__main__":
    main()
