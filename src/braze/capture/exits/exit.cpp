#include "braze/capture/exits/exit.h"

#include <structmember.h>

#include <algorithm>

#include "braze/capture/differentiation.h"
#include "braze/capture/execute/types.h"
#include "braze/capture/guards/load.h"
#include "braze/capture/guards/object.h"
#include "braze/capture/natives/natives.h"

namespace braze::capture {

int32_t ExitBuilder::fetched(Src src) {
  if (fetched_.size() <= src) fetched_.resize(src + 64, 0);
  if (fetched_[src] == 0) fetched_[src] = x_.prov.guards().fetch(src) + 1;
  return fetched_[src] - 1;
}

void ExitBuilder::refuse(PyObject* object, const std::string& reason) {
  throw Abort{{reason, ""}, x_.prov.birth_of(object)};
}

void ExitBuilder::frames(const std::vector<CutFrame>& frames) {
  for (const CutFrame& frame : frames) {
    try {
      recipe_.add_root(slot((frame.generator ? frame.generator : frame.function).get()));
      if (frame.generator) continue;   // it has its slots
      for (const Owned& v : frame.slots) recipe_.add_root(v ? slot(v.get()) : -1);
      if (frame.handled) recipe_.add_root(slot(frame.handled.get()));
    } catch (Abort& abort) {
      // The call of this frame can be left to CPython as a whole.
      if (abort.position == 0 && &frame != &frames.front()) abort.position = (&frame - 1)->started;
      throw;
    }
  }
}

int32_t ExitBuilder::slot(Value v) {
  const bool symbolic = x_.prov.category(v.object) == Category::Symbolic;
  if (symbolic) {
    const Result<Ref> tensor = x_.session.number_output(v.object);
    if (!tensor.ok()) throw Abort{tensor.why()};
    if (*tensor) {
      kept_.push_back(*tensor);
      outputs_.push_back(tensor->get());
      const int32_t output = add(RecipeOp::Output, static_cast<int32_t>(outputs_.size()) - 1);
      const int32_t call[] = {add(RecipeOp::Constant, 0, {}, builtin("float").object), output};
      return add(RecipeOp::Call, 0, call);
    }
    if (const int64_t place = x_.session.add_number_result(v.object); place >= 0) {
      return add(RecipeOp::Number, static_cast<int32_t>(place));
    }
  }
  if (symbolic || (!PyTuple_CheckExact(v.object) && x_.has_symbolic(v.object))) {
    const Owned fixed = x_.concrete(v);
    kept_.push_back(fixed.ref);
    return slot(fixed.get());
  }
  x_.prov.reject_address(v.object);
  if (const int32_t* made = slots_.find(v.object)) {
    if (*made == 0) x_.fail("a value that contains itself through an immutable object");
    return *made - 1;
  }
  const Category c = x_.prov.category(v.object);
  const bool shared = c == Category::Identity || c == Category::Tensor || c == Category::Tuple || c == Category::Method ||
                      (c == Category::Referent && x_.prov.is_fresh(v.object));
  constexpr int kDeepest = 1000;
  if (++depth_ > kDeepest) refuse(v.object, "a deeply nested object in the result");
  const int32_t made = build(v);
  depth_--;
  if (shared) slots_[v.object] = made + 1;
  return made;
}

int32_t ExitBuilder::build(Value v) {
  PyObject* o = v.object;
  const Category c = x_.prov.category(o);
  if (c == Category::Tensor) {
    if (x_.session.is_traced(o)) {
      if (PyObject* real = x_.session.real_of(o)) {
        const Src src = x_.prov.recall(real, real);
        if (src == kNoSource) x_.fail("a tensor of unknown origin in the result");
        return add(RecipeOp::Fetched, fetched(src));
      }
      if (x_.session.is_transformed(o)) {
        throw Abort{{"a tensor of a functional transform leaves the call", ""}, x_.first_transform()};
      }
      outputs_.push_back(o);
      return add(RecipeOp::Output, static_cast<int32_t>(outputs_.size()) - 1);
    }
    if (v.src == kNoSource) x_.fail("a tensor of unknown origin in the result");
    return add(RecipeOp::Fetched, fetched(v.src));
  }
  if (c == Category::Symbolic) x_.fail("a symbolic size in the result");
  if (v.src != kNoSource) {
    const SourceKind kind = x_.prov.sources()[v.src].kind;
    if (c == Category::Constant && x_.prov.is_guarded_constant(v.src)) return add(RecipeOp::Constant, 0, {}, o);
    if (kind == SourceKind::Constant) return add(RecipeOp::Constant, 0, {}, o);
    if (kind == SourceKind::Dict) return dict_of(add(RecipeOp::Fetched, fetched(x_.prov.sources()[v.src].base)));
    return add(RecipeOp::Fetched, fetched(v.src));
  }
  if (c == Category::Constant) return add(RecipeOp::Constant, 0, {}, o);
  if (c == Category::Referent) {
    if (PyFunction_Check(o) && x_.prov.is_fresh(o)) return fresh_function(v);
    PyObject* const self = PyCFunction_Check(o) ? PyCFunction_GET_SELF(o) : nullptr;
    if (self != nullptr && !PyModule_Check(self) && !PyType_Check(self)) {   // list.append of a list
      const Ref name = Ref::steal(PyObject_GetAttr(o, interned("__name__")));
      PyObject* const found = name ? _PyType_Lookup(Py_TYPE(self), name.get()) : nullptr;
      if (found == nullptr || Py_TYPE(found) != &PyMethodDescr_Type ||
          reinterpret_cast<PyMethodDescrObject*>(found)->d_method != reinterpret_cast<PyCFunctionObject*>(o)->m_ml) {
        PyErr_Clear();
        refuse(o, "a bound method of a native object in the result");
      }
      const int32_t owner[] = {slot({self, x_.prov.recall(o, self)})};
      return add(RecipeOp::GetAttr, 0, owner, name.get());
    }
    if (Py_TYPE(o) == method_wrapper_type()) refuse(o, "a bound slot of a native object in the result");
    return add(RecipeOp::Constant, 0, {}, o);
  }
  const auto item_slot = [&](PyObject* item, int64_t i) {
    Value value = x_.prov.item_of(v, item, i);
    // Which of several equal constants was stored where is not remembered: fixed by guards instead of fetched.
    x_.prov.use_constant(value);
    if (x_.prov.category(item) == Category::Constant) value.src = kNoSource;
    return slot(value);
  };
  if (c == Category::Tuple && !PyTuple_Check(o)) {
    x_.prov.use_deep(v);
    return add(RecipeOp::Constant, 0, {}, o);
  }
  if (c == Category::Tuple) {
    std::vector<int32_t> operands;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(o); i++) operands.push_back(item_slot(PyTuple_GET_ITEM(o, i), i));
    if (PyTuple_CheckExact(o)) return add(RecipeOp::NewTuple, 0, operands);
    return add(RecipeOp::NewInstance, 0, operands, reinterpret_cast<PyObject*>(Py_TYPE(o)));
  }
  if (c == Category::Method) {
    auto* m = reinterpret_cast<PyMethodObject*>(o);
    const int32_t operands[] = {slot({m->im_func, x_.prov.recall(o, m->im_func)}),
                                slot({m->im_self, x_.prov.recall(o, m->im_self)})};
    return add(RecipeOp::NewMethod, 0, operands);
  }
  if (PyTraceBack_Check(o)) return traceback(o);
  if (!x_.prov.is_fresh(o)) refuse(o, std::string("an object of unknown origin in the result (") + Py_TYPE(o)->tp_name + ")");
  if (PyCell_Check(o)) {
    slots_[o] = add(RecipeOp::NewCell) + 1;
    const int32_t cell = slots_[o] - 1;
    if (PyObject* content = PyCell_GET(o)) {
      const int32_t value[] = {item_slot(content, 0)};
      add(RecipeOp::SetAttr, cell, value);
    }
    return cell;
  }
  if (PyList_CheckExact(o)) {
    const int32_t list = add(RecipeOp::NewList);
    slots_[o] = list + 1;
    std::vector<int32_t> operands;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(o); i++) operands.push_back(item_slot(PyList_GET_ITEM(o, i), i));
    if (!operands.empty()) add(RecipeOp::Append, list, operands);
    return list;
  }
  if (PySet_CheckExact(o)) {
    std::vector<int32_t> operands;
    const Ref items = Ref::steal(PySequence_List(o));
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(items.get()); i++) {
      operands.push_back(item_slot(PyList_GET_ITEM(items.get(), i), i));
    }
    return add(RecipeOp::NewSet, 0, operands);
  }
  if (load::is_deque(o)) {
    std::vector<int32_t> operands;
    const Py_ssize_t n = PyObject_Size(o);
    for (Py_ssize_t i = 0; i < n; i++) {
      const Ref item = Ref::steal(PySequence_GetItem(o, i));
      if (item.get() == o) refuse(o, "a deque that contains itself in the result");
      operands.push_back(item_slot(item.get(), i));
    }
    const Ref maxlen = Ref::steal(PyObject_GetAttr(o, interned("maxlen")));
    const int32_t list = add(RecipeOp::NewList);
    if (!operands.empty()) add(RecipeOp::Append, list, operands);
    const int32_t call[] = {add(RecipeOp::Constant, 0, {}, reinterpret_cast<PyObject*>(Py_TYPE(o))), list,
                            add(RecipeOp::Constant, 0, {}, maxlen.get())};
    return add(RecipeOp::Call, 0, call);
  }
  if (const Fresh* const record = x_.prov.find_fresh(o); record != nullptr && record->shares >= 0) {
    return dict_of(slot(record->function));
  }
  if (PyGen_CheckExact(o)) return fresh_generator(o);
  if (PyIter_Check(o) && native_base(Py_TYPE(o)) != &PyBaseObject_Type) return fresh_iterator(v);
  return fresh_instance(v);
}

