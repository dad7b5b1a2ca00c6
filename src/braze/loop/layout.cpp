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

// How many loads of images agree with channels last less how many disagree; the channel index must be the buffer's own.
int votes(const LoopProgram& program, const Buffer& buffer, const Scalar* body) {
  int count = 0;
  visit(body, [&](const Scalar& s) {
    if (s.op != ScalarOp::Load) return;
    const Buffer& source = program.buffers[static_cast<size_t>(s.buffer)];
    if (source.sizes.size() != 4 || source.sizes[1] == Expr(1)) return;
    if (s.indices[1] != buffer.axes[1].symbol) return;
    if (source.sizes[2] == Expr(1) && source.sizes[3] == Expr(1)) return;   // one value a channel: any layout serves
    count += is_channels_last(source) ? 1 : -1;
  });
  return count;
}

bool wants_channels_last(const LoopProgram& program, const Buffer& buffer) {
  switch (buffer.kind) {
    case BufferKind::Extern: return is_image_convolution(program.calls[static_cast<size_t>(buffer.call)]);
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
  int changed = 0;
  for (Buffer& buffer : program.buffers) {
    if (pinned[static_cast<size_t>(buffer.id)] || buffer.sizes[1] == Expr(1) || is_channels_last(buffer)) continue;
    if (!wants_channels_last(program, buffer)) continue;
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
