#include "braze/module/errors.h"

namespace braze::module {

using capture::CaptureFailure;
using capture::Ref;

namespace {

PyObject* braze_error = nullptr;
PyObject* user_error = nullptr;
PyObject* unsupported = nullptr;
PyObject* internal_error = nullptr;

bool add(PyObject* module, PyObject*& slot, const char* name, const char* doc, PyObject* base) {
  slot = PyErr_NewExceptionWithDoc((std::string("braze.") + name).c_str(), doc, base, nullptr);
  return slot != nullptr && PyModule_AddObjectRef(module, name, slot) == 0;
}

bool set(PyObject* error, const char* name, const std::string& value) {
  Ref text = Ref::steal(PyUnicode_DecodeUTF8(value.data(), static_cast<Py_ssize_t>(value.size()), "replace"));
  return text && PyObject_SetAttrString(error, name, text.get()) == 0;
}

}  // namespace

bool add_errors(PyObject* module) {
  return add(module, braze_error, "BrazeError", "Base of all errors that braze itself raises.", PyExc_RuntimeError) &&
         add(module, user_error, "UserError", "Braze was used in a way that can't work; the text says what to do.",
             braze_error) &&
         add(module, unsupported, "Unsupported",
             "A call can't be compiled whole. Has: reason, remedy, file, line, source_line.", braze_error) &&
         add(module, internal_error, "InternalError", "A bug in braze.", braze_error);
}

std::string failure_text(const CaptureFailure& failure) {
  std::string out = failure.reason;
  if (!failure.stack.empty()) {
    out += "\n" + failure.stack;
    while (out.back() == '\n') out.pop_back();
  } else if (!failure.file.empty()) {
    out += "\n  File \"" + failure.file + "\", line " + std::to_string(failure.line);
    if (!failure.source_line.empty()) out += "\n    " + failure.source_line;
  }
  if (!failure.remedy.empty()) out += "\n" + failure.remedy;
  return out;
}

void raise_unsupported(const CaptureFailure& failure) {
  const std::string text = failure_text(failure);
  Ref message = Ref::steal(PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace"));
  Ref error = message ? Ref::steal(PyObject_CallOneArg(unsupported, message.get())) : Ref();
  Ref line = Ref::steal(PyLong_FromLong(failure.line));
  if (!error || !line || !set(error.get(), "reason", failure.reason) || !set(error.get(), "remedy", failure.remedy) ||
      !set(error.get(), "file", failure.file) || !set(error.get(), "source_line", failure.source_line) ||
      PyObject_SetAttrString(error.get(), "line", line.get()) < 0) {
    return;
  }
  PyErr_SetObject(unsupported, error.get());
}

void raise_internal_error(const std::string& text) { PyErr_SetString(internal_error, text.c_str()); }

}  // namespace braze::module
