// How layers, which run one after another, are divided over devices.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "weft/shape.hpp"

namespace weft::parallel {

/// Numbers of layers, at least one for each part, so that the largest load is as small as it can be; the first such choice.
/// `load(part, first, last)` is that of a part with the layers [first, last); more layers have no smaller load. There are at least
/// as many layers as parts.
std::vector<Extent> choose_layers(Extent layers, std::size_t parts,
                                  const std::function<double(std::size_t part, Extent first, Extent last)>& load);

}  // namespace weft::parallel
