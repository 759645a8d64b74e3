// The result of attention in parts, which workgroups computed over some keys each, and how their readers join them.
#pragma once

#include <string>

#include "backend/webgpu/wgsl/render.hpp"
#include "compile/kernel.hpp"

namespace weft::webgpu {

/// [rows, heads, splits] records of `pitch` elements: `width` channels, then the largest score and the sum of exponentials. Keys fill
/// parts from the first one on.
struct AttentionParts {
  kernel::Operand operand;
  Extent heads = 0, width = 0, splits = 0, pitch = 0;
};

/// The text of a function (i, e) behind its name: four elements of row i, from element e on, which is a multiple of 4. Rows beyond
/// the last of `rows` repeat it. Parts weigh as much as their sums of exponentials. `binding` is read by vectors.
std::string joined_parts_function(const AttentionParts& parts, Extent rows, int binding, const Bindings& bindings,
                                  const Target& target);

}  // namespace weft::webgpu
