// The header of .npy files: a Python dictionary literal with exactly the keys descr, fortran_order and shape.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "weft/shape.hpp"

namespace weft::io {

struct NpyHeader {
  std::string descr;
  bool fortran_order = false;
  std::vector<Extent> shape;
};

/// Parses the literal, and no other Python. FileError "source: ..." for anything else.
NpyHeader parse_npy_header(std::string_view text, std::string_view source);

}  // namespace weft::io
