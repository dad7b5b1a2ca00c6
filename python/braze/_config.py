"""Defaults of `braze.compile`'s options, for the whole process."""

import os
from collections.abc import Callable
from typing import Any


class Config:
    """Values that hold where a call of `braze.compile` names no other.

    recompile_limit: entries per function and call shape; further calls that fit none run eagerly.
    fusion: fuse operations into kernels.
    verify: check the graph after each pass.
    enable_passes, disable_passes: names of graph passes.
    activation_memory_budget: share of the memory of what the forward pass keeps for the backward pass, from 1.0 (keep what
        is worth keeping) to 0.0 (compute everything again that can be).
    autotune: measure the ways to make each product, attention and convolution, ATen's among them, when its shapes first
        come, and keep what is fastest, on disk too.
    joint_custom_pre_pass, joint_custom_post_pass: callables that get each graph, in training with its backward pass,
        before and after braze's own passes, as an object to change in place: docs/custom_passes.md.
    post_grad_custom_pre_pass, post_grad_custom_post_pass: likewise each graph that code is made of, in training the
        forward and the backward one.
    disable: `braze.compile` returns its argument. Set by the environment variable BRAZE_DISABLE=1.
    """

    recompile_limit: int = 8
    fusion: bool = True
    verify: bool = False
    enable_passes: tuple[str, ...] = ()
    disable_passes: tuple[str, ...] = ()
    activation_memory_budget: float = 1.0
    autotune: bool = False
    joint_custom_pre_pass: Callable[[Any], None] | None = None
    joint_custom_post_pass: Callable[[Any], None] | None = None
    post_grad_custom_pre_pass: Callable[[Any], None] | None = None
    post_grad_custom_post_pass: Callable[[Any], None] | None = None
    disable: bool = os.environ.get("BRAZE_DISABLE", "0") not in ("", "0")

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in type(self).__annotations__:
            raise AttributeError(f"braze.config has no setting {name!r}; known are: {', '.join(type(self).__annotations__)}")
        object.__setattr__(self, name, value)


config = Config()
