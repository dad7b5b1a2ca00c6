#include "braze/trace/call_numbers.h"

#include "braze/support/check.h"

#include <ATen/ScalarOps.h>
#include <torch/csrc/autograd/python_variable.h>

namespace braze::trace {
namespace {

std::vector<sym::Expr> symbols_of(const std::vector<SizeRead>& reads) {
  std::vector<sym::Expr> out;
  for (const SizeRead& read : reads) out.push_back(read.symbol);
  return out;
}

class Computed final : public capture::CallNumbers {
 public:
  Computed(const NumberEnv& env, NumberReads reads, std::vector<NumberRequest> requests)
      : reader_(env, std::move(reads)), requests_(std::move(requests)) {
    for (const NumberRequest& request : requests_)
      slots_.push_back(request.kind == NumberRequest::Kind::Integer ? reader_.add(request.integer) : request.real);
  }

  int64_t count() const override { return static_cast<int64_t>(requests_.size()); }

  bool run(PyObject* const* inputs, PyObject** out) const override {
    NumberReader::Values values;
    size_t made = 0;
    try {
      if (!reader_.read(inputs, values)) PyErr_SetString(PyExc_SystemError, "braze: a number changed after its guard");
      for (; made < slots_.size() && !PyErr_Occurred(); ++made)
        if (!(out[made] = make(requests_[made].kind, static_cast<size_t>(slots_[made]), values))) break;
    } catch (const std::exception& error) {
      PyErr_SetString(PyExc_RuntimeError, error.what());
    }
    if (made == slots_.size() && !PyErr_Occurred()) return true;
    while (made > 0) capture::Ref::steal(out[--made]);
    return false;
  }

 private:
  static PyObject* make(NumberRequest::Kind kind, size_t slot, const NumberReader::Values& values) {
    switch (kind) {
      case NumberRequest::Kind::Integer: return PyLong_FromLongLong(values.integers[slot]);
      case NumberRequest::Kind::Float: return PyFloat_FromDouble(values.floats[slot]);
      case NumberRequest::Kind::Tensor: break;
    }
    at::Tensor weak = at::detail::scalar_tensor_static(values.floats[slot], at::kDouble, at::kCPU);
    weak.unsafeGetTensorImpl()->set_wrapped_number(true);
    return THPVariable_Wrap(std::move(weak));
  }

  NumberReader reader_;
  std::vector<NumberRequest> requests_;
  std::vector<int> slots_;
};

}  // namespace

double element_of(const at::Tensor& tensor) {
  const void* data = tensor.const_data_ptr();   // no operator runs: the call may be in a trace
  switch (tensor.scalar_type()) {
    case c10::kFloat: return *static_cast<const float*>(data);
    case c10::kDouble: return *static_cast<const double*>(data);
    case c10::kHalf: return static_cast<double>(*static_cast<const c10::Half*>(data));
    case c10::kBFloat16: return static_cast<double>(*static_cast<const c10::BFloat16*>(data));
    case c10::kLong: return static_cast<double>(*static_cast<const int64_t*>(data));
    case c10::kBool: return *static_cast<const bool*>(data) ? 1 : 0;
    default: throw InternalError("an element of a type that is not read");
  }
}

NumberReader::NumberReader(const NumberEnv& env, NumberReads reads)
    : reads_(std::move(reads)), program_(symbols_of(reads_.symbols)), floats_(env.floats()) {
  for (const FloatNode& node : floats_)
    float_slots_.push_back(node.op == FloatOp::Integer ? program_.add(node.integer) : -1);
}

bool NumberReader::read(PyObject* const* inputs, Values& values) const {
  values.integers.resize(static_cast<size_t>(program_.slots()), 0);
  for (size_t i = 0; i < reads_.symbols.size(); ++i) {
    const SizeRead& read = reads_.symbols[i];
    PyObject* const input = inputs[read.input];
    if (read.dim >= 0) {
      values.integers[i] = THPVariable_Unpack(input).size(read.dim);
      continue;
    }
    int overflow = 0;
    const int64_t value = PyLong_AsLongLongAndOverflow(input, &overflow);
    if (overflow != 0 || value > NumberEnv::kMostInteger || value < -NumberEnv::kMostInteger) return false;
    values.integers[i] = value;
  }
  program_.run(values.integers.data());
  values.floats.resize(floats_.size(), 0);
  for (size_t i = 0; i < floats_.size(); ++i) {
    const FloatNode& node = floats_[i];
    double& value = values.floats[i];
    switch (node.op) {
      case FloatOp::Constant: value = node.value; continue;
      case FloatOp::Input: case FloatOp::Element: {
        const FloatRead& read = reads_.floats[static_cast<size_t>(node.a)];
        PyObject* const input = inputs[read.input];
        value = read.is_element ? element_of(THPVariable_Unpack(input)) : PyFloat_AS_DOUBLE(input);
        continue;
      }
      case FloatOp::InGraph: continue;
      case FloatOp::Integer: value = static_cast<double>(values.integers[static_cast<size_t>(float_slots_[i])]); continue;
      case FloatOp::Add: case FloatOp::Subtract: case FloatOp::Multiply: case FloatOp::Divide: case FloatOp::Power: case FloatOp::Maximum: case FloatOp::Minimum:
      case FloatOp::Negate: case FloatOp::Single: case FloatOp::Exact: case FloatOp::SquareRoot:
      case FloatOp::Exponential: case FloatOp::Logarithm: case FloatOp::Sine: case FloatOp::Cosine: break;
    }
    const double a = values.floats[static_cast<size_t>(node.a)];
    const double b = node.b < 0 ? 0 : values.floats[static_cast<size_t>(node.b)];
    value = apply(node.op, a, b);
    if (!is_computed(node, a, b, value)) return false;
  }
  return true;
}

std::shared_ptr<const capture::CallNumbers> make_call_numbers(const NumberEnv& env, NumberReads reads,
                                                              std::vector<NumberRequest> requests) {
  if (requests.empty()) return nullptr;
  return std::make_shared<Computed>(env, std::move(reads), std::move(requests));
}

}  // namespace braze::trace
