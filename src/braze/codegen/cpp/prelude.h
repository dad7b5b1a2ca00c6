// The helper functions of generated text: a table of snippets, printed only as far as a kernel reaches them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "braze/schedule/target.h"

namespace braze::codegen {

// Which targets a snippet is for; all of its bits must hold.
enum PreludeWhen : uint32_t {
  kAlways = 0,
  k512 = 1,        // AVX-512 with 64-byte vectors
  kNot512 = 2,
  kLanes16 = 4,    // 16 lanes
  kLanes8 = 8,
  kFewLanes = 16,  // fewer than 8
  kFma = 32,
  kNoFma = 64,
};

struct Snippet {
  std::string_view names;   // what it defines, separated by spaces
  uint32_t when;
  // C++ text. @L: lanes; @1 @2 @4 @8: bytes of a vector of elements of that size; @iota: "0, 1, ...";
  // @low, @high: the lane numbers of each half; @W: the machine's vector bytes; @shifts, @fold, @transpose:
  // the steps of `prefix`, `fold` and `tile_in`; @odd, @pairs, @backwards, @gathered: lists of lanes.
  std::string_view text;
};

std::span<const Snippet> memory_snippets();
std::span<const Snippet> arithmetic_snippets();
std::span<const Snippet> reduction_snippets();
std::span<const Snippet> math_snippets();
std::span<const Snippet> math64_snippets();
std::span<const Snippet> libm_snippets();

// Type definitions and the helpers that `body` reaches, for vectors of `lanes` lanes.
std::string prelude_for(std::string_view body, const schedule::Target& target, int lanes);

}  // namespace braze::codegen
