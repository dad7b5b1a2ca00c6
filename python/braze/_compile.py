"""`braze.compile`, with torch.compile's arguments, and `braze.disable`."""

import functools
from collections.abc import Callable, Iterable
from typing import Any, TypeVar, overload

import torch

from braze import _braze
from braze._backends import backend_name
from braze._config import config
from braze._module import OptimizedModule, optimized_module

_Backend = str | Callable[..., Any] | None
_F = TypeVar("_F", bound=Callable[..., Any])

_MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")


def _is_bool(value: Any) -> bool:
    return isinstance(value, bool)


def _is_limit(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _is_share(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= 1


def _are_passes(value: Any) -> bool:
    if isinstance(value, str) or not isinstance(value, Iterable):
        return False
    for name in value:
        if name not in _braze.pass_names():
            raise ValueError(f"unknown pass {name!r}; known are: {', '.join(_braze.pass_names())}")
    return True


def _is_pass(value: Any) -> bool:
    return value is None or callable(value)


_OPTIONS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "recompile_limit": (_is_limit, "a positive int"),
    "fusion": (_is_bool, "a bool"),
    "verify": (_is_bool, "a bool"),
    "enable_passes": (_are_passes, "a list of pass names"),
    "disable_passes": (_are_passes, "a list of pass names"),
    "activation_memory_budget": (_is_share, "a number from 0 to 1"),
    "autotune": (_is_bool, "a bool"),
    "joint_custom_pre_pass": (_is_pass, "a callable or None"),
    "joint_custom_post_pass": (_is_pass, "a callable or None"),
    "post_grad_custom_pre_pass": (_is_pass, "a callable or None"),
    "post_grad_custom_post_pass": (_is_pass, "a callable or None"),
}


def _check_options(options: Any) -> dict[str, Any]:
    if not isinstance(options, dict):
        raise TypeError(f"options must be a dict or None, not {type(options).__name__}")
    for name, value in options.items():
        if name not in _OPTIONS:
            raise ValueError(f"unknown option {name!r}; known are: {', '.join(_OPTIONS)}")
        fits, what = _OPTIONS[name]
        if not fits(value):
            raise TypeError(f"option {name!r} must be {what}, not {value!r}")
    return options


def _settings(fullgraph: Any, dynamic: Any, backend: Any, mode: Any, options: Any) -> dict[str, Any]:
    """The checked keyword arguments of CompiledFunction."""
    if not isinstance(fullgraph, bool):
        raise TypeError(f"fullgraph must be a bool, not {type(fullgraph).__name__}")
    if dynamic is not None and not isinstance(dynamic, bool):
        raise TypeError(f"dynamic must be a bool or None, not {type(dynamic).__name__}")
    if backend is None:
        backend = "braze"
    name = backend_name(backend)
    if dynamic and name not in _braze.backends():
        raise ValueError("dynamic=True needs a backend of braze's own")
    if name not in _braze.backends():
        dynamic = False   # other backends get graphs of plain sizes
    if mode is not None and not isinstance(mode, str):
        raise TypeError(f"mode must be a str or None, not {type(mode).__name__}")
    if mode is not None and mode not in _MODES:
        raise ValueError(f"unknown mode {mode!r}; known are: {', '.join(_MODES)}")
    if mode is not None and options is not None:
        raise ValueError("give either mode or options, not both")
    settings = {name: getattr(config, name) for name in _OPTIONS}
    settings.update(_check_options(options) if options is not None else {})
    if mode is not None and mode.startswith("max-autotune"):
        settings["autotune"] = True
    return {"fullgraph": fullgraph, "dynamic": dynamic, "backend": name, **settings}


def compile_with(model: Any, settings: dict[str, Any]) -> Any:
    """Compiles with settings that were checked before."""
    if isinstance(model, OptimizedModule):
        model = model._orig_mod
    if isinstance(model, _braze.CompiledFunction):
        model = model.callee
    compiled = _braze.CompiledFunction(model, **settings)
    if isinstance(model, torch.nn.Module):
        return optimized_module(model, compiled, settings)
    return functools.update_wrapper(compiled, model)


@overload
def compile(model: _F, *, fullgraph: bool = ..., dynamic: bool | None = ..., backend: _Backend = ...,
            mode: str | None = ..., options: dict[str, Any] | None = ..., disable: bool = ...) -> _F: ...
@overload
def compile(model: None = None, *, fullgraph: bool = ..., dynamic: bool | None = ..., backend: _Backend = ...,
            mode: str | None = ..., options: dict[str, Any] | None = ..., disable: bool = ...) -> Callable[[_F], _F]: ...
def compile(model: Any = None, *, fullgraph: bool = False, dynamic: bool | None = None, backend: _Backend = "braze",
            mode: str | None = None, options: dict[str, Any] | None = None, disable: bool = False) -> Any:
    """Returns a callable that behaves as `model` and runs compiled code.

    model: a function, method, nn.Module or other callable; without it, a decorator is returned.
    fullgraph: raise `braze.Unsupported` where a call can't be compiled whole, instead of running it eagerly.
    dynamic: make all sizes symbolic (True), none (False), or those that change between calls (None).
    backend: a name of `braze.list_backends()`: "braze"; "eager" captures the program and runs its graph by ATen;
        "aot_eager" also decomposes its operators. Or a callable, as torch.compile takes it: it gets the graph as a
        torch.fx.GraphModule and example inputs, and returns what runs.
    mode: one of torch.compile's mode names. "max-autotune" and "max-autotune-no-cudagraphs" set option autotune.
    options: a dict with any of recompile_limit, fusion, verify, enable_passes, disable_passes, activation_memory_budget,
        autotune, joint_custom_pre_pass, joint_custom_post_pass, post_grad_custom_pre_pass, post_grad_custom_post_pass;
        see `braze.config`.
    disable: return `model` as it is.

    Nothing is compiled before the first call. See `braze.counters()` for what ran compiled and what did not.
    """
    settings = _settings(fullgraph, dynamic, backend, mode, options)
    off = disable or config.disable
    if model is None:
        return (lambda f: f) if off else functools.partial(_decorate, settings)
    if not callable(model):
        raise TypeError(f"braze.compile needs a callable, got {type(model).__name__}")
    return model if off else compile_with(model, settings)


def _decorate(settings: dict[str, Any], model: Any) -> Any:
    if not callable(model):
        raise TypeError(f"braze.compile needs a callable, got {type(model).__name__}")
    return compile_with(model, settings)


def is_compiling() -> bool:
    """Whether this code is being compiled: True inside a program that braze or torch.compile traces."""
    return torch.compiler.is_compiling() or _braze.is_compiling()


def disable(function: _F) -> _F:
    """A wrapper of `function` that is never compiled, nor is anything that it calls."""
    if not callable(function):
        raise TypeError(f"braze.disable needs a callable, got {type(function).__name__}")

    @functools.wraps(function)
    def eager(*args: Any, **kwargs: Any) -> Any:
        return _braze.run_eagerly(function, args, kwargs)

    eager._braze_disabled = True  # type: ignore[attr-defined]
    return eager  # type: ignore[return-value]


def allow_in_graph(function: _F) -> _F:
    """Marks a Python function to be called as one operation: compiled programs record the tensor operations that it runs
    and look no further. It must not depend on anything but its arguments, nor change anything else."""
    if not callable(function):
        raise TypeError(f"braze.allow_in_graph needs a callable, got {type(function).__name__}")
    function._braze_allowed_in_graph = True  # type: ignore[attr-defined]
    return function
