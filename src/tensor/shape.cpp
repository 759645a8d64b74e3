#include "weft/shape.hpp"

#include <fmt/format.h>

namespace weft {

std::string Shape::to_string() const { return fmt::format("[{}]", fmt::join(extents_, ", ")); }

}  // namespace weft
