// braze-opt: reads tensor IR text, carries out the named steps in order, prints the result.
//
//   braze-opt [options] [FILE]          FILE or "-": standard input
//     --passes=a,b,c       runs these graph passes; "decompose" is one of the names, "before" and "after" whole stages
//     --verify             checks the graph after reading and after each pass
//     --types              prints the result types of each node instead of the graph
//     --partition=N        prints the forward and the backward graph of a joint graph with N forward outputs
//     --budget=X           of memory for activations, from 1 to 0 (1)
//     --zero=x,y           prints the part of the graph that is left when these inputs are zero
//     --wanted=0,2         and only these outputs are asked for (all)
//     --lower              prints the loop IR, with its layouts chosen
//     --schedule           prints the scheduled program
//     --emit               prints the C++ text of its kernels
//     --threads=N          of the target (1)
//     --vector-bytes=N     of the target (this machine's)
//     --without=a,b        kernels that types must not count on: onednn_bf16, onednn_f16
//     --split              handles parts between lines "// -----" one by one
//     --list               names the passes
//
// Problems go to standard error, or with --split to standard output in the part's place; the exit status is then 1.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

#include "braze/codegen/codegen.h"
#include "braze/decompose/decompose.h"
#include "braze/graph/restrict.h"
#include "braze/graph/text.h"
#include "braze/graph/type_rules.h"
#include "braze/loop/layout.h"
#include "braze/loop/loop_ir.h"
#include "braze/partition/partition.h"
#include "braze/rewrite/pass_manager.h"
#include "braze/schedule/program.h"
#include "braze/support/check.h"

namespace {

using namespace braze;

enum class Output { Graph, Types, Partition, Restricted, Loops, Schedule, Text };

struct Options {
  std::vector<std::string> passes, zero_inputs, wanted;
  Output output = Output::Graph;
  bool verify = false;
  bool split = false;
  int threads = 1;
  int vector_bytes = 0;
  int forward_outputs = 0;
  double budget = 1;
  std::string file = "-";
};

class Problem : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> out;
  while (!text.empty()) {
    const size_t comma = text.find(',');
    if (comma != 0) out.emplace_back(text.substr(0, comma));
    text = comma == std::string_view::npos ? std::string_view{} : text.substr(comma + 1);
  }
  return out;
}

int number_of(std::string_view option, std::string_view text) {
  try {
    return std::stoi(std::string(text));
  } catch (const std::logic_error&) {
    throw Problem(fmt::format("{} needs a number", option));
  }
}

double real_of(std::string_view option, std::string_view text) {
  try {
    return std::stod(std::string(text));
  } catch (const std::logic_error&) {
    throw Problem(fmt::format("{} needs a number", option));
  }
}

void forget_kernels(const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    if (name == "onednn_bf16") graph::kernel_facts().onednn_bf16 = false;
    else if (name == "onednn_f16") graph::kernel_facts().onednn_f16 = false;
    else throw Problem(fmt::format("unknown kernels {}", name));
  }
}

Options parse_options(int argc, char** argv) {
  Options out;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    const size_t equals = word.find('=');
    const std::string_view name = word.substr(0, equals);
    const std::string_view value = equals == std::string_view::npos ? std::string_view{} : word.substr(equals + 1);
    if (name == "--passes")
      out.passes = words_of(value);
    else if (name == "--verify")
      out.verify = true;
    else if (name == "--types")
      out.output = Output::Types;
    else if (name == "--partition")
      out.output = Output::Partition, out.forward_outputs = number_of(name, value);
    else if (name == "--budget")
      out.budget = real_of(name, value);
    else if (name == "--zero")
      out.output = Output::Restricted, out.zero_inputs = words_of(value);
    else if (name == "--wanted")
      out.output = Output::Restricted, out.wanted = words_of(value);
    else if (name == "--lower")
      out.output = Output::Loops;
    else if (name == "--schedule")
      out.output = Output::Schedule;
    else if (name == "--emit")
      out.output = Output::Text;
    else if (name == "--threads")
      out.threads = number_of(name, value);
    else if (name == "--vector-bytes")
      out.vector_bytes = number_of(name, value);
    else if (name == "--without")
      forget_kernels(words_of(value));
    else if (name == "--split")
      out.split = true;
    else if (name.starts_with("--"))
      throw Problem(fmt::format("unknown option {}", word));
    else
      out.file = word;
  }
  return out;
}

std::string read_text(const std::string& file) {
  if (file == "-") return {std::istreambuf_iterator<char>(std::cin), {}};
  std::ifstream stream(file);
  if (!stream) throw Problem(fmt::format("cannot read {}", file));
  return {std::istreambuf_iterator<char>(stream), {}};
}

void list_passes() {
  for (const rewrite::Pass& pass : rewrite::all_passes()) fmt::print("{:<28} {}\n", pass.name, pass.about);
  fmt::print("{:<28} {}\n", "decompose", "replaces composite ops by primitive ones");
}

void check(const graph::Graph& graph, std::string_view when) {
  const std::string problems = graph::verify(graph);
  if (!problems.empty()) throw Problem(fmt::format("{}:\n{}", when, problems));
}

