// Values as bytes, and the JSON Schema of values.
#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <limits>

#include "base/quote.hpp"
#include "metatensor/typedef_node.hpp"
#include "weft/half.hpp"

namespace weft::typedefs {
namespace detail {
namespace {

Value object_of(std::initializer_list<Value::Object::Member> members) { return Value::object(members); }

Value whole_numbers(int bytes, bool is_signed) {
  const std::uint64_t most = bytes == 8 ? UINT64_MAX : (std::uint64_t{1} << 8 * bytes) - 1;
  if (!is_signed) return object_of({{"type", "integer"}, {"minimum", 0}, {"maximum", most}});
  const auto half = static_cast<std::int64_t>(most / 2);
  return object_of({{"type", "integer"}, {"minimum", -half - 1}, {"maximum", half}});
}

/// Makes JSON Schemas of layouts' nodes.
class FormMaker {
 public:
  explicit FormMaker(const Compiled& layout) : root_(layout.schema), definitions_(layout.definitions) {}

  Value run() const {
    Value form = node(root_);
    Value::Object definitions;
    for (const std::string& name : definitions_) definitions.set(name, node(root_["$defs"][name]));
    if (!definitions.empty()) form.members().set("$defs", std::move(definitions));
    return form;
  }

 private:
  // The other keywords of a node stay, so that users can restrict values further.
  Value node(const Value& schema) const {
    std::string_view kind;
    for (const auto& [key, value] : schema.members())
      if (key.starts_with("TypeDef:") && key != "TypeDef:Align" && key != "TypeDef:Endian") kind = key;
    Value::Object form;
    for (const auto& [key, value] : schema.members()) {
      if (kind == "TypeDef:Struct" && key == "properties") {
        Value::Object properties;
        for (const auto& [name, each] : value.members()) properties.set(name, node(each));
        form.set(key, std::move(properties));
      } else if ((kind == "TypeDef:Array" && key == "items") ||
                 (kind == "TypeDef:Record" && key == "additionalProperties")) {
        form.set(key, node(value));
      } else if (!key.starts_with("TypeDef:") && key != "$defs") {
        form.set(key, value);
      }
    }
    if (!kind.empty()) form.set("allOf", Value::array({rule_of(kind.substr(8), schema[kind])}));
    if (kind == "TypeDef:Struct") close(form);
    return form;
  }

  // A struct has all of its fields, and no others.
  static void close(Value::Object& form) {
    Value::Array names;
    if (const Value* properties = form.find("properties"))
      for (const auto& [name, each] : properties->members()) names.push_back(name);
    form.set("required", std::move(names));
    form.set("additionalProperties", false);
  }

  Value rule_of(std::string_view kind, const Value& annotation) const {
    if (kind.starts_with("Int"))
      return whole_numbers(kind == "Int8" ? 1 : kind == "Int16" ? 2 : kind == "Int32" ? 4 : 8, true);
    if (kind.starts_with("Uint"))
      return whole_numbers(kind == "Uint8" ? 1 : kind == "Uint16" ? 2 : kind == "Uint32" ? 4 : 8, false);
    if (kind.find("Float") != std::string_view::npos)
      return object_of({{"anyOf", Value::array({object_of({{"type", "number"}}),
                                                object_of({{"enum", Value::array({"nan", "inf", "-inf"})}})})}});
    if (kind == "Boolean") return object_of({{"type", "boolean"}});
    if (kind == "Enum" || kind == "String") return object_of({{"type", "string"}});
    if (kind == "Timestamp") return object_of({{"type", "string"}, {"format", "date-time"}});
    if (kind == "Bytes") return tensor_of("u8");
    if (kind == "Tensor") return tensor_of(annotation["dtype"].string());
    if (kind == "Array") return object_of({{"type", "array"}});
    if (kind == "Union") return union_rule(annotation);
    return object_of({{"type", "object"}});
  }

  static Value tensor_of(const std::string& dtype) {
    return object_of({{"x-tensor", object_of({{"dtypes", Value::array({dtype})}})}});
  }

