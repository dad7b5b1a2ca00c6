// SizeProgram: the host's evaluation of many expressions per call, as one flat list of instructions.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "braze/sym/expr.h"

namespace braze::sym {

class SizeProgram {
 public:
  // Inputs are the symbols in the order in which run() gets their values. Returns the result slot of each add().
  explicit SizeProgram(std::span<const Expr> inputs);
  int add(Expr e);                       // equal expressions share a slot
  // `values` has at least slots() entries; the first n_inputs() hold the symbols' values on entry.
  void run(int64_t* values) const;
  int slots() const { return next_slot_; }
  size_t n_inputs() const { return n_inputs_; }

 private:
  struct Insn { Op op; int32_t dst, a, b; int64_t constant; };
  int slot_of(Expr e);
  size_t n_inputs_;
  int next_slot_ = 0;
  std::vector<Insn> code_;
  std::unordered_map<Expr, int> known_;
};

}  // namespace braze::sym
