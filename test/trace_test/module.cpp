// _trace_test: drives a trace session from Python without capture. The compiler that it registers keeps the graph and
// runs it through ATen.
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include <pybind11/stl.h>

#include <algorithm>

#include "braze/capture/tensor_domain.h"
#include "braze/graph/text.h"
#include "braze/runtime/graph_executor.h"
#include "braze/trace/compiler.h"
#include "braze/trace/torch_types.h"
#include "replay.h"

namespace {

using namespace braze;
using capture::Ref;

struct Compiled {
  std::shared_ptr<const graph::Graph> graph;
  trace::GraphContext context;
};
Compiled last_compiled;

Result<std::shared_ptr<Executable>> compile(std::unique_ptr<graph::Graph> graph, const trace::GraphContext& context) {
  if (const std::string problems = graph::verify(*graph); !problems.empty())
    return Unsupported{"malformed graph: " + problems + "\n" + graph::print(*graph), ""};
  last_compiled = {std::move(graph), context};
  if (context.joint) return std::shared_ptr<Executable>();    // run_joint() runs it
  return std::shared_ptr<Executable>(runtime::make_graph_executor(last_compiled.graph, context));
}

[[noreturn]] void refuse(const Unsupported& why) { throw std::runtime_error("Unsupported: " + why.reason); }

class Trace {
 public:
  Trace(bool dynamic, bool storage_bases) {
    options_.dynamic = dynamic;
    options_.storage_bases = storage_bases;
    options_.sources = &sources_;
    options_.keep_text = true;
    auto session = capture::domain().begin(options_);
    if (!session.ok()) refuse(session.why());
    session_ = std::move(*session);
  }

  py::object stand_in(py::object tensor, const std::string& name, int argument) {
    capture::Src src = argument >= 0 ? sources_.arg(argument)
                                     : sources_.intern(capture::SourceKind::Attr, sources_.callee(), 0, py::str(name).ptr());
    auto result = session_->stand_in(tensor.ptr(), src);
    if (!result.ok()) refuse(result.why());
    tensors_[src] = tensor;
    return py::reinterpret_steal<py::object>(result->release());
  }

  py::object call(py::object callable, const py::tuple& args) {
    std::vector<PyObject*> objects;
    for (py::handle arg : args) objects.push_back(arg.ptr());
    auto result = session_->call(callable.ptr(), objects.data(), static_cast<int64_t>(objects.size()), nullptr);
    if (!result.ok()) refuse(result.why());
    return py::reinterpret_steal<py::object>(result->release());
  }

  py::object attribute(py::object tensor, py::str name) {
    auto result = session_->get_attribute(tensor.ptr(), name.ptr());
    if (!result.ok()) refuse(result.why());
    return py::reinterpret_steal<py::object>(result->release());
  }

  void close() { session_.reset(); }
  bool is_traced(py::object object) const { return session_->is_traced(object.ptr()); }
  bool wants_storage_bases() const { return session_->retry_with_storage_bases(); }

  py::dict finish(const py::list& outputs) {
    std::vector<PyObject*> objects;
    for (py::handle output : outputs) objects.push_back(output.ptr());
    auto result = session_->finish(objects);
    if (!result.ok()) refuse(result.why());
    finished_ = std::move(*result);
    compiled_ = last_compiled;
    py::list callers;
    for (const auto& input : session_->inputs()) {
      callers.append(tensors_.at(input.src));
      operands_.push_back(input.operand);
    }
    py::dict out;
    out["text"] = finished_.graph_text;
    out["ops"] = finished_.n_ops;
    out["callers"] = callers;
    out["guarded_only"] = session_->guarded_only().size();
    out["mutations"] = compiled_.graph->mutations.size();
    out["aliases"] = compiled_.graph->aliases.size();
    if (compiled_.context.joint) out["joint"] = describe_joint();
    out["size_guards"] = compiled_.graph->env->guards().size();
    return out;
  }

  // (op, what, detail) for each result whose real type differs from the traced one.
  std::vector<std::tuple<std::string, std::string, std::string>> replay(const std::vector<at::Tensor>& callers) const {
    std::vector<std::tuple<std::string, std::string, std::string>> out;
    for (auto& m : trace_test::replay(*compiled_.graph, compiled_.context, callers).mismatches)
      out.emplace_back(m.op, m.what, m.detail);
    return out;
  }

  // (outputs, new contents of mutated inputs) of a joint graph; fails where a result has another type than traced.
  py::tuple run_joint(const std::vector<at::Tensor>& callers, const std::vector<at::Tensor>& tangents) const {
    const trace_test::Replayed replayed = trace_test::replay(*compiled_.graph, compiled_.context, callers, tangents);
    if (!replayed.mismatches.empty()) {
      const auto& m = replayed.mismatches[0];
      throw std::runtime_error("mismatch: " + m.op + " " + m.what + ": " + m.detail);
    }
    return py::make_tuple(replayed.outputs, replayed.mutated);
  }

