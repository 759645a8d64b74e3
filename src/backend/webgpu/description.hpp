// What the WebGPU backend tells the compiler and users of an adapter.
#pragma once

#include "backend/contract.hpp"
#include "backend/webgpu/adapter.hpp"

namespace weft::webgpu {

backend::Description description_of(const AdapterInfo& info);

}  // namespace weft::webgpu
