// The numbers of a call's attributes.
#pragma once

#include <string_view>
#include <vector>

#include "graph/node.hpp"

namespace weft::onnx {

/// The words of an attribute.
std::vector<Extent> attribute_words(const graph::Node& call, std::string_view name);

/// How windows move along the axes of space of a convolution or a pool.
struct WindowWords {
  std::vector<Extent> size, stride, dilation, padding;
  bool same = false, ceil_mode = false;

  explicit WindowWords(const graph::Node& call);
  std::size_t axes() const { return size.size(); }
  /// Elements from the first to the last of a window.
  Extent span(std::size_t axis) const { return (size[axis] - 1) * dilation[axis] + 1; }
};

bool is_convolution(const graph::Node& call);
bool is_pool(const graph::Node& call);  // of windows that attributes give

}  // namespace weft::onnx
