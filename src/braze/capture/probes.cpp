#include "braze/capture/probes.h"

#include <optional>

#include "braze/capture/exits/frames.h"
#include "braze/capture/guards/object.h"

namespace braze::capture {

namespace {

// Calls, attributes, loops, unpacking, handled errors, `with`, closures: what the frames of user code look like.
constexpr const char* kProgram = R"py(
class Manager:
    def __init__(self, log):
        self.log = log
    def __enter__(self):
        self.log.append('in')
        return self
    def __exit__(self, kind, value, traceback):
        self.log.append(kind)
        return kind is KeyError

def probe(n):
    log = []
    def double(x, *, more=0):
        return 2 * x + more
    for i, (a, b) in enumerate([(n, 1), (2, 0), (3, 4)]):
        with Manager(log) as m:
            try:
                m.log.append(a // b)
                if a == 3:
                    raise KeyError(double(b, more=i))
            except ZeroDivisionError as error:
                m.log.append((type(error).__name__, error.__traceback__.tb_lineno))
            finally:
                m.log.append([x + i for x in (a, b)])
    return log, f'{n!r:>4}', double(n)
)py";

constexpr int kSteps = 80;

// The function's frame after so many steps, run on by CPython.
Ref run(PyObject* function, PyObject* argument, int steps) {
  const Code& code = decode(reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(function)));
  std::vector<PyObject*> roots(static_cast<size_t>(code.n_slots) + 1);
  roots[0] = Ref::borrow(function).release();
  roots[1] = Ref::borrow(argument).release();
  const FramePoint start{&code, 0, code.n_slots};
  LiveFrames frames({&start, 1}, roots.data());
  PyObject* result = nullptr;
  for (int i = 0; i < steps; i++) {
    if (!frames.step(result)) return Ref::steal(result);
  }
  return Ref::steal(frames.finish());
}

bool frames_behave() {
  const Ref scope = Ref::steal(PyDict_New()), argument = Ref::steal(PyLong_FromLong(100007));   // not shared
  if (!scope || PyDict_SetItemString(scope.get(), "__builtins__", PyEval_GetBuiltins()) < 0) return false;
  const Ref code = Ref::steal(Py_CompileString(kProgram, "<braze probe>", Py_file_input));
  const Ref done = code ? Ref::steal(PyEval_EvalCode(code.get(), scope.get(), scope.get())) : Ref();
  PyObject* const function = done ? PyDict_GetItemString(scope.get(), "probe") : nullptr;
  const Ref expected = function != nullptr ? Ref::steal(PyObject_CallOneArg(function, argument.get())) : Ref();
  if (!expected) return false;
  const Py_ssize_t references = Py_REFCNT(argument.get());
  for (int steps = 0; steps < kSteps; steps++) {
    const Ref result = run(function, argument.get(), steps);
    if (!result || PyObject_RichCompareBool(result.get(), expected.get(), Py_EQ) != 1) return false;
  }
  return Py_REFCNT(argument.get()) == references;
}

}  // namespace

bool python_behaves() {
  static const bool ok = [] {
    const bool outcome = object::layout_works() && frames_behave();
    PyErr_Clear();
    return outcome;
  }();
  return ok;
}

}  // namespace braze::capture
