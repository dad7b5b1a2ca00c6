#include <algorithm>

#include "braze/partition/choose.h"
#include "braze/partition/cost.h"
#include "braze/partition/split.h"

namespace braze::partition {

using graph::Node;
using graph::Value;

namespace {

// Memory that some node which would run again makes, and where it is used.
struct Memory {
  const Value* value;
  int64_t bytes;
  int32_t made, last_use;   // places in the order of nodes that would run again
};

class Budget {
 public:
  Budget(const Joint& joint, const Rules& rules) : joint_(joint), rules_(rules), env_(*joint.graph.env) {
    find_nodes();
    find_memory();
  }

  ValueSet operator()(const ValueSet& all, double budget) const {
    const int64_t most = peak_of(joint_, all);
    const ValueSet least = fewest();
    const int64_t fewest_bytes = peak_of(joint_, least);
    if (fewest_bytes >= most) return all;
    const auto target = fewest_bytes + static_cast<int64_t>(budget * static_cast<double>(most - fewest_bytes));
    ValueSet best = least;
    int64_t low = 0, high = most;
    for (int step = 0; step < kSearchSteps && high - low > most / 256; ++step) {
      const int64_t room = low + (high - low) / 2;
      ValueSet set = with_more(least, room);
      if (peak_of(joint_, set) <= target) {
        best = std::move(set);
        low = room;
      } else {
        high = room;
      }
    }
    return best;
  }

 private:
  static constexpr int kSearchSteps = 6;
  static constexpr size_t kUnits = 256;   // of the knapsack

  // The nodes that would run again if only what can't be made again was saved.
  void find_nodes() {
    std::vector<bool> seen(joint_.n_ids(), false);
    places_.assign(joint_.nodes.size(), -1);
    kept_.assign(joint_.n_ids(), false);
    std::vector<const Value*> open;
    const auto need = [&](const Value* value) {
      value = owner(value);
      const auto id = static_cast<size_t>(value->id);
      if (seen[id]) return;
      seen[id] = true;
      if (value->producer != nullptr) open.push_back(value);
    };
    joint_.for_each_need(need);
    while (!open.empty()) {
      const Value* value = open.back();
      open.pop_back();
      const auto node = static_cast<size_t>(joint_.producer(value));
      if (rules_.never[node]) {
        kept_[static_cast<size_t>(value->id)] = true;
        continue;
      }
      needed_.push_back(value);
      if (places_[node] >= 0) continue;
      places_[node] = 0;
      for (const graph::Argument& argument : joint_.nodes[node]->arguments) graph::for_each_value(argument, need);
    }
    for (size_t i = 0; i < places_.size(); ++i) {
      if (places_[i] < 0) continue;
      places_[i] = static_cast<int32_t>(order_.size());
      order_.push_back(static_cast<int32_t>(i));
    }
  }

  void find_memory() {
    std::vector<int32_t> index(joint_.n_ids(), -1);
    for (const Value* value : needed_) {
      const int32_t place = places_[static_cast<size_t>(joint_.producer(value))];
      index[static_cast<size_t>(value->id)] = static_cast<int32_t>(memory_.size());
      memory_.push_back({value, bytes_of(env_, value->type), place, place});
    }
    for (size_t place = 0; place < order_.size(); ++place)
      for (const graph::Argument& argument : joint_.nodes[static_cast<size_t>(order_[place])]->arguments)
        graph::for_each_value(argument, [&](const Value* value) {
          const int32_t i = index[static_cast<size_t>(owner(value)->id)];
          if (i >= 0) memory_[static_cast<size_t>(i)].last_use = static_cast<int32_t>(place);
        });
  }

  bool may_save(const Memory& memory) const { return !rules_.must[static_cast<size_t>(joint_.producer(memory.value))]; }

  // Saved: what crosses a few places of the forward pass, so that each part between them is computed again when its
  // gradients are due, and gives its memory back before the next. Fewer places: less is saved, but the parts are larger.
  // The number of places that needs least memory is found by trying.
  ValueSet fewest() const {
    const size_t n = order_.size();
    std::vector<int64_t> crossing(n + 2, 0), made(n + 1, 0);
    for (const Memory& memory : memory_) {
      made[static_cast<size_t>(memory.made) + 1] += memory.bytes;
      if (!may_save(memory)) continue;
      crossing[static_cast<size_t>(memory.made) + 1] += memory.bytes;
      crossing[static_cast<size_t>(memory.last_use) + 1] -= memory.bytes;
    }
    for (size_t i = 0; i < n; ++i) {
      crossing[i + 1] += crossing[i];
      made[i + 1] += made[i];
    }
    ValueSet best = crossing_set({});
    int64_t least = peak_of(joint_, best);
    for (int64_t parts = 2; parts <= 256; parts += std::max<int64_t>(1, parts / 3)) {
      ValueSet set = crossing_set(places(crossing, made, made[n] / parts));
      const int64_t peak = peak_of(joint_, set);
      if (peak >= least) continue;
      least = peak;
      best = std::move(set);
    }
    return best;
  }

