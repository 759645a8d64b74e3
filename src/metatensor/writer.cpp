// Writing: parts in the order in which they were added, with padding between them where alignments need it.
#include <fmt/format.h>

#include <algorithm>

#include "base/checked.hpp"
#include "base/quote.hpp"
#include "metatensor/parts.hpp"
#include "metatensor/typedef_node.hpp"
#include "runtime/host_memory.hpp"

namespace weft::metatensor {
namespace {

constexpr std::size_t kDepthMax = 24;  // of paths: the header's JSON nests twice as deep, and 64 levels are read

std::uint64_t bytes_of(const io::TensorInfo& info) {
  const auto bits = static_cast<std::uint64_t>(*io::safetensors_dtype_bits(info.dtype));
  return checked_multiply<UsageError, std::uint64_t>(checked_numel<UsageError>(info.shape, quote(info.name)), bits,
                                                     quote(info.name)) /
         8;
}

void check_name(std::string_view path, std::string_view name) {
  if (name.empty() || name.starts_with("__"))
    throw UsageError(
        fmt::format("the path {} has an empty name, or one that begins with __; choose another", quote(path)));
}

std::uint64_t total_of(const std::vector<std::uint64_t>& lengths) {
  std::uint64_t total = 0;
  for (const std::uint64_t length : lengths)
    total = checked_add<UsageError, std::uint64_t>(total, length, "the data of a blob");
  return total;
}

}  // namespace

void Writer::add(std::string_view path, Node node, Source data, std::vector<std::uint64_t> lengths) {
  const std::vector<std::string_view> names = typedefs::detail::parts_of(path);
  if (names.empty()) throw UsageError("the path is empty; give each part a name");
  if (names.size() > kDepthMax)
    throw UsageError(fmt::format("the path {} has more than {} names", quote(path), kDepthMax));
  for (const std::string_view name : names) check_name(path, name);
  Node* at = &schema_;
  for (std::size_t i = 0; i + 1 < names.size(); ++i) {
    Node* next = const_cast<Node*>(at->find(names[i]));
    if (!next) next = &at->fields.emplace_back(Field{std::string(names[i]), Node()}).node;
    if (next->kind != Kind::structure)
      throw UsageError(fmt::format("{} is below {}, which is not a struct", quote(path), quote(names[i])));
    at = next;
  }
  if (at->find(names.back())) throw UsageError(fmt::format("there already is {}", quote(path)));
  for (const io::TensorInfo& info : stored_parts(std::string(path), node, total_of(lengths))) bytes_of(info);
  at->fields.push_back({std::string(names.back()), std::move(node)});
  items_.push_back({std::string(path), std::move(lengths), std::move(data)});
}

Node* Writer::find(std::string_view path) {
  Node* node = &schema_;
  for (const std::string_view name : typedefs::detail::parts_of(path))
    if (node) node = const_cast<Node*>(node->find(name));
  if (!node || node == &schema_) throw UsageError(fmt::format("{} was not added", quote(path)));
  return node;
}

Writer& Writer::tensor(std::string_view path, Tensor tensor, std::uint64_t alignment) {
  if (!tensor.defined()) throw UsageError(fmt::format("{}: the tensor has no value", quote(path)));
  const DType dtype = tensor.dtype();
  const Shape shape = tensor.shape();
  return this->tensor(
      path, dtype, shape,
      [tensor = std::move(tensor)](const auto& put) {
        const runtime::HostView view = runtime::view_host(tensor);
        put({static_cast<const std::byte*>(view.data),
             weft::bytes_of(tensor.dtype(), static_cast<std::size_t>(tensor.numel()))});
      },
      alignment);
}

Writer& Writer::tensor(std::string_view path, DType dtype, Shape shape, Source data, std::uint64_t alignment) {
  add(path, flat(dtype, std::move(shape), alignment), std::move(data));
  return *this;
}

Writer& Writer::records(std::string_view path, const typedefs::Layout& layout, std::span<const Value> values) {
  const std::uint64_t stride = metatensor::records(layout, 0).layout->stride();
  std::vector<std::byte> bytes(values.size() * stride);
  for (std::size_t i = 0; i < values.size(); ++i) {
    try {
      const typedefs::Encoded encoded = layout.encode(values[i]);
      std::copy(encoded.data.begin(), encoded.data.end(), bytes.begin() + static_cast<std::ptrdiff_t>(i * stride));
    } catch (Error& error) {
      error.add_context(fmt::format("encoding record {} of {}", i, quote(path)));
      throw;
    }
  }
  return records(path, layout, values.size(), [bytes = std::move(bytes)](const auto& put) { put(bytes); });
}

Writer& Writer::records(std::string_view path, const typedefs::Layout& layout, std::uint64_t count, Source data) {
  add(path, metatensor::records(layout, count), std::move(data));
  return *this;
}

Writer& Writer::blob(std::string_view path, std::span<const std::string> entries) {
  std::vector<std::uint64_t> lengths;
  for (const std::string& entry : entries) lengths.push_back(entry.size());
  return blob(path, std::move(lengths),
              [all = std::vector<std::string>(entries.begin(), entries.end())](const auto& put) {
                for (const std::string& entry : all) put(std::as_bytes(std::span(entry)));
              });
}

Writer& Writer::blob(std::string_view path, std::vector<std::uint64_t> lengths, Source data) {
  const std::uint64_t count = lengths.size();
  add(path, metatensor::blob(count), std::move(data), std::move(lengths));
  return *this;
}

Writer& Writer::optional(std::string_view path) {
  find(path)->is_optional = true;
  return *this;
}

Writer& Writer::metadata(std::string_view key, std::string text) {
  if (key == kMetadataKey) throw UsageError("the key \"metatensor\" of the header holds the schema; choose another");
  metadata_.insert_or_assign(std::string(key), std::move(text));
  return *this;
}

void Writer::save(const std::filesystem::path& path) const {
  struct Job {
    const Item* item = nullptr;  // null: padding
    bool is_index = false;
    std::uint64_t padding = 0;
  };
  std::vector<io::TensorInfo> infos;
  std::vector<Job> jobs;
  std::uint64_t at = 0;
  std::size_t paddings = 0;
  const auto place = [&](const io::TensorInfo& info, std::uint64_t alignment, Job job) {
    if (const std::uint64_t gap = (alignment - at % alignment) % alignment; gap != 0) {
      infos.push_back({fmt::format("{}{}", kPadding, paddings++), "U8", Shape{static_cast<Extent>(gap)}});
      jobs.push_back({nullptr, false, gap});
      at += gap;
    }
    infos.push_back(info);
    jobs.push_back(job);
    at = checked_add<UsageError, std::uint64_t>(at, bytes_of(info), "the data region");
  };
  for (const Item& item : items_) {
    const Node* node = &schema_;
    for (const std::string_view name : typedefs::detail::parts_of(item.path)) node = node->find(name);
    const auto parts = stored_parts(item.path, *node, total_of(item.lengths));
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const bool is_index = node->kind == Kind::blob && i == 0;
      place(parts[i], is_index ? kIndexAlignment : node->alignment, {&item, is_index, 0});
    }
  }
  io::SafetensorsMetadata metadata = metadata_;
  metadata[std::string(kMetadataKey)] = header_text(schema_);
  io::write_safetensors_in_order(path, infos, metadata, kAlignmentMax, [&](std::size_t i, const auto& put) {
    const Job& job = jobs[i];
    if (!job.item) {
      const std::byte zeros[kAlignmentMax] = {};
      put(std::span(zeros).first(job.padding));
    } else if (job.is_index) {
      std::uint64_t offset = 0;
      std::byte row[16];
      for (const std::uint64_t length : job.item->lengths) {
        typedefs::detail::store_bits(offset, row, 8, false);
        typedefs::detail::store_bits(length, row + 8, 8, false);
        put(row);
        offset += length;
      }
    } else if (job.item->data) {
      job.item->data(put);
    }
  });
}

}  // namespace weft::metatensor