  Value union_rule(const Value& annotation) const {
    const Value& discriminator = annotation["discriminator"];
    const bool by_field = discriminator.is_string();
    const std::string field = by_field ? discriminator.string() : std::string(kDiscriminator);
    Value::Array choices, cases;
    for (const auto& [name, type] : annotation["mapping"].members()) {
      const Value choice = by_field ? Value(name) : Value(index_from(name).value_or(0));
      choices.push_back(choice);
      Value then = by_field ? with_field(type, field) : object_of({{"properties", object_of({{"value", node(type)}})}});
      cases.push_back(object_of(
          {{"if", object_of({{"properties", object_of({{field, object_of({{"const", choice}})}})}})}, {"then", then}}));
    }
    Value::Object properties{{field, object_of({{"enum", std::move(choices)}})}};
    Value::Object rule{{"type", "object"}, {"required", Value::array({field})}};
    if (!by_field) {
      properties.set("value", true);
      rule.set("required", Value::array({field, "value"}));
      rule.set("additionalProperties", false);
    }
    rule.set("properties", std::move(properties));
    rule.set("allOf", std::move(cases));
    return rule;
  }

  // The struct of a union's type, which also has the discriminator.
  Value with_field(const Value& type, const std::string& field) const {
    const Value* found = &type;
    for (int i = 0; i < kDepthMax && found->find("$ref"); ++i)
      found = &root_["$defs"][(*found)["$ref"].string().substr(8)];
    Value form = node(*found);
    Value properties = form["properties"];
    properties.members().set(field, true);
    form.members().set("properties", std::move(properties));
    return form;
  }

  const Value& root_;
  const std::vector<std::string>& definitions_;
};

/// Writes a value at its place. Errors name the path of the part.
class Encoder {
 public:
  Encoder(const Compiled& layout, Encoded& out) : layout_(layout), out_(out) {}

  // Returns the end.
  std::uint64_t put(const Node& node, const Value& value, std::uint64_t at, const std::string& path) {
    switch (node.kind) {
      case Kind::string:
      case Kind::timestamp: {
        const std::string& text = value.string();
        return put_text(node, std::as_bytes(std::span(text)), at, path);
      }
      case Kind::bytes: {
        const Tensor& tensor = value.tensor();
        std::vector<std::byte> data(static_cast<std::size_t>(tensor.numel()));
        tensor.copy_to(data.data(), data.size());
        return put_text(node, data, at, path);
      }
      case Kind::tensor: {
        const Tensor& tensor = value.tensor();
        if (tensor.shape() != node.shape)
          refuse(path, fmt::format("the tensor has shape {}, and not {}", tensor.shape().to_string(),
                                   node.shape.to_string()));
        tensor.copy_to(room(at, *node.size), *node.size);
        return at + *node.size;
      }
      case Kind::structure: {
        room(at, node.size.value_or(0));
        std::uint64_t end = at;
        for (const Member& member : node.members)
          end = put(*member.node, value[member.name], aligned() ? at + *member.offset : end, joined(path, member.name));
        return node.size ? at + *node.size : end;
      }
      case Kind::array: return put_array(node, value.elements(), at, path);
      case Kind::record: {
        put_bits(value.members().size(), at, 4);
        std::uint64_t end = at + 4;
        for (const auto& [key, member] : value.members()) {
          end = put_prefixed(std::as_bytes(std::span(key)), end);
          end = put(*node.element, member, end, joined(path, key));
        }
        return end;
      }
      case Kind::union_of: return put_union(node, value, at, path);
      case Kind::boolean: put_bits(value.boolean() ? 1 : 0, at, 1); return at + 1;
      case Kind::enumeration: {
        std::uint64_t index = 0;
        while (node.words[index] != value.string()) ++index;
        put_bits(index, at, 4);
        return at + 4;
      }
      default: break;
    }
    const int bytes = number_bytes(node.kind);
    put_bits(bits_of(node.kind, value, path), at, bytes);
    return at + static_cast<std::uint64_t>(bytes);
  }

 private:
  [[noreturn]] static void refuse(const std::string& path, std::string_view fact) {
    throw LayoutError(LayoutError::Code::validation, path,
                      fmt::format("{}: {}", path.empty() ? "the value" : quote(path), fact));
  }
  bool aligned() const { return layout_.mode == Mode::aligned; }

