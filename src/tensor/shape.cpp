#include "weft/shape.hpp"

#include <fmt/format.h>

#include "weft/error.hpp"

namespace weft {

void Shape::refuse_axis(int axis, std::source_location where) const {
  std::string text =
      fmt::format("dim: axis {} is outside of [{}, {})\n  shape  {}", axis, -rank(), rank(), to_string());
  if (where.line())
    text += fmt::format("\n  called at {}:{} ({})", where.file_name(), where.line(), where.function_name());
  throw ShapeError(text);
}

std::string Shape::to_string() const { return fmt::format("[{}]", fmt::join(extents_, ", ")); }

}  // namespace weft
