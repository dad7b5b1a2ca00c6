// Pooling windows and resampling.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "braze/loop/lowering.h"
#include "braze/support/check.h"

namespace braze::loop {
namespace {

const Value* self_of(const Node& node) { return node.arguments.at(0).as<Value*>(); }
DType result_dtype(const Node& node, size_t k = 0) { return node.result(k)->type.dtype; }

// Over the last axes of an image: two or three.
struct Window {
  std::vector<int64_t> kernel, stride, padding, dilation;
  size_t n_axes() const { return kernel.size(); }
};

// One number for each axis; a single one counts for all.
std::optional<std::vector<int64_t>> per_axis(const Node& node, std::string_view name, size_t n_axes) {
  const auto values = graph::integers(node, name);
  if (!values || (values->size() != 1 && values->size() != n_axes)) return std::nullopt;
  return values->size() == 1 ? std::vector(n_axes, values->front()) : *values;
}

std::optional<Window> window_of(const Node& node, size_t n_axes) {
  const auto kernel = per_axis(node, "kernel_size", n_axes), padding = per_axis(node, "padding", n_axes);
  if (!kernel || !padding) return std::nullopt;
  const auto stride = per_axis(node, "stride", n_axes);
  Window out{*kernel, stride.value_or(*kernel), *padding, std::vector<int64_t>(n_axes, 1)};
  if (node.op->argument_index("dilation") >= 0) {
    const auto dilation = per_axis(node, "dilation", n_axes);
    if (!dilation) return std::nullopt;
    out.dilation = *dilation;
  }
  return out;
}

size_t n_axes_of(const Node& node) { return node.op->name.find("3d") != std::string::npos ? 3 : 2; }

// Element r of the window at `at`; `otherwise` outside of the image.
Term window_element(Lowering& l, const Value* self, const Window& w, const Indices& at, const Indices& r,
                    Term otherwise) {
  Indices place = at;
  Term inside = l.constant_int(DType::Bool, 1);
  for (size_t k = 0; k < w.n_axes(); ++k) {
    const size_t dim = at.size() - w.n_axes() + k;
    place[dim] = at[dim] * Expr(w.stride[k]) - Expr(w.padding[k]) + r[k] * Expr(w.dilation[k]);
    inside = inside & l.less_equal(0, place[dim]) & l.less(place[dim], self->type.sizes[dim]);
  }
  return l.load_masked(self, place, inside, otherwise);
}

void window_reduction(Lowering& l, Buffer& buffer, const Value* self, const Window& w, const Indices& at, ReduceOp op,
                      DType accumulate, double outside) {
  buffer.kind = BufferKind::Reduction;
  buffer.reduce = op;
  buffer.accumulate = accumulate;
  buffer.reduce_axes = l.axes(Shape(w.kernel.begin(), w.kernel.end()), "r");
  const Term otherwise = l.constant(self->type.dtype, outside);
  const Indices r = l.indices_of(buffer.reduce_axes);
  buffer.body = window_element(l, self, w, at, r, otherwise).cast(accumulate).scalar();
}

double lowest(DType dtype) {
  if (is_floating(dtype)) return -std::numeric_limits<double>::infinity();
  if (dtype == DType::U8) return 0;
  return -std::ldexp(1.0, static_cast<int>(size_of(dtype) * 8 - 1));
}

}  // namespace

bool lower_max_pool(Lowering& l, const Node& node, ScalarOp) {
  const Value* self = self_of(node);
  const size_t n_axes = n_axes_of(node);
  const auto w = window_of(node, n_axes);
  const DType dtype = self->type.dtype, inner = compute_type(dtype);
  if (!w || dtype == DType::Bool || self->type.sizes.size() <= n_axes) return false;
  l.define(node, [&](Buffer& buffer, const Indices& at) {
    window_reduction(l, buffer, self, *w, at, ReduceOp::Max, inner, lowest(dtype));
  });
  const Value* indices = node.result(1);
  if (!l.is_used(indices)) return true;
  // The place within the window, then the place within the image (of an all-infinite window its first element).
  const auto arg_max = [&](Buffer& buffer, const Indices& at) {
    window_reduction(l, buffer, self, *w, at, ReduceOp::ArgMax, inner, lowest(dtype));
  };
  const Located within = l.intermediate_buffer(node, DType::I64, indices->type.sizes, arg_max);
  l.pointwise(node, [&](const Indices& at) {
    Term place = l.load(within, at);
    std::vector<Term> part(n_axes, place);
    for (size_t k = n_axes; k-- > 0;) {
      const Term size = place.constant(static_cast<double>(w->kernel[k]));
      part[k] = k == 0 ? place : place.apply(ScalarOp::Fmod, size);
      place = place.apply(ScalarOp::TruncDiv, size);
    }
    Term flat = place.constant(0);
    for (size_t k = 0; k < n_axes; ++k) {
      const size_t dim = at.size() - n_axes + k;
      const Term first = l.index(at[dim] * Expr(w->stride[k]) - Expr(w->padding[k]));
      const Term along = maximum(first + part[k] * static_cast<double>(w->dilation[k]), 0.0);
      flat = flat * l.index(self->type.sizes[dim]) + along;
    }
    return flat;
  }, 1);
  return true;
}

namespace {

// What the sum of a window is divided by: its elements in the image, with or without those in the padding.
std::function<Expr(const Indices&)> window_count(const Node& node, const Window& w, const Shape& image) {
  const bool with_padding = graph::boolean(node, "count_include_pad"), ceil_mode = graph::boolean(node, "ceil_mode");
  const bool padded = std::ranges::any_of(w.padding, [](int64_t n) { return n != 0; });
  const auto given = graph::integer(node, "divisor_override");
  return [=, &image](const Indices& at) {
    Expr count = 1;
    for (const int64_t n : w.kernel) count = count * Expr(n);
    if (given) return Expr(*given);
    if (!ceil_mode && (!padded || with_padding)) return count;
    count = 1;
    for (size_t k = 0; k < w.n_axes(); ++k) {
      const size_t dim = at.size() - w.n_axes() + k;
      const Expr size = image[dim];
      Expr begin = at[dim] * Expr(w.stride[k]) - Expr(w.padding[k]);
      Expr end = sym::min(begin + Expr(w.kernel[k]), size + Expr(w.padding[k]));
      if (!with_padding) {
        begin = sym::max(begin, 0);
        end = sym::min(end, size);
      }
      count = count * (end - begin);
    }
    return count;
  };
}

}  // namespace

bool lower_avg_pool(Lowering& l, const Node& node, ScalarOp) {
  const Value* self = self_of(node);
  const size_t n_axes = n_axes_of(node);
  const auto w = window_of(node, n_axes);
  const DType dtype = result_dtype(node), inner = compute_type(dtype);
  if (!w || !is_floating(dtype) || self->type.sizes.size() <= n_axes) return false;
  if (!l.is_used(node.result())) return true;
  const auto summed = [&](Buffer& buffer, const Indices& at) {
    window_reduction(l, buffer, self, *w, at, ReduceOp::Sum, inner, 0);
  };
  const Located sum = l.intermediate_buffer(node, inner, node.result()->type.sizes, summed);
  const auto count = window_count(node, *w, self->type.sizes);
  l.pointwise(node, [&](const Indices& at) { return l.load(sum, at) / l.index(count(at)).cast(inner); });
  return true;
}

// Each element takes from the windows that it lies in: those that begin at most a kernel's length before it.
bool lower_avg_pool_backward(Lowering& l, const Node& node, ScalarOp) {
  const Value *grad = self_of(node), *self = graph::tensor(node, "self");
  const size_t n_axes = n_axes_of(node);
  const auto w = window_of(node, n_axes);
  const DType dtype = result_dtype(node), inner = compute_type(dtype);
  if (!w || !is_floating(dtype) || self->type.sizes.size() <= n_axes || grad->type.dtype != dtype) return false;
  const auto count = window_count(node, *w, self->type.sizes);
  l.define(node, [&](Buffer& buffer, const Indices& at) {
    buffer.kind = BufferKind::Reduction;
    buffer.reduce = ReduceOp::Sum;
    buffer.accumulate = inner;
    Shape windows;
    for (size_t k = 0; k < n_axes; ++k) windows.push_back((w->kernel[k] + w->stride[k] - 1) / w->stride[k]);
    buffer.reduce_axes = l.axes(windows, "r");
    const Indices r = l.indices_of(buffer.reduce_axes);
    Indices place = at;
    Term inside = l.constant_int(DType::Bool, 1);
    for (size_t k = 0; k < n_axes; ++k) {
      const size_t dim = at.size() - n_axes + k;
      const Expr from = at[dim] + Expr(w->padding[k]);
      place[dim] = floor_div(from, Expr(w->stride[k])) - r[k];
      inside = inside & l.less_equal(0, place[dim]) & l.less(place[dim], grad->type.sizes[dim]) &
               l.less(from - place[dim] * Expr(w->stride[k]), w->kernel[k]);
    }
    const Term each = l.load_masked(grad, place, inside, l.constant(dtype, 0)).cast(inner);
    Expr n = count(place);
    if (!n.is_constant()) n = sym::max(n, 1);   // beyond the last window: 0 / 1
    buffer.body = (each / l.index(n).cast(inner)).scalar();
  });
  return true;
}

// ---- Resampling

namespace {

std::string_view scale_name(size_t axis, size_t n_axes) {
  static constexpr std::string_view kNames[] = {"scales_d", "scales_h", "scales_w"};
  return n_axes == 1 ? "scales" : kNames[axis + 3 - n_axes];
}

// Input elements per output element, in `dtype`: from the scale that the user gave, else from the sizes.
Term source_scale(Lowering& l, const Node& node, size_t axis, size_t n_axes, Expr from, Expr to, DType dtype) {
  const auto given = graph::number(node, scale_name(axis, n_axes));
  if (given && *given > 0) return l.constant(dtype, 1.0 / *given);
  return l.index(from).cast(dtype) / l.index(to).cast(dtype);
}

}  // namespace

namespace {

// floor(i * from / to) as an exact expression, if ATen's f32 arithmetic gives the same for every i.
std::optional<Expr> exact_source(Expr i, Expr from, Expr to, std::optional<double> scale) {
  const auto n = from.maybe_constant(), m = to.maybe_constant();
  if (!n || !m || *m > 1 << 14) return std::nullopt;
  const float step = scale && *scale > 0 ? static_cast<float>(1.0 / *scale)
                                         : static_cast<float>(*n) / static_cast<float>(*m);
  for (int64_t k = 0; k < *m; ++k) {
    const auto source = static_cast<int64_t>(std::floor(static_cast<float>(k) * step));
    if (std::min(source, *n - 1) != k * *n / *m) return std::nullopt;
  }
  const int64_t common = std::gcd(*n, *m);
  return floor_div(i * Expr(*n / common), Expr(*m / common));
}

}  // namespace

// floor(i * scale) in f32, at most the last element.
bool lower_upsample_nearest(Lowering& l, const Node& node, ScalarOp) {
  const Value* self = self_of(node);
  const Shape &from = self->type.sizes, &to = node.result()->type.sizes;
  const size_t n_axes = from.size() - 2;
  const bool exact = node.op->name.starts_with("aten._upsample_nearest_exact");
  l.pointwise(node, [&](const Indices& at) {
    Indices place = at;
    std::vector<Binding> bindings;
    for (size_t axis = 0; axis < n_axes; ++axis) {
      const size_t dim = axis + 2;
      if (from[dim] == to[dim]) continue;
      if (l.is_one(from[dim])) {
        place[dim] = 0;
        continue;
      }
      if (!exact && to[dim] == from[dim] * Expr(2)) {   // a case of its own in ATen
        place[dim] = floor_div(at[dim], Expr(2));
        continue;
      }
      if (!exact) {
        const auto scale = graph::number(node, scale_name(axis, n_axes));
        if (const auto source = exact_source(at[dim], from[dim], to[dim], scale)) {
          place[dim] = *source;
          continue;
        }
      }
      Term i = l.index(at[dim]).cast(DType::F32);
      if (exact) i = i + 0.5;
      const Term scaled = i * source_scale(l, node, axis, n_axes, from[dim], to[dim], DType::F32);
      const Term index = minimum(scaled.apply(ScalarOp::Floor).cast(DType::I64), l.index(from[dim] - 1));
      place[dim] = l.computed_index(index, from[dim], false, bindings);
    }
    return l.load(self, place, bindings);
  });
  return true;
}

namespace {

// The elements between which element i of an enlarged axis lies, and the weight of the second.
struct Neighbours {
  Term low, high, weight;
};

Neighbours neighbours(Lowering& l, const Node& node, size_t axis, size_t n_axes, Expr i, Expr from, Expr to, DType inner) {
  Term source = l.index(i).cast(inner);
  if (graph::boolean(node, "align_corners")) {
    const Term scale = to == Expr(1) ? l.constant(inner, 0) : l.index(from - 1).cast(inner) / l.index(to - 1).cast(inner);
    source = source * scale;
  } else {
    source = maximum(source_scale(l, node, axis, n_axes, from, to, inner) * (source + 0.5) - 0.5, 0.0);
  }
  const Term last = l.index(from - 1);
  const Term low = minimum(source.cast(DType::I64), last);
  return {low, minimum(low + 1.0, last), minimum(maximum(source - low.cast(inner), 0.0), 1.0)};
}

}  // namespace

// Linear in one to three axes: along each, two neighbours and their weights.
bool lower_upsample_linear(Lowering& l, const Node& node, ScalarOp) {
  const Value* self = self_of(node);
  const Shape &from = self->type.sizes, &to = node.result()->type.sizes;
  const DType dtype = result_dtype(node), inner = compute_type(dtype);
  if (!is_floating(dtype) || from.size() < 3) return false;
  const size_t n_axes = from.size() - 2;
  struct Along {
    Expr low, high;
    Term low_weight, high_weight;
  };
  const auto along = [&](size_t axis, const Indices& at, std::vector<Binding>& bindings) -> Along {
    const size_t dim = axis + 2;
    const Term one = l.constant(inner, 1);
    if (from[dim] == to[dim]) return {at[dim], at[dim], one, l.constant(inner, 0)};
    const Neighbours n = neighbours(l, node, axis, n_axes, at[dim], from[dim], to[dim], inner);
    const auto index = [&](Term value) {
      return l.is_one(from[dim]) ? Expr(0) : l.computed_index(value, from[dim], false, bindings);
    };
    return {index(n.low), index(n.high), one - n.weight, n.weight};
  };
  // Between the axes [axis, end), with what stands before and behind them as in `place`.
  using Load = std::function<Term(const Indices& place, const std::vector<Binding>& bindings)>;
  const auto interpolate = [&](size_t axis, size_t end, const Indices& at, const Load& load) {
    std::vector<Binding> bindings;
    std::vector<Along> axes;
    for (size_t k = axis; k < end; ++k) axes.push_back(along(k, at, bindings));
    const std::function<Term(size_t, Indices)> blend = [&](size_t k, Indices place) -> Term {
      if (k == end) {   // with the bindings of this place alone
        std::vector<Binding> own = bindings;
        std::erase_if(own, [&](const Binding& b) {
          return std::ranges::none_of(place, [&](Expr e) { return sym::depends_on(e, b.symbol); });
        });
        return load(place, own);
      }
      const Along& a = axes[k - axis];
      place[k + 2] = a.low;
      const Term low = blend(k + 1, place);
      if (from[k + 2] == to[k + 2]) return low;
      place[k + 2] = a.high;
      return a.low_weight * low + a.high_weight * blend(k + 1, place);
    };
    return blend(axis, at);
  };
  const Load load_self = [&](const Indices& place, const std::vector<Binding>& bindings) {
    return l.load(self, place, bindings).cast(inner);
  };
  // Whole rows first, then within the row: half the loads of one, or a quarter, are at computed places.
  const size_t last = n_axes - 1;
  const bool rows_change = !std::equal(from.begin() + 2, from.end() - 1, to.begin() + 2);
  if (!rows_change || from.back() == to.back()) {
    l.pointwise(node, [&](const Indices& at) { return interpolate(0, n_axes, at, load_self); });
    return true;
  }
  Shape sizes = to;
  sizes.back() = from.back();
  const Located rows = l.intermediate(node, inner, sizes, [&](const Indices& at) { return interpolate(0, last, at, load_self); });
  l.pointwise(node, [&](const Indices& at) {
    return interpolate(last, n_axes, at, [&](const Indices& place, const std::vector<Binding>& bindings) {
      return l.load(rows, place, bindings);
    });
  });
  return true;
}

// The gradient of that, an axis after the other, whole rows first: each element takes from the enlarged ones that lie
// within one element of it. They are a window of fixed length; those beyond have no weight.
bool lower_upsample_linear_backward(Lowering& l, const Node& node, ScalarOp) {
  const Value* grad = self_of(node);
  const Shape &small = node.result()->type.sizes, &large = grad->type.sizes;
  const DType dtype = result_dtype(node);
  if ((dtype != DType::F32 && dtype != DType::F64) || grad->type.dtype != dtype || small.size() < 3) return false;
  const size_t n_axes = small.size() - 2;
  const bool align = graph::boolean(node, "align_corners");
  constexpr int64_t kMostTaps = 64;
  struct Step {
    size_t dim;
    int64_t from, to, taps;
  };
  std::vector<Step> steps;
  for (size_t axis = 0; axis < n_axes; ++axis) {
    const size_t dim = axis + 2;
    const auto from = small[dim].maybe_constant(), to = large[dim].maybe_constant();
    if (!from || !to || *from < 1 || *to < 1) return false;
    if (*from == *to) continue;
    // Another scale than the sizes' moves the windows.
    if (const auto scale = graph::number(node, scale_name(axis, n_axes)); !align && scale && *scale > 0)
      if (*scale * static_cast<double>(*from) != static_cast<double>(*to)) return false;
    const int64_t above = align ? *to - 1 : *to, below = align ? *from - 1 : *from;
    const int64_t taps = below == 0 ? *to : (2 * above + below - 1) / below + 2;
    if (taps > kMostTaps) return false;
    steps.push_back({dim, *from, *to, taps});
  }
  if (steps.empty()) return false;
  Located current = l.located(grad);
  Shape sizes = large;
  for (size_t n = 0; n < steps.size(); ++n) {
    const Step& step = steps[n];
    sizes[step.dim] = step.from;
    const auto fill = [&](Buffer& buffer, const Indices& at) {
      buffer.kind = BufferKind::Reduction;
      buffer.reduce = ReduceOp::Sum;
      buffer.accumulate = dtype;
      buffer.reduce_axes = l.axes({Expr(step.taps)}, "r");
      const Expr x = at[step.dim], from = step.from, to = step.to;
      // The last element of the enlarged axis that is not within one element of x.
      const Expr before = !align           ? floor_div(x * (to * 2) - to - from, from * 2)
                          : step.from == 1 ? Expr(0)
                                           : floor_div((x - 1) * (to - 1), from - 1);
      const Expr place = before + l.indices_of(buffer.reduce_axes)[0];
      const Neighbours between = neighbours(l, node, step.dim - 2, n_axes, place, from, to, dtype);
      const Term here = l.index(x), none = l.constant(dtype, 0);
      const Term weight = where(between.low == here, 1.0 - between.weight, none) + where(between.high == here, between.weight, none);
      Indices index = at;
      index[step.dim] = place;
      const Term inside = l.less_equal(0, place) & l.less(place, to);
      buffer.body = (l.load_masked(current, index, inside, none) * weight).scalar();
    };
    if (n + 1 == steps.size()) l.define(node, fill);
    else current = l.intermediate_buffer(node, dtype, sizes, fill);
  }
  return true;
}

// Columns of windows: element (c, i, j) of window number `at.back()`.
bool lower_im2col(Lowering& l, const Node& node, ScalarOp) {
  const Value* self = self_of(node);
  const Shape& sizes = self->type.sizes;
  const auto w = window_of(node, 2);
  if (!w || sizes.size() < 3) return false;
  const size_t rank = sizes.size();
  const Expr across = floor_div(sizes[rank - 1] + Expr(2 * w->padding[1] - w->dilation[1] * (w->kernel[1] - 1) - 1),
                                Expr(w->stride[1])) + 1;
  const DType dtype = result_dtype(node);
  l.pointwise(node, [&](const Indices& at) {
    const Expr row = at[at.size() - 2], window = at.back();
    const Expr rows(w->kernel[0]), columns(w->kernel[1]);
    Indices place(at.begin(), at.end() - 2);
    place.push_back(floor_div(row, rows * columns));
    place.push_back(floor_div(window, across));
    place.push_back(mod(window, across));
    const Indices r{mod(floor_div(row, columns), rows), mod(row, columns)};
    return window_element(l, self, *w, place, r, l.constant(dtype, 0));
  });
  return true;
}

}  // namespace braze::loop
