// Values: where a scalar expression is computed, and under which names.
#include <algorithm>

#include "braze/codegen/cpp/kernel_emitter.h"
#include "braze/codegen/cpp/op_text.h"
#include "braze/support/check.h"

namespace braze::codegen {

using loop::ScalarOp;

const KernelEmitter::Value& KernelEmitter::value(const Scalar* s) {
  for (size_t i = scopes_.size(); i-- > 0;)
    if (auto found = scopes_[i].values.find(s); found != scopes_[i].values.end()) return found->second;
  return keep(s, compute(s));
}

const KernelEmitter::Value& KernelEmitter::keep(const Scalar* s, Value v) {
  const auto at = static_cast<size_t>(v.depth);
  return scopes_[at].values.insert_or_assign(s, std::move(v)).first->second;
}

KernelEmitter::Value KernelEmitter::name_value(Value v, Register r) {
  if (v.fragile) v.depth = std::max(v.depth, stage_depth_);
  if (v.varying) v.depth = std::max(v.depth, vector_->depth);
  const std::string name = fresh("v");
  for (size_t u = 0; u < v.names.size(); ++u) {
    const std::string full = v.names.size() == 1 ? name : name + "_" + std::to_string(u);
    line(v.depth, std::string("const ") + vector_type(r) + " " + full + " = " + v.names[u] + ";");
    v.names[u] = full;
  }
  return v;
}

KernelEmitter::Value KernelEmitter::compute(const Scalar* s) {
  switch (s->op) {
    case ScalarOp::Constant: return {{constant_text(s->dtype, s->real, s->integer)}, 0, false, false};
    case ScalarOp::Index: return index_value(*s);
    case ScalarOp::Load: return load(*s);
    case ScalarOp::Reduced:
      for (size_t i = scopes_.size(); i-- > 0;)
        if (auto found = scopes_[i].reduced.find(s->integer); found != scopes_[i].reduced.end()) return found->second;
      CHECK(false, "accumulator " << s->integer << " is read before its stage");
      return {};
    default: return computed_op(s);
  }
}

KernelEmitter::Value KernelEmitter::computed_op(const Scalar* s) {
  Value result;
  std::vector<const Value*> operands;
  for (const Scalar* operand : s->operands) value(operand);   // first all of them: references must stay valid
  for (const Scalar* operand : s->operands) {
    const Value& v = value(operand);
    result.depth = std::max(result.depth, v.depth);
    result.varying |= v.varying;
    result.fragile |= v.fragile;
    operands.push_back(&v);
  }
  const size_t n = result.varying ? groups() : 1;
  for (size_t u = 0; u < n; ++u) {
    std::vector<std::string> texts;
    for (const Value* v : operands) texts.push_back(v->at(u));
    const std::string live = result.varying ? live_mask(nullptr, u) : "set_i(-1)";
    result.names.push_back(op_text(*s, texts, live.empty() ? "set_i(-1)" : live));
  }
  if (result.names[0].find(", error)") != std::string::npos) uses_error_ = true;
  return name_value(std::move(result), register_of(s->dtype));
}

KernelEmitter::Value KernelEmitter::cast_to(const Value& v, DType from, DType to) {
  if (from == to) return v;
  Value result = v;
  for (std::string& name : result.names) name = cast_text(name, from, to);
  return name_value(std::move(result), register_of(to));
}

KernelEmitter::Value KernelEmitter::index_value(const Scalar& s) {
  Value result;
  const Expr e = s.indices[0];
  result.depth = depth_of(e);
  result.varying = varies(e);
  result.fragile = is_fragile(e);
  const size_t n = result.varying ? groups() : 1;
  for (size_t u = 0; u < n; ++u) result.names.push_back(cast_text(as_vector(index(e, u)), DType::I64, s.dtype));
  return name_value(std::move(result), register_of(s.dtype));
}

// The mask of lanes that count, or "" if all do.
std::string KernelEmitter::live_mask(const Value* mask, size_t u) const {
  const std::string partial = vector_ && !vector_->live.empty() ? "live(" + vector_->live + ")" : "";
  if (mask == nullptr) return partial;
  return partial.empty() ? mask->at(u) : "(" + mask->at(u) + " & " + partial + ")";
}

KernelEmitter::Value KernelEmitter::load(const Scalar& s) {
  const bool masked = !s.operands.empty();
  if (masked) {
    value(s.operands[0]);
    value(s.operands[1]);
  }
  const Value* mask = masked ? &value(s.operands[0]) : nullptr;
  const Value* otherwise = masked ? &value(s.operands[1]) : nullptr;
  const Value mask_copy = masked ? *mask : Value{}, otherwise_copy = masked ? *otherwise : Value{};
  bind(s.bindings, masked ? &mask_copy : nullptr);
  const Address a = address_of(s.buffer, s.indices[0]);
  Value result;
  result.depth = a.depth;
  result.varying = a.kind != Address::Kind::Uniform;
  result.fragile = is_written(s.buffer) || a.fragile;
  if (masked) {
    result.depth = std::max({result.depth, mask_copy.depth, otherwise_copy.depth});
    result.varying |= mask_copy.varying || otherwise_copy.varying;
    result.fragile |= mask_copy.fragile || otherwise_copy.fragile;
  }
  const DType stored = dtype_of(s.buffer);
  const size_t n = result.varying ? groups() : 1;
  for (size_t u = 0; u < n; ++u) {
    std::string text;
    if (!masked) {
      text = load_text(a, s.buffer, stored, u, "");
    } else if (a.kind == Address::Kind::Uniform) {
      // One element, read if any lane wants it.
      const std::string wanted = mask_copy.varying ? "any(" + live_mask(&mask_copy, u) + ")" : mask_copy.at(u) + "[0] != 0";
      const std::string read = load_text(a, s.buffer, stored, u, "");
      text = "(" + wanted + " ? " + cast_text(read, stored, s.dtype) + " : " + otherwise_copy.at(u) + ")";
      if (mask_copy.varying)
        text = std::string("sel_") + suffix_of(register_of(s.dtype)) + "(" + mask_copy.at(u) + ", " + text + ", " +
               otherwise_copy.at(u) + ")";
      result.names.push_back(text);
      continue;
    } else if (!mask_copy.varying && a.kind == Address::Kind::Contiguous) {
      const std::string read = load_text(a, s.buffer, stored, u, "");
      text = "(" + mask_copy.at(u) + "[0] != 0 ? " + cast_text(read, stored, s.dtype) + " : " + otherwise_copy.at(u) + ")";
      result.names.push_back(text);
      continue;
    } else {
      const std::string read = load_text(a, s.buffer, stored, u, live_mask(&mask_copy, u));
      result.names.push_back(std::string("sel_") + suffix_of(register_of(s.dtype)) + "(" + mask_copy.at(u) + ", " +
                             cast_text(read, stored, s.dtype) + ", " + otherwise_copy.at(u) + ")");
      continue;
    }
    result.names.push_back(cast_text(text, stored, s.dtype));
  }
  return name_value(std::move(result), register_of(s.dtype));
}

// Gives each computed index symbol its number, and checks it against its extent. With a mask the check counts where the
// mask is true.
void KernelEmitter::bind(std::span<const loop::Binding> bindings, const Value* mask) {
  for (const loop::Binding& binding : bindings) {
    if (!symbols_.contains(binding.symbol)) {
      const Value v = value(binding.value);
      Symbol info{.text = {}, .depth = v.depth, .vectors = {}, .fragile = v.fragile, .checked = false};
      if (v.varying) {
        info.vectors = v.names;
      } else {
        info.text = fresh("j");
        line(v.depth, "const long " + info.text + " = " + v.names[0] + "[0];");
      }
      declare(binding.symbol, std::move(info));
    }
    Symbol& info = symbols_.at(binding.symbol);
    if (info.checked) continue;
    uses_error_ = true;
    const int at = std::max({info.depth, depth_of(binding.extent), mask != nullptr ? mask->depth : 0});
    const bool varying = !info.vectors.empty() || (mask != nullptr && mask->varying);
    for (size_t u = 0; u < (varying ? groups() : 1); ++u) {
      const std::string extent = "(unsigned long)" + scalar_index(binding.extent);
      std::string bad;
      if (!info.vectors.empty()) {
        const std::string live = live_mask(mask, u);
        bad = "any(mask_d((VK)" + info.vectors[u] + " >= " + extent + ")" + (live.empty() ? "" : " & " + live) + ")";
      } else {
        bad = "(unsigned long)" + info.text + " >= " + extent;
        if (mask != nullptr) bad += mask->varying ? " && any(" + live_mask(mask, u) + ")" : " && " + mask->at(u) + "[0] != 0";
      }
      line(at, "if (" + bad + ") { *error = 1; return; }");
    }
    if (mask == nullptr) info.checked = true;
  }
}

}  // namespace braze::codegen
