// Axes as users give them: negative ones count from the end, none twice.
#pragma once

#include "weft/ops.hpp"

namespace weft::graph {

int normalized_axis(std::string_view op, const Tensor& x, int axis, Where where);
std::vector<int> normalized_axes(std::string_view op, const Tensor& x, const Axes& axes, Where where);

}  // namespace weft::graph
