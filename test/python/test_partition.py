"""Forward and backward parts of real joint graphs, run by ATen, give what the joint graph gives, whatever is saved."""

import joint_graphs
import pytest
import torch
from torch import nn

BUDGETS = [1.0, 0.5, 0.0]


def mlp():
    model = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 4), nn.Sigmoid())
    return model, [torch.randn(8, 16)]


def encoder(dropout=0.0):
    layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=dropout, batch_first=True, activation="gelu")
    return nn.TransformerEncoder(layer, 4, enable_nested_tensor=False), [torch.randn(2, 8, 32)]


def residual():
    def block():
        return nn.Sequential(nn.Conv2d(4, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), nn.ReLU())

    class Residual(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = nn.ModuleList([block() for _ in range(6)])
            for m in self.modules():
                if isinstance(m, nn.BatchNorm2d):
                    m.track_running_stats = False
                    m.running_mean = m.running_var = m.num_batches_tracked = None

        def forward(self, x):
            for b in self.blocks:
                x = x + b(x)
            return nn.functional.max_pool2d(x, 2).mean((2, 3))

    return Residual(), [torch.randn(2, 4, 8, 8)]


MODELS = {"mlp": mlp, "encoder": encoder, "encoder_dropout": lambda: encoder(0.1), "residual": residual}


def functional(model, inputs):
    names = [n for n, _ in model.named_parameters()]

    def function(*args):
        parameters = dict(zip(names, args[len(inputs) :], strict=True))
        return torch.func.functional_call(model, parameters, args[: len(inputs)])

    return function


def eager_bytes(model, inputs):
    """What eager's autograd keeps between forward and backward beyond inputs and parameters."""
    kept = {}

    def pack(tensor):
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        result = model(*inputs)
    for tensor in [*model.parameters(), *inputs]:
        kept.pop(tensor.untyped_storage().data_ptr(), None)
    kept.pop(result.untyped_storage().data_ptr(), None)
    return sum(kept.values())


@pytest.mark.parametrize("name", MODELS)
def test_parts_give_what_the_joint_graph_gives(name):
    torch.manual_seed(0)
    model, inputs = MODELS[name]()
    joint = joint_graphs.record(functional(model, inputs), inputs, list(model.parameters()))
    saved = []
    for budget in BUDGETS:
        parts = joint_graphs.partition(joint, budget)
        saved.append(parts.saved_bytes)
        for got, expected in zip(parts.run(joint), joint.outputs, strict=True):
            assert (got is None) == (expected is None)
            assert got is None or torch.equal(got, expected)
    assert saved == sorted(saved, reverse=True)
    assert saved[0] <= eager_bytes(model, inputs)
    if name != "mlp":
        assert saved[-1] < saved[1] < saved[0]
