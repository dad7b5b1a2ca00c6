from collections.abc import Callable, Iterable
from typing import Any

class BrazeError(RuntimeError): ...
class UserError(BrazeError): ...

class Unsupported(BrazeError):
    reason: str
    remedy: str
    file: str
    line: int
    source_line: str

class InternalError(BrazeError): ...

class CompiledFunction:
    callee: Any
    def __init__(
        self,
        callee: Callable[..., Any],
        *,
        fullgraph: bool = False,
        dynamic: bool | None = None,
        backend: str = "braze",
        recompile_limit: int = 8,
        fusion: bool = True,
        verify: bool = False,
        enable_passes: Iterable[str] = (),
        disable_passes: Iterable[str] = (),
        activation_memory_budget: float = 1.0,
        autotune: bool = False,
        joint_custom_pre_pass: Callable[[Any], None] | None = None,
        joint_custom_post_pass: Callable[[Any], None] | None = None,
        post_grad_custom_pre_pass: Callable[[Any], None] | None = None,
        post_grad_custom_post_pass: Callable[[Any], None] | None = None,
    ) -> None: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...
    def __get__(self, instance: Any, owner: Any = None) -> Any: ...
    def entry_count(self) -> int: ...
    def breaks(self) -> list[str]: ...
    def guards(self) -> str: ...
    def guard_time(self, *args: Any, **kwargs: Any) -> float: ...
    def clear(self) -> None: ...

def counters() -> dict[str, Any]:
    """What happened since the last reset: {"graphs": compiled graphs, recompilations included, "breaks": {reason: n},
    "skipped": {reason: calls that ran eagerly}}."""

def compile_count() -> int:
    """How many graphs were ever compiled in this process."""

def fallback_report() -> dict[str, int]:
    """The operators that were compiled as calls into ATen, with their number."""

def phase_reports() -> list[dict[str, Any]]: ...
def reset() -> None:
    """Drops all compiled entries and zeroes the counters."""

def set_logs(words: str) -> None: ...
def is_compiling() -> bool:
    """Whether this thread is tracing a program."""

def run_eagerly(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any: ...
def backends() -> list[str]: ...
def pass_names() -> list[str]: ...
