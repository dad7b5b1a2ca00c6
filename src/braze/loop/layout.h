// Memory layout of intermediate images. Convolutions are computed on channels-last data; where a convolution's result
// and what is computed from it element by element need not have eager's layout, they get channels-last strides, and
// transpositions between layers vanish. Inputs, outputs and operands of other calls keep their strides.
#pragma once

#include "braze/loop/loop_ir.h"

namespace braze::loop {

// Returns the number of buffers whose strides changed.
int choose_layouts(LoopProgram& program);

}  // namespace braze::loop
