// Calling: functions on real frames, bound methods, classes, callable instances, generators, native callables.
#include <algorithm>

#include "braze/capture/binding.h"
#include "braze/capture/execute/executor.h"
#include "braze/capture/guards/load.h"
#include "braze/capture/markings.h"
#include "braze/capture/natives/natives.h"
#include "braze/support/check.h"

namespace braze::capture {

namespace {

std::string describe_callable(PyObject* callable) {
  const Ref name = Ref::steal(PyObject_GetAttrString(callable, "__qualname__"));
  PyErr_Clear();
  const Ref module = Ref::steal(PyObject_GetAttrString(callable, "__module__"));
  PyErr_Clear();
  std::string out;
  if (module && PyUnicode_Check(module.get())) out = std::string(PyUnicode_AsUTF8(module.get())) + ".";
  if (!name || !PyUnicode_Check(name.get())) return std::string("an object of type ") + Py_TYPE(callable)->tp_name;
  out += PyUnicode_AsUTF8(name.get());
  if (PyCFunction_Check(callable)) {
    PyObject* self = PyCFunction_GET_SELF(callable);
    if (self != nullptr && !PyModule_Check(self)) out += std::string(" of ") + Py_TYPE(self)->tp_name;
  }
  return out;
}

bool is_lru_wrapper(PyTypeObject* type) {
  static PyTypeObject* const wrapper = [] {
    const Ref functools = Ref::steal(PyImport_ImportModule("functools"));
    const Ref t = functools ? Ref::steal(PyObject_GetAttrString(functools.get(), "_lru_cache_wrapper")) : Ref();
    PyErr_Clear();
    return reinterpret_cast<PyTypeObject*>(Ref(t).release());
  }();
  return type == wrapper;
}

PyTypeObject* partial_type() {
  static PyTypeObject* const type = [] {
    const Ref functools = Ref::steal(PyImport_ImportModule("functools"));
    const Ref t = functools ? Ref::steal(PyObject_GetAttrString(functools.get(), "partial")) : Ref();
    PyErr_Clear();
    return reinterpret_cast<PyTypeObject*>(Ref(t).release());
  }();
  return type;
}

}  // namespace

// --- functions

// Functions that stand at lasting places are guarded by identity; others, that may be made anew for each call, by code.
void Executor::use_function(Value f) {
  if (f.src == kNoSource || prov.is_guarded_constant(f.src)) return;
  switch (prov.sources()[f.src].kind) {
    case SourceKind::Arg:
    case SourceKind::Closure:
    case SourceKind::Item:
    case SourceKind::Key:
    case SourceKind::Method: {
      prov.use_type(f);
      PyObject* code = reinterpret_cast<PyFunctionObject*>(f.object)->func_code;
      const Src src = prov.intern(SourceKind::FuncCode, f.src);
      prov.use_identity(prov.found(code, src));
      return;
    }
    default: prov.use_identity(f);
  }
}

// Which source each slot of a new frame has, by the rules by which CPython has just bound the arguments.
void Executor::bind_sources(Frame& f, const PendingCall& call) {
  const PyCodeObject* code = f.code->object;
  const Arguments& a = *call.arguments;
  auto* function = reinterpret_cast<PyFunctionObject*>(call.function.object);
  const Src fsrc = call.function.src;
  const int64_t n_positional = a.n_positional(), n_keywords = a.n_keywords();
  const int64_t n_args = code->co_argcount, n_all = n_args + code->co_kwonlyargcount;
  const int64_t n_defaults = function->func_defaults == nullptr ? 0 : PyTuple_GET_SIZE(function->func_defaults);
  const bool has_varargs = (code->co_flags & CO_VARARGS) != 0, has_kwargs = (code->co_flags & CO_VARKEYWORDS) != 0;
  const auto set = [&](int64_t slot, Value v) {
    PyObject* object = f.slots[slot];
    if (object == v.object) {
      f.src[slot] = v.src;
    } else if (object != nullptr && PyCell_Check(object)) {   // captured; made by CPython for generators
      prov.add_fresh(object);
      prov.stored(object, v);
    }
  };
  std::vector<bool> used(static_cast<size_t>(n_keywords), false);
  for (int64_t i = 0; i < n_all; i++) {
    if (i < n_args && i < n_positional) {
      set(i, a[i]);
      continue;
    }
    PyObject* name = PyTuple_GET_ITEM(code->co_localsplusnames, i);
    bool bound = false;
    for (int64_t k = 0; k < n_keywords && i >= code->co_posonlyargcount && !bound; k++) {
      PyObject* given = PyTuple_GET_ITEM(a.kwnames, k);
      if (given == name || PyUnicode_Compare(given, name) == 0) {
        set(i, a[n_positional + k]);
        used[static_cast<size_t>(k)] = bound = true;
      }
    }
    if (bound) continue;
    if (i < n_args) {
      PyObject* value = PyTuple_GET_ITEM(function->func_defaults, i - (n_args - n_defaults));
      if (fsrc == kNoSource) {
        set(i, {value, prov.recall(function->func_defaults, value)});
        continue;
      }
      // The tuple can't change: its identity fixes the constants in it.
      const Src src = prov.intern(SourceKind::FuncDefaults, fsrc);
      prov.use_identity(prov.found(function->func_defaults, src));
      const Category c = prov.category(value);
      if (c == Category::Constant || c == Category::Referent) {
        set(i, {value, kNoSource});
      } else {
        set(i, prov.item_of({function->func_defaults, src}, value, i - (n_args - n_defaults)));
      }
    } else {
      PyObject* value = PyDict_GetItemWithError(function->func_kwdefaults, name);
      if (fsrc == kNoSource) {
        set(i, {value, prov.recall(function->func_kwdefaults, value)});
      } else {
        const Src src = prov.intern(SourceKind::FuncKwDefaults, fsrc);
        set(i, prov.value_of(prov.found(function->func_kwdefaults, src), name, value));
      }
    }
  }
  const auto contents = [&](int64_t slot) {
    PyObject* object = f.slots[slot];
    return object != nullptr && PyCell_Check(object) ? PyCell_GET(object) : object;
  };
  if (has_varargs) {
    PyObject* rest = contents(n_all);
    for (int64_t i = n_args; i < n_positional; i++) prov.stored(rest, a[i]);
    if (f.slots[n_all] != rest) prov.add_fresh(f.slots[n_all]);
  }
  if (has_kwargs) {
    const int64_t slot = n_all + (has_varargs ? 1 : 0);
    PyObject* rest = contents(slot);
    prov.add_fresh(rest);
    for (int64_t k = 0; k < n_keywords; k++) {
      if (!used[static_cast<size_t>(k)]) prov.stored(rest, a[n_positional + k]);
    }
    if (f.slots[slot] != rest) prov.add_fresh(f.slots[slot]);
  }
}

namespace {

// What keeps the repr() of a dataclass from calling itself for ever, by the object's address. Without it such a repr
// leaves the trace with a RecursionError.
bool is_recursion_guard(const PyFunctionObject* f) {
  const auto is = [](PyObject* text, const char* expected) {
    return PyUnicode_Check(text) && PyUnicode_CompareWithASCIIString(text, expected) == 0;
  };
  if (!is(f->func_name, "__repr__") && !is(f->func_name, "wrapper")) return false;
  PyObject* const qualified = reinterpret_cast<PyCodeObject*>(f->func_code)->co_qualname;
  return f->func_module != nullptr && f->func_dict != nullptr &&
         (is(qualified, "_recursive_repr.<locals>.wrapper") ||
          is(qualified, "recursive_repr.<locals>.decorating_function.<locals>.wrapper"));
}

// What keeps TorchDynamo out of a function of torch's own, and loads Dynamo to do so.
bool is_dynamo_guard(PyFunctionObject* f) {
  PyObject* const qualified = reinterpret_cast<PyCodeObject*>(f->func_code)->co_qualname;
  return PyUnicode_CompareWithASCIIString(qualified, "_disable_dynamo.<locals>.inner") == 0 &&
         is_torchs_own(reinterpret_cast<PyObject*>(f));
}

}  // namespace

Owned Executor::call_function(Value function, const Arguments& a) {
  auto* f = reinterpret_cast<PyFunctionObject*>(function.object);
  const Code& code = decode(reinterpret_cast<PyCodeObject*>(f->func_code));
  const After after = take_after();
  use_function(function);
  if (is_recursion_guard(f) || is_dynamo_guard(f)) {
    const Owned wrapped = get_attribute(function, interned("__wrapped__"));
    if (!wrapped) return {};
    after_ = after;
    return call(wrapped.get(), a);
  }
  switch (marking_of(f)) {
    case Marking::None: break;
    case Marking::Disabled: fail("call of a function that is marked to run eagerly: " + describe_callable(function.object));
    case Marking::GraphBreak:
      if (frame_ != nullptr && is_torchs_own(frame_->function.object)) return Owned::none();
      fail("a graph break that the program asks for");
    case Marking::AllowedInGraph: prov.use_identity(function); return call_tensor(function.object, a);
  }
  if (code.coroutine) fail("a coroutine");
  const size_t n_positional = static_cast<size_t>(a.n_positional());
  if (!code.generator) {
    pending_ = {function, &a, kNoSource, after};
    arm(this);
    PyObject* result = call_function_object(function.object, a.objects, n_positional, a.kwnames);
    disarm();
    check_abort();
    return Owned::steal(result, result == nullptr ? kNoSource : returned_);
  }
  // CPython runs the prologue, which makes the generator and its cells.
  const Ref generator = Ref::steal(call_function_object(function.object, a.objects, n_positional, a.kwnames));
  if (!generator) return {};
  NativeFrame* native = frame_of_generator(generator.get());
  Frame frame;
  frame.view = view(native);
  frame.code = &code;
  frame.slots = frame.view.slots;
  std::vector<Src> slots(static_cast<size_t>(code.n_slots + code.n_stack) + 1, kNoSource);
  frame.src = slots.data();
  bind_sources(frame, {function, &a, kNoSource});
  const int64_t first_free = code.n_slots - code.object->co_nfreevars;
  for (int64_t i = 0; i < code.n_slots; i++) {
    PyObject* cell = frame.slots[i];
    if (cell == nullptr || !PyCell_Check(cell)) continue;
    if (i < first_free) {
      prov.add_fresh(cell);
    } else if (function.src != kNoSource) {
      slots[static_cast<size_t>(i)] =
          prov.found(cell, prov.intern(SourceKind::ClosureCell, function.src, i - first_free)).src;
    } else {
      slots[static_cast<size_t>(i)] = prov.recall(f->func_closure, cell);
    }
  }
  Fresh& record = prov.add_fresh(generator.get());
  record.slots = std::move(slots);
  record.function = function;
  return Owned(generator);
}

Owned Executor::send(Value generator, Value sent, bool& finished) {
  const After after = take_after();
  const Fresh* record = prov.find_fresh(generator.object);
  if (record == nullptr || record->slots.empty()) fail("a generator that was made before the call");
  pending_ = {record->function, nullptr, sent.src, after};   // taken by its frame, which the hook knows to be ours
  PyObject* result = nullptr;
  const PySendResult outcome = PyIter_Send(generator.object, sent.object, &result);
  pending_ = {};
  check_abort();
  finished = outcome == PYGEN_RETURN;
  return outcome == PYGEN_ERROR ? Owned() : Owned::steal(result, returned_);
}

void Executor::note_suspended(PyObject* generator) {
  auto& all = suspended_generators_;
  if (std::find(all.begin(), all.end(), generator) == all.end()) all.push_back(generator);
}

bool has_handler_where_it_stands(PyObject* generator) {
  const FrameView v = view(frame_of_generator(generator));
  const Code& code = decode(v.code);
  const Handler* const handler = code.handler_of(code.index_of(static_cast<uint32_t>(v.next() - 1)));
  return handler != nullptr && code.insns[handler->target].op != Op::StopIterationError;
}

void Executor::close_dropped_generators() {
  static PyObject* const close = _PyType_Lookup(&PyGen_Type, interned("close"));
  auto& all = suspended_generators_;
  const auto is_alive = [](PyObject* generator) {   // their records keep the others
    const GeneratorState::Kind kind = generator_state(generator).kind;
    return kind == GeneratorState::Kind::Running || (kind != GeneratorState::Kind::Ended && Py_REFCNT(generator) > 1);
  };
  for (;;) {
    // All of them first: while one is closed, its frame looks for dropped ones, too.
    const auto first = std::stable_partition(all.begin(), all.end(), is_alive);
    if (first == all.end()) return;
    std::vector<PyObject*> dropped(first, all.end());
    all.erase(first, all.end());
    // Frames let go of their variables in order, which mostly is the order in which they were set.
    std::stable_sort(dropped.begin(), dropped.end(),
                     [&](PyObject* a, PyObject* b) { return prov.birth_of(a) < prov.birth_of(b); });
    for (PyObject* const generator : dropped) {
      if (generator_state(generator).kind == GeneratorState::Kind::Ended) continue;
      if (has_handler_where_it_stands(generator)) {
        const Value argument{generator, kNoSource};
        const Owned closed = resume_natively(close, {&argument.object, &argument.src, 1, nullptr});
        if (!closed) PyErr_Clear(), fail("a generator that does not close when it is dropped");
      } else {
        forget_generator(generator);   // and what only its frame holds
      }
    }
  }
}

Owned Executor::resume_natively(PyObject* callable, const Arguments& a) {
  const Fresh* record = prov.find_fresh(a.objects[0]);
  if (record == nullptr || record->slots.empty()) fail("a generator that was made before the call");
  pending_ = {record->function, nullptr, kNoSource};   // as in send()
  returned_ = kNoSource;
  PyObject* result = PyObject_Vectorcall(callable, a.objects, static_cast<size_t>(a.n_positional()), a.kwnames);
  pending_ = {};
  check_abort();
  return Owned::steal(result, returned_);
}

// --- dispatch

Owned Executor::call(Value callable, std::initializer_list<Value> arguments) {
  ArgumentList list;
  list.reserve(arguments.size());
  for (const Value& v : arguments) list.add(v);
  return call(callable, list.get());
}

Owned Executor::call_method(const Method& method, std::initializer_list<Value> arguments) {
  ArgumentList list;
  list.reserve(arguments.size() + 1);
  if (method.self) list.add(method.self.get());
  for (const Value& v : arguments) list.add(v);
  return call(method.function.get(), list.get());
}

Owned Executor::call(Value callable, const Arguments& a) {
  const After after = take_after();
  PyObject* object = callable.object;
  PyTypeObject* type = Py_TYPE(object);
  if (type == &PyMethod_Type) {
    auto* method = reinterpret_cast<PyMethodObject*>(object);
    Value function{method->im_func, prov.recall(object, method->im_func)};
    Value self{method->im_self, prov.recall(object, method->im_self)};
    if (callable.src != kNoSource) {
      prov.use_type(callable);
      function = prov.found(method->im_func, prov.intern(SourceKind::Method, callable.src, 1));
      self = prov.found(method->im_self, prov.intern(SourceKind::Method, callable.src, 0));
    }
    ArgumentList list;
    list.reserve(static_cast<size_t>(a.n) + 1);
    list.add(self);
    list.add(a);
    list.set_keyword_names(a.kwnames);
    after_ = after;
    return call(function, list.get());
  }

  const NativeCall known = find_native(object);
  if (known.native != nullptr) {
    const Native& native = *known.native;
    prov.use_constant(callable);
    ArgumentList bound;
    Arguments arguments = a;
    Value target = callable;
    if (known.self != nullptr) {
      bound.reserve(static_cast<size_t>(a.n) + 1);
      bound.add({known.self, prov.recall(object, known.self)});
      bound.add(a);
      bound.set_keyword_names(a.kwnames);
      arguments = bound.get();
      if (known.descriptor != nullptr) target = {known.descriptor, kNoSource};
    }
    switch (native.kind) {
      case NativeKind::Pure: return call_pure(target.object, arguments);
      case NativeKind::Modelled:
        // A class method in C takes no self of this kind, and a symbolic number stands for one of another class.
        if ((known.self == nullptr || known.descriptor != nullptr) && !fits_native(target.object, arguments) &&
            !(arguments.n > 0 && has_symbolic(arguments.objects[0]))) {
          return call_natively(target.object, arguments);   // raises
        }
        if (native.gives_result) after_ = after;
        return native.model(*this, target, arguments);
      case NativeKind::Polyfilled:
        if (native.model != nullptr)
          if (Owned out = native.model(*this, target, arguments); out || PyErr_Occurred()) return out;
        if (!binds(reinterpret_cast<PyFunctionObject*>(native.polyfill), arguments.n_positional(), arguments.kwnames)) {
          fail(std::string("call of ") + native.name + " with arguments that it does not take");
        }
        after_ = after;
        return call_function({native.polyfill, kNoSource}, arguments);
      case NativeKind::Tensor: return call_tensor(target.object, arguments);
      case NativeKind::Unknown: case NativeKind::Effect: case NativeKind::Break:
        fail(std::string("call of ") + native.name);
    }
  }
  if (type == &PyFunction_Type) {
    after_ = after;
    return call_function(callable, a);
  }
  if (PyType_Check(object)) return expect(after), call_type(callable, a);

  if (known.native == nullptr && (type == &PyWrapperDescr_Type || type == method_wrapper_type())) {
    Owned out;
    ArgumentList list;
    if (known.self != nullptr) list.add({known.self, prov.recall(object, known.self)});
    list.add(a);
    if (a.n_keywords() == 0 && call_slot(known.descriptor != nullptr ? known.descriptor : object, list.get(), out)) return out;
  }
  PyObject* target = known.descriptor != nullptr ? known.descriptor : object;
  const NativeKind kind = domain().classify(target);
  if (kind == NativeKind::Tensor || kind == NativeKind::Pure) {
    prov.use_constant(callable);
    ArgumentList list;
    list.reserve(static_cast<size_t>(a.n) + 1);
    if (known.descriptor != nullptr) list.add({known.self, prov.recall(object, known.self)});
    list.add(a);
    list.set_keyword_names(a.kwnames);
    return kind == NativeKind::Tensor ? call_tensor(target, list.get()) : call_pure(target, list.get());
  }
  if (kind == NativeKind::Break) fail(domain().break_reason(target));

  // A compiled function or module inside another: what it compiles is traced as part of this call.
  if (std::string_view(type->tp_name).ends_with("CompiledFunction")) {
    const Ref inner = Ref::steal(PyObject_GetAttr(object, interned("callee")));
    if (inner) {
      prov.use_identity(callable);
      after_ = after;
      if (callable.src == kNoSource) return call({inner.get(), prov.constant_source(inner.get())}, a);
      return call(prov.found(inner.get(), prov.intern(SourceKind::Member, callable.src, 0, interned("callee"))), a);
    }
    PyErr_Clear();
  }

  if (type == partial_type()) {
    const Owned function = get_attribute(callable, interned("func"));
    const Owned args = get_attribute(callable, interned("args"));
    const Owned keywords = get_attribute(callable, interned("keywords"));
    if (!function || !args || !keywords) return {};
    ArgumentList list;
    if (args.src != kNoSource) prov.use_length(args.get(), PyTuple_GET_SIZE(args.ref.get()));
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(args.ref.get()); i++) {
      list.add(prov.item_of(args.get(), PyTuple_GET_ITEM(args.ref.get(), i), i));
    }
    for (int64_t i = 0; i < a.n_positional(); i++) list.add(a[i]);
    std::vector<PyObject*> names;
    const bool ok = for_each_pair(*this, keywords.get(), [&](Value key, Value value) {
      for (int64_t k = 0; k < a.n_keywords(); k++) {
        if (PyUnicode_Compare(PyTuple_GET_ITEM(a.kwnames, k), key.object) == 0) return true;
      }
      names.push_back(key.object);
      list.add(value);
      return true;
    });
    if (!ok) return {};
    for (int64_t k = 0; k < a.n_keywords(); k++) {
      names.push_back(PyTuple_GET_ITEM(a.kwnames, k));
      list.add(a[a.n_positional() + k]);
    }
    Ref kwnames;
    if (!names.empty()) {
      kwnames = Ref::steal(PyTuple_New(static_cast<Py_ssize_t>(names.size())));
      for (size_t i = 0; i < names.size(); i++) {
        PyTuple_SET_ITEM(kwnames.get(), static_cast<Py_ssize_t>(i), Ref::borrow(names[i]).release());
      }
    }
    list.set_keyword_names(kwnames.get());
    after_ = after;
    return call(function.get(), list.get());
  }
  if (is_lru_wrapper(type)) {
    // A cached function's result is a constant of its arguments as far as its author is concerned; arguments that
    // can't be guarded by value are passed to the function itself, uncached.
    prov.use_constant(callable);
    bool constant = true;
    for (int64_t i = 0; i < a.n; i++) {
      const Category c = prov.category(a.objects[i]);
      constant = constant && (c == Category::Constant || c == Category::Referent);
    }
    if (constant) {
      for (int64_t i = 0; i < a.n; i++) prov.use_constant(a[i]);
      const Ref cached =
          Ref::steal(PyObject_Vectorcall(object, a.objects, static_cast<size_t>(a.n_positional()), a.kwnames));
      if (cached && !prov.is_fresh(cached.get())) prov.add_derived(cached.get());
      return Owned(cached);
    }
    const Owned wrapped = get_attribute(callable, interned("__wrapped__"));
    if (!wrapped) return {};
    after_ = after;
    return call(wrapped.get(), a);
  }

