#include "braze/runtime/program_executor.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "braze/runtime/block_cache.h"
#include "braze/runtime/gil.h"
#include "braze/runtime/library.h"
#include "braze/runtime/operator_call.h"
#include "braze/runtime/outputs.h"
#include "braze/runtime/parallel.h"
#include "braze/runtime/python_tensor.h"
#include "braze/runtime/size_slots.h"
#include "braze/runtime/step_times.h"
#include "braze/runtime/tuning.h"
#include "braze/trace/torch_types.h"
#include "braze/support/check.h"
#include "braze/support/log.h"

namespace braze::runtime {
namespace {

using schedule::Place;
using Ref = SizeSlots::Ref;

struct BufferUse {           // a pointer: a buffer's first byte plus an offset
  int32_t buffer = -1;
  Ref bytes;
};

struct TensorUse {           // a strided tensor over planned memory
  BufferUse at;
  std::vector<Ref> sizes, strides;
  c10::ScalarType dtype{};
  bool is_static = false;
  bool whole_input = false;  // exactly the caller's tensor
  int32_t wrapper = -1;      // place in RunState::wrappers
};

struct Launch {
  jit::KernelFunction function;
  std::vector<BufferUse> params;
  std::vector<Ref> sizes;
  Ref range, grain;
  bool parallel;
};

// The ways that were measured to be best, by sizes and strides.
struct TunedWays {
  std::mutex mutex;
  std::map<std::vector<int64_t>, int> by_shape;
};

struct Call {
  OperatorCall op;
  bool into;
  std::vector<TensorUse> operands;
  std::vector<int32_t> results;           // buffer of each result, -1: unused
  std::optional<TensorUse> out;
  std::unique_ptr<LibraryCall> library;   // preferred where it accepts the strides of the call
  std::string label;                      // "aten.mm bf16", for logs and tuning
  std::unique_ptr<TunedWays> tuned;       // mode="max-autotune"
  std::unique_ptr<std::once_flag> logged = std::make_unique<std::once_flag>();
};

struct Copy { TensorUse from, to; };

using Step = std::variant<Launch, Call, Copy>;

struct Buffer {
  Place place;
  Ref arena_offset;
  BufferUse alias;                         // Place::Alias
  std::vector<Ref> sizes, strides;
  c10::ScalarType dtype{};
  int32_t input = -1;
  bool made_late = false;                  // an output or block that is allocated before the first step that uses it
};

// What one call needs; kept between calls, so that a call allocates its outputs alone.
struct RunState {
  std::vector<int64_t> sizes;
  std::vector<char*> pointers;             // of buffers
  std::vector<at::Tensor> tensors;         // inputs, outputs and results of calls, by buffer
  std::vector<at::Tensor> wrappers;        // tensors over planned memory, reused while the pointer stays
  std::vector<void*> params;
  std::vector<int64_t> kernel_sizes;
  std::vector<at::Tensor> operands, results;
  std::vector<at::Tensor> callers, outputs;
  std::vector<int32_t> same_input;
  std::vector<int64_t> shapes;             // of a library call's operands
  std::vector<StridedData> strided;
  void* arena = nullptr;
  int64_t arena_bytes = 0;
  int64_t error = 0;
  ~RunState() { drop_arena(); }
  void drop_arena() {
    if (arena != nullptr) release_block(std::exchange(arena, nullptr));
    arena_bytes = 0;
  }
};

using BuffersByNumber = std::unordered_map<int32_t, std::vector<int32_t>>;

class ProgramExecutor final : public GraphProgram {
 public:
  ProgramExecutor(const schedule::Program& program, std::vector<jit::LoadedKernel> kernels, const graph::Graph& graph,
                  const GraphContext& context, bool tune)
      : env_(program.env),
        kernels_(std::move(kernels)),
        bindings_(context.inputs),
        size_callers_(context.size_callers),
        objects_(context.objects),
        sizes_(graph),
        tune_(tune) {
    CHECK(bindings_.size() == graph.inputs.size());
    CHECK(kernels_.size() == program.kernels.size());
    plan_.aliases = graph.aliases;
    plan_.n_outputs = static_cast<int64_t>(context.n_outputs);
    plan_.inference = context.inference_outputs;
    if (context.joint) plan_.tracked = context.joint->tracked;
    plan_inputs(plan_, context.inputs);
    for (const schedule::BufferPlan& buffer : program.buffers) buffers_.push_back(make_buffer(buffer));
    for (size_t i = 0; i < program.buffers.size(); ++i)
      if (program.buffers[i].input >= 0) input_buffers_.emplace_back(program.buffers[i].input, static_cast<int32_t>(i));
    for (const schedule::Step& step : program.steps)
      std::visit([&](const auto& s) { steps_.push_back(make_step(s, program)); }, step);
    plan_lifetimes(program);
    for (const schedule::View& view : program.outputs)
      outputs_.push_back(view.buffer < 0 ? TensorUse{} : make_use(view, program));
    for (const loop::LoopProgram::Mutation& mutation : program.loops->mutations) {
      new_values_.push_back(make_use(mutation.value, program));
      plan_.mutations.push_back({input_of(mutation.input_buffer), nullptr, true});
    }
    for (size_t i = 0; i < plan_.mutations.size() && i < graph.mutations.size(); ++i)
      plan_.mutations[i] = graph.mutations[i];
    alias_slots_ = alias_size_slots(plan_, sizes_);
    arena_bytes_ = sizes_.ref(program.arena_bytes);
    simple_outputs_ = plan_.aliases.empty() && plan_.mutations.empty();
    if (log_enabled(Topic::kPerf)) times_ = std::make_unique<StepTimes>(graph.name, labels(program));
  }
  ~ProgramExecutor() override { delete idle_.load(); }

