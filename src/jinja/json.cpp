#include "jinja/json.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/utf8.hpp"
#include "jinja/arguments.hpp"
#include "jinja/unicode.hpp"

namespace weft::jinja {
namespace {

// Builds containers; `open_` is the path from the root to the one being filled. Only the innermost one grows, so the pointers
// stay valid.
class OrderedBuilder : public JsonHandler {
 public:
  void value(Json scalar, const JsonCursor&) override {
    switch (scalar.type()) {
      case Json::value_t::string: place(OrderedJson(std::move(scalar.get_ref<std::string&>()))); break;
      case Json::value_t::boolean: place(OrderedJson(scalar.get<bool>())); break;
      case Json::value_t::number_integer: place(OrderedJson(scalar.get<std::int64_t>())); break;
      case Json::value_t::number_unsigned: place(OrderedJson(scalar.get<std::uint64_t>())); break;
      case Json::value_t::number_float: place(OrderedJson(scalar.get<double>())); break;
      default: place(OrderedJson(nullptr));
    }
  }
  void key(std::string name, const JsonCursor&) override { key_ = std::move(name); }
  void start(bool object, const JsonCursor&) override {
    open_.push_back(place(object ? OrderedJson::object() : OrderedJson::array()));
  }
  void end(bool, const JsonCursor&) override { open_.pop_back(); }
  OrderedJson take() { return std::move(root_); }

 private:
  OrderedJson* place(OrderedJson value) {
    if (open_.empty()) return &(root_ = std::move(value));
    OrderedJson& container = *open_.back();
    if (!container.is_object()) return &container.emplace_back(std::move(value));
    // The reader refuses repeated keys, so no search for them is needed, which would take quadratic time.
    using Items = std::vector<std::pair<const std::string, OrderedJson>>;
    Items& items = container.get_ref<OrderedJson::object_t&>();
    items.emplace_back(key_, std::move(value));
    return &items.back().second;
  }

  OrderedJson root_;
  std::vector<OrderedJson*> open_;
  std::string key_;
};

}  // namespace

OrderedJson parse_ordered_json(std::string_view text, std::string_view source, const JsonLimits& limits) {
  OrderedBuilder builder;
  parse_json_events(text, source, builder, limits);
  return builder.take();
}

namespace {

TextPointer text_from_json(const std::string& bytes, bool from_user, std::string_view name) {
  if (const auto wrong = find_invalid_utf8(bytes))
    fail(fmt::format("{} holds a string that is not UTF-8 at its byte {}", name, *wrong), "convert it");
  return make_text(bytes, from_user);
}

}  // namespace

Value from_json(const OrderedJson& json, bool from_user, std::string_view name) {
  const Level level;
  work();
  switch (json.type()) {
    case OrderedJson::value_t::null: return Value();
    case OrderedJson::value_t::boolean: return json.get<bool>();
    case OrderedJson::value_t::number_integer: return json.get<std::int64_t>();
    case OrderedJson::value_t::number_unsigned:
      if (json.get<std::uint64_t>() > INT64_MAX)
        fail(fmt::format("{} holds {}, which does not fit into 64 bits", name, json.get<std::uint64_t>()),
             "write it as a string");
      return json.get<std::int64_t>();
    case OrderedJson::value_t::number_float: return json.get<double>();
    case OrderedJson::value_t::string: return text_from_json(json.get_ref<const std::string&>(), from_user, name);
    case OrderedJson::value_t::array: {
      std::vector<Value> items;
      const Charge charge(json.size() * sizeof(Value));
      for (const OrderedJson& item : json) items.push_back(from_json(item, from_user, name));
      return Value::list(std::move(items));
    }
    case OrderedJson::value_t::object: {
      auto dict = std::make_shared<Dict>();
      for (const auto& [key, item] : json.items())
        dict->set(Value(text_from_json(key, from_user, name)), from_json(item, from_user, name));
      return DictPointer(std::move(dict));
    }
    default: fail(fmt::format("{} holds binary data", name), "give JSON");
  }
}

namespace {

class JsonWriter {
 public:
  explicit JsonWriter(const JsonStyle& style) : style_(style) {}

