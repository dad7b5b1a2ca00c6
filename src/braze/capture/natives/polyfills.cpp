// Natives that call back into Python, written in Python: their frames are ordinary frames of the trace.
#include "braze/capture/differentiation.h"
#include "braze/capture/natives/natives.h"
#include "braze/capture/natives/polyfills_iteration.h"
#include "braze/support/check.h"

namespace braze::capture {

namespace {

constexpr const char* kSource = R"py(
def object_ne(self, other):
    equal = type(self).__eq__(self, other)
    return equal if equal is NotImplemented else not equal

def cached_property_get(self, instance, owner=None):
    if instance is None:
        return self
    if self.attrname is None:
        raise TypeError("Cannot use cached_property instance without calling __set_name__ on it.")
    cache = instance.__dict__
    value = cache.get(self.attrname, _missing)
    if value is _missing:
        value = self.func(instance)
        cache[self.attrname] = value
    return value

class FunctionContext:
    to_save = None
    dirty_tensors = ()
    non_differentiable = ()
    materialize_grads = True

    def save_for_backward(self, *tensors):
        self.to_save = tensors

    def save_for_forward(self, *tensors):
        pass

    def mark_dirty(self, *tensors):
        self.dirty_tensors = tensors

    def mark_non_differentiable(self, *tensors):
        self.non_differentiable = tensors

    def set_materialize_grads(self, value):
        self.materialize_grads = value

    @property
    def saved_tensors(self):
        return () if self.to_save is None else self.to_save

def function_apply(number, cls, *args):
    Tensor = torch.Tensor
    with_setup = cls.setup_context is not torch.autograd.Function.setup_context
    if with_setup and len(args) != cls.forward.__code__.co_argcount:
        bound = inspect.signature(cls.forward).bind(*args)
        bound.apply_defaults()
        args = bound.args
    ctx = FunctionContext()
    inputs = tuple([a if isinstance(a, Tensor) else None for a in args])
    ctx.needs_input_grad = tuple([t is not None and t.requires_grad for t in inputs])
    grad = torch.is_grad_enabled()
    torch._C._set_grad_enabled(False)
    try:
        if with_setup:
            result = cls.forward(*args)
            cls.setup_context(ctx, args, result)
        else:
            result = cls.forward(ctx, *args)
    finally:
        torch._C._set_grad_enabled(grad)
    outputs = result if isinstance(result, tuple) else (result,)
    saved = tuple([t for t in ctx.saved_tensors if t is not None])
    tracked = record_function(number, ctx.materialize_grads, inputs,
                              tuple([o if isinstance(o, Tensor) else None for o in outputs]), tuple(ctx.dirty_tensors),
                              tuple(ctx.non_differentiable), saved, with_setup)
    outputs = tuple([o if t is None else t for o, t in zip_(outputs, tracked)])
    return ctx, outputs if isinstance(result, tuple) else outputs[0]

def function_backward(cls, ctx, *gradients):
    backward = cls.backward
    if cls.vjp is not torch.autograd.Function.vjp:
        backward = cls.vjp
    result = backward(ctx, *gradients)
    return result if isinstance(result, tuple) else (result,)

def output_gradients(outputs, grad_outputs, batched=False):
    # What eager refuses, no backward pass is given.
    if grad_outputs is None:
        grad_outputs = (None,) * len(outputs)
    elif isinstance(grad_outputs, torch.Tensor):
        grad_outputs = (grad_outputs,)
    if len(outputs) != len(grad_outputs):
        run_backward()
    gradients = []
    for i in range(len(outputs)):
        output, gradient = outputs[i], grad_outputs[i]
        if gradient is not None:
            if (gradient.shape[1:] if batched else gradient.shape) != output.shape or gradient.is_complex() != output.is_complex():
                run_backward()
        elif output.requires_grad:
            if output.numel() != 1 or not output.dtype.is_floating_point or batched:
                run_backward()
            gradient = torch.ones_like(output)
        gradients.append(gradient)
    return tuple(gradients)

def autograd_grad(outputs, inputs, grad_outputs=None, retain_graph=None, create_graph=False, allow_unused=None,
                  is_grads_batched=False, materialize_grads=False):
    # What eager refuses or does otherwise, no backward pass is given.
    if allow_unused is None:
        allow_unused = materialize_grads
    elif materialize_grads and allow_unused is False:
        run_backward()
    Tensor = torch.Tensor
    outputs = (outputs,) if isinstance(outputs, Tensor) else tuple(outputs)
    names = tuple(inputs) if type(inputs) is dict else None
    inputs = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs) if names is None else tuple(inputs.values())
    if len(inputs) == 0:
        run_backward()
    gradients = output_gradients(outputs, grad_outputs, is_grads_batched)
    if retain_graph is None:
        retain_graph = create_graph

