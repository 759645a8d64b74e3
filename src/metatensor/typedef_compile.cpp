// From a schema to nodes: kinds, references, sizes, alignments and offsets.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <iterator>
#include <set>

#include "base/checked.hpp"
#include "base/quote.hpp"
#include "metatensor/typedef_node.hpp"

namespace weft::typedefs::detail {
namespace {

struct KindRow {
  std::string_view keyword;
  Kind kind;
  int bytes;  // of a number
};

constexpr KindRow kKinds[] = {
    {"TypeDef:Int8", Kind::int8, 1},        {"TypeDef:Uint8", Kind::uint8, 1},
    {"TypeDef:Int16", Kind::int16, 2},      {"TypeDef:Uint16", Kind::uint16, 2},
    {"TypeDef:Int32", Kind::int32, 4},      {"TypeDef:Uint32", Kind::uint32, 4},
    {"TypeDef:Int64", Kind::int64, 8},      {"TypeDef:Uint64", Kind::uint64, 8},
    {"TypeDef:Float16", Kind::float16, 2},  {"TypeDef:BFloat16", Kind::bfloat16, 2},
    {"TypeDef:Float32", Kind::float32, 4},  {"TypeDef:Float64", Kind::float64, 8},
    {"TypeDef:Boolean", Kind::boolean, 1},  {"TypeDef:Enum", Kind::enumeration, 4},
    {"TypeDef:String", Kind::string, 0},    {"TypeDef:Timestamp", Kind::timestamp, 0},
    {"TypeDef:Bytes", Kind::bytes, 0},      {"TypeDef:Tensor", Kind::tensor, 0},
    {"TypeDef:Struct", Kind::structure, 0}, {"TypeDef:Array", Kind::array, 0},
    {"TypeDef:Record", Kind::record, 0},    {"TypeDef:Union", Kind::union_of, 0},
};
constexpr std::string_view kAlign = "TypeDef:Align", kEndian = "TypeDef:Endian", kDefinitions = "#/$defs/";
constexpr std::size_t kNodesMax = 100'000, kRankMax = 64;

[[noreturn]] void refuse(const std::string& place, std::string_view fact) {
  throw LayoutError(LayoutError::Code::schema, place,
                    fmt::format("the layout's schema at {}: {}", place.empty() ? "its root" : quote(place), fact));
}

template <class Function>
std::uint64_t sized(const std::string& place, const Function& function) {
  try {
    return function();
  } catch (const UsageError& error) {
    refuse(place, error.what());
  }
}
std::uint64_t add(std::uint64_t a, std::uint64_t b, const std::string& place) {
  return sized(place, [&] { return checked_add<UsageError, std::uint64_t>(a, b, "size"); });
}
std::uint64_t multiply(std::uint64_t a, std::uint64_t b, const std::string& place) {
  return sized(place, [&] { return checked_multiply<UsageError, std::uint64_t>(a, b, "size"); });
}
std::uint64_t align_up(std::uint64_t value, std::uint64_t alignment, const std::string& place) {
  return sized(place, [&] { return checked_align_up<UsageError, std::uint64_t>(value, alignment, "size"); });
}

/// Compiles the nodes of one schema.
class Compiler {
 public:
  explicit Compiler(Compiled& layout) : layout_(layout), aligned_(layout.mode == Mode::aligned) {}

  void run() {
    const Value& schema = layout_.schema;
    if (!schema.is_object()) refuse("", "it is not an object");
    if (const Value* endian = schema.find(kEndian)) {
      if (*endian != Value("little") && *endian != Value("big")) refuse("", "TypeDef:Endian is neither little nor big");
      layout_.is_big_endian = *endian == Value("big");
    }
    layout_.root = node(schema, "", 0);
  }

