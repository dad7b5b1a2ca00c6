#include "braze/loop/layout.h"

#include <algorithm>

namespace braze::loop {
namespace {

bool is_image_convolution(const ExternCall& call) {
  return call.node->op->id == graph::OpId::convolution && call.node->result()->type.sizes.size() == 4;
}

Shape channels_last_strides(const Shape& sizes) {
  const Expr channels = sizes[1], width = sizes[3];
  return {channels * width * sizes[2], 1, width * channels, channels};
}

bool is_channels_last(const Buffer& buffer) {
  return buffer.sizes.size() == 4 && buffer.sizes[1] != Expr(1) && buffer.strides == channels_last_strides(buffer.sizes);
}

bool is_whole(const View& view, const Buffer& buffer) {
  return view.offset == Expr(0) && view.sizes == buffer.sizes && view.strides == buffer.strides;
}

// Buffers whose strides somebody relies on.
std::vector<bool> pinned_buffers(const LoopProgram& program) {
  std::vector<bool> pinned(program.buffers.size(), false);
  const auto pin = [&](int32_t buffer) {
    if (buffer >= 0) pinned[static_cast<size_t>(buffer)] = true;
  };
  for (const Buffer& buffer : program.buffers)
    if (buffer.kind == BufferKind::Input || buffer.sizes.size() != 4 || buffer.kind == BufferKind::Scatter) pin(buffer.id);
  for (const OutputRef& output : program.outputs) pin(output.view.buffer);
  for (const LoopProgram::Mutation& mutation : program.mutations) pin(mutation.value.buffer);
  for (const ExternCall& call : program.calls) {
    const bool any_layout = is_image_convolution(call);
    for (const View& view : call.operands)
      if (!any_layout || !is_whole(view, program.buffers[static_cast<size_t>(view.buffer)])) pin(view.buffer);
    if (!any_layout)
      for (int32_t result : call.results) pin(result);
  }
  return pinned;
}

bool is_one_value_a_channel(const Buffer& buffer) { return buffer.sizes[2] == Expr(1) && buffer.sizes[3] == Expr(1); }

bool is_image(const Buffer& buffer) {
  return buffer.sizes.size() == 4 && buffer.sizes[1] != Expr(1) && !is_one_value_a_channel(buffer);   // else any layout serves
}

// Calls visit(source) for each load of an image at the channel of `buffer`.
template <class Visit>
void visit_images(const LoopProgram& program, const Buffer& buffer, const Scalar* body, Visit visit_source) {
  visit(body, [&](const Scalar& s) {
    if (s.op != ScalarOp::Load) return;
    const Buffer& source = program.buffers[static_cast<size_t>(s.buffer)];
    if (is_image(source) && s.indices[1] == buffer.axes[1].symbol) visit_source(source);
  });
}

// For each image, whether what is computed from it is better channels last (> 0) or not (< 0): convolutions are, and images
// whose strides somebody relies on have those. What a training step keeps for its backward pass has eager's layout.
std::vector<int> wishes_of_users(const LoopProgram& program, const std::vector<bool>& pinned) {
  std::vector<int> wishes(program.buffers.size(), 0);
  for (const ExternCall& call : program.calls)
    if (is_image_convolution(call))
      for (const View& view : call.operands) ++wishes[static_cast<size_t>(view.buffer)];
  for (size_t i = program.buffers.size(); i-- > 0;) {
    const Buffer& buffer = program.buffers[i];
    if ((buffer.kind != BufferKind::Pointwise && buffer.kind != BufferKind::Reduction) || !is_image(buffer)) continue;
    const int wish = pinned[i] ? (is_channels_last(buffer) ? 1 : -1) : std::clamp(wishes[i], -1, 1);
    visit_images(program, buffer, buffer.body, [&](const Buffer& source) { wishes[static_cast<size_t>(source.id)] += wish; });
  }
  return wishes;
}

// How many loads of images agree with channels last less how many disagree.
int votes(const LoopProgram& program, const Buffer& buffer, const Scalar* body) {
  int count = 0;
  visit_images(program, buffer, body, [&](const Buffer& source) { count += is_channels_last(source) ? 1 : -1; });
  return count;
}

bool wants_channels_last(const LoopProgram& program, const Buffer& buffer, const std::vector<int>& wishes) {
  switch (buffer.kind) {
    case BufferKind::Extern:
      return is_image_convolution(program.calls[static_cast<size_t>(buffer.call)]) && wishes[static_cast<size_t>(buffer.id)] >= 0;
    case BufferKind::Pointwise: case BufferKind::Reduction: return votes(program, buffer, buffer.body) > 0;
    case BufferKind::Cat: {
      int count = 0;
      for (const Piece& piece : buffer.pieces) count += votes(program, buffer, piece.body);
      return count > 0;
    }
    case BufferKind::Input: case BufferKind::Scan: case BufferKind::Scatter: return false;
  }
  return false;
}

}  // namespace

int choose_layouts(LoopProgram& program) {
  if (std::ranges::none_of(program.calls, is_image_convolution)) return 0;
  const std::vector<bool> pinned = pinned_buffers(program);
  const std::vector<int> wishes = wishes_of_users(program, pinned);
  int changed = 0;
  for (Buffer& buffer : program.buffers) {
    if (pinned[static_cast<size_t>(buffer.id)] || buffer.sizes[1] == Expr(1) || is_channels_last(buffer)) continue;
    if (!wants_channels_last(program, buffer, wishes)) continue;
    const Shape strides = channels_last_strides(buffer.sizes);
    for (ExternCall& call : program.calls)
      for (View& view : call.operands)
        if (view.buffer == buffer.id) view.strides = strides;
    buffer.strides = strides;
    ++changed;
  }
  return changed;
}

}  // namespace braze::loop
