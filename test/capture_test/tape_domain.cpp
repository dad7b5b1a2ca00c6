#include "tape_domain.h"

#include <map>
#include <unordered_map>
#include <unordered_set>

namespace braze::capture {

namespace {

// How to make an argument again: a tensor by number, a container of such, or a constant.
struct Spec {
  enum class Kind { Constant, Tensor, Tuple, List, Slice } kind = Kind::Constant;
  int64_t tensor = 0;
  Ref constant;
  std::vector<Spec> parts;
};

struct Step {
  Ref callable;              // empty: an attribute
  std::vector<Spec> arguments;
  Ref kwnames;
  Ref attribute;
  int64_t first_result = 0;  // number of the first tensor in the result
  int64_t n_results = 0;
  bool grad = true;
};

Ref torch_call(const char* function, PyObject* argument = nullptr) {
  const Ref torch = Ref::steal(PyImport_ImportModule("torch"));
  const Ref f = Ref::steal(PyObject_GetAttrString(torch.get(), function));
  return Ref::steal(argument == nullptr ? PyObject_CallNoArgs(f.get()) : PyObject_CallOneArg(f.get(), argument));
}

void set_grad(bool enabled) {
  static PyObject* const set = [] {
    const Ref c = Ref::steal(PyImport_ImportModule("torch._C"));
    return PyObject_GetAttrString(c.get(), "_set_grad_enabled");
  }();
  Ref::steal(PyObject_CallOneArg(set, enabled ? Py_True : Py_False));
}

void collect_tensors(PyTypeObject* tensor, PyObject* result, std::vector<PyObject*>& out) {
  if (PyType_IsSubtype(Py_TYPE(result), tensor)) {
    out.push_back(result);
  } else if (PyTuple_Check(result) || PyList_Check(result)) {
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(result); i++) {
      collect_tensors(tensor, PySequence_Fast_GET_ITEM(result, i), out);
    }
  }
}

class Tape final : public Executable {
 public:
  explicit Tape(PyTypeObject* tensor) : tensor_type(tensor) {}

  bool run(PyObject* const* inputs, int64_t n_inputs, PyObject** out) override {
    std::vector<Ref> tensors(static_cast<size_t>(n_tensors));
    for (int64_t i = 0; i < n_inputs; i++) tensors[static_cast<size_t>(input_numbers[static_cast<size_t>(i)])] = Ref::borrow(inputs[i]);
    if (!steps.empty() && !play(tensors)) return false;
    for (size_t i = 0; i < outputs.size(); i++) out[i] = Ref(tensors[static_cast<size_t>(outputs[i])]).release();
    return true;
  }
  int64_t n_outputs() const override { return static_cast<int64_t>(outputs.size()); }

  PyTypeObject* tensor_type;
  std::vector<Step> steps;
  std::vector<int64_t> input_numbers, outputs, result_numbers;
  int64_t n_tensors = 0;

 private:
  bool play(std::vector<Ref>& tensors) const {
    struct Restore {
      bool grad;
      ~Restore() { set_grad(grad); }
    } restore{torch_call("is_grad_enabled").get() == Py_True};
    for (const Step& step : steps) {
      set_grad(step.grad);
      std::vector<Ref> kept;
      std::vector<PyObject*> arguments;
      for (const Spec& s : step.arguments) {
        kept.push_back(make(s, tensors));
        arguments.push_back(kept.back().get());
      }
      Ref result;
      if (step.callable) {
        const size_t n_kw = step.kwnames ? static_cast<size_t>(PyTuple_GET_SIZE(step.kwnames.get())) : 0;
        result = Ref::steal(PyObject_Vectorcall(step.callable.get(), arguments.data(), arguments.size() - n_kw, step.kwnames.get()));
      } else {
        result = Ref::steal(PyObject_GetAttr(arguments[0], step.attribute.get()));
      }
      if (!result) return false;
      std::vector<PyObject*> results;
      collect_tensors(tensor_type, result.get(), results);
      if (static_cast<int64_t>(results.size()) != step.n_results) {
        PyErr_SetString(PyExc_RuntimeError, "the tape gave another number of results");
        return false;
      }
      for (int64_t i = 0; i < step.n_results; i++) {
        Ref& slot = tensors[static_cast<size_t>(result_numbers[static_cast<size_t>(step.first_result + i)])];
        slot = Ref::borrow(results[static_cast<size_t>(i)]);
      }
    }
    return true;
  }