  int64_t n_outputs() const override { return plan_.n_outputs; }

  bool run(PyObject* const* inputs, int64_t, PyObject** outputs) override {
    std::unique_ptr<RunState> state(idle_.exchange(nullptr, std::memory_order_acquire));
    try {
      if (!state) state = make_state();
      const bool ok = run_with(*state, inputs, outputs);
      clear(*state);
      delete idle_.exchange(state.release(), std::memory_order_release);
      return ok;
    } catch (...) {
      set_python_error();
      return false;
    }
  }

  void run_tensors(std::vector<at::Tensor> bound, std::span<const int64_t> size_inputs,
                   std::vector<at::Tensor>& outputs) override {
    std::unique_ptr<RunState> state = bound_state(std::move(bound), size_inputs);
    execute(*state, true);
    outputs = std::move(state->outputs);
    keep(std::move(state));
  }

  std::vector<int32_t> last_uses() const override {
    std::vector<int32_t> out;
    for (const TensorUse& use : outputs_) {
      const auto found = use.at.buffer < 0 ? last_use_.end() : last_use_.find(root_of(use.at.buffer));
      out.push_back(found == last_use_.end() ? -1 : found->second);
    }
    return out;
  }

  std::unique_ptr<ProgramRun> start(std::vector<at::Tensor> bound, std::span<const int64_t> size_inputs) override {
    return std::make_unique<Run>(*this, bound_state(std::move(bound), size_inputs));
  }

 private:
  class Run final : public ProgramRun {
   public:
    Run(ProgramExecutor& program, std::unique_ptr<RunState> state) : program_(program), state_(std::move(state)) {
      for (const TensorUse& use : program_.outputs_)
        if (use.at.buffer >= 0) ++takers_[program_.root_of(use.at.buffer)];
      program_.allocate(*state_);
    }
    ~Run() override { program_.keep(std::move(state_)); }
    Run(const Run&) = delete;
    Run& operator=(const Run&) = delete;

    void run_to(int32_t last) override {
      at::AutoDispatchBelowADInplaceOrView below_autograd;
      c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
      for (; next_ < program_.steps_.size() && static_cast<int32_t>(next_) <= last; ++next_)
        program_.run_numbered(next_, *state_, true);
      if (state_->error != 0) raise(static_cast<KernelError>(state_->error));
    }
    // The last one owns the memory alone: autograd then keeps it as it is.
    at::Tensor take(size_t output) override {
      const TensorUse& use = program_.outputs_[output];
      if (use.at.buffer < 0) return {};
      at::AutoDispatchBelowADInplaceOrView below_autograd;
      at::Tensor out = program_.owning_tensor(use, *state_);
      const int32_t root = program_.root_of(use.at.buffer);
      if (--takers_[root] == 0) state_->tensors[static_cast<size_t>(root)].reset();
      return out;
    }

   private:
    ProgramExecutor& program_;
    std::unique_ptr<RunState> state_;
    std::unordered_map<int32_t, int> takers_;   // by buffer: outputs in it that were not taken
    size_t next_ = 0;
  };

  std::unique_ptr<RunState> bound_state(std::vector<at::Tensor> bound, std::span<const int64_t> size_inputs) {
    std::unique_ptr<RunState> state(idle_.exchange(nullptr, std::memory_order_acquire));
    if (!state) state = make_state();
    if (!sizes_.is_static()) sizes_.evaluate(bound, state->sizes.data(), size_inputs);
    for (auto [input, buffer] : input_buffers_) set_input(buffer, std::move(bound[static_cast<size_t>(input)]), *state);
    return state;
  }

