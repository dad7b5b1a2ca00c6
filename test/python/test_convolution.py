"""Convolutions against a float64 run: windows, strides, groups, layouts, and what is computed around them."""
import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import braze

CASES = {   # in channels, out channels, window, options
    "3x3": (16, 24, 3, dict(padding=1)),
    "1x1": (16, 24, 1, {}),
    "1x1 with a stride": (16, 24, 1, dict(stride=2)),
    "1x1 padded": (16, 24, 1, dict(padding=1)),
    "7x7": (3, 40, 7, dict(stride=2, padding=3)),
    "dilated": (8, 5, 3, dict(dilation=2)),
    "groups": (12, 18, 3, dict(groups=3, padding=1)),
    "depthwise": (32, 32, 3, dict(groups=32, padding=1)),
    "one channel": (1, 1, 3, {}),
}
LAYOUTS = {
    "planes": lambda x: x,
    "channels last": lambda x: x.contiguous(memory_format=torch.channels_last),
    "a part": lambda x: F.pad(x, (2, 3, 1, 1))[:, :, 1:-1, 2:-3],
    "every second": lambda x: x.repeat_interleave(2, 3)[..., ::2],
    "expanded": lambda x: x[:1].expand(x.shape),
}


def check(f, *args):
    out, eager = braze.compile(f, fullgraph=True)(*args), f(*args)
    assert out.shape == eager.shape and out.stride() == eager.stride()
    exact = f(*(a.double() for a in args))
    bound = 2 * (eager - exact).abs().max() + 1e-5
    assert (out - exact).abs().max() <= bound


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", CASES)
def test_convolution(name, layout, bias):
    torch.manual_seed(0)
    channels, filters, window, options = CASES[name]
    x = LAYOUTS[layout](torch.randn(3, channels, 11, 13))
    w = torch.randn(filters, channels // options.get("groups", 1), window, window)
    if bias:
        check(lambda x, w, b: F.conv2d(x, w, b, **options), x, w, torch.randn(filters))
    else:
        check(lambda x, w: F.conv2d(x, w, **options), x, w)


@pytest.mark.parametrize("window", [1, 3])
@pytest.mark.parametrize("training", [False, True])
def test_with_normalization(window, training):
    torch.manual_seed(0)
    layer = lambda: [nn.Conv2d(8, 8, window, padding=window // 2, bias=False), nn.BatchNorm2d(8), nn.ReLU()]
    model = nn.Sequential(*layer(), *layer()).train(training)
    exact = copy.deepcopy(model).double()
    eager = copy.deepcopy(model)
    compiled = braze.compile(model, fullgraph=True)
    for step in range(2):
        x = torch.randn(2, 8, 9, 9)
        outs = []
        for f, dtype in ((compiled, torch.float32), (eager, torch.float32), (exact, torch.float64)):
            y = f(x.to(dtype))
            if training:
                y.square().sum().backward()
            outs.append(y)
        assert outs[0].stride() == outs[1].stride()
        torch.testing.assert_close(outs[0].double(), outs[2], rtol=1e-4, atol=1e-4)
    for ours, theirs in zip([*model.parameters(), *model.buffers()], [*exact.parameters(), *exact.buffers()], strict=True):
        torch.testing.assert_close(ours.double(), theirs.double(), rtol=1e-4, atol=1e-4)
        if training and ours.grad is not None:
            torch.testing.assert_close(ours.grad.double(), theirs.grad, rtol=1e-3, atol=1e-3)
