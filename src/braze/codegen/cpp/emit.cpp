// Translation units: helpers once for each lane count, then the kernels.
#include <map>

#include "braze/codegen/codegen.h"
#include "braze/codegen/cpp/kernel_emitter.h"
#include "braze/codegen/cpp/prelude.h"
#include "braze/support/check.h"
#include "braze/support/hash.h"

namespace braze::codegen {

namespace {

// braze_scratch: memory of the calling thread. A system compiler's object gets its address after loading.
constexpr std::string_view kHead = R"(#define F static inline __attribute__((always_inline))
#define SLOW static __attribute__((noinline))
)";
constexpr std::string_view kScratch = R"(#ifdef __clang__
extern "C" void* braze_scratch(long bytes);
#else
extern "C" { __attribute__((visibility("default"))) void* (*braze_scratch)(long bytes) = 0; }
#endif
)";


std::string unit(std::span<const schedule::Kernel* const> kernels, std::span<const std::string> names,
                 const schedule::Target& target, bool notes) {
  CHECK(kernels.size() == names.size());
  CHECK(target.language == schedule::Target::Language::Cpp);
  std::map<int, std::string> by_lanes;
  bool scratch = false;
  for (size_t i = 0; i < kernels.size(); ++i) {
    std::string& text = by_lanes[lanes_of(*kernels[i], target)];
    if (notes && !kernels[i]->note.empty()) {
      std::string note = kernels[i]->note;
      for (char& c : note)
        if (c == '\n' || c == '\\') c = ' ';
      text += "// " + note + "\n";
    }
    text += KernelEmitter(*kernels[i], target).emit(names[i]);
    scratch |= !kernels[i]->scratch.empty();
  }
  std::string result(kHead);
  if (scratch) result += kScratch;
  for (const auto& [lanes, body] : by_lanes)
    result += "namespace lanes" + std::to_string(lanes) + " {\n" + prelude_for(body, target, lanes) + body + "}\n";
  return result;
}

}  // namespace

std::string emit_cpp(std::span<const schedule::Kernel* const> kernels, std::span<const std::string> names,
                     const schedule::Target& target) {
  return unit(kernels, names, target, true);
}

std::string kernel_key(const schedule::Kernel& kernel, const schedule::Target& target) {
  const schedule::Kernel* const one[] = {&kernel};
  const std::string name[] = {"k"};
  return content_hash(unit(one, name, target, false));
}

}  // namespace braze::codegen
