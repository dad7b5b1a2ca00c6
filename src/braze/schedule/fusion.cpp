// Which statements share a kernel. Greedy: each statement, producers first, is merged with the groups that it reads,
// those that save most memory traffic first; then small kernels over equal ranges are put together.
#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "braze/schedule/cost.h"
#include "braze/schedule/groups.h"

namespace braze::schedule {
namespace {

constexpr size_t kMostMembers = 40;
constexpr size_t kMostNodes = 800;        // of all bodies; compile time grows faster than the kernel
constexpr size_t kMostText = 4000;        // of all bodies, each as often as it is written
constexpr double kLongestColumn = 2048;   // at a cache line each, a few buffers fit into the second-level cache

class Fusion {
 public:
  explicit Fusion(Work& work) : work_(work) {}

  std::vector<Unit> run() {
    number_nodes();
    for (const int32_t id : work_.order)
      if (work_.at(id).real) add(id);
    if (work_.options.fusion && work_.options.horizontal) {
      merge_columns();
      merge_small();
    }
    return in_order();
  }

 private:
  // A node of the dependence graph: a group, or a call. Inputs are no nodes.
  struct Node {
    Group group;
    int32_t call = -1;
    bool merged = false;
    int32_t first = -1, last = -1;        // least and greatest rank inside
    std::vector<int32_t> users;           // nodes, perhaps repeated or merged away: ask find()
    std::vector<int32_t> reads;
    bool is_call() const { return call >= 0; }
  };

  void number_nodes() {
    node_of_.assign(work_.buffers.size(), -1);
    node_of_call_.assign(work_.loops->calls.size(), -1);
    int32_t next_call = 0, rank = 0;
    for (const int32_t id : work_.order) {
      const Buffer& b = work_.buffer(id);
      rank = work_.at(id).rank;
      if (b.kind == BufferKind::Extern) {
        for (; next_call <= b.call; ++next_call) add_call(next_call, rank);
        const int32_t node = node_of_call_[static_cast<size_t>(b.call)];
        node_of_[static_cast<size_t>(id)] = node;
        at(node).last = rank;
        widen(at(node));
      } else if (work_.at(id).real) {
        const int32_t node = new_node(rank);
        nodes_.back().group = group_of(work_, id);
        node_of_[static_cast<size_t>(id)] = node;
        for (const Read& read : work_.statement(id).reads) link(read.buffer, node);
      }
    }
    for (; next_call < static_cast<int32_t>(node_of_call_.size()); ++next_call) add_call(next_call, rank);
  }

  // The greatest rank inside a node that begins at this rank or before. A path may enter a node at its greatest rank and
  // leave it at its least.
  int32_t reach(int32_t rank) const { return reach_[static_cast<size_t>(rank)]; }
  void widen(const Node& node) {
    for (auto r = static_cast<int32_t>(reach_.size()); r <= node.last; ++r) reach_.push_back(std::max(r, reach_.empty() ? 0 : reach_.back()));
    for (auto r = static_cast<size_t>(node.first); r < reach_.size() && reach_[r] < node.last; ++r) reach_[r] = node.last;
  }

  // Also one without results that somebody reads: it is there for its effect, an assertion or a random state.
  void add_call(int32_t number, int32_t rank) {
    const loop::ExternCall& call = work_.loops->calls[static_cast<size_t>(number)];
    const int32_t node = new_node(rank);
    nodes_.back().call = number;
    node_of_call_[static_cast<size_t>(number)] = node;
    for (const View& view : call.operands) link(view.buffer, node);
    for (int32_t before : call.order_after) link_nodes(node_of_call_[static_cast<size_t>(before)], node);
  }

  int32_t new_node(int32_t rank) {
    nodes_.emplace_back();
    nodes_.back().first = nodes_.back().last = rank;
    widen(nodes_.back());
    parent_.push_back(static_cast<int32_t>(parent_.size()));
    stamp_.push_back(0);
    return static_cast<int32_t>(nodes_.size()) - 1;
  }

  void link(int32_t buffer, int32_t user) {
    if (const int32_t from = node_of_[static_cast<size_t>(buffer)]; from >= 0 && from != user) link_nodes(from, user);
  }
  void link_nodes(int32_t from, int32_t to) {
    nodes_[static_cast<size_t>(from)].users.push_back(to);
    nodes_[static_cast<size_t>(to)].reads.push_back(from);
  }

  int32_t find(int32_t node) {
    while (parent_[static_cast<size_t>(node)] != node)
      node = parent_[static_cast<size_t>(node)] = parent_[static_cast<size_t>(parent_[static_cast<size_t>(node)])];
    return node;
  }
  Node& at(int32_t node) { return nodes_[static_cast<size_t>(node)]; }

