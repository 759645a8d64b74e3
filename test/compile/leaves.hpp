// Where graphs of tests get their leaves from.
#pragma once

#include <vector>

#include "weft/tensor.hpp"

namespace weft::test {

class LeafMaker {
 public:
  virtual ~LeafMaker() = default;
  virtual Tensor make(const Shape& shape, std::vector<double> values, DType type = DType::f32) = 0;
};

}  // namespace weft::test
