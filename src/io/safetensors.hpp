// The safetensors format: eight bytes of header length, a JSON header, then the bytes of the tensors without gaps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.hpp"
#include "io/array.hpp"
#include "weft/dtype.hpp"
#include "weft/format_error.hpp"
#include "weft/shape.hpp"

namespace weft::io {

/// A tensor in a file, or to be written to one. `data` is little-endian, row-major, and need not be aligned in memory.
struct TensorView {
  std::string name;
  std::string dtype;  ///< by its name in the format: "F32", "BF16", "I64", ...
  Shape shape;
  std::span<const std::byte> data;
};

/// Bits of one element of a dtype of the format, if there is one of that name.
std::optional<int> safetensors_dtype_bits(std::string_view dtype);
/// F32 <-> f32, F8_E4M3 <-> fp8_e4m3, ..., as the rows of the types say; nothing for dtypes that Weft's tensors do not have. In
/// the other direction: UsageError for types that the format lacks.
std::optional<DType> dtype_from_safetensors(std::string_view dtype);
std::string_view safetensors_dtype(DType type);

using SafetensorsMetadata = std::map<std::string, std::string>;

/// Throws the first violation of a format, or lists all.
class FormatFindings {
 public:
  static constexpr std::size_t kListedMax = 1000;
  /// Null: throws.
  explicit FormatFindings(std::vector<FormatViolation>* list) : list_(list) {}
  void add(std::string_view code, std::uint64_t byte, std::string name, std::string message) {
    FormatViolation violation{code, byte, std::move(name), std::move(message)};
    if (!list_) throw FormatError(std::move(violation));
    if (list_->size() < kListedMax) list_->push_back(std::move(violation));
  }

 private:
  std::vector<FormatViolation>* list_;
};

/// A checked file. All rules of the format are checked before memory of the size that a header claims is allocated: header
/// length at most 100,000,000 and within the file; a UTF-8 JSON object that begins with '{'; no name or key twice; each tensor
/// with exactly dtype, shape and data_offsets; extents whose product does not overflow, even with a 0; byte counts that
/// match; data that covers the rest of the file exactly, without holes, overlap or tail. Rank is at most 64. Copies share the
/// bytes. Const calls are thread safe.
class SafetensorsFile {
 public:
  /// Maps the file; the views read from the mapping. FormatError "path: ..." for the first broken rule.
  static SafetensorsFile open(const std::filesystem::path& path);
  /// Reads from memory that must outlive the result; messages name `source` instead of the path.
  static SafetensorsFile parse(std::span<const std::byte> bytes, std::string source);
  /// The same with all broken rules in `findings`, in the order of the checks, and in the result what keeps the rules. After text
  /// that is not JSON, or a name that occurs twice, the rest of the header is not read.
  static SafetensorsFile parse(std::span<const std::byte> bytes, std::string source, FormatFindings& findings);

  /// In the order of their data.
  const std::vector<TensorView>& tensors() const { return tensors_; }
  /// The tensor of a name, or nullptr.
  const TensorView* find(std::string_view name) const;
  /// FileError that names the closest name in the file, if there is none of this name.
  const TensorView& at(std::string_view name) const;
  const SafetensorsMetadata& metadata() const { return metadata_; }
  const std::string& source() const { return source_; }
  /// Null if it was read from memory.
  const MappedFile* file() const { return mapping_.get(); }
  /// Where in the file the data of the tensors begins.
  std::uint64_t data_begin() const { return data_begin_; }
  /// Where the data of a tensor begins, behind `data_begin`.
  std::uint64_t offset_of(const TensorView& tensor) const {
    return static_cast<std::uint64_t>(tensor.data.data() - bytes_.data()) - data_begin_;
  }

 private:
  std::string source_;
  std::uint64_t data_begin_ = 0;
  std::span<const std::byte> bytes_;
  std::shared_ptr<const MappedFile> mapping_;
  std::vector<TensorView> tensors_;
  std::map<std::string, std::size_t, std::less<>> index_;
  SafetensorsMetadata metadata_;
};

/// Copies a tensor out. FileError (with the cure) for dtypes that Weft's tensors do not have, and for BOOL bytes other than 0
/// and 1. `source` opens the message.
Array to_array(const TensorView& tensor, std::string_view source);

/// Writes the file atomically (see AtomicFile), tensors sorted by dtype (widest first) and then by name, the header
/// padded with spaces to a multiple of 8. UsageError for a name used twice or reserved ("__metadata__"), for text that
/// is not UTF-8, for an unknown dtype, and for data that does not fit dtype and shape; FileError as AtomicFile.
void write_safetensors(const std::filesystem::path& path, std::span<const TensorView> tensors,
                       const SafetensorsMetadata& metadata = {}, AtomicFileOptions options = {});
/// The description of a tensor in a header.
struct TensorInfo {
  std::string name;
  std::string dtype;
  Shape shape;
};
/// Passes the data of tensor `index` to `put`, in pieces of any size.
using TensorDataSource =
    std::function<void(std::size_t index, const std::function<void(std::span<const std::byte>)>& put)>;
/// The same for tensors that are made while the file is written, so that a model need not be in memory. They are requested in
/// the order of the file. UsageError also for too few or too many bytes of a tensor.
void write_safetensors(const std::filesystem::path& path, std::span<const TensorInfo> tensors,
                       const SafetensorsMetadata& metadata, const TensorDataSource& data,
                       AtomicFileOptions options = {});
/// The same for tensors that are already in the order of the file. The header is padded so that the data begins at a multiple of
/// `data_alignment` (a multiple of 8) in the file.
void write_safetensors_in_order(const std::filesystem::path& path, std::span<const TensorInfo> tensors,
                                const SafetensorsMetadata& metadata, std::uint64_t data_alignment,
                                const TensorDataSource& data, AtomicFileOptions options = {});
/// The bytes of such a file in memory.
std::vector<std::byte> safetensors_bytes(std::span<const TensorView> tensors, const SafetensorsMetadata& metadata = {});

}  // namespace weft::io