    def differentiate(*gradients):
        return run_backward(outputs, gradients, retain_graph, create_graph, inputs, allow_unused, accumulate_grad=False)

    result = legacy_vmap(differentiate, 0, 0, True)(*gradients) if is_grads_batched else differentiate(*gradients)
    if materialize_grads:
        result = tuple([torch.zeros_like(i, requires_grad=create_graph) if g is None else g for g, i in zip_(result, inputs)])
    return result if names is None else dict(zip_(names, result))

def transform_gradient(outputs, inputs, grad_outputs=None, retain_graph=False, create_graph=True):
    # Without torch._dynamo, which torch's own would load to turn a mode of it off.
    if grad_outputs is None:
        outputs = tuple([o for o in outputs if o.requires_grad])
    else:
        pairs = [(o, g) for o, g in zip_(outputs, grad_outputs) if o.requires_grad]
        outputs = tuple([o for o, g in pairs])
        grad_outputs = tuple([g for o, g in pairs])
    if len(outputs) == 0:
        return tuple([torch.zeros_like(i) for i in inputs])
    gradients = autograd_grad(outputs, inputs, grad_outputs, retain_graph, create_graph, allow_unused=True)
    return tuple([torch.zeros_like(i) if g is None else g for g, i in zip_(gradients, inputs)])

def legacy_vmap(func, in_dims=0, out_dims=0, allow_none_pass_through=False):
    # As torch.autograd uses it: over the first dimension of all tensors, which are arguments or stand in tuples.
    if in_dims != 0 or out_dims != 0:
        run_backward()
    functorch = torch._C._functorch

    def add(arg, level, size):
        if isinstance(arg, tuple):
            return tuple([add(a, level, size) for a in arg])
        if not isinstance(arg, torch.Tensor) or arg.size(0) != size:
            run_backward()
        return functorch._add_batch_dim(arg, 0, level)

    def remove(out, level, size):
        if out is None and allow_none_pass_through:
            return None
        if not isinstance(out, torch.Tensor):
            run_backward()
        return functorch._remove_batch_dim(out, level, size, 0)

    def wrapped(*args):
        first = args
        while isinstance(first, tuple):
            first = first[0]
        size = first.size(0)
        level = functorch._vmap_increment_nesting(size, "error")
        try:
            out = func(*[add(arg, level, size) for arg in args])
            return tuple([remove(o, level, size) for o in out]) if isinstance(out, tuple) else remove(out, level, size)
        finally:
            functorch._vmap_decrement_nesting()
    return wrapped

def autograd_backward(tensors, grad_tensors=None, retain_graph=None, create_graph=False, grad_variables=None,
                      inputs=None):
    if grad_variables is not None or (inputs is not None and len(inputs) == 0):
        run_backward()
    Tensor = torch.Tensor
    tensors = (tensors,) if isinstance(tensors, Tensor) else tuple(tensors)
    inputs = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs) if inputs is not None else ()
    gradients = output_gradients(tensors, grad_tensors)
    if retain_graph is None:
        retain_graph = create_graph
    torch.autograd.variable.Variable._execution_engine.run_backward(
        tensors, gradients, retain_graph, create_graph, inputs, True, accumulate_grad=True)

class HookHandle:
    def __init__(self, number):
        self.number = number

    def remove(self):
        remove_hook(self.number)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.remove()

def hook_handle(number):
    return HookHandle(number)

class NullContext:
    def __enter__(self):
        return None

    def __exit__(self, *exception):
        return None

    def __call__(self, function):
        return function

def null_context():
    return NullContext()

def _numbers(data):
    if isinstance(data, (list, tuple)):
        return [number for item in data for number in _numbers(item)]
    return [data]

