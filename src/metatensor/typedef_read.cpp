// Layouts and views: where the parts of a value are, and what its bytes say.
#include <fmt/format.h>

#include <bit>
#include <cmath>

#include "base/quote.hpp"
#include "base/utf8.hpp"
#include "metatensor/typedef_node.hpp"
#include "schema/formats.hpp"
#include "weft/half.hpp"

namespace weft::typedefs {

using detail::Member;
using detail::Node;

namespace {

std::string shown(std::string_view path) { return path.empty() ? "the value" : quote(path); }

[[noreturn]] void refuse_access(std::string_view path, std::string_view fact) {
  throw LayoutError(LayoutError::Code::access, std::string(path), fmt::format("{}: {}", shown(path), fact));
}
[[noreturn]] void refuse_offset(std::string_view path, std::string_view fact) {
  throw LayoutError(LayoutError::Code::offset, std::string(path), fmt::format("{}: {}", shown(path), fact));
}

// Bytes [begin, begin + size), if they are there.
std::span<const std::byte> within(std::span<const std::byte> bytes, std::uint64_t begin, std::uint64_t size,
                                  std::string_view path) {
  if (begin > bytes.size() || size > bytes.size() - begin)
    refuse_access(
        path, fmt::format("its {} bytes from byte {} on are beyond the {} bytes there are", size, begin, bytes.size()));
  return bytes.subspan(begin, size);
}

// What a value takes, for kinds whose size depends on the data. Everything of variable size takes 4 bytes at least, so the work is
// bounded by the bytes.
struct Measure {
  std::span<const std::byte> bytes;
  bool big_endian;
  std::string_view path;