// The dict in which the object keeps its attributes; classes may have other ideas of a __dict__.
int32_t ExitBuilder::dict_of(int32_t owner) {
  static PyObject* const read = PyObject_GetAttrString(reinterpret_cast<PyObject*>(&PyBaseObject_Type), "__getattribute__");
  const int32_t call[] = {add(RecipeOp::Constant, 0, {}, read), owner, add(RecipeOp::Constant, 0, {}, interned("__dict__"))};
  return add(RecipeOp::Call, 0, call);
}

// Instances of classes in Python, dicts and their subclasses: made empty, then filled.
int32_t ExitBuilder::fresh_instance(Value v) {
  PyObject* o = v.object;
  PyTypeObject* type = Py_TYPE(o);
  PyTypeObject* base = native_base(type);
  const bool dict = PyDict_Check(o);
  const bool list = PyList_Check(o);
  const bool exception = PyExceptionInstance_Check(o);
  if (type == reinterpret_cast<PyTypeObject*>(polyfill("HookHandle").get())) refuse(o, "the handle of a hook in the result");
  const bool defaultdict = PyUnicode_CompareWithASCIIString(interned("collections.defaultdict"), base->tp_name) == 0;
  if (!dict && !list && !exception && base != &PyBaseObject_Type) {
    refuse(o, std::string("an object of the native type ") + base->tp_name + " in the result");
  }
  const int32_t made = exception                ? fresh_exception(o)
                       : PyDict_CheckExact(o) ? add(RecipeOp::NewDict)
                                              : add(RecipeOp::NewInstance, 0, {}, reinterpret_cast<PyObject*>(type));
  slots_[o] = made + 1;
  if (defaultdict) {
    const Ref factory = Ref::steal(PyObject_GetAttr(o, interned("default_factory")));
    const int32_t operand[] = {slot({factory.get(), x_.prov.recall(o, factory.get())})};
    add(RecipeOp::SetAttr, made, operand, interned("default_factory"));
  }
  if (list) {
    std::vector<int32_t> operands;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(o); i++) operands.push_back(part(o, PyList_GET_ITEM(o, i)));
    if (!operands.empty()) add(RecipeOp::Append, made, operands);
  }
  if (dict) {
    std::vector<int32_t> operands;
    std::vector<std::pair<Ref, Ref>> pairs;
    if (!storage_pairs(o, pairs)) {
      PyErr_Clear();
      x_.fail("a dict whose keys can't be listed");
    }
    for (const auto& [key, value] : pairs) {
      operands.push_back(part(o, key.get()));
      operands.push_back(part(o, value.get()));
    }
    if (!operands.empty()) add(RecipeOp::DictUpdate, made, operands);
  }
  const Ref attributes = type->tp_dictoffset != 0 ? Ref::steal(PyObject_GenericGetDict(o, nullptr)) : Ref();
  PyErr_Clear();
  if (attributes) {
    PyObject *key = nullptr, *value = nullptr;
    Py_ssize_t position = 0;
    while (PyDict_Next(attributes.get(), &position, &key, &value)) {
      const int32_t operand[] = {part(o, value)};
      add(RecipeOp::SetAttr, made, operand, key);
    }
  }
  // __slots__ of the class and its bases.
  PyObject* mro = type->tp_mro;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(mro); i++) {
    auto* t = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(mro, i));
    if (!is_python_class(t)) continue;
    PyObject *key = nullptr, *member = nullptr;
    Py_ssize_t position = 0;
    while (PyDict_Next(type_dict(t), &position, &key, &member)) {
      if (Py_TYPE(member) != &PyMemberDescr_Type) continue;
      const int flags = reinterpret_cast<PyMemberDescrObject*>(member)->d_member->flags;
      if ((flags & READONLY) != 0) refuse(o, "an object with native fields in the result");
      const Ref value = Ref::steal(Py_TYPE(member)->tp_descr_get(member, o, reinterpret_cast<PyObject*>(type)));
      PyErr_Clear();
      if (!value) continue;
      const int32_t operand[] = {part(o, value.get())};
      add(RecipeOp::SetAttr, made, operand, key);
    }
  }
  if (exception) fill_exception(o, made);
  return made;
}