  void keep(std::unique_ptr<RunState> state) {
    clear(*state);
    delete idle_.exchange(state.release(), std::memory_order_release);
  }

  // ---- building ----------------------------------------------------------------------------------------------------

  Buffer make_buffer(const schedule::BufferPlan& plan) {
    Buffer b;
    b.place = plan.place;
    b.input = plan.input;
    b.arena_offset = sizes_.ref(plan.arena_offset);
    if (plan.place == Place::Alias) b.alias = {plan.alias_of, sizes_.ref(plan.offset * size_of(plan.dtype))};
    if (plan.dtype != DType::Other) b.dtype = trace::to_torch(plan.dtype);
    for (graph::Expr e : plan.sizes) b.sizes.push_back(sizes_.ref(e));
    for (graph::Expr e : plan.strides) b.strides.push_back(sizes_.ref(e));
    return b;
  }

  TensorUse make_use(const schedule::View& view, const schedule::Program& program) {
    const schedule::BufferPlan& plan = program.buffers[static_cast<size_t>(view.buffer)];
    TensorUse use;
    use.at = {view.buffer, sizes_.ref(view.offset * size_of(plan.dtype))};
    use.dtype = trace::to_torch(plan.dtype);
    use.is_static = true;
    for (graph::Expr e : view.sizes) use.sizes.push_back(sizes_.ref(e));
    for (graph::Expr e : view.strides) use.strides.push_back(sizes_.ref(e));
    for (const Ref& r : use.sizes) use.is_static &= r.slot < 0;
    for (const Ref& r : use.strides) use.is_static &= r.slot < 0;
    const bool own_tensor = plan.place == Place::Input || plan.place == Place::Call || plan.place == Place::Output ||
                            plan.place == Place::Block;
    use.whole_input = own_tensor && view.offset == graph::Expr(0) && view.sizes == plan.sizes && view.strides == plan.strides;
    use.wrapper = n_wrappers_++;
    return use;
  }

  Step make_step(const schedule::LaunchStep& step, const schedule::Program& program) {
    Launch launch{kernels_[static_cast<size_t>(step.kernel)].function, {}, {}, sizes_.ref(step.range),
                  sizes_.ref(step.grain), step.parallel};
    for (const schedule::View& view : step.params) {
      const DType dtype = program.buffers[static_cast<size_t>(view.buffer)].dtype;
      launch.params.push_back({view.buffer, sizes_.ref(view.offset * size_of(dtype))});
    }
    for (graph::Expr e : step.sizes) launch.sizes.push_back(sizes_.ref(e));
    most_params_ = std::max(most_params_, launch.params.size() + 1);
    most_sizes_ = std::max(most_sizes_, launch.sizes.size());
    heavy_ |= step.parallel;
    return launch;
  }

  Step make_step(const schedule::CallStep& step, const schedule::Program& program) {
    const loop::ExternCall& call = program.loops->calls[static_cast<size_t>(step.call)];
    const bool into = step.into_planned;
    Call out{OperatorCall(*call.node, [&](graph::Expr e) { return sizes_.slot(e); },
                          [&](int32_t slot) { return objects_[static_cast<size_t>(slot)]; },
                          into ? OperatorCall::Form::Out : OperatorCall::Form::Functional),
             into, {}, step.results, {}, nullptr, call.node->op->name, nullptr};
    for (const schedule::View& view : step.operands) out.operands.push_back(make_use(view, program));
    if (into) {
      const int32_t result = step.results.at(0);
      const schedule::BufferPlan& plan = program.buffers[static_cast<size_t>(result)];
      out.out = make_use({result, plan.sizes, plan.strides, 0}, program);
    }
    // A row gives the node's first results. Any other must be unused.
    out.library = find_library_call(*call.node);
    size_t used = step.results.size();
    while (used > 0 && step.results[used - 1] < 0) --used;
    if (out.library && used > out.library->n_results()) out.library = nullptr;
    if (out.library) out.label += " " + std::string(text_of(call.node->results[0]->type.dtype));
    if (out.library && tune_) out.tuned = std::make_unique<TunedWays>();
    heavy_ = true;
    return out;
  }

  Step make_step(const schedule::CopyStep& step, const schedule::Program& program) {
    return Copy{make_use(step.from, program), make_use(step.to, program)};
  }

