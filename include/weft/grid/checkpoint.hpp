// Checkpoints of volumetric networks: one safetensors file with topology and parameters.
#pragma once

#include <filesystem>
#include <memory>

#include "weft/grid/network.hpp"

namespace weft::grid {

struct SaveOptions {
  /// Stores the f32 parameters. If not, those of layers of other types are stored as `quantised` and packed, with their scales: the
  /// file is smaller and gives the same pass, but training goes on from the rounded values.
  bool keep_master = false;
};
/// Writes the file atomically. Its metadata holds the description as JSON and a hash of all the content. A packed parameter is a
/// tensor of its type, or of bytes (U8) below 8 bits, and beside it its scale, as "name.scale".
/// Errors  FileError. UsageError for parameters that are not finite, with their name, unless the f32 ones are kept.
void save(const Network& network, const std::filesystem::path& path, SaveOptions options = {});

/// The network of a checkpoint, on the default device. A pass gives the bits that it gave before the save.
/// Errors  FileError: missing, truncated, damaged, not such a file, or its tensors are not those of its description (all differences
///         are listed). Nothing of the size that a description claims is allocated before its tensors were found.
std::unique_ptr<Network> load(const std::filesystem::path& path);

}  // namespace weft::grid