  if (PyWeakref_CheckRefExact(object) && a.n == 0) {
    const Ref referent = load::member(object, load::weak_referent());
    if (callable.src == kNoSource) return {referent, prov.recall(referent.get(), referent.get())};
    prov.use_type(callable);
    return Owned::borrow(prov.found(referent.get(), prov.intern(SourceKind::Member, callable.src, 0, load::weak_referent())));
  }
  Owned got;
  if (call_getter(callable, a, got)) return got;
  const Method method = special(callable, interned("__call__"));
  // A __call__ of the class's own; a native type's slot wrapper leads back to the object.
  PyTypeObject* const kind_of_call = method.function ? Py_TYPE(method.function.ref.get()) : nullptr;
  if (method.function && kind_of_call != &PyWrapperDescr_Type && kind_of_call != &PyMethodDescr_Type &&
      kind_of_call != method_wrapper_type()) {
    ArgumentList list;
    list.reserve(static_cast<size_t>(a.n) + 1);
    if (method.self) list.add(method.self.get());
    list.add(a);
    list.set_keyword_names(a.kwnames);
    const RecursionScope recursion;   // the __call__ of an object may be such an object, too
    if (!recursion) return {};
    after_ = after;
    return call(method.function.get(), list.get());
  }
  if (!method.function && type->tp_call == nullptr) {
    PyErr_Format(PyExc_TypeError, "'%.200s' object is not callable", type->tp_name);
    return {};
  }
  fail("call of the native function " + describe_callable(object),
       "move the call out of the compiled function");
}

