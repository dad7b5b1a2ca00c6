// The state of the default CPU generator as operators of a graph, in order with those that draw from it:
// torch.manual_seed(), get_rng_state(), set_rng_state(), fork_rng().
#pragma once

namespace braze::trace {

// Operators braze::get_rng_state() -> Tensor, set_rng_state(Tensor state) -> () and manual_seed(int seed) -> (), and
// natives of these names that capture calls.
void register_random_state();

}  // namespace braze::trace
