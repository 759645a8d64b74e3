#include "metatensor/source.hpp"

#include <fmt/format.h>

#include "base/quote.hpp"
#include "io/recode.hpp"
#include "metatensor/parts.hpp"

namespace weft::metatensor {
namespace {

std::string type_name(const Node& node) {
  const Element& row = element(node.dtype);
  if (row.gguf >= 0) return std::string(io::file_name_of(node.dtype));
  return std::string(row.safetensors.empty() ? row.name : row.safetensors);
}

/// The type of Weft that a tensor of any container has.
DType dtype_of(const io::TensorSource& model, const io::SourceTensor& tensor) {
  if (tensor.type) return *tensor.type;
  const auto named = dtype_from_name(tensor.type_name);
  if (const auto dtype = named ? named : io::dtype_from_safetensors(tensor.type_name)) return *dtype;
  throw FileError(fmt::format("{}: tensor {} is {}, a type that Weft does not have", model.path().string(),
                              quote(tensor.name), tensor.type_name));
}

}  // namespace

io::TensorSource open_source(const std::filesystem::path& path) {
  io::TensorSource plain = io::TensorSource::open(path);
  if (plain.kind() != io::SourceKind::safetensors || !plain.safetensors_metadata().contains(std::string(kMetadataKey)))
    return plain;
  const MappedFile& mapping = plain.files()[0];
  const File file = File::parse(mapping.bytes(), path.string());
  std::vector<io::SourceTensor> tensors;
  for (const std::string& name : file.paths()) {
    const Node& node = file.at(name);
    if (node.kind != Kind::flat) continue;
    const bool is_read = element(node.dtype).gguf >= 0;
    tensors.push_back(
        {name, node.shape, type_name(node), is_read ? std::optional(node.dtype) : std::nullopt, file.bytes(name)});
  }
  return io::TensorSource::of(path, io::SourceKind::metatensor, std::move(tensors), {mapping}, file.metadata());
}

void write_model(const io::TensorSource& model, const std::filesystem::path& out, const io::ConvertOptions& options) {
  io::check_convert_type(options.type);
  Writer writer;
  std::uint64_t total = 0, done = 0;
  for (const io::SourceTensor& tensor : model.tensors()) total += tensor.size_bytes();
  for (const io::SourceTensor& tensor : model.tensors()) {
    const DType own = dtype_of(model, tensor);
    const bool is_recoded = options.type && tensor.type && io::block_format(own).can_quantise();
    const DType type = is_recoded ? *options.type : own;
    writer.tensor(options.rename ? options.rename(tensor.name) : tensor.name, type, tensor.shape,
                  [&model, &tensor, &options, &done, total, type, is_recoded](const auto& put) {
                    if (options.progress) options.progress(tensor, done, total);
                    if (is_recoded)
                      io::recode(model, tensor, type, put);
                    else
                      put(io::TensorSource::loaded(tensor).tensor.data);
                    done += tensor.size_bytes();
                  });
  }
  if (options.with_metadata)
    for (const auto& [key, text] :
         model.gguf() ? io::metadata_as_text(model.gguf()->metadata()) : model.safetensors_metadata())
      writer.metadata(key, text);
  writer.save(out);
}

}  // namespace weft::metatensor