// itemgetter, attrgetter and methodcaller objects, which hold constants only.
bool Executor::call_getter(Value getter, const Arguments& a, Owned& out) {
  const std::string name = Py_TYPE(getter.object)->tp_name;
  const bool items = name == "operator.itemgetter", attributes = name == "operator.attrgetter";
  if ((!items && !attributes) || a.n != 1) return false;
  if (getter.src != kNoSource) prov.use_identity(getter);
  const Ref reduced = Ref::steal(PyObject_CallMethod(getter.object, "__reduce__", nullptr));
  const Ref keys = reduced ? Ref::steal(PySequence_GetItem(reduced.get(), 1)) : Ref();
  if (!keys) return PyErr_Clear(), false;
  std::vector<Owned> found;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(keys.get()); i++) {
    const Value key{PyTuple_GET_ITEM(keys.get(), i), kNoSource};
    if (items) {
      found.push_back(subscript(a[0], key));
    } else {
      const Ref parts = Ref::steal(PyUnicode_Split(key.object, interned("."), -1));
      Owned at = Owned::borrow(a[0]);
      for (Py_ssize_t k = 0; at && k < PyList_GET_SIZE(parts.get()); k++) {
        PyObject* part = Ref::borrow(PyList_GET_ITEM(parts.get(), k)).release();
        PyUnicode_InternInPlace(&part);
        const Ref held = Ref::steal(part);
        at = get_attribute(at.get(), part);
      }
      found.push_back(std::move(at));
    }
    if (!found.back()) return true;
  }
  if (found.size() == 1) return out = std::move(found[0]), true;
  std::vector<Value> values;
  for (const Owned& o : found) values.push_back(o.get());
  return out = make_tuple(values.data(), static_cast<int64_t>(values.size())), true;
}