  // When call results and inputs are dropped, and outputs made.
  void plan_lifetimes(const schedule::Program& program) {
    for (size_t i = 0; i < program.buffers.size(); ++i)
      if (program.buffers[i].place == Place::Alias) aliases_of_[root_of(static_cast<int32_t>(i))].push_back(static_cast<int32_t>(i));
    for (size_t i = 0; i < program.buffers.size(); ++i) {
      const schedule::BufferPlan& plan = program.buffers[i];
      const auto buffer = static_cast<int32_t>(i);
      if (plan.last_step < 0) continue;
      if (plan.place == Place::Call || plan.place == Place::Block) release_[plan.last_step].push_back(buffer);
      if (plan.place == Place::Input && !aliases_of_.contains(buffer)) release_inputs_[plan.last_step].push_back(buffer);
    }
    std::vector<bool> seen(buffers_.size());
    for (size_t step = 0; step < program.steps.size(); ++step) {
      const auto use = [&](int32_t buffer) {
        if (buffer < 0) return;
        const int32_t root = root_of(buffer);
        last_use_[root] = static_cast<int32_t>(step);
        if (seen[static_cast<size_t>(root)]) return;
        seen[static_cast<size_t>(root)] = true;
        Buffer& b = buffers_[static_cast<size_t>(root)];
        if (b.place != Place::Block && (b.place != Place::Output || step == 0)) return;
        b.made_late = true;
        make_buffers_[static_cast<int32_t>(step)].push_back(root);
      };
      if (const auto* launch = std::get_if<schedule::LaunchStep>(&program.steps[step])) {
        for (const schedule::View& view : launch->params) use(view.buffer);
      } else if (const auto* call = std::get_if<schedule::CallStep>(&program.steps[step])) {
        for (const schedule::View& view : call->operands) use(view.buffer);
        for (int32_t result : call->results) use(result);
      } else {
        const auto& copy = std::get<schedule::CopyStep>(program.steps[step]);
        use(copy.from.buffer);
        use(copy.to.buffer);
      }
    }
  }

  int32_t root_of(int32_t buffer) const {
    while (buffers_[static_cast<size_t>(buffer)].place == Place::Alias) buffer = buffers_[static_cast<size_t>(buffer)].alias.buffer;
    return buffer;
  }

  std::vector<std::string> labels(const schedule::Program& program) const {
    std::vector<std::string> out;
    for (size_t i = 0; i < steps_.size(); ++i) {
      if (const auto* launch = std::get_if<schedule::LaunchStep>(&program.steps[i])) {
        out.push_back("kernel" + std::to_string(launch->kernel) + "  " + program.kernels[static_cast<size_t>(launch->kernel)].note);
      } else if (const auto* call = std::get_if<schedule::CallStep>(&program.steps[i])) {
        const auto& library = std::get<Call>(steps_[i]).library;
        out.push_back(program.loops->calls[static_cast<size_t>(call->call)].node->op->name + (library ? "  " + library->name() : ""));
      } else {
        out.emplace_back("copy");
      }
    }
    return out;
  }

  int32_t input_of(int32_t buffer) const { return buffers_[static_cast<size_t>(buffer)].input; }

  // ---- running -----------------------------------------------------------------------------------------------------

  std::unique_ptr<RunState> make_state() const {
    auto state = std::make_unique<RunState>();
    state->sizes.resize(static_cast<size_t>(sizes_.count()) + 1);
    state->pointers.resize(buffers_.size());
    state->tensors.resize(buffers_.size());
    state->callers.resize(bindings_.size());
    state->wrappers.resize(static_cast<size_t>(n_wrappers_));
    state->params.resize(most_params_);
    state->kernel_sizes.resize(most_sizes_ + 1);
    return state;
  }

  // Drops what belongs to one call. Wrappers stay: they own no memory.
  static void clear(RunState& state) {
    for (at::Tensor& t : state.tensors) t.reset();
    for (at::Tensor& t : state.callers) t.reset();
    state.outputs.clear();
    state.operands.clear();
    state.results.clear();
    if (state.arena_bytes >= static_cast<int64_t>(kLargeBlock)) state.drop_arena();   // for other programs meanwhile
    state.error = 0;
  }

  static int64_t value(Ref ref, const RunState& s) { return SizeSlots::value(ref, s.sizes.data()); }

  char* pointer(const BufferUse& use, const RunState& s) const {
    return s.pointers[static_cast<size_t>(use.buffer)] + value(use.bytes, s);
  }