  // True if a path leads from a to b through a third node; then a and b can't be one kernel.
  bool is_linked_around(int32_t a, int32_t b) {
    ++now_;
    int32_t limit = at(b).last;
    while (reach(limit) > limit) limit = reach(limit);
    std::vector<int32_t> pending;
    for (int32_t user : at(a).users)
      if (user = find(user); user != b && user != a) pending.push_back(user);
    while (!pending.empty()) {
      const int32_t node = pending.back();
      pending.pop_back();
      if (stamp_[static_cast<size_t>(node)] == now_ || (ranked_ && at(node).first > limit)) continue;
      stamp_[static_cast<size_t>(node)] = now_;
      for (int32_t user : at(node).users) {
        user = find(user);
        if (user == b) return true;
        if (user != a) pending.push_back(user);
      }
    }
    return false;
  }

  void add(int32_t buffer) {
    if (!work_.options.fusion) return;
    for (bool again = true; again;) {
      again = false;
      const int32_t self = find(node_of_[static_cast<size_t>(buffer)]);
      std::vector<std::pair<double, int32_t>> producers;
      for (const Read& read : work_.statement(buffer).reads) {
        const int32_t from = node_of_[static_cast<size_t>(read.buffer)];
        if (from < 0 || find(from) == self || at(find(from)).is_call()) continue;
        const double bytes = work_.at(read.buffer).elements * static_cast<double>(size_of(work_.buffer(read.buffer).dtype));
        const int32_t root = find(from);
        const auto known = std::ranges::find_if(producers, [&](const auto& p) { return p.second == root; });
        if (known == producers.end()) {
          producers.emplace_back(bytes, root);
        } else {
          known->first += bytes;
        }
      }
      std::ranges::stable_sort(producers, [](const auto& x, const auto& y) { return x.first > y.first; });
      for (const auto& [bytes, producer] : producers) {
        if (!try_merge(producer, self, bytes)) continue;
        again = true;
        break;
      }
    }
  }

  bool try_merge(int32_t producer, int32_t consumer, double bytes) {
    const Group& a = at(producer).group;
    const Group& b = at(consumer).group;
    const char* reason = "";
    if (a.alone || b.alone) {
      reason = "a kernel of its own kind";
    } else if (a.members.size() + b.members.size() > kMostMembers || n_nodes(a, b) > kMostNodes) {
      reason = "too large";
    } else if (is_linked_around(producer, consumer)) {
      reason = "a cycle";
    } else {
      Merge merge = merge_vertically(work_, a, b);
      reason = merge.reason;
      if (merge.group) {
        reason = text_of(*merge.group) > kMostText ? "too much text" : why_not_worth(*merge.group);
        if (reason == nullptr) {
          if (work_.log != nullptr) work_.note(fmt::format("fuse {} into {}: saves {:.0f} bytes", names(a), names(b), bytes));
          unite(producer, consumer, std::move(*merge.group));
          return true;
        }
      }
    }
    if (work_.log != nullptr) work_.note(fmt::format("keep {} apart from {}: {}", names(a), names(b), reason));
    return false;
  }

  // Few rows would leave threads without work: long rows are then better cut, with results passed through memory.
  const char* why_not_worth(const Group& group) {
    const double rows = work_.hint_numel(group.rows);
    double iterations = 0;
    for (const Member& m : group.members) iterations += work_.hint_numel(m.inner);
    const bool all_rows = std::ranges::all_of(group.members, [](const Member& m) { return m.inner.empty(); });
    if (all_rows) return nullptr;
    const double ns = rows * iterations * (kNsPerByte * 4 + kNsPerOp * 4);
    if (ns > 4 * kLaunchNs && rows < work_.target.threads * 2) return "too few rows";
    if (group.has_reduction && longest_column(group) > kLongestColumn) return "columns that leave the cache";
    return nullptr;
  }

  // Elements that lie apart in memory and that a pointwise member goes through for each piece of a row: what is reduced
  // first is read again only after all of them.
  double longest_column(const Group& group) const {
    double longest = 0;
    for (const Member& m : group.members) {
      const Buffer& b = work_.buffer(m.buffer);
      if (b.kind != BufferKind::Pointwise || m.inner.empty()) continue;
      Expr address = 0;
      for (size_t k = 0; k < m.at.size(); ++k) address += m.at[k] * b.strides[k];
      const auto unit = [&](const Axis& axis) { return sym::coefficient(address, axis.symbol) == Expr(1); };
      if (std::ranges::any_of(group.rows, unit) && std::ranges::none_of(m.inner, unit))
        longest = std::max(longest, work_.hint_numel(m.inner));
    }
    return longest;
  }