Owned Executor::call_spread(Value callable, Value positional, Value keywords) {
  const After after = take_after();
  ArgumentList list;
  Ref tuple;
  if (PyTuple_CheckExact(positional.object)) {
    if (positional.src != kNoSource) prov.use_length(positional, PyTuple_GET_SIZE(positional.object));
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(positional.object); i++) {
      list.add(prov.item_of(positional, PyTuple_GET_ITEM(positional.object, i), i));
    }
  } else {
    const bool ok = for_each(positional, [&](Value item) {
      list.add(item);
      list.keep(Ref::borrow(item.object));
      return true;
    });
    if (!ok) return {};
  }
  Ref kwnames;
  if (keywords.object != nullptr) {
    std::vector<Ref> names;
    const bool ok = for_each_pair(*this, keywords, [&](Value key, Value value) {
      if (!PyUnicode_Check(key.object)) {
        PyErr_SetString(PyExc_TypeError, "keywords must be strings");
        return false;
      }
      names.push_back(Ref::borrow(key.object));
      list.add(value);
      list.keep(Ref::borrow(value.object));
      return true;
    });
    if (!ok) return {};
    if (!names.empty()) {
      kwnames = Ref::steal(PyTuple_New(static_cast<Py_ssize_t>(names.size())));
      if (!kwnames) return {};
      for (size_t i = 0; i < names.size(); i++) {
        PyTuple_SET_ITEM(kwnames.get(), static_cast<Py_ssize_t>(i), names[i].release());
      }
    }
  }
  list.set_keyword_names(kwnames.get());
  after_ = after;
  return call(callable, list.get());
}