  bool run_with(RunState& s, PyObject* const* inputs, PyObject** outputs) {
    for (auto [input, buffer] : input_buffers_) {
      const InputBinding& binding = bindings_[static_cast<size_t>(input)];
      if (binding.kind == InputBinding::Kind::Tensor) {
        set_input(buffer, unpack(inputs[binding.caller]), s);
      } else {
        set_input(buffer, bind(binding, binding.caller < 0 ? at::Tensor() : unpack(inputs[binding.caller])), s);
      }
    }
    if (!sizes_.is_static()) evaluate_sizes(s, inputs);
    if (!simple_outputs_)
      for (size_t i = 0; i < bindings_.size(); ++i)
        if (bindings_[i].caller >= 0) s.callers[i] = unpack(inputs[bindings_[i].caller]);
    s.same_input.assign(outputs_.size(), -1);
    GilRelease scope(heavy_);
    execute(s);
    if (!simple_outputs_) finish(s, s.callers, s.outputs, s.same_input);
    scope.acquire();
    return give_outputs(plan_, inputs, bindings_, s.outputs, s.same_input, outputs);
  }

  static void set_input(int32_t buffer, at::Tensor tensor, RunState& s) {
    s.pointers[static_cast<size_t>(buffer)] = static_cast<char*>(const_cast<void*>(tensor.const_data_ptr()));
    s.tensors[static_cast<size_t>(buffer)] = std::move(tensor);
  }

  void run_numbered(size_t i, RunState& s, bool owns_inputs) {
    if (!make_buffers_.empty()) make_buffers_before(static_cast<int32_t>(i), s);
    std::visit([&](const auto& step) { run_step(step, s); }, steps_[i]);
    if (!release_.empty()) release_after(static_cast<int32_t>(i), release_, s);
    if (owns_inputs) release_after(static_cast<int32_t>(i), release_inputs_, s);
  }

  void run_timed(RunState& s, bool owns_inputs) {
    std::vector<StepTimes::Clock::duration> times(steps_.size());
    for (size_t i = 0; i < steps_.size(); ++i) {
      const StepTimes::Clock::time_point start = StepTimes::Clock::now();
      run_numbered(i, s, owns_inputs);
      times[i] = StepTimes::Clock::now() - start;
    }
    times_->add(times);
  }

  // Inputs and sizes are set; fills s.outputs. Inputs that this call owns are dropped after their last step.
  void execute(RunState& s, bool owns_inputs = false) {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    allocate(s);
    if (times_) {
      run_timed(s, owns_inputs);
    } else {
      for (size_t i = 0; i < steps_.size(); ++i) run_numbered(i, s, owns_inputs);
    }
    if (s.error != 0) raise(static_cast<KernelError>(s.error));
    s.outputs.resize(outputs_.size());
    for (size_t i = 0; i < outputs_.size(); ++i)
      if (outputs_[i].at.buffer >= 0) s.outputs[i] = owning_tensor(outputs_[i], s);
  }

  void evaluate_sizes(RunState& s, PyObject* const* inputs) {
    std::vector<at::Tensor> bound(bindings_.size());
    for (size_t i = 0; i < bound.size(); ++i) {
      const InputBinding& binding = bindings_[i];
      bound[i] = binding.caller < 0 ? binding.constant : bind(binding, unpack(inputs[binding.caller]));
    }
    sizes_.evaluate(bound, s.sizes.data(), unpack_sizes(size_callers_, inputs));
  }

  void finish(RunState& s, std::span<const at::Tensor> callers, std::vector<at::Tensor>& results,
              std::vector<int32_t>& same_input) {
    std::vector<at::Tensor> new_values;
    for (const TensorUse& use : new_values_) new_values.push_back(tensor(use, s));
    const SizeValue size_value = [&](graph::Expr e) { return s.sizes[static_cast<size_t>(alias_slots_.at(e))]; };
    finish_outputs(plan_, callers, new_values, size_value, results, same_input);
  }

  void allocate(RunState& s) {
    const int64_t arena = value(arena_bytes_, s);
    if (arena > s.arena_bytes) {
      s.drop_arena();
      s.arena = acquire_block(static_cast<size_t>(arena));
      s.arena_bytes = arena;
    }
    for (size_t i = 0; i < buffers_.size(); ++i) {
      const Buffer& b = buffers_[i];
      switch (b.place) {
        case Place::Arena: s.pointers[i] = static_cast<char*>(s.arena) + value(b.arena_offset, s); break;
        case Place::Output:
          if (!b.made_late) make_buffer_memory(i, s);
          break;
        case Place::Input: case Place::Call: case Place::Block: case Place::Alias: case Place::Constant: break;
      }
    }
    for (size_t i = 0; i < buffers_.size(); ++i)
      if (buffers_[i].place == Place::Alias) s.pointers[i] = alias_pointer(buffers_[i], s);
  }

