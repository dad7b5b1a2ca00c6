// Native type rules: dtype, sizes, strides and offset of an op's results from its arguments, symbolic, without torch.
// They must give what the real CPU kernel gives; test/python/test_type_rules.py checks each (op x layout x dtype).
#pragma once

#include <vector>

#include "braze/graph/graph.h"
#include "braze/support/result.h"

namespace braze::graph {

struct TypeContext {
  sym::ShapeEnv* env;      // decisions about symbolic sizes become guards here
  DType default_dtype = DType::F32;
};

// What the real kernels' choice of layout depends on beside the arguments. The tracer asks libtorch once; without it, as
// on a machine that has all.
struct KernelFacts {
  bool onednn_bf16 = true, onednn_f16 = true;   // oneDNN computes these element types here
};
KernelFacts& kernel_facts();

// True if the op has a native rule.
bool has_type_rule(const Op* op);
// The result types. Unsupported: this rule does not cover these arguments (the caller tries ATen's meta kernels).
// Errors that eager would raise (shape mismatch) are left to eager: the rule answers Unsupported.
Result<std::vector<TensorType>> infer_types(const Op* op, const std::vector<Argument>& arguments,
                                            const TypeContext& context);

}  // namespace braze::graph
