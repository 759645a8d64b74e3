#include "backend/webgpu/wgsl/functions.hpp"

#include <vector>

#include "backend/webgpu/wgsl/functions/parts.hpp"

namespace weft::webgpu {

std::span<const WgslFunction> wgsl_functions() {
  static const auto& all = *new std::vector<WgslFunction>([] {
    std::vector<WgslFunction> joined;
    for (const auto part : {functions::number_functions, functions::conversion_functions, functions::integer_functions,
                            functions::exponential_functions, functions::fixed_point_functions,
                            functions::angle_functions, functions::hyperbolic_functions, functions::power_functions})
      for (const WgslFunction& function : part()) joined.push_back(function);
    return joined;
  }());
  return all;
}

}  // namespace weft::webgpu
