// NumPy's .npz format: a zip archive of .npy files.
#pragma once

#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "base/file.hpp"
#include "io/array.hpp"
#include "io/zip.hpp"

namespace weft::io {

using Arrays = std::map<std::string, Array>;

/// Reads all arrays, named without ".npy". Stored and deflated members (numpy.savez, numpy.savez_compressed). FileError "path:
/// ..." as `read_zip_directory`, `unpack` and `parse_npy`, and for members that are not .npy files.
Arrays read_npz(const std::filesystem::path& path, const ZipLimits& limits = {});
Arrays parse_npz(std::span<const std::byte> bytes, std::string_view source, const ZipLimits& limits = {});

/// Writes the arrays stored, in order of their names, atomically. UsageError for an empty name, a name that is not
/// UTF-8 or holds a NUL, and as `npy_bytes` and ZipWriter; FileError as AtomicFile.
void write_npz(const std::filesystem::path& path, const Arrays& arrays, AtomicFileOptions options = {});

}  // namespace weft::io
