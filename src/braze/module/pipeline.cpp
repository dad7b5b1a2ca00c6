#include "braze/module/pipeline.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <chrono>
#include <span>
#include <unordered_map>
#include <unordered_set>

#include "braze/codegen/codegen.h"
#include "braze/decompose/decompose.h"
#include "braze/graph/text.h"
#include "braze/jit/jit.h"
#include "braze/loop/layout.h"
#include "braze/loop/loop_ir.h"
#include "braze/loop/lower.h"
#include "braze/module/counters.h"
#include "braze/module/custom_passes.h"
#include "braze/module/python_backend.h"
#include "braze/partition/partition.h"
#include "braze/rewrite/pass_manager.h"
#include "braze/runtime/block_cache.h"
#include "braze/runtime/gil.h"
#include "braze/runtime/graph_executor.h"
#include "braze/runtime/library.h"
#include "braze/runtime/program_executor.h"
#include "braze/runtime/training_executor.h"
#include "braze/schedule/failure.h"
#include "braze/schedule/program.h"
#include "braze/schedule/work.h"
#include "braze/support/check.h"
#include "braze/support/log.h"
#include "braze/trace/compiler.h"

namespace braze::module {

namespace {

using Clock = std::chrono::steady_clock;

thread_local const PipelineOptions* current_options = nullptr;
thread_local double pipeline_ms = 0;

double ms_since(Clock::time_point start) { return std::chrono::duration<double, std::milli>(Clock::now() - start).count(); }

// Collects the phases of one compilation.
class PhaseClock {
 public:
  explicit PhaseClock(PhaseReport& report) : report_(report), start_(Clock::now()) {}
  void done(const char* phase) {
    report_.phases.emplace_back(phase, ms_since(start_));
    start_ = Clock::now();
  }

