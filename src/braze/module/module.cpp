// The extension module braze._braze.
#include <dlfcn.h>

#include "braze/jit/jit.h"
#include "braze/module/compiled_function.h"
#include "braze/module/counters.h"
#include "braze/module/custom_passes.h"
#include "braze/module/errors.h"
#include "braze/module/pipeline.h"
#include "braze/support/log.h"

namespace braze::module {

using capture::Ref;

namespace {

Ref text(const std::string& s) {
  return Ref::steal(PyUnicode_DecodeUTF8(s.data(), static_cast<Py_ssize_t>(s.size()), "replace"));
}

bool set(const Ref& dict, const char* key, const Ref& value) {
  return dict && value && PyDict_SetItemString(dict.get(), key, value.get()) == 0;
}

Ref count_dict(const std::map<std::string, int64_t>& counts) {
  Ref dict = Ref::steal(PyDict_New());
  for (const auto& [name, n] : counts) {
    Ref key = text(name), value = Ref::steal(PyLong_FromLongLong(n));
    if (!dict || !key || !value || PyDict_SetItem(dict.get(), key.get(), value.get()) < 0) return Ref();
  }
  return dict;
}

Ref string_list(const std::vector<std::string>& names) {
  Ref list = Ref::steal(PyList_New(0));
  for (const std::string& name : names) {
    Ref item = text(name);
    if (!list || !item || PyList_Append(list.get(), item.get()) < 0) return Ref();
  }
  return list;
}

PyObject* get_counters(PyObject*, PyObject*) {
  Ref dict = Ref::steal(PyDict_New());
  const Counters& c = counters();
  const bool ok = set(dict, "graphs", Ref::steal(PyLong_FromLongLong(c.graphs))) &&
                  set(dict, "breaks", count_dict(c.breaks)) && set(dict, "skipped", count_dict(c.skipped));
  return ok ? dict.release() : nullptr;
}

PyObject* get_compile_count(PyObject*, PyObject*) { return PyLong_FromLongLong(counters().graphs_ever); }

PyObject* get_fallbacks(PyObject*, PyObject*) { return count_dict(counters().fallbacks).release(); }

PyObject* get_phase_reports(PyObject*, PyObject*) {
  Ref list = Ref::steal(PyList_New(0));
  for (const PhaseReport& report : phase_reports()) {
    Ref row = Ref::steal(PyDict_New()), phases = Ref::steal(PyDict_New());
    for (const auto& [name, ms] : report.phases) {
      if (!set(phases, name.c_str(), Ref::steal(PyFloat_FromDouble(ms)))) return nullptr;
    }
    const bool ok = set(row, "graph", text(report.name)) && set(row, "nodes", Ref::steal(PyLong_FromLongLong(report.nodes))) &&
                    set(row, "kernels", Ref::steal(PyLong_FromLongLong(report.kernels))) &&
                    set(row, "calls", Ref::steal(PyLong_FromLongLong(report.calls))) && set(row, "ms", phases) &&
                    set(row, "note", text(report.note));
    if (!ok || !list || PyList_Append(list.get(), row.get()) < 0) return nullptr;
  }
  return list.release();
}

PyObject* reset(PyObject*, PyObject*) {
  clear_all_entries();
  counters().reset();
  phase_reports().clear();
  reset_warnings();
  Py_RETURN_NONE;
}

PyObject* set_logs(PyObject*, PyObject* words) {
  const char* utf8 = PyUnicode_AsUTF8(words);
  if (utf8 == nullptr) return nullptr;
  const std::string unknown = set_log_topics(utf8);
  if (unknown.empty()) Py_RETURN_NONE;
  return PyErr_Format(PyExc_ValueError, "unknown log topic '%s'", unknown.c_str());
}

PyObject* is_compiling(PyObject*, PyObject*) { return PyBool_FromLong(is_tracing()); }

PyObject* run_eagerly(PyObject*, PyObject* const* args, Py_ssize_t n) {
  if (n != 3 || !PyTuple_Check(args[1]) || !PyDict_Check(args[2])) {
    return PyErr_Format(PyExc_TypeError, "run_eagerly(function, args, kwargs)");
  }
  const RunEagerly eagerly;
  return PyObject_Call(args[0], args[1], args[2]);
}

PyObject* get_backends(PyObject*, PyObject*) { return string_list(backends()).release(); }
PyObject* get_pass_names(PyObject*, PyObject*) { return string_list(pass_names()).release(); }

PyMethodDef kFunctions[] = {
    {"counters", get_counters, METH_NOARGS, nullptr},
    {"compile_count", get_compile_count, METH_NOARGS, nullptr},
    {"fallback_report", get_fallbacks, METH_NOARGS, nullptr},
    {"phase_reports", get_phase_reports, METH_NOARGS, nullptr},
    {"reset", reset, METH_NOARGS, nullptr},
    {"set_logs", set_logs, METH_O, nullptr},
    {"is_compiling", is_compiling, METH_NOARGS, nullptr},
    {"run_eagerly", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(run_eagerly)), METH_FASTCALL, nullptr},
    {"backends", get_backends, METH_NOARGS, nullptr},
    {"pass_names", get_pass_names, METH_NOARGS, nullptr},
    {nullptr, nullptr, 0, nullptr}};

PyModuleDef kModule = {PyModuleDef_HEAD_INIT, "_braze", nullptr, -1, kFunctions, nullptr, nullptr, nullptr, nullptr};

}  // namespace

// The folder of this extension, where libbraze_clang.so stands too.
std::string own_folder() {
  Dl_info info;
  if (dladdr(reinterpret_cast<const void*>(&own_folder), &info) == 0 || info.dli_fname == nullptr) return "";
  const std::string path = info.dli_fname;
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash);
}

}  // namespace braze::module

PyMODINIT_FUNC PyInit__braze() {
  using namespace braze::module;
  auto module = braze::capture::Ref::steal(PyModule_Create(&kModule));
  if (!module || !add_errors(module.get()) || !add_compiled_function(module.get())) return nullptr;
  add_graph_objects(module.get());
  register_pipeline();
  braze::jit::set_library_folder(own_folder());
  return module.release();
}