 private:
  const Node* node(const Value& schema, const std::string& place, int depth) {
    if (!schema.is_object()) refuse(place, "it is not an object with a kind such as \"TypeDef:Float32\": true");
    if (depth >= kDepthMax) refuse(place, fmt::format("types are nested deeper than {}", kDepthMax));
    if (layout_.nodes.size() >= kNodesMax) refuse(place, fmt::format("there are more than {} types", kNodesMax));
    const Node* result = nullptr;
    if (const Value* reference = schema.find("$ref")) {
      if (kind_of(schema, place)) refuse(place, "it has a kind and a $ref; a node has one of them");
      result = referred(*reference, place, depth);
      const Value* align = schema.find(kAlign);
      if (!align || !aligned_) return result;
      Node copy = *result;
      set_alignment(copy, *align, place);
      return &layout_.nodes.emplace_back(std::move(copy));
    }
    const KindRow* row = kind_of(schema, place);
    if (!row) refuse(place, "it has no kind such as \"TypeDef:Float32\": true");
    Node made = compiled(*row, schema, place, depth);
    if (const Value* align = schema.find(kAlign)) set_alignment(made, *align, place);
    if (!aligned_) made.alignment = 1;
    return &layout_.nodes.emplace_back(std::move(made));
  }

  // The one kind of a node; null if it has none.
  static const KindRow* kind_of(const Value& schema, const std::string& place) {
    const KindRow* found = nullptr;
    for (const auto& [key, value] : schema.members()) {
      if (!key.starts_with("TypeDef:") || key == kAlign || (key == kEndian && place.empty())) continue;
      const auto row = std::find_if(std::begin(kKinds), std::end(kKinds),
                                    [&key = key](const KindRow& each) { return each.keyword == key; });
      if (row == std::end(kKinds)) refuse(place, fmt::format("there is no keyword {} here", quote(key)));
      if (found) refuse(place, fmt::format("it has two kinds, {} and {}", found->keyword, key));
      if (value != Value(true) && !value.is_object())
        refuse(place, fmt::format("{} is neither true nor an object of annotations", key));
      found = row;
    }
    return found;
  }

  const Node* referred(const Value& reference, const std::string& place, int depth) {
    if (!reference.is_string() || !reference.string().starts_with(kDefinitions))
      refuse(place, "$ref is not the name of a definition in $defs");
    const std::string name = reference.string().substr(kDefinitions.size());
    if (const auto found = definitions_.find(name); found != definitions_.end()) {
      if (depth + found->second->height > kDepthMax)
        refuse(place, fmt::format("types are nested deeper than {}", kDepthMax));
      return found->second;
    }
    const Value* all = layout_.schema.find("$defs");
    const Value* definition = all && all->is_object() ? all->find(name) : nullptr;
    if (!definition) refuse(place, fmt::format("$defs has no {}", quote(name)));
    if (!open_.insert(name).second) refuse(place, fmt::format("{} contains itself; sizes are finite", quote(name)));
    const Node* made = node(*definition, fmt::format("/$defs/{}", name), depth);
    open_.erase(name);
    definitions_.emplace(name, made);
    layout_.definitions.push_back(name);
    return made;
  }

  void set_alignment(Node& node, const Value& align, const std::string& place) {
    if (!align.is_integer() || compare_numbers(align, 1) < 0 || compare_numbers(align, kAlignmentMax) > 0 ||
        !std::has_single_bit(static_cast<std::uint64_t>(align.integer())))
      refuse(place,
             fmt::format("an alignment is a power of two from 1 to {}, and not {}", kAlignmentMax, align.to_json()));
    node.alignment = aligned_ ? static_cast<std::uint64_t>(align.integer()) : 1;
  }

  std::optional<std::uint64_t> whole(const Value& schema, std::string_view key, const std::string& place) {
    const Value* value = schema.find(key);
    if (!value) return std::nullopt;
    if (!value->is_integer() || compare_numbers(*value, 0) < 0 || compare_numbers(*value, UINT32_MAX) > 0)
      refuse(place, fmt::format("{} is not a whole number of 32 bits", key));
    return static_cast<std::uint64_t>(value->integer());
  }

  Node compiled(const KindRow& row, const Value& schema, const std::string& place, int depth) {
    Node node;
    node.kind = row.kind;
    const Value& annotation = schema[row.keyword];
    if (row.bytes > 0) {
      node.size = node.alignment = static_cast<std::uint64_t>(row.bytes);
      if (row.kind == Kind::enumeration) read_words(node, schema, place);
      return node;
    }
    switch (row.kind) {
      case Kind::tensor: read_tensor(node, annotation, place); break;
      case Kind::structure: read_struct(node, annotation, schema, place, depth); break;
      case Kind::array: read_array(node, schema, place, depth); break;
      case Kind::record: read_record(node, schema, place, depth); break;
      case Kind::union_of: read_union(node, annotation, place, depth); break;
      default: read_text(node, annotation, schema, place);
    }
    return node;
  }