  std::uint64_t u32(std::uint64_t at) const {
    return detail::load_bits(within(bytes, at, 4, path).data(), 4, big_endian);
  }
  std::uint64_t end_of(const Node& node, std::uint64_t at) const {
    if (node.size) {
      within(bytes, at, *node.size, path);
      return at + *node.size;
    }
    switch (node.kind) {
      case Kind::structure:
        for (const Member& member : node.members) at = end_of(*member.node, at);
        return at;
      case Kind::array: {
        const std::uint64_t count = node.count ? *node.count : u32(at);
        if (!node.count) at += 4;
        if (node.element->size) {
          if (count > (bytes.size() - at) / *node.element->size)
            refuse_access(path, fmt::format("its {} elements are beyond the {} bytes there are", count, bytes.size()));
          return at + count * *node.element->size;
        }
        for (std::uint64_t i = 0; i < count; ++i) at = end_of(*node.element, at);
        return at;
      }
      case Kind::record: {
        const std::uint64_t count = u32(at);
        at += 4;
        for (std::uint64_t i = 0; i < count; ++i) at = end_of(*node.element, end_of_text(at));
        return at;
      }
      case Kind::union_of: return end_of(*chosen(node, at).node, at + node.variant_offset);
      default: return end_of_text(at);
    }
  }
  std::uint64_t end_of_text(std::uint64_t at) const {
    const std::uint64_t length = u32(at);
    within(bytes, at + 4, length, path);
    return at + 4 + length;
  }
  const Member& chosen(const Node& node, std::uint64_t at) const {
    const std::uint64_t number =
        detail::load_bits(within(bytes, at + node.tag_offset, static_cast<std::uint64_t>(node.tag_bytes), path).data(),
                          node.tag_bytes, big_endian);
    for (const Member& member : node.members)
      if (member.number == number) return member;
    refuse_access(path, fmt::format("the discriminator is {}, which the mapping does not have", number));
  }
};

double number_in(std::uint64_t bits, Kind kind) {
  switch (kind) {
    case Kind::float16: return f32_from_f16(static_cast<std::uint16_t>(bits));
    case Kind::bfloat16: return f32_from_bf16(static_cast<std::uint16_t>(bits));
    case Kind::float32: return std::bit_cast<float>(static_cast<std::uint32_t>(bits));
    default: return std::bit_cast<double>(bits);
  }
}

bool is_real(Kind kind) { return kind >= Kind::float16 && kind <= Kind::float64; }
bool is_whole(Kind kind) { return kind <= Kind::uint64; }
bool is_signed(Kind kind) {
  return kind == Kind::int8 || kind == Kind::int16 || kind == Kind::int32 || kind == Kind::int64;
}

void list_ranges(const Node& node, std::uint64_t at, const std::string& path,
                 std::vector<std::pair<std::string, Range>>& out) {
  constexpr std::size_t kRangesMax = 100'000;  // definitions may be used any number of times
  if (out.size() >= kRangesMax) refuse_offset(path, "there are too many parts to list");
  if (node.kind == Kind::structure || node.kind == Kind::union_of) {
    if (node.kind == Kind::union_of)
      out.emplace_back(detail::joined(path, detail::kDiscriminator),
                       Range{at + node.tag_offset, at + node.tag_offset + static_cast<std::uint64_t>(node.tag_bytes)});
    for (const Member& member : node.members)
      if (member.offset) list_ranges(*member.node, at + *member.offset, detail::joined(path, member.name), out);
  } else if (node.kind == Kind::array && node.stride > 0 && node.max.value_or(1) > 0) {
    list_ranges(*node.element, at + node.first, detail::joined(path, "0"), out);
  } else if (node.size) {
    out.emplace_back(path, Range{at, at + *node.size});
  }
}

// The place of a part from the schema alone. `node` becomes null for a discriminator.
Range place_of(const Node& root, std::string_view path, const Node*& node) {
  node = &root;
  std::uint64_t at = 0;
  std::string walked;
  for (const std::string_view part : detail::parts_of(path)) {
    walked = detail::joined(walked, part);
    if (node->kind == Kind::union_of && part == detail::kDiscriminator) {
      if (walked != path) refuse_offset(path, "a discriminator has no parts");
      at += node->tag_offset;
      const auto size = static_cast<std::uint64_t>(node->tag_bytes);
      node = nullptr;
      return {at, at + size};
    }
    if (node->kind == Kind::array) {
      const auto index = detail::index_from(part);
      if (!index || *index >= node->count.value_or(node->max.value_or(UINT64_MAX)))
        refuse_offset(walked,
                      fmt::format("is not an index below {}", node->count.value_or(node->max.value_or(UINT64_MAX))));
      if (node->stride == 0) refuse_offset(walked, "its place depends on the elements before it");
      if (*index > (UINT64_MAX / 2 - at) / node->stride) refuse_offset(walked, "its offset overflows 64 bits");
      at += node->first + *index * node->stride;
      node = node->element;
      continue;
    }
    const Member* member = node->kind == Kind::structure || node->kind == Kind::union_of ? node->find(part) : nullptr;
    if (!member) refuse_offset(walked, "there is no such part");
    if (!member->offset) refuse_offset(walked, "its place depends on the data before it; view a value");
    at += *member->offset;
    node = member->node;
  }
  if (!node->size) refuse_offset(path, "its size depends on the data; view a value");
  return {at, at + *node->size};
}

}  // namespace

// ---- Layout -------------------------------------------------------------------------------------------------------------------

namespace {

// "Name" as a reference is "#/$defs/Name".
void rewrite_references(Value& value, int depth) {
  constexpr int kValuesDeep = 200;
  if (depth > kValuesDeep) throw LayoutError(LayoutError::Code::schema, "", "the layout's schema is nested too deeply");
  if (value.is_array())
    for (Value& each : value.elements()) rewrite_references(each, depth + 1);
  if (!value.is_object()) return;
  for (std::size_t i = 0; i < value.members().size(); ++i) {
    Value& member = value.members().value(i);
    const std::string& key = value.members()[i].key;
    if (key == "$ref" && member.is_string() && !member.string().empty() &&
        member.string().find_first_of("#/:") == std::string::npos)
      member = "#/$defs/" + member.string();
    else if (key != "enum" && key != "const" && key != "default" && key != "examples")
      rewrite_references(member, depth + 1);
  }
}

}  // namespace

Layout::Layout(Value schema, Mode mode) {
  auto compiled = std::make_shared<detail::Compiled>();
  rewrite_references(schema, 0);
  compiled->schema = std::move(schema);
  compiled->mode = mode;
  detail::compile(*compiled);
  try {
    compiled->form.emplace(detail::form_of(*compiled), schema::SchemaOptions{.asserts_formats = true});
  } catch (const schema::SchemaError& error) {
    throw LayoutError(LayoutError::Code::schema, "", fmt::format("the layout's schema: {}", error.what()));
  }
  compiled_ = std::move(compiled);
}

const Value& Layout::schema() const { return compiled_->schema; }
Mode Layout::mode() const { return compiled_->mode; }
bool Layout::is_big_endian() const { return compiled_->is_big_endian; }
bool Layout::uses_region() const { return compiled_->uses_region; }
std::optional<std::uint64_t> Layout::size_bytes() const { return compiled_->root->size; }
std::uint64_t Layout::alignment() const { return compiled_->root->alignment; }

std::uint64_t Layout::stride() const {
  const Node& root = *compiled_->root;
  if (!root.size) refuse_offset("", "its size depends on the data; use aligned mode");
  return (*root.size + root.alignment - 1) / root.alignment * root.alignment;
}

Range Layout::range(std::string_view path) const {
  const Node* node = nullptr;
  return place_of(*compiled_->root, path, node);
}

std::vector<std::pair<std::string, Range>> Layout::ranges() const {
  std::vector<std::pair<std::string, Range>> out;
  list_ranges(*compiled_->root, 0, "", out);
  return out;
}

std::pair<DType, Shape> Layout::tensor_at(std::string_view path) const {
  const Node* node = nullptr;
  place_of(*compiled_->root, path, node);
  if (!node || node->kind != Kind::tensor) refuse_offset(path, "is not a Tensor");
  return {node->dtype, node->shape};
}

View Layout::view(std::span<const std::byte> bytes, std::span<const std::byte> region) const {
  return View(compiled_, compiled_->root, bytes, region, 0, "");
}

std::vector<schema::Violation> Layout::check(const Value& value) const { return compiled_->form->check(value); }

// ---- View ---------------------------------------------------------------------------------------------------------------------

Kind View::kind() const { return node_->kind; }

Range View::range() const { return {begin_, Measure{bytes_, layout_->is_big_endian, path_}.end_of(*node_, begin_)}; }

View View::part(const Node* node, std::uint64_t begin, std::string_view name) const {
  return View(layout_, node, bytes_, region_, begin, detail::joined(path_, name));
}

View View::step(std::string_view name) const {
  const Measure measure{bytes_, layout_->is_big_endian, path_};
  switch (node_->kind) {
    case Kind::structure: {
      std::uint64_t at = begin_;
      for (const Member& member : node_->members) {
        if (member.name == name) return part(member.node, member.offset ? begin_ + *member.offset : at, name);
        if (!member.offset || !member.node->size)
          at = measure.end_of(*member.node, member.offset ? begin_ + *member.offset : at);
        else
          at = begin_ + *member.offset + *member.node->size;
      }
      break;
    }
    case Kind::array: {
      const auto index = detail::index_from(name);
      if (!index || *index >= size())
        refuse_access(detail::joined(path_, name), fmt::format("is not an index below {}", size()));
      if (node_->stride > 0) return part(node_->element, begin_ + node_->first + *index * node_->stride, name);
      std::uint64_t at = begin_ + (node_->count ? 0 : 4);
      for (std::uint64_t i = 0; i < *index; ++i) at = measure.end_of(*node_->element, at);
      return part(node_->element, at, name);
    }
    case Kind::record: {
      std::uint64_t at = begin_ + 4;
      for (std::uint64_t i = measure.u32(begin_); i > 0; --i) {
        const std::uint64_t value = measure.end_of_text(at);
        const auto key = bytes_.subspan(at + 4, value - at - 4);
        if (name == std::string_view(reinterpret_cast<const char*>(key.data()), key.size()))
          return part(node_->element, value, name);
        at = measure.end_of(*node_->element, value);
      }
      break;
    }
    case Kind::union_of: {
      const Member& chosen = measure.chosen(*node_, begin_);
      if (chosen.name == name) return part(chosen.node, begin_ + node_->variant_offset, name);
      if (node_->find(name))
        refuse_access(detail::joined(path_, name), fmt::format("the union has {} here", quote(chosen.name)));
      break;
    }
    default: break;
  }
  refuse_access(detail::joined(path_, name), "there is no such part");
}

View View::at(std::string_view path) const {
  View view = *this;
  for (const std::string_view name : detail::parts_of(path)) {
    // The choice of a union is the union itself, read as a string or a number.
    if (name == detail::kDiscriminator && view.node_->kind == Kind::union_of) continue;
    view = view.step(name);
  }
  return view;
}

std::uint64_t View::size() const {
  switch (node_->kind) {
    case Kind::structure: return node_->members.size();
    case Kind::array: {
      if (node_->count) return *node_->count;
      const std::uint64_t count = Measure{bytes_, layout_->is_big_endian, path_}.u32(begin_);
      if (node_->max && count > *node_->max)
        refuse_access(path_, fmt::format("has {} elements; at most {} fit", count, *node_->max));
      return count;
    }
    case Kind::record: return Measure{bytes_, layout_->is_big_endian, path_}.u32(begin_);
    default: refuse_access(path_, "has no elements");
  }
}

std::string_view View::key(std::uint64_t index) const {
  if (node_->kind != Kind::record) refuse_access(path_, "is not a Record");
  const Measure measure{bytes_, layout_->is_big_endian, path_};
  if (index >= size()) refuse_access(path_, fmt::format("there is no member {}", index));
  std::uint64_t at = begin_ + 4;
  for (std::uint64_t i = 0; i < index; ++i) at = measure.end_of(*node_->element, measure.end_of_text(at));
  const std::uint64_t end = measure.end_of_text(at);
  const std::string_view text(reinterpret_cast<const char*>(bytes_.data()) + at + 4, end - at - 4);
  if (find_invalid_utf8(text)) refuse_access(path_, fmt::format("the key {} is not UTF-8", quote(text)));
  return text;
}

bool View::boolean() const {
  if (node_->kind != Kind::boolean) refuse_access(path_, "is not a Boolean");
  const auto byte = static_cast<int>(within(bytes_, begin_, 1, path_)[0]);
  if (byte > 1) refuse_access(path_, fmt::format("a Boolean is the byte 0 or 1, and not {}", byte));
  return byte == 1;
}

std::int64_t View::integer() const {
  const Measure measure{bytes_, layout_->is_big_endian, path_};
  if (node_->kind == Kind::union_of) return static_cast<std::int64_t>(measure.chosen(*node_, begin_).number);
  if (!is_whole(node_->kind)) refuse_access(path_, fmt::format("is {}, and not an integer", keyword_of(node_->kind)));
  const int count = detail::number_bytes(node_->kind);
  const std::uint64_t bits = detail::load_bits(within(bytes_, begin_, static_cast<std::uint64_t>(count), path_).data(),
                                               count, layout_->is_big_endian);
  if (!is_signed(node_->kind)) {
    if (bits > static_cast<std::uint64_t>(INT64_MAX)) refuse_access(path_, fmt::format("{} is above 2^63 - 1", bits));
    return static_cast<std::int64_t>(bits);
  }
  const int unused = 64 - 8 * count;
  return static_cast<std::int64_t>(bits << unused) >> unused;
}

double View::number() const {
  if (!is_real(node_->kind)) return static_cast<double>(integer());
  const int count = detail::number_bytes(node_->kind);
  return number_in(detail::load_bits(within(bytes_, begin_, static_cast<std::uint64_t>(count), path_).data(), count,
                                     layout_->is_big_endian),
                   node_->kind);
}

std::span<const std::byte> View::bytes() const {
  const Measure measure{bytes_, layout_->is_big_endian, path_};
  if (node_->kind == Kind::tensor) return within(bytes_, begin_, *node_->size, path_);
  if (!detail::is_text(node_->kind))
    refuse_access(path_, fmt::format("is {}, which has no bytes", keyword_of(node_->kind)));
  const std::uint64_t first = measure.u32(begin_);
  const std::uint64_t length = node_->is_indirect ? measure.u32(begin_ + 4) : first;
  if (node_->max && length > *node_->max)
    refuse_access(path_, fmt::format("has {} bytes, above its maxLength of {}", length, *node_->max));
  return node_->is_indirect ? within(region_, first, length, path_) : within(bytes_, begin_ + 4, length, path_);
}

std::string_view View::string() const {
  const Measure measure{bytes_, layout_->is_big_endian, path_};
  if (node_->kind == Kind::union_of) return measure.chosen(*node_, begin_).name;
  if (node_->kind == Kind::enumeration) {
    const std::uint64_t index = measure.u32(begin_);
    if (index >= node_->words.size())
      refuse_access(path_, fmt::format("the index {} is beyond the {} words of the Enum", index, node_->words.size()));
    return node_->words[index];
  }
  if (node_->kind != Kind::string && node_->kind != Kind::timestamp)
    refuse_access(path_, fmt::format("is {}, and not a string", keyword_of(node_->kind)));
  const std::span<const std::byte> data = bytes();
  const std::string_view text(reinterpret_cast<const char*>(data.data()), data.size());
  if (const auto at = find_invalid_utf8(text)) refuse_access(path_, fmt::format("is not UTF-8 at byte {}", *at));
  if (node_->kind == Kind::timestamp && !schema::find_format("date-time")(text))
    refuse_access(path_, fmt::format("{} is not a time as RFC 3339 has it", quote(text, 40)));
  return text;
}

void View::check() const {
  switch (node_->kind) {
    case Kind::boolean: boolean(); return;
    case Kind::enumeration:
    case Kind::string:
    case Kind::timestamp: string(); return;
    case Kind::bytes:
    case Kind::tensor: bytes(); return;
    case Kind::structure:
      for (const Member& member : node_->members) step(member.name).check();
      return;
    case Kind::array: {
      const Measure measure{bytes_, layout_->is_big_endian, path_};
      std::uint64_t at = begin_ + (node_->count ? 0 : node_->stride > 0 ? node_->first : 4);
      for (std::uint64_t i = 0, count = size(); i < count; ++i) {
        part(node_->element, at, std::to_string(i)).check();
        at = node_->stride > 0 ? at + node_->stride : measure.end_of(*node_->element, at);
      }
      return;
    }
    case Kind::record: value(); return;
    case Kind::union_of: step(string()).check(); return;
    default: range();
  }
}

Value View::value() const {
  // Indirect texts of one value do not share bytes, so a small file cannot ask for much memory.
  std::uint64_t budget = region_.size();
  return copied(budget);
}

Value View::copied(std::uint64_t& budget) const {
  const Measure measure{bytes_, layout_->is_big_endian, path_};
  const auto pay = [&](std::uint64_t bytes) {
    if (!node_->is_indirect) return;
    if (bytes > budget) refuse_access(path_, "the texts in the region overlap");
    budget -= bytes;
  };
  switch (node_->kind) {
    case Kind::boolean: return boolean();
    case Kind::uint64: {
      const auto bits = detail::load_bits(within(bytes_, begin_, 8, path_).data(), 8, layout_->is_big_endian);
      return bits;
    }
    case Kind::bytes: {
      const auto data = bytes();
      pay(data.size());
      return tensor_from_bytes(data.data(), Shape{static_cast<Extent>(data.size())}, DType::u8, kCpu);
    }
    case Kind::tensor: return tensor_from_bytes(bytes().data(), node_->shape, node_->dtype, kCpu);
    case Kind::enumeration: return string();
    case Kind::string:
    case Kind::timestamp: {
      const std::string_view text = string();
      pay(text.size());
      return text;
    }
    case Kind::structure: {
      Value::Object object;
      std::uint64_t at = begin_;
      for (const Member& member : node_->members) {
        const View field = part(member.node, member.offset ? begin_ + *member.offset : at, member.name);
        object.set(member.name, field.copied(budget));
        at = measure.end_of(*member.node, field.begin_);
      }
      return object;
    }
    case Kind::array: {
      Value::Array array;
      std::uint64_t at = begin_ + (node_->count ? 0 : node_->stride > 0 ? node_->first : 4);
      for (std::uint64_t i = 0, count = size(); i < count; ++i) {
        const View each = part(node_->element, at, std::to_string(i));
        array.push_back(each.copied(budget));
        at = node_->stride > 0 ? at + node_->stride : measure.end_of(*node_->element, at);
      }
      return array;
    }
    case Kind::record: {
      std::vector<Value::Object::Member> members;
      std::uint64_t at = begin_ + 4;
      for (std::uint64_t i = measure.u32(begin_); i > 0; --i) {
        const std::uint64_t begin = measure.end_of_text(at);
        const std::string_view key(reinterpret_cast<const char*>(bytes_.data()) + at + 4, begin - at - 4);
        if (find_invalid_utf8(key)) refuse_access(path_, fmt::format("the key {} is not UTF-8", quote(key)));
        members.push_back({std::string(key), part(node_->element, begin, key).copied(budget)});
        at = measure.end_of(*node_->element, begin);
      }
      try {
        return Value::Object(std::move(members));
      } catch (const UsageError&) {
        refuse_access(path_, "has a key twice");
      }
    }
    case Kind::union_of: {
      const Member& chosen = measure.chosen(*node_, begin_);
      Value value = part(chosen.node, begin_ + node_->variant_offset, chosen.name).copied(budget);
      if (node_->tag_field.empty())
        return Value::object({{std::string(detail::kDiscriminator), chosen.number}, {"value", std::move(value)}});
      std::vector<Value::Object::Member> members{{node_->tag_field, chosen.name}};
      for (const auto& member : value.members()) members.push_back(member);
      return Value::Object(std::move(members));
    }
    default: break;
  }
  if (is_whole(node_->kind)) return integer();
  const double real = number();
  if (std::isfinite(real)) return real;
  return std::isnan(real) ? "nan" : real > 0 ? "inf" : "-inf";
}

}  // namespace weft::typedefs