// Made from its arguments as by BaseException.__new__.
int32_t ExitBuilder::fresh_exception(PyObject* o) {
  const Ref arguments = Ref::steal(PyObject_GetAttrString(o, "args"));
  if (!arguments || !PyTuple_Check(arguments.get())) PyErr_Clear(), refuse(o, "an exception without arguments in the result");
  std::vector<int32_t> operands;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(arguments.get()); i++) {
    PyObject* const item = PyTuple_GET_ITEM(arguments.get(), i);
    const bool known = x_.prov.recall(arguments.get(), item) != kNoSource;
    operands.push_back(part(known ? arguments.get() : o, item));
  }
  return add(RecipeOp::NewInstance, 0, operands, reinterpret_cast<PyObject*>(Py_TYPE(o)));
}

// What else its native class holds, where it was raised, and what it was raised from.
void ExitBuilder::fill_exception(PyObject* o, int32_t made) {
  const auto set = [&](PyObject* name, PyObject* value) {
    const int32_t operand[] = {part(o, value)};
    add(RecipeOp::SetAttr, made, operand, name);
  };
  static PyObject* const suppress = interned("__suppress_context__");
  PyObject* const mro = Py_TYPE(o)->tp_mro;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(mro); i++) {
    auto* const type = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(mro, i));
    if (is_python_class(type)) continue;
    PyObject *key = nullptr, *member = nullptr;
    Py_ssize_t position = 0;
    while (PyDict_Next(type_dict(type), &position, &key, &member)) {
      if (Py_TYPE(member) != &PyMemberDescr_Type || PyUnicode_Compare(key, suppress) == 0) continue;
      if ((reinterpret_cast<PyMemberDescrObject*>(member)->d_member->flags & READONLY) != 0) continue;   // from arguments
      const Ref value = Ref::steal(Py_TYPE(member)->tp_descr_get(member, o, reinterpret_cast<PyObject*>(type)));
      PyErr_Clear();
      if (value && value.get() != Py_None) set(key, value.get());
    }
  }
  const Ref cause = Ref::steal(PyException_GetCause(o));
  if (cause) set(interned("__cause__"), cause.get());   // also suppresses the context
  if (const Ref context = Ref::steal(PyException_GetContext(o))) set(interned("__context__"), context.get());
  const bool suppressed = reinterpret_cast<PyBaseExceptionObject*>(o)->suppress_context != 0;
  if (cause ? !suppressed : suppressed) set(suppress, suppressed ? Py_True : Py_False);
  if (const Ref rows = Ref::steal(PyException_GetTraceback(o))) set(interned("__traceback__"), rows.get());
}