  void read_words(Node& node, const Value& schema, const std::string& place) {
    const Value* words = schema.find("enum");
    if (!words || !words->is_array() || words->elements().empty()) refuse(place, "an Enum lists its words in \"enum\"");
    for (const Value& word : words->elements()) {
      if (!word.is_string()) refuse(place, "a word of \"enum\" is not a string");
      node.words.push_back(word.string());
    }
    std::vector<std::string> sorted = node.words;
    std::sort(sorted.begin(), sorted.end());
    if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end()) refuse(place, "\"enum\" repeats a word");
  }

  void read_tensor(Node& node, const Value& annotation, const std::string& place) {
    if (layout_.is_big_endian) refuse(place, "tensors are little-endian; leave out TypeDef:Endian");
    const Value* dtype = annotation.is_object() ? annotation.find("dtype") : nullptr;
    const Value* shape = annotation.is_object() ? annotation.find("shape") : nullptr;
    if (!dtype || !dtype->is_string() || !shape || !shape->is_array())
      refuse(place, "a Tensor has a dtype and a shape: {\"dtype\": \"f32\", \"shape\": [2, 3]}");
    const auto type = dtype_from_name(dtype->string());
    if (!type) refuse(place, fmt::format("there is no dtype {}", quote(dtype->string(), 40)));
    if (shape->elements().size() > kRankMax) refuse(place, fmt::format("the rank is over the limit of {}", kRankMax));
    for (const Value& extent : shape->elements()) {
      if (!extent.is_integer() || compare_numbers(extent, 0) < 0 || compare_numbers(extent, INT64_MAX) > 0)
        refuse(place, "an extent is not a whole number of 63 bits");
      node.shape.push_back(extent.integer());
    }
    node.dtype = *type;
    const std::uint64_t count = sized(place, [&] { return checked_numel<UsageError>(node.shape, "shape"); });
    const Element& row = element(*type);
    if (is_block(*type)) {
      const Extent columns = node.shape.empty() ? 1 : node.shape.back();
      if (columns % row.block_elements != 0)
        refuse(place, fmt::format("rows of {} elements do not divide into blocks of {}", columns, row.block_elements));
      node.size = multiply(count / static_cast<std::uint64_t>(row.block_elements),
                           static_cast<std::uint64_t>(row.block_bytes), place);
    } else {
      multiply(count, 64, place);  // the bits of any element fit
      node.size = bytes_of(*type, count);
    }
    node.alignment = std::max<std::uint64_t>(1, size_bytes(*type));
  }

  void read_struct(Node& node, const Value& annotation, const Value& schema, const std::string& place, int depth) {
    const Value* properties = schema.find("properties");
    if (!properties || !properties->is_object()) refuse(place, "a Struct has \"properties\"");
    std::optional<std::uint64_t> at = 0;
    for (const auto& [name, each] : properties->members()) {
      check_name(name, place);
      const Node* field = this->node(each, fmt::format("{}/properties/{}", place, name), depth + 1);
      if (at && aligned_) at = align_up(*at, field->alignment, place);
      node.members.push_back({name, field, at, 0});
      at = at && field->size ? std::optional(add(*at, *field->size, place)) : std::nullopt;
      node.alignment = std::max(node.alignment, field->alignment);
      node.height = std::max(node.height, field->height + 1);
    }
    if (annotation.is_object())
      if (const Value* align = annotation.find("align")) set_alignment(node, *align, place);
    if (const Value* align = schema.find(kAlign)) set_alignment(node, *align, place);
    if (at) node.size = aligned_ ? align_up(*at, node.alignment, place) : *at;
  }

