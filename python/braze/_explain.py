"""What becomes of one call."""

import dataclasses
from collections.abc import Callable
from typing import Any

from braze import _braze
from braze._compile import _settings, compile_with


@dataclasses.dataclass(frozen=True)
class Explanation:
    """graphs: compiled for the call. guards: what must hold for its reuse. skipped: why it ran eagerly, if it did."""

    graphs: int
    guards: str
    skipped: dict[str, int]
    result: Any

    def __str__(self) -> str:
        lines = [f"{self.graphs} graph(s)"]
        lines += [f"ran eagerly: {reason}" for reason in self.skipped]
        return "\n".join([*lines, "guards:", self.guards]) if self.guards else "\n".join(lines)


def explain(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Explanation:
    """Compiles `function` anew for these arguments, calls it once, and says what happened."""
    compiled = compile_with(function, _settings(False, None, None, None, None))
    before = _braze.counters()
    result = compiled(*args, **kwargs)
    after = _braze.counters()
    inner = getattr(compiled, "_compiled", compiled)
    skipped = {r: n - before["skipped"].get(r, 0) for r, n in after["skipped"].items() if n > before["skipped"].get(r, 0)}
    return Explanation(after["graphs"] - before["graphs"], inner.guards(), skipped, result)