  void make_buffer_memory(size_t buffer, RunState& s) const {
    s.tensors[buffer] = empty_tensor(buffers_[buffer], s);
    s.pointers[buffer] = static_cast<char*>(s.tensors[buffer].mutable_data_ptr());
  }

  void set_aliases(int32_t buffer, RunState& s) const {
    const auto found = aliases_of_.find(buffer);
    if (found == aliases_of_.end()) return;
    for (int32_t a : found->second) s.pointers[static_cast<size_t>(a)] = alias_pointer(buffers_[static_cast<size_t>(a)], s);
  }

  void make_buffers_before(int32_t step, RunState& s) const {
    const auto it = make_buffers_.find(step);
    if (it == make_buffers_.end()) return;
    for (int32_t buffer : it->second) {
      make_buffer_memory(static_cast<size_t>(buffer), s);
      set_aliases(buffer, s);
    }
  }

  // Aliases of call results get their pointer when the call has run.
  char* alias_pointer(const Buffer& b, const RunState& s) const {
    const Buffer& base = buffers_[static_cast<size_t>(b.alias.buffer)];
    char* start = base.place == Place::Alias ? alias_pointer(base, s) : s.pointers[static_cast<size_t>(b.alias.buffer)];
    return start + value(b.alias.bytes, s);
  }

  at::Tensor empty_tensor(const Buffer& b, const RunState& s) const {
    c10::SmallVector<int64_t, 6> sizes, strides;
    int64_t extent = 1;
    bool empty = false;
    for (size_t d = 0; d < b.sizes.size(); ++d) {
      sizes.push_back(value(b.sizes[d], s));
      strides.push_back(value(b.strides[d], s));
      extent += (sizes.back() - 1) * strides.back();
      empty |= sizes.back() == 0;
    }
    const size_t bytes = empty ? 0 : static_cast<size_t>(extent) * c10::elementSize(b.dtype);
    c10::Allocator* allocator = bytes >= kLargeBlock ? block_cache() : c10::GetCPUAllocator();
    return at::detail::empty_strided_generic(sizes, strides, allocator, c10::DispatchKeySet(c10::DispatchKey::CPU), b.dtype);
  }

  void run_step(const Launch& launch, RunState& s) {
    for (size_t i = 0; i < launch.params.size(); ++i) s.params[i] = pointer(launch.params[i], s);
    s.params[launch.params.size()] = &s.error;
    for (size_t i = 0; i < launch.sizes.size(); ++i) s.kernel_sizes[i] = value(launch.sizes[i], s);
    const int64_t range = value(launch.range, s);
    if (range == 0) return;
    if (launch.parallel && thread_count() > 1) {
      run_parallel(launch.function, s.params.data(), s.kernel_sizes.data(), range, value(launch.grain, s));
    } else {
      launch.function(s.params.data(), s.kernel_sizes.data(), 0, range);
    }
  }

  // sizes, then strides, of a use: kept in `store`, which must not grow while the result is used.
  StridedData strided(const TensorUse& use, const RunState& s, std::vector<int64_t>& store) const {
    const size_t first = store.size(), rank = use.sizes.size();
    for (const Ref& r : use.sizes) store.push_back(value(r, s));
    for (const Ref& r : use.strides) store.push_back(value(r, s));
    return {pointer(use.at, s), {store.data() + first, rank}, {store.data() + first + rank, rank}};
  }

  // Operands and results of a library call in s.strided, results without memory. The number of operands; nullopt if the
  // row does not accept them.
  std::optional<size_t> describe(const Call& call, RunState& s) const {
    size_t most = 0;
    for (const TensorUse& use : call.operands) most += 2 * use.sizes.size();
    for (int32_t result : call.results)
      if (result >= 0) most += 2 * buffers_[static_cast<size_t>(result)].sizes.size();
    s.shapes.clear();
    s.shapes.reserve(most);
    s.strided.clear();
    for (const TensorUse& use : call.operands) s.strided.push_back(strided(use, s, s.shapes));
    const size_t n_operands = s.strided.size(), n_results = std::min(call.library->n_results(), call.results.size());
    for (size_t i = 0; i < n_results; ++i) {
      s.strided.push_back({nullptr, {}, {}});
      if (call.results[i] < 0) continue;
      const Buffer& planned = buffers_[static_cast<size_t>(call.results[i])];
      const size_t first = s.shapes.size(), rank = planned.sizes.size();
      for (const Ref& r : planned.sizes) s.shapes.push_back(value(r, s));
      for (const Ref& r : planned.strides) s.shapes.push_back(value(r, s));
      s.strided.back() = {nullptr, {s.shapes.data() + first, rank}, {s.shapes.data() + first + rank, rank}};
    }
    const std::span<const StridedData> all(s.strided);
    if (!call.library->accepts(all.first(n_operands), all.subspan(n_operands))) return std::nullopt;
    return n_operands;
  }