// --- natives

Owned Executor::call_natively(PyObject* callable, const Arguments& a) {
  const uint64_t before = frames_run_natively();
  Ref held;
  {
    const RefuseFrames refuse;
    held = Ref::steal(PyObject_Vectorcall(callable, a.objects, static_cast<size_t>(a.n_positional()), a.kwnames));
  }
  if (frames_run_natively() != before) {
    PyErr_Clear();
    fail("the native function " + describe_callable(callable) + " called back into Python");
  }
  if (!held && must_propagate(PyErr_Occurred())) fail("interrupted");
  return Owned(held);
}

Owned Executor::call_pure(PyObject* callable, const Arguments& a) {
  ArgumentList contents;
  contents.reserve(static_cast<size_t>(a.n));
  contents.set_keyword_names(a.kwnames);
  for (int64_t i = 0; i < a.n; i++) {
    const Owned v = concrete(seen(a[i]));
    prov.use_deep(v.get());
    contents.add(v.get());
    contents.keep(v.ref);
  }
  if (PyFunction_Check(callable)) {   // a table says that the function is pure as a whole
    return fresh_native(
        Ref::steal(PyObject_Vectorcall(callable, contents.get().objects, static_cast<size_t>(a.n_positional()), a.kwnames)));
  }
  Owned result = call_natively(callable, contents.get());
  if (result && PyUnicode_Check(result.ref.get())) {
    for (int64_t i = 0; i < a.n; i++) reject_shown_address(a[i]);
  }
  return fresh_native(result.ref);
}

