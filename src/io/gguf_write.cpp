// Writing GGUF.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <unordered_set>

#include "base/checked.hpp"
#include "base/quote.hpp"
#include "io/gguf.hpp"
#include "io/gguf_rules.hpp"
#include "weft/error.hpp"

namespace weft::io {
namespace {

template <class T>
void put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}
void put_text(std::string& out, std::string_view text) {
  put<std::uint64_t>(out, text.size());
  out += text;
}
template <class T>
void put_element(std::string& out, const T& value) {
  if constexpr (std::is_same_v<T, std::string>)
    put_text(out, value);
  else if constexpr (std::is_same_v<T, bool>)
    put<std::uint8_t>(out, value ? 1 : 0);
  else
    put(out, value);
}

void check_text(const std::string& text, const std::string& context) {
  if (text.size() > gguf::kMaxStringBytes)
    throw UsageError(
        fmt::format("{}: the text has {} bytes; at most {} are allowed", context, text.size(), gguf::kMaxStringBytes));
}

void put_value(std::string& out, const GgufMetadata::Entry& entry) {
  const std::string context = fmt::format("gguf: metadata {}", quote(entry.key));
  if (const auto problem = gguf::problem_of_key(entry.key); !problem.empty())
    throw UsageError(fmt::format("{}: {}", context, problem));
  put_text(out, entry.key);
  put(out, static_cast<std::uint32_t>(type_of(entry.value)));
  std::visit(
      [&](const auto& value) {
        using V = std::remove_cvref_t<decltype(value)>;
        if constexpr (std::is_same_v<V, GgufArray>) {
          put(out, static_cast<std::uint32_t>(element_type_of(value)));
          std::visit(
              [&](const auto& elements) {
                using T = typename std::remove_cvref_t<decltype(elements)>::value_type;
                if (elements.size() > gguf::kMaxArrayElements)
                  throw UsageError(fmt::format("{}: the array has {} elements; at most {} are allowed", context,
                                               elements.size(), gguf::kMaxArrayElements));
                put<std::uint64_t>(out, elements.size());
                for (std::size_t i = 0; i < elements.size(); ++i) {
                  const T& element = elements[i];
                  if constexpr (std::is_same_v<T, std::string>) check_text(element, context);
                  put_element<T>(out, element);
                }
              },
              value);
        } else {
          if constexpr (std::is_same_v<V, std::string>) check_text(value, context);
          put_element(out, value);
        }
      },
      entry.value);
}

std::uint32_t alignment_to_write(const GgufMetadata& metadata) {
  const GgufValue* value = metadata.find(gguf::kAlignmentKey);
  if (!value) return gguf::kDefaultAlignment;
  const std::uint32_t* alignment = std::get_if<std::uint32_t>(value);
  if (!alignment || !gguf::is_alignment(*alignment))
    throw UsageError(fmt::format("gguf: metadata \"{}\" must be a u32, a power of two from 8 to {}",
                                 gguf::kAlignmentKey, gguf::kMaxAlignment));
  return *alignment;
}

std::vector<std::uint64_t> sizes_of(const std::vector<GgufTensorInfo>& tensors) {
  std::vector<std::uint64_t> sizes;
  std::unordered_set<std::string_view> names;
  for (const GgufTensorInfo& tensor : tensors) {
    const std::string context = fmt::format("gguf: tensor {}", quote(tensor.name));
    if (const auto problem = gguf::problem_of_name(tensor.name); !problem.empty())
      throw UsageError(fmt::format("{}: {}", context, problem));
    if (!names.insert(tensor.name).second)
      throw UsageError(fmt::format("{}: two tensors have this name; give each its own", context));
    if (tensor.shape.rank() > gguf::kMaxRank)
      throw UsageError(
          fmt::format("{}: rank {} is over the limit of {}; reshape it", context, tensor.shape.rank(), gguf::kMaxRank));
    sizes.push_back(bytes_for<UsageError>(tensor.type, tensor.shape, context));
  }
  return sizes;
}

/// Everything before the data, padded to the alignment.
std::string head_of(const GgufMetadata& metadata, const std::vector<GgufTensorInfo>& tensors,
                    const std::vector<std::uint64_t>& sizes, std::uint32_t alignment) {
  std::string out(gguf::kMagic);
  put<std::uint32_t>(out, gguf::kVersion);
  put<std::uint64_t>(out, tensors.size());
  put<std::uint64_t>(out, metadata.entries().size());
  for (const GgufMetadata::Entry& entry : metadata.entries()) put_value(out, entry);
  std::uint64_t offset = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::vector<Extent>& extents = tensors[i].shape.vector();
    put_text(out, tensors[i].name);
    put<std::uint32_t>(out, static_cast<std::uint32_t>(extents.size()));
    for (auto extent = extents.rbegin(); extent != extents.rend(); ++extent)
      put<std::uint64_t>(out, static_cast<std::uint64_t>(*extent));
    put<std::uint32_t>(out, block_format(tensors[i].type).gguf_id);
    put<std::uint64_t>(out, offset);
    offset = checked_align_up<UsageError, std::uint64_t>(
        checked_add<UsageError>(offset, sizes[i], "gguf: size of the data"), alignment, "gguf: size of the data");
  }
  out.resize((out.size() + alignment - 1) / alignment * alignment, '\0');
  return out;
}

