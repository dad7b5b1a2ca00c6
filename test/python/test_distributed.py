"""Data-parallel training over gloo, two processes on this machine: the gradients are eager's."""
import socket

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import braze

pytestmark = pytest.mark.skipif(not (dist.is_available() and dist.is_gloo_available()), reason="this torch has no gloo")


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 4))


def train(model, rank):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for i in range(3):
        torch.manual_seed(100 * i + rank)
        optimizer.zero_grad()
        model(torch.randn(8, 16)).square().mean().backward()
        optimizer.step()
    return [p.grad for p in model.parameters()] + [p.detach() for p in model.parameters()]


def process(rank, port):
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    torch.set_num_threads(1)
    expected = train(DistributedDataParallel(net()), rank)
    inside = train(DistributedDataParallel(braze.compile(net(), fullgraph=True)), rank)
    assert braze.counters()["graphs"] == 1
    around = train(braze.compile(DistributedDataParallel(net())), rank)
    counters = braze.counters()
    assert 2 <= counters["graphs"] <= 4 and not counters["skipped"], counters
    for got in (inside, around):
        for a, b in zip(expected, got, strict=True):
            torch.testing.assert_close(b, a, rtol=1e-5, atol=1e-6)
    dist.destroy_process_group()


def test_gradients_are_averaged():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    mp.spawn(process, args=(port,), nprocs=2)
