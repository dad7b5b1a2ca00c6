// Models of torch.autograd.Function.apply, torch.utils.checkpoint and the engine: their Python is interpreted, and the
// tensor domain is told what autograd has to know.
#include <unordered_map>

#include "braze/capture/differentiation.h"

namespace braze::capture {

namespace {

std::unordered_map<std::string, PyObject*>& registered() {
  static std::unordered_map<std::string, PyObject*> natives;
  return natives;
}

// A function that was applied: its class, and the context that its forward filled.
struct Applied {
  Owned type;
  Ref context;
};

Result<Ref> interpret_backward(Executor& x, const Applied& applied, std::span<PyObject* const> gradients) {
  try {
    ArgumentList list;
    list.add(applied.type.get());
    list.add({applied.context.get(), kNoSource});
    for (PyObject* gradient : gradients) list.add({gradient, kNoSource});
    const Ref body = polyfill("function_backward");
    const Owned out = x.call_function({body.get(), kNoSource}, list.get());
    if (!out) {
      PyErr_Clear();
      return Unsupported{"the backward of a custom autograd function raises an error", ""};
    }
    const Py_ssize_t n = PyTuple_GET_SIZE(out.ref.get());
    const Ref tuple = Ref::steal(PyTuple_New(n));
    for (Py_ssize_t i = 0; i < n; i++) {
      PyObject* item = PyTuple_GET_ITEM(out.ref.get(), i);
      Ref gradient = Ref::borrow(item);
      if (item != Py_None && x.prov.category(item) != Category::Tensor) {
        return Unsupported{"the backward of a custom autograd function gives what is no tensor", ""};
      }
      if (item != Py_None && !x.session.is_traced(item)) {
        const Value v = x.prov.item_of(out.get(), item, i);
        if (v.src == kNoSource) return Unsupported{"a tensor of unknown origin", ""};
        TRY(gradient, x.session.stand_in(item, v.src));
      }
      PyTuple_SET_ITEM(tuple.get(), i, gradient.release());
    }
    return tuple;
  } catch (const Abort& abort) {
    PyErr_Clear();
    return abort.why;
  }
}

Owned apply(Executor& x, Value, const Arguments& a) {
  auto* differentiation = dynamic_cast<Differentiation*>(&x.session);
  if (differentiation == nullptr) x.fail("a custom autograd function");
  if (x.session.in_transform()) x.fail("a custom autograd function inside a functional transform");
  if (a.n_keywords() > 0) x.fail("a custom autograd function with keyword arguments");
  const auto applied = std::make_shared<Applied>();
  const int64_t number = differentiation->add_function(
      [&x, applied](std::span<PyObject* const> gradients) { return interpret_backward(x, *applied, gradients); });
  const Ref n = Ref::steal(PyLong_FromLongLong(number));
  ArgumentList list;
  list.reserve(static_cast<size_t>(a.n) + 1);
  list.add({n.get(), kNoSource});
  list.add(a);
  list.set_keyword_names(a.kwnames);
  const Ref body = polyfill("function_apply");
  const Owned out = x.call_function({body.get(), kNoSource}, list.get());
  if (!out) return {};
  applied->type = Owned::borrow(a[0]);
  applied->context = Ref::borrow(PyTuple_GET_ITEM(out.ref.get(), 0));
  return Owned::borrow(x.prov.item_of(out.get(), PyTuple_GET_ITEM(out.ref.get(), 1), 1));
}

bool requires_grad(Executor& x, Value v) {
  if (x.prov.category(v.object) != Category::Tensor) return false;
  return x.get_attribute(v, interned("requires_grad")).ref.get() == Py_True;
}

// What of a checkpoint is not computed, but says how.
struct CheckpointOptions {
  ArgumentList arguments;   // of the function
  Ref kwnames;
  bool reentrant = false;

