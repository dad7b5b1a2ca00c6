// _capture_test: trace_call and what it makes, seen from Python. Import torch first to trace tensors.
#include <chrono>
#include <optional>

#include "braze/capture/probes.h"
#include "braze/capture/trace_call.h"
#include "tape_domain.h"

namespace {

using namespace braze::capture;

struct SegmentObject {
  PyObject_HEAD
  Segment* segment;
};

struct Arguments {
  std::vector<PyObject*> values;
  braze::capture::Ref kwnames;
  int64_t n_positional = 0;
};

bool unpack(PyObject* args, PyObject* kwargs, Arguments& out) {
  if (!PyTuple_Check(args)) return PyErr_SetString(PyExc_TypeError, "args must be a tuple"), false;
  out.n_positional = PyTuple_GET_SIZE(args);
  for (Py_ssize_t i = 0; i < out.n_positional; i++) out.values.push_back(PyTuple_GET_ITEM(args, i));
  if (kwargs != nullptr && kwargs != Py_None && PyDict_Size(kwargs) > 0) {
    const Ref keys = Ref::steal(PyDict_Keys(kwargs));
    out.kwnames = Ref::steal(PyList_AsTuple(keys.get()));
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(keys.get()); i++) out.values.push_back(PyDict_GetItem(kwargs, PyList_GET_ITEM(keys.get(), i)));
  }
  return true;
}

void segment_dealloc(PyObject* self) {
  delete reinterpret_cast<SegmentObject*>(self)->segment;
  PyTypeObject* type = Py_TYPE(self);
  type->tp_free(self);
  Ref::steal(reinterpret_cast<PyObject*>(type));
}

// call(function, args, kwargs=None) -> result; raises LookupError with the failing guard.
PyObject* segment_call(PyObject* self, PyObject* tuple) {
  PyObject *callee = nullptr, *args = nullptr, *kwargs = nullptr;
  if (!PyArg_ParseTuple(tuple, "OO|O", &callee, &args, &kwargs)) return nullptr;
  Arguments a;
  if (!unpack(args, kwargs, a)) return nullptr;
  const Segment& s = *reinterpret_cast<SegmentObject*>(self)->segment;
  const CallArgs call{callee, a.values.data(), static_cast<int64_t>(a.values.size())};
  std::vector<PyObject*> fetched(static_cast<size_t>(s.guards->n_fetched()) + 1);
  if (!s.guards->run(call, fetched.data())) {
    PyErr_SetString(PyExc_LookupError, s.guards->explain_failure(call).c_str());
    return nullptr;
  }
  std::vector<PyObject*> inputs;
  for (const int32_t i : s.inputs) inputs.push_back(fetched[static_cast<size_t>(i)]);
  const auto n_outputs = static_cast<size_t>(s.executable ? s.executable->n_outputs() : 0);
  std::vector<PyObject*> outputs(n_outputs + 1);
  if (s.executable && !s.executable->run(inputs.data(), static_cast<int64_t>(inputs.size()), outputs.data())) return nullptr;
  PyObject* result = s.exit.run(fetched.data(), outputs.data());
  for (size_t i = 0; i < n_outputs; i++) Ref::steal(outputs[i]);
  return result;
}

PyObject* segment_describe(PyObject* self, PyObject*) {
  const Segment& s = *reinterpret_cast<SegmentObject*>(self)->segment;
  return Py_BuildValue("{s:s,s:s,s:L,s:L}", "guards", s.guards->describe().c_str(), "exit", s.exit.describe().c_str(),
                       "n_ops", static_cast<long long>(s.n_ops), "n_guards", static_cast<long long>(s.guards->size()));
}

PyMethodDef kSegmentMethods[] = {{"call", segment_call, METH_VARARGS, nullptr},
                                 {"describe", segment_describe, METH_NOARGS, nullptr},
                                 {nullptr, nullptr, 0, nullptr}};
PyType_Slot kSegmentSlots[] = {{Py_tp_dealloc, reinterpret_cast<void*>(segment_dealloc)}, {Py_tp_methods, kSegmentMethods}, {0, nullptr}};
PyType_Spec kSegmentSpec = {"_capture_test.Segment", sizeof(SegmentObject), 0, Py_TPFLAGS_DEFAULT, kSegmentSlots};
PyTypeObject* segment_type = nullptr;

// trace(function, args, kwargs=None) -> Segment, or a dict that says why not.
PyObject* trace(PyObject*, PyObject* tuple) {
  PyObject *callee = nullptr, *args = nullptr, *kwargs = nullptr;
  if (!PyArg_ParseTuple(tuple, "OO|O", &callee, &args, &kwargs)) return nullptr;
  Arguments a;
  if (!unpack(args, kwargs, a)) return nullptr;
  TraceOptions options;
  options.graph_breaks = false;
  CaptureOutcome outcome = trace_call({callee, a.values.data(), a.n_positional, a.kwnames.get()}, options);
  if (auto* failure = std::get_if<CaptureFailure>(&outcome)) {
    if (PyErr_Occurred()) return nullptr;
    return Py_BuildValue("{s:s,s:s,s:i,s:s,s:s}", "reason", failure->reason.c_str(), "file", failure->file.c_str(), "line",
                         failure->line, "source", failure->source_line.c_str(), "stack", failure->stack.c_str());
  }
  if (PyErr_Occurred()) {
    PyErr_SetString(PyExc_SystemError, "trace_call left an error set");
    return nullptr;
  }
  auto* object = PyObject_New(SegmentObject, segment_type);
  object->segment = new Segment(std::move(std::get<Segment>(outcome)));
  return reinterpret_cast<PyObject*>(object);
}

