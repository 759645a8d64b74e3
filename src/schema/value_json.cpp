// Values as JSON text, and back.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/json.hpp"
#include "base/utf8.hpp"
#include "weft/value.hpp"

namespace weft {
namespace {

// Builds the value; a level of the stack is a container that is being filled.
class ValueBuilder : public JsonHandler {
 public:
  void value(Json scalar, const JsonCursor&) override {
    switch (scalar.type()) {
      case Json::value_t::boolean: return place(scalar.get<bool>());
      case Json::value_t::number_integer: return place(scalar.get<std::int64_t>());
      case Json::value_t::number_unsigned: return place(scalar.get<std::uint64_t>());
      case Json::value_t::number_float: return place(scalar.get<double>());
      case Json::value_t::string: return place(std::move(scalar.get_ref<std::string&>()));
      default: return place(nullptr);
    }
  }
  void key(std::string name, const JsonCursor&) override { open_.back().key = std::move(name); }
  void start(bool object, const JsonCursor&) override { open_.push_back({object, {}, {}, {}}); }
  void end(bool, const JsonCursor&) override {
    Level done = std::move(open_.back());
    open_.pop_back();
    if (done.is_object)
      place(ValueObject(std::move(done.members)));
    else
      place(std::move(done.elements));
  }
  Value take() { return std::move(root_); }

 private:
  struct Level {
    bool is_object;
    Value::Array elements;
    std::vector<ValueObject::Member> members;
    std::string key;
  };
  void place(Value value) {
    if (open_.empty()) {
      root_ = std::move(value);
    } else if (Level& level = open_.back(); level.is_object) {
      level.members.push_back({std::move(level.key), std::move(value)});
    } else {
      level.elements.push_back(std::move(value));
    }
  }
  std::vector<Level> open_;
  Value root_;
};

void append_string(std::string& out, std::string_view text) {
  out += '"';
  const auto is_plain = [](char c) { return c >= ' ' && c < 0x7f && c != '"' && c != '\\'; };
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto first = text.begin() + static_cast<std::ptrdiff_t>(i);
    const auto plain_end = std::find_if_not(first, text.end(), is_plain);
    out.append(first, plain_end);
    i = static_cast<std::size_t>(plain_end - text.begin());
    if (i == text.size()) break;
    const char c = text[i];
    switch (c) {
      case '"': out += "\\\""; continue;
      case '\\': out += "\\\\"; continue;
      case '\n': out += "\\n"; continue;
      case '\r': out += "\\r"; continue;
      case '\t': out += "\\t"; continue;
      default: break;
    }
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else if (static_cast<unsigned char>(c) < 0x80) {
      out += c;
    } else if (const std::size_t length = utf8_sequence_length(text.substr(i))) {
      out += text.substr(i, length);
      i += length - 1;
    } else {
      out += "\\ufffd";
    }
  }
  out += '"';
}

void append_number(std::string& out, double number) {
  if (std::isnan(number)) {
    out += "\"nan\"";
  } else if (std::isinf(number)) {
    out += number > 0 ? "\"inf\"" : "\"-inf\"";
  } else {
    const std::string text = fmt::format("{}", number);
    out += text;
    if (text.find_first_of(".e") == std::string::npos) out += ".0";
  }
}

struct JsonWriter {
  std::string& out;
  int indent;

  void line(int depth) const {
    if (indent < 0) return;
    out += '\n';
    out.append(static_cast<std::size_t>(depth * indent), ' ');
  }

  void write(const Value& value, int depth) const {
    switch (value.kind()) {
      case Value::Kind::null: out += "null"; break;
      case Value::Kind::boolean: out += value.boolean() ? "true" : "false"; break;
      case Value::Kind::integer:
        out += compare_numbers(value, 0) < 0 ? fmt::format("{}", value.integer())
                                             : fmt::format("{}", value.unsigned_integer());
        break;
      case Value::Kind::number: append_number(out, value.number()); break;
      case Value::Kind::string: append_string(out, value.string()); break;
      case Value::Kind::tensor: {
        Value::Array shape;
        for (const Extent extent : value.tensor().shape()) shape.push_back(extent);
        write(
            Value::object({{"$tensor", Value::object({{"dtype", name_of(value.tensor().dtype())}, {"shape", shape}})}}),
            depth);
        break;
      }
      case Value::Kind::array: {
        const Value::Array& elements = value.elements();
        // Lists of scalars stay on a line.
        const bool flat = std::none_of(elements.begin(), elements.end(),
                                       [](const Value& e) { return e.is_array() || e.is_object() || e.is_tensor(); });
        out += '[';
        for (std::size_t i = 0; i < elements.size(); ++i) {
          if (i) out += flat && indent >= 0 ? ", " : ",";
          if (!flat) line(depth + 1);
          write(elements[i], depth + 1);
        }
        if (!flat) line(depth);
        out += ']';
        break;
      }
      case Value::Kind::object: {
        out += '{';
        bool first = true;
        for (const auto& [key, member] : value.members()) {
          if (!first) out += ',';
          first = false;
          line(depth + 1);
          append_string(out, key);
          out += indent < 0 ? ":" : ": ";
          write(member, depth + 1);
        }
        if (!first) line(depth);
        out += '}';
        break;
      }
    }
  }
};

}  // namespace

Value Value::parse(std::string_view text, std::string_view source, std::uint64_t values_max) {
  ValueBuilder builder;
  parse_json_events(text, source, builder, {.max_values = values_max});
  return builder.take();
}

std::string Value::to_json(int indent) const {
  std::string out;
  JsonWriter{out, indent}.write(*this, 0);
  return out;
}

}  // namespace weft