  CheckpointOptions(Executor& x, const Arguments& a);
};

CheckpointOptions::CheckpointOptions(Executor& x, const Arguments& a) {
  const auto is_named = [](PyObject* name, const char* text) { return PyUnicode_CompareWithASCIIString(name, text) == 0; };
  for (int64_t i = 0; i < a.n_positional(); i++) arguments.add(a[i]);
  std::vector<PyObject*> names;
  bool kind_is_given = false;
  for (int64_t k = 0; k < a.n_keywords(); k++) {
    PyObject* name = PyTuple_GET_ITEM(a.kwnames, k);
    const Value value = a[a.n_positional() + k];
    if (is_named(name, "context_fn")) x.fail("a checkpoint with a context_fn");
    if (is_named(name, "use_reentrant")) {
      x.prov.use_constant(value);
      kind_is_given = PyBool_Check(value.object);
      reentrant = value.object == Py_True;
    } else if (is_named(name, "preserve_rng_state")) {
      x.prov.use_constant(value);
      if (value.object != Py_True) x.fail("a checkpoint that draws new random numbers for the backward pass");
    } else if (is_named(name, "determinism_check") || is_named(name, "debug") || is_named(name, "early_stop")) {
      x.prov.use_constant(value);   // of when and how the body is computed again
    } else {
      names.push_back(name);
      arguments.add(value);
    }
  }
  if (!kind_is_given) x.fail("a checkpoint without use_reentrant, of which eager warns");
  if (reentrant && !names.empty()) x.fail("a reentrant checkpoint with keyword arguments");
  if (names.empty()) return;
  kwnames = Ref::steal(PyTuple_New(static_cast<Py_ssize_t>(names.size())));
  for (size_t i = 0; i < names.size(); i++)
    PyTuple_SET_ITEM(kwnames.get(), static_cast<Py_ssize_t>(i), Ref::borrow(names[i]).release());
  arguments.set_keyword_names(kwnames.get());
}

// A reentrant checkpoint is differentiated only if an argument requires grad, and then all results do.
void check_reentrant_result(Executor& x, Value result) {
  const auto check = [&](Value v) {
    if (x.prov.category(v.object) == Category::Tensor && !requires_grad(x, v))
      x.fail("a result of a reentrant checkpoint does not require grad");
  };
  if (!PyTuple_CheckExact(result.object)) return check(result);
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(result.object); i++)
    check(x.prov.item_of(result, PyTuple_GET_ITEM(result.object, i), i));
}

// Eager calls the function again for the backward pass: what it does beside computing is done twice.
Owned checkpoint(Executor& x, Value, const Arguments& a) {
  auto* differentiation = dynamic_cast<Differentiation*>(&x.session);
  if (differentiation == nullptr) x.fail("a checkpoint");
  if (x.session.in_transform()) x.fail("a checkpoint inside a functional transform");
  const CheckpointOptions options(x, a);
  if (options.reentrant) {
    bool any = false;
    for (int64_t i = 1; i < a.n_positional(); i++) any |= requires_grad(x, a[i]);
    if (!any) x.fail("a reentrant checkpoint none of whose arguments requires grad");
  }
  const std::vector<PyObject*> effects = side_effects(x);
  const std::span<PyObject* const> arguments(a.objects, static_cast<size_t>(a.n));
  const uint64_t changes = differentiation->n_changes(arguments);
  const Ref body = polyfill("checkpoint");
  Owned result = x.call_function({body.get(), kNoSource}, options.arguments.get());
  if (!result) return result;
  if (side_effects(x) != effects || differentiation->n_changes(arguments) != changes)
    x.fail("a checkpoint with side effects");
  if (options.reentrant) check_reentrant_result(x, result.get());
  return result;
}

Owned grad(Executor& x, Value, const Arguments& a) {
  if (registered_native("run_backward") == nullptr) x.fail("a backward pass");
  return x.call_function({polyfill("autograd_grad").get(), kNoSource}, a);
}

Owned backward(Executor& x, Value, const Arguments& a) {
  if (registered_native("run_backward") == nullptr) x.fail("a backward pass");
  return x.call_function({polyfill("autograd_backward").get(), kNoSource}, a);
}

// The engine object itself is the process's.
Owned run_backward(Executor& x, Value, const Arguments& a) {
  PyObject* native = registered_native("run_backward");
  if (native == nullptr || a.n_positional() < 2 || !PyTuple_Check(a[1].object)) x.fail("a backward pass");
  const Value accumulates = a.n_positional() > 7 ? a[7] : a.keyword("accumulate_grad");
  if (accumulates.object != nullptr && accumulates.object != Py_False) load_gradients(x, a[1]);
  ArgumentList list;
  list.add(a, 1);
  list.set_keyword_names(a.kwnames);
  return x.call_tensor(native, list.get());
}

// Of the sources that are new since there were n: one whose value the program may change before the hook runs.
bool reads_state(Executor& x, size_t n) {
  const SourceTable& sources = x.prov.sources();
  for (size_t i = n; i < sources.size(); i++) {
    const auto src = static_cast<Src>(i);
    switch (sources[src].kind) {
      case SourceKind::FuncCode: case SourceKind::FuncDefaults: case SourceKind::FuncKwDefaults:
      case SourceKind::Type: case SourceKind::Constant: continue;
      default: break;
    }
    PyObject* const object = x.prov.object_at(src);
    if (object != nullptr && x.prov.category(object) != Category::Referent) return true;
  }
  return false;
}

Result<Ref> interpret_hook(Executor& x, const Owned& hook, PyObject* gradient) {
  try {
    const bool later = x.frame() == nullptr;   // at the end of the trace: the backward pass comes after the call
    const size_t n_sources = x.prov.sources().size();
    const Owned out = x.call(hook.get(), {Value{gradient, kNoSource}});
    if (later && reads_state(x, n_sources)) return Unsupported{"a hook on a gradient that reads what may change until it runs", ""};
    if (!out) {
      PyErr_Clear();
      return Unsupported{"a hook on a gradient raises an error", ""};
    }
    if (out.ref.get() == Py_None) return out.ref;
    if (x.prov.category(out.ref.get()) != Category::Tensor) return Unsupported{"a hook gives what is no gradient", ""};
    return stand_in(x, out.get());
  } catch (const Abort& abort) {
    PyErr_Clear();
    return abort.why;
  }
}

// Tensors that the call has not computed keep their hooks to themselves.
Owned register_hook(Executor& x, Value callable, const Arguments& a) {
  auto* differentiation = dynamic_cast<Differentiation*>(&x.session);
  const bool computed = a.n == 2 && a.n_keywords() == 0 && x.session.is_traced(a.objects[0]) &&
                        x.session.real_of(a.objects[0]) == nullptr;
  if (differentiation == nullptr || !computed || x.session.in_transform() || !requires_grad(x, a[0])) {
    return x.call_function(callable, a);
  }
  const auto hook = std::make_shared<const Owned>(Owned::borrow(a[1]));
  const Result<int64_t> number = differentiation->add_hook(
      a.objects[0], [&x, hook](std::span<PyObject* const> gradients) { return interpret_hook(x, *hook, gradients[0]); });
  if (!number.ok()) throw Abort{number.why()};
  x.note_hook();
  const Ref n = Ref::steal(PyLong_FromLongLong(*number));
  return x.call({polyfill("hook_handle").get(), kNoSource}, {Value{n.get(), kNoSource}});
}

// Torch's thin Python functions around natives of functional transforms: `f` calls `f_impl`, unless it is exported.
Owned transform_native(Executor& x, Value callable, const Arguments& a) {
  auto* const function = reinterpret_cast<PyFunctionObject*>(callable.object);
  const Ref name = Ref::steal(PyUnicode_FromFormat("%U_impl", function->func_name));
  PyObject* const native = name ? PyDict_GetItemWithError(function->func_globals, name.get()) : nullptr;
  if (native == nullptr) x.fail("a functional transform of an unknown kind");
  return x.call({native, kNoSource}, a);
}

// A negative dimension counts from the end.
Owned add_batch_dim(Executor& x, Value callable, const Arguments& a) {
  if (a.n < 2 || !PyLong_CheckExact(a.objects[1]) || PyLong_AsLong(a.objects[1]) < 0) {
    return x.call_function(callable, a);
  }
  return transform_native(x, callable, a);
}

// Transforms that run torch's own tracer, whose modes no graph can stand in the middle of.
Owned traced_by_torch(Executor& x, Value callable, const Arguments&) {
  x.fail(std::string("call of ") + PyUnicode_AsUTF8(reinterpret_cast<PyFunctionObject*>(callable.object)->func_name) +
         "(), which traces by itself");
}

Owned transform_gradient(Executor& x, Value, const Arguments& a) {
  return x.call_function({polyfill("transform_gradient").get(), kNoSource}, a);
}

Owned legacy_vmap(Executor& x, Value, const Arguments& a) {
  return x.call_function({polyfill("legacy_vmap").get(), kNoSource}, a);
}

}  // namespace

