// The numbers of one call: symbols and floats are read from its inputs, and what depends on them is computed.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "braze/capture/tensor_domain.h"
#include "braze/support/small_vector.h"
#include "braze/sym/size_program.h"
#include "braze/trace/number_env.h"

namespace braze::trace {

struct SizeRead {           // symbol == inputs[input].size(dim); dim -1: the input is a Python int, the symbol its value
  sym::Expr symbol;
  int32_t input;
  int32_t dim;
};
// Where an input of the NumberEnv's floats stands among the inputs: a Python float, or a CPU tensor of one element.
struct FloatRead {
  int32_t input;
  bool is_element;
};
struct NumberReads {
  std::vector<SizeRead> symbols;
  std::vector<FloatRead> floats;  // by the number of the float input
};
// The element of a CPU tensor that has one: floating, int64 or bool.
double element_of(const at::Tensor& tensor);

class NumberReader {
 public:
  NumberReader(const NumberEnv& env, NumberReads reads);
  int add(sym::Expr e) { return program_.add(e); }   // its place in Values::integers

  struct Values {
    SmallVector<int64_t, 64> integers;
    SmallVector<double, 16> floats;                  // by FloatId
  };
  // False where an int is out of bounds, or CPython would refuse to compute a float. Tensors and exact ints and floats
  // stand where the reads say.
  bool read(PyObject* const* inputs, Values& values) const;

 private:
  NumberReads reads_;
  sym::SizeProgram program_;
  std::vector<FloatNode> floats_;
  std::vector<int> float_slots_;                     // of Integer nodes
};

// Python numbers that a call needs beside its inputs, as ints and floats; floats for the graph are 0-dim tensors that
// are weak in promotion, as Python numbers are.
struct NumberRequest {
  enum class Kind : uint8_t { Integer, Float, Tensor } kind;
  sym::Expr integer = 0;
  FloatId real = -1;
};
std::shared_ptr<const capture::CallNumbers> make_call_numbers(const NumberEnv& env, NumberReads reads,
                                                              std::vector<NumberRequest> requests);

}  // namespace braze::trace
