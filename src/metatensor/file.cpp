// Reading: the header's rules, the places of parts, and tensors over the mapped memory.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/quote.hpp"
#include "base/text_map.hpp"
#include "metatensor/parts.hpp"
#include "metatensor/typedef_node.hpp"
#include "ops/names.hpp"
#include "runtime/host_memory.hpp"

namespace weft::metatensor {

using io::FormatFindings;

namespace {

constexpr std::uint64_t kSchemaValuesMax = 2'000'000;

std::uint64_t little_endian_u64(const std::byte* from) { return typedefs::detail::load_bits(from, 8, false); }

}  // namespace

struct File::State {
  struct Part {
    const Node* node;
    const io::TensorView* data;
    const io::TensorView* index = nullptr;  // of a blob
  };
  io::SafetensorsFile tensors;
  bool has_schema = false, is_mapped = false;
  Node schema;
  std::map<std::string, std::string> metadata;
  std::vector<std::string> paths;
  TextMap<Part> parts;

  std::uint64_t byte_of(const io::TensorView& view) const { return tensors.data_begin() + tensors.offset_of(view); }

  void read(std::span<const std::byte> bytes, std::string source, FormatFindings& findings,
            const std::vector<FormatViolation>* known);
  bool read_schema(FormatFindings& findings);
  void match(FormatFindings& findings, const std::vector<FormatViolation>* known);
  void check_data(FormatFindings& findings) const;
  void check_bools(const std::string& path, const io::TensorView& view, FormatFindings& findings) const;
  void check_records(const std::string& path, const Part& part, FormatFindings& findings) const;
  void check_blob(const std::string& path, const Part& part, FormatFindings& findings) const;

