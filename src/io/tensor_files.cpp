// The public functions that load and save tensors.
#include <fmt/format.h>

#include "base/quote.hpp"
#include "io/gguf.hpp"
#include "io/npy.hpp"
#include "io/npz.hpp"
#include "io/safetensors.hpp"
#include "weft/io.hpp"

namespace weft {
namespace {

Tensor tensor_of(std::span<const std::byte> data, const Shape& shape, DType type, Device device,
                 const std::string& name) {
  try {
    return tensor_from_bytes(data.data(), shape, type, device).named(name);
  } catch (Error& error) {
    error.add_context(fmt::format("loading {}", quote(name)));
    throw;
  }
}

Tensor tensor_of(const io::Array& array, Device device, const std::string& name) {
  return tensor_of(array.data, array.shape, array.dtype, device, name);
}

io::Array array_of(const Tensor& tensor, const std::string& name) {
  if (!tensor.defined()) throw UsageError(fmt::format("saving {}: the tensor has no value", quote(name)));
  io::Array array{tensor.dtype(), tensor.shape(), {}};
  array.data.resize(bytes_of(tensor.dtype(), static_cast<std::size_t>(tensor.numel())));
  tensor.copy_to(array.data.data(), array.data.size());
  return array;
}

void evaluate(const NamedTensors& tensors) {
  std::vector<Tensor> all;
  for (const auto& [name, tensor] : tensors)
    if (tensor.defined()) all.push_back(tensor);
  eval(all);
}

}  // namespace

Tensor load_npy(const std::filesystem::path& path, Device device) {
  return tensor_of(io::read_npy(path), device, path.filename().string());
}

void save_npy(const std::filesystem::path& path, const Tensor& tensor) {
  io::write_npy(path, array_of(tensor, path.filename().string()));
}

NamedTensors load_npz(const std::filesystem::path& path, Device device) {
  NamedTensors tensors;
  for (const auto& [name, array] : io::read_npz(path)) tensors.emplace(name, tensor_of(array, device, name));
  return tensors;
}

void save_npz(const std::filesystem::path& path, const NamedTensors& tensors) {
  evaluate(tensors);
  io::Arrays arrays;
  for (const auto& [name, tensor] : tensors) arrays.emplace(name, array_of(tensor, name));
  io::write_npz(path, arrays);
}

Safetensors load_safetensors(const std::filesystem::path& path, Device device) {
  const io::SafetensorsFile file = io::SafetensorsFile::open(path);
  Safetensors result{{}, file.metadata()};
  for (const io::TensorView& view : file.tensors())
    result.tensors.emplace(view.name, tensor_of(io::to_array(view, file.source()), device, view.name));
  return result;
}

void save_safetensors(const std::filesystem::path& path, const NamedTensors& tensors,
                      const std::map<std::string, std::string>& metadata) {
  evaluate(tensors);
  io::Arrays arrays;
  std::vector<io::TensorView> views;
  for (const auto& [name, tensor] : tensors) {
    const io::Array& array = arrays.emplace(name, array_of(tensor, name)).first->second;
    views.push_back({name, std::string(io::safetensors_dtype(array.dtype)), array.shape, array.data});
  }
  io::write_safetensors(path, views, metadata);
}

Gguf load_gguf(const std::filesystem::path& path, Device device) {
  const io::GgufFile file = io::GgufFile::open(path);
  Gguf result;
  for (const io::GgufTensor& tensor : file.tensors())
    result.tensors.emplace(tensor.name, tensor_of(tensor.data, tensor.shape, tensor.type, device, tensor.name));
  for (const io::GgufMetadata::Entry& entry : file.metadata().entries())
    if (const auto* text = std::get_if<std::string>(&entry.value)) result.metadata.emplace(entry.key, *text);
  return result;
}

void save_gguf(const std::filesystem::path& path, const NamedTensors& tensors,
               const std::map<std::string, std::string>& metadata) {
  evaluate(tensors);
  io::Arrays arrays;
  std::vector<io::GgufTensor> views;
  for (const auto& [name, tensor] : tensors) {
    if (tensor.defined() && element(tensor.dtype()).gguf < 0)
      throw UsageError(fmt::format("saving {}: GGUF has no {}; cast it to one of {}", quote(name),
                                   name_of(tensor.dtype()), io::block_format_list()));
    const io::Array& array = arrays.emplace(name, array_of(tensor, name)).first->second;
    views.push_back({name, array.shape, array.dtype, array.data});
  }
  io::GgufMetadata entries;
  for (const auto& [key, text] : metadata) entries.set(key, text);
  io::write_gguf(path, entries, views);
}

}  // namespace weft
