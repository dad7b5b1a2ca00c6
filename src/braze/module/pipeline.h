// From a traced graph to an executable: passes, decompositions, loop IR, schedule, text, machine code, runtime.
#pragma once

#include <memory>
#include <string>
#include <vector>

namespace braze::module {

class CustomPasses;

struct PipelineOptions {
  bool fusion = true;
  bool verify = false;                       // the graph after each pass
  double activation_memory_budget = 1.0;     // see partition::PartitionOptions
  bool autotune = false;                     // see runtime/tuning.h
  std::vector<std::string> enable_passes, disable_passes;
  std::shared_ptr<const CustomPasses> custom_passes;   // nullptr: none
};

// The options of the compilations that this thread starts while the object lives.
class PipelineScope {
 public:
  explicit PipelineScope(const PipelineOptions& options);
  ~PipelineScope();
  PipelineScope(const PipelineScope&) = delete;
  PipelineScope& operator=(const PipelineScope&) = delete;

 private:
  const PipelineOptions* outer_;
};

// Hands the pipeline to the tracer. Called once, when the extension is loaded.
void register_pipeline();

// Time spent in the pipeline by this thread since the last call, in ms: what is left of a first call is capture.
double take_pipeline_time();

// Names that backend= accepts, and pass names that options may name.
const std::vector<std::string>& backends();
std::vector<std::string> pass_names();

}  // namespace braze::module