// Rows of frames that the trace ran, in front of what stood there before.
int32_t ExitBuilder::traceback(PyObject* o) {
  auto* const row = reinterpret_cast<PyTracebackObject*>(o);
  int32_t next = -1;
  if (row->tb_next != nullptr) {
    auto* const inner = reinterpret_cast<PyObject*>(row->tb_next);
    next = slot({inner, x_.prov.recall(inner, inner)});
  }
  const Ref code = Ref::steal(reinterpret_cast<PyObject*>(PyFrame_GetCode(row->tb_frame)));
  const Ref globals = Ref::steal(PyFrame_GetGlobals(row->tb_frame));
  PyObject* const name = PyDict_GetItemString(globals.get(), "__name__");
  const Ref line = Ref::steal(PyObject_GetAttrString(o, "tb_lineno"));
  const Ref info = Ref::steal(
      Py_BuildValue("(OOiO)", code.get(), name == nullptr ? Py_None : name, row->tb_lasti, line.get()));
  if (!info) PyErr_Clear(), refuse(o, "a traceback in the result");
  return add(RecipeOp::NewTraceback, 0, {&next, 1}, info.get());
}

// What a fresh object holds.
int32_t ExitBuilder::part(PyObject* owner, PyObject* object) {
  Value value{object, x_.prov.recall(owner, object)};
  x_.prov.use_constant(value);
  if (x_.prov.category(object) == Category::Constant) value.src = kNoSource;
  return slot(value);
}

