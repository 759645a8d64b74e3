// Nodes of schemas: making them, JSON, and the differences of versions.
#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "base/checked.hpp"
#include "base/quote.hpp"
#include "io/safetensors_dtype.hpp"
#include "metatensor/parts.hpp"
#include "tensor/block_format.hpp"

namespace weft::metatensor {
namespace {

constexpr std::uint64_t kRecordAlignment = 16;

std::uint64_t default_alignment(const Node& node) {
  switch (node.kind) {
    case Kind::flat: return std::max<std::uint64_t>(4, size_bytes(node.dtype));
    case Kind::records: return std::max(kRecordAlignment, node.layout->alignment());
    default: return 4;
  }
}

Node with_alignment(Node node, std::uint64_t alignment) {
  if (alignment != 0 && !is_alignment(alignment))
    throw UsageError(fmt::format("an alignment is a power of two from 1 to {}, and not {}", kAlignmentMax, alignment));
  node.alignment = alignment ? alignment : default_alignment(node);
  return node;
}

[[noreturn]] void refuse(const std::string& place, std::string_view fact) {
  throw UsageError(fmt::format("the schema at {}: {}", place.empty() ? "its root" : quote(place), fact));
}

/// Reads the members of a node; the rest are unknown.
class NodeReader {
 public:
  NodeReader(const Value& value, const std::string& place) : value_(value), place_(place) {
    if (!value.is_object()) refuse(place, "it is not an object");
  }
  const Value* find(std::string_view name) {
    known_.push_back(name);
    return value_.find(name);
  }
  const Value& get(std::string_view name, Value::Kind kind) {
    const Value* found = find(name);
    if (!found || found->kind() != kind) refuse(place_, fmt::format("{} is not {}", name, article(kind)));
    return *found;
  }
  std::uint64_t whole(std::string_view name, std::uint64_t otherwise) {
    const Value* found = find(name);
    if (!found) return otherwise;
    if (!found->is_integer() || compare_numbers(*found, 0) < 0 || compare_numbers(*found, INT64_MAX) > 0)
      refuse(place_, fmt::format("{} is not a whole number of 63 bits", name));
    return static_cast<std::uint64_t>(found->integer());
  }
  void done() const {
    for (const auto& [key, member] : value_.members())
      if (std::find(known_.begin(), known_.end(), key) == known_.end())
        refuse(place_, fmt::format("unknown member {}", quote(key)));
  }

