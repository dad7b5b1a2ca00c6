#include "braze/rewrite/pass_manager.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <stdexcept>

#include "braze/graph/text.h"
#include "braze/support/check.h"
#include "braze/support/log.h"

namespace braze::rewrite {

namespace {

constexpr auto kPasses = std::to_array<Pass>({
#define PASS(name, stage, default_on, about) {#name, &name, Stage::stage, default_on, about},
#include "braze/rewrite/passes.def"
#undef PASS
});

bool contains(const std::vector<std::string>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool is_on(const Pass& pass, const PassOptions& options) {
  if (contains(options.disable, pass.name)) return false;
  return pass.default_on || contains(options.enable, pass.name);
}

PassTime run(graph::Graph& graph, const Pass& pass, const PassOptions& options) {
  auto start = std::chrono::steady_clock::now();
  bool changed = pass.run(graph);
  std::chrono::duration<double, std::milli> elapsed = std::chrono::steady_clock::now() - start;
  if (changed && options.verify) {
    std::string problems = graph::verify(graph);
    CHECK(problems.empty(), "after pass " << pass.name << ":\n" << problems);
  }
  if (changed && log_enabled(Topic::kPostGrad))
    log(Topic::kPostGrad, "after " + std::string(pass.name) + ":\n" + graph::print(graph));
  return {pass.name, elapsed.count(), changed};
}

}  // namespace

std::span<const Pass> all_passes() { return kPasses; }

const Pass* find_pass(std::string_view name) {
  auto it = std::find_if(kPasses.begin(), kPasses.end(), [&](const Pass& pass) { return pass.name == name; });
  return it == kPasses.end() ? nullptr : &*it;
}

std::vector<PassTime> run_passes(graph::Graph& graph, Stage stage, const PassOptions& options) {
  std::vector<PassTime> times;
  for (const Pass& pass : kPasses)
    if ((stage == Stage::Both || pass.stage == Stage::Both || pass.stage == stage) && is_on(pass, options))
      times.push_back(run(graph, pass, options));
  return times;
}

bool run_pass(graph::Graph& graph, std::string_view name, const PassOptions& options) {
  const Pass* pass = find_pass(name);
  if (pass == nullptr) throw std::invalid_argument("no such pass: " + std::string(name));
  return run(graph, *pass, options).changed;
}

}  // namespace braze::rewrite