// Iterators are made anew from what they iterate over, and brought to their position. Copies would share or lose it.
int32_t ExitBuilder::fresh_iterator(Value v) {
  const auto give_up = [&] { refuse(v.object, std::string("an iterator of type ") + Py_TYPE(v.object)->tp_name + " in the result"); };
  const int32_t iter = add(RecipeOp::Constant, 0, {}, builtin("iter").object);
  const auto advance_to = [&](int32_t iterator, int64_t position) {
    const int32_t owner[] = {iterator};
    const Ref number = Ref::steal(PyLong_FromLongLong(position));
    const int32_t call[] = {add(RecipeOp::GetAttr, 0, owner, interned("__setstate__")),
                            add(RecipeOp::Constant, 0, {}, number.get())};
    add(RecipeOp::Call, 0, call);
    return iterator;
  };
  const Fresh* const record = x_.prov.find_fresh(v.object);
  if (record != nullptr && record->iteration) {
    const Iteration& state = *record->iteration;
    PyObject* const container = state.container.object;
    if (state.exhausted || x_.is_payload(container)) give_up();
    if (state.kind == Iteration::Kind::Sequence) {
      const int32_t call[] = {iter, slot(state.container)};
      return advance_to(add(RecipeOp::Call, 0, call), state.position);
    }
    constexpr int64_t kMost = 100;
    if (!PyDict_CheckExact(container) || state.position > kMost || x_.has_changed(container)) give_up();
    // One that has noticed a change of its dict would lose that.
    const Py_ssize_t left = PyObject_LengthHint(v.object, -1);
    if (left != PyDict_GET_SIZE(container) - state.position) PyErr_Clear(), give_up();
    const int32_t dict = slot(state.container);
    const auto view = [&](const char* name) {
      const int32_t owner[] = {dict};
      const int32_t call[] = {add(RecipeOp::GetAttr, 0, owner, interned(name))};
      return add(RecipeOp::Call, 0, call);
    };
    const int32_t viewed = state.kind == Iteration::Kind::Values  ? view("values")
                           : state.kind == Iteration::Kind::Items ? view("items")
                                                                  : dict;
    const int32_t call[] = {iter, viewed};
    const int32_t iterator = add(RecipeOp::Call, 0, call);
    const int32_t advance[] = {add(RecipeOp::Constant, 0, {}, builtin("next").object), iterator};
    for (int64_t i = 0; i < state.position; i++) add(RecipeOp::Call, 0, advance);
    return iterator;
  }
  const std::string_view type = Py_TYPE(v.object)->tp_name;
  if (type != "range_iterator" && type != "str_ascii_iterator" && type != "str_iterator" && type != "bytes_iterator") give_up();
  // iter, (range or string,), position
  const Ref reduced = Ref::steal(PyObject_CallMethod(v.object, "__reduce__", nullptr));
  if (!reduced || PyTuple_GET_SIZE(reduced.get()) != 3 || !PyLong_Check(PyTuple_GET_ITEM(reduced.get(), 2))) {
    PyErr_Clear();
    give_up();
  }
  const int32_t call[] = {iter, add(RecipeOp::Constant, 0, {}, PyTuple_GET_ITEM(PyTuple_GET_ITEM(reduced.get(), 1), 0))};
  return advance_to(add(RecipeOp::Call, 0, call), PyLong_AsLongLong(PyTuple_GET_ITEM(reduced.get(), 2)));
}