  Ref make(const Spec& s, const std::vector<Ref>& tensors) const {
    switch (s.kind) {
      case Spec::Kind::Constant: return s.constant;
      case Spec::Kind::Tensor: return tensors[static_cast<size_t>(s.tensor)];
      case Spec::Kind::Slice:
        return Ref::steal(PySlice_New(make(s.parts[0], tensors).get(), make(s.parts[1], tensors).get(), make(s.parts[2], tensors).get()));
      case Spec::Kind::Tuple:
      case Spec::Kind::List: break;
    }
    const auto n = static_cast<Py_ssize_t>(s.parts.size());
    Ref out = Ref::steal(s.kind == Spec::Kind::Tuple ? PyTuple_New(n) : PyList_New(n));
    for (Py_ssize_t i = 0; i < n; i++) {
      PyObject* part = make(s.parts[static_cast<size_t>(i)], tensors).release();
      if (s.kind == Spec::Kind::Tuple) PyTuple_SET_ITEM(out.get(), i, part);
      else PyList_SET_ITEM(out.get(), i, part);
    }
    return out;
  }
};

struct TensorShape {
  Ref type, dtype, shape, stride, requires_grad, device;
};

Ref attribute(PyObject* object, const char* name) { return Ref::steal(PyObject_GetAttrString(object, name)); }

std::shared_ptr<TensorShape> shape_of(PyObject* tensor) {
  auto out = std::make_shared<TensorShape>();
  out->type = Ref::borrow(reinterpret_cast<PyObject*>(Py_TYPE(tensor)));
  out->dtype = attribute(tensor, "dtype");
  out->shape = attribute(tensor, "shape");
  out->stride = Ref::steal(PyObject_CallMethod(tensor, "stride", nullptr));
  out->requires_grad = attribute(tensor, "requires_grad");
  out->device = attribute(tensor, "device");
  return out;
}

bool same(const Ref& a, const Ref& b) { return PyObject_RichCompareBool(a.get(), b.get(), Py_EQ) == 1; }

bool check_tensor(const void* state, PyObject* object) {
  const auto& want = *static_cast<const TensorShape*>(state);
  if (reinterpret_cast<PyObject*>(Py_TYPE(object)) != want.type.get()) return false;
  const auto got = shape_of(object);
  return same(want.dtype, got->dtype) && same(want.shape, got->shape) && same(want.stride, got->stride) &&
         same(want.requires_grad, got->requires_grad) && same(want.device, got->device);
}

std::string describe_tensor(const void* state, PyObject*) {
  const auto& want = *static_cast<const TensorShape*>(state);
  const Ref text = Ref::steal(PyObject_Str(want.shape.get()));
  return PyUnicode_AsUTF8(text.get());
}

class Session final : public TraceSession {
 public:
  Session(PyTypeObject* tensor, uint64_t modes) : tape_(std::make_shared<Tape>(tensor)), tensor_(tensor), modes_(modes) {
    if (tensor != &PyEllipsis_Type) random_ = torch_call("get_rng_state"), grad_ = torch_call("is_grad_enabled").get() == Py_True;
  }
  ~Session() override {   // as a trace leaves the world
    if (!random_) return;
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);   // a KeyboardInterrupt on its way to the caller
    torch_call("set_rng_state", random_.get());
    set_grad(grad_);
    PyErr_Restore(type, value, traceback);
  }

  Result<Ref> stand_in(PyObject* real, Src src) override {
    auto it = stand_ins_.find(real);
    if (it != stand_ins_.end()) return it->second;
    // A plain tensor with memory of its own.
    const Ref detached = Ref::steal(PyObject_CallMethod(real, "detach", nullptr));
    Ref copy = detached ? Ref::steal(PyObject_CallMethod(detached.get(), "clone", nullptr)) : Ref();
    if (!copy) return error("clone");
    stand_ins_[real] = copy;
    reals_[copy.get()] = real;
    const int64_t n = number(copy.get());
    tape_->input_numbers.push_back(n);
    inputs_.push_back({src, {shape_of(real), check_tensor, describe_tensor}});
    return copy;
  }
  bool is_traced(PyObject* object) const override { return numbers_.count(object) > 0; }
  PyObject* real_of(PyObject* traced) const override {
    auto it = reals_.find(traced);
    return it == reals_.end() ? nullptr : it->second;
  }

