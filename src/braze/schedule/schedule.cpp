#include <fmt/format.h>

#include <unordered_map>

#include "braze/schedule/failure.h"
#include "braze/schedule/memory_plan.h"
#include "braze/schedule/print.h"
#include "braze/schedule/shape.h"
#include "braze/support/log.h"

namespace braze::schedule {
namespace {

class Scheduler {
 public:
  Scheduler(std::shared_ptr<loop::LoopProgram> loops, const Target& target, const ScheduleOptions& options)
      : work_(std::move(loops), target, options) {
    if (log_enabled(Topic::kSchedule)) work_.log = &program_.decisions;
  }

  Program run() {
    prepare(work_);
    choose(work_);
    flatten(work_);
    std::vector<Unit> units = fuse(work_);
    if (work_.options.block_bytes > 0) free_early(work_, units);
    find_stored(units);
    for (const Unit& unit : units) {
      if (unit.call >= 0) {
        add_call(unit.call);
      } else {
        try {
          add_group(unit.group);
        } catch (const InternalError& error) {
          std::vector<int32_t> buffers;
          for (const Member& m : unit.group.members) buffers.push_back(m.buffer);
          throw KernelFailure(error.what(), std::move(buffers));
        }
      }
    }
    for (const loop::OutputRef& output : work_.loops->outputs) program_.outputs.push_back(output.view);
    program_.env = work_.loops->env;
    program_.loops = work_.loops;
    plan_memory(work_, program_, work_.options.block_bytes);
    if (work_.log != nullptr) log(Topic::kSchedule, program_.decisions + print(program_));
    return std::move(program_);
  }

 private:
  // Members that somebody outside of their group reads.
  void find_stored(const std::vector<Unit>& units) {
    stored_.assign(work_.buffers.size(), false);
    for (const Unit& unit : units) {
      for (const Member& m : unit.group.members) {
        if (work_.at(m.buffer).required) stored_[static_cast<size_t>(m.buffer)] = true;
        for (const Read& read : work_.statement(m.buffer).reads)
          if (work_.is_computed(read.buffer) && unit.group.find(read.buffer) == nullptr)
            stored_[static_cast<size_t>(read.buffer)] = true;
      }
    }
  }

  void add_call(int32_t call) {
    const loop::ExternCall& c = work_.loops->calls[static_cast<size_t>(call)];
    CallStep step;
    step.call = call;
    step.operands = c.operands;
    step.results = c.results;
    program_.steps.push_back(std::move(step));
  }

  void add_group(const Group& group) {
    for (Nest& nest : make_nests(work_, group, stored_)) {
      split_borders(work_, nest);
      Shaped shaped = shape(work_, std::move(nest));
      if (const std::string problems = verify(shaped.kernel); !problems.empty()) throw InternalError(problems);
      LaunchStep step;
      for (int32_t id : shaped.params) {
        const Buffer& b = work_.buffer(id);
        step.params.push_back({id, b.sizes, b.strides, 0});
      }
      step.sizes = std::move(shaped.sizes);
      step.range = shaped.range;
      step.grain = shaped.grain;
      step.parallel = shaped.parallel;
      step.kernel = kernel_number(std::move(shaped.kernel));
      program_.steps.push_back(std::move(step));
    }
  }

  int32_t kernel_number(Kernel&& kernel) {
    const auto [it, is_new] = kernels_.try_emplace(canonical_text(kernel), static_cast<int32_t>(program_.kernels.size()));
    if (is_new) program_.kernels.push_back(std::move(kernel));
    return it->second;
  }

  Work work_;
  Program program_;
  std::vector<bool> stored_;
  std::unordered_map<std::string, int32_t> kernels_;
};

}  // namespace

Result<Program> schedule(std::shared_ptr<loop::LoopProgram> loops, const Target& target, const ScheduleOptions& options) {
  return Scheduler(std::move(loops), target, options).run();
}

}  // namespace braze::schedule