// A generator is made anew by its function and put where the other one stands; one that runs, before the instruction at
// which its frame was cut.
int32_t ExitBuilder::fresh_generator(PyObject* o) {
  const Fresh* const record = x_.prov.find_fresh(o);
  if (record->slots.empty()) refuse(o, "a generator of unknown origin in the result");
  const Value function = record->function;
  const std::vector<Src>& srcs = record->slots;
  const FrameView v = view(frame_of_generator(o));
  std::vector<Value> slots;
  GeneratorState state = generator_state(o);
  Value handled{state.handled, kNoSource};
  if (state.handled != nullptr) handled.src = x_.prov.recall(state.handled, state.handled);
  const auto running = std::find_if(x_.cut_frames().begin(), x_.cut_frames().end(),
                                    [&](const CutFrame& frame) { return frame.generator.ref.get() == o; });
  if (running != x_.cut_frames().end()) {
    const FramePoint& at = running->at;
    state = {GeneratorState::Kind::Suspended, at.code->insns[at.pc].start - int64_t{kPositionLag}, nullptr};
    handled = running->handled.get();
    for (const Owned& slot : running->slots) slots.push_back(slot.get());
  } else {
    if (state.kind == GeneratorState::Kind::Running) refuse(o, "a generator that runs in the result");
    const int n = state.kind == GeneratorState::Kind::Ended ? 0 : *v.n_slots_used;
    for (int i = 0; i < n; i++) slots.push_back({v.slots[i], srcs[static_cast<size_t>(i)]});
  }
  PyObject* const code = running != x_.cut_frames().end() ? reinterpret_cast<PyObject*>(running->at.code->object)
                         : state.kind == GeneratorState::Kind::Ended ? PyFunction_GET_CODE(function.object)
                                                                      : reinterpret_cast<PyObject*>(v.code);
  const int32_t operand[] = {slot(function)};
  const int32_t made = add(RecipeOp::NewGenerator, 0, operand, code);
  slots_[o] = made + 1;
  if (state.kind == GeneratorState::Kind::Ended) {
    const int32_t owner[] = {made};
    const int32_t close[] = {add(RecipeOp::GetAttr, 0, owner, interned("close"))};
    add(RecipeOp::Call, 0, close);
    return made;
  }
  std::vector<int32_t> operands{handled.object == nullptr ? -1 : slot(handled)};
  for (const Value& value : slots) operands.push_back(value.object == nullptr ? -1 : slot(value));
  const Ref where = Ref::steal(Py_BuildValue("(Li)", static_cast<long long>(state.position), static_cast<int>(state.kind)));
  add(RecipeOp::SetGenerator, made, operands, where.get());
  return made;
}

int32_t ExitBuilder::fresh_function(Value v) {
  auto* f = reinterpret_cast<PyFunctionObject*>(v.object);
  if (f->func_dict != nullptr && PyDict_Size(f->func_dict) > 0) refuse(v.object, "a function with attributes in the result");
  const auto globals = Value{f->func_globals, kNoSource};
  std::vector<int32_t> operands;
  kept_.push_back(Ref::borrow(f->func_globals));
  operands.push_back(add(RecipeOp::Constant, 0, {}, globals.object));
  const auto part = [&](PyObject* object) -> int32_t {
    if (object == nullptr) return -1;
    if (PyTuple_Check(object)) {
      std::vector<int32_t> items;
      for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(object); i++) {
        PyObject* item = PyTuple_GET_ITEM(object, i);
        items.push_back(slot({item, x_.prov.recall(object, item)}));
      }
      return add(RecipeOp::NewTuple, 0, items);
    }
    return slot({object, x_.prov.recall(object, object)});
  };
  operands.push_back(part(f->func_closure));
  operands.push_back(part(f->func_defaults));
  operands.push_back(part(f->func_kwdefaults));
  operands.push_back(part(f->func_annotations));
  operands.push_back(add(RecipeOp::Constant, 0, {}, f->func_qualname));
  return add(RecipeOp::NewFunction, 0, operands, f->func_code);
}

namespace {

// A slot of the object's class, with a value in it.
bool has_slot(PyObject* object, PyObject* name) {
  PyObject* const member = _PyType_Lookup(Py_TYPE(object), name);
  if (member == nullptr || Py_TYPE(member) != &PyMemberDescr_Type) return false;
  const Ref value = Ref::steal(Py_TYPE(member)->tp_descr_get(member, object, reinterpret_cast<PyObject*>(Py_TYPE(object))));
  PyErr_Clear();
  return static_cast<bool>(value);
}

}  // namespace

