// What the shaders of sorts have in common.
#pragma once

#include <fmt/format.h>

#include <string>

#include "backend/webgpu/wgsl/routine_shader.hpp"
#include "backend/webgpu/wgsl/scalar.hpp"
#include "compile/call_attributes.hpp"
#include "graph/order.hpp"

namespace weft::webgpu {

using SortShader = RoutineShader;

/// A sort: lines of `n` elements, of which `count` ranks are kept.
struct SortedLines {
  explicit SortedLines(const kernel::CallKernel& kernel)
      : a(kernel::attributes_of<graph::SortAttributes>(kernel)),
        n(kernel.shapes[0].dim(-1)),
        count(kernel.shape().dim(-1)),
        lines(kernel.shape().numel() / count),
        type(kernel.types[0]) {}

  /// The unsigned integer of the same order as an element.
  std::string key(const std::string& x, Helpers& helpers) const {
    std::string text = x;
    if (type == DType::f32)
      text = fmt::format("select({}({}), 0xffffffffu, {}({}))", helpers.use("order_key_f32"), x,
                         helpers.use("is_nan_f32"), x);
    else if (type == DType::i32)
      text = fmt::format("(bitcast<u32>({}) ^ 0x80000000u)", x);
    return a.descending ? fmt::format("~{}", text) : text;
  }

  graph::SortAttributes a;
  Extent n, count, lines;
  DType type;
};

}  // namespace weft::webgpu
