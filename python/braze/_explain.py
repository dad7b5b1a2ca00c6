"""What becomes of one call."""

import dataclasses
from collections.abc import Callable
from typing import Any

from braze import _braze
from braze._compile import _settings, compile_with


@dataclasses.dataclass(frozen=True)
class Explanation:
    """graphs: compiled for the call. breaks: why and where a graph ended before the call did, a text each. guards: what
    must hold for the graphs' reuse. skipped: why the call, or the rest of it, ran eagerly, if it did."""

    graphs: int
    breaks: list[str]
    guards: str
    skipped: dict[str, int]
    result: Any

    def __str__(self) -> str:
        lines = [f"{self.graphs} graph(s), {len(self.breaks)} break(s)"]
        lines += [f"graph break: {text}" for text in self.breaks]
        lines += [f"ran eagerly: {reason}" for reason in self.skipped]
        return "\n".join([*lines, "guards:", self.guards]) if self.guards else "\n".join(lines)


def explain(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Compiles `function` anew, calls it once, and says what happened: explain(function)(*args, **kwargs), or
    explain(function, *args, **kwargs)."""

    def run(*args: Any, **kwargs: Any) -> Explanation:
        compiled = compile_with(function, _settings(False, None, None, None, None))
        before = _braze.counters()
        result = compiled(*args, **kwargs)
        after = _braze.counters()
        inner = getattr(compiled, "_compiled", compiled)
        skipped = {r: n - before["skipped"].get(r, 0) for r, n in after["skipped"].items() if n > before["skipped"].get(r, 0)}
        return Explanation(after["graphs"] - before["graphs"], inner.breaks(), inner.guards(), skipped, result)

    return run(*args, **kwargs) if args or kwargs else run
