// What the handler knows of each operator: looked up once per operator and process.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <vector>

#include "braze/graph/op.h"
#include "braze/trace/compiler.h"

namespace braze::trace {

// How an argument of a schema is turned into a graph::Argument.
enum class ArgumentKind : uint8_t {
  Tensor, TensorList, OptionalTensorList,
  Int, IntList, Float, FloatList, Bool, BoolList, Scalar, ScalarList, String, StringList,
  DType, Layout, MemoryFormat, Device, Generator,
  Other,            // nothing the graph can hold: the operator is unsupported
};

enum class Treatment : uint8_t {
  Record,           // becomes a node
  Lift,             // lift_fresh: the operand itself
  Item,             // reads one element: the contents of constants, floats as symbolic numbers, else unsupported
  ScalarsInTensor,  // _foreach_addcdiv.Tensor: its scalars are the elements of a tensor
  ReadsData,        // values on the host, or how many results there are, depend on data
  DynamicSizes,     // the sizes of the results depend on data
  DynamicIfMask,    // index: only when an index is a mask
  DynamicIfNone,    // repeat_interleave: only when its last argument is missing
  Mutable,          // functionalization should have removed it
  ComparesSizes,    // is_same_size, _has_same_storage_numel, which derivatives ask of symbolic sizes, too
  Composite,        // decompose by libtorch's composite kernel
};

// Where a result's type comes from when the native rule does not answer.
enum class MetaTier : uint8_t { Unknown, Structured, Cpp, Python, Probe, None };

struct OperatorInfo {
  const graph::Op* op = nullptr;
  Treatment treatment = Treatment::Record;
  MetaTier tier = MetaTier::Unknown;      // decided when first needed
  bool has_rule = false;
  bool has_output_mask = false;           // bool[] output_mask is the last argument
  bool has_train_workspace = false;       // the last result is undefined unless autograd is on
  bool uninitialized = false;             // empty, empty_like, ...: contents unspecified
  bool as_strided = false;                // addresses the operand's storage
  bool is_view = false;                   // each result shares its operand's memory
  bool flips_conjugate = false;           // _conj
  bool flips_negative = false;            // _neg_view
  const c10::KernelFunction* structured = nullptr;
  std::vector<ArgumentKind> arguments;
  int32_t device_argument = -1;
  int32_t dtype_argument = -1;
};

// Thread-safe; the reference stays valid.
OperatorInfo& operator_info(const c10::OperatorHandle& op);

}  // namespace braze::trace