  std::byte* room(std::uint64_t at, std::uint64_t size) {
    if (out_.data.size() < at + size) out_.data.resize(at + size);
    return out_.data.data() + at;
  }
  void put_bits(std::uint64_t bits, std::uint64_t at, int bytes) {
    store_bits(bits, room(at, static_cast<std::uint64_t>(bytes)), bytes, layout_.is_big_endian);
  }
  std::uint64_t put_prefixed(std::span<const std::byte> data, std::uint64_t at) {
    put_bits(data.size(), at, 4);
    std::copy(data.begin(), data.end(), room(at + 4, data.size()));
    return at + 4 + data.size();
  }
  std::uint64_t put_text(const Node& node, std::span<const std::byte> data, std::uint64_t at, const std::string& path) {
    if (node.max && data.size() > *node.max)
      refuse(path, fmt::format("has {} bytes, above its maxLength of {}", data.size(), *node.max));
    if (data.size() > UINT32_MAX) refuse(path, "has more than 4 GiB");
    if (!node.is_indirect) {
      const std::uint64_t end = put_prefixed(data, at);
      if (node.size) room(at, *node.size);
      return node.size ? at + *node.size : end;
    }
    if (out_.region.size() + data.size() > UINT32_MAX)
      refuse(path, "the region of offset-indirect data would take more than 4 GiB");
    put_bits(out_.region.size(), at, 4);
    put_bits(data.size(), at + 4, 4);
    out_.region.insert(out_.region.end(), data.begin(), data.end());
    return at + 8;
  }
  std::uint64_t put_array(const Node& node, const Value::Array& elements, std::uint64_t at, const std::string& path) {
    room(at, node.size.value_or(0));
    if (!node.count) put_bits(elements.size(), at, 4);
    std::uint64_t end = at + (node.count ? 0 : node.stride > 0 ? node.first : 4);
    for (std::size_t i = 0; i < elements.size(); ++i) {
      const std::uint64_t after = put(*node.element, elements[i], end, joined(path, std::to_string(i)));
      end = node.stride > 0 ? end + node.stride : after;
    }
    return node.size ? at + *node.size : end;
  }
  std::uint64_t put_union(const Node& node, const Value& value, std::uint64_t at, const std::string& path) {
    room(at, node.size.value_or(node.variant_offset));
    const bool by_field = !node.tag_field.empty();
    const Value& choice = by_field ? value[node.tag_field] : value[kDiscriminator];
    const Member* member = node.find(by_field ? choice.string() : std::to_string(choice.integer()));
    put_bits(member->number, at + node.tag_offset, node.tag_bytes);
    const std::uint64_t end =
        put(*member->node, by_field ? value : value["value"], at + node.variant_offset, joined(path, member->name));
    return node.size ? at + *node.size : end;
  }

  std::uint64_t bits_of(Kind kind, const Value& value, const std::string& path) const {
    if (kind == Kind::uint64) return value.unsigned_integer();
    if (kind <= Kind::int64) return static_cast<std::uint64_t>(value.integer());
    double real = 0;
    if (value.is_string())
      real = value.string() == "nan" ? std::numeric_limits<double>::quiet_NaN()
                                     : (value.string() == "inf" ? 1 : -1) * std::numeric_limits<double>::infinity();
    else
      real = value.number();
    std::uint64_t bits = std::bit_cast<std::uint64_t>(real);
    double back = real;
    if (kind == Kind::float32) {
      bits = std::bit_cast<std::uint32_t>(static_cast<float>(real));
      back = static_cast<float>(real);
    } else if (kind == Kind::float16) {
      bits = f16_from_f32(f32_to_odd(real));
      back = f32_from_f16(static_cast<std::uint16_t>(bits));
    } else if (kind == Kind::bfloat16) {
      bits = bf16_from_f32(f32_to_odd(real));
      back = f32_from_bf16(static_cast<std::uint16_t>(bits));
    }
    if (std::isinf(back) && !std::isinf(real)) refuse(path, fmt::format("{} is out of range", real));
    return bits;
  }

  const Compiled& layout_;
  Encoded& out_;
};

}  // namespace

Value form_of(const Compiled& layout) { return FormMaker(layout).run(); }

}  // namespace detail

Encoded Layout::encode(const Value& value) const {
  if (const auto violations = compiled_->form->check(value); !violations.empty())
    throw LayoutError(LayoutError::Code::validation, violations[0].instance_path,
                      fmt::format("the value does not fit the layout:\n{}", schema::to_string(violations)));
  Encoded out;
  detail::Encoder(*compiled_, out).put(*compiled_->root, value, 0, "");
  return out;
}

}  // namespace weft::typedefs
