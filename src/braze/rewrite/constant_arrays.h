// Building blocks of constants.cpp, constants_pointwise.cpp and constants_views.cpp.
#pragma once

#include "braze/rewrite/constants.h"

namespace braze::rewrite {

inline bool is_integer_kind(DType dtype) { return is_integral(dtype, true); }
inline Constant::Number integer_number(int64_t value) { return {.integer = value}; }
inline Constant::Number real_number(double value) { return {.real = value}; }

// All places hold `number`.
Constant uniform(const graph::Value* value, Constant::Number number);

// Extents of the dimensions in which `varies` holds, 1 elsewhere; nullopt if one is symbolic or they are too many.
std::optional<std::vector<int64_t>> distinct_extents(const graph::Shape& sizes, const std::vector<bool>& varies,
                                                     size_t limit);

// An array over `extents` whose dimensions of extent 1 are broadcast to `sizes`.
Constant dense(DType dtype, graph::Shape sizes, const std::vector<int64_t>& extents,
               std::vector<Constant::Number> data);

// Calls f(index) for each index below `extents`, in row-major order; false as soon as f is.
template <class F>
bool for_each_index(const std::vector<int64_t>& extents, F&& f) {
  std::vector<int64_t> index(extents.size(), 0);
  for (int64_t extent : extents)
    if (extent == 0) return true;
  while (true) {
    if (!f(index)) return false;
    size_t d = extents.size();
    while (d > 0 && ++index[d - 1] == extents[d - 1]) index[--d] = 0;
    if (d == 0) return true;
  }
}

}  // namespace braze::rewrite
