// Addresses, loads and stores.
#include <algorithm>

#include "braze/codegen/cpp/kernel_emitter.h"
#include "braze/codegen/cpp/op_text.h"
#include "braze/support/check.h"

namespace braze::codegen {

namespace {

// Helpers that move raw vectors are named by element size; the vector types of their integers.
std::string size_suffix(DType dtype) { return std::to_string(size_of(dtype)); }

const char* raw_type(DType dtype) {
  switch (size_of(dtype)) {
    case 1: return "VC";
    case 2: return "VS";
    case 4: return "VI";
    default: return "VL";
  }
}

std::string in(DType dtype, const std::string& raw) { return "in_" + text_suffix(dtype) + "(" + raw + ")"; }
std::string out(DType dtype, const std::string& v) { return "out_" + text_suffix(dtype) + "(" + v + ")"; }

}  // namespace

DType KernelEmitter::dtype_of(int32_t buffer) const {
  return buffer >= 0 ? kernel_.params[static_cast<size_t>(buffer)].dtype
                     : kernel_.scratch[static_cast<size_t>(-1 - buffer)].dtype;
}

std::string KernelEmitter::base_of(int32_t buffer) const {
  return buffer >= 0 ? "p" + std::to_string(buffer) : "t" + std::to_string(-1 - buffer);
}

bool KernelEmitter::is_written(int32_t buffer) const {
  return buffer < 0 || kernel_.params[static_cast<size_t>(buffer)].written;
}

// ---- Index expressions ----------------------------------------------------------------------------------------------

const KernelEmitter::Symbol& KernelEmitter::symbol(Expr e) const {
  auto found = symbols_.find(e);
  CHECK(found != symbols_.end(), "index symbol " << e << " is not known here");
  return found->second;
}

int KernelEmitter::depth_of(Expr e) const {
  std::vector<Expr> used;
  sym::collect_symbols(e, used);
  int result = 0;
  for (const Expr& each : used) result = std::max(result, symbol(each).depth);
  return result;
}

bool KernelEmitter::varies(Expr e) const {
  std::vector<Expr> used;
  sym::collect_symbols(e, used);
  return std::any_of(used.begin(), used.end(), [&](const Expr& each) {
    return (vector_ && each == vector_->symbol) || !symbol(each).vectors.empty();
  });
}

bool KernelEmitter::is_fragile(Expr e) const {
  std::vector<Expr> used;
  sym::collect_symbols(e, used);
  return std::any_of(used.begin(), used.end(), [&](const Expr& each) { return symbol(each).fragile; });
}

IndexText KernelEmitter::index(Expr e, size_t u) {
  return index_text(e, [&](Expr each) -> IndexText {
    const Symbol& info = symbol(each);
    if (!info.vectors.empty()) return {info.vectors[u], true};
    if (!vector_ || !(each == vector_->symbol)) return {info.text, false};
    const std::string offset = u == 0 ? "" : " + " + std::to_string(u * static_cast<size_t>(lanes_));
    return {"(" + info.text + offset + " + iota_l)", true};
  });
}

// A named pointer to element `e` of the buffer, in scope `at`.
std::string KernelEmitter::pointer_to(int32_t buffer, Expr e, int at) {
  if (e.is_constant() && e.constant() == 0) return base_of(buffer);
  auto& known = scopes_[static_cast<size_t>(at)].pointers[{buffer, e.hash()}];
  for (const auto& [expression, name] : known)
    if (expression == e) return name;
  const std::string name = fresh("q");
  const bool written = is_written(buffer);
  line(at, std::string(written ? "" : "const ") + storage_type(dtype_of(buffer)) + "* const " + name + " = " +
               base_of(buffer) + " + " + scalar_index(e) + ";");
  known.emplace_back(e, name);
  return name;
}

KernelEmitter::Address KernelEmitter::address_of(int32_t buffer, Expr e) {
  Address a;
  a.expression = e;
  a.buffer = buffer;
  a.depth = depth_of(e);
  a.fragile = is_fragile(e);
  if (buffer < 0 && scratch_lanes_ != 0) {
    a.kind = varies(e) ? Address::Kind::Anywhere : Address::Kind::Lanes;
    a.depth = std::max(a.depth, vector_->depth);
    if (a.kind == Address::Kind::Lanes)
      a.pointer = base_of(buffer) + " + " + scalar_index(e) + " * " + std::to_string(scratch_lanes_);
    return a;
  }
  if (!varies(e)) {
    a.pointer = base_of(buffer) + "[" + scalar_index(e) + "]";
    return a;
  }
  a.kind = Address::Kind::Anywhere;
  a.depth = std::max(a.depth, vector_->depth);
  const auto coefficient = sym::coefficient(e, vector_->symbol);
  if (!coefficient) return a;
  const std::pair<Expr, Expr> at_zero[] = {{vector_->symbol, Expr(0)}};
  const Expr rest = sym::substitute(e, at_zero);
  if (varies(rest) || varies(*coefficient)) return a;
  const bool fragile_rest = is_fragile(rest);
  a.pointer = pointer_to(buffer, rest, std::max(depth_of(rest), fragile_rest ? stage_depth_ : 0));
  if (coefficient->is_constant() && coefficient->constant() == 1) {
    a.kind = Address::Kind::Contiguous;
  } else {
    a.kind = Address::Kind::Strided;
    a.stride = scalar_index(*coefficient);
    a.step = coefficient->maybe_constant().value_or(0);
  }
  return a;
}

std::string KernelEmitter::lane_addresses(const Address& a, size_t u) {
  if (a.kind == Address::Kind::Strided) return "iota_l * " + a.stride;
  const std::string addresses = as_vector(index(a.expression, u));
  if (a.buffer >= 0 || scratch_lanes_ == 0) return addresses;
  return "(" + addresses + " * " + std::to_string(scratch_lanes_) + "l + (iota_l + " +
         std::to_string(u * static_cast<size_t>(lanes_)) + "l))";
}

// Elements from `pointer` to vector u.
std::string KernelEmitter::lane_offset(const Address& a, size_t u) const {
  const std::string first = std::to_string(u * static_cast<size_t>(lanes_));
  return a.kind == Address::Kind::Lanes || !vector_ ? first : vector_->variable + " + " + first;
}

// ---- Loads ----------------------------------------------------------------------------------------------------------

// One element in all lanes.
std::string KernelEmitter::element_text(const std::string& place, DType dtype) const {
  switch (dtype) {
    case DType::Bool: return "set_i(-(" + place + " != 0))";
    case DType::BF16: return "(VF)(set_u((unsigned)" + place + ") << 16)";
    case DType::F16: return "in_f16(VS{} + (short)" + place + ")";
    default: return std::string("set_") + suffix_of(register_of(dtype)) + "(" + place + ")";
  }
}

// Vector u in register form. mask: lanes that are read, "" for all live ones.
std::string KernelEmitter::load_text(const Address& a, int32_t buffer, DType dtype, size_t u, const std::string& mask) {
  const std::string size = size_suffix(dtype), raw = raw_type(dtype);
  const std::string live = vector_ ? vector_->live : "";
  const std::string n = live.empty() ? std::to_string(lanes_) + "l" : live;
  const std::string lane = lane_offset(a, u);
  switch (a.kind) {
    case Address::Kind::Lanes: return in(dtype, "ldu<" + raw + ">(" + a.pointer + " + " + lane + ")");
    case Address::Kind::Uniform: return element_text(a.pointer, dtype);
    case Address::Kind::Contiguous: {
      const std::string place = a.pointer + " + " + lane;
      if (!mask.empty()) return in(dtype, "ldm" + size + "(" + place + ", " + mask + ")");
      if (live.empty()) return in(dtype, "ldu<" + raw + ">(" + place + ")");
      return in(dtype, "ldn" + size + "(" + place + ", " + live + ")");
    }
    case Address::Kind::Strided: case Address::Kind::Anywhere: {
      const bool strided = a.kind == Address::Kind::Strided;
      const std::string place = strided ? a.pointer + " + (" + lane + ") * " + a.stride : base_of(buffer);
      if (mask.empty() && a.step == 2)
        return in(dtype, live.empty() ? "even" + size + "(" + place + ")" : "evenn" + size + "(" + place + ", " + live + ")");
      if (mask.empty() && a.step == -1 && live.empty()) return in(dtype, "back" + size + "(" + place + ")");
      const std::string addresses = lane_addresses(a, u);
      // Scratch may be read a vector beyond its end: lanes that lie together come from one load.
      if (mask.empty() && !strided && buffer < 0 && scratch_lanes_ == 0 && size == "4" && lanes_ == 16)
        return in(dtype, "gather_near4(" + place + ", " + addresses + ", " + n + ")");
      if (!mask.empty()) return in(dtype, "gatherm" + size + "(" + place + ", " + addresses + ", " + mask + ")");
      return in(dtype, "gather" + size + "(" + place + ", " + addresses + ", " + n + ")");
    }
  }
  return {};
}

// ---- Stores ---------------------------------------------------------------------------------------------------------

// Lane `lane` of a value in register form, as it is stored.
std::string KernelEmitter::stored_element(const std::string& v, DType dtype, const std::string& lane) const {
  switch (dtype) {
    case DType::Bool: return "(unsigned char)(" + v + "[" + lane + "] & 1)";
    case DType::BF16: case DType::F16: return "(unsigned short)" + out(dtype, v) + "[" + lane + "]";
    default: return std::string("(") + storage_type(dtype) + ")" + v + "[" + lane + "]";
  }
}

void KernelEmitter::store_value(const Store& store, const Value& v) {
  const Address a = address_of(store.buffer, store.address);
  if (store.combine != Store::Combine::Overwrite) {
    combine_in_place(store, a, v);
    return;
  }
  const DType dtype = dtype_of(store.buffer);
  const std::string size = size_suffix(dtype), raw = raw_type(dtype);
  if (a.kind == Address::Kind::Uniform) {
    // The last of several lanes, as if they came one after the other.
    const std::string live = v.varying ? vector_->live : "";
    const std::string last = !v.varying ? "0" : live.empty() ? std::to_string(lanes_ - 1) : live + " - 1";
    line(depth(), a.pointer + " = " + stored_element(v.at(groups() - 1), dtype, last) + ";");
    return;
  }
  const std::string live = vector_->live, n = live.empty() ? std::to_string(lanes_) + "l" : live;
  for (size_t u = 0; u < groups(); ++u) {
    const std::string lane = lane_offset(a, u);
    const std::string stored = out(dtype, v.at(u));
    if (a.kind == Address::Kind::Lanes) {
      line(depth(), "stu<" + raw + ">(" + a.pointer + " + " + lane + ", " + stored + ");");
      continue;
    }
    if (a.kind == Address::Kind::Contiguous) {
      const std::string place = a.pointer + " + " + lane;
      if (!live.empty()) {
        line(depth(), "stn" + size + "(" + place + ", " + stored + ", " + live + ");");
      } else if (store.non_temporal) {
        streams_ = true;
        line(depth(), "stu_streaming<" + raw + ">(" + place + ", " + stored + ");");
      } else {
        line(depth(), "stu<" + raw + ">(" + place + ", " + stored + ");");
      }
      continue;
    }
    const bool strided = a.kind == Address::Kind::Strided;
    const std::string place = strided ? a.pointer + " + (" + lane + ") * " + a.stride : base_of(store.buffer);
    line(depth(), "scatter" + size + "(" + place + ", " + lane_addresses(a, u) + ", " + stored + ", " + n + ");");
  }
}

namespace {

loop::ReduceOp reduce_op(Store::Combine combine) {
  switch (combine) {
    case Store::Combine::Overwrite: break;
    case Store::Combine::Add: return loop::ReduceOp::Sum;
    case Store::Combine::Max: return loop::ReduceOp::Max;
    case Store::Combine::Min: return loop::ReduceOp::Min;
    case Store::Combine::Mul: return loop::ReduceOp::Prod;
  }
  CHECK(false, "a plain store combines nothing");
  return loop::ReduceOp::Sum;
}

}  // namespace

void KernelEmitter::combine_in_place(const Store& store, const Address& a, const Value& v) {
  const DType dtype = dtype_of(store.buffer);
  const loop::ReduceOp op = reduce_op(store.combine);
  if (a.kind == Address::Kind::Uniform && !vector_) {
    const std::string sum = fresh("v");
    line(depth(), std::string("const ") + vector_type(register_of(dtype)) + " " + sum + " = " +
                      combine_text(op, dtype, element_text(a.pointer, dtype), v.names[0]) + ";");
    line(depth(), a.pointer + " = " + stored_element(sum, dtype, "0") + ";");
    return;
  }
  CHECK((a.kind != Address::Kind::Lanes), "scratch is written whole");
  if (a.kind != Address::Kind::Contiguous) {
    scatter_combine(store, a, v);
    return;
  }
  for (size_t u = 0; u < groups(); ++u) {
    const std::string place = a.pointer + " + " + vector_->variable + " + " + std::to_string(u * static_cast<size_t>(lanes_));
    const std::string sum = combine_text(op, dtype, load_text(a, store.buffer, dtype, u, ""), v.at(u));
    if (vector_->live.empty())
      line(depth(), std::string("stu<") + raw_type(dtype) + ">(" + place + ", " + out(dtype, sum) + ");");
    else
      line(depth(), "stn" + size_suffix(dtype) + "(" + place + ", " + out(dtype, sum) + ", " + vector_->live + ");");
  }
}

// Lanes may meet in one place: one after the other, in order.
void KernelEmitter::scatter_combine(const Store& store, const Address& a, const Value& v) {
  const DType dtype = dtype_of(store.buffer);
  const std::string n = vector_->live.empty() ? std::to_string(lanes_) + "l" : vector_->live;
  const char* type = vector_type(register_of(dtype));
  for (size_t u = 0; u < groups(); ++u) {
    const std::string lane = vector_->variable + " + " + std::to_string(u * static_cast<size_t>(lanes_));
    std::string addresses = "VL{}", pointer = "&" + a.pointer;
    if (a.kind != Address::Kind::Uniform) {
      addresses = lane_addresses(a, u);
      pointer = a.kind == Address::Kind::Strided ? a.pointer + " + (" + lane + ") * " + a.stride : base_of(store.buffer);
    }
    const std::string place = fresh("a"), l = fresh("l");
    line(depth(), "const VL " + place + " = " + addresses + ";");
    const std::string element = "(" + pointer + ")[" + place + "[" + l + "]]";
    const std::string added = std::string("(") + type + "{} + " + v.at(u) + "[" + l + "])";
    line(depth(), "for (long " + l + " = 0; " + l + " < " + n + "; " + l + "++) { const " + type + " w = " +
                      combine_text(reduce_op(store.combine), dtype, element_text(element, dtype), added) + "; " + element +
                      " = " + stored_element("w", dtype, "0") + "; }");
  }
}

}  // namespace braze::codegen
