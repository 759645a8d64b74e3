// The parameters of a layer of the grid on the host, in the order of storage.
#pragma once

#include <cmath>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "weft/grid/network.hpp"
#include "weft/nn/state.hpp"

namespace weft::evolve {

/// "z0y0x0l0": the first part of the names of a layer's parameters.
inline std::string layer_name(const std::string& parameter) { return parameter.substr(0, parameter.find('.')); }

inline std::span<const float> values_of(const nn::NamedArray& array) {
  return {reinterpret_cast<const float*>(array.bytes.data()), array.bytes.size() / sizeof(float)};
}
inline std::span<float> values_of(nn::NamedArray& array) {
  return {reinterpret_cast<float*>(array.bytes.data()), array.bytes.size() / sizeof(float)};
}

/// Divides by the norm, unless it is 0.
inline void normalise(std::vector<float>& v) {
  double squares = 0;
  for (const float x : v) squares += static_cast<double>(x) * static_cast<double>(x);
  if (!(squares > 0)) return;
  const double factor = 1 / std::sqrt(squares);
  for (float& x : v) x = static_cast<float>(static_cast<double>(x) * factor);
}

}  // namespace weft::evolve
