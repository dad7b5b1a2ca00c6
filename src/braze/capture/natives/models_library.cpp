// Models of library functions that would otherwise be interpreted at length, or that reflect on the interpreter.
#include <string_view>

#include "braze/capture/differentiation.h"
#include "braze/capture/markings.h"
#include "braze/capture/natives/arity.h"
#include "braze/capture/natives/natives.h"

namespace braze::capture {

namespace {

// Optimizers take eager's way, with its arithmetic: the numbers that they read out of tensors are symbolic.
Owned is_compiling(Executor& x, Value, const Arguments&) {
  return Owned::boolean(x.frame() == nullptr || !is_of_module(x.frame()->function.object, "torch.optim."));
}
Owned always_none(Executor&, Value, const Arguments&) { return Owned::none(); }

// has_torch_function(...): depends on the types of the arguments only.
Owned by_types(Executor& x, Value callable, const Arguments& a) {
  for (int64_t i = 0; i < a.n; i++) {
    x.prov.use_type(a[i]);
    if (PyTuple_Check(a.objects[i]) || PyList_Check(a.objects[i])) {
      const Py_ssize_t n = PySequence_Fast_GET_SIZE(a.objects[i]);
      if (a[i].src != kNoSource) x.prov.use_length(a[i], n);
      for (Py_ssize_t k = 0; k < n; k++) {
        x.prov.use_type(x.prov.item_of(a[i], PySequence_Fast_GET_ITEM(a.objects[i], k), k));
      }
    }
  }
  return Owned::steal(PyObject_Vectorcall(callable.object, a.objects, static_cast<size_t>(a.n), a.kwnames));
}

// Objects that keep torch's dispatch modes off as long as they live, of which none is on in a trace; and ranges in a
// profile, which would show nothing of compiled code.
Owned inert(Executor& x, Value type, const Arguments&) {
  x.prov.use_constant(type);
  return x.call_function({polyfill("null_context").get(), kNoSource}, ArgumentList().get());
}

// A function of the module math: of a symbolic number, a symbolic number where the tensor domain knows the function.
Owned math(Executor& x, Value callable, const Arguments& a) {
  const Value v = a.n == 1 ? x.number(a[0]) : Value{};
  const Owned real = v.object != nullptr && x.prov.category(v.object) == Category::Symbolic ? x.to_symbolic_float(v) : Owned();
  if (!real) return x.call_pure(callable.object, a);
  const std::string_view name = reinterpret_cast<PyCFunctionObject*>(callable.object)->m_ml->ml_name;
  if ((name == "floor" || name == "ceil") && std::string_view(Py_TYPE(v.object)->tp_name) == "SymInt") return Owned::borrow(v);
  Result<Ref> result = x.session.math(name.data(), real.ref.get(), nullptr);
  if (!result.ok()) throw Abort{result.why()};
  return *result ? Owned(*result) : x.call_pure(callable.object, a);
}

// max and min of two floats of which one is known to the graph alone: no question about them has an answer.
Owned extreme(Executor& x, Value callable, const Arguments& a) {
  if (a.n != 2 || a.n_keywords() > 0) return {};
  const Value p = x.number(a[0]), q = x.number(a[1]);
  if (x.prov.category(p.object) != Category::Symbolic && x.prov.category(q.object) != Category::Symbolic) return {};
  Result<Ref> result = x.session.math(reinterpret_cast<PyCFunctionObject*>(callable.object)->m_ml->ml_name, p.object, q.object);
  if (!result.ok()) throw Abort{result.why()};
  if (!*result) return {};
  x.prov.use_constant(p);
  x.prov.use_constant(q);
  return Owned(*result);
}

Ref default_generator() {
  const Ref torch = Ref::steal(PyImport_GetModule(interned("torch")));
  return torch ? Ref::steal(PyObject_GetAttr(torch.get(), interned("default_generator"))) : Ref();
}

// The process's CPU generator, whose state the graph reads and writes; others are not known to the graph.
Owned generator_state(Executor& x, const Arguments& a, const char* native) {
  if (a.objects[0] != default_generator().get() || registered_native(native) == nullptr) {
    PyErr_Clear();
    x.fail("the state of a random generator");
  }
  x.prov.use_identity(a[0]);
  ArgumentList arguments;
  arguments.add(a, 1);
  return x.call_tensor(registered_native(native), arguments.get());
}

Owned get_state(Executor& x, Value, const Arguments& a) { return generator_state(x, a, "get_rng_state"); }
Owned set_state(Executor& x, Value, const Arguments& a) {
  return generator_state(x, a, "set_rng_state") ? Owned::borrow(a[0]) : Owned();
}

// Other devices are seeded when the call's work is done.
Owned manual_seed(Executor& x, Value, const Arguments& a) {
  if (a.n != 1 || registered_native("manual_seed") == nullptr) x.fail("a seed");
  const Owned seed = x.concrete(a[0]);
  if (!PyLong_CheckExact(seed.ref.get())) x.fail("a seed that is no int");
  x.prov.use_constant(seed.get());
  ArgumentList arguments;
  arguments.add(seed.get());
  if (!x.call_tensor(registered_native("manual_seed"), arguments.get())) return {};
  for (const char* device : {"torch.cuda", "torch.xpu"}) {
    const Ref module = Ref::steal(PyImport_GetModule(interned(device)));
    const Ref all = module ? Ref::steal(PyObject_GetAttr(module.get(), interned("manual_seed_all"))) : Ref();
    if (all) x.add_effect(all.get(), arguments.get());
  }
  PyErr_Clear();
  const Ref generator = default_generator();
  x.prov.add_derived(generator.get());
  return Owned(generator);
}

// A symbolic number, or a list or tuple that holds one.
bool holds_symbolic(Executor& x, Value data, int depth = 0) {
  constexpr int kDeepest = 20;
  if (x.prov.category(x.number(data).object) == Category::Symbolic) return true;
  data = x.seen(data);
  if (depth > kDeepest || !(PyList_CheckExact(data.object) || PyTuple_CheckExact(data.object))) return false;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(data.object); i++) {
    PyObject* item = PySequence_Fast_GET_ITEM(data.object, i);
    if (holds_symbolic(x, x.prov.item_of(data, item, i), depth + 1)) return true;
  }
  return false;
}

// torch.tensor and torch.as_tensor, which would need the numbers' values.
Owned new_tensor(Executor& x, Value callable, const Arguments& a) {
  if (a.n_positional() == 1 && holds_symbolic(x, a[0])) return x.call_function({polyfill("tensor_of_numbers").get(), kNoSource}, a);
  return x.call_tensor(callable.object, a);
}

// inspect.signature(f): a property of the function, which is guarded by identity.
Owned model_signature(Executor& x, Value callable, const Arguments& a) {
  if (a.n != 1) x.fail("inspect.signature with options");
  Value f = a[0];
  if (Py_TYPE(f.object) == &PyMethod_Type) {
    auto* m = reinterpret_cast<PyMethodObject*>(f.object);
    x.prov.use_type(f);
    const Src src = f.src == kNoSource ? x.prov.recall(f.object, m->im_func) : x.prov.intern(SourceKind::Method, f.src, 1);
    x.prov.use_constant({m->im_func, src});
  } else if (PyFunction_Check(f.object) || PyType_Check(f.object) || PyCFunction_Check(f.object)) {
    if (!x.prov.is_fresh(f.object)) x.prov.use_constant(f);
  } else {
    x.fail("the signature of an object that is no function");
  }
  const Ref signature = Ref::steal(PyObject_Vectorcall(callable.object, a.objects, 1, nullptr));
  if (signature) x.prov.add_derived(signature.get());
  return Owned(signature);
}

// Given again when the call's work is done; arguments must be what they will be then.
Owned later(Executor& x, Value callable, const Arguments& a) {
  for (int64_t i = 0; i < a.n; i++) {
    const Category c = x.prov.category(a.objects[i]);
    if (c != Category::Constant && c != Category::Referent && a[i].src == kNoSource) {
      x.fail("a message about an object that the call makes");
    }
  }
  x.add_effect(callable.object, a);
  return Owned::none();
}

// Logger.debug and so on: nothing where the level is off, which the logger remembers in a dict.
Owned log_at(Executor& x, Value callable, const Arguments& a, long level) {
  const Ref enabled = Ref::steal(PyObject_CallMethod(a.objects[0], "isEnabledFor", "l", level));
  if (!enabled) return {};
  const Owned cache = x.get_attribute(a[0], interned("_cache"));
  const Ref key = Ref::steal(PyLong_FromLong(level));
  if (!cache) return {};
  x.prov.use_constant(x.dict_get(cache.get(), {key.get(), kNoSource}));
  return enabled.get() == Py_True ? later(x, callable, a) : Owned::none();
}

Owned log_debug(Executor& x, Value c, const Arguments& a) { return log_at(x, c, a, 10); }
Owned log_info(Executor& x, Value c, const Arguments& a) { return log_at(x, c, a, 20); }
Owned log_warning(Executor& x, Value c, const Arguments& a) { return log_at(x, c, a, 30); }
Owned log_error(Executor& x, Value c, const Arguments& a) { return log_at(x, c, a, 40); }

Owned thread_identity(Executor& x, Value callable, const Arguments&) {
  const Ref number = Ref::steal(PyObject_CallNoArgs(callable.object));
  if (number) x.prov.add_address(number);
  return Owned(number);
}

// The exception that the program handles at this point.
Owned exception(Executor& x, Value, const Arguments& a) {
  require_arity("exception", a, 0, 0);
  return Owned::borrow(x.exception_to_reraise());
}

Owned exc_info(Executor& x, Value, const Arguments& a) {
  require_arity("exc_info", a, 0, 0);
  const Value handled = x.exception_to_reraise();
  x.prov.use_constant(handled);   // None
  if (handled.object == Py_None) {
    const Value nothing[] = {handled, handled, handled};
    return x.make_tuple(nothing, 3);
  }
  x.prov.use_type(handled);
  const Owned traceback = x.traceback_of(handled);
  const Value info[] = {{reinterpret_cast<PyObject*>(Py_TYPE(handled.object)), kNoSource}, handled, traceback.get()};
  return x.make_tuple(info, 3);
}

// Of keywords, such as all attributes of an object, only those that the text names are read.
Owned str_format(Executor& x, Value callable, const Arguments& a) {
  if (a.n_keywords() == 0 || a.n_positional() == 0 || !PyUnicode_CheckExact(a.objects[0])) return x.call_pure(callable.object, a);
  x.prov.use_constant(a[0]);
  const Ref module = Ref::steal(PyImport_ImportModule("_string"));
  const Ref fields = module ? Ref::steal(PyObject_CallMethod(module.get(), "formatter_parser", "O", a.objects[0])) : Ref();
  const Ref parsed = fields ? Ref::steal(PySequence_List(fields.get())) : Ref();
  if (!parsed) return PyErr_Clear(), x.call_pure(callable.object, a);   // raises
  const Ref read = Ref::steal(PySet_New(nullptr));
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(parsed.get()); i++) {   // (literal, field, specification, conversion)
    PyObject* const field = PyTuple_GET_ITEM(PyList_GET_ITEM(parsed.get(), i), 1);
    PyObject* const spec = PyTuple_GET_ITEM(PyList_GET_ITEM(parsed.get(), i), 2);
    if (field == Py_None) continue;
    if (PyUnicode_FindChar(spec, '{', 0, PY_SSIZE_T_MAX, 1) >= 0) return x.call_pure(callable.object, a);
    const Py_ssize_t size = PyUnicode_GET_LENGTH(field);
    Py_ssize_t end = 0;
    while (end < size && PyUnicode_READ_CHAR(field, end) != '.' && PyUnicode_READ_CHAR(field, end) != '[') end++;
    const Ref name = Ref::steal(PyUnicode_Substring(field, 0, end));
    PySet_Add(read.get(), name.get());
  }
  ArgumentList kept;
  for (int64_t i = 0; i < a.n_positional(); i++) kept.add(a[i]);
  const Ref names = Ref::steal(PyList_New(0));
  for (int64_t k = 0; k < a.n_keywords(); k++) {
    if (PySet_Contains(read.get(), PyTuple_GET_ITEM(a.kwnames, k)) != 1) continue;
    PyList_Append(names.get(), PyTuple_GET_ITEM(a.kwnames, k));
    kept.add(a[a.n_positional() + k]);
  }
  const Ref kwnames = Ref::steal(PyList_AsTuple(names.get()));
  kept.set_keyword_names(PyTuple_GET_SIZE(kwnames.get()) == 0 ? nullptr : kwnames.get());
  return x.call_pure(callable.object, kept.get());
}

