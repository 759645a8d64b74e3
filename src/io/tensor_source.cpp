#include "io/tensor_source.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/file.hpp"
#include "base/quote.hpp"
#include "base/threads.hpp"
#include "io/gguf_rules.hpp"
#include "io/safetensors_index.hpp"
#include "weft/error.hpp"

namespace weft::io {
namespace {

constexpr std::size_t kTaskElements = 1 << 16;  // whole blocks of every format; some 50 us of work

SourceTensor from_view(const TensorView& view) {
  const BlockFormat* format = find_block_format(view.dtype);
  return {view.name, view.shape, view.dtype, format && format->is_plain() ? std::optional(format->type) : std::nullopt,
          view.data};
}

}  // namespace

SourceKind source_kind(const std::filesystem::path& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) return SourceKind::folder;
  const MappedFile file(path);
  const std::string_view start(reinterpret_cast<const char*>(file.bytes().data()),
                               std::min<std::size_t>(file.bytes().size(), 9));
  if (start.starts_with(gguf::kMagic)) return SourceKind::gguf;
  if (start.size() == 9 && start[8] == '{') return SourceKind::safetensors;
  const std::string_view shown(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  throw FileError(
      fmt::format("{}: this is not a model file, neither GGUF nor safetensors: it begins with {}; name a model file of "
                  "these formats, or a folder with model.safetensors",
                  path.string(), start.empty() ? "nothing" : quote(shown, 24)));
}

TensorSource TensorSource::open(const std::filesystem::path& path) {
  TensorSource source;
  source.path_ = path;
  source.kind_ = source_kind(path);
  switch (source.kind_) {
    case SourceKind::gguf:
      source.gguf_ = std::make_shared<GgufFile>(GgufFile::open(path));
      for (const GgufTensor& tensor : source.gguf_->tensors())
        source.tensors_.push_back(
            {tensor.name, tensor.shape, std::string(file_name_of(tensor.type)), tensor.type, tensor.data});
      source.files_ = source.gguf_->files();
      break;
    case SourceKind::safetensors: {
      const SafetensorsFile file = SafetensorsFile::open(path);
      for (const TensorView& view : file.tensors()) source.tensors_.push_back(from_view(view));
      source.metadata_ = file.metadata();
      source.files_ = {*file.file()};
      break;
    }
    case SourceKind::folder: {
      const SafetensorsFolder folder = SafetensorsFolder::open(path);
      for (const auto& [name, view] : folder.tensors()) source.tensors_.push_back(from_view(view));
      for (const SafetensorsFile& file : folder.files()) source.files_.push_back(*file.file());
      break;
    }
    case SourceKind::metatensor: break;  // not among the answers of `source_kind`
  }
  source.index_tensors();
  return source;
}

TensorSource TensorSource::of(const std::filesystem::path& path, SourceKind kind, std::vector<SourceTensor> tensors,
                              std::vector<MappedFile> files, SafetensorsMetadata metadata,
                              std::vector<std::string> notes) {
  TensorSource source;
  source.path_ = path;
  source.kind_ = kind;
  source.tensors_ = std::move(tensors);
  source.files_ = std::move(files);
  source.metadata_ = std::move(metadata);
  source.notes_ = std::move(notes);
  source.index_tensors();
  return source;
}

TensorSource TensorSource::with_tensors(std::vector<SourceTensor> tensors) const {
  TensorSource source = *this;
  source.tensors_ = std::move(tensors);
  source.index_.clear();
  source.index_tensors();
  return source;
}

void TensorSource::index_tensors() {
  for (std::size_t i = 0; i < tensors_.size(); ++i) index_.emplace(tensors_[i].name, i);
}

const SourceTensor* TensorSource::find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &tensors_[found->second];
}

const SourceTensor& TensorSource::at(std::string_view name) const {
  if (const SourceTensor* found = find(name)) return *found;
  std::string names;
  for (std::size_t i = 0; i < std::min<std::size_t>(tensors_.size(), 5); ++i)
    names += (i ? ", " : "") + quote(tensors_[i].name);
  if (tensors_.size() > 5) names += fmt::format(" and {} more", tensors_.size() - 5);
  throw FileError(fmt::format("{}: there is no tensor {}; it holds {}", path_.string(), quote(name),
                              names.empty() ? std::string("none") : names));
}

BlockType TensorSource::readable_type(const SourceTensor& tensor) const {
  if (tensor.type) return *tensor.type;
  throw FileError(fmt::format("{}: tensor {} is {}, which is not read as numbers here; use a file in one of {}",
                              path_.string(), quote(tensor.name), tensor.type_name, block_format_list()));
}

LoadedTensor TensorSource::loaded(const SourceTensor& tensor) {
  if (!tensor.make) return {tensor, nullptr};
  const auto made = std::make_shared<std::vector<std::byte>>(tensor.size_bytes());
  tensor.make(*made);
  LoadedTensor result{tensor, made};
  result.tensor.make = {};
  result.tensor.data = *made;
  return result;
}

void TensorSource::read_f32(const SourceTensor& given, std::span<float> values) const {
  const BlockType type = readable_type(given);
  const LoadedTensor whole = loaded(given);
  const SourceTensor& tensor = whole.tensor;
  if (values.size() != static_cast<std::size_t>(tensor.shape.numel()))
    throw UsageError(fmt::format("tensor {} {} is read into {} places; give one for each element", quote(tensor.name),
                                 tensor.shape.to_string(), values.size()));
  const BlockFormat& format = block_format(type);
  const std::size_t task_bytes = kTaskElements / format.block_elements * format.block_bytes;
  const std::size_t tasks = (values.size() + kTaskElements - 1) / kTaskElements;
  parallel_for(static_cast<std::int64_t>(tasks), [&](std::int64_t task) {
    const std::size_t i = static_cast<std::size_t>(task), first = i * kTaskElements, at = i * task_bytes;
    const std::size_t count = std::min(kTaskElements, values.size() - first);
    dequantise(type, tensor.data.subspan(at, std::min(task_bytes, tensor.data.size() - at)),
               values.subspan(first, count));
  });
}

void TensorSource::require_finite(const SourceTensor& tensor) const {
  const LoadedTensor whole = loaded(tensor);
  require_finite(whole.tensor, whole.tensor.data);
}

std::vector<float> TensorSource::read_f32(std::string_view name) const {
  const SourceTensor& tensor = at(name);
  readable_type(tensor);
  std::vector<float> values(static_cast<std::size_t>(tensor.shape.numel()));
  read_f32(tensor, values);
  return values;
}

void TensorSource::forget_metadata() {
  if (gguf_) gguf_->forget_metadata();
}

void TensorSource::require_finite(const SourceTensor& tensor, std::span<const std::byte> part) const {
  const BlockType type = readable_type(tensor);
  auto bad = find_not_finite(type, part);
  if (bad)
    *bad += static_cast<std::size_t>(part.data() - tensor.data.data()) / block_format(type).block_bytes *
            block_format(type).block_elements;
  if (bad)
    throw FileError(fmt::format(
        "{}: tensor {}: {} NaN or infinite; the file is damaged: fetch it again", path_.string(), quote(tensor.name),
        block_format(type).is_plain() ? fmt::format("element {} is", *bad)
                                      : fmt::format("the scale of the block from element {} on is", *bad)));
}

}  // namespace weft::io
