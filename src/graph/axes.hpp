// What ops check first: that a tensor has a value; axes as users give them: negative ones count from the end, none twice.
#pragma once

#include "weft/ops.hpp"

namespace weft::graph {

/// x. Errors  UsageError if it has no value
const Tensor& with_value(std::string_view op, const Tensor& x);
int normalized_axis(std::string_view op, const Tensor& x, int axis, Where where);
std::vector<int> normalized_axes(std::string_view op, const Tensor& x, const Axes& axes, Where where);

}  // namespace weft::graph