  /// The part that a path begins with, and the rest of the path.
  std::pair<const Part*, std::string_view> locate(std::string_view path) const;
  std::span<const std::byte> bytes(std::string_view path) const;
  std::span<const std::byte> entry(const Part& part, std::string_view path, std::uint64_t index) const;
  [[noreturn]] void refuse(std::string_view path, std::string_view fact) const {
    throw FileError(fmt::format("{}: {} {}", tensors.source(), quote(path), fact));
  }
};

// ---- The rules of headers -----------------------------------------------------------------------------------------------------

void File::State::read(std::span<const std::byte> bytes, std::string source, FormatFindings& findings,
                       const std::vector<FormatViolation>* known) {
  tensors = io::SafetensorsFile::parse(bytes, std::move(source), findings);
  if (tensors.data_begin() == 0) return;  // the header was not read
  metadata = tensors.metadata();
  has_schema = metadata.contains(std::string(kMetadataKey));
  if (has_schema) {
    const bool is_read = read_schema(findings);
    metadata.erase(std::string(kMetadataKey));
    if (is_read) match(findings, known);
    return;
  }
  for (const io::TensorView& view : tensors.tensors()) {
    const auto dtype = io::dtype_from_safetensors(view.dtype);
    // Types that Weft lacks are bytes.
    schema.fields.push_back(
        {view.name, dtype ? flat(*dtype, view.shape) : flat(DType::u8, Shape{static_cast<Extent>(view.data.size())})});
  }
  for (std::size_t i = 0; i < schema.fields.size(); ++i) {
    paths.push_back(schema.fields[i].name);
    parts.emplace(paths.back(), Part{&schema.fields[i].node, &tensors.tensors()[i]});
  }
}

// False if it was reported.
bool File::State::read_schema(FormatFindings& findings) {
  const auto report = [&](std::string_view code, std::string_view fact) {
    findings.add(code, 8, "", fmt::format("{}: {}", tensors.source(), fact));
    return false;
  };
  try {
    const Value header =
        Value::parse(metadata.at(std::string(kMetadataKey)), "__metadata__ \"metatensor\"", kSchemaValuesMax);
    if (!header.is_object()) return report("SCHEMA_INVALID", "__metadata__ \"metatensor\" is not an object");
    const Value *version = header.find("version"), *endian = header.find("endian"), *root = header.find("schema");
    if (!version || *version != Value(kVersion))
      return report("UNKNOWN_VERSION", fmt::format("the version of the format is {}; this program reads {}",
                                                   version ? quote(version->to_json(), 40) : "missing", kVersion));
    if (!endian || *endian != Value("little"))
      return report("UNKNOWN_ENDIAN", "the format is little-endian, and the header does not say so");
    if (!root) return report("SCHEMA_INVALID", "__metadata__ \"metatensor\" has no schema");
    schema = node_from(*root);
    if (schema.kind == Kind::structure) return true;
    schema = {};
    return report("SCHEMA_INVALID", "the root of the schema is not a struct of fields");
  } catch (const FormatError&) {
    throw;
  } catch (const Error& error) {
    return report("SCHEMA_INVALID", error.what());
  }
}

// Compares the schema with the tensors of the header.
void File::State::match(FormatFindings& findings, const std::vector<FormatViolation>* known) {
  std::set<std::string, std::less<>> reported;  // copies, because `known` grows meanwhile
  std::set<std::string_view> described;
  if (known)
    for (const FormatViolation& each : *known) reported.insert(each.name);
  std::uint64_t alignment_max = 1;
  const auto report = [&](std::string_view code, std::uint64_t byte, const std::string& name, std::string_view fact) {
    findings.add(code, byte, name, fmt::format("{}: tensor {}: {}", tensors.source(), quote(name), fact));
  };
  // The tensor of the header that a part of the schema is; null, and reported, if there is none, or another one.
  const auto find = [&](const std::string& name, std::string_view dtype, const Shape* shape,
                        std::uint64_t alignment) -> const io::TensorView* {
    const io::TensorView* view = tensors.find(name);
    if (!view) {
      if (!reported.contains(name)) report("MISSING_TENSOR", 8, name, "the schema has it, and the header does not");
      return nullptr;
    }
    described.insert(view->name);
    if (view->dtype != dtype || (shape ? view->shape != *shape : view->shape.rank() != 1)) {
      report("TENSOR_MISMATCH", byte_of(*view), name,
             fmt::format("the header has {} {}, and by the schema it is {} {}", view->dtype, view->shape.to_string(),
                         dtype, shape ? shape->to_string() : "of rank 1"));
      return nullptr;
    }
    alignment_max = std::max(alignment_max, alignment);
    if (tensors.offset_of(*view) % alignment != 0)
      report("MISALIGNED", byte_of(*view), name,
             fmt::format("its data begins at byte {}, which is not a multiple of {}", tensors.offset_of(*view),
                         alignment));
    return view;
  };
  for_each_leaf(schema, [&](const std::string& path, const Node& node) {
    try {
      if (node.kind == Kind::blob) {
        const auto wanted = stored_parts(path, node, 0);
        const io::TensorView* index = find(wanted[0].name, wanted[0].dtype, &wanted[0].shape, kIndexAlignment);
        const io::TensorView* data = find(wanted[1].name, wanted[1].dtype, nullptr, node.alignment);
        if (index && data) parts.emplace(path, Part{&node, data, index});
      } else {
        const io::TensorInfo wanted = stored_parts(path, node, 0)[0];
        if (const io::TensorView* data = find(wanted.name, wanted.dtype, &wanted.shape, node.alignment))
          parts.emplace(path, Part{&node, data});
      }
    } catch (const UsageError& error) {
      findings.add("SCHEMA_INVALID", 8, path, fmt::format("{}: {}", tensors.source(), error.what()));
    }
  });
  for (const auto& [path, part] : parts) paths.push_back(path);
  std::sort(paths.begin(), paths.end(), [&](const std::string& a, const std::string& b) {
    const auto place = [&](const std::string& path) {
      return std::pair(tensors.offset_of(*parts.find(path)->second.data), std::string_view(path));
    };
    return place(a) < place(b);
  });
  if (tensors.data_begin() % alignment_max != 0)
    report("MISALIGNED", tensors.data_begin(), "",
           fmt::format("the data region begins at byte {}, which is not a multiple of {}", tensors.data_begin(),
                       alignment_max));
  for (const io::TensorView& view : tensors.tensors()) {
    if (described.contains(view.name)) continue;
    if (!view.name.starts_with(kPadding))
      report("UNDESCRIBED_TENSOR", byte_of(view), view.name, "the header has it, and the schema does not");
    else if (view.dtype != "U8" || view.shape.rank() != 1 || view.data.size() >= kAlignmentMax)
      report("INVALID_PADDING", byte_of(view), view.name,
             fmt::format("padding is U8 of fewer than {} bytes", kAlignmentMax));
  }
}

// ---- The rules of data --------------------------------------------------------------------------------------------------------

void File::State::check_data(FormatFindings& findings) const {
  for (const io::TensorView& view : tensors.tensors()) {
    if (!has_schema || !view.name.starts_with(kPadding)) continue;
    const auto other = std::find_if(view.data.begin(), view.data.end(), [](std::byte b) { return b != std::byte{0}; });
    if (other != view.data.end())
      findings.add("NONZERO_PADDING", byte_of(view) + static_cast<std::uint64_t>(other - view.data.begin()), view.name,
                   fmt::format("{}: tensor {}: padding has a byte other than 0", tensors.source(), quote(view.name)));
  }
  for (const std::string& path : paths) {
    const Part& part = parts.find(path)->second;
    if (part.node->kind == Kind::flat && part.node->dtype == DType::boolean) check_bools(path, *part.data, findings);
    if (part.node->kind == Kind::records) check_records(path, part, findings);
    if (part.node->kind == Kind::blob) check_blob(path, part, findings);
  }
}

void File::State::check_bools(const std::string& path, const io::TensorView& view, FormatFindings& findings) const {
  const auto bad = std::find_if(view.data.begin(), view.data.end(), [](std::byte b) { return b > std::byte{1}; });
  if (bad == view.data.end()) return;
  const auto at = static_cast<std::uint64_t>(bad - view.data.begin());
  findings.add("INVALID_BOOL", byte_of(view) + at, path,
               fmt::format("{}: tensor {}: element {} is the byte {}; only 0 and 1 are truth values", tensors.source(),
                           quote(path), at, static_cast<int>(*bad)));
}

void File::State::check_records(const std::string& path, const Part& part, FormatFindings& findings) const {
  const std::uint64_t stride = part.node->layout->stride();
  for (std::uint64_t i = 0; i < part.node->count; ++i) {
    try {
      part.node->layout->view(part.data->data.subspan(i * stride, stride)).check();
    } catch (const typedefs::LayoutError& error) {
      findings.add("INVALID_RECORD", byte_of(*part.data) + i * stride, path,
                   fmt::format("{}: {} {}: {}", tensors.source(), quote(path), i, error.what()));
    }
  }
}

void File::State::check_blob(const std::string& path, const Part& part, FormatFindings& findings) const {
  std::uint64_t end = 0;
  for (std::uint64_t i = 0; i < part.node->count; ++i) {
    const std::byte* row = part.index->data.data() + 16 * i;
    const std::uint64_t offset = little_endian_u64(row), length = little_endian_u64(row + 8);
    const auto report = [&](std::string_view code, std::string_view fact) {
      findings.add(code, byte_of(*part.index) + 16 * i, path,
                   fmt::format("{}: {}: entry {} has offset {} and length {}; {}", tensors.source(), quote(path), i,
                               offset, length, fact));
    };
    if (offset > part.data->data.size() || length > part.data->data.size() - offset) {
      report("BLOB_RANGE", fmt::format("the blob has {} bytes", part.data->data.size()));
      continue;
    }
    if (offset < end) report("BLOB_OVERLAP", fmt::format("the entries before it end at {}", end));
    end = std::max(end, offset + length);
  }
}

// ---- Places -------------------------------------------------------------------------------------------------------------------

std::pair<const File::State::Part*, std::string_view> File::State::locate(std::string_view path) const {
  for (std::string_view head = path;;) {
    if (const auto found = parts.find(head); found != parts.end())
      return {&found->second, head.size() == path.size() ? std::string_view() : path.substr(head.size() + 1)};
    const auto dot = head.rfind('.');
    if (dot == std::string_view::npos) break;
    head = head.substr(0, dot);
  }
  const std::vector<std::string_view> names(paths.begin(), paths.end());
  const std::string_view nearest = nearest_name(path, names);
  refuse(path,
         nearest.empty() ? "is not in the file" : fmt::format("is not in the file. Did you mean {}?", quote(nearest)));
}

std::span<const std::byte> File::State::entry(const Part& part, std::string_view path, std::uint64_t index) const {
  if (index >= part.node->count) refuse(path, fmt::format("is beyond the {} entries", part.node->count));
  const std::byte* row = part.index->data.data() + 16 * index;
  const std::uint64_t offset = little_endian_u64(row), length = little_endian_u64(row + 8);
  if (offset > part.data->data.size() || length > part.data->data.size() - offset)
    refuse(path, fmt::format("has offset {} and length {}, beyond the {} bytes of the blob; the file is damaged",
                             offset, length, part.data->data.size()));
  return part.data->data.subspan(offset, length);
}

std::span<const std::byte> File::State::bytes(std::string_view path) const {
  const auto [part, rest] = locate(path);
  if (rest.empty()) return part->data->data;
  const std::string_view first = rest.substr(0, rest.find('.'));
  const auto index = typedefs::detail::index_from(first);
  if (part->node->kind == Kind::flat || !index) refuse(path, "is not in the file: there is no such part");
  if (part->node->kind == Kind::blob) {
    if (first.size() != rest.size()) refuse(path, "is not in the file: entries have no parts");
    return entry(*part, path, *index);
  }
  if (*index >= part->node->count) refuse(path, fmt::format("is beyond the {} records", part->node->count));
  const std::uint64_t stride = part->node->layout->stride();
  const std::span<const std::byte> record = part->data->data.subspan(*index * stride, stride);
  if (first.size() == rest.size()) return record;
  const typedefs::Range range = part->node->layout->range(rest.substr(first.size() + 1));
  return record.subspan(range.begin, range.size());
}

// ---- File ---------------------------------------------------------------------------------------------------------------------

File File::open(const std::filesystem::path& path) {
  const MappedFile mapping(path);
  FormatFindings findings(nullptr);
  struct Mapped {
    MappedFile mapping;
    State state;
  };
  const auto mapped = std::make_shared<Mapped>(Mapped{mapping, {}});
  mapped->state.is_mapped = true;
  mapped->state.read(mapped->mapping.bytes(), path.string(), findings, nullptr);
  File file;
  file.state_ = std::shared_ptr<const State>(mapped, &mapped->state);
  return file;
}

File File::parse(std::span<const std::byte> bytes, std::string source) {
  FormatFindings findings(nullptr);
  const auto state = std::make_shared<State>();
  state->read(bytes, std::move(source), findings, nullptr);
  File file;
  file.state_ = state;
  return file;
}

bool File::has_schema() const { return state_->has_schema; }
const Node& File::schema() const { return state_->schema; }
const std::map<std::string, std::string>& File::metadata() const { return state_->metadata; }
const std::vector<std::string>& File::paths() const { return state_->paths; }

const Node& File::at(std::string_view path) const {
  if (const auto found = state_->parts.find(path); found != state_->parts.end()) return *found->second.node;
  const Node* node = &state_->schema;
  for (const std::string_view name : typedefs::detail::parts_of(path))
    if (node) node = node->find(name);
  if (node) return *node;
  state_->locate(path);
  state_->refuse(path, "has no node of its own in the schema");
}

typedefs::Range File::range(std::string_view path) const {
  const std::span<const std::byte> part = state_->bytes(path);
  const auto [owner, rest] = state_->locate(path);
  const std::uint64_t begin =
      state_->tensors.offset_of(*owner->data) + static_cast<std::uint64_t>(part.data() - owner->data->data.data());
  return {begin, begin + part.size()};
}

std::span<const std::byte> File::bytes(std::string_view path) const { return state_->bytes(path); }

void File::read(std::string_view path, const std::function<void(std::span<const std::byte>)>& put,
                std::uint64_t piece_bytes) const {
  if (piece_bytes == 0) throw UsageError("pieces of 0 bytes never end");
  const std::span<const std::byte> all = state_->bytes(path);
  for (std::uint64_t at = 0; at < all.size(); at += piece_bytes) {
    const auto piece = all.subspan(at, std::min<std::uint64_t>(piece_bytes, all.size() - at));
    put(piece);
    if (state_->is_mapped) release_pages(piece);
  }
}

namespace {

void require_bools(std::span<const std::byte> data, const std::string& source, std::string_view path) {
  for (std::size_t i = 0; i < data.size(); ++i)
    if (data[i] > std::byte{1})
      throw FileError(fmt::format("{}: {}: element {} is the byte {}; only 0 and 1 are truth values", source,
                                  quote(path), i, static_cast<int>(data[i])));
}

}  // namespace

Tensor File::tensor(std::string_view path, Device device) const {
  const auto [part, rest] = state_->locate(path);
  DType dtype = part->node->dtype;
  Shape shape = part->node->shape;
  if (part->node->kind == Kind::records && rest.find('.') != std::string_view::npos)
    std::tie(dtype, shape) = part->node->layout->tensor_at(rest.substr(rest.find('.') + 1));
  else if (part->node->kind != Kind::flat)
    state_->refuse(path, "is not a tensor; it has bytes, records or entries");
  const std::span<const std::byte> data = state_->bytes(path);
  if (dtype == DType::boolean) require_bools(data, state_->tensors.source(), path);
  try {
    const Tensor result = device == kCpu ? runtime::borrow_host(state_, data.data(), shape, dtype)
                                         : tensor_from_bytes(data.data(), shape, dtype, device);
    return result.named(path);
  } catch (Error& error) {
    error.add_context(fmt::format("loading {}", quote(path)));
    throw;
  }
}

typedefs::View File::record(std::string_view path, std::uint64_t index) const {
  const auto [part, rest] = state_->locate(path);
  if (part->node->kind != Kind::records || !rest.empty()) state_->refuse(path, "is not a list of records");
  return part->node->layout->view(state_->bytes(fmt::format("{}.{}", path, index)));
}

Tensor File::column(std::string_view path, std::string_view field, std::uint64_t first, std::uint64_t count,
                    Device device) const {
  const auto [part, rest] = state_->locate(path);
  if (part->node->kind != Kind::records || !rest.empty()) state_->refuse(path, "is not a list of records");
  if (first > part->node->count || count > part->node->count - first)
    state_->refuse(path,
                   fmt::format("has {} records; [{}, {}) is beyond them", part->node->count, first, first + count));
  const auto [dtype, shape] = part->node->layout->tensor_at(field);
  const typedefs::Range range = part->node->layout->range(field);
  if (is_packed(dtype) && shape.numel() * element(dtype).bits % 8 != 0)
    state_->refuse(path, fmt::format("{}: its elements do not fill whole bytes; read record by record", quote(field)));
  Shape whole{static_cast<Extent>(count)};
  for (const Extent extent : shape) whole.push_back(extent);
  std::vector<std::byte> rows;
  rows.reserve(count * range.size() + 1);
  const std::uint64_t stride = part->node->layout->stride();
  for (std::uint64_t i = first; i < first + count; ++i) {
    const auto row = part->data->data.subspan(i * stride + range.begin, range.size());
    rows.insert(rows.end(), row.begin(), row.end());
  }
  if (dtype == DType::boolean) require_bools(rows, state_->tensors.source(), field);
  return tensor_from_bytes(rows.data(), whole, dtype, device);
}

std::vector<FormatViolation> validate(std::span<const std::byte> bytes, std::string source) {
  std::vector<FormatViolation> list;
  FormatFindings findings(&list);
  File::State state;
  state.read(bytes, std::move(source), findings, &list);
  state.check_data(findings);
  return list;
}

std::vector<FormatViolation> validate(const std::filesystem::path& path) {
  const MappedFile mapping(path);
  return validate(mapping.bytes(), path.string());
}

}  // namespace weft::metatensor
