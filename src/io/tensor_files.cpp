// The public functions between tensors and files.
#include <fmt/format.h>

#include "base/quote.hpp"
#include "io/npy.hpp"
#include "io/npz.hpp"
#include "io/safetensors.hpp"
#include "weft/io.hpp"

namespace weft {
namespace {

Tensor tensor_of(const io::Array& array, Device device, const std::string& name) {
  try {
    return tensor_from_bytes(array.data.data(), array.shape, array.dtype, device).named(name);
  } catch (Error& error) {
    error.add_context(fmt::format("loading {}", quote(name)));
    throw;
  }
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

}  // namespace weft