void run_pass(graph::Graph& graph, const std::string& name, const Options& options) {
  if (name == "decompose") {
    for (const std::string& failed : decompose::decompose(graph).failed) fmt::print(stderr, "decompose: {}\n", failed);
  } else if (name == "before" || name == "after") {
    rewrite::run_passes(graph, name == "before" ? rewrite::Stage::Before : rewrite::Stage::After,
                        {.enable = {}, .disable = {}, .verify = options.verify});
  } else {
    rewrite::run_pass(graph, name);
  }
  if (options.verify) check(graph, "after " + name);
}

std::string types_of(const graph::Graph& graph) {
  std::string out;
  for (const graph::Node* node : graph.nodes) {
    const char* separator = "";
    for (const graph::Value* result : node->results) {
      out += separator + graph::print(result->type);
      separator = ", ";
    }
    out += '\n';
  }
  return out;
}

std::string partition_of(const graph::Graph& joint, const Options& options) {
  Result<partition::Partitioned> parts = partition::partition(
      joint, static_cast<size_t>(options.forward_outputs), {.activation_memory_budget = options.budget});
  if (!parts.ok()) throw Problem(parts.why().reason);
  if (options.verify) check(*parts->forward, "forward");
  if (options.verify) check(*parts->backward, "backward");
  static constexpr std::string_view kKinds[] = {"input", "output", "tangent"};
  std::string out = graph::print(*parts->forward) + graph::print(*parts->backward) + "// backward inputs:";
  for (const partition::BackwardInput& input : parts->backward_inputs)
    out += fmt::format(" {} {}", kKinds[static_cast<size_t>(input.kind)], input.index);
  return out + fmt::format("\n// saved bytes: {}\n", parts->saved_bytes);
}

std::string restricted(const graph::Graph& graph, const Options& options) {
  std::vector<bool> zero, wanted(graph.outputs.size(), options.wanted.empty());
  for (const graph::Value* input : graph.inputs)
    zero.push_back(std::ranges::find(options.zero_inputs, input->name) != options.zero_inputs.end());
  for (const std::string& output : options.wanted) wanted.at(static_cast<size_t>(number_of("--wanted", output))) = true;
  const graph::Restricted part = graph::restrict(graph, zero, wanted, false);
  if (options.verify) check(*part.graph, "restricted");
  return graph::print(*part.graph);
}

std::string kernels_of(const schedule::Program& program, const schedule::Target& target) {
  std::vector<const schedule::Kernel*> kernels;
  std::vector<std::string> names;
  for (const schedule::Kernel& kernel : program.kernels) {
    names.push_back("kernel" + std::to_string(kernels.size()));
    kernels.push_back(&kernel);
  }
  return codegen::emit_cpp(kernels, names, target);
}

std::string process(std::string_view text, const Options& options) {
  const std::unique_ptr<graph::Graph> graph = graph::parse(text);
  if (options.verify) check(*graph, "as read");
  for (const std::string& pass : options.passes) run_pass(*graph, pass, options);
  if (options.output == Output::Graph) return graph::print(*graph);
  if (options.output == Output::Types) return types_of(*graph);
  if (options.output == Output::Restricted) return restricted(*graph, options);
  if (options.output == Output::Partition) return partition_of(*graph, options);

  Result<loop::LoopProgram> lowered = loop::lower(*graph);
  if (!lowered.ok()) throw Problem(lowered.why().reason);
  auto loops = std::make_shared<loop::LoopProgram>(std::move(lowered).value());
  loop::choose_layouts(*loops);
  if (options.verify)
    if (const std::string problems = loop::verify(*loops); !problems.empty()) throw Problem(problems);
  if (options.output == Output::Loops) return loop::print(*loops);

  schedule::Target target = schedule::cpu_target(options.threads);
  if (options.vector_bytes != 0) target.vector_bytes = options.vector_bytes;
  Result<schedule::Program> program = schedule::schedule(loops, target);
  if (!program.ok()) throw Problem(program.why().reason);
  if (options.verify)
    if (const std::string problems = schedule::verify(*program); !problems.empty()) throw Problem(problems);
  if (options.output == Output::Schedule) return schedule::print(*program);
  return kernels_of(*program, target);
}

// The parts between lines "// -----".
std::vector<std::string_view> parts_of(std::string_view text) {
  constexpr std::string_view kLine = "\n// -----\n";
  std::vector<std::string_view> out;
  for (size_t at; (at = text.find(kLine)) != std::string_view::npos; text.remove_prefix(at + kLine.size()))
    out.push_back(text.substr(0, at + 1));
  out.push_back(text);
  return out;
}

int run(const Options& options) {
  const std::string text = read_text(options.file);
  if (!options.split) {
    std::cout << process(text, options);
    return 0;
  }
  int status = 0;
  const char* separator = "";
  for (const std::string_view part : parts_of(text)) {
    std::cout << separator;
    separator = "// -----\n";
    try {
      std::cout << process(part, options);
    } catch (const std::exception& e) {
      std::cout << "error: " << e.what() << "\n";
      status = 1;
    }
  }
  return status;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc == 2 && std::string_view(argv[1]) == "--list") {
      list_passes();
      return 0;
    }
    return run(parse_options(argc, argv));
  } catch (const std::exception& e) {
    fmt::print(stderr, "braze-opt: {}\n", e.what());
    return 1;
  }
}
