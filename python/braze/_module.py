"""The object that `braze.compile` returns for an nn.Module."""

import copy
import weakref
from typing import Any

import torch

from braze import _braze


class OptimizedModule(torch.nn.Module):
    """Stands for a module and runs its calls compiled.

    It shares the module's instance dict, so that parameters, buffers, submodules, hooks and any other attribute are the
    module's own, under the same names; and its class derives from the module's class, so that methods and isinstance
    behave alike. `_orig_mod` is the module itself.
    """

    __slots__ = ("_compiled", "_orig_mod", "_settings")

    _compiled: Any
    _orig_mod: torch.nn.Module
    _settings: dict[str, Any]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """The user's classes are not told of a subclass that they have not written."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return _rebuild(copy.deepcopy(self._orig_mod, memo), self._settings)

    def __copy__(self) -> Any:
        return _rebuild(copy.copy(self._orig_mod), self._settings)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _rebuild, (self._orig_mod, self._settings)


# A call of the object is a call of what the slot holds: no Python code runs between.
OptimizedModule.__call__ = OptimizedModule.__dict__["_compiled"]  # type: ignore[method-assign]

_classes: "weakref.WeakKeyDictionary[type, weakref.ref[type]]" = weakref.WeakKeyDictionary()


def _optimized_class(cls: type) -> type:
    known = _classes.get(cls)
    made = known() if known is not None else None
    if made is None:
        # The same name: programs print it, and libraries save it as the name of the architecture.
        namespace = {"__slots__": (), "__module__": cls.__module__, "__qualname__": cls.__qualname__, "__doc__": cls.__doc__}
        made = type(cls)(cls.__name__, (OptimizedModule, cls), namespace)
        _classes[cls] = weakref.ref(made)
    return made


def optimized_module(module: torch.nn.Module, compiled: Any, settings: dict[str, Any]) -> OptimizedModule:
    out: OptimizedModule = object.__new__(_optimized_class(type(module)))
    object.__setattr__(out, "__dict__", module.__dict__)
    object.__setattr__(out, "_orig_mod", module)
    object.__setattr__(out, "_compiled", compiled)
    object.__setattr__(out, "_settings", settings)
    return out


def _rebuild(module: torch.nn.Module, settings: dict[str, Any]) -> OptimizedModule:
    return optimized_module(module, _braze.CompiledFunction(module, **settings), settings)
