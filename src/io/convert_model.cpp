#include "io/convert_model.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/quote.hpp"
#include "io/recode.hpp"
#include "weft/error.hpp"

namespace weft::io {
namespace {

/// The type in which a tensor is written.
BlockType target_of(const TensorSource& model, const SourceTensor& tensor, const ConvertOptions& options,
                    bool to_gguf) {
  if (!tensor.type)
    throw FileError(fmt::format("{}: tensor {} is {}, which is not converted; the types are {}", model.path().string(),
                                quote(tensor.name), tensor.type_name, block_format_list()));
  const BlockFormat& format = block_format(*tensor.type);
  if (!format.can_quantise()) return format.type;                  // integers keep their type
  if (to_gguf && tensor.shape.rank() == 1) return BlockType::f32;  // programs that read GGUF expect norms and biases so
  if (options.type) return *options.type;
  return format.is_plain() ? format.type : BlockType::f32;
}

}  // namespace

void check_convert_type(const std::optional<BlockType>& type) {
  if (type && *type != BlockType::f32 && *type != BlockType::f16 && *type != BlockType::bf16)
    throw UsageError(
        fmt::format("models are converted to F32, F16 or BF16, not to {}; weft quantize makes that of a GGUF "
                    "file",
                    file_name_of(*type)));
}

void convert_model(const TensorSource& model, const std::filesystem::path& out, const ConvertOptions& options) {
  check_convert_type(options.type);
  const std::string ending = out.extension().string();
  if (ending != ".gguf" && ending != ".safetensors")
    throw UsageError(fmt::format("'{}': the name tells the format; let it end in .gguf or .safetensors", out.string()));

  struct Job {
    std::string name;
    BlockType type;
  };
  std::vector<Job> jobs;
  std::uint64_t total = 0, done = 0;
  for (const SourceTensor& tensor : model.tensors()) {
    jobs.push_back({options.rename ? options.rename(tensor.name) : tensor.name,
                    target_of(model, tensor, options, ending == ".gguf")});
    total += tensor.size_bytes();
  }
  const auto convert = [&](std::size_t i, FunctionRef<void(std::span<const std::byte>)> put) {
    const SourceTensor& tensor = model.tensors()[i];
    if (options.progress) options.progress(tensor, done, total);
    recode(model, tensor, jobs[i].type, put);
    done += tensor.size_bytes();
  };

  if (ending == ".gguf") {
    GgufMetadata metadata;
    if (options.with_metadata)
      metadata = model.gguf() ? model.gguf()->metadata()
                              : metadata_from_text(model.safetensors_metadata(), model.path().string());
    for (const char* key : {"split.no", "split.count", "split.tensors.count"}) metadata.erase(key);
    // As the format numbers files by the type of their matrices.
    const auto matrix = std::find_if(model.tensors().begin(), model.tensors().end(),
                                     [](const SourceTensor& tensor) { return tensor.shape.rank() > 1; });
    if (metadata.contains("general.file_type") && matrix != model.tensors().end()) {
      const BlockType type = jobs[static_cast<std::size_t>(matrix - model.tensors().begin())].type;
      metadata.set("general.file_type", std::uint32_t{type == BlockType::f16    ? 1u
                                                      : type == BlockType::bf16 ? 32u
                                                                                : 0u});
    }
    std::vector<GgufTensorInfo> infos;
    for (std::size_t i = 0; i < jobs.size(); ++i)
      infos.push_back({jobs[i].name, model.tensors()[i].shape, jobs[i].type});
    GgufWriter writer(out, metadata, std::move(infos));
    for (std::size_t i = 0; i < jobs.size(); ++i)
      convert(i, [&](std::span<const std::byte> bytes) { writer.write(bytes); });
    writer.commit();
    return;
  }
  SafetensorsMetadata metadata;
  if (options.with_metadata)
    metadata = model.gguf() ? metadata_as_text(model.gguf()->metadata()) : model.safetensors_metadata();
  std::vector<TensorInfo> infos;
  for (std::size_t i = 0; i < jobs.size(); ++i)
    infos.push_back({jobs[i].name, std::string(file_name_of(jobs[i].type)), model.tensors()[i].shape});
  write_safetensors(out, infos, metadata, [&](std::size_t i, const auto& put) { convert(i, put); });
}

}  // namespace weft::io
