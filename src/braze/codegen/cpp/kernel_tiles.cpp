// Stages over two axes (i, j) whose stores run along j while some loads run along i: these are read in square tiles along
// i and transposed in registers into a small local array, from which the rows along j take them.
#include <algorithm>

#include "braze/codegen/cpp/kernel_emitter.h"
#include "braze/support/check.h"

namespace braze::codegen {

using loop::ScalarOp;
using schedule::AxisRole;

namespace {

struct Across {          // a load along i
  const Scalar* load;
  Expr rest, stride;     // address: rest + i + stride * j
};

std::vector<Across> loads_across(const Stage& s, Expr i, Expr j) {
  std::vector<Across> result;
  auto look = [&](const Scalar& node) {
    if (node.op != ScalarOp::Load || !node.operands.empty() || !node.bindings.empty()) return;
    const Expr address = node.indices[0];
    const auto along_i = sym::coefficient(address, i), along_j = sym::coefficient(address, j);
    if (!along_i || !along_j || !(*along_i == Expr(1)) || *along_j == Expr(0) || *along_j == Expr(1)) return;
    if (std::any_of(result.begin(), result.end(), [&](const Across& a) { return a.load == &node; })) return;
    const std::pair<Expr, Expr> at_zero[] = {{i, Expr(0)}, {j, Expr(0)}};
    result.push_back({&node, sym::substitute(address, at_zero), *along_j});
  };
  for (const Store& store : s.stores) loop::visit(store.value, look);
  return result;
}

}  // namespace

bool KernelEmitter::tile_stage(const Stage& s) {
  if (s.loops.size() < 2 || !s.kept.empty() || !s.inner_stores.empty() || vector_) return false;
  const LoopAxis &i = s.loops[s.loops.size() - 2], &j = s.loops.back();
  if (i.role != AxisRole::Serial || j.role != AxisRole::Vector || sym::depends_on(j.extent, i.symbol)) return false;
  const std::vector<Across> across = loads_across(s, i.symbol, j.symbol);
  if (across.empty()) return false;
  const std::string lanes = std::to_string(lanes_);
  loops(std::span(s.loops).first(s.loops.size() - 2), {}, [&] {
    const std::string rows = fresh("e"), columns = fresh("e");
    line(depth(), "const long " + rows + " = " + scalar_index(i.extent) + ", " + columns + " = " + scalar_index(j.extent) + ";");
    std::vector<std::string> tiles, sources, strides;
    for (const Across& a : across) {
      const DType dtype = dtype_of(a.load->buffer);
      tiles.push_back(fresh("tile"));
      locals_.push_back("alignas(64) " + std::string(storage_type(dtype)) + " " + tiles.back() + "[" + lanes + " * " + lanes + "];");
      sources.push_back(pointer_to(a.load->buffer, a.rest, is_fragile(a.rest) ? std::max(depth_of(a.rest), stage_depth_) : depth_of(a.rest)));
      strides.push_back(scalar_index(a.stride));
    }
    const std::string x = fresh("x"), n = fresh("n"), block = fresh("b"), m = fresh("n"), row = fresh("r"), y = fresh("x");
    auto at_most = [&](const std::string& left) { return left + " < " + lanes + " ? " + left + " : " + lanes + "l"; };
    open();   // columns j, a vector at a time
    declare(j.symbol, {.text = x, .depth = depth(), .vectors = {}});
    vector_ = {j.symbol, x, depth(), 1, n};
    line(depth(), "const long " + n + " = " + at_most(columns + " - " + x) + ";");
    open();   // rows i, a tile at a time
    line(depth(), "const long " + m + " = " + at_most(rows + " - " + block) + ";");
    for (size_t k = 0; k < across.size(); ++k)
      line(depth(), "tile_in" + std::to_string(size_of(dtype_of(across[k].load->buffer))) + "(" + sources[k] + " + " + block +
                        " + " + x + " * " + strides[k] + ", " + strides[k] + ", " + m + ", " + n + ", " + tiles[k] + ");");
    open();   // the rows of a tile
    line(depth(), "const long " + y + " = " + block + " + " + row + ";");
    declare(i.symbol, {.text = y, .depth = depth(), .vectors = {}});
    for (size_t k = 0; k < across.size(); ++k) {
      const DType dtype = dtype_of(across[k].load->buffer);
      const char* raw = size_of(dtype) == 1 ? "VC" : size_of(dtype) == 2 ? "VS" : size_of(dtype) == 4 ? "VI" : "VL";
      Value v;
      v.names = {cast_text("in_" + text_suffix(dtype) + "(ldu<" + raw + ">(" + tiles[k] + " + " + row + " * " + lanes + "))",
                           dtype, across[k].load->dtype)};
      v.depth = depth();
      v.varying = true;
      keep(across[k].load, name_value(std::move(v), register_of(across[k].load->dtype)));
    }
    stores(s.stores);
    close("for (long " + row + " = 0; " + row + " < " + m + "; " + row + "++)");
    close("for (long " + block + " = 0; " + block + " < " + rows + "; " + block + " += " + lanes + ")");
    vector_.reset();
    close("for (long " + x + " = 0; " + x + " < " + columns + "; " + x + " += " + lanes + ")");
  });
  return true;
}

}  // namespace braze::codegen
