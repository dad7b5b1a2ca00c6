"""Traces a Python callable by calling it natively with stand-ins in place of its tensors, replays the graph node by
node against the traced types, runs it, and compares with eager: results, layout, aliasing, and what happened to inputs."""
import contextlib
import os
import pathlib
import sys

import pytest
import torch
from torch.utils import _pytree as pytree

_BUILD = pathlib.Path(os.environ.get("BRAZE_BUILD", pathlib.Path(__file__).resolve().parents[2] / "build" / "release"))
sys.path[:0] = [str(_BUILD / "test"), str(pathlib.Path(__file__).resolve().parents[1] / "python")]
from same_as_eager import Mismatch, compare, storages, tensors_of  # noqa: E402

_trace_test = pytest.importorskip("_trace_test", reason="built without torch")
classify, break_reason, is_constant = _trace_test.classify, _trace_test.break_reason, _trace_test.is_constant
modes, describe_modes = _trace_test.modes, _trace_test.describe_modes
statistics, reset_statistics = _trace_test.statistics, _trace_test.reset_statistics


class Refused(RuntimeError):
    """The tracer broke the graph, with its reason."""


def slots(module):
    """(dict, key, name) of every tensor that a module tree holds."""
    for prefix, m in module.named_modules():
        for tensors in (m._parameters, m._buffers):
            for key, value in tensors.items():
                if value is not None:
                    yield tensors, key, f"{prefix}.{key}"
        for key, value in list(vars(m).items()):
            if isinstance(value, torch.Tensor):
                yield vars(m), key, f"{prefix}.{key}"


@contextlib.contextmanager
def compiling():
    before = torch.compiler._is_compiling_flag
    torch.compiler._is_compiling_flag = True
    try:
        yield
    finally:
        torch.compiler._is_compiling_flag = before


class Traced:
    """A finished trace: result tree, graph text, and the means to run it."""

    def __init__(self, fn, args, modules=(), dynamic=False, storage_bases=False):
        self.trace = t = _trace_test.Trace(dynamic=dynamic, storage_bases=storage_bases)
        self.wants_storage_bases = False
        try:
            self._trace(fn, args, modules)
        except RuntimeError:
            self.wants_storage_bases = t.wants_storage_bases()
            t.close()
            raise

    def _trace(self, fn, args, modules):
        t = self.trace
        stand_ins = {}

        def wrap(x, name, argument):
            if not isinstance(x, torch.Tensor) or t.is_traced(x):
                return x
            if id(x) not in stand_ins:
                try:
                    stand_ins[id(x)] = t.stand_in(x, name, argument)
                except RuntimeError as e:
                    raise Refused(str(e)) from None
            return stand_ins[id(x)]

        flat, spec = pytree.tree_flatten(args)
        traced_args = pytree.tree_unflatten([wrap(x, "", i) for i, x in enumerate(flat)], spec)
        swapped = []
        try:
            for m in modules:
                for tensors, key, name in list(slots(m)):
                    value = tensors[key]
                    if not t.is_traced(value):
                        swapped.append((tensors, key, value))
                        tensors[key] = wrap(value, name, -1)
            with compiling():
                result = t.call(fn, traced_args)
        except RuntimeError as e:
            if "Unsupported" in str(e):
                raise Refused(str(e)) from None
            raise
        finally:
            for tensors, key, value in swapped:
                tensors[key] = value
        self.leaves, self.spec = pytree.tree_flatten(result)
        self.outputs = [x for x in self.leaves if isinstance(x, torch.Tensor)]
        try:
            self.info = t.finish(self.outputs)
        except RuntimeError as e:
            if "Unsupported" in str(e):
                raise Refused(str(e)) from None
            raise
        self.callers = self.info["callers"]
        self.text = self.info["text"]

    def run(self, callers=None):
        outputs = iter(self.trace.run(self.callers if callers is None else callers))
        return pytree.tree_unflatten([next(outputs) if isinstance(x, torch.Tensor) else x for x in self.leaves], self.spec)

    def mismatches(self, callers=None):
        return self.trace.replay(self.callers if callers is None else callers)


def trace(fn, args, modules=(), **options):
    """Traces; once more with storage bases where the tracer asks for it."""
    try:
        return Traced(fn, args, modules, **options)
    except Refused:
        if options.get("storage_bases") or not _asks_for_bases(fn, args, modules, options):
            raise
    return Traced(fn, args, modules, **{**options, "storage_bases": True})


def _asks_for_bases(fn, args, modules, options):
    made = Traced.__new__(Traced)
    with contextlib.suppress(Refused):
        made.__init__(fn, args, modules, **options)
    return made.wants_storage_bases


def check(make, dynamic=False, seed=3, tolerance=2e-5, **options):
    """make() -> (fn, args[, modules]), new and equal each time. Returns the Traced."""
    def fresh():
        torch.manual_seed(0)
        fn, args, *rest = make()
        return fn, args, rest[0] if rest else []

    def world(args, modules):
        found = tensors_of(args) + [d[k] for m in modules for d, k, _ in slots(m)]
        return list({id(x): x for x in found}.values())

    with torch.no_grad():
        fn, args, modules = fresh()
        torch.manual_seed(seed)
        eager = tensors_of(fn(*args))
        eager_world = world(args, modules)

        fn, args, modules = fresh()
        before = world(args, modules)
        kept = [x.detach().clone() for x in before]
        traced = trace(fn, args, modules, dynamic=dynamic, **options)
        for x, old in zip(before, kept):
            if not torch.equal(x.detach().nan_to_num(), old.nan_to_num()):
                raise Mismatch("the trace changed an input")
        if problem := traced.trace.explain(traced.callers):
            raise Mismatch(f"guards fail on the traced inputs: {problem}")
        torch.manual_seed(seed)
        bad = traced.mismatches()
        if bad:
            raise Mismatch("; ".join(f"{op} {what}: {detail}" for op, what, detail in bad[:3]) + "\n" + traced.text)
        torch.manual_seed(seed)
        got = tensors_of(traced.run())
    if len(got) != len(eager):
        raise Mismatch(f"{len(eager)} outputs -> {len(got)}")
    for i, (e, g) in enumerate(zip(eager, got)):
        compare(e, g, f"output {i}", tolerance)
    for i, (e, g) in enumerate(zip(eager_world, before)):
        compare(e, g, f"input {i} afterwards", tolerance)
    if storages(eager_world + eager) != storages(before + got):
        raise Mismatch(f"aliasing {storages(eager_world + eager)} -> {storages(before + got)}")
    return traced