  Result<Ref> call(PyObject* callable, PyObject* const* args, int64_t n_args, PyObject* kwnames) override {
    const int64_t n_kw = kwnames == nullptr ? 0 : PyTuple_GET_SIZE(kwnames);
    Step step;
    step.callable = Ref::borrow(callable);
    step.kwnames = Ref::borrow(kwnames);
    for (int64_t i = 0; i < n_args; i++) step.arguments.push_back(spec(args[i]));
    const Ref result = Ref::steal(PyObject_Vectorcall(callable, args, static_cast<size_t>(n_args - n_kw), kwnames));
    if (!result) return error("call");
    note(std::move(step), result.get());
    return result;
  }

  Result<Ref> get_attribute(PyObject* traced, PyObject* name) override {
    const Ref result = Ref::steal(PyObject_GetAttr(traced, name));
    if (!result) return error("getattr");
    std::vector<PyObject*> tensors;
    collect_tensors(tensor_, result.get(), tensors);
    if (!tensors.empty()) {
      Step step;
      step.attribute = Ref::borrow(name);
      step.arguments.push_back(spec(traced));
      note(std::move(step), result.get());
    }
    return result;
  }

  Result<Finished> finish(std::span<PyObject* const> outputs) override {
    for (PyObject* out : outputs) tape_->outputs.push_back(numbers_.at(out));
    tape_->n_tensors = static_cast<int64_t>(kept_.size());
    const auto n_ops = static_cast<int64_t>(tape_->steps.size());
    return Finished{.executable = tape_, .n_ops = n_ops};
  }
  std::vector<Input> inputs() const override { return inputs_; }
  std::vector<Input> guarded_only() const override { return {}; }
  uint64_t modes() const override { return modes_; }

 private:
  Unsupported error(const char* what) {
    PyObject *type = nullptr, *value = nullptr, *traceback = nullptr;
    PyErr_Fetch(&type, &value, &traceback);
    const Ref t = Ref::steal(type), v = Ref::steal(value), tb = Ref::steal(traceback);
    const Ref text = v ? Ref::steal(PyObject_Str(v.get())) : Ref();
    PyErr_Clear();
    return {std::string(what) + ": " + (text ? PyUnicode_AsUTF8(text.get()) : "?"), ""};
  }

  int64_t number(PyObject* tensor) {
    auto it = numbers_.find(tensor);
    if (it != numbers_.end()) return it->second;
    const auto n = static_cast<int64_t>(kept_.size());
    kept_.push_back(Ref::borrow(tensor));
    numbers_[tensor] = n;
    return n;
  }

  void note(Step step, PyObject* result) {
    std::vector<PyObject*> tensors;
    collect_tensors(tensor_, result, tensors);
    step.grad = torch_call("is_grad_enabled").get() == Py_True;
    step.first_result = static_cast<int64_t>(tape_->result_numbers.size());
    step.n_results = static_cast<int64_t>(tensors.size());
    for (PyObject* t : tensors) tape_->result_numbers.push_back(number(t));
    tape_->steps.push_back(std::move(step));
  }

  Spec spec(PyObject* v) {
    Spec s;
    const auto it = numbers_.find(v);
    if (it != numbers_.end()) {
      s.kind = Spec::Kind::Tensor;
      s.tensor = it->second;
    } else if (PySlice_Check(v)) {
      auto* slice = reinterpret_cast<PySliceObject*>(v);
      s.kind = Spec::Kind::Slice;
      for (PyObject* part : {slice->start, slice->stop, slice->step}) s.parts.push_back(spec(part));
    } else if (PyTuple_CheckExact(v) || PyList_CheckExact(v)) {
      s.kind = PyTuple_Check(v) ? Spec::Kind::Tuple : Spec::Kind::List;
      for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(v); i++) s.parts.push_back(spec(PySequence_Fast_GET_ITEM(v, i)));
    } else {
      s.constant = Ref::borrow(v);
    }
    return s;
  }

  Ref random_;
  bool grad_ = true;
  std::shared_ptr<Tape> tape_;
  PyTypeObject* tensor_;
  uint64_t modes_;
  std::unordered_map<PyObject*, int64_t> numbers_;
  std::vector<Ref> kept_;
  std::unordered_map<PyObject*, Ref> stand_ins_;
  std::unordered_map<PyObject*, PyObject*> reals_;
  std::vector<Input> inputs_;
};

