// Arguments of the tensor IR as Python objects, and back.
#pragma once

#include <functional>
#include <string>

#include "braze/capture/ref.h"
#include "braze/graph/graph.h"

namespace braze::module {

// Carries a Python error, or a refusal, out of a conversion.
struct NotConverted {
  std::string why;   // empty: a Python error is set
};

capture::Ref checked(PyObject* made);   // throws NotConverted for nullptr
capture::Ref integer_object(graph::Expr e);   // throws NotConverted for a symbolic size
capture::Ref dtype_object(DType dtype);
capture::Ref device_object(Device device);

struct ToPython {
  std::function<capture::Ref(graph::Value*)> tensor;
  std::function<capture::Ref(graph::Expr)> size;
};
capture::Ref argument_object(const graph::Argument& argument, const ToPython& to);

struct FromPython {
  std::function<graph::Value*(PyObject*)> tensor;            // nullptr: the object is no tensor of the graph
  std::function<bool(PyObject*, graph::Expr&)> size;         // false: it is no size of the graph
};
// What stands for `object` as this argument of an operator. Throws NotConverted.
graph::Argument argument_of(PyObject* object, const graph::OpArgument& declared, const FromPython& from);

}  // namespace braze::module