namespace {

// Operands of tensor natives: tensors become traced ones, also inside builtin containers; all else is fixed by guards.
class Operands {
 public:
  explicit Operands(Executor& x) : x_(x) {}

  PyObject* prepare(Value v) {
    v = x_.number(x_.seen(v));
    x_.prov.reject_address(v.object);
    switch (x_.prov.category(v.object)) {
      case Category::Tensor: return tensor(v);
      case Category::Constant:
      case Category::Referent: x_.prov.use_constant(v); return v.object;
      case Category::Symbolic:
        if (std::string_view(Py_TYPE(v.object)->tp_name) != "SymBool") return v.object;
        kept_.push_back(x_.concrete(v).ref);   // whether an operand is a bool decides about more than its value
        return kept_.back().get();
      case Category::Method: x_.prov.use_deep(v); return v.object;
      case Category::Tuple:
        if (PySlice_Check(v.object)) return slice(v);
        if (PyTuple_Check(v.object)) return sequence(v, PyTuple_GET_SIZE(v.object), true);
        x_.prov.use_deep(v);
        return v.object;
      case Category::Identity:
        if (PyList_CheckExact(v.object)) {
          if (!x_.prov.has_origin(v)) x_.fail("a list of unknown origin as the operand of a tensor operation");
          return sequence(v, PyList_GET_SIZE(v.object), false);
        }
        // Mode objects that a native of this kind made: they hold torch's state, not the program's.
        if (v.src == kNoSource && x_.prov.has_origin(v) &&
            domain().classify(reinterpret_cast<PyObject*>(Py_TYPE(v.object))) == NativeKind::Tensor) {
          return v.object;
        }
        x_.fail(std::string("an operand of type ") + Py_TYPE(v.object)->tp_name + " in a tensor operation");
      case Category::Unset: break;
    }
    return v.object;
  }