std::vector<GgufTensorInfo> infos_of(std::span<const GgufTensor> tensors) {
  std::vector<GgufTensorInfo> infos;
  for (const GgufTensor& tensor : tensors) {
    infos.push_back({tensor.name, tensor.shape, tensor.type});
    const std::string context = fmt::format("gguf: tensor {}", quote(tensor.name));
    const std::uint64_t size = bytes_for<UsageError>(tensor.type, tensor.shape, context);
    if (size != tensor.data.size())
      throw UsageError(fmt::format("{}: {} {} takes {} bytes, but {} bytes of data are given", context,
                                   file_name_of(tensor.type), tensor.shape.to_string(), size, tensor.data.size()));
  }
  return infos;
}

}  // namespace

GgufWriter::GgufWriter(const std::filesystem::path& path, const GgufMetadata& metadata,
                       std::vector<GgufTensorInfo> tensors, AtomicFileOptions options)
    : tensors_(std::move(tensors)), sizes_(sizes_of(tensors_)), alignment_(alignment_to_write(metadata)) {
  const std::string head = head_of(metadata, tensors_, sizes_, alignment_);
  std::uint64_t total = head.size();
  for (const std::uint64_t size : sizes_)
    total = checked_align_up<UsageError, std::uint64_t>(checked_add<UsageError>(total, size, "gguf: size of the file"),
                                                        alignment_, "gguf: size of the file");
  options.expected_bytes = std::max(options.expected_bytes, total);
  file_ = std::make_unique<AtomicFile>(path, options);
  file_->write(head);
  finish_tensors();
}

void GgufWriter::write(std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  if (current_ == tensors_.size())
    throw UsageError(
        fmt::format("gguf: {} bytes follow the data of the last tensor; give each tensor's own only", bytes.size()));
  if (bytes.size() > sizes_[current_] - written_)
    throw UsageError(
        fmt::format("gguf: tensor {}: {} bytes are given, but {} of its {} are still to come; let each piece "
                    "end within one tensor",
                    quote(tensors_[current_].name), bytes.size(), sizes_[current_] - written_, sizes_[current_]));
  file_->write(bytes);
  written_ += bytes.size();
  finish_tensors();
}

void GgufWriter::finish_tensors() {
  for (; current_ < tensors_.size() && written_ == sizes_[current_]; ++current_, written_ = 0) {
    const std::vector<std::byte> padding((alignment_ - sizes_[current_] % alignment_) % alignment_);
    file_->write(padding);
  }
}

void GgufWriter::commit() {
  if (current_ < tensors_.size())
    throw UsageError(fmt::format("gguf: tensor {}: {} of its {} bytes are missing; write them first",
                                 quote(tensors_[current_].name), sizes_[current_] - written_, sizes_[current_]));
  file_->commit();
}

void write_gguf(const std::filesystem::path& path, const GgufMetadata& metadata, std::span<const GgufTensor> tensors,
                AtomicFileOptions options) {
  GgufWriter writer(path, metadata, infos_of(tensors), options);
  for (const GgufTensor& tensor : tensors) writer.write(tensor.data);
  writer.commit();
}

std::vector<std::byte> gguf_bytes(const GgufMetadata& metadata, std::span<const GgufTensor> tensors) {
  const std::vector<GgufTensorInfo> infos = infos_of(tensors);
  const std::uint32_t alignment = alignment_to_write(metadata);
  const std::string head = head_of(metadata, infos, sizes_of(infos), alignment);
  const auto start = std::as_bytes(std::span(head));
  std::vector<std::byte> bytes(start.begin(), start.end());
  for (const GgufTensor& tensor : tensors) {
    bytes.insert(bytes.end(), tensor.data.begin(), tensor.data.end());
    bytes.resize((bytes.size() + alignment - 1) / alignment * alignment);
  }
  return bytes;
}

}  // namespace weft::io
