// What was compiled and what was not, for counters(), compile_count(), fallback_report() and compile_report().
// Everything here needs the GIL.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace braze::module {

struct Counters {
  int64_t graphs = 0;                          // compiled since the last reset, recompilations included
  int64_t graphs_ever = 0;
  std::map<std::string, int64_t> breaks;       // by reason
  std::map<std::string, int64_t> skipped;      // calls given up to eager, by reason
  std::map<std::string, int64_t> fallbacks;    // ops compiled as opaque calls
  void reset();                                // all but graphs_ever
};

Counters& counters();

// Milliseconds that one compilation spent in each phase, in order.
struct PhaseReport {
  std::string name;                            // of the graph
  int64_t nodes = 0, kernels = 0, calls = 0;
  std::vector<std::pair<std::string, double>> phases;
  std::string note;                            // caches, compiler
};

// The reports of compilations since the last reset, oldest first; the last 100 are kept.
std::vector<PhaseReport>& phase_reports();

}  // namespace braze::module
