// Python numbers that change between calls: what stands for them, and what the executable and the program get of them.
#include <torch/csrc/utils/pybind.h>
#include <torch/csrc/utils/python_symnode.h>

#include <algorithm>

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

std::vector<Src> Session::changing_numbers() const {
  std::vector<Src> out;
  for (const Number& number : numbers_) out.push_back(number.src);
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
    if (number.is_float) reads.floats.push_back(place);
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