  void write(const Value& value) {
    const Level level;
    work();
    if (value.is_text()) {
      write_text(*value.text());
    } else if (value.is_none()) {
      out_.append("null");
    } else if (value.is_bool()) {
      out_.append(truth(value) ? "true" : "false");
    } else if (value.is_float()) {
      out_.append(float_name(value.real()));
    } else if (value.integer()) {
      out_.append(std::to_string(*value.integer()));
    } else if (value.is_sequence()) {
      write_list(value.sequence()->items);
    } else if (value.is_dict()) {
      write_dict(*value.dict());
    } else {
      fail(fmt::format("tojson: {} has no JSON", described(value)),
           value.is_undefined() ? "give a | default" : "use | list on it first");
    }
  }
  TextPointer take() { return out_.take(); }

 private:
  static std::string float_name(double value) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
    return float_text(value);
  }

  void write_text(const Text& text) {
    const std::string& bytes = text.bytes;
    out_.append("\"");
    std::size_t plain = 0;
    for (std::size_t at = 0; at < bytes.size();) {
      const auto [c, length] = decode(bytes, at);
      const std::string escape = escaped(c);
      if (!escape.empty()) {
        out_.append(text, plain, at);
        out_.append(escape, text.from_user_at(at));
        plain = at + length;
      }
      at += length;
    }
    out_.append(text, plain, bytes.size());
    out_.append("\"");
  }

  // Empty for characters without an escape.
  std::string escaped(char32_t c) const {
    switch (c) {
      case '"': return "\\\"";
      case '\\': return "\\\\";
      case '\n': return "\\n";
      case '\r': return "\\r";
      case '\t': return "\\t";
      case '\f': return "\\f";
      case '\b': return "\\b";
      default: break;
    }
    const auto n = static_cast<std::uint32_t>(c);
    if (n < 0x20 || (style_.ascii && n >= 0x7F && n < 0x10000)) return fmt::format("\\u{:04x}", n);
    if (style_.ascii && n >= 0x10000)
      return fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + ((n - 0x10000) >> 10), 0xDC00 + ((n - 0x10000) & 0x3FF));
    return {};
  }

  void write_list(const std::vector<Value>& items) {
    if (items.empty()) return out_.append("[]");
    out_.append("[");
    ++level_;
    for (std::size_t i = 0; i < items.size(); ++i) {
      begin_item(i == 0);
      write(items[i]);
    }
    end_items("]");
  }

  void write_dict(const Dict& dict) {
    if (dict.size() == 0) return out_.append("{}");
    auto items = dict.items();
    if (style_.sorted)
      std::stable_sort(items.begin(), items.end(),
                       [](const auto& a, const auto& b) { return compare(a.first, b.first, "sorting keys") < 0; });
    out_.append("{");
    ++level_;
    bool first = true;
    for (const auto& [key, value] : items) {
      begin_item(first);
      first = false;
      write_key(key);
      out_.append(style_.behind_key);
      write(value);
    }
    end_items("}");
  }

  void write_key(const Value& key) {
    if (key.is_text()) return write_text(*key.text());
    if (!key.is_none() && !key.number())
      fail(fmt::format("tojson: {} cannot be a key", described(key)), "use a string");
    out_.append("\"");
    write(key);
    out_.append("\"");
  }

  void begin_item(bool first) {
    if (!first) out_.append(style_.between);
    new_line();
  }
  void end_items(std::string_view close) {
    --level_;
    new_line();
    out_.append(close);
  }
  void new_line() {
    if (!style_.indented) return;
    out_.append("\n");
    for (int i = 0; i < level_; ++i) out_.append(style_.indent);
  }

  const JsonStyle& style_;
  int level_ = 0;
  TextBuilder out_;
};

}  // namespace

TextPointer to_json(const Value& value, const JsonStyle& style) {
  JsonWriter writer(style);
  writer.write(value);
  return writer.take();
}

}  // namespace weft::jinja