  bool run_library(const Call& call, RunState& s, int way = LibraryCall::kByModel) const {
    const std::optional<size_t> n_operands = describe(call, s);
    if (!n_operands) return false;
    for (size_t i = *n_operands; i < s.strided.size(); ++i) {
      const int32_t number = call.results[i - *n_operands];
      if (number < 0) continue;
      const auto result = static_cast<size_t>(number);
      if (!call.into) take_result(number, empty_tensor(buffers_[result], s), s);
      s.strided[i].data = call.into ? pointer(call.out->at, s) : s.pointers[result];
    }
    const std::span<const StridedData> all(s.strided);
    if (way == LibraryCall::kByModel && log_enabled(Topic::kSchedule))
      std::call_once(*call.logged, [&] { log(Topic::kSchedule, call.label + " runs as " + call.library->reason(all.first(*n_operands))); });
    call.library->run(all.first(*n_operands), all.subspan(*n_operands), way);
    return true;
  }

  static constexpr int kByAten = -2;

  // The way that was measured to be best for these shapes.
  int tuned_way(const Call& call, RunState& s) const {
    const std::optional<size_t> n_operands = describe(call, s);
    if (!n_operands) return kByAten;
    const std::vector<int64_t> shapes = s.shapes;
    {
      const std::lock_guard lock(call.tuned->mutex);
      if (const auto it = call.tuned->by_shape.find(shapes); it != call.tuned->by_shape.end()) return it->second;
    }
    std::vector<Way> ways;
    std::vector<int> numbers;
    const std::vector<std::string> names = call.library->ways(std::span<const StridedData>(s.strided).first(*n_operands));
    for (size_t i = 0; i < names.size(); ++i) {
      if (names[i].empty()) continue;
      numbers.push_back(static_cast<int>(i));
      ways.push_back({names[i], [this, &call, &s, i] { run_library(call, s, static_cast<int>(i)); }});
    }
    numbers.push_back(kByAten);
    ways.push_back({"ATen", [this, &call, &s] { run_aten(call, s); }});
    std::string key = call.label + " " + call.library->name();
    for (int64_t x : shapes) key += " " + std::to_string(x);
    const int way = numbers[fastest_way(key, ways)];
    const std::lock_guard lock(call.tuned->mutex);
    return call.tuned->by_shape.emplace(shapes, way).first->second;
  }

  void run_step(const Call& call, RunState& s) const {
    if (call.library) {
      const int way = call.tuned ? tuned_way(call, s) : LibraryCall::kByModel;
      if (way != kByAten && run_library(call, s, way)) return;
    }
    run_aten(call, s);
  }

  void run_aten(const Call& call, RunState& s) const {
    s.operands.clear();
    for (const TensorUse& use : call.operands) s.operands.push_back(tensor(use, s));
    if (call.into) {
      at::Tensor out = tensor(*call.out, s);
      call.op.run_into(s.operands, s.sizes.data(), out);
      return;
    }
    s.results.clear();
    call.op.run(s.operands, s.sizes.data(), s.results);
    for (size_t i = 0; i < call.results.size(); ++i) {
      if (call.results[i] < 0) continue;
      // What shares an operand's memory (a view, an op that returns its operand) would be changed with it.
      at::Tensor& result = s.results[i];
      const bool shared = std::any_of(s.operands.begin(), s.operands.end(), [&](const at::Tensor& operand) {
        return operand.has_storage() && result.has_storage() && result.is_alias_of(operand);
      });
      take_result(call.results[i], shared ? result.clone() : std::move(result), s);
    }
  }

  void run_step(const Copy& copy, RunState& s) {
    at::Tensor to = tensor(copy.to, s);
    to.copy_(tensor(copy.from, s));
  }

  // The plan was made for the traced type: another stride is copied, another size is a wrong type rule.
  void take_result(int32_t buffer, at::Tensor result, RunState& s) const {
    const Buffer& b = buffers_[static_cast<size_t>(buffer)];
    CHECK(result.defined());
    CHECK(result.dim() == static_cast<int64_t>(b.sizes.size()));
    CHECK(result.scalar_type() == b.dtype);
    const bool is_strided = b.strides.size() == b.sizes.size();   // else its sizes depend on data
    bool same = true, empty = false;
    for (size_t d = 0; is_strided && d < b.sizes.size(); ++d) {
      const int64_t size = value(b.sizes[d], s);
      CHECK(result.sizes()[d] == size, "result of a call has another size than was traced");
      same &= size == 1 || result.strides()[d] == value(b.strides[d], s);
      empty |= size == 0;
    }
    if (!same && !empty) {
      at::Tensor copy = empty_tensor(b, s);
      copy.copy_(result);
      result = std::move(copy);
    }
    const auto i = static_cast<size_t>(buffer);
    s.pointers[i] = static_cast<char*>(const_cast<void*>(result.const_data_ptr()));
    s.tensors[i] = std::move(result);
    set_aliases(buffer, s);
  }

