#include <fmt/format.h>

#include "braze/schedule/print.h"

namespace braze::schedule {

const char* text_of(Place place) {
  switch (place) {
    case Place::Input: return "input";
    case Place::Output: return "output";
    case Place::Arena: return "arena";
    case Place::Call: return "call";
    case Place::Block: return "block";
    case Place::Constant: return "constant";
    case Place::Alias: return "alias";
  }
  return "";
}

namespace {

std::string list(const Shape& shape) {
  std::string out;
  for (Expr e : shape) out += (out.empty() ? "" : ", ") + sym::to_string(e);
  return "[" + out + "]";
}

std::string print_step(const LaunchStep& step) {
  std::string out = fmt::format("launch k{}(", step.kernel);
  for (size_t i = 0; i < step.params.size(); ++i) {
    const View& view = step.params[i];
    out += fmt::format("{}b{}", i == 0 ? "" : ", ", view.buffer);
    if (view.offset != Expr(0)) out += " + " + sym::to_string(view.offset);
  }
  out += fmt::format(") sizes {} range {}", list(step.sizes), sym::to_string(step.range));
  if (step.parallel) out += fmt::format(" parallel grain {}", sym::to_string(step.grain));
  return out;
}

std::string print_step(const CallStep& step, const Program& program) {
  const auto* node = program.loops ? program.loops->calls[static_cast<size_t>(step.call)].node : nullptr;
  std::string out = fmt::format("call {}(", !step.library.empty() ? step.library : node != nullptr ? node->op->name : "?");
  for (size_t i = 0; i < step.operands.size(); ++i) out += (i == 0 ? "" : ", ") + print(step.operands[i]);
  out += ") -> ";
  for (size_t i = 0; i < step.results.size(); ++i)
    out += (i == 0 ? "" : ", ") + (step.results[i] < 0 ? std::string("none") : fmt::format("b{}", step.results[i]));
  return out + (step.into_planned ? " in place" : "");
}

std::string print_step(const CopyStep& step) { return "copy " + print(step.from) + " -> " + print(step.to); }

}  // namespace

std::string print(const View& view) {
  if (view.buffer < 0) return "none";
  std::string out = fmt::format("b{} {} strides {}", view.buffer, list(view.sizes), list(view.strides));
  if (view.offset != Expr(0)) out += " + " + sym::to_string(view.offset);
  return out;
}

std::string print(const Program& program) {
  std::string out = "program {\n";
  for (size_t i = 0; i < program.buffers.size(); ++i) {
    const BufferPlan& b = program.buffers[i];
    if (b.place == Place::Arena && b.bytes == Expr(0) && b.last_step < 0) continue;   // written into its users
    out += fmt::format("  b{}: {}{} strides {} {}", i, braze::text_of(b.dtype), list(b.sizes), list(b.strides), text_of(b.place));
    if (b.input >= 0) out += fmt::format(" {}", b.input);
    if (b.place == Place::Arena) out += " " + sym::to_string(b.arena_offset);
    if (b.place == Place::Alias) out += fmt::format(" b{}", b.alias_of);
    if (b.last_step >= 0) out += fmt::format(" until {}", b.last_step);
    out += "\n";
  }
  out += "  arena " + sym::to_string(program.arena_bytes) + "\n";
  for (size_t i = 0; i < program.steps.size(); ++i) {
    out += fmt::format("  {}: ", i);
    if (const auto* launch = std::get_if<LaunchStep>(&program.steps[i])) out += print_step(*launch);
    if (const auto* call = std::get_if<CallStep>(&program.steps[i])) out += print_step(*call, program);
    if (const auto* copy = std::get_if<CopyStep>(&program.steps[i])) out += print_step(*copy);
    out += "\n";
  }
  for (const View& view : program.outputs) out += "  return " + print(view) + "\n";
  out += "}\n";
  for (size_t i = 0; i < program.kernels.size(); ++i) out += fmt::format("k{}:\n{}", i, print(program.kernels[i]));
  return out;
}

}  // namespace braze::schedule