class TapeDomain final : public TensorDomain {
 public:
  TapeDomain() {
    const Ref torch = module("torch");
    if (!torch) return;
    tensor_ = reinterpret_cast<PyTypeObject*>(attribute(torch.get(), "Tensor").release());
    for (const char* name : {"dtype", "device", "layout", "memory_format", "Size", "finfo", "iinfo"}) {
      constants_.insert(attribute(torch.get(), name).release());
    }
    grad_enabled_ = attribute(torch.get(), "is_grad_enabled");
    const Ref c = module("torch._C");
    add_all(attribute(c.get(), "_VariableFunctions").get());
    for (const char* name : {"torch._C._nn", "torch._C._linalg", "torch._C._fft", "torch._C._special"}) add_all(module(name).get());
    add_type(attribute(c.get(), "TensorBase").get());
    for (const char* name : {"item", "tolist", "numpy", "__bool__", "__int__", "__float__", "__index__", "__array__", "data_ptr"}) {
      const Ref key = Ref::steal(PyUnicode_FromString(name));
      if (PyObject* found = _PyType_Lookup(tensor_, key.get())) breaks_.insert(identity(found));
    }
    for (const char* name : {"tensor", "as_tensor", "from_numpy", "Generator"}) breaks_.insert(identity(attribute(torch.get(), name).get()));
  }
  bool is_tensor(PyObject* object) const override { return tensor_ != nullptr && PyType_IsSubtype(Py_TYPE(object), tensor_); }
  NativeKind classify(PyObject* callable) const override {
    const void* key = identity(callable);
    if (breaks_.count(key) > 0) return NativeKind::Break;
    return callables_.count(key) > 0 ? NativeKind::Tensor : NativeKind::Unknown;
  }
  std::string break_reason(PyObject* callable) const override {
    const Ref name = attribute(callable, "__name__");
    return std::string("needs the data: ") + PyUnicode_AsUTF8(name.get());
  }
  uint64_t modes() const override {
    if (!grad_enabled_) return 0;
    const Ref r = Ref::steal(PyObject_CallNoArgs(grad_enabled_.get()));
    return r.get() == Py_True;
  }
  std::string describe_modes(uint64_t modes) const override { return modes != 0 ? "grad" : "no grad"; }
  Result<std::unique_ptr<TraceSession>> begin(const TraceOptions&) override {
    return std::unique_ptr<TraceSession>(std::make_unique<Session>(tensor_ != nullptr ? tensor_ : &PyEllipsis_Type, modes()));
  }
  bool is_constant(PyObject* object) const override { return constants_.count(reinterpret_cast<PyObject*>(Py_TYPE(object))) > 0; }

 private:
  static Ref module(const char* name) {
    const Ref key = Ref::steal(PyUnicode_FromString(name));
    return Ref::steal(PyImport_GetModule(key.get()));
  }
  static const void* identity(PyObject* callable) {
    if (PyCFunction_Check(callable)) return reinterpret_cast<PyCFunctionObject*>(callable)->m_ml;
    if (Py_TYPE(callable) == &PyMethodDescr_Type) return reinterpret_cast<PyMethodDescrObject*>(callable)->d_method;
    return callable;
  }
  void add_all(PyObject* owner) {
    const Ref names = Ref::steal(PyObject_Dir(owner));
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(names.get()); i++) {
      const Ref v = Ref::steal(PyObject_GetAttr(owner, PyList_GET_ITEM(names.get(), i)));
      if (v && PyCFunction_Check(v.get())) callables_.insert(identity(v.get()));
      PyErr_Clear();
    }
  }
  void add_type(PyObject* type) {
    PyObject *key = nullptr, *value = nullptr;
    Py_ssize_t position = 0;
    while (PyDict_Next(type_dict(reinterpret_cast<PyTypeObject*>(type)), &position, &key, &value)) {
      if (Py_TYPE(value) == &PyMethodDescr_Type || Py_TYPE(value) == &PyWrapperDescr_Type) callables_.insert(identity(value));
    }
  }

  PyTypeObject* tensor_ = nullptr;
  Ref grad_enabled_;
  std::unordered_set<PyObject*> constants_;
  std::unordered_set<const void*> callables_, breaks_;
};

}  // namespace

std::unique_ptr<TensorDomain> make_tape_domain() { return std::make_unique<TapeDomain>(); }

}  // namespace braze::capture