Owned is_derived_of_class(Executor& x, Value callable, const Arguments& a) {
  if (a.n != 1) x.fail("a library function with unusual arguments");
  PyObject* type = PyType_Check(a.objects[0]) ? a.objects[0] : reinterpret_cast<PyObject*>(Py_TYPE(a.objects[0]));
  if (PyType_Check(a.objects[0])) {
    x.prov.use_constant(a[0]);
  } else {
    x.prov.use_type(a[0]);
  }
  PyObject* const arguments[] = {type};
  const Ref result = Ref::steal(PyObject_Vectorcall(callable.object, arguments, 1, nullptr));
  if (result) x.prov.add_derived(result.get());
  return Owned(result);
}

// Regular expressions read templates for replacements in Python code of theirs; a function for a replacement is the user's.
Owned regex_template(Executor& x, Value callable, const Arguments& a) {
  for (int64_t i = 1; i < a.n; i++) {
    if (x.prov.category(a.objects[i]) != Category::Constant) return x.call_pure(callable.object, a);
  }
  for (int64_t i = 0; i < a.n; i++) x.prov.use_deep(a[i]);
  return x.fresh_native(
      Ref::steal(PyObject_Vectorcall(callable.object, a.objects, static_cast<size_t>(a.n_positional()), a.kwnames)));
}

}  // namespace