 private:
  PhaseReport& report_;
  Clock::time_point start_;
};

void log_text(Topic topic, const char* title, const std::string& text) {
  log(topic, std::string(title) + "\n" + text);
}

// The first device that no kernels are made for; "" if there is none.
std::string foreign_device(const graph::Graph& graph) {
  const auto is_foreign = [](const graph::Value* value) {
    return value->type.defined && value->type.device.kind != Device::Kind::Cpu;
  };
  for (const graph::Value* input : graph.inputs) {
    if (is_foreign(input)) return text_of(input->type.device);
  }
  for (const graph::Node* node : graph.nodes) {
    for (const graph::Value* result : node->results) {
      if (is_foreign(result)) return text_of(result->type.device);
    }
  }
  return "";
}

std::string report_text(const PhaseReport& report) {
  std::string out = report.name + ": " + std::to_string(report.nodes) + " nodes, " + std::to_string(report.kernels) +
                    " kernels, " + std::to_string(report.calls) + " calls";
  for (const auto& [phase, ms] : report.phases) {
    char text[64];
    std::snprintf(text, sizeof text, "\n  %-10s %8.2f ms", phase.c_str(), ms);
    out += text;
  }
  return report.note.empty() ? out : out + "\n  " + report.note;
}

void optimize(graph::Graph& graph, const PipelineOptions& options, PhaseClock& clock) {
  rewrite::PassOptions passes;
  passes.enable = options.enable_passes;
  passes.disable = options.disable_passes;
  passes.verify = options.verify;
  rewrite::run_passes(graph, rewrite::Stage::Before, passes);
  const decompose::Report decomposed = decompose::decompose(graph);
  for (const std::string& failure : decomposed.failed) warn_once("decomposition failed: " + failure);
  rewrite::run_passes(graph, rewrite::Stage::After, passes);
  clock.done("passes");
}

struct Machine {
  schedule::Program program;
  std::vector<jit::LoadedKernel> kernels;
};

std::vector<std::string> opaque_calls(const loop::LoopProgram& loops) {
  std::vector<std::string> names;
  for (const loop::ExternCall& call : loops.calls) {
    if (runtime::find_library_call(*call.node) == nullptr) names.push_back(call.node->op->name);
  }
  return names;
}

// What must run through ATen, since no kernel can be made of it.
using OpaqueNodes = std::unordered_set<const graph::Node*>;

// The nodes that these buffers compute, together with the buffers that they read up to `outside`.
OpaqueNodes nodes_behind(const loop::LoopProgram& loops, const graph::Graph& graph, std::vector<int32_t> buffers,
                         const std::unordered_set<int32_t>& outside) {
  std::unordered_map<std::string, const graph::Node*> node_of;
  for (const graph::Node* node : graph.nodes) node_of.emplace(loop::origin_of(*node), node);
  OpaqueNodes out;
  std::unordered_set<int32_t> seen(buffers.begin(), buffers.end());
  while (!buffers.empty()) {
    const int32_t id = buffers.back();
    buffers.pop_back();
    if (static_cast<size_t>(id) >= loops.buffers.size()) continue;   // the scheduler's own: partial sums
    const loop::Buffer& buffer = loops.buffers[static_cast<size_t>(id)];
    for (const std::string& origin : buffer.origins)
      if (const auto found = node_of.find(origin); found != node_of.end()) out.insert(found->second);
    for (const loop::Scalar* body : schedule::bodies_of(buffer))
      loop::visit(body, [&](const loop::Scalar& s) {
        if (s.op == loop::ScalarOp::Load && !outside.contains(s.buffer) && seen.insert(s.buffer).second)
          buffers.push_back(s.buffer);
      });
  }
  return out;
}

// The nodes behind the kernels of `failed`.
OpaqueNodes nodes_of_kernels(const schedule::Program& program, const graph::Graph& graph,
                             std::span<const int32_t> failed) {
  OpaqueNodes out;
  for (const schedule::Step& step : program.steps) {
    const auto* launch = std::get_if<schedule::LaunchStep>(&step);
    if (launch == nullptr || std::ranges::find(failed, launch->kernel) == failed.end()) continue;
    const schedule::Kernel& kernel = program.kernels[static_cast<size_t>(launch->kernel)];
    std::vector<int32_t> written;
    std::unordered_set<int32_t> read;
    for (size_t i = 0; i < launch->params.size(); ++i) {
      if (kernel.params[i].written) written.push_back(launch->params[i].buffer);
      else read.insert(launch->params[i].buffer);
    }
    out.merge(nodes_behind(*program.loops, graph, std::move(written), read));
  }
  return out;
}

// One attempt: nodes of `through_aten` get no kernel. Where kernels fail, their nodes are added to it.
Result<Machine> make_machine_code(const graph::Graph& graph, const schedule::ScheduleOptions& options, PhaseReport& report,
                                  std::vector<std::string>& opaque, PhaseClock& clock, OpaqueNodes& through_aten) {
  TRY(loop::LoopProgram lowered, loop::lower(graph, through_aten));
  auto loops = std::make_shared<loop::LoopProgram>(std::move(lowered));
  loop::choose_layouts(*loops);
  clock.done("lower");
  if (log_enabled(Topic::kLoopIr)) log_text(Topic::kLoopIr, "loop IR", loop::print(*loops));
  opaque = opaque_calls(*loops);
  report.calls = static_cast<int64_t>(loops->calls.size());

  const schedule::Target target = schedule::cpu_target(at::get_num_threads());
  schedule::Program program;
  try {
    TRY(program, schedule::schedule(loops, target, options));
  } catch (const schedule::KernelFailure& failure) {
    through_aten.merge(nodes_behind(*loops, graph, failure.buffers, {}));
    return Unsupported{failure.what(), ""};
  }
  clock.done("schedule");
  if (const std::string problems = schedule::verify(program); !problems.empty())
    throw InternalError("the schedule of a graph is wrong: " + problems);
  clock.done("verify");
  if (log_enabled(Topic::kSchedule)) log_text(Topic::kSchedule, "program", program.decisions + schedule::print(program));
  report.kernels = static_cast<int64_t>(program.kernels.size());

  std::vector<jit::KernelSource> sources;
  for (const schedule::Kernel& kernel : program.kernels) sources.push_back({codegen::kernel_key(kernel, target)});
  const jit::EmitUnit emit = [&](std::span<const int32_t> which, std::span<const std::string> names) {
    std::vector<const schedule::Kernel*> kernels;
    for (const int32_t i : which) kernels.push_back(&program.kernels[static_cast<size_t>(i)]);
    return codegen::emit_cpp(kernels, names, target);
  };
  if (log_enabled(Topic::kOutputCode) && !program.kernels.empty()) {
    std::vector<int32_t> all;
    std::vector<std::string> names;
    for (size_t i = 0; i < program.kernels.size(); i++) {
      all.push_back(static_cast<int32_t>(i));
      names.push_back("kernel" + std::to_string(i));
    }
    log_text(Topic::kOutputCode, "kernels", emit(all, names));
  }
  clock.done("codegen");
  jit::CompileReport compiled;
  auto kernels = jit::compile(sources, emit, target, &compiled);
  clock.done("jit");
  if (!kernels.ok()) {
    through_aten.merge(nodes_of_kernels(program, graph, compiled.failed));
    return kernels.why();
  }
  report.note = "kernels: " + std::to_string(compiled.compiled) + " compiled, " +
                std::to_string(compiled.cache_hits_memory) + " from memory, " +
                std::to_string(compiled.cache_hits_disk) + " from disk";
  return Machine{std::move(program), *std::move(kernels)};
}

// Nodes whose kernels fail run through ATen; the rest is compiled all the same.
Result<Machine> make_machine_code(const graph::Graph& graph, const schedule::ScheduleOptions& options, PhaseReport& report,
                                  std::vector<std::string>& opaque, PhaseClock& clock) {
  OpaqueNodes through_aten;
  for (;;) {
    const size_t before = through_aten.size();
    Result<Machine> made = make_machine_code(graph, options, report, opaque, clock, through_aten);
    if (made.ok() || through_aten.size() == before) return made;
    warn_once("a part of a graph runs through ATen, since no kernel could be made for it: " + made.why().reason);
  }
}

// One compilation: its options, and what it reports.
struct Compilation {
  PipelineOptions options;
  std::string backend;
  PhaseReport report;
  PhaseClock clock{report};
  std::vector<std::string> opaque;        // operators that run as opaque calls