  py::list run(const py::list& callers) const {
    std::vector<PyObject*> inputs;
    for (py::handle caller : callers) inputs.push_back(caller.ptr());
    std::vector<PyObject*> outputs(static_cast<size_t>(finished_.executable->n_outputs()));
    if (!finished_.executable->run(inputs.data(), static_cast<int64_t>(inputs.size()), outputs.data()))
      throw py::error_already_set();
    py::list all;
    for (PyObject* output : outputs) all.append(py::reinterpret_steal<py::object>(output));
    return py::list(all[py::slice(0, static_cast<py::ssize_t>(compiled_.context.n_outputs), 1)]);
  }

  // "" if the guards hold for these tensors, else the first that fails.
  std::string explain(const py::list& callers) const {
    std::vector<PyObject*> tensors;
    for (py::handle caller : callers) tensors.push_back(caller.ptr());
    for (size_t i = 0; i < tensors.size(); ++i)
      if (!operands_[i].check(operands_[i].state.get(), tensors[i]))
        return operands_[i].describe(operands_[i].state.get(), tensors[i]);
    if (finished_.shapes != nullptr && !finished_.shapes->run(tensors.data())) return finished_.shapes->explain(tensors.data());
    return "";
  }

 private:
  std::vector<int64_t> numbers(const graph::Shape& shape) const {
    std::vector<int64_t> out;
    for (graph::Expr e : shape) out.push_back(compiled_.graph->env->hint(e));
    return out;
  }

  // What a runtime needs to know of a joint graph.
  py::dict describe_joint() const {
    const graph::Graph& g = *compiled_.graph;
    const trace::JointPlan& plan = *compiled_.context.joint;
    py::list tangents, aliases, mutations;
    for (const auto& t : plan.tangents) {
      const graph::TensorType& type = g.outputs[static_cast<size_t>(t.output)]->type;
      tangents.append(py::make_tuple(t.output, t.input, numbers(type.sizes), numbers(type.strides),
                                     py::cast(trace::to_torch(type.dtype))));
    }
    for (const auto& a : g.aliases) {
      const int32_t caller = a.input < 0 ? -1 : compiled_.context.inputs[static_cast<size_t>(a.input)].caller;
      aliases.append(py::make_tuple(a.output, caller, a.base_output, a.same_object, numbers(a.sizes), numbers(a.strides),
                                    compiled_.graph->env->hint(a.offset)));
    }
    for (const auto& m : g.mutations) {
      const trace::InputBinding& binding = compiled_.context.inputs[static_cast<size_t>(m.input)];
      mutations.append(py::make_tuple(binding.caller, binding.kind == trace::InputBinding::Kind::StorageBase, m.under_no_grad));
    }
    py::dict out;
    out["n_forward"] = plan.n_forward;
    out["tracked"] = plan.tracked;
    out["tangents"] = tangents;
    out["gradients"] = plan.gradients;
    out["aliases"] = aliases;
    out["mutations"] = mutations;
    out["no_double_backward"] = plan.no_double_backward;
    return out;
  }

  capture::SourceTable sources_;
  capture::TraceOptions options_;
  std::unique_ptr<capture::TraceSession> session_;
  std::map<capture::Src, py::object> tensors_;
  std::vector<capture::TensorOperand> operands_;
  capture::TraceSession::Finished finished_;
  Compiled compiled_;
};

const char* word(capture::NativeKind kind) {
  switch (kind) {
    case capture::NativeKind::Unknown: return "unknown";
    case capture::NativeKind::Pure: return "pure";
    case capture::NativeKind::Tensor: return "tensor";
    case capture::NativeKind::Modelled: return "modelled";
    case capture::NativeKind::Polyfilled: return "polyfilled";
    case capture::NativeKind::Effect: return "effect";
    case capture::NativeKind::Break: return "break";
  }
  return "";
}

}  // namespace

PYBIND11_MODULE(_trace_test, m) {
  trace::register_tracer();
  trace::set_compiler(&compile);
  py::class_<Trace>(m, "Trace")
      .def(py::init<bool, bool>(), py::arg("dynamic") = false, py::arg("storage_bases") = false)
      .def("stand_in", &Trace::stand_in, py::arg("tensor"), py::arg("name") = "", py::arg("argument") = -1)
      .def("call", &Trace::call)
      .def("attribute", &Trace::attribute)
      .def("close", &Trace::close)
      .def("is_traced", &Trace::is_traced)
      .def("wants_storage_bases", &Trace::wants_storage_bases)
      .def("finish", &Trace::finish)
      .def("replay", &Trace::replay)
      .def("run", &Trace::run)
      .def("run_joint", &Trace::run_joint)
      .def("explain", &Trace::explain);
  m.def("classify", [](py::object callable) { return word(capture::domain().classify(callable.ptr())); });
  m.def("break_reason", [](py::object callable) { return capture::domain().break_reason(callable.ptr()); });
  m.def("describe_modes", [] { return capture::domain().describe_modes(capture::domain().modes()); });
  m.def("modes", [] { return capture::domain().modes(); });
  m.def("is_constant", [](py::object object) { return capture::domain().is_constant(object.ptr()); });
  m.def("reset_statistics", &trace::reset_type_statistics);
  m.def("statistics", [] {
    const trace::TypeStatistics s = trace::type_statistics();
    py::dict out;
    out["native"] = s.native;
    out["structured"] = s.structured;
    out["cpp_meta"] = s.cpp_meta;
    out["python_meta"] = s.python_meta;
    out["python_ops"] = s.python_ops;
    return out;
  });
}
