// The description of an adapter for the compiler and for users.
#pragma once

#include "backend/contract.hpp"
#include "backend/webgpu/adapter.hpp"

namespace weft::webgpu {

backend::Description description_of(const AdapterInfo& info);
/// Details for `weft devices`, as (name, value).
std::vector<std::pair<std::string, std::string>> details_of(const AdapterInfo& info);

}  // namespace weft::webgpu
