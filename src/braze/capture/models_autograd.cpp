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

// Steps count in tensors, whose values the call can't read.
Owned step_value(Executor& x, Value, const Arguments& a) {
  return x.call_function({polyfill("step_value").get(), kNoSource}, a);
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
      {"torch.optim.optimizer._get_value", step_value},
      {"torch.autograd.variable.Variable._execution_engine.run_backward", run_backward},
  };
  return rows;
}

}  // namespace braze::capture
