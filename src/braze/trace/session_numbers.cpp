// Python numbers that change between calls, and numbers that the program reads out of tensors: what stands for them, and
// what the executable and the program get of them.
#include <ATen/FunctionalTensorWrapper.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/csrc/utils/python_symnode.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <map>
#include <string_view>

#include "braze/trace/abort.h"
#include "braze/trace/session.h"

namespace braze::trace {

using capture::Ref;
using capture::Src;

PyObject* Session::changing_number(PyObject* real, Src src) {
  for (const Number& known : numbers_)
    if (known.src == src) return known.symbolic.get();
  const std::string path = options_.sources == nullptr ? std::string() : options_.sources->describe(src);
  if (std::ranges::find(options_.changing_numbers, path) == options_.changing_numbers.end()) return nullptr;
  Number number{src, {}, 0, PyFloat_CheckExact(real) != 0};
  const EnvPtr& env = recorder_.env();
  if (number.is_float) {
    number.symbolic = Ref::steal(make_symfloat(env->new_float(PyFloat_AS_DOUBLE(real), path), env));
  } else {
    int overflow = 0;
    const int64_t value = PyLong_AsLongLongAndOverflow(real, &overflow);
    if (overflow != 0 || value > NumberEnv::kMostInteger || value < -NumberEnv::kMostInteger) return nullptr;
    number.symbol = env->new_integer(value, path);
    number.symbolic = Ref::steal(py::cast(to_symint(number.symbol, env)).release().ptr());
  }
  numbers_.push_back(std::move(number));
  return numbers_.back().symbolic.get();
}

std::optional<FloatId> Session::element(const graph::Value& value) {
  const auto is_readable = [](const at::Tensor& tensor) {
    const c10::ScalarType type = tensor.scalar_type();
    const bool known = type == c10::kFloat || type == c10::kDouble || type == c10::kHalf || type == c10::kBFloat16 ||
                       type == c10::kLong || type == c10::kBool;
    return known && tensor.is_cpu() && tensor.numel() == 1;
  };
  const EnvPtr& env = recorder_.env();
  const auto constant = recorder_.constants().find(const_cast<graph::Value*>(&value));
  if (constant != recorder_.constants().end())
    return is_readable(constant->second) ? std::optional(env->constant(element_of(constant->second))) : std::nullopt;
  for (const auto& [id, input] : recorder_.float_inputs())
    if (input == &value) return id;
  const auto input = std::ranges::find(stand_ins_, &value, [](const StandIn& s) -> const graph::Value* { return s.first; });
  if (input == stand_ins_.end() || !is_readable(input->real)) return std::nullopt;
  const std::string path = options_.sources == nullptr ? std::string("a tensor") : options_.sources->describe(input->src);
  const FloatId id = env->new_element(element_of(input->real), path);
  numbers_.push_back({capture::kNoSource, {}, 0, true, input - stand_ins_.begin()});
  return value.type.dtype == DType::I64 ? env->apply(FloatOp::Exact, id) : id;
}

namespace {

bool is_method(PyObject* callable, std::initializer_list<const char*> names) {
  if (!Py_IS_TYPE(callable, &PyMethodDescr_Type)) return false;
  return std::ranges::any_of(names, [&](const char* name) { return PyUnicode_CompareWithASCIIString(PyDescr_NAME(callable), name) == 0; });
}

}  // namespace

Ref Session::read_number(PyObject* callable, PyObject* object) {
  const bool asks = is_method(callable, {"__bool__", "is_nonzero"});
  if (!(asks || is_method(callable, {"item", "__float__"})) || !is_traced(object)) return {};
  const at::Tensor& tensor = THPVariable_Unpack(object);
  if (!at::functionalization::impl::isFunctionalTensor(tensor)) return {};   // one of a functional transform
  if (!asks && !c10::isFloatingType(tensor.scalar_type())) return {};
  for (const c10::SymInt& size : tensor.sym_sizes())
    if (size.maybe_as_int() != 1) return {};
  at::functionalization::impl::sync(tensor);
  const at::Tensor inner = at::functionalization::impl::from_functional_tensor(tensor);
  const TracedImpl* impl = traced(inner);
  if (impl == nullptr || impl->constant().defined() || !impl->value()->type.is_strided) return {};
  if (!asks) return Ref::steal(make_symfloat(recorder_.number_in(inner), recorder_.env()));
  const std::optional<bool> truth = recorder_.host_numbers().truth(*impl->value());
  return truth ? Ref::borrow(*truth ? Py_True : Py_False) : Ref();
}

Result<Ref> Session::number_output(PyObject* symbolic) {
  const py::handle number(symbolic);
  const auto id = torch::is_symfloat(number) ? to_float_id(number.cast<c10::SymFloat>()) : std::nullopt;
  if (!id || !recorder_.env()->is_in_graph(*id)) return Ref();
  try {
    const RecordingScope recording(recorder_);
    const at::Tensor tensor = recorder_.tensor_for(recorder_.graph_number(*id));
    return Ref::steal(THPVariable_Wrap(at::functionalization::impl::to_functional_tensor(tensor)));
  } catch (const Abort& abort) {
    return abort.why;
  }
}

namespace {

// The floor or the ceiling as it is now, under a guard that the number stays between the same two integers.
Ref whole_number(NumberEnv& env, FloatId id, bool up) {
  const double value = up ? std::ceil(env.hint_of(id)) : std::floor(env.hint_of(id));
  const bool holds = up ? env.ask(Comparison::LessEqual, id, env.constant(value)) && env.ask(Comparison::Less, env.constant(value - 1), id)
                        : env.ask(Comparison::LessEqual, env.constant(value), id) && env.ask(Comparison::Less, id, env.constant(value + 1));
  return holds ? Ref::steal(PyLong_FromDouble(value)) : Ref();
}

}  // namespace

Result<Ref> Session::math(const char* function, PyObject* a, PyObject* b) {
  static const std::map<std::string_view, FloatOp> table = {
      {"sqrt", FloatOp::SquareRoot}, {"exp", FloatOp::Exponential}, {"log", FloatOp::Logarithm}, {"sin", FloatOp::Sine},
      {"cos", FloatOp::Cosine}, {"max", FloatOp::Maximum}, {"min", FloatOp::Minimum}};
  const EnvPtr& env = recorder_.env();
  const auto id_of = [&](PyObject* number) -> std::optional<FloatId> {
    if (PyFloat_CheckExact(number)) return env->constant(PyFloat_AS_DOUBLE(number));
    return torch::is_symfloat(py::handle(number)) ? to_float_id(py::handle(number).cast<c10::SymFloat>()) : std::nullopt;
  };
  const std::string_view name(function);
  const auto op = table.find(name);
  const auto x = id_of(a), y = b == nullptr ? std::nullopt : id_of(b);
  try {
    if (x && (name == "floor" || name == "ceil")) return whole_number(*env, *x, name == "ceil");
  } catch (const Abort& abort) {
    return abort.why;
  }
  if (op == table.end() || !x || (b != nullptr && !y)) return Ref();
  if (b != nullptr && !env->is_in_graph(*x) && !env->is_in_graph(*y)) return Ref();   // a question, which has an answer
  try {
    return Ref::steal(make_symfloat(env->apply(op->second, *x, y.value_or(-1)), env));
  } catch (const Abort& abort) {
    return abort.why;
  }
}

std::vector<Src> Session::changing_numbers() const {
  std::vector<Src> out;
  for (const Number& number : numbers_)
    if (number.stand_in < 0) out.push_back(number.src);
  return out;
}

int64_t Session::add_number_result(PyObject* symbolic) {
  const py::handle number(symbolic);
  if (torch::is_symint(number)) {
    const auto value = number.cast<c10::SymInt>();
    if (value.is_symbolic() && !value.toSymNodeImplUnowned()->has_hint()) return -1;   // depends on data
    number_results_.push_back({NumberRequest::Kind::Integer, recorder_.env()->simplify(to_expr(value)), -1});
  } else if (torch::is_symfloat(number)) {
    const auto value = number.cast<c10::SymFloat>();
    const auto id = to_float_id(value);
    if (id && recorder_.env()->is_in_graph(*id)) return -1;
    number_results_.push_back({NumberRequest::Kind::Float, 0,
                               id ? *id : recorder_.env()->constant(value.guard_float(__FILE__, __LINE__))});
  } else {
    return -1;
  }
  return static_cast<int64_t>(number_results_.size()) - 1;
}

NumberReads Session::number_reads() const {
  NumberReads reads;
  auto place = static_cast<int32_t>(inputs().size());
  for (const StandIn& input : stand_ins_)
    for (size_t d = 0; d < input.dynamic.size(); ++d)
      if (input.dynamic[d] && input.caller >= 0)
        reads.symbols.push_back({input.value->type.sizes[d], input.caller, static_cast<int32_t>(d)});
  for (const Number& number : numbers_) {
    if (number.stand_in >= 0) {
      reads.floats.push_back({stand_ins_[static_cast<size_t>(number.stand_in)].caller, true});
      continue;
    }
    if (number.is_float) reads.floats.push_back({place, false});
    else reads.symbols.push_back({number.symbol, place, -1});
    ++place;
  }
  return reads;
}

// What the graph takes, then what the program gets.
std::vector<NumberRequest> Session::number_requests() const {
  std::vector<NumberRequest> requests;
  const graph::Graph& g = recorder_.graph();
  for (const auto& [id, value] : recorder_.float_inputs())
    if (std::ranges::find(g.inputs, value) != g.inputs.end()) requests.push_back({NumberRequest::Kind::Tensor, 0, id});
  for (graph::Expr size : g.size_inputs) requests.push_back({NumberRequest::Kind::Integer, size, -1});
  requests.insert(requests.end(), number_results_.begin(), number_results_.end());
  return requests;
}

}  // namespace braze::trace
