// The named tensors of a model in any container: a GGUF file, a safetensors file, or a Hugging Face folder.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "io/block_format.hpp"
#include "io/gguf.hpp"
#include "io/safetensors.hpp"
#include "weft/shape.hpp"

namespace weft::io {

/// A metatensor file is a safetensors file to this folder; metatensor/source.hpp makes sources of that kind.
enum class SourceKind { gguf, safetensors, folder, metatensor };
/// Decides by the kind of path, or by a file's first bytes. FileError if it is neither GGUF nor safetensors.
SourceKind source_kind(const std::filesystem::path& path);

/// A mapped tensor. `type` is set for every dtype that has a row in the table of block formats; safetensors files may hold
/// others (U8, F8_E4M3), which are listed but not read.
struct SourceTensor {
  std::string name;
  Shape shape;
  std::string type_name;
  std::optional<BlockType> type;
  std::span<const std::byte> data;
  /// Writes the data of a tensor that is made of others; `data` is empty then, and `TensorSource::loaded` has it.
  std::function<void(std::span<std::byte>)> make = {};

  std::uint64_t size_bytes() const { return make ? bytes_for(*type, shape, name) : data.size(); }
};

/// A tensor with its data, which is mapped, or in memory that copies share.
struct LoadedTensor {
  SourceTensor tensor;
  std::shared_ptr<const std::vector<std::byte>> made;  ///< null if the data is mapped
};

/// The tensors of a model. Copies share the mappings. Const calls are thread safe.
class TensorSource {
 public:
  /// FileError as `source_kind`, GgufFile, SafetensorsFile and SafetensorsFolder.
  static TensorSource open(const std::filesystem::path& path);
  /// Tensors in mapped files of any kind of container.
  static TensorSource of(const std::filesystem::path& path, SourceKind kind, std::vector<SourceTensor> tensors,
                         std::vector<MappedFile> files, SafetensorsMetadata metadata,
                         std::vector<std::string> notes = {});

  /// The same model with these tensors in place of its own; they may be made of them.
  TensorSource with_tensors(std::vector<SourceTensor> tensors) const;

  SourceKind kind() const { return kind_; }
  const std::filesystem::path& path() const { return path_; }
  /// In the order of files; those of a folder by name.
  const std::vector<SourceTensor>& tensors() const { return tensors_; }
  /// The tensor of a name, or nullptr.
  const SourceTensor* find(std::string_view name) const;
  /// FileError that names some that are there, if there is none of this name.
  const SourceTensor& at(std::string_view name) const;
  /// All files of the tensors.
  const std::vector<MappedFile>& files() const { return files_; }
  /// The GGUF file with its metadata, or nullptr.
  const GgufFile* gguf() const { return gguf_.get(); }
  /// Frees the GGUF file's metadata, which is empty from then on. Tensors stay.
  void forget_metadata();
  /// Metadata of a safetensors or metatensor file; empty for the other kinds.
  const SafetensorsMetadata& safetensors_metadata() const { return metadata_; }

  /// What users should know of how the tensors were read.
  const std::vector<std::string>& notes() const { return notes_; }

  /// The tensor with its data, which is made now if no file holds it.
  static LoadedTensor loaded(const SourceTensor& tensor);
  /// The values, row-major, on all threads. FileError if the type cannot be read as f32; UsageError unless `values` has the
  /// size of the tensor.
  void read_f32(const SourceTensor& tensor, std::span<float> values) const;
  std::vector<float> read_f32(std::string_view name) const;
  /// FileError that names the first element of a block with a scale, or the first value, that is NaN or infinite.
  void require_finite(const SourceTensor& tensor) const;
  /// The same for some of its blocks, of a tensor with data.
  void require_finite(const SourceTensor& tensor, std::span<const std::byte> part) const;

 private:
  void index_tensors();
  BlockType readable_type(const SourceTensor& tensor) const;

  SourceKind kind_ = SourceKind::gguf;
  std::filesystem::path path_;
  std::shared_ptr<GgufFile> gguf_;
  std::vector<MappedFile> files_;
  SafetensorsMetadata metadata_;
  std::vector<std::string> notes_;
  std::vector<SourceTensor> tensors_;
  struct TextHash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };
  std::unordered_map<std::string, std::size_t, TextHash, std::equal_to<>> index_;
};

}  // namespace weft::io
