"""What Braze costs beside the kernels. Every figure comes from this machine and this run.

usage: overheads.py [import] [call] [training_call] [guards] [trace] [joint] [compile] [memory]

  import        milliseconds of `import braze` after `import torch`, in fresh processes
  call          a one-kernel call against one eager relu, in microseconds
  training_call a one-kernel call and its backward pass, against the same of eager and of torch.compile, in microseconds
  guards        the guard program of BERT-base, in microseconds
  trace         capture and trace of BERT-base's forward, in milliseconds; the trace is torch's part: each operator's way
                through libtorch, its type and its node
  joint         the same where gradients are needed: the trace is of the forward and the backward pass
  compile       the phases of BERT-base's first call, in milliseconds
  memory        resident memory over 200 compilations that are dropped
"""
import gc
import os
import statistics
import subprocess
import sys
import time

import parts

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


def import_time():
    code = "import time, torch; t = time.perf_counter(); import braze; print((time.perf_counter() - t) * 1e3)"
    runs = [float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
            for _ in range(5)]
    print(f"import braze after torch: {min(runs):.1f} ms (median {statistics.median(runs):.1f})")


def microseconds(functions, args, rounds=9, calls=5000):
    """Medians of interleaved rounds."""
    rows = [[] for _ in functions]
    for _ in range(rounds):
        for f, row in zip(functions, rows, strict=True):
            t = time.perf_counter()
            for _ in range(calls):
                f(*args)
            row.append((time.perf_counter() - t) / calls * 1e6)
    return [statistics.median(row) for row in rows]


def call_cost():
    import torch

    import braze
    x = torch.randn(4, 32)
    with torch.no_grad():
        chain = braze.compile(lambda x: torch.sigmoid(torch.relu(x + 2.0)))
        one = braze.compile(torch.nn.functional.relu)
        eager, three, relu = microseconds([torch.relu, chain, one], (x,))
    print(f"one eager relu {eager:.2f} us; compiled: one kernel of three ops {three:.2f} us, relu alone {relu:.2f} us")


def training_call_cost():
    import torch

    import braze

    def chain(x):
        return torch.sigmoid(torch.relu(x + 2.0))

    x, tangent = torch.randn(4, 32, requires_grad=True), torch.randn(4, 32)

    def step(f):
        return lambda: torch.autograd.grad(f(x), x, tangent)
    eager, theirs, ours = microseconds([step(chain), step(torch.compile(chain)), step(braze.compile(chain))], (), calls=2000)
    print(f"forward and backward of one kernel: eager {eager:.2f} us, torch.compile {theirs:.2f} us, "
          f"braze {ours:.2f} us ({ours / theirs:.2f} of torch.compile)")


def bert():
    import torch
    import transformers
    torch.manual_seed(0)
    model = transformers.BertModel(transformers.BertConfig()).eval()
    return model, torch.randint(0, 30000, (2, 128))


def guard_cost():
    import torch

    import braze
    model, ids = bert()
    with torch.no_grad():
        compiled = braze.compile(lambda x: model(x).last_hidden_state)
        compiled(ids)
        runs = [compiled.guard_time(ids) / 1e3 for _ in range(9)]
    print(f"guards of BERT-base: {statistics.median(runs):.1f} us")


def trace_times(forward, ids, compilations=9, **options):
    """Milliseconds of (capture, trace) of each compilation, and the last report."""
    import braze
    rows = []
    for _ in range(compilations):
        braze.reset()
        braze.compile(forward, **options)(ids)
        report = braze.compile_report()[-1]
        rows.append((report["ms"]["capture"], report["ms"]["trace"]))
    return rows, report


def trace_of(forward, ids):
    """Prints capture's and the trace's milliseconds: the medians without the first, and the first in the process."""
    (first, *later), report = trace_times(forward, ids)
    capture, trace = (statistics.median(column) for column in zip(*later, strict=True))
    print(f"capture {capture:.1f} ms, trace {trace:.1f} ms (the first in the process: {first[0]:.1f}, {first[1]:.1f})")
    print(report["note"])


def trace_cost():
    import torch
    model, ids = bert()
    print("BERT-base, forward: ", end="")
    with torch.no_grad():
        trace_of(lambda x: model(x).last_hidden_state, ids)


def joint_trace_cost():
    model, ids = bert()     # in evaluation mode: no dropout
    print("BERT-base, forward and backward: ", end="")
    trace_of(lambda x: model(x).last_hidden_state.sum(), ids)


def compile_cost():
    import torch

    import braze
    model, ids = bert()
    with torch.no_grad():
        compiled = braze.compile(lambda x: model(x).last_hidden_state)
        t = time.perf_counter()
        compiled(ids)
        first = time.perf_counter() - t
        t = time.perf_counter()
        compiled(ids)
        print(f"BERT-base: first call {first * 1e3:.0f} ms, second {(time.perf_counter() - t) * 1e3:.0f} ms")
    print(braze.compile_report())


def resident_mb():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def memory():
    import torch

    import braze
    x = torch.randn(64, 64)
    sizes = []
    with torch.no_grad():
        for i in range(200):
            scale = 1.0 + i
            compiled = braze.compile(lambda x, scale=scale: torch.softmax(x * scale, -1) + scale)
            compiled(x)
            del compiled
            if i % 50 == 49:
                braze.reset()
                gc.collect()
                sizes.append(resident_mb())
    print("resident MB after 50, 100, 150, 200 dropped compilations: " + ", ".join(f"{s:.1f}" for s in sizes))


PARTS = {"import": import_time, "call": call_cost, "training_call": training_call_cost, "guards": guard_cost,
         "trace": trace_cost, "joint": joint_trace_cost, "compile": compile_cost, "memory": memory}


if __name__ == "__main__":
    parts.run(PARTS)