 private:
  static std::string article(Value::Kind kind) {
    return fmt::format("{} {}", kind == Value::Kind::array || kind == Value::Kind::object ? "an" : "a", name_of(kind));
  }
  const Value& value_;
  const std::string& place_;
  std::vector<std::string_view> known_;
};

Node read_flat(NodeReader& reader, const std::string& place, std::uint64_t alignment) {
  const std::string& name = reader.get("dtype", Value::Kind::string).string();
  const auto dtype = dtype_from_name(name);
  if (!dtype) refuse(place, fmt::format("there is no dtype {}", quote(name, 40)));
  Shape shape;
  for (const Value& extent : reader.get("shape", Value::Kind::array).elements()) {
    if (!extent.is_integer() || compare_numbers(extent, 0) < 0 || compare_numbers(extent, INT64_MAX) > 0)
      refuse(place, "an extent is not a whole number of 63 bits");
    if (shape.rank() == io::kMaxRank) refuse(place, fmt::format("the rank is over the limit of {}", io::kMaxRank));
    shape.push_back(extent.integer());
  }
  return flat(*dtype, std::move(shape), alignment);
}

Node read_node(const Value& value, const std::string& place) {
  NodeReader reader(value, place);
  const std::string& kind = reader.get("kind", Value::Kind::string).string();
  const std::uint64_t alignment = reader.whole("align", 0);
  const Value* is_optional = reader.find("optional");
  if (is_optional && is_optional->kind() != Value::Kind::boolean) refuse(place, "optional is not a boolean");
  if ((alignment == 0 && value.find("align")) || (alignment != 0 && !is_alignment(alignment)))
    refuse(place, fmt::format("align is not a power of two from 1 to {}", kAlignmentMax));
  Node node;
  if (kind == "flat") {
    node = read_flat(reader, place, alignment);
  } else if (kind == "blob") {
    node = blob(reader.whole("count", 0), alignment);
  } else if (kind == "struct" && value.find("layout")) {
    const Value* mode = reader.find("mode");
    if (mode && *mode != Value("aligned") && *mode != Value("packed"))
      refuse(place, "mode is neither aligned nor packed");
    try {
      node =
          records(typedefs::Layout(reader.get("layout", Value::Kind::object),
                                   mode && *mode == Value("packed") ? typedefs::Mode::packed : typedefs::Mode::aligned),
                  reader.whole("count", 0), alignment);
    } catch (const typedefs::LayoutError& error) {
      refuse(place, error.what());
    }
  } else if (kind == "struct") {
    for (const auto& [name, field] : reader.get("fields", Value::Kind::object).members()) {
      if (name.empty() || name.find('.') != std::string::npos)
        refuse(place, fmt::format("{} cannot be the name of a field", quote(name)));
      node.fields.push_back({name, read_node(field, place + "/fields/" + name)});
    }
    if (alignment != 0) refuse(place, "align is for tensors, records and blobs");
  } else {
    refuse(place, fmt::format("there is no kind {}; there are flat, struct and blob", quote(kind, 40)));
  }
  node.is_optional = is_optional && is_optional->boolean();
  reader.done();
  return node;
}

// ---- Differences --------------------------------------------------------------------------------------------------------------

std::string joined(const std::string& path, const std::string& name) { return path.empty() ? name : path + "." + name; }

/// What the type of a node is, without alignment, count and optionality.
Value type_of(const Node& node) {
  Value value = to_value(node);
  for (const char* name : {"align", "count", "optional"}) value.members().remove(name);
  return value;
}

using Changes = std::vector<Change>;

/// Members of objects that both have, with `compare`; the others are added or removed.
template <class Fields, class Find, class ValueOf, class Compare>
void compare_fields(const Fields& older, const Fields& newer, const std::string& path, const Find& find,
                    const ValueOf& value_of, const Compare& compare, Changes& out) {
  for (const auto& [name, before] : older) {
    if (const auto* after = find(newer, name))
      compare(before, *after, joined(path, name));
    else
      out.push_back({Change::Kind::removed, joined(path, name), value_of(before), nullptr});
  }
  for (const auto& [name, after] : newer)
    if (!find(older, name)) out.push_back({Change::Kind::added, joined(path, name), nullptr, value_of(after)});
}

/// Structs of layouts, field by field.
void compare_layouts(const Value& older, const Value& newer, const std::string& path, Changes& out) {
  if (older == newer) return;
  const auto fields_of = [](const Value& schema) -> const Value::Object* {
    const Value* properties = schema.is_object() && schema.find("TypeDef:Struct") ? schema.find("properties") : nullptr;
    return properties && properties->is_object() ? &properties->members() : nullptr;
  };
  const Value::Object *before = fields_of(older), *after = fields_of(newer);
  const std::size_t known = out.size();
  if (before && after)
    compare_fields(
        *before, *after, path, [](const Value::Object& object, const std::string& name) { return object.find(name); },
        [](const Value& value) { return value; },
        [&](const Value& a, const Value& b, const std::string& place) { compare_layouts(a, b, place, out); }, out);
  if (out.size() == known) out.push_back({Change::Kind::changed, path, older, newer});
}

const Node* find_in(const std::vector<Field>& fields, const std::string& name) {
  for (const Field& field : fields)
    if (field.name == name) return &field.node;
  return nullptr;
}

void compare_nodes(const Node& older, const Node& newer, const std::string& path, Changes& out) {
  if (older.kind == Kind::structure && newer.kind == Kind::structure) {
    compare_fields(
        older.fields, newer.fields, path, find_in, type_of,
        [&](const Node& a, const Node& b, const std::string& place) { compare_nodes(a, b, place, out); }, out);
  } else if (older.kind == Kind::records && newer.kind == Kind::records &&
             older.layout->mode() == newer.layout->mode()) {
    compare_layouts(older.layout->schema(), newer.layout->schema(), path, out);
  } else if (type_of(older) != type_of(newer)) {
    out.push_back({Change::Kind::changed, path, type_of(older), type_of(newer)});
  }
}

void visit_leaves(const Node& node, const std::string& path,
                  const std::function<void(const std::string&, const Node&)>& visit) {
  if (node.kind != Kind::structure) return visit(path, node);
  for (const Field& field : node.fields) visit_leaves(field.node, joined(path, field.name), visit);
}

}  // namespace

bool is_alignment(std::uint64_t alignment) { return std::has_single_bit(alignment) && alignment <= kAlignmentMax; }

const Node* Node::find(std::string_view name) const {
  for (const Field& field : fields)
    if (field.name == name) return &field.node;
  return nullptr;
}

Node flat(DType dtype, Shape shape, std::uint64_t alignment) {
  Node node;
  node.kind = Kind::flat;
  node.dtype = dtype;
  node.shape = std::move(shape);
  return with_alignment(std::move(node), alignment);
}

Node records(typedefs::Layout layout, std::uint64_t count, std::uint64_t alignment) {
  if (!layout.size_bytes()) throw UsageError("records need a layout of fixed size; use aligned mode, or a blob");
  if (layout.uses_region()) throw UsageError("records cannot have offset-indirect data; put it into a blob");
  if (*layout.size_bytes() == 0) throw UsageError("records that take no bytes cannot be counted");
  Node node;
  node.kind = Kind::records;
  node.count = count;
  node.layout = std::move(layout);
  return with_alignment(std::move(node), alignment);
}

Node blob(std::uint64_t count, std::uint64_t alignment) {
  Node node;
  node.kind = Kind::blob;
  node.count = count;
  return with_alignment(std::move(node), alignment);
}

Node structure(std::vector<Field> fields) {
  Node node;
  node.fields = std::move(fields);
  return node;
}

Node optional(Node node) {
  node.is_optional = true;
  return node;
}

Value to_value(const Node& node) {
  Value::Object object;
  switch (node.kind) {
    case Kind::flat:
      object.set("kind", "flat");
      object.set("dtype", name_of(node.dtype));
      object.set("shape", Value::Array(node.shape.begin(), node.shape.end()));
      break;
    case Kind::structure: {
      object.set("kind", "struct");
      std::vector<Value::Object::Member> fields;
      for (const Field& field : node.fields) fields.push_back({field.name, to_value(field.node)});
      object.set("fields", Value::Object(std::move(fields)));
      break;
    }
    case Kind::records:
      object.set("kind", "struct");
      object.set("count", node.count);
      object.set("mode", node.layout->mode() == typedefs::Mode::packed ? "packed" : "aligned");
      object.set("layout", node.layout->schema());
      break;
    case Kind::blob:
      object.set("kind", "blob");
      object.set("count", node.count);
      break;
  }
  if (node.kind != Kind::structure && node.alignment != default_alignment(node)) object.set("align", node.alignment);
  if (node.is_optional) object.set("optional", true);
  return object;
}

Node node_from(const Value& value) { return read_node(value, ""); }

std::vector<Change> difference(const Node& older, const Node& newer) {
  Changes changes;
  compare_nodes(older, newer, "", changes);
  std::stable_partition(changes.begin(), changes.end(),
                        [](const Change& change) { return change.kind != Change::Kind::added; });
  return changes;
}

void for_each_leaf(const Node& node, const std::function<void(const std::string& path, const Node& node)>& visit) {
  visit_leaves(node, "", visit);
}

io::TensorInfo stored_tensor(const std::string& name, DType dtype, const Shape& shape) {
  const std::string context = fmt::format("tensor {}", quote(name));
  const std::uint64_t count = checked_numel<UsageError>(shape, context);
  std::uint64_t bytes = 0;
  if (is_block(dtype)) {
    bytes = bytes_for<UsageError>(dtype, shape, context);
  } else {
    const auto bits = static_cast<std::uint64_t>(element(dtype).bits);
    const std::uint64_t total = checked_multiply<UsageError, std::uint64_t>(count, bits, context);
    if (!element(dtype).safetensors.empty() && total % 8 == 0)
      return {name, std::string(io::safetensors_dtype(dtype)), shape};
    bytes = total / 8 + (total % 8 != 0);
  }
  return {name, "U8", Shape{checked_cast<Extent, UsageError>(bytes, context)}};
}

std::vector<io::TensorInfo> stored_parts(const std::string& path, const Node& node, std::uint64_t blob_bytes) {
  const auto extent = [&](std::uint64_t value) { return checked_cast<Extent, UsageError>(value, quote(path)); };
  switch (node.kind) {
    case Kind::flat: return {stored_tensor(path, node.dtype, node.shape)};
    case Kind::records: return {{path, "U8", Shape{extent(node.count), extent(node.layout->stride())}}};
    case Kind::blob:
      return {{path + std::string(kIndex), "U64", Shape{extent(node.count), 2}},
              {path + std::string(kData), "U8", Shape{extent(blob_bytes)}}};
    case Kind::structure: break;
  }
  return {};
}

std::string header_text(const Node& schema) {
  return Value::object({{"version", kVersion}, {"endian", "little"}, {"schema", to_value(schema)}}).to_json();
}

}  // namespace weft::metatensor
