"""Braze compiles PyTorch programs: `braze.compile(model)` is used as `torch.compile(model)` is."""

import torch as _torch  # noqa: F401  (the extension links against torch's libraries)

from braze._braze import (
    BrazeError,
    CompiledFunction,
    InternalError,
    Unsupported,
    UserError,
    compile_count,
    counters,
    fallback_report,
    reset,
)
from braze._backends import list_backends, register_backend
from braze._compile import allow_in_graph, compile, disable, is_compiling
from braze._config import config
from braze._explain import Explanation, explain
from braze._logs import compile_report, set_logs
from braze._module import OptimizedModule

__all__ = [
    "BrazeError",
    "CompiledFunction",
    "Explanation",
    "InternalError",
    "OptimizedModule",
    "Unsupported",
    "UserError",
    "allow_in_graph",
    "compile",
    "compile_count",
    "compile_report",
    "config",
    "counters",
    "disable",
    "explain",
    "fallback_report",
    "is_compiling",
    "list_backends",
    "register_backend",
    "reset",
    "set_logs",
]