  void unite(int32_t a, int32_t b, Group&& group) {
    parent_[static_cast<size_t>(a)] = b;
    Node& from = at(a);
    Node& to = at(b);
    from.merged = true;
    to.group = std::move(group);
    to.users.insert(to.users.end(), from.users.begin(), from.users.end());
    to.reads.insert(to.reads.end(), from.reads.begin(), from.reads.end());
    to.first = std::min(to.first, from.first);
    to.last = std::max(to.last, from.last);
    widen(to);
  }

  // Of a kernel of both. Where it runs piece by piece, the members that no Cat is are written anew for each piece.
  size_t n_nodes(const Group& a, const Group& b) const {
    size_t n = 0, in_pieces = 0, pieces = 1;
    for (const Group* group : {&a, &b})
      for (const Member& m : group->members) {
        const Buffer& buffer = work_.buffer(m.buffer);
        (buffer.kind == BufferKind::Cat ? in_pieces : n) += work_.at(m.buffer).nodes;
        pieces = std::max(pieces, buffer.pieces.size());
      }
    return n * pieces + in_pieces;
  }

  // A pointwise member is written again for each place at which others read it, and these are written again themselves:
  // steps of a scan by halves would make a text that doubles with each.
  size_t text_of(const Group& group) const {
    std::unordered_map<int32_t, size_t> copies;
    for (const Member& m : group.members) copies[m.buffer] = 1;
    size_t text = 0;
    for (size_t i = group.members.size(); i-- > 0;) {
      const int32_t id = group.members[i].buffer;
      const size_t own = copies.at(id);
      text += own * work_.at(id).nodes;
      if (text > kMostText) return text;
      std::vector<std::pair<int32_t, const std::vector<Expr>*>> elsewhere;
      for (const Read& read : work_.statement(id).reads) {
        const auto found = copies.find(read.buffer);
        if (found == copies.end() || work_.buffer(read.buffer).kind == BufferKind::Reduction) continue;
        const std::vector<Expr>& at = read.load->indices;
        if (is_own_place(work_.buffer(id), at)) {
          found->second = std::max(found->second, own);
        } else if (std::ranges::none_of(elsewhere, [&](const auto& e) { return e.first == read.buffer && *e.second == at; })) {
          elsewhere.emplace_back(read.buffer, &at);
          found->second += own;
        }
      }
    }
    return text;
  }

  static bool is_own_place(const Buffer& user, const std::vector<Expr>& at) {
    if (at.size() != user.axes.size()) return false;
    for (size_t k = 0; k < at.size(); ++k)
      if (at[k] != user.axes[k].symbol) return false;
    return true;
  }

  std::string names(const Group& group) const {
    std::string out;
    for (const Member& m : group.members) out += (out.empty() ? "" : "+") + work_.buffer(m.buffer).name;
    return out;
  }

  double cost_ns(const Group& group) const {
    double ns = 0;
    for (const Member& m : group.members)
      ns += work_.at(m.buffer).iterations * (kNsPerByte * 8 + kNsPerOp * work_.at(m.buffer).weight);
    return ns;
  }

  bool read_same_input(const Group& a, const Group& b) const {
    for (const Member& m : a.members)
      for (const Read& x : work_.statement(m.buffer).reads)
        for (const Member& n : b.members)
          for (const Read& y : work_.statement(n.buffer).reads)
            if (x.buffer == y.buffer && work_.at(x.buffer).elements * 2 >= work_.at(m.buffer).iterations) return true;
    return false;
  }

  // Groups that don't depend on each other, over equal rows: those that read the same large buffer, and those that are
  // too small to fill the threads.
  void merge_small() {
    constexpr size_t kWindow = 8;       // distance in order; further ones would keep memory alive for long
    std::vector<int32_t> roots;
    for (size_t i = 0; i < nodes_.size(); ++i)
      if (!nodes_[i].merged) roots.push_back(static_cast<int32_t>(i));
    std::ranges::stable_sort(roots, {}, [&](int32_t n) { return at(n).last; });
    for (size_t i = 0; i < roots.size(); ++i) {
      for (size_t j = i + 1; j < std::min(roots.size(), i + 1 + kWindow); ++j) {
        const int32_t a = find(roots[i]), b = roots[j];
        if (a == b || at(b).merged || at(a).is_call() || at(b).is_call()) continue;
        const Group& x = at(a).group;
        const Group& y = at(b).group;
        if (x.alone || y.alone || x.has_reduction != y.has_reduction) continue;
        if (x.members.size() + y.members.size() > kMostMembers || n_nodes(x, y) > kMostNodes) continue;
        const bool small = cost_ns(x) < kWorthThreadsNs && cost_ns(y) < kWorthThreadsNs;
        if (!small && !read_same_input(x, y)) continue;
        if (depends(a, b) || depends(b, a)) continue;
        Merge merge = merge_siblings(work_, x, y);
        if (!merge.group || why_not_worth(*merge.group) != nullptr) continue;
        if (work_.log != nullptr)
          work_.note(fmt::format("join {} and {}: {}", names(x), names(y), small ? "small" : "read the same input"));
        unite(b, a, std::move(*merge.group));
      }
    }
  }

