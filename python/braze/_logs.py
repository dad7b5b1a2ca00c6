"""Logs by topic, and the time that compiling took."""

from collections.abc import Iterable
from typing import Any

from braze import _braze


def set_logs(topics: str | Iterable[str] = "") -> None:
    """Chooses what is logged to standard error, as the environment variable BRAZE_LOGS does.

    topics: "graph,guards", or an iterable of names; "" for none. Topics: graph, guards, recompiles, graph_breaks, aot,
    post_grad, loop_ir, schedule, output_code, perf.
    """
    _braze.set_logs(topics if isinstance(topics, str) else ",".join(topics))


def compile_report() -> list[dict[str, Any]]:
    """One dict for each graph compiled since the last reset: its name, nodes, kernels, calls into libraries and ATen,
    and the milliseconds of each phase ("ms": capture, trace, passes, lower, schedule, codegen, jit, runtime)."""
    return _braze.phase_reports()
