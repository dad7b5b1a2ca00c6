#include "braze/module/counters.h"

namespace braze::module {

void Counters::reset() { *this = Counters{.graphs_ever = graphs_ever}; }

Counters& counters() {
  static Counters instance;
  return instance;
}

std::vector<PhaseReport>& phase_reports() {
  static std::vector<PhaseReport> reports;
  return reports;
}

}  // namespace braze::module