  bool trains = false;                    // parts of a training step: what they hold counts against eager's peak

  Status run_custom_pass(CustomPass which, graph::Graph& graph) {
    if (options.custom_passes == nullptr) return Ok{};
    const Status done = options.custom_passes->run(which, graph);
    if (!done.ok()) warn_once(done.why().reason);
    return done;
  }
  // The two of the graphs that code is made of.
  Status run_post_grad_passes(graph::Graph& graph) {
    TRY_STATUS(run_custom_pass(CustomPass::PostGradPre, graph));
    return run_custom_pass(CustomPass::PostGradPost, graph);
  }
  bool makes_kernels() const { return backend == "braze"; }
  bool optimizes() const { return makes_kernels() || backend == "aot_eager"; }
  schedule::ScheduleOptions schedule_options() const {
    return {.fusion = options.fusion, .horizontal = options.fusion, .block_bytes = trains ? int64_t{runtime::kLargeBlock} : 0};
  }
  void finish(double& total_ms) {
    clock.done("runtime");
    for (const std::string& name : opaque) counters().fallbacks[name]++;
    if (log_enabled(Topic::kPerf)) log(Topic::kPerf, report_text(report));
    for (const auto& [phase, ms] : report.phases) total_ms += ms;
    auto& reports = phase_reports();
    reports.push_back(std::move(report));
    if (reports.size() > 100) reports.erase(reports.begin());
  }
};

// Code for a graph whose passes have run; `original` runs through ATen if no code can be made. Needs the GIL.
std::shared_ptr<runtime::GraphProgram> make_program(const graph::Graph& graph,
                                                    std::shared_ptr<const graph::Graph> original,
                                                    const trace::GraphContext& context, Compilation& compilation) {
  runtime::GilRelease without_gil(true);   // the pipeline knows no Python: other threads may run meanwhile
  if (log_enabled(Topic::kGraph)) log_text(Topic::kGraph, "graph after the passes", graph::print(graph));
  std::vector<std::string> opaque;
  Result<Machine> machine = make_machine_code(graph, compilation.schedule_options(), compilation.report, opaque, compilation.clock);
  without_gil.acquire();
  if (machine.ok()) {
    compilation.opaque.insert(compilation.opaque.end(), opaque.begin(), opaque.end());
    return runtime::make_program_executor(machine->program, std::move(machine->kernels), graph, context,
                                          compilation.options.autotune);
  }
  warn_once("a graph runs through ATen, since no code could be made for it: " + machine.why().reason);
  for (const graph::Node* node : original->nodes) compilation.opaque.push_back(node->op->name);
  return runtime::make_graph_executor(std::move(original), context);
}

Result<std::shared_ptr<Executable>> compile_inference(std::shared_ptr<graph::Graph> graph,
                                                      const trace::GraphContext& context, Compilation& compilation) {
  using Made = std::shared_ptr<Executable>;
  if (!compilation.optimizes()) return Made(runtime::make_graph_executor(std::move(graph), context));
  TRY_STATUS(compilation.run_custom_pass(CustomPass::JointPre, *graph));
  TRY_STATUS(compilation.run_custom_pass(CustomPass::PostGradPre, *graph));
  const std::shared_ptr<graph::Graph> original = graph::clone(*graph);
  {
    runtime::GilRelease without_gil(true);
    optimize(*graph, compilation.options, compilation.clock);
  }
  TRY_STATUS(compilation.run_custom_pass(CustomPass::JointPost, *graph));
  TRY_STATUS(compilation.run_custom_pass(CustomPass::PostGradPost, *graph));
  if (!compilation.makes_kernels()) return Made(runtime::make_graph_executor(std::move(graph), context));
  return Made(make_program(*graph, original, context, compilation));
}

// The forward graph gives values alone: what aliases is made and what changes is written by the training executor.
// Fills in where new contents are found.
void return_contents(graph::Graph& forward, runtime::TrainingPlan& plan) {
  for (const graph::OutputAlias& alias : forward.aliases) forward.outputs[static_cast<size_t>(alias.output)] = nullptr;
  for (const graph::Mutation& mutation : forward.mutations) {
    const auto found = std::find(forward.outputs.begin(), forward.outputs.end(), mutation.value);
    plan.new_contents.push_back(static_cast<int32_t>(found - forward.outputs.begin()));
    if (found == forward.outputs.end()) forward.outputs.push_back(mutation.value);
  }
  forward.aliases.clear();
  forward.mutations.clear();
}

runtime::TrainingPlan training_plan(const graph::Graph& joint, const trace::GraphContext& context,
                                    const partition::Partitioned& parts) {
  using Kind = runtime::TrainingPlan::BackwardInput::Kind;
  runtime::TrainingPlan plan;
  plan.joint = *context.joint;
  plan.outputs.aliases = joint.aliases;
  plan.outputs.mutations = joint.mutations;
  plan.outputs.tracked = context.joint->tracked;
  plan.outputs.n_outputs = static_cast<int64_t>(context.n_outputs);
  plan.outputs.inference = context.inference_outputs;
  for (size_t i = 0; i < parts.forward->inputs.size(); i++) {
    plan.inputs.push_back(context.inputs[i]);
  }
  runtime::plan_inputs(plan.outputs, plan.inputs);
  for (const partition::BackwardInput& input : parts.backward_inputs) {
    switch (input.kind) {
      case partition::BackwardInput::Kind::ForwardInput: plan.backward_inputs.push_back({Kind::Input, input.index}); break;
      case partition::BackwardInput::Kind::SavedOutput: plan.backward_inputs.push_back({Kind::Output, input.index}); break;
      case partition::BackwardInput::Kind::Tangent: {
        const auto& tangents = context.joint->tangents;
        const auto found = std::find_if(tangents.begin(), tangents.end(), [&](const auto& t) { return t.input == input.index; });
        CHECK(found != tangents.end());
        plan.backward_inputs.push_back({Kind::Tangent, static_cast<int32_t>(found - tangents.begin())});
      }
    }
  }
  return plan;
}

// The backward pass gets its tensors directly, one for each input.
trace::GraphContext backward_context(const graph::Graph& backward, const trace::GraphContext& joint) {
  trace::GraphContext context;
  for (size_t i = 0; i < backward.inputs.size(); i++)
    context.inputs.push_back({trace::InputBinding::Kind::Tensor, static_cast<int32_t>(i), {}});
  context.objects = joint.objects;
  context.n_outputs = backward.outputs.size();
  context.backend = joint.backend;
  return context;
}

Result<std::shared_ptr<Executable>> compile_training(std::shared_ptr<graph::Graph> graph,
                                                     const trace::GraphContext& context, Compilation& compilation) {
  const std::shared_ptr<const graph::Graph> joint = graph::clone(*graph);
  partition::Partitioned parts;
  if (compilation.optimizes()) {
    TRY_STATUS(compilation.run_custom_pass(CustomPass::JointPre, *graph));
    {
      runtime::GilRelease without_gil(true);
      optimize(*graph, compilation.options, compilation.clock);
    }
    TRY_STATUS(compilation.run_custom_pass(CustomPass::JointPost, *graph));
  }
  {
    runtime::GilRelease without_gil(true);
    TRY(parts, partition::partition(*graph, context.joint->n_forward,
                                       {.activation_memory_budget = compilation.options.activation_memory_budget}));
    compilation.clock.done("partition");
  }
  compilation.trains = true;
  runtime::TrainingPlan plan = training_plan(*graph, context, parts);
  return_contents(*parts.forward, plan);
  if (compilation.optimizes()) TRY_STATUS(compilation.run_post_grad_passes(*parts.forward));
  trace::GraphContext forward_context = context;
  forward_context.inputs = plan.inputs;
  forward_context.n_outputs = parts.forward->outputs.size();
  forward_context.joint.reset();
  const std::shared_ptr<const graph::Graph> forward = std::move(parts.forward), backward = std::move(parts.backward);
  const auto make = [](std::shared_ptr<const graph::Graph> part, const trace::GraphContext& its_context, Compilation& work) {
    return work.makes_kernels() ? make_program(*part, part, its_context, work)
                                : runtime::make_graph_executor(std::move(part), its_context);
  };
  const runtime::MakeBackward make_backward = [make, context, options = compilation.options, backend = compilation.backend](
                                                  std::shared_ptr<const graph::Graph> part, bool by_aten) {
    const trace::GraphContext its_context = backward_context(*part, context);
    if (by_aten) return runtime::make_graph_executor(std::move(part), its_context);
    Compilation work{options, backend, {.name = part->name + " backward", .nodes = static_cast<int64_t>(part->size())}};
    work.trains = true;
    std::shared_ptr<graph::Graph> changed = graph::clone(*part);
    const bool is_changed = work.optimizes() && work.run_post_grad_passes(*changed).ok();
    std::shared_ptr<runtime::GraphProgram> program = make(is_changed ? changed : part, its_context, work);
    double ms = 0;
    work.finish(ms);
    return program;
  };
  runtime::CompileFunction compile_function;   // of the joint graph, where its gradients are differentiated
  if (compilation.makes_kernels())
    compile_function = [options = compilation.options, backend = compilation.backend](
                           std::span<const at::Tensor> examples, const trace::TensorFunction& function) {
      const PipelineScope scope(options);
      const double before = pipeline_ms;
      Result<trace::Retraced> made = trace::trace_function(examples, backend, function);
      trace::take_trace_time();   // of no call's capture
      pipeline_ms = before;
      return made;
    };
  return runtime::make_training_executor(std::move(plan), make(forward, forward_context, compilation),
                                         {forward, backward, joint}, make_backward, std::move(compile_function), context);
}

Result<std::shared_ptr<Executable>> compile_graph(std::unique_ptr<graph::Graph> owned, const trace::GraphContext& context) {
  std::shared_ptr<graph::Graph> graph = std::move(owned);
  Compilation compilation{current_options == nullptr ? PipelineOptions() : *current_options, context.backend,
                          {.name = graph->name, .nodes = static_cast<int64_t>(graph->size())}};
  if (log_enabled(Topic::kGraph)) log_text(Topic::kGraph, "captured graph", graph::print(*graph));
  if (compilation.makes_kernels()) {
    if (const std::string device = foreign_device(*graph); !device.empty()) {
      warn_once("no kernels are made for " + device + " yet: calls on it run eagerly");
      return Unsupported{"tensors on " + device + ", for which braze makes no kernels", "move the tensors to the CPU"};
    }
  }
  std::shared_ptr<Executable> executable;
  const bool training = context.joint && !(context.joint->tangents.empty() && context.joint->spent.empty());
  if (std::ranges::find(backends(), context.backend) == backends().end()) {
    if (training) return Unsupported{"training through backend " + context.backend, ""};
    TRY(executable, compile_in_python(*graph, context));
  } else if (training) {
    TRY(executable, compile_training(std::move(graph), context, compilation));
  } else {
    TRY(executable, compile_inference(std::move(graph), context, compilation));
  }
  compilation.finish(pipeline_ms);
  return executable;
}

}  // namespace

PipelineScope::PipelineScope(const PipelineOptions& options) : outer_(std::exchange(current_options, &options)) {}
PipelineScope::~PipelineScope() { current_options = outer_; }

void register_pipeline() { trace::set_compiler(compile_graph); }

double take_pipeline_time() { return std::exchange(pipeline_ms, 0); }

const std::vector<std::string>& backends() {
  static const std::vector<std::string> names = {"braze", "eager", "aot_eager"};
  return names;
}

std::vector<std::string> pass_names() {
  std::vector<std::string> names;
  for (const rewrite::Pass& pass : rewrite::all_passes()) names.emplace_back(pass.name);
  return names;
}

}  // namespace braze::module