  // Places so that about `part` bytes are made between two of them, each where little crosses.
  static std::vector<int32_t> places(const std::vector<int64_t>& crossing, const std::vector<int64_t>& made,
                                     int64_t part) {
    std::vector<int32_t> out;
    size_t begin = 0;
    const size_t n = made.size() - 1;
    while (true) {
      size_t from = begin + 1;
      while (from < n && made[from] - made[begin] < part / 2) ++from;
      size_t best = from;
      for (size_t i = from; i < n && made[i] - made[begin] <= part; ++i)
        if (crossing[i] <= crossing[best]) best = i;
      if (best >= n) return out;
      out.push_back(static_cast<int32_t>(best));
      begin = best;
    }
  }

  // A place p lies before the node number p.
  ValueSet crossing_set(const std::vector<int32_t>& at) const {
    ValueSet out = kept_;
    for (const Memory& memory : memory_) {
      const auto next = std::ranges::upper_bound(at, memory.made);
      if (next != at.end() && *next <= memory.last_use && may_save(memory))
        out[static_cast<size_t>(memory.value->id)] = true;
    }
    return out;
  }

  // Adds, within `room` bytes, the results whose nodes cost most: a knapsack.
  ValueSet with_more(const ValueSet& set, int64_t room) const {
    struct Item { int32_t place; int64_t bytes; int64_t work; size_t units; };
    std::vector<Item> items(order_.size());
    for (const Memory& memory : memory_) {
      Item& item = items[static_cast<size_t>(memory.made)];
      if (may_save(memory) && !set[static_cast<size_t>(memory.value->id)]) item.bytes += memory.bytes;
    }
    const int64_t unit = room / static_cast<int64_t>(kUnits) + 1;
    for (size_t place = 0; place < items.size(); ++place) {
      const Node& node = *joint_.nodes[static_cast<size_t>(order_[place])];
      items[place].place = static_cast<int32_t>(place);
      items[place].units = static_cast<size_t>((items[place].bytes + unit - 1) / unit);
      items[place].work = again(node) == Again::Costly ? work_of(env_, node) : fused_work_of(env_, node);
    }
    std::erase_if(items, [&](const Item& item) { return item.bytes == 0 || item.bytes > room; });
    const auto units = static_cast<size_t>(room / unit);
    std::vector<int64_t> work(units + 1, 0);
    std::vector<std::vector<bool>> taken(items.size(), std::vector<bool>(units + 1, false));
    for (size_t i = 0; i < items.size(); ++i)
      for (size_t u = units; u >= items[i].units && u > 0; --u) {
        const int64_t with = work[u - items[i].units] + items[i].work;
        if (with <= work[u]) continue;
        work[u] = with;
        taken[i][u] = true;
      }
    std::vector<bool> chosen(order_.size(), false);
    size_t left = units;
    for (size_t i = items.size(); i-- > 0;)
      if (taken[i][left]) {
        chosen[static_cast<size_t>(items[i].place)] = true;
        left -= items[i].units;
      }
    ValueSet out = set;
    for (const Memory& memory : memory_)
      if (chosen[static_cast<size_t>(memory.made)] && may_save(memory)) out[static_cast<size_t>(memory.value->id)] = true;
    return out;
  }

  const Joint& joint_;
  const Rules& rules_;
  const sym::ShapeEnv& env_;
  std::vector<int32_t> places_;           // by node number; -1: need not run again
  std::vector<int32_t> order_;            // node number at each place
  std::vector<const Value*> needed_;      // memory that these nodes make and something needs
  std::vector<Memory> memory_;
  ValueSet kept_;                         // results of nodes that run once
};

}  // namespace

ValueSet within_budget(const Joint& joint, const Rules& rules, const ValueSet& cheapest, double budget) {
  return Budget(joint, rules)(cheapest, budget);
}

}  // namespace braze::partition
