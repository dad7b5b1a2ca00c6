// Stages: plain loops, reductions and scans. Tiles stand in kernel_tiles.cpp.
#include <algorithm>
#include <unordered_map>

#include "braze/codegen/cpp/kernel_emitter.h"
#include "braze/codegen/cpp/op_text.h"
#include "braze/support/check.h"

namespace braze::codegen {

using loop::ReduceOp;
using schedule::AxisRole;

namespace {

// A block of the last loop has this many trips of one accumulator at the most: the error of a sum grows with them.
constexpr int64_t kVectorsPerBlock = 128, kRowsPerBlock = 64;

bool has_vector(std::span<const LoopAxis> axes) {
  return std::any_of(axes.begin(), axes.end(), [](const LoopAxis& a) { return a.role == AxisRole::Vector; });
}

bool is_arg(ReduceOp op) { return op == ReduceOp::ArgMax || op == ReduceOp::ArgMin; }

bool is_float_sum(const Accumulator& a) {
  return a.op == ReduceOp::Sum && (a.dtype == DType::F32 || a.dtype == DType::F64);
}

// The type in which an extreme is compared.
DType compared_type(const Accumulator& a) { return a.value->dtype == DType::Bool ? DType::I32 : a.value->dtype; }

std::string assign(const std::string& name, const std::string& text) { return name + " = " + text + ";"; }

}  // namespace

void KernelEmitter::stage(const Stage& s) {
  if (s.accumulators.empty()) {
    if (!tile_stage(s)) plain_stage(s);
  } else if (s.scan) {
    scan_stage(s);
  } else {
    reduce_stage(s);
  }
}

// Of what varies along the vector axis; the rest stands outside of the loop.
int KernelEmitter::weight(const Stage& s) const {
  Expr lane = 0;
  const bool parallel = !kernel_.parallel.empty() && kernel_.parallel.back().role == AxisRole::Vector;
  if (parallel) lane = kernel_.parallel.back().symbol;
  for (const auto* axes : {&s.kept, &s.loops})
    for (const LoopAxis& axis : *axes)
      if (axis.role == AxisRole::Vector) lane = axis.symbol;
  std::unordered_map<const Scalar*, bool> varying;
  int total = 0;
  auto add = [&](const Scalar* root) {
    loop::visit(root, [&](const Scalar& node) {
      if (varying.contains(&node)) return;
      const auto of_value = [&](const Scalar* v) {
        auto found = varying.find(v);
        return found == varying.end() || found->second;
      };
      bool varies = lane == Expr(0) || (parallel && node.op == loop::ScalarOp::Reduced) ||
                    std::any_of(node.operands.begin(), node.operands.end(), of_value);
      for (const Expr& e : node.indices) varies |= sym::depends_on(e, lane);
      for (const loop::Binding& binding : node.bindings) varies |= of_value(binding.value);
      varying.emplace(&node, varies);
      if (varies) total += weight_of(node);
    });
  };
  for (const Accumulator& a : s.accumulators) add(a.value);
  for (const Store& store : s.inner_stores) add(store.value);
  if (s.accumulators.empty())
    for (const Store& store : s.stores) add(store.value);
  return total;
}

KernelEmitter::LoopPlan KernelEmitter::plan_for(const Stage& s) const {
  LoopPlan plan;
  const bool along_lanes = has_vector(s.loops);
  if (along_lanes) {
    const int w = weight(s);
    plan.one_body = w > (s.accumulators.empty() ? kLight : 2 * kHeavy);
    if (!plan.one_body && !s.accumulators.empty() && !s.scan) plan.unroll = w <= 6 ? 4 : 2;
  }
  if (sums_in_blocks(s, plan)) plan.block = along_lanes ? kVectorsPerBlock * lanes_ : kRowsPerBlock;
  return plan;
}

bool KernelEmitter::sums_in_blocks(const Stage& s, const LoopPlan& plan) const {
  if (s.scan || s.loops.empty() || s.loops.back().role == AxisRole::Unrolled) return false;
  if (std::none_of(s.accumulators.begin(), s.accumulators.end(), is_float_sum)) return false;
  int64_t trips = 1;
  for (const LoopAxis& axis : s.loops) {
    const int64_t high = axis.extent.range().high;
    if (high > (int64_t{1} << 30)) return true;
    trips *= std::max<int64_t>(high, 1);
    if (trips > (int64_t{1} << 30)) return true;
  }
  const bool along_lanes = has_vector(s.loops);
  return trips > (along_lanes ? 2 * kVectorsPerBlock * lanes_ * plan.unroll : 4 * kRowsPerBlock);
}

void KernelEmitter::stores(std::span<const Store> list) {
  std::vector<Value> values;
  for (const Store& store : list)
    values.push_back(cast_to(value(store.value), store.value->dtype, dtype_of(store.buffer)));
  for (size_t i = 0; i < list.size(); ++i) {
    bind(list[i].bindings, nullptr);
    store_value(list[i], values[i]);
  }
}

void KernelEmitter::plain_stage(const Stage& s) {
  std::vector<LoopAxis> axes = s.kept;
  axes.insert(axes.end(), s.loops.begin(), s.loops.end());
  loops(axes, plan_for(s), [&] {
    std::vector<Store> all = s.inner_stores;
    all.insert(all.end(), s.stores.begin(), s.stores.end());
    stores(all);
  });
}

// ---- Reductions -----------------------------------------------------------------------------------------------------

void KernelEmitter::reduce_stage(const Stage& s) {
  LoopPlan kept_plan;
  if (has_vector(s.kept)) {
    const int w = weight(s);
    kept_plan.unroll = w <= 8 ? 4 : 1;
    kept_plan.one_body = w > kHeavy;
  }
  loops(s.kept, kept_plan, [&] {
    const bool along_lanes = has_vector(s.loops);
    LoopPlan plan = plan_for(s);
    const size_t n = along_lanes ? static_cast<size_t>(plan.unroll) : groups();
    std::vector<Running> running = begin(s, n, plan.block != 0);
    plan.before_block = [&] {
      for (const Running& r : running)
        if (!r.totals.empty())
          for (const std::string& name : r.names)
            line(depth(), assign(name, neutral_text(r.accumulator->op, r.accumulator->dtype)));
    };
    plan.after_block = [&] {
      for (const Running& r : running) {
        if (r.totals.empty()) continue;
        auto wide = [&](const std::string& sum) {
          return r.accumulator->dtype == DType::F64 ? sum : "__builtin_convertvector(" + sum + ", VD)";
        };
        if (along_lanes) {
          std::string sum = r.names[0];
          for (size_t u = 1; u < r.names.size(); ++u) sum = "(" + sum + " + " + r.names[u] + ")";
          line(depth(), r.totals[0] + " += " + wide(sum) + ";");
        } else {
          for (size_t u = 0; u < r.names.size(); ++u) line(depth(), r.totals[u] + " += " + wide(r.names[u]) + ";");
        }
      }
    };
    loops(s.loops, plan, [&] {
      std::vector<Value> values;
      for (const Store& store : s.inner_stores)
        values.push_back(cast_to(value(store.value), store.value->dtype, dtype_of(store.buffer)));
      accumulate(running, along_lanes);
      for (size_t i = 0; i < s.inner_stores.size(); ++i) {
        bind(s.inner_stores[i].bindings, nullptr);
        store_value(s.inner_stores[i], values[i]);
      }
    });
    finish(running, along_lanes);
    stores(s.stores);
  });
}

std::vector<KernelEmitter::Running> KernelEmitter::begin(const Stage& s, size_t n_groups, bool with_totals) {
  std::vector<Running> result;
  for (const Accumulator& a : s.accumulators) {
    Running r{&a, {}, {}, {}};
    const DType dtype = is_arg(a.op) ? compared_type(a) : a.dtype;
    const std::string name = fresh("a");
    for (size_t u = 0; u < n_groups; ++u) {
      r.names.push_back(name + "_" + std::to_string(u));
      line(depth(), std::string(vector_type(register_of(dtype))) + " " + r.names[u] + " = " + neutral_text(a.op, dtype) + ";");
      if (is_arg(a.op)) {
        r.places.push_back("k" + name + "_" + std::to_string(u));
        line(depth(), "VL " + r.places[u] + " = " + first_index(s, a, u) + ";");
      }
      if (with_totals && is_float_sum(a)) {
        r.totals.push_back("t" + name + "_" + std::to_string(u));
        line(depth(), "VD " + r.totals[u] + "{};");
      }
    }
    result.push_back(std::move(r));
  }
  return result;
}

// The index of each lane's first element: the answer if nothing exceeds the neutral element. A lane that has no element
// has an index behind those of all that have.
std::string KernelEmitter::first_index(const Stage& s, const Accumulator& a, size_t u) {
  std::vector<std::pair<Expr, Expr>> zeros;
  Expr lane = 0;
  for (const LoopAxis& axis : s.loops) {
    zeros.emplace_back(axis.symbol, Expr(0));
    if (axis.role == AxisRole::Vector) lane = sym::coefficient(a.index, axis.symbol).value_or(Expr(1));
  }
  const std::string start = as_vector(index(sym::substitute(a.index, zeros), u));
  if (lane == Expr(0)) return start;
  return "(" + start + " + (iota_l + " + std::to_string(u * static_cast<size_t>(lanes_)) + "l) * " + scalar_index(lane) + ")";
}

// One trip of all accumulators. Along the lanes, dead lanes keep what they have.
void KernelEmitter::accumulate(std::vector<Running>& running, bool along_lanes) {
  std::vector<Value> values;
  for (const Running& r : running) {
    const Accumulator& a = *r.accumulator;
    values.push_back(cast_to(value(a.value), a.value->dtype, is_arg(a.op) ? compared_type(a) : a.dtype));
  }
  const std::string live = along_lanes && !vector_->live.empty() ? "live(" + vector_->live + ")" : "";
  for (size_t i = 0; i < running.size(); ++i) {
    const Accumulator& a = *running[i].accumulator;
    for (size_t u = 0; u < groups(); ++u) {
      const std::string& name = running[i].names[u];
      const std::string& x = values[i].at(u);
      if (!is_arg(a.op)) {
        const std::string next = combine_text(a.op, a.dtype, name, x);
        const char suffix = suffix_of(register_of(a.dtype));
        line(depth(), assign(name, live.empty() ? next : std::string("sel_") + suffix + "(" + live + ", " + next + ", " + name + ")"));
        continue;
      }
      const Register r = register_of(compared_type(a));
      const bool wide = r == Register::Double || r == Register::Long || r == Register::UnsignedLong;
      const char* op = a.op == ReduceOp::ArgMax ? " > " : " < ";
      std::string better = "(" + x + op + name + ")";
      if (r == Register::Float || r == Register::Double)
        better += " | ((" + x + " != " + x + ") & (" + name + " == " + name + "))";
      if (wide) better = "mask_d(" + better + ")";
      const std::string taken = fresh("m");
      line(depth(), "const VI " + taken + " = " + (live.empty() ? better : "(" + better + ") & " + live) + ";");
      line(depth(), assign(name, std::string("sel_") + suffix_of(r) + "(" + taken + ", " + x + ", " + name + ")"));
      line(depth(), assign(running[i].places[u], "sel_l(" + taken + ", " + as_vector(index(a.index, u)) + ", " +
                                                     running[i].places[u] + ")"));
    }
  }
}

// Turns running values into the results that Reduced reads.
void KernelEmitter::finish(std::vector<Running>& running, bool along_lanes) {
  for (Running& r : running) {
    const Accumulator& a = *r.accumulator;
    const DType dtype = is_arg(a.op) ? DType::I64 : a.dtype;
    const Register reg = register_of(dtype);
    Value v;
    v.depth = depth();
    v.varying = !along_lanes && vector_.has_value();
    if (is_arg(a.op)) {
      v.names = r.places;
      const Register compared = register_of(compared_type(a));
      const std::string types = std::string(a.op == ReduceOp::ArgMax ? "<1, " : "<-1, ") + vector_type(compared) + ", " +
                                element_type(compared) + ">(";
      if (along_lanes) {
        for (size_t u = 1; u < r.names.size(); ++u)
          line(depth(), "merge_first" + types + r.names[0] + ", " + r.places[0] + ", " + r.names[u] + ", " + r.places[u] + ");");
        v.names = {"set_l(hfirst" + types + r.names[0] + ", " + r.places[0] + "))"};
      }
    } else if (!r.totals.empty()) {
      v.names = along_lanes ? std::vector<std::string>{r.totals[0]} : r.totals;
      for (std::string& name : v.names) {
        if (along_lanes) name = std::string("set_") + suffix_of(reg) + "((" + element_type(reg) + ")hsum_d(" + name + "))";
        else if (dtype == DType::F32) name = "__builtin_convertvector(" + name + ", VF)";
      }
    } else if (along_lanes) {
      std::vector<std::string> parts = r.names;
      while (parts.size() > 1) {
        std::vector<std::string> next;
        for (size_t u = 0; u + 1 < parts.size(); u += 2) next.push_back(combine_text(a.op, dtype, parts[u], parts[u + 1]));
        parts = std::move(next);
      }
      ReduceOp op = a.op;
      if (reg == Register::Mask) {   // of bools: or, and
        if (op == ReduceOp::Sum || op == ReduceOp::Max) op = ReduceOp::Any;
        if (op == ReduceOp::Prod || op == ReduceOp::Min) op = ReduceOp::All;
      }
      const char* name = op == ReduceOp::Sum   ? "hsum_"
                         : op == ReduceOp::Prod ? "hprod_"
                         : op == ReduceOp::Max  ? "hmax_"
                         : op == ReduceOp::Min  ? "hmin_"
                         : op == ReduceOp::Any  ? "hany_"
                         : op == ReduceOp::All  ? "hall_"
                                                : "hxor_";
      const std::string set = reg == Register::Mask ? "set_i(" : std::string("set_") + suffix_of(reg) + "(";
      v.names = {fit_text(set + name + suffix_of(reg) + "(" + parts[0] + "))", dtype)};
    } else {
      v.names = r.names;
    }
    const std::string result = fresh("r");
    for (size_t u = 0; u < v.names.size(); ++u) {
      const std::string full = v.names.size() == 1 ? result : result + "_" + std::to_string(u);
      line(depth(), std::string("const ") + vector_type(reg) + " " + full + " = " + v.names[u] + ";");
      v.names[u] = full;
    }
    scope().reduced.insert_or_assign(a.number, std::move(v));
  }
}

// ---- Scans ----------------------------------------------------------------------------------------------------------

void KernelEmitter::scan_stage(const Stage& s) {
  CHECK((s.accumulators.size() == 1 && !s.loops.empty()), "a scan has one running value");
  const Accumulator& a = s.accumulators[0];
  const Register reg = register_of(a.dtype);
  const std::string type = vector_type(reg), neutral = neutral_text(a.op, a.dtype);
  std::vector<LoopAxis> outer = s.kept;
  outer.insert(outer.end(), s.loops.begin(), s.loops.end() - 1);
  LoopPlan outer_plan;
  if (has_vector(outer)) outer_plan.one_body = weight(s) > kHeavy;
  loops(outer, outer_plan, [&] {
    const bool along_lanes = has_vector(std::span(s.loops).last(1));
    const std::string carry = fresh("c");
    const size_t n = along_lanes ? 1 : groups();
    std::vector<std::string> carries;
    for (size_t u = 0; u < n; ++u) {
      carries.push_back(n == 1 ? carry : carry + "_" + std::to_string(u));
      line(depth(), type + " " + carries[u] + " = " + neutral + ";");
    }
    // The product of some neighbours may overflow where the running product, which is 0 by then, does not.
    const bool in_order = a.op == ReduceOp::Prod && is_floating(a.dtype);
    LoopPlan plan;
    plan.one_body = along_lanes && weight(s) > kHeavy;
    loops(std::span(s.loops).last(1), plan, [&] {
      const Value x = cast_to(value(a.value), a.value->dtype, a.dtype);
      Value running;
      running.depth = depth();
      running.varying = vector_.has_value();
      for (size_t u = 0; u < groups(); ++u) {
        const std::string name = fresh("s"), before = fresh("s");
        if (along_lanes) {
          const std::string live = vector_->live;
          const std::string in = live.empty() ? x.at(u) : std::string("sel_") + suffix_of(reg) + "(live(" + live + "), " +
                                                              x.at(u) + ", " + neutral + ")";
          if (in_order) {
            line(depth(), "const " + type + " " + name + " = in_order(" + in + ", " + carries[u] +
                              ", [](auto a, auto b) __attribute__((always_inline)) { return " + combine_text(a.op, a.dtype, "a", "b") + "; });");
          } else {
            line(depth(), "const " + type + " " + before + " = prefix(" + in + ", " + neutral + ", [](" + type + " a, " + type +
                              " b) __attribute__((always_inline)) { return (" + type + ")" +
                              combine_text(a.op, a.dtype, "a", "b") + "; });");
            line(depth(), "const " + type + " " + name + " = " + combine_text(a.op, a.dtype, carries[u], before) + ";");
          }
          std::string result = name;
          if (s.exclusive) {
            result = fresh("s");
            std::string lanes = "0";
            for (int i = 0; i + 1 < lanes_; ++i) lanes += ", " + std::to_string(lanes_ + i);
            line(depth(), "const " + type + " " + result + " = __builtin_shufflevector(" + carries[u] + ", " + name + ", " + lanes + ");");
          }
          const std::string set = std::string("set_") + (reg == Register::Mask ? 'i' : suffix_of(reg));
          line(depth(), assign(carries[u], set + "(" + name + "[" + std::to_string(lanes_ - 1) + "])"));
          running.names.push_back(result);
        } else {
          line(depth(), "const " + type + " " + before + " = " + carries[u] + ";");
          line(depth(), "const " + type + " " + name + " = " + combine_text(a.op, a.dtype, before, x.at(u)) + ";");
          line(depth(), assign(carries[u], name));
          running.names.push_back(s.exclusive ? before : name);
        }
      }
      scope().reduced.insert_or_assign(a.number, std::move(running));
      stores(s.inner_stores);
    });
    Value last;
    last.depth = depth();
    last.varying = !along_lanes && vector_.has_value();
    last.names = carries;
    scope().reduced.insert_or_assign(a.number, std::move(last));
    stores(s.stores);
  });
}

}  // namespace braze::codegen
