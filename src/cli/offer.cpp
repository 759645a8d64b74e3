#include "cli/offer.hpp"

#include <fmt/format.h>

#include "base/file.hpp"
#include "base/quote.hpp"
#include "catalogue/wire.hpp"
#include "cli/commands.hpp"
#include "cli/input.hpp"
#include "cli/operations.hpp"
#include "weft/error.hpp"
#include "weft/io.hpp"

namespace weft::cli {
namespace {

namespace fs = std::filesystem;
namespace op = operations;

// Moves the tensors of a value into a list, by their paths; their dtypes and shapes stay in the value.
void collect(const Value& value, const std::string& path, NamedTensors& tensors) {
  if (value.is_tensor()) {
    tensors.emplace(path, value.tensor());
  } else if (value.is_array()) {
    for (std::size_t i = 0; i < value.elements().size(); ++i)
      collect(value[i], fmt::format("{}{}{}", path, path.empty() ? "" : ".", i), tensors);
  } else if (value.is_object()) {
    for (const auto& [key, member] : value.members()) collect(member, path.empty() ? key : path + "." + key, tensors);
  }
}

/// A file as u8 [bytes].
Tensor bytes_in(const fs::path& path) {
  const MappedFile file(path);
  return tensor_from_bytes(file.bytes().data(), {static_cast<Extent>(file.bytes().size())}, DType::u8, kCpu);
}

}  // namespace

Offer::Offer(const Elsewhere& place) {
  if (place.from.empty()) {
    catalogue.emplace(registry, op::CatalogueOptions{.any_files = true,
                                                     .may_fetch = true,
                                                     .tensor_bytes_max = UINT64_MAX,
                                                     .handles_max = SIZE_MAX,
                                                     .handle_bytes_max = UINT64_MAX});
    return;
  }
  serve::from_call(*registry, connect(place));
}

Value call_input(const std::string& text, const std::vector<std::string>& tensors, op::Handles& handles) {
  Value input = Value::Object();
  if (text.starts_with('@'))
    input = Value::parse(read_text_file(text.substr(1)), text.substr(1));
  else if (!text.empty())
    input = parse_argument(text, "--input");
  input = op::from_wire(std::move(input), handles, "owner");
  for (const std::string& pair : tensors) {
    auto [name, file] = named_file(pair, "--tensor", "FILE");
    if (!input.is_object()) throw UsageError("--tensor adds members to an input that is an object");
    Tensor tensor = fs::path(file).extension() == ".npy" ? load_npy(file) : bytes_in(file);
    if (!name.ends_with("[]")) {
      input.members().set(name, std::move(tensor));
      continue;
    }
    name.resize(name.size() - 2);
    if (!input.find(name)) input.members().set(name, Value::Array());
    Value& list = *input.members().find(name);
    if (!list.is_array())
      throw UsageError(fmt::format("--tensor {}: the member {} is not a list", quote(pair), quote(name)));
    list.elements().push_back(std::move(tensor));
  }
  return input;
}

void write_tensors(const fs::path& path, const Value& data) {
  NamedTensors tensors;
  collect(data, "", tensors);
  if (tensors.empty()) throw UsageError("--out: the answer has no tensors");
  if (path.extension() == ".safetensors") return save_safetensors(path, tensors);
  if (path.extension() == ".npz") return save_npz(path, tensors);
  if (tensors.size() > 1)
    throw UsageError(
        fmt::format("--out: the answer has {} tensors; write a .npz or .safetensors file", tensors.size()));
  const Tensor& tensor = tensors.begin()->second;
  if (path.extension() == ".npy") return save_npy(path, tensor);
  if (tensor.dtype() != DType::u8 || tensor.rank() != 1)
    throw UsageError(fmt::format("--out: the answer is {} {}, not the bytes of a file; write it to a .npy file",
                                 name_of(tensor.dtype()), tensor.shape().to_string()));
  const std::vector<std::uint8_t> bytes = tensor.to_vector<std::uint8_t>();
  write_file_atomically(path, [&](AtomicFile& out) { out.write(std::as_bytes(std::span(bytes))); });
}

int exit_code_of(const op::OperationError& error) {
  for (const std::string_view code : {op::kNotFound, op::kValidationError, std::string_view("USAGE_ERROR"),
                                      std::string_view("SHAPE_ERROR"), std::string_view("DTYPE_ERROR")})
    if (error.code() == code) return kUsage;
  if (error.code() == "FILE_ERROR") return kFile;
  if (error.code() == "DEVICE_ERROR") return kDevice;
  return kFailure;
}

std::pair<std::string, std::string> named_file(const std::string& pair, std::string_view option,
                                               std::string_view file) {
  const auto equals = pair.find('=');
  if (equals == std::string::npos || equals == 0)
    throw UsageError(fmt::format("{} is {}, and not NAME={}", option, quote(pair), file));
  return {pair.substr(0, equals), pair.substr(equals + 1)};
}

}  // namespace weft::cli
