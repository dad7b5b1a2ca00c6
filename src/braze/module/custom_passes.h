// Graph passes of the user's: Python callables that get the graph as an object (docs/custom_passes.md).
#pragma once

#include <Python.h>

#include <array>
#include <memory>

#include "braze/capture/ref.h"
#include "braze/graph/graph.h"
#include "braze/support/result.h"

namespace braze::module {

// In the order in which they run; named as torch.compile's.
enum class CustomPass : uint8_t { JointPre, JointPost, PostGradPre, PostGradPost };
constexpr std::array<const char*, 4> kCustomPassNames = {"joint_custom_pre_pass", "joint_custom_post_pass",
                                                         "post_grad_custom_pre_pass", "post_grad_custom_post_pass"};

class CustomPasses {
 public:
  // `callables`: by CustomPass, borrowed; nullptr and None: no such pass. Needs the GIL. Empty if there are none.
  static std::shared_ptr<const CustomPasses> make(const std::array<PyObject*, 4>& callables);

  // Unsupported where the pass raises or leaves a graph that is not well formed, or whose results are of other types.
  // Takes the GIL.
  Status run(CustomPass which, graph::Graph& graph) const;

 private:
  std::array<capture::Ref, 4> callables_;
};

// Creates the classes Graph, Node and Value in the extension module.
void add_graph_objects(PyObject* module);

}  // namespace braze::module