def _stacked(data, dtype, device):
    if isinstance(data, (list, tuple)):
        return torch.stack([_stacked(item, dtype, device) for item in data])
    return torch.full((), data, dtype=dtype, device=device)

def tensor_of_numbers(data, *, dtype=None, device=None, requires_grad=False):
    if dtype is None:
        real = any_([isinstance(number, float) for number in _numbers(data)])
        dtype = torch.get_default_dtype() if real else torch.int64
    result = _stacked(data, dtype, device)
    return result.requires_grad_() if requires_grad else result

# The fused steps of optimizers: what libtorch's CPU kernels compute for each element, which round to 16 bits only what
# they store.
def _wide(*tensors):
    return [t.float() if t.dtype in (torch.float16, torch.bfloat16) else t for t in tensors]

def _scalar(x):
    return x.item() if isinstance(x, torch.Tensor) else x

def _store(target, value, skip):
    target.copy_(value if skip is None else torch.where(skip, target, value))

def _skipped(found_inf):
    return None if found_inf is None else found_inf.squeeze() == 1.0

def _fused_gradient(stored, maximize, grad_scale, skip):
    grad, = _wide(stored)
    if grad_scale is not None:
        grad = grad / grad_scale.squeeze()
        _store(stored, grad, skip)
    return -grad if maximize else grad

def _fused_adam(decoupled, params, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, state_steps, lr, beta1, beta2,
                weight_decay, eps, amsgrad, maximize, grad_scale, found_inf):
    lr, beta1, beta2 = _scalar(lr), _scalar(beta1), _scalar(beta2)
    skip = _skipped(found_inf)
    for i in range(len(params)):
        param, exp_avg, exp_avg_sq = _wide(params[i], exp_avgs[i], exp_avg_sqs[i])
        grad = _fused_gradient(grads[i], maximize, grad_scale, skip)
        step = state_steps[i].item()
        if weight_decay != 0 and decoupled:
            param = param - param * (lr * weight_decay)
        elif weight_decay != 0:
            grad = grad + param * weight_decay
        exp_avg = exp_avg.lerp(grad, 1 - beta1)
        exp_avg_sq = exp_avg_sq * beta2 + grad * grad * (1 - beta2)
        second = exp_avg_sq
        if amsgrad:
            second = torch.maximum(*_wide(max_exp_avg_sqs[i]), exp_avg_sq)
            _store(max_exp_avg_sqs[i], second, skip)
        denominator = second.sqrt() / (1 - beta2**step) ** 0.5 + eps
        _store(params[i], param - exp_avg / denominator * (lr / (1 - beta1**step)), skip)
        _store(exp_avgs[i], exp_avg, skip)
        _store(exp_avg_sqs[i], exp_avg_sq, skip)

def fused_adam(self, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, state_steps, *, lr, beta1, beta2, weight_decay, eps,
               amsgrad, maximize, grad_scale=None, found_inf=None):
    _fused_adam(False, self, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, state_steps, lr, beta1, beta2, weight_decay,
                eps, amsgrad, maximize, grad_scale, found_inf)

def fused_adamw(self, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, state_steps, *, lr, beta1, beta2, weight_decay, eps,
                amsgrad, maximize, grad_scale=None, found_inf=None):
    _fused_adam(True, self, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, state_steps, lr, beta1, beta2, weight_decay,
                eps, amsgrad, maximize, grad_scale, found_inf)

def fused_sgd(self, grads, momentum_buffer_list, *, weight_decay, momentum, lr, dampening, nesterov, maximize,
              is_first_step, grad_scale=None, found_inf=None):
    lr, skip = _scalar(lr), _skipped(found_inf)
    for i in range(len(self)):
        param, = _wide(self[i])
        grad = _fused_gradient(grads[i], maximize, grad_scale, skip)
        if weight_decay != 0:
            grad = grad + param * weight_decay
        if momentum != 0:
            buffer = grad
            if not is_first_step:
                buffer = _wide(momentum_buffer_list[i])[0] * momentum + grad * (1 - dampening)
            _store(momentum_buffer_list[i], buffer, skip)
            grad = grad + buffer * momentum if nesterov else buffer
        _store(self[i], param - grad * lr, skip)