  // Sums over columns go to a kernel that reads the same data by rows, if there is one near.
  void merge_columns() {
    constexpr size_t kWindow = 12;
    std::vector<int32_t> roots;
    for (size_t i = 0; i < nodes_.size(); ++i)
      if (!nodes_[i].merged && !nodes_[i].is_call()) roots.push_back(static_cast<int32_t>(i));
    std::ranges::stable_sort(roots, {}, [&](int32_t n) { return at(n).last; });
    for (size_t i = 0; i < roots.size(); ++i) {
      for (size_t j = i < kWindow ? 0 : i - kWindow; j < std::min(roots.size(), i + kWindow); ++j)
        if (i != j && try_columns(roots[j], roots[i])) break;
    }
  }

  bool try_columns(int32_t rows, int32_t columns) {
    const Group& x = at(rows).group;
    const Group& y = at(columns).group;
    if (x.members.size() >= kMostMembers || !x.has_reduction || !y.has_reduction) return false;
    if (!read_same_input(x, y) && !reads_from(y, x)) return false;
    if (depends(columns, rows) || is_linked_around(rows, columns)) return false;
    const double bytes = shared_bytes(x, y);
    ColumnMerge merge = braze::schedule::merge_columns(work_, x, y);
    if (!merge.rows) return false;
    if (work_.log != nullptr) work_.note(fmt::format("sum columns of {} in {}: saves {:.0f} bytes", names(y), names(x), bytes));
    node_of_.resize(work_.buffers.size(), rows);
    // What the sum read the rows' kernel reads now, and the sum reads that kernel alone.
    for (int32_t from : at(columns).reads)
      if (from = find(from); from != rows && from != columns) link_nodes(from, rows);
    link_nodes(rows, columns);
    ranked_ = false;
    at(rows).group = std::move(*merge.rows);
    at(columns).group = std::move(merge.total);
    return true;
  }

  bool reads_from(const Group& reader, const Group& producer) const {
    for (const Member& m : reader.members)
      for (const Read& read : work_.statement(m.buffer).reads)
        if (producer.find(read.buffer) != nullptr) return true;
    return false;
  }

  double shared_bytes(const Group& a, const Group& b) const {
    double bytes = 0;
    std::vector<int32_t> seen;
    for (const Member& n : b.members)
      for (const Read& y : work_.statement(n.buffer).reads) {
        if (std::ranges::find(seen, y.buffer) != seen.end()) continue;
        seen.push_back(y.buffer);
        const bool shared = a.find(y.buffer) != nullptr || std::ranges::any_of(a.members, [&](const Member& m) {
          return std::ranges::any_of(work_.statement(m.buffer).reads, [&](const Read& x) { return x.buffer == y.buffer; });
        });
        if (shared) bytes += work_.at(y.buffer).elements * static_cast<double>(size_of(work_.buffer(y.buffer).dtype));
      }
    return bytes;
  }

  bool depends(int32_t from, int32_t to) {
    for (int32_t user : at(from).users)
      if (find(user) == to) return true;
    return is_linked_around(from, to);
  }

  // Topological order that follows the buffers' order where it can.
  std::vector<Unit> in_order() {
    std::vector<Unit> out;
    std::vector<int32_t> roots;
    for (size_t i = 0; i < nodes_.size(); ++i)
      if (!nodes_[i].merged) roots.push_back(static_cast<int32_t>(i));
    std::ranges::stable_sort(roots, {}, [&](int32_t n) { return at(n).last; });
    ++now_;
    const auto place = [&](auto&& self, int32_t node) -> void {
      if (stamp_[static_cast<size_t>(node)] == now_) return;
      stamp_[static_cast<size_t>(node)] = now_;
      for (int32_t read : at(node).reads)
        if (read = find(read); read != node) self(self, read);
      out.push_back({at(node).call, std::move(at(node).group)});
    };
    for (int32_t root : roots) place(place, root);
    return out;
  }

  Work& work_;
  std::vector<Node> nodes_;
  std::vector<int32_t> node_of_;        // by buffer
  std::vector<int32_t> node_of_call_;
  std::vector<int32_t> reach_;          // by rank
  std::vector<int32_t> parent_;
  std::vector<uint32_t> stamp_;
  uint32_t now_ = 0;
  bool ranked_ = true;                  // users have greater ranks than what they read
};

}  // namespace

std::vector<Unit> fuse(Work& work) { return Fusion(work).run(); }

}  // namespace braze::schedule
