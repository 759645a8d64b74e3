// The layers of vision models.
#pragma once

#include "layers/weights.hpp"

namespace weft::vision {

using layers::Linear, layers::linear_of;
using layers::ModelWeights;
using layers::Norm, layers::norm_of, layers::NormKind;

}  // namespace weft::vision