  void read_array(Node& node, const Value& schema, const std::string& place, int depth) {
    const Value* items = schema.find("items");
    if (!items) refuse(place, "an Array has \"items\"");
    node.element = this->node(*items, place + "/items", depth + 1);
    node.height = node.element->height + 1;
    const auto least = whole(schema, "minItems", place), most = whole(schema, "maxItems", place);
    if (least && most && *least > *most) refuse(place, "minItems is above maxItems");
    if (least && most && *least == *most) node.count = *most;
    node.max = most;
    node.alignment = std::max<std::uint64_t>(node.element->alignment, node.count ? 1 : 4);
    if (node.element->size) {
      node.stride = aligned_ ? align_up(*node.element->size, node.element->alignment, place) : *node.element->size;
      if (node.stride == 0) refuse(place, "items that take no bytes cannot be counted");
      node.first = node.count ? 0 : aligned_ ? align_up(4, node.element->alignment, place) : 4;
    }
    if (aligned_) {
      if (!most) refuse(place, "in aligned mode an Array needs maxItems, for which room is reserved");
      node.size = align_up(add(node.first, multiply(*most, node.stride, place), place), node.alignment, place);
    } else if (node.count && node.element->size) {
      node.size = multiply(*node.count, node.stride, place);
    }
  }

  void read_record(Node& node, const Value& schema, const std::string& place, int depth) {
    const Value* values = schema.find("additionalProperties");
    if (!values || !values->is_object()) refuse(place, "a Record has \"additionalProperties\", the type of its values");
    node.element = this->node(*values, place + "/additionalProperties", depth + 1);
    node.height = node.element->height + 1;
    node.alignment = 4;
    if (aligned_) refuse(place, "a Record has no fixed size; use packed mode, or a Struct");
  }

  void read_text(Node& node, const Value& annotation, const Value& schema, const std::string& place) {
    node.alignment = 4;
    node.max = whole(schema, "maxLength", place);
    if (annotation.is_object())
      if (const Value* encoding = annotation.find("encoding")) {
        if (*encoding != Value("offset-indirect") && *encoding != Value("length-prefixed"))
          refuse(place, fmt::format("there is no encoding {}; there are length-prefixed and offset-indirect",
                                    quote(encoding->to_json(), 40)));
        node.is_indirect = *encoding == Value("offset-indirect");
        layout_.uses_region |= node.is_indirect;
      }
    if (node.is_indirect) {
      node.size = 8;
    } else if (aligned_) {
      if (!node.max)
        refuse(place,
               "in aligned mode it needs maxLength, for which bytes are reserved, or \"encoding\": "
               "\"offset-indirect\"");
      node.size = align_up(add(4, *node.max, place), 4, place);
    }
  }

  void read_union(Node& node, const Value& annotation, const std::string& place, int depth) {
    const Value* discriminator = annotation.is_object() ? annotation.find("discriminator") : nullptr;
    const Value* mapping = annotation.is_object() ? annotation.find("mapping") : nullptr;
    if (!discriminator || !mapping || !mapping->is_object() || mapping->members().empty())
      refuse(place, "a Union has a discriminator and a mapping from its values to types");
    if (discriminator->is_string()) {
      node.tag_field = discriminator->string();
      check_name(node.tag_field, place);
    } else {
      read_tag(node, *discriminator, place);
    }
    std::uint64_t largest = 0, alignment = 1;
    bool all_alike = true, all_sized = true;
    for (const auto& [name, each] : mapping->members()) {
      check_name(name, place);
      const Node* type = this->node(each, fmt::format("{}/TypeDef:Union/mapping/{}", place, name), depth + 1);
      std::uint64_t number = node.members.size();
      if (node.tag_field.empty()) {
        const auto read = index_from(name);
        if (!read || (node.tag_bytes < 4 && *read >> (8 * node.tag_bytes) != 0) || *read > UINT32_MAX)
          refuse(place, fmt::format("{} is not a number of {} bytes, which the discriminator could be", quote(name),
                                    node.tag_bytes));
        number = *read;
      } else if (type->kind != Kind::structure) {
        refuse(place, "the types of a Union with a field as its discriminator are Structs");
      } else if (type->find(node.tag_field)) {
        refuse(place, fmt::format("{} has a field {}, which is the discriminator", quote(name), quote(node.tag_field)));
      }
      for (const Member& other : node.members)
        if (other.number == number) refuse(place, fmt::format("the mapping has {} twice", number));
      all_alike &= node.members.empty() || node.members[0].node->size == type->size;
      all_sized &= type->size.has_value();
      largest = std::max(largest, type->size.value_or(0));
      alignment = std::max(alignment, type->alignment);
      node.height = std::max(node.height, type->height + 1);
      node.members.push_back({name, type, std::nullopt, number});
    }
    node.alignment = std::max<std::uint64_t>(alignment, static_cast<std::uint64_t>(node.tag_bytes));
    const std::uint64_t tag_end = node.tag_offset + static_cast<std::uint64_t>(node.tag_bytes);
    node.variant_offset = aligned_ ? align_up(tag_end, alignment, place) : tag_end;
    for (Member& member : node.members) member.offset = node.variant_offset;
    if (aligned_)
      node.size = align_up(add(node.variant_offset, largest, place), node.alignment, place);
    else if (all_alike && all_sized)
      node.size = add(node.variant_offset, largest, place);
  }

