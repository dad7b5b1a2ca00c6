// braze-opt: reads a tensor graph as text, runs passes over it, prints it. What FileCheck tests drive.
//
//   braze-opt [--passes=NAME,...|before|after] [--decompose[=core]] [--verify] [--list] [FILE]
//
// Steps run in the order given; a FILE of "-" or none is standard input. Several graphs are separated by lines "// ---".
#include <fstream>
#include <functional>
#include <iostream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "braze/decompose/decompose.h"
#include "braze/graph/text.h"
#include "braze/rewrite/pass_manager.h"
#include "braze/support/check.h"

namespace {

using braze::graph::Graph;
using Step = std::function<void(Graph&)>;

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> out;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) out.push_back(part);
  return out;
}

void run_passes(Graph& graph, const std::string& name) {
  using braze::rewrite::Stage;
  if (name == "before" || name == "after")
    braze::rewrite::run_passes(graph, name == "before" ? Stage::Before : Stage::After, {.verify = true});
  else
    braze::rewrite::run_pass(graph, name, {.verify = true});
}

void decompose(Graph& graph, bool target) {
  braze::decompose::Report report = braze::decompose::decompose(graph, {.target = target});
  for (const std::string& problem : report.failed) std::cerr << "braze-opt: " << problem << "\n";
}

void verify(const Graph& graph) {
  std::string problems = braze::graph::verify(graph);
  if (!problems.empty()) throw braze::InternalError("not well formed:\n" + problems);
}

void list_passes() {
  for (const braze::rewrite::Pass& pass : braze::rewrite::all_passes())
    std::cout << pass.name << (pass.default_on ? "" : " (off)") << ": " << pass.about << "\n";
}

std::vector<std::string> read_graphs(std::istream& in) {
  std::vector<std::string> graphs(1);
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("// ---")) graphs.emplace_back();
    else if (!line.starts_with("//")) graphs.back() += line + "\n";
  }
  return graphs;
}

int run(const std::vector<std::string>& words) {
  std::vector<Step> steps;
  std::string file = "-";
  for (const std::string& word : words) {
    if (word == "--list") {
      list_passes();
      return 0;
    }
    if (word == "--verify") {
      steps.push_back(verify);
    } else if (word == "--decompose" || word == "--decompose=core") {
      steps.push_back([target = word == "--decompose"](Graph& graph) { decompose(graph, target); });
    } else if (word.starts_with("--passes=")) {
      for (const std::string& name : split(word.substr(9), ','))
        steps.push_back([name](Graph& graph) { run_passes(graph, name); });
    } else if (word.starts_with("--")) {
      std::cerr << "braze-opt: unknown option " << word << "\n";
      return 2;
    } else {
      file = word;
    }
  }
  std::ifstream opened;
  if (file != "-") {
    opened.open(file);
    if (!opened) {
      std::cerr << "braze-opt: cannot read " << file << "\n";
      return 2;
    }
  }
  for (const std::string& text : read_graphs(file == "-" ? std::cin : opened)) {
    if (text.find_first_not_of(" \n") == std::string::npos) continue;
    std::unique_ptr<Graph> graph = braze::graph::parse(text);
    verify(*graph);
    for (const Step& step : steps) step(*graph);
    verify(*graph);
    std::cout << braze::graph::print(*graph);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(std::vector<std::string>(argv + 1, argv + argc));
  } catch (const std::exception& error) {
    std::cerr << "braze-opt: " << error.what() << "\n";
    return 1;
  }
}