void ExitBuilder::delete_attribute(Src owner, PyObject* name) {
  static PyObject* const remove = PyObject_GetAttrString(reinterpret_cast<PyObject*>(&PyBaseObject_Type), "__delattr__");
  const int32_t call[] = {add(RecipeOp::Constant, 0, {}, remove), add(RecipeOp::Fetched, fetched(owner)),
                          add(RecipeOp::Constant, 0, {}, name)};
  add(RecipeOp::Call, 0, call);
}

void ExitBuilder::side_effects() {
  x_.guard_aliases();
  x_.mark_superseded();
  auto& shadows = x_.prov.shadows();
  for (size_t i = 0; i < shadows.size(); i++) {
    Shadow& s = *shadows[i];
    for (Shadow::Attribute& a : s.attributes) {
      if (PyCell_Check(s.owner.get())) {
        const int32_t content[] = {slot(a.value.get())};
        add(RecipeOp::SetAttr, add(RecipeOp::Fetched, fetched(s.src)), content, a.name.get());
        continue;
      }
      if (PyType_Check(s.owner.get())) {
        const int32_t call[] = {add(RecipeOp::Constant, 0, {}, builtin("setattr").object),
                                add(RecipeOp::Fetched, fetched(s.src)),
                                add(RecipeOp::Constant, 0, {}, a.name.get()), slot(a.value.get())};
        add(RecipeOp::Call, 0, call);
        continue;
      }
      uint16_t hint = 0xffff;
      bool known = true;
      PyObject* before = object::storage_lookup(object::instance_storage(s.owner.get()), a.name.get(), hint, known);
      if (!a.value) {
        if (before != nullptr || has_slot(s.owner.get(), a.name.get())) delete_attribute(s.src, a.name.get());
        continue;
      }
      const Value value = a.value.get();
      // As before, and known to be so by a guard.
      if (before == value.object && value.src == kNoSource) {
        const Src src = x_.prov.intern(SourceKind::Attr, s.src, 0, a.name.get());
        x_.prov.use_constant({before, src});
        if (x_.prov.category(before) == Category::Constant) continue;
      }
      const int32_t operand[] = {slot(value)};
      const int32_t target = add(RecipeOp::Fetched, fetched(s.src));
      add(RecipeOp::SetAttr, target, operand, a.name.get());
    }
  }
  if (auto* differentiation = dynamic_cast<Differentiation*>(&x_.session)) {
    for (const auto& [stand_in, gradient] : differentiation->new_gradients()) {
      PyObject* const tensor = x_.session.real_of(stand_in);
      const int32_t value[] = {slot({gradient.get(), kNoSource})};
      const int32_t target = add(RecipeOp::Fetched, fetched(x_.prov.recall(tensor, tensor)));
      add(RecipeOp::SetAttr, target, value, interned("grad"));
      kept_.push_back(gradient);
    }
  }
  for (const Effect& e : x_.effects) {
    if (e.superseded) continue;
    std::vector<int32_t> operands{add(RecipeOp::Constant, 0, {}, e.callable.get())};
    for (const Owned& argument : e.arguments) operands.push_back(slot(argument.get()));
    add(RecipeOp::Call, 0, operands, e.kwnames.get());
  }
}

void ExitBuilder::dropped_generators() {
  for (PyObject* generator : x_.suspended_generators()) {
    using Kind = GeneratorState::Kind;
    const Kind kind = generator_state(generator).kind;
    if (kind != Kind::Suspended && kind != Kind::Delegating) continue;
    if (slots_.find(generator) == nullptr && has_handler_where_it_stands(generator)) {
      refuse(generator, "a generator that is dropped with other objects, and then runs on");
    }
  }
}

void ExitBuilder::calls(const std::vector<TraceSession::ModeCall>& calls) {
  for (const TraceSession::ModeCall& call : calls) {
    std::vector<int32_t> operands{add(RecipeOp::Constant, 0, {}, call.callable.get())};
    for (const Ref& argument : call.arguments) operands.push_back(add(RecipeOp::Constant, 0, {}, argument.get()));
    add(RecipeOp::Call, 0, operands);
  }
}

}  // namespace braze::capture