void register_native(const char* name, PyObject* native) { registered()[name] = native; }

PyObject* registered_native(const char* name) {
  const auto found = registered().find(name);
  return found == registered().end() ? nullptr : found->second;
}

std::vector<PyObject*> side_effects(Executor& x) {
  std::vector<PyObject*> out;
  for (const Effect& e : x.effects) out.push_back(e.callable.get());
  for (const auto& shadow : x.prov.shadows())
    for (const Shadow::Attribute& attribute : shadow->attributes) out.push_back(attribute.value.ref.get());
  return out;
}

const std::vector<ModelRow>& autograd_models() {
  static const std::vector<ModelRow> rows = {
      {"torch.autograd.function.Function.apply.__func__", apply},
      {"torch.utils.checkpoint.checkpoint", checkpoint},
      {"torch.autograd.grad", grad},
      {"torch.autograd.backward", backward},
      {"torch.autograd.variable.Variable._execution_engine.run_backward", run_backward},
      {"torch._tensor.Tensor.register_hook", register_hook},
      {"torch._functorch.predispatch._add_batch_dim", add_batch_dim},
      {"torch._functorch.predispatch._remove_batch_dim", transform_native},
      {"torch._functorch.predispatch._vmap_increment_nesting", transform_native},
      {"torch._functorch.predispatch._vmap_decrement_nesting", transform_native},
      {"torch._functorch.predispatch._jvp_increment_nesting", transform_native},
      {"torch._functorch.predispatch._jvp_decrement_nesting", transform_native},
      {"torch._functorch.predispatch._unwrap_for_grad", transform_native},
      {"torch._functorch.predispatch._make_dual", transform_native},
      {"torch._functorch.predispatch._unpack_dual", transform_native},
      {"torch._functorch.predispatch._enter_dual_level", transform_native},
      {"torch._functorch.predispatch._exit_dual_level", transform_native},
      {"torch._functorch.eager_transforms._autograd_grad", transform_gradient},
      {"torch._vmap_internals._vmap", legacy_vmap},
      {"torch._functorch.eager_transforms.linearize", traced_by_torch},
      {"torch.fx.experimental.proxy_tensor.make_fx", traced_by_torch},
  };
  return rows;
}

}  // namespace braze::capture
