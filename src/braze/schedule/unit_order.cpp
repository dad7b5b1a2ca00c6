// The order of steps where memory is freed as soon as its last reader has run: a step that takes memory waits for one near
// by that frees more than it takes. Of a backward pass' two products at a linear layer, the one for the weight goes first,
// since after it the layer's input is freed.
#include <algorithm>

#include "braze/schedule/groups.h"

namespace braze::schedule {
namespace {

constexpr size_t kWindow = 8;   // units to look ahead; further ones would pull memory of other places forward

class Order {
 public:
  Order(const Work& work, std::vector<Unit>& units) : work_(work), units_(units), readers_(work.buffers.size(), 0),
                                                     kept_(work.buffers.size(), false) {
    nodes_.resize(units.size());
    for (const loop::OutputRef& output : work.loops->outputs) keep(output.view.buffer);
    for (const loop::LoopProgram::Mutation& mutation : work.loops->mutations) keep(mutation.value.buffer);
    std::vector<int32_t> producer(work.buffers.size(), -1), unit_of_call(work.loops->calls.size(), -1);
    for (size_t i = 0; i < units.size(); ++i) {
      note_values(i);
      for (const int32_t id : nodes_[i].makes) producer[static_cast<size_t>(id)] = static_cast<int32_t>(i);
      if (units[i].call >= 0) unit_of_call[static_cast<size_t>(units[i].call)] = static_cast<int32_t>(i);
    }
    for (size_t i = 0; i < units.size(); ++i) {
      for (const int32_t id : nodes_[i].reads) {
        ++readers_[static_cast<size_t>(id)];
        if (const int32_t from = producer[static_cast<size_t>(id)]; from >= 0) nodes_[i].after.push_back(from);
      }
      if (units[i].call < 0) continue;
      for (const int32_t call : work.loops->calls[static_cast<size_t>(units[i].call)].order_after)
        nodes_[i].after.push_back(unit_of_call[static_cast<size_t>(call)]);
    }
  }

  void run() {
    std::vector<size_t> waiting(units_.size());
    for (size_t i = 0; i < waiting.size(); ++i) waiting[i] = i;
    std::vector<Unit> out;
    while (!waiting.empty()) {
      size_t best = 0;
      int64_t least = growth(waiting[0]);
      for (size_t w = 1; least > 0 && w < std::min(waiting.size(), kWindow); ++w)
        if (is_ready(waiting[w])) {
          const int64_t bytes = growth(waiting[w]);
          if (bytes < 0) best = w, least = bytes;
        }
      const size_t i = waiting[best];
      waiting.erase(waiting.begin() + static_cast<std::ptrdiff_t>(best));
      nodes_[i].done = true;
      for (const int32_t id : nodes_[i].reads) --readers_[static_cast<size_t>(id)];
      out.push_back(std::move(units_[i]));
    }
    units_ = std::move(out);
  }

 private:
  struct Node {
    std::vector<int32_t> makes, reads;   // buffers in memory, each once
    std::vector<int32_t> after;          // units
    bool done = false;
  };

  void keep(int32_t id) {
    if (id >= 0) kept_[static_cast<size_t>(id)] = true;
  }

  // Values that a group keeps to itself are not in memory: nobody else reads them.
  void note_values(size_t i) {
    const Unit& unit = units_[i];
    Node& node = nodes_[i];
    const auto read = [&](int32_t id) {
      if (id >= 0 && std::ranges::find(node.reads, id) == node.reads.end()) node.reads.push_back(id);
    };
    if (unit.call >= 0) {
      const loop::ExternCall& call = work_.loops->calls[static_cast<size_t>(unit.call)];
      for (const View& view : call.operands) read(view.buffer);
      for (const int32_t id : call.results)
        if (id >= 0) node.makes.push_back(id);
      return;
    }
    for (const Member& m : unit.group.members) {
      node.makes.push_back(m.buffer);
      for (const Read& r : work_.statement(m.buffer).reads)
        if (unit.group.find(r.buffer) == nullptr) read(r.buffer);
    }
  }

  bool is_ready(size_t i) const {
    return std::ranges::all_of(nodes_[i].after, [&](int32_t unit) { return nodes_[static_cast<size_t>(unit)].done; });
  }

  // An operand of a call is in memory, but not for longer than the call.
  bool is_freed(int32_t id) const {
    const Buffer& b = work_.buffer(id);
    if (b.kind != BufferKind::Input) return !kept_[static_cast<size_t>(id)];
    const graph::Graph* graph = work_.loops->graph;
    return graph != nullptr && graph->input_kinds[static_cast<size_t>(b.input)] == graph::InputKind::Saved;
  }

  int64_t bytes_of(int32_t id) const {
    return static_cast<int64_t>(work_.at(id).elements) * static_cast<int64_t>(size_of(work_.buffer(id).dtype));
  }

  // Bytes that are in use after the unit and were not before it.
  int64_t growth(size_t i) const {
    int64_t bytes = 0;
    for (const int32_t id : nodes_[i].makes)
      if (readers_[static_cast<size_t>(id)] > 0 || kept_[static_cast<size_t>(id)]) bytes += bytes_of(id);
    for (const int32_t id : nodes_[i].reads)
      if (readers_[static_cast<size_t>(id)] == 1 && is_freed(id)) bytes -= bytes_of(id);
    return bytes;
  }

  const Work& work_;
  std::vector<Unit>& units_;
  std::vector<Node> nodes_;
  std::vector<int32_t> readers_;   // units that have not run yet, by buffer
  std::vector<bool> kept_;         // to the end, by buffer
};

}  // namespace

void free_early(const Work& work, std::vector<Unit>& units) { Order(work, units).run(); }

}  // namespace braze::schedule
