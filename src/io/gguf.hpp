// The GGUF format: typed metadata, then tensors in block formats, in one file or split over several.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/file.hpp"
#include "io/block_format.hpp"
#include "io/gguf_metadata.hpp"
#include "weft/shape.hpp"

namespace weft::io {

/// A tensor in a file, or to be written to one. The shape is row-major: the last axis is contiguous. `data` need not be
/// aligned.
struct GgufTensor {
  std::string name;
  Shape shape;
  BlockType type = BlockType::f32;
  std::span<const std::byte> data;
};

/// A checked file of version 2 or 3. All rules are checked before memory of the size that the file claims is allocated, and the
/// result takes at most a small multiple of the file: counts, texts and arrays within the remaining bytes; keys and names well
/// formed and unique; bools 0 or 1; arrays of plain values; rank at most 4; extents whose product does not overflow and whose
/// rows divide into blocks; data contiguous, in order and within the file. Where the format's document and its reference reader
/// differ, the stricter rule holds. Values of tensors are not checked: see `find_not_finite`. Copies share the mapping. Const
/// calls are thread safe.
class GgufFile {
 public:
  /// Maps the file; for any part of a split file (NAME-00001-of-00003.gguf), maps all parts. The metadata is the first part's.
  /// FileError "path: byte 24: ..." for the first broken rule.
  static GgufFile open(const std::filesystem::path& path);
  /// Reads one file from memory that must outlive the result; messages name `source` instead of the path.
  static GgufFile parse(std::span<const std::byte> bytes, std::string source);

  const GgufMetadata& metadata() const { return metadata_; }
  /// In the order of their data.
  const std::vector<GgufTensor>& tensors() const { return tensors_; }
  /// The tensor of a name, or nullptr.
  const GgufTensor* find(std::string_view name) const;
  /// FileError that names some existing tensors if there is none with this name.
  const GgufTensor& at(std::string_view name) const;
  const std::string& source() const { return source_; }
  std::uint32_t version() const { return version_; }
  std::uint32_t alignment() const { return alignment_; }
  /// Bytes of all parts.
  std::uint64_t file_bytes() const { return file_bytes_; }
  std::size_t part_count() const { return part_count_; }
  /// All parts; none if it was read from memory.
  const std::vector<MappedFile>& files() const { return mappings_; }
  /// Frees the metadata, and the pages of the mapping that were read for it. The metadata is empty from then on.
  void forget_metadata();

 private:
  static GgufFile open_part(const std::filesystem::path& path);
  void index_tensors();

  std::string source_;
  std::uint32_t version_ = 0, alignment_ = 0;
  std::uint64_t file_bytes_ = 0;
  std::size_t part_count_ = 1;
  std::vector<MappedFile> mappings_;
  GgufMetadata metadata_;
  std::vector<GgufTensor> tensors_;
  struct TextHash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };
  std::unordered_map<std::string, std::size_t, TextHash, std::equal_to<>> index_;
};

/// The description of a tensor in the head of a file.
struct GgufTensorInfo {
  std::string name;
  Shape shape;
  BlockType type = BlockType::f32;
};

/// Writes a file of version 3 piece by piece, so that a model need not be in memory; atomically, see AtomicFile. The
/// data is aligned to general.alignment of the metadata, else to 32 bytes. One thread at a time.
class GgufWriter {
 public:
  /// UsageError for keys, names, shapes and sizes that a reader would refuse. FileError as AtomicFile.
  GgufWriter(const std::filesystem::path& path, const GgufMetadata& metadata, std::vector<GgufTensorInfo> tensors,
             AtomicFileOptions options = {});
  /// The next bytes of the data of the tensors, in the order given. A piece ends within one tensor, else UsageError.
  void write(std::span<const std::byte> bytes);
  /// UsageError if data is missing; FileError as AtomicFile.
  void commit();

 private:
  void finish_tensors();

  std::vector<GgufTensorInfo> tensors_;
  std::vector<std::uint64_t> sizes_;
  std::uint32_t alignment_;
  std::size_t current_ = 0;
  std::uint64_t written_ = 0;  // bytes of the current tensor
  std::unique_ptr<AtomicFile> file_;
};

/// GgufWriter for tensors in memory. UsageError also for data that does not fit type and shape.
void write_gguf(const std::filesystem::path& path, const GgufMetadata& metadata, std::span<const GgufTensor> tensors,
                AtomicFileOptions options = {});
/// The same bytes in memory.
std::vector<std::byte> gguf_bytes(const GgufMetadata& metadata, std::span<const GgufTensor> tensors);

}  // namespace weft::io
