// NumPy's .npy format: magic, version, a Python dictionary that describes one array, its bytes.
#pragma once

#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

#include "base/file.hpp"
#include "io/array.hpp"

namespace weft::io {

/// Reads versions 1.0 to 3.0, C and Fortran order (transposed on reading), both byte orders. Floats of 2, 4 and 8 bytes,
/// integers of 1, 2, 4 and 8, bools. FileError "source: ..." for anything else, with the cure; sizes are checked against the file before anything is allocated.
Array read_npy(const std::filesystem::path& path);
Array parse_npy(std::span<const std::byte> bytes, std::string_view source);

/// Writes version 1.0, C order, little-endian, atomically. UsageError if the data does
/// not fit dtype and shape, and for types that the format lacks (bf16); FileError as AtomicFile.
void write_npy(const std::filesystem::path& path, const Array& array, AtomicFileOptions options = {});
/// The same bytes in memory.
std::vector<std::byte> npy_bytes(const Array& array);

}  // namespace weft::io