 private:
  PyObject* tensor(Value v) {
    if (x_.session.is_traced(v.object)) return v.object;
    if (v.src == kNoSource) x_.fail("a tensor of unknown origin");
    Result<Ref> traced = x_.session.stand_in(v.object, v.src);
    if (!traced.ok()) throw Abort{traced.why()};
    kept_.push_back(*traced);
    return traced->get();
  }

  PyObject* slice(Value v) {
    if (v.src != kNoSource) return x_.prov.use_deep(v), v.object;
    auto* s = reinterpret_cast<PySliceObject*>(v.object);
    PyObject* parts[] = {s->start, s->stop, s->step};
    bool changed = false;
    for (PyObject*& part : parts) {
      PyObject* prepared = prepare({part, x_.prov.recall(v.object, part)});
      changed = changed || prepared != part;
      part = prepared;
    }
    if (!changed) return v.object;
    kept_.push_back(Ref::steal(PySlice_New(parts[0], parts[1], parts[2])));
    return kept_.back().get();
  }

  PyObject* sequence(Value v, Py_ssize_t n, bool tuple) {
    if (v.src != kNoSource) x_.prov.use_length(v, n);
    std::vector<PyObject*> items(static_cast<size_t>(n));
    bool changed = false;
    for (Py_ssize_t i = 0; i < n; i++) {
      PyObject* item = tuple ? PyTuple_GET_ITEM(v.object, i) : PyList_GET_ITEM(v.object, i);
      PyObject*& prepared = items[static_cast<size_t>(i)];
      prepared = prepare(x_.prov.item_of(v, item, i));
      changed = changed || prepared != item;
    }
    if (!changed) return v.object;
    const Ref copy = Ref::steal(tuple ? PyTuple_New(n) : PyList_New(n));
    for (Py_ssize_t i = 0; i < n; i++) {
      PyObject* item = Ref::borrow(items[static_cast<size_t>(i)]).release();
      if (tuple) {
        PyTuple_SET_ITEM(copy.get(), i, item);
      } else {
        PyList_SET_ITEM(copy.get(), i, item);
      }
    }
    kept_.push_back(copy);
    return copy.get();
  }