// One segment: guards, executable, exit. The result; `frames` receives what runs on after a graph break.
PyObject* run_segment(const Segment& s, const CallArgs& call, std::optional<LiveFrames>& frames) {
  std::vector<PyObject*> fetched(static_cast<size_t>(s.guards->n_fetched()) + 1);
  if (!s.guards->run(call, fetched.data())) {
    return PyErr_Format(PyExc_LookupError, "%s", s.guards->explain_failure(call).c_str());
  }
  std::vector<PyObject*> inputs;
  for (const int32_t i : s.inputs) inputs.push_back(fetched[static_cast<size_t>(i)]);
  const auto n_outputs = static_cast<size_t>(s.executable ? s.executable->n_outputs() : 0);
  std::vector<PyObject*> outputs(n_outputs + 1), roots(s.exit.n_roots() + 1);
  if (s.executable && !s.executable->run(inputs.data(), static_cast<int64_t>(inputs.size()), outputs.data())) return nullptr;
  PyObject* result = s.exit.run(fetched.data(), outputs.data(), roots.data());
  for (size_t i = 0; i < n_outputs; i++) Ref::steal(outputs[i]);
  if (result != nullptr && !s.frames.empty()) frames.emplace(s.frames, roots.data());
  return result;
}

// run(function, args, kwargs, most_instructions, most_segments) -> (result, segments, [reasons]). The call in segments of
// at most so many instructions, with one instruction executed for real between two; CPython ends frames where no segment
// can start, and what is left after most_segments.
PyObject* run(PyObject*, PyObject* tuple) {
  PyObject *callee = nullptr, *args = nullptr, *kwargs = nullptr;
  unsigned long long most_instructions = 0;
  int most_segments = 0;
  if (!PyArg_ParseTuple(tuple, "OOOKi", &callee, &args, &kwargs, &most_instructions, &most_segments)) return nullptr;
  Arguments a;
  if (!unpack(args, kwargs, a)) return nullptr;
  TraceOptions options;
  options.most_instructions = most_instructions;
  const Ref reasons = Ref::steal(PyList_New(0));
  int segments = 0;
  const auto done = [&](PyObject* result) {
    return result == nullptr ? nullptr : Py_BuildValue("(NiO)", result, segments, reasons.get());
  };
  std::optional<LiveFrames> frames;
  for (;;) {
    bool end_innermost = false;
    std::vector<PyObject*> values;
    std::string key;
    CallTarget target{callee, a.values.data(), a.n_positional, a.kwnames.get()};
    CallArgs call{callee, a.values.data(), static_cast<int64_t>(a.values.size())};
    if (frames) {
      if (!frames->describe(values, key)) return done(frames->finish());
      target = {values[0], values.data(), static_cast<int64_t>(values.size()), nullptr, &*frames};
      call = {values[0], values.data(), static_cast<int64_t>(values.size())};
    }
    CaptureOutcome outcome = trace_call(target, options);
    if (auto* failure = std::get_if<CaptureFailure>(&outcome)) {
      if (PyErr_Occurred()) return nullptr;
      const Ref reason = Ref::steal(PyUnicode_FromString(failure->reason.c_str()));
      PyList_Append(reasons.get(), reason.get());
      if (!frames) return done(PyObject_Vectorcall(callee, a.values.data(), static_cast<size_t>(a.n_positional), a.kwnames.get()));
      end_innermost = !failure->at_start;
    } else {
      Segment& segment = std::get<Segment>(outcome);
      if (segment.broken) {
        const Ref reason = Ref::steal(PyUnicode_FromString(segment.broken->reason.c_str()));
        PyList_Append(reasons.get(), reason.get());
      }
      segments++;
      std::optional<LiveFrames> next;
      PyObject* result = run_segment(segment, call, next);
      if (result == nullptr || !next) return done(result);
      Ref::steal(result);
      frames = std::move(next);
    }
    PyObject* result = nullptr;
    if (segments >= most_segments) return done(frames->finish());
    if (!(end_innermost ? frames->end_innermost(result) : frames->step(result))) return done(result);
  }
}

PyObject* behaves(PyObject*, PyObject*) { return PyBool_FromLong(python_behaves()); }

PyMethodDef kMethods[] = {{"python_behaves", behaves, METH_NOARGS, nullptr},
                          {"trace", trace, METH_VARARGS, nullptr}, {"run", run, METH_VARARGS, nullptr}, {nullptr, nullptr, 0, nullptr}};
PyModuleDef kModule = {PyModuleDef_HEAD_INIT, "_capture_test", nullptr, -1, kMethods, nullptr, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__capture_test() {
  register_domain(make_tape_domain());
  segment_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&kSegmentSpec));
  PyObject* module = PyModule_Create(&kModule);
  if (module != nullptr) PyModule_AddObject(module, "Segment", Ref::borrow(reinterpret_cast<PyObject*>(segment_type)).release());
  return module;
}
