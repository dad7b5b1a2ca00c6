// The tracer and its tables of torch's natives are set up at the first compilation, so that importing braze is cheap.
#pragma once

namespace braze::module {

bool start_tracer();   // needs the GIL; false with a Python error set

}  // namespace braze::module
