"""Traces a callable whose results need gradients, replays the joint graph node by node in place of forward and backward,
and compares with eager: results, gradients, layout, aliasing, what happened to inputs, and what autograd tracks."""
import copy

import torch
from torch.utils import _pytree as pytree

import trace_driver
from trace_driver import Mismatch, compare, slots, storages, tensors_of


def run(traced):
    """What a runtime does with a joint graph, in a few lines of Python."""
    plan, trace, callers = traced.info["joint"], traced.trace, traced.callers
    primals = copy.deepcopy([x.detach() for x in callers])
    drawn = torch.get_rng_state()
    rows = plan["tangents"]

    def joint(tangents):
        return trace.run_joint(primals, tangents)

    outputs, mutated = joint([torch.empty_strided(sizes, strides, dtype=dtype).zero_() for _, _, sizes, strides, dtype in rows])
    after = torch.get_rng_state()

    class Joint(torch.autograd.Function):
        @staticmethod
        def forward(ctx, *_):
            return tuple(outputs[output].clone() for output, *_ in rows)

        @staticmethod
        def backward(ctx, *tangents):
            given = [torch.empty_strided(sizes, strides, dtype=dtype).copy_(t)
                     for t, (_, _, sizes, strides, dtype) in zip(tangents, rows)]
            now = torch.get_rng_state()
            torch.set_rng_state(drawn)
            gradients = joint(given)[0][plan["n_forward"]:]
            torch.set_rng_state(now)
            return tuple(gradients)

    results = [x.detach() for x in outputs[:plan["n_forward"]]]
    tracked = ()
    if rows:
        with torch.enable_grad():
            tracked = Joint.apply(*[callers[i] for i in plan["gradients"]] or [torch.zeros(()).requires_grad_()])
    for (output, *_), x in zip(rows, tracked):
        results[output] = x
    torch.set_rng_state(after)
    recorded = plan["n_forward"] - sum(not no_grad for *_, no_grad in plan["mutations"])
    for (caller, is_base, no_grad), value in zip(plan["mutations"], mutated):
        target = callers[caller]
        with torch.set_grad_enabled(not no_grad):
            if is_base:
                storage = target.untyped_storage()
                torch.empty(0, dtype=target.dtype).set_(storage, 0, (storage.nbytes() // target.element_size(),)).copy_(value)
            elif no_grad:
                target.copy_(value)
            else:
                target.copy_(results[recorded])
                recorded += 1
    for output, caller, base, same, sizes, strides, offset in plan["aliases"]:
        viewed = callers[caller] if caller >= 0 else results[base]
        if same:
            results[output] = viewed
            continue
        if not plan["tracked"][output]:
            viewed = viewed.detach()
        results[output] = viewed.as_strided(sizes, strides, viewed.storage_offset() + offset)
    results = iter(results)
    return pytree.tree_unflatten([next(results) if isinstance(x, torch.Tensor) else x for x in traced.leaves], traced.spec)


def _world(args, modules):
    found = tensors_of(args) + [d[k] for m in modules for d, k, _ in slots(m)]
    return list({id(x): x for x in found}.values())


def _gradients(outputs, edges):
    roots = [x for x in outputs if x.requires_grad]
    if not roots or not edges:
        return [None] * len(edges)
    tangents = [torch.cos(torch.arange(x.numel(), dtype=torch.float64)).reshape(x.shape).to(x.dtype) for x in roots]
    return torch.autograd.grad(roots, edges, tangents, allow_unused=True)


def check(make, dynamic=False, seed=3, tolerance=2e-5, gradients=1e-4):
    """make() -> (fn, args[, modules]), new and equal each time. Returns the Traced."""
    def fresh():
        torch.manual_seed(0)
        fn, args, *rest = make()
        return fn, args, rest[0] if rest else []

    def measure(call, args, modules):
        world = _world(args, modules)
        edges = [torch.autograd.graph.get_gradient_edge(x) for x in world if x.requires_grad]
        torch.manual_seed(seed)
        outputs = tensors_of(call())
        changed = [x for x in world if x.grad_fn is not None]
        return world, outputs, _gradients(outputs + changed, edges)

    fn, args, modules = fresh()
    world, outputs, grads = measure(lambda: fn(*args), args, modules)

    fn, args, modules = fresh()
    before = [x.detach().clone() for x in _world(args, modules)]
    traced = trace_driver.trace(fn, args, modules, dynamic=dynamic)
    for x, old in zip(_world(args, modules), before):
        if not torch.equal(x.detach(), old) or x.grad is not None:
            raise Mismatch("the trace changed an input")
    if problem := traced.trace.explain(traced.callers):
        raise Mismatch(f"guards fail on the traced inputs: {problem}")
    try:
        if "joint" in traced.info:
            got_world, got, got_grads = measure(lambda: run(traced), args, modules)
        else:
            got_world, got, got_grads = measure(traced.run, args, modules)
    except RuntimeError as e:
        raise Mismatch(f"{e}\n{traced.text}") from None

    if len(got) != len(outputs):
        raise Mismatch(f"{len(outputs)} outputs -> {len(got)}")
    for kind, ours, theirs in (("output", got, outputs), ("input afterwards", got_world, world)):
        for i, (g, e) in enumerate(zip(ours, theirs)):
            compare(e, g, f"{kind} {i}", tolerance)
            if (g.requires_grad, g.is_leaf) != (e.requires_grad, e.is_leaf):
                raise Mismatch(f"{kind} {i}: requires_grad, is_leaf {e.requires_grad, e.is_leaf} -> {g.requires_grad, g.is_leaf}")
    for i, (g, e) in enumerate(zip(got_grads, grads)):
        if (g is None) != (e is None):
            raise Mismatch(f"gradient {i}: {'none' if e is None else 'some'} -> {'none' if g is None else 'some'}\n{traced.text}")
        if e is not None:
            # Tangents get the layout of the results, so gradients may have other strides than eager's.
            compare(e.contiguous(), g.contiguous(), f"gradient {i}", gradients)
    if storages(world + outputs) != storages(got_world + got):
        raise Mismatch(f"aliasing {storages(world + outputs)} -> {storages(got_world + got)}")
    return traced