  Executor& x_;
  std::vector<Ref> kept_;
};

}  // namespace

Owned Executor::call_tensor(PyObject* callable, const Arguments& a) {
  Operands operands(*this);
  std::vector<PyObject*> prepared(static_cast<size_t>(a.n) + 1);
  for (int64_t i = 0; i < a.n; i++) prepared[static_cast<size_t>(i)] = operands.prepare(a[i]);
  Result<Ref> result = session.call(callable, prepared.data(), a.n, a.kwnames);
  if (!result.ok()) throw Abort{result.why()};
  note_transform();
  PyObject* object = result->get();
  if (prov.category(object) == Category::Tensor) {
    // An operation that returns its operand returns the object that the program knows.
    if (PyObject* real = session.real_of(object)) return Owned::borrow(real, prov.recall(object, real));
    return Owned(*result);
  }
  return fresh_native(*result);
}

// --- fresh objects

Owned Executor::fresh(Ref object) {
  if (object) prov.add_fresh(object.get());
  return Owned(std::move(object));
}

Owned Executor::fresh_native(Ref object) {
  if (!object) return {};
  PyObject* o = object.get();
  switch (prov.category(o)) {
    case Category::Identity:
      if (prov.is_fresh(o) || prov.recall(o, o) != kNoSource) return Owned(object, prov.recall(o, o));
      // New lists and their like belong to the caller; other objects may be kept by the native.
      if (PyList_CheckExact(o)) {
        prov.add_fresh(o);
        for (Py_ssize_t i = 0; i < PyList_GET_SIZE(o); i++) fresh_native(Ref::borrow(PyList_GET_ITEM(o, i)));
      } else if (PyDict_CheckExact(o)) {
        prov.add_fresh(o);
        PyObject *key = nullptr, *value = nullptr;
        Py_ssize_t position = 0;
        while (PyDict_Next(o, &position, &key, &value)) fresh_native(Ref::borrow(value));
      } else if (PyAnySet_CheckExact(o) || Py_TYPE(o)->tp_iternext != nullptr) {
        prov.add_fresh(o);
      } else {
        prov.add_derived(o);
      }
      break;
    case Category::Tuple:
      prov.add_derived(o);
      if (PyTuple_CheckExact(o))
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(o); i++) fresh_native(Ref::borrow(PyTuple_GET_ITEM(o, i)));
      break;
    default: break;
  }
  return Owned(object);
}

Owned Executor::make_tuple(const Value* values, int64_t n) {
  const Ref tuple = Ref::steal(PyTuple_New(n));
  if (!tuple) return {};
  for (int64_t i = 0; i < n; i++) {
    const Value value = number(values[i]);
    PyTuple_SET_ITEM(tuple.get(), i, Ref::borrow(value.object).release());
    prov.stored(tuple.get(), value);
  }
  return Owned(tuple);
}

Owned Executor::make_list(const Value* values, int64_t n) {
  const Ref list = Ref::steal(PyList_New(n));
  if (!list) return {};
  prov.add_fresh(list.get());
  for (int64_t i = 0; i < n; i++) {
    const Value value = number(values[i]);
    PyList_SET_ITEM(list.get(), i, Ref::borrow(value.object).release());
    prov.stored(list.get(), value);
  }
  return Owned(list);
}

}  // namespace braze::capture
