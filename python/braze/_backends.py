"""Backends by name, backends of the user's own, and braze as a backend of torch.compile."""

import operator
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch

from braze import _braze

# A backend takes (torch.fx.GraphModule, list of example inputs) and returns a callable of the same inputs, which gives
# the graph's outputs as a list or tuple: what torch.compile's backends do.
Backend = Callable[[torch.fx.GraphModule, list[torch.Tensor]], Callable[..., Sequence[torch.Tensor]]]

_registered: dict[str, Backend] = {}
_callables: "weakref.WeakValueDictionary[str, Any]" = weakref.WeakValueDictionary()


def register_backend(backend: Backend | None = None, name: str | None = None) -> Any:
    """Gives a backend a name that `braze.compile(backend=...)` takes, by default its `__name__`. A decorator too."""
    if backend is None:
        return lambda function: register_backend(function, name)
    if not callable(backend):
        raise TypeError(f"a backend must be a callable, not {type(backend).__name__}")
    name = name or backend.__name__
    if name in _braze.backends():
        raise ValueError(f"{name!r} is a backend of braze's own")
    _registered[name] = backend
    return backend


def list_backends() -> list[str]:
    """The names that `braze.compile(backend=...)` takes."""
    return sorted([*_braze.backends(), *_registered])


def backend_name(backend: Any) -> str:
    """The name under which the compiler asks for a backend that is given by name or as a callable."""
    if isinstance(backend, str):
        if backend not in _braze.backends() and backend not in _registered:
            raise ValueError(f"unknown backend {backend!r}; known are: {', '.join(list_backends())}")
        return backend
    if not callable(backend):
        raise TypeError(f"backend must be the name of a backend or a callable, not {type(backend).__name__}")
    name = f"{getattr(backend, '__name__', type(backend).__name__)} at {id(backend):#x}"
    _callables[name] = backend
    return name


class GraphBuilder:
    """Makes the torch.fx.GraphModule that a backend gets. The compiler calls it, node by node."""

    def __init__(self, backend: str) -> None:
        from torch._subclasses import FakeTensorMode

        self._backend = _registered.get(backend) or _callables[backend]
        self._graph = torch.fx.Graph()
        self._mode = FakeTensorMode()
        self._examples: list[torch.Tensor] = []

    def input(self, name: str, sizes: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype,
              device: torch.device) -> torch.fx.Node:
        with self._mode:
            example = torch.empty_strided(sizes, strides, dtype=dtype, device=device)
        node = self._graph.placeholder(name)
        node.meta["val"] = example
        self._examples.append(example)
        return node

    def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any],
             paths: list[tuple[int, ...]]) -> list[torch.fx.Node]:
        """A call of the operator with this schema name ("aten::add.Tensor"). paths: for each tensor of its results the
        indices that lead to it, () for the result itself."""
        base, _, overload = name.partition(".")
        namespace, _, plain = base.partition("::")
        packet = getattr(getattr(torch.ops, namespace), plain)
        node = self._graph.call_function(getattr(packet, overload or "default"), args, kwargs)
        results = []
        for path in paths:
            result = node
            for index in path:
                result = self._graph.call_function(operator.getitem, (result, index))
            results.append(result)
        return results

    def compile(self, outputs: list[torch.fx.Node | None]) -> Callable[..., Any]:
        self._graph.output(tuple(outputs))
        module = torch.fx.GraphModule(torch.nn.Module(), self._graph)
        return self._backend(module, self._examples)


def dynamo_backend(module: torch.fx.GraphModule, examples: list[Any]) -> Callable[..., Any]:
    """`torch.compile(backend="braze")`: TorchDynamo captures, braze compiles its graphs."""
    from torch.fx._lazy_graph_module import _LazyGraphModule

    from braze._compile import compile

    _LazyGraphModule.force_recompile(module)   # its forward would generate the code when it is called
    dynamic = any(not isinstance(example, torch.Tensor) for example in examples)
    compiled: Callable[..., Any] = compile(module.forward, dynamic=dynamic or None)
    return compiled