def fused_adagrad(self, grads, state_sums, state_steps, *, lr, lr_decay, weight_decay, eps, maximize, grad_scale=None,
                  found_inf=None):
    lr, skip = _scalar(lr), _skipped(found_inf)
    for i in range(len(self)):
        param, state_sum = _wide(self[i], state_sums[i])
        grad = _fused_gradient(grads[i], maximize, grad_scale, skip)
        if weight_decay != 0:
            grad = grad + param * weight_decay
        state_sum = state_sum + grad * grad
        rate = lr / (1 + (state_steps[i].item() - 1) * lr_decay)
        _store(self[i], param - grad / (state_sum.sqrt() + eps) * rate, skip)
        _store(state_sums[i], state_sum, skip)

def checkpoint(function, *args, **kwargs):
    outer = set_recompute(True)
    try:
        return function(*args, **kwargs)
    finally:
        set_recompute(outer)
)py";

struct Row {
  const char* native;
  const char* function;
};

constexpr Row kRows[] = {
    {"builtins.enumerate", "enumerate_"}, {"builtins.zip", "zip_"}, {"builtins.map", "map_"},
    {"builtins.filter", "filter_"}, {"builtins.all", "all_"}, {"builtins.any", "any_"}, {"builtins.sum", "sum_"},
    {"builtins.min", "min_"}, {"builtins.max", "max_"}, {"builtins.sorted", "sorted_"}, {"builtins.list.sort", "list_sort"},
    {"_functools.reduce", "reduce"}, {"itertools.chain", "chain"}, {"itertools.islice", "islice"},
    {"itertools.chain.from_iterable", "from_iterable"}, {"itertools.count", "count"}, {"itertools.cycle", "cycle"},
    {"itertools.repeat", "repeat"}, {"itertools.accumulate", "accumulate"}, {"itertools.starmap", "starmap"},
    {"itertools.takewhile", "takewhile"}, {"itertools.dropwhile", "dropwhile"},
    {"itertools.filterfalse", "filterfalse"}, {"itertools.pairwise", "pairwise"},
    {"itertools.zip_longest", "zip_longest"}, {"itertools.product", "product"},
    {"itertools.combinations", "combinations"}, {"itertools.permutations", "permutations"},
    {"functools.cached_property.__get__", "cached_property_get"},
    {"_collections._count_elements", "count_elements"},
    {"itertools.compress", "compress"}, {"itertools.groupby", "groupby"},
    {"torch._fused_adam_", "fused_adam"}, {"torch._fused_adamw_", "fused_adamw"}, {"torch._fused_sgd_", "fused_sgd"},
    {"torch._fused_adagrad_", "fused_adagrad"},
};

PyObject* scope() {
  static PyObject* const dict = [] {
    PyObject* globals = PyDict_New();
    PyDict_SetItemString(globals, "__builtins__", PyEval_GetBuiltins());
    PyDict_SetItemString(globals, "__name__", interned("braze.polyfills"));
    PyDict_SetItemString(globals, "_since_3_12", PY_VERSION_HEX >= 0x030c0000 ? Py_True : Py_False);
    PyDict_SetItemString(globals, "inspect", Ref::steal(PyImport_ImportModule("inspect")).get());
    const Ref torch = Ref::steal(PyImport_GetModule(interned("torch")));
    if (torch) PyDict_SetItemString(globals, "torch", torch.get());
    for (const char* name : {"record_function", "set_recompute", "run_backward", "remove_hook"})
      if (PyObject* native = registered_native(name)) PyDict_SetItemString(globals, name, native);
    for (const char* source : {kIterationPolyfills, kSource}) {
      const Ref code = Ref::steal(Py_CompileString(source, "<braze polyfills>", Py_file_input));
      const Ref done = code ? Ref::steal(PyEval_EvalCode(code.get(), globals, globals)) : Ref();
      CHECK(static_cast<bool>(done), "the polyfills do not run");
    }
    return globals;
  }();
  return dict;
}

}  // namespace

Ref polyfill(const char* function) {
  PyObject* found = PyDict_GetItemString(scope(), function);
  CHECK(found != nullptr, function);
  return Ref::borrow(found);
}

std::vector<std::pair<const char*, Ref>> polyfills() {
  std::vector<std::pair<const char*, Ref>> out;
  for (const Row& row : kRows) out.emplace_back(row.native, polyfill(row.function));
  return out;
}

}  // namespace braze::capture