  static void release_after(int32_t step, const BuffersByNumber& releases, RunState& s) {
    const auto it = releases.find(step);
    if (it == releases.end()) return;
    for (int32_t buffer : it->second) s.tensors[static_cast<size_t>(buffer)].reset();
  }

  // A tensor for the duration of a call: the buffer's own, or one over its memory that owns nothing.
  at::Tensor tensor(const TensorUse& use, RunState& s) const {
    if (use.whole_input) return s.tensors[static_cast<size_t>(use.at.buffer)];
    char* data = pointer(use.at, s);
    at::Tensor& wrapper = s.wrappers[static_cast<size_t>(use.wrapper)];
    if (use.is_static && wrapper.defined() && wrapper.const_data_ptr() == data) return wrapper;
    c10::SmallVector<int64_t, 6> sizes, strides;
    for (const Ref& r : use.sizes) sizes.push_back(value(r, s));
    for (const Ref& r : use.strides) strides.push_back(value(r, s));
    wrapper = at::from_blob(data, sizes, strides, at::TensorOptions(use.dtype));
    return wrapper;
  }

  // An output: shares the ownership of the buffer's storage.
  at::Tensor owning_tensor(const TensorUse& use, RunState& s) const {
    const at::Tensor& owner = owner_of(use.at.buffer, s);
    CHECK(owner.defined());
    if (use.whole_input) return owner;
    c10::SmallVector<int64_t, 6> sizes, strides;
    for (const Ref& r : use.sizes) sizes.push_back(value(r, s));
    for (const Ref& r : use.strides) strides.push_back(value(r, s));
    const auto bytes = pointer(use.at, s) - static_cast<const char*>(owner.storage().data());
    return owner.as_strided(sizes, strides, bytes / static_cast<int64_t>(owner.element_size()));
  }

  const at::Tensor& owner_of(int32_t buffer, const RunState& s) const { return s.tensors[static_cast<size_t>(root_of(buffer))]; }

  [[noreturn]] static void raise(KernelError error) {
    TORCH_CHECK_INDEX(error != KernelError::IndexOutOfRange, "index out of range in self");
    TORCH_CHECK(error != KernelError::DivisionByZero, "ZeroDivisionError");
    throw InternalError("unknown kernel error");
  }

  std::shared_ptr<sym::ShapeEnv> env_;               // keeps the alias expressions alive
  std::vector<jit::LoadedKernel> kernels_;
  std::vector<InputBinding> bindings_;
  std::vector<int32_t> size_callers_;
  std::vector<c10::IValue> objects_;
  SizeSlots sizes_;
  OutputPlan plan_;
  std::vector<Buffer> buffers_;
  std::vector<std::pair<int32_t, int32_t>> input_buffers_;   // graph input, buffer
  std::vector<Step> steps_;
  BuffersByNumber release_, release_inputs_;         // by step: buffers that are dead after it
  BuffersByNumber make_buffers_;                     // by step: outputs and blocks that it uses first
  BuffersByNumber aliases_of_;                       // by buffer, over chains
  std::unordered_map<int32_t, int32_t> last_use_;    // by buffer that is no alias: a step
  std::vector<TensorUse> outputs_, new_values_;
  AliasSizeSlots alias_slots_;
  Ref arena_bytes_;
  int32_t n_wrappers_ = 0;
  size_t most_params_ = 1, most_sizes_ = 0;
  bool heavy_ = false, simple_outputs_ = true;
  bool tune_;                                        // measure the ways to make each library call
  std::unique_ptr<StepTimes> times_;                 // BRAZE_LOGS=perf
  std::atomic<RunState*> idle_{nullptr};
};

}  // namespace

std::shared_ptr<GraphProgram> make_program_executor(const schedule::Program& program,
                                                  std::vector<jit::LoadedKernel> kernels, const graph::Graph& graph,
                                                  const GraphContext& context, bool tune) {
  return std::make_shared<ProgramExecutor>(program, std::move(kernels), graph, context, tune);
}

}  // namespace braze::runtime