const std::vector<ModelRow>& shortcuts() {
  static const std::vector<ModelRow> rows = {{"builtins.max", extreme}, {"builtins.min", extreme}};
  return rows;
}

const std::vector<ModelRow>& library_models() {
  static const std::vector<ModelRow> rows = {
      {"re.Pattern.sub", regex_template}, {"re.Pattern.subn", regex_template}, {"re.Match.expand", regex_template},
      {"torch.compiler.is_compiling", is_compiling}, {"torch.compiler.is_dynamo_compiling", is_compiling},
      {"torch._dynamo.external_utils.is_compiling", is_compiling}, {"torch._utils.is_compiling", is_compiling},
      {"torch._C._has_torch_function", by_types}, {"torch._C._has_torch_function_unary", by_types},
      {"torch._C._has_torch_function_variadic", by_types}, {"torch._C._log_api_usage_once", always_none},
      {"torch._C._log_api_usage_metadata", always_none}, {"torch._logging._internal.trace_structured", always_none},
      // Stock torch.compile's notes on modules as they are made.
      {"torch._dynamo.mutation_guard.GenerationTracker.tag", always_none},
      {"torch._C._DisableTorchDispatch", inert}, {"torch._C._DisableFuncTorch", inert},
      {"torch.random.manual_seed", manual_seed},
      {"torch.default_generator.get_state", get_state}, {"torch.default_generator.set_state", set_state},
      {"torch.autograd.profiler.record_function", inert},
      {"_thread.get_ident", thread_identity}, {"sys.exc_info", exc_info}, {"sys.exception", exception},
      {"torch._C._dynamo.eval_frame.set_eval_frame", always_none},
      {"torch.tensor", new_tensor}, {"torch.as_tensor", new_tensor},
      {"math.floor", math}, {"math.ceil", math}, {"math.sqrt", math}, {"math.exp", math}, {"math.log", math}, {"math.sin", math}, {"math.cos", math},
      {"builtins.str.format", str_format}, {"inspect.signature", model_signature}, {"_warnings.warn", later},
      {"dataclasses.fields", is_derived_of_class}, {"dataclasses.is_dataclass", is_derived_of_class},
      {"logging.Logger.debug", log_debug}, {"logging.Logger.info", log_info},
      {"logging.Logger.warning", log_warning}, {"logging.Logger.error", log_error},
  };
  return rows;
}

}  // namespace braze::capture
