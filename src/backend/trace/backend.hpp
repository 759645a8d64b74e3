// The trace backend: records what would run, for tests of graphs and plans without hardware. It computes nothing: values
// read back are what was uploaded, or zeros.
#pragma once

#include <memory>

#include "backend/contract.hpp"

namespace weft::trace {

std::unique_ptr<backend::Backend> make_trace_backend();

}  // namespace weft::trace
