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

/// A tensor, and the bytes that its data takes.
struct Item {
  const std::string* name;
  const std::string* dtype;
  const Shape* shape;
  std::uint64_t bytes;
  std::size_t index;  // in the caller's order
};

template <class Tensor>
Item checked_item(const Tensor& tensor, std::size_t index) {
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
  if (total_bits % 8 != 0)
    throw UsageError(
        fmt::format("{}: {} [{}] takes {} bits, which is not a whole number of bytes; pad it to an even count", context,
                    tensor.dtype, fmt::join(tensor.shape, ", "), total_bits));
  if constexpr (requires { tensor.data; })
    if (total_bits / 8 != tensor.data.size())
      throw UsageError(fmt::format("{}: {} [{}] takes {} bits, but {} bytes of data are given", context, tensor.dtype,
                                   fmt::join(tensor.shape, ", "), total_bits, tensor.data.size()));
  return {&tensor.name, &tensor.dtype, &tensor.shape, total_bits / 8, index};
}

template <class Tensor>
std::vector<Item> checked_items(std::span<const Tensor> tensors) {
  std::vector<Item> items;
  for (const Tensor& tensor : tensors) items.push_back(checked_item(tensor, items.size()));
  std::vector<std::string_view> names;
  for (const Tensor& tensor : tensors) names.push_back(tensor.name);
  std::sort(names.begin(), names.end());
  if (const auto twice = std::adjacent_find(names.begin(), names.end()); twice != names.end())
    throw UsageError(fmt::format("safetensors: two tensors are named {}; give each its own name", quote(*twice)));
  return items;
}

/// Widest alignment first, so that aligned data stays aligned; then by name.
template <class Tensor>
std::vector<Item> in_order_of_writing(std::span<const Tensor> tensors) {
  std::vector<Item> order = checked_items(tensors);
  std::sort(order.begin(), order.end(), [](const Item& a, const Item& b) {
    const auto rank_a = safetensors_dtype_rank(*a.dtype), rank_b = safetensors_dtype_rank(*b.dtype);
    return rank_a != rank_b ? rank_a > rank_b : *a.name < *b.name;
  });
  return order;
}

/// Header length and header.
std::string header_text(const std::vector<Item>& order, const SafetensorsMetadata& metadata,
                        std::uint64_t data_alignment = 8) {
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
  for (const Item& item : order) {
    const std::uint64_t end = checked_add<UsageError, std::uint64_t>(at, item.bytes, "safetensors: size of the data");
    separate();
    json += fmt::format("{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}",
                        json_text(*item.name, "tensor name"), *item.dtype, fmt::join(*item.shape, ","), at, end);
    at = end;
  }
  json += "}";
  json.resize(checked_align_up<UsageError, std::size_t>(json.size() + 8, data_alignment, "safetensors: header") - 8,
              ' ');
  check_header_size(json.size());
  std::string length(8, '\0');
  const std::uint64_t size = json.size();
  for (int i = 0; i < 8; ++i) length[static_cast<std::size_t>(i)] = static_cast<char>(size >> (8 * i) & 0xFF);
  return length + json;
}

template <class WriteData>
void write_in_order(const std::filesystem::path& path, const std::vector<Item>& order, const std::string& header,
                    const WriteData& write_data, AtomicFileOptions options) {
  std::uint64_t total = header.size();
  for (const Item& item : order) total += item.bytes;
  options.expected_bytes = std::max(options.expected_bytes, total);
  write_file_atomically(
      path,
      [&](AtomicFile& file) {
        file.write(header);
        for (const Item& item : order) write_data(item, file);
      },
      options);
}

void write_from_source(const std::filesystem::path& path, const std::vector<Item>& order, const std::string& header,
                       const TensorDataSource& data, AtomicFileOptions options) {
  write_in_order(
      path, order, header,
      [&](const Item& item, AtomicFile& file) {
        std::uint64_t written = 0;
        data(item.index, [&](std::span<const std::byte> bytes) {
          written += bytes.size();
          file.write(bytes);
        });
        if (written != item.bytes)
          throw UsageError(fmt::format("safetensors: tensor {}: {} {} takes {} bytes, but {} bytes of data are given",
                                       quote(*item.name), *item.dtype, item.shape->to_string(), item.bytes, written));
      },
      options);
}

}  // namespace

void write_safetensors(const std::filesystem::path& path, std::span<const TensorView> tensors,
                       const SafetensorsMetadata& metadata, AtomicFileOptions options) {
  const auto order = in_order_of_writing(tensors);
  const std::string header = header_text(order, metadata);
  write_in_order(
      path, order, header, [&](const Item& item, AtomicFile& file) { file.write(tensors[item.index].data); }, options);
}

void write_safetensors(const std::filesystem::path& path, std::span<const TensorInfo> tensors,
                       const SafetensorsMetadata& metadata, const TensorDataSource& data, AtomicFileOptions options) {
  const auto order = in_order_of_writing(tensors);
  write_from_source(path, order, header_text(order, metadata), data, options);
}

void write_safetensors_in_order(const std::filesystem::path& path, std::span<const TensorInfo> tensors,
                                const SafetensorsMetadata& metadata, std::uint64_t data_alignment,
                                const TensorDataSource& data, AtomicFileOptions options) {
  const auto order = checked_items(tensors);
  write_from_source(path, order, header_text(order, metadata, data_alignment), data, options);
}

std::vector<std::byte> safetensors_bytes(std::span<const TensorView> tensors, const SafetensorsMetadata& metadata) {
  const auto order = in_order_of_writing(tensors);
  const std::string header = header_text(order, metadata);
  const auto head = std::as_bytes(std::span(header));
  std::vector<std::byte> bytes(head.begin(), head.end());
  for (const Item& item : order) {
    const std::span<const std::byte> data = tensors[item.index].data;
    bytes.insert(bytes.end(), data.begin(), data.end());
  }
  return bytes;
}

}  // namespace weft::io
