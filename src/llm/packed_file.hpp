// Packed weights in a file that outlives the run: a later load of the model maps the file, and neither packs nor
// allocates memory for weights.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <future>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.hpp"
#include "runtime/packed_matrix.hpp"

namespace weft::llm {

/// A weight of a model: the first tensor of the model's files that it is made of, and what it is.
struct PackedPart {
  std::string_view tensor;
  BlockType type = BlockType::f32;
  Shape shape;
};

struct PackedFileRules {
  std::filesystem::path folder;          // empty: no files
  std::uint64_t bytes_min = 16'000'000;  // less is packed in some milliseconds
  // Least age of the model's files. Timestamps are coarse, so a second change soon after the first may leave the same
  // timestamp: recently modified models are not cached.
  std::chrono::nanoseconds settled = std::chrono::seconds(2);
  double disk_share = 0.1;  // of the disk that packed files take together at most
};
/// In `packed` of the cache folder.
PackedFileRules usual_packed_files();

/// The packed files of a folder, each with the model that it was made of. Files of others are left out.
std::vector<std::pair<std::filesystem::path, std::filesystem::path>> packed_files(const std::filesystem::path& folder);

/// The packed file of a model. It begins with a text that says what it was made of: the model's files with sizes and times,
/// the matrices, the layout. It ends with digests of everything before. It is used only if that text equals, byte for byte, the
/// text of a new file, if its length and digests are right, and if this user owns it and
/// nobody else may write to it; otherwise it counts as absent. Failures of the disk are not errors: a model loads without it.
/// Several processes may use one folder.
class PackedFile {
 public:
  /// Nothing if the rules do not ask for a file. The device must be one whose packed weights can be stored.
  static std::optional<PackedFile> of(std::span<const MappedFile> model, std::span<const PackedPart> parts,
                                      const PackedFileRules& rules, Device device = {});

  /// Maps it; false if there is none.
  bool open();
  /// In the mapping, by its place among the parts.
  Tensor matrix(std::size_t part) const;
  const std::filesystem::path& path() const { return path_; }

  /// Writes it, the matrices in the order of the parts, where the disk has room: packed files take no more than their share,
  /// and leave as much free as they take. Files whose model is gone make room, and then those that were not used for longest.
  void write(std::span<const Tensor> matrices, const std::stop_token& stop) const;

 private:
  struct Part {
    BlockType type;
    Shape shape;
    std::size_t at;  // in the file
  };
  bool is_current() const;

  std::filesystem::path path_;
  std::string head_;
  Device device_;
  std::vector<Part> parts_;
  std::size_t covered_ = 0, bytes_ = 0;  // of what digests cover, and of the file
  std::vector<std::pair<std::filesystem::path, FileStamp>> model_;
  bool settled_ = false;
  double disk_share_ = 0;
  std::shared_ptr<const MappedFile> mapped_;
};

/// Writes a packed file while the model is in use already, from half a second after it was loaded: the first token comes
/// before. Its end waits for the file, but not longer than `patience`.
class PackedFileWriter {
 public:
  PackedFileWriter(PackedFile file, std::vector<Tensor> matrices, std::chrono::milliseconds patience);
  ~PackedFileWriter();
  PackedFileWriter(const PackedFileWriter&) = delete;
  PackedFileWriter& operator=(const PackedFileWriter&) = delete;

 private:
  std::chrono::milliseconds patience_;
  std::promise<void> end_;
  std::stop_source stop_;
  std::future<void> done_;
};

}  // namespace weft::llm
