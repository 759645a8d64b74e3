// Writing safetensors.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/checked.hpp"
#include "base/json.hpp"
#include "base/quote.hpp"
#include "base/utf8.hpp"
#include "io/safetensors.hpp"
#include "io/safetensors_dtype.hpp"
#include "io/safetensors_limits.hpp"
#include "weft/error.hpp"

namespace weft::io {
namespace {

void check_header_size(std::size_t size) {
  if (size > kMaxHeaderBytes)
    throw UsageError(fmt::format(
        "safetensors: the header takes over {} bytes, the format's limit; use fewer tensors or less metadata",
        kMaxHeaderBytes));
}

/// `text` as a JSON string; `what` names it in the error.
std::string json_text(const std::string& text, std::string_view what) {
  check_header_size(text.size());
  if (const auto at = find_invalid_utf8(text))
    throw UsageError(
        fmt::format("safetensors: {} {} is not UTF-8 at byte {}; encode it first", what, quote(text), *at));
  return Json(text).dump();
}

void check_tensor(const TensorView& tensor) {
  const std::string context = fmt::format("safetensors: tensor {}", quote(tensor.name));
  if (tensor.name == kMetadataName) throw UsageError(fmt::format("{}: the name is reserved; choose another", context));
  const auto bits = safetensors_dtype_bits(tensor.dtype);
  if (!bits)
    throw UsageError(
        fmt::format("{}: unknown dtype {}; the format has {}", context, quote(tensor.dtype), safetensors_dtype_list()));
  if (tensor.shape.rank() > kMaxRank)
    throw UsageError(fmt::format("{}: rank {} is over the limit of {}", context, tensor.shape.rank(), kMaxRank));
  const std::uint64_t total_bits =
      checked_multiply<UsageError, std::uint64_t>(checked_numel<UsageError>(tensor.shape, context), *bits, context);
  if (total_bits % 8 != 0 || total_bits / 8 != tensor.data.size())
    throw UsageError(fmt::format("{}: {} [{}] takes {} bits, but {} bytes of data are given", context, tensor.dtype,
                                 fmt::join(tensor.shape, ", "), total_bits, tensor.data.size()));
}

/// Widest alignment first, so that aligned data stays aligned; then by name.
std::vector<const TensorView*> in_order_of_writing(std::span<const TensorView> tensors) {
  std::vector<const TensorView*> order;
  for (const TensorView& tensor : tensors) {
    check_tensor(tensor);
    order.push_back(&tensor);
  }
  std::sort(order.begin(), order.end(), [](const TensorView* a, const TensorView* b) {
    const auto rank_a = safetensors_dtype_rank(a->dtype), rank_b = safetensors_dtype_rank(b->dtype);
    return rank_a != rank_b ? rank_a > rank_b : a->name < b->name;
  });
  std::vector<std::string_view> names;
  for (const TensorView& tensor : tensors) names.push_back(tensor.name);
  std::sort(names.begin(), names.end());
  if (const auto twice = std::adjacent_find(names.begin(), names.end()); twice != names.end())
    throw UsageError(fmt::format("safetensors: two tensors are named {}; give each its own name", quote(*twice)));
  return order;
}

/// Header length and header.
std::string header_of(const std::vector<const TensorView*>& order, const SafetensorsMetadata& metadata) {
  std::string json = "{";
  const auto separate = [&] {
    if (json.back() != '{') json += ',';
  };
  if (!metadata.empty()) {
    json += "\"__metadata__\":{";
    for (const auto& [key, value] : metadata) {
      separate();
      json += json_text(key, "metadata key") + ":" + json_text(value, "metadata value");
    }
    json += "}";
  }
  std::uint64_t at = 0;
  for (const TensorView* tensor : order) {
    const std::uint64_t end =
        checked_add<UsageError, std::uint64_t>(at, tensor->data.size(), "safetensors: size of the data");
    separate();
    json += fmt::format("{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}",
                        json_text(tensor->name, "tensor name"), tensor->dtype, fmt::join(tensor->shape, ","), at, end);
    at = end;
  }
  json += "}";
  json.resize((json.size() + 7) / 8 * 8, ' ');
  check_header_size(json.size());
  std::string length(8, '\0');
  for (int i = 0; i < 8; ++i) length[static_cast<std::size_t>(i)] = static_cast<char>(json.size() >> (8 * i) & 0xFF);
  return length + json;
}

}  // namespace

void write_safetensors(const std::filesystem::path& path, std::span<const TensorView> tensors,
                       const SafetensorsMetadata& metadata, AtomicFileOptions options) {
  const auto order = in_order_of_writing(tensors);
  const std::string header = header_of(order, metadata);
  std::uint64_t total = header.size();
  for (const TensorView* tensor : order) total += tensor->data.size();
  options.expected_bytes = std::max(options.expected_bytes, total);
  write_file_atomically(
      path,
      [&](AtomicFile& file) {
        file.write(header);
        for (const TensorView* tensor : order) file.write(tensor->data);
      },
      options);
}

std::vector<std::byte> safetensors_bytes(std::span<const TensorView> tensors, const SafetensorsMetadata& metadata) {
  const auto order = in_order_of_writing(tensors);
  const std::string header = header_of(order, metadata);
  const auto head = std::as_bytes(std::span(header));
  std::vector<std::byte> bytes(head.begin(), head.end());
  for (const TensorView* tensor : order) bytes.insert(bytes.end(), tensor->data.begin(), tensor->data.end());
  return bytes;
}

}  // namespace weft::io
