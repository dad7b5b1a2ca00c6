"""compile() over _capture_test: traces a call, plays its tape back, runs eagerly where capture refuses."""
import functools
import types

import _capture_test

_graphs = 0
_skipped = {}


class Unsupported(RuntimeError):
    pass


class Compiled:
    def __init__(self, fn, fullgraph=False):
        self.__dict__.update(_fn=fn, _fullgraph=fullgraph, _segments=[], _misses=[])
        if isinstance(fn, types.FunctionType):
            functools.update_wrapper(self, fn)

    def __getattr__(self, name):
        return getattr(self._fn, name)

    def __setattr__(self, name, value):
        setattr(self._fn, name, value)

    def __get__(self, obj, objtype=None):
        return self if obj is None else types.MethodType(self, obj)

    def __call__(self, *args, **kwargs):
        global _graphs
        shape = (len(args), tuple(kwargs))
        for i, (key, segment) in enumerate(self._segments):
            if key == shape:
                try:
                    return segment.call(self._fn, args, kwargs)
                except LookupError as miss:
                    self._misses.append(str(miss))
        segment = _capture_test.trace(self._fn, args, kwargs)
        if isinstance(segment, dict):
            reason = f"{segment['reason']} [{segment['file'].split('/')[-1]}:{segment['line']} {segment['source']}]"
            _skipped[reason] = _skipped.get(reason, 0) + 1
            if self._fullgraph:
                raise Unsupported(reason)
            return self._fn(*args, **kwargs)
        _graphs += 1
        self._segments.insert(0, (shape, segment))
        try:
            return segment.call(self._fn, args, kwargs)
        except LookupError as miss:
            raise AssertionError(f"the guards of a new segment fail: {miss}") from None


def compile(fn=None, *, fullgraph=False, dynamic=None, backend=None, mode=None, options=None):
    if fn is None:
        return functools.partial(compile, fullgraph=fullgraph)
    return Compiled(fn, fullgraph)


def reset():
    global _graphs
    _graphs = 0
    _skipped.clear()


def counters():
    return {"graphs": _graphs, "breaks": {}, "skipped": dict(_skipped)}
