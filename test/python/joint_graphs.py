"""Joint graphs of forward and backward pass as text, from torch's own ahead-of-time autograd, with real kernels' types."""

import dataclasses
import re

import tensor_ir
import torch
from torch._functorch.aot_autograd import aot_function


SEED = 5  # of the random numbers that a graph draws


@dataclasses.dataclass
class Joint:
    text: str
    n_forward: int
    inputs: list  # primals, then tangents
    outputs: list  # forward outputs, then gradients; None where there is none


class Recorder(tensor_ir.Recorder):
    def declare(self, i, kind):
        self.kinds = getattr(self, "kinds", {}) | {i: kind}

    def text(self, outputs):
        inputs = [f"{self.names[id(t)]}: {tensor_ir.type_text(t)}{self.kinds.get(i, '')}" for i, t in enumerate(self.inputs)]
        returned = ", ".join("undef" if t is None else self.names[id(t)] for t in outputs)
        return (
            f"{''.join(self.declared.values())}graph @joint({', '.join(inputs)}) {{\n{''.join(self.lines)}"
            f"  return {returned}\n}}\n"
        )


def capture(function, inputs):
    """The joint torch.fx graph of function(*inputs), and how many of its outputs are the forward pass's."""
    captured = []

    def partition(module, _, *, num_fwd_outputs, **__):
        captured.append((module, num_fwd_outputs))
        raise StopIteration

    run = aot_function(function, fw_compiler=lambda module, _: module, partition_fn=partition)
    try:
        run(*inputs)
    except StopIteration:
        pass
    return captured[0]


def record(function, inputs, parameters=()):
    """The joint graph of a function of tensors, recorded while its nodes run. Tangents are random."""
    inputs = [*inputs, *parameters]
    module, n_forward = capture(function, inputs)
    tangents = [
        torch.randn(node.meta["val"].shape).to(node.meta["val"].dtype)
        for node in module.graph.nodes
        if node.op == "placeholder" and "tangents" in node.name
    ]
    values = [t.detach() for t in inputs] + tangents
    recorder = Recorder(values)
    for i in range(len(inputs) - len(parameters), len(values)):
        recorder.declare(i, " parameter" if i < len(inputs) else " tangent")
    env, given = {}, iter(values)
    torch.manual_seed(SEED)
    with torch.no_grad():
        for node in module.graph.nodes:
            if node.op == "placeholder":
                env[node] = next(given)
            elif node.op == "output":
                outputs = torch.fx.map_arg(node.args[0], env.get)
            elif node.op == "get_attr":
                raise NotImplementedError("constants")
            else:
                args, kwargs = torch.fx.map_arg((node.args, node.kwargs), env.get)
                env[node] = node.target(*args, **kwargs)
                if isinstance(node.target, torch._ops.OpOverload):
                    recorder.add(node.target, args, kwargs, env[node])
                    recorder.lines[-1] = recorder.lines[-1].rstrip("\n") + tags(node) + "\n"
    outputs = list(outputs)
    return Joint(recorder.text(outputs), n_forward, values, outputs)


def tags(node):
    out = ""
    if torch.Tag.nondeterministic_seeded in node.target.tags:
        out += " !order"
    if node.meta.get("partitioner_tag") == "is_backward":
        out += " !backward"
    return out


@dataclasses.dataclass
class Parts:
    forward: str
    backward: str
    feeds: list  # (kind, index) of each backward input
    saved_bytes: int

    def run(self, joint):
        """All outputs of the joint graph, by one run of each part."""
        n_inputs = self.forward.split("{\n")[0].count("%")
        torch.manual_seed(SEED)
        forward = tensor_ir.run_graph(self.forward, joint.inputs[:n_inputs])
        sources = {"input": joint.inputs, "output": forward, "tangent": joint.inputs}
        backward = tensor_ir.run_graph(self.backward, [sources[kind][i] for kind, i in self.feeds])
        return forward[: joint.n_forward] + backward


def partition(joint, budget=1.0):
    text = tensor_ir.optimize(joint.text, f"--partition={joint.n_forward}", f"--budget={budget}", "--verify")
    forward, backward = re.findall(r"^graph .*?^}\n", text, re.M | re.S)
    feeds = re.findall(r"(input|output|tangent) (\d+)", re.search(r"// backward inputs:(.*)", text)[1])
    return Parts(forward, backward, [(kind, int(i)) for kind, i in feeds], int(re.search(r"saved bytes: (\d+)", text)[1]))