  void read_tag(Node& node, const Value& discriminator, const std::string& place) {
    const Value* type = discriminator.is_object() ? discriminator.find("type") : nullptr;
    const auto offset = discriminator.is_object() ? whole(discriminator, "offset", place) : std::nullopt;
    node.tag_bytes = !type                      ? 0
                     : *type == Value("Uint8")  ? 1
                     : *type == Value("Uint16") ? 2
                     : *type == Value("Uint32") ? 4
                                                : 0;
    if (node.tag_bytes == 0)
      refuse(place,
             "the discriminator is the name of a field, or {\"offset\": 0, \"type\": \"Uint8\"}, or Uint16, Uint32");
    node.tag_offset = offset.value_or(0);
    if (node.tag_offset > 1024) refuse(place, "the discriminator's offset is above 1024");
  }

  static void check_name(const std::string& name, const std::string& place) {
    if (name.empty() || name.find('.') != std::string::npos || name == kDiscriminator)
      refuse(place, fmt::format("{} cannot be a name: paths have names with dots between them", quote(name)));
  }

  Compiled& layout_;
  const bool aligned_;
  std::map<std::string, const Node*, std::less<>> definitions_;
  std::set<std::string, std::less<>> open_;  // definitions that are being compiled
};

}  // namespace

const Member* Node::find(std::string_view name) const {
  for (const Member& member : members)
    if (member.name == name) return &member;
  return nullptr;
}

void compile(Compiled& layout) { Compiler(layout).run(); }

int number_bytes(Kind kind) { return kKinds[static_cast<std::size_t>(kind)].bytes; }
bool is_text(Kind kind) { return kind == Kind::string || kind == Kind::timestamp || kind == Kind::bytes; }

std::vector<std::string_view> parts_of(std::string_view path) {
  std::vector<std::string_view> parts;
  while (!path.empty()) {
    const auto dot = path.find('.');
    parts.push_back(path.substr(0, dot));
    if (dot == std::string_view::npos) break;
    path.remove_prefix(dot + 1);
    if (path.empty()) parts.emplace_back();
  }
  return parts;
}

std::string joined(std::string_view path, std::string_view name) {
  return path.empty() ? std::string(name) : fmt::format("{}.{}", path, name);
}

std::optional<std::uint64_t> index_from(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || (text.size() > 1 && text[0] == '0'))
    return std::nullopt;
  return value;
}

std::uint64_t load_bits(const std::byte* from, int bytes, bool big_endian) {
  std::uint64_t bits = 0;
  for (int i = 0; i < bytes; ++i) bits |= static_cast<std::uint64_t>(from[big_endian ? bytes - 1 - i : i]) << (8 * i);
  return bits;
}

void store_bits(std::uint64_t bits, std::byte* to, int bytes, bool big_endian) {
  for (int i = 0; i < bytes; ++i) to[big_endian ? bytes - 1 - i : i] = static_cast<std::byte>(bits >> (8 * i));
}

}  // namespace weft::typedefs::detail

namespace weft::typedefs {

std::string_view keyword_of(Kind kind) { return detail::kKinds[static_cast<std::size_t>(kind)].keyword; }

}  // namespace weft::typedefs
