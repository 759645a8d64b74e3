// Python's two ways to format: "pattern" % values and "pattern".format(...).
#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "base/quote.hpp"
#include "base/utf8.hpp"
#include "jinja/arguments.hpp"
#include "jinja/float.hpp"
#include "jinja/library.hpp"
#include "jinja/unicode.hpp"

namespace weft::jinja {
namespace {

constexpr std::int64_t kWidthMax = 1'000'000;

[[noreturn]] void fail_format(std::string fact) { fail("format: " + std::move(fact), "correct the pattern"); }

// Digits at `at`, if there are any.
std::optional<std::int64_t> read_number(const std::string& text, std::size_t& at) {
  std::int64_t value = 0;
  const auto read = std::from_chars(text.data() + at, text.data() + text.size(), value);
  if (read.ptr == text.data() + at || text[at] == '-') return std::nullopt;
  if (read.ec != std::errc() || value > kWidthMax) fail_format(fmt::format("a width above {}", kWidthMax));
  at = static_cast<std::size_t>(read.ptr - text.data());
  return value;
}

std::uint64_t magnitude(std::int64_t value) {
  return value < 0 ? 0 - static_cast<std::uint64_t>(value) : static_cast<std::uint64_t>(value);
}
std::string digits_of(std::uint64_t value, char type) {
  switch (type) {
    case 'x': return fmt::format("{:x}", value);
    case 'X': return fmt::format("{:X}", value);
    case 'o': return fmt::format("{:o}", value);
    case 'b': return fmt::format("{:b}", value);
    default: return fmt::format("{}", value);
  }
}

// The first `limit` characters of a text.
TextPointer cut(const TextPointer& text, std::optional<std::int64_t> limit) {
  if (!limit || static_cast<std::size_t>(*limit) >= text->characters) return text;
  return slice(text, 0, byte_of_character(*text, static_cast<std::size_t>(*limit)));
}

// ---- % ----------------------------------------------------------------------------------------------------------------

class PercentFormat {
 public:
  PercentFormat(const TextPointer& pattern, const Value& values) : pattern_(*pattern), values_(values) {
    is_tuple_ = values.is_sequence() && values.sequence()->tuple;
  }

  TextPointer run() {
    const std::string& text = pattern_.bytes;
    std::size_t plain = 0;
    for (std::size_t at = 0; at < text.size();) {
      if (text[at] != '%') {
        ++at;
        continue;
      }
      out_.append(pattern_, plain, at++);
      convert(at);
      plain = at;
    }
    out_.append(pattern_, plain, text.size());
    // A dict or another container provides names, and may be unused.
    const bool may_stay = values_.is_dict() || values_.is_undefined() || (values_.is_sequence() && !is_tuple_) ||
                          values_.object_as<Range>();
    if (!may_stay && next_ < (is_tuple_ ? values_.sequence()->items.size() : 1) && !used_name_)
      fail_format("more values than the pattern takes");
    return out_.take(pattern_.markup);
  }

 private:
  struct Flags {
    bool left = false, zero = false, plus = false, space = false, alternate = false;
  };

  char peek(std::size_t at) const { return at < pattern_.bytes.size() ? pattern_.bytes[at] : '\0'; }

  const Value& next_value() {
    if (is_tuple_) {
      if (next_ >= values_.sequence()->items.size()) fail_format("the pattern takes more values than there are");
      return values_.sequence()->items[next_++];
    }
    if (next_++ > 0) fail_format("the pattern takes more values than there are");
    return values_;
  }

  void convert(std::size_t& at) {
    const std::string& text = pattern_.bytes;
    if (peek(at) == '%') {
      ++at;
      return out_.append("%");
    }
    std::optional<Value> value;
    if (peek(at) == '(') {
      int depth = 1;
      const std::size_t begin = ++at;
      for (; at < text.size() && depth > 0; ++at) depth += text[at] == '(' ? 1 : text[at] == ')' ? -1 : 0;
      if (depth > 0) fail_format("a name in the pattern does not end");
      if (!values_.is_dict()) fail_format("names in the pattern need a dict");
      const std::string key = text.substr(begin, at - 1 - begin);
      const Value* found = values_.dict()->find(std::string_view(key));
      if (!found) fail_format(fmt::format("no value is called {}", quote(key, 60)));
      value = *found;
      used_name_ = true;
    }
    Flags flags;
    for (;; ++at) {
      if (peek(at) == '-')
        flags.left = true;
      else if (peek(at) == '0')
        flags.zero = true;
      else if (peek(at) == '+')
        flags.plus = true;
      else if (peek(at) == ' ')
        flags.space = true;
      else if (peek(at) == '#')
        flags.alternate = true;
      else
        break;
    }
    std::optional<std::int64_t> width = read_width(at, flags), precision;
    if (peek(at) == '.') {
      ++at;
      precision = read_width(at, flags).value_or(0);
    }
    while (peek(at) == 'h' || peek(at) == 'l' || peek(at) == 'L') ++at;
    if (at >= text.size()) fail_format("the pattern ends after a %");
    const char type = text[at++];
    write(type, flags, width, precision, value ? *value : next_value());
  }

  std::optional<std::int64_t> read_width(std::size_t& at, Flags& flags) {
    if (peek(at) != '*') return read_number(pattern_.bytes, at);
    ++at;
    std::int64_t width = require_integer(next_value(), "the width of a format");
    if (width < 0) {
      flags.left = true;
      width = width == INT64_MIN ? INT64_MAX : -width;
    }
    if (width > kWidthMax) fail_format(fmt::format("a width above {}", kWidthMax));
    return width;
  }

  void write(char type, Flags flags, std::optional<std::int64_t> width, std::optional<std::int64_t> precision,
             const Value& value) {
    TextBuilder field;
    std::string sign;
    switch (type) {
      case 's': field.append(*cut(pattern_.markup ? escape_html(value) : soft_text(value), precision)); break;
      case 'r':
      case 'a': {
        TextBuilder shown;
        represent(value, shown);
        field.append(*cut(shown.take(), precision));
        break;
      }
      case 'c': write_character(value, field); break;
      case 'd':
      case 'i':
      case 'u':
      case 'x':
      case 'X':
      case 'o': field.append(integer_digits(type, flags, precision, value, sign)); break;
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G': field.append(float_digits(type, flags, precision, value, sign)); break;
      default: fail_format(fmt::format("%{} means nothing", quote(std::string_view(&type, 1))));
    }
    const bool number = std::string_view("sracc").find(type) == std::string_view::npos;
    const TextPointer text = field.take();
    const auto length = static_cast<std::int64_t>(text->characters + sign.size());
    const std::int64_t padding = std::max<std::int64_t>(width.value_or(0) - length, 0);
    const bool zeros = flags.zero && !flags.left && number;
    if (!flags.left && !zeros) out_.repeat(*make_text(" "), static_cast<std::size_t>(padding));
    out_.append(sign);
    if (zeros) out_.repeat(*make_text("0"), static_cast<std::size_t>(padding));
    out_.append(*text);
    if (flags.left) out_.repeat(*make_text(" "), static_cast<std::size_t>(padding));
  }

  static void write_character(const Value& value, TextBuilder& field) {
    if (value.is_text() && value.text()->characters == 1) return field.append(*value.text());
    const std::int64_t c = require_integer(value, "the value of %c");
    if (c < 0 || c > 0x10FFFF || (c >= 0xD800 && c < 0xE000)) fail_format(fmt::format("{} is not a character", c));
    field.append(static_cast<char32_t>(c), false);
  }

  static std::string integer_digits(char type, const Flags& flags, std::optional<std::int64_t> precision,
                                    const Value& value, std::string& sign) {
    std::int64_t integer = 0;
    const bool decimal = type == 'd' || type == 'i' || type == 'u';
    if (value.is_float() && decimal) {
      if (!std::isfinite(value.real()) || std::abs(value.real()) >= 9.2e18)
        fail_format(fmt::format("{} is not an integer of 64 bits", described(value)));
      integer = static_cast<std::int64_t>(value.real());
    } else {
      integer = require_integer(value, fmt::format("the value of %{}", type));
    }
    sign = integer < 0 ? "-" : flags.plus ? "+" : flags.space ? " " : "";
    std::string digits = digits_of(magnitude(integer), type);
    if (precision && static_cast<std::size_t>(*precision) > digits.size())
      digits.insert(0, static_cast<std::size_t>(*precision) - digits.size(), '0');
    if (flags.alternate && !decimal) sign += fmt::format("0{}", type);
    return digits;
  }

  static std::string float_digits(char type, const Flags& flags, std::optional<std::int64_t> precision,
                                  const Value& value, std::string& sign) {
    if (value.is_undefined()) fail_undefined(value);
    const auto number = value.number();
    if (!number) fail_format(fmt::format("{} is not a number", described(value)));
    if (precision.value_or(0) > 10'000) fail_format("more than 10000 digits");
    sign = std::signbit(*number) && !std::isnan(*number) ? "-" : flags.plus ? "+" : flags.space ? " " : "";
    return python_format(std::abs(*number), type, static_cast<int>(precision.value_or(6)), flags.alternate);
  }

  const Text& pattern_;
  const Value& values_;
  bool is_tuple_ = false, used_name_ = false;
  std::size_t next_ = 0;
  TextBuilder out_;
};

// ---- format(value, specification) -------------------------------------------------------------------------------------

struct Specification {
  std::string fill = " ";
  char align = '\0', sign = '-', grouping = '\0', type = '\0';
  bool alternate = false, zero = false;
  std::optional<std::int64_t> width, precision;
};

Specification parse_specification(const std::string& text) {
  Specification spec;
  std::size_t at = 0;
  const auto is_align = [](char c) { return c == '<' || c == '>' || c == '=' || c == '^'; };
  const auto peek = [&](std::size_t i) { return i < text.size() ? text[i] : '\0'; };
  if (!text.empty()) {
    const std::size_t first = decode(text, 0).bytes;
    if (is_align(peek(first))) {
      spec.fill = text.substr(0, first);
      spec.align = text[first];
      at = first + 1;
    } else if (is_align(text[0])) {
      spec.align = text[at++];
    }
  }
  if (peek(at) == '+' || peek(at) == '-' || peek(at) == ' ') spec.sign = text[at++];
  if (peek(at) == '#') spec.alternate = (++at, true);
  if (peek(at) == '0') {
    ++at;
    spec.zero = true;
    if (spec.align == '\0') spec.fill = "0";
  }
  spec.width = read_number(text, at);
  if (peek(at) == ',' || peek(at) == '_') spec.grouping = text[at++];
  if (peek(at) == '.') {
    ++at;
    spec.precision = read_number(text, at);
    if (!spec.precision) fail_format("a specification has a point without digits");
  }
  if (at < text.size()) spec.type = text[at++];
  if (at != text.size()) fail_format(fmt::format("the specification {} is not valid", quote(text, 60)));
  return spec;
}

// Digits with separators every three (four in other bases).
std::string grouped(const std::string& digits, char separator, std::size_t size) {
  std::string out;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % size == 0) out += separator;
    out += digits[i];
  }
  return out;
}

// The same; zeros that pad to a width are grouped too.
std::string grouped_to(std::string digits, const Specification& spec, std::int64_t width, std::size_t size) {
  const bool zeros = (spec.zero && spec.align == '\0') || (spec.align == '=' && spec.fill == "0");
  std::string text = grouped(digits, spec.grouping, size);
  if (!zeros || static_cast<std::int64_t>(text.size()) >= width) return text;
  // One in size + 1 of the `width` places is a separator, but never the first.
  const auto places = static_cast<std::size_t>(width), step = size + 1;
  const std::size_t wanted = places - places / step + (places % step == 0 ? 1 : 0);
  digits.insert(0, wanted - digits.size(), '0');
  return grouped(digits, spec.grouping, size);
}

void write_aligned(const Specification& spec, char fallback, std::string_view sign, const Text& text,
                   TextBuilder& out) {
  const char align = spec.align ? spec.align : fallback;
  const auto length = static_cast<std::int64_t>(sign.size() + text.characters);
  const std::int64_t padding = std::max<std::int64_t>(spec.width.value_or(0) - length, 0);
  const std::int64_t front = align == '>' || align == '=' ? padding : align == '^' ? padding / 2 : 0;
  const TextPointer fill = make_text(spec.fill);
  if (align == '=') out.append(sign);
  out.repeat(*fill, static_cast<std::size_t>(front));
  if (align != '=') out.append(sign);
  out.append(text);
  out.repeat(*fill, static_cast<std::size_t>(padding - front));
}

void format_text(const TextPointer& text, const Specification& spec, TextBuilder& out) {
  if ((spec.type && spec.type != 's') || spec.sign != '-' || spec.align == '=' || spec.grouping || spec.alternate)
    fail_format("the specification is not one for strings");
  write_aligned(spec, '<', "", *cut(text, spec.precision), out);
}

void format_integer(std::int64_t value, Specification spec, TextBuilder& out) {
  if (spec.precision) fail_format("integers take no precision");
  const char type = spec.type ? spec.type : 'd';
  if (type == 'c') {
    if (value < 0 || value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) fail_format("no such character");
    std::string c;
    append_utf8(c, static_cast<char32_t>(value));
    return write_aligned(spec, '>', "", *make_text(c), out);
  }
  if (std::string_view("dxXobn").find(type) == std::string_view::npos)
    fail_format(fmt::format("the type {} is not one for integers", quote(std::string_view(&type, 1))));
  std::string sign = value < 0 ? "-" : spec.sign == '-' ? "" : std::string(1, spec.sign);
  std::string digits = digits_of(magnitude(value), type);
  const bool decimal = type == 'd' || type == 'n';
  if (spec.grouping == ',' && !decimal) fail_format("commas group decimal digits only");
  if (spec.alternate && !decimal) sign += fmt::format("0{}", type);
  if (spec.grouping)
    digits = grouped_to(digits, spec, spec.width.value_or(0) - static_cast<std::int64_t>(sign.size()), decimal ? 3 : 4);
  write_aligned(spec, spec.zero ? '=' : '>', sign, *make_text(digits), out);
}

// Like 'g', but with a digit after the point, and an exponent one digit earlier.
std::string short_float(double size, int precision) {
  if (!std::isfinite(size)) return python_repr(size);
  std::string scientific = python_format(size, 'e', precision - 1);
  const std::size_t e = scientific.find('e');
  const int exponent = std::stoi(scientific.substr(e + 1));
  if (exponent >= -4 && exponent < precision - 1) {
    const std::string digits = python_format(size, 'g', precision);
    return digits.find('.') == std::string::npos ? digits + ".0" : digits;
  }
  std::string mantissa = scientific.substr(0, e);
  if (mantissa.find('.') != std::string::npos) {
    mantissa.erase(mantissa.find_last_not_of('0') + 1);
    if (mantissa.back() == '.') mantissa.pop_back();
  }
  return mantissa + scientific.substr(e);
}

void format_real(double value, Specification spec, TextBuilder& out) {
  char type = spec.type;
  if (type == 'n') type = 'g';
  if (type && std::string_view("eEfFgG%").find(type) == std::string_view::npos)
    fail_format(fmt::format("the type {} is not one for floats", quote(std::string_view(&type, 1))));
  if (spec.precision.value_or(0) > 10'000) fail_format("more than 10000 digits");
  const bool negative = std::signbit(value) && !std::isnan(value);
  const std::string sign = negative ? "-" : spec.sign == '-' ? "" : std::string(1, spec.sign);
  const double size = std::abs(value);
  const int precision = static_cast<int>(spec.precision.value_or(6));
  std::string digits;
  if (!type && !spec.precision) {
    digits = python_repr(size);
  } else if (!type) {
    digits = short_float(size, std::max(precision, 1));
  } else if (type == '%') {
    digits = python_format(size * 100, 'f', precision, spec.alternate) + "%";
  } else {
    digits = python_format(size, type, type == 'g' || type == 'G' ? std::max(precision, 1) : precision, spec.alternate);
  }
  if (spec.grouping && std::isfinite(size)) {
    const std::size_t end = std::min(digits.find_first_not_of("0123456789"), digits.size());
    const std::string rest = digits.substr(end);
    const std::int64_t width = spec.width.value_or(0) - static_cast<std::int64_t>(sign.size() + rest.size());
    digits = grouped_to(digits.substr(0, end), spec, width, 3) + rest;
  }
  write_aligned(spec, spec.zero ? '=' : '>', sign, *make_text(digits), out);
}

// ---- .format() --------------------------------------------------------------------------------------------------------

class BraceFormat {
 public:
  BraceFormat(const TextPointer& pattern, const Arguments& arguments) : whole_(pattern), arguments_(arguments) {}

  TextPointer run() { return write(*whole_, 2).take(whole_->markup); }

 private:
  TextBuilder write(const Text& pattern, int levels) {
    if (levels == 0) fail_format("fields are nested too deep");
    const std::string& text = pattern.bytes;
    TextBuilder out;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t brace = std::min(text.find_first_of("{}", at), text.size());
      out.append(pattern, at, brace);
      at = brace;
      if (at == text.size()) break;
      if (at + 1 < text.size() && text[at + 1] == text[at]) {
        out.append(pattern, at, at + 1);
        at += 2;
      } else if (text[at] == '}') {
        fail_format("a single }; write }} for the character");
      } else {
        at = write_field(pattern, at + 1, levels, out);
      }
    }
    return out;
  }

  // Writes a field "name!conversion:specification}"; returns the position after it.
  std::size_t write_field(const Text& pattern, std::size_t begin, int levels, TextBuilder& out) {
    const std::string& text = pattern.bytes;
    std::size_t end = begin;
    for (int depth = 1;; ++end) {
      if (end >= text.size()) fail_format("a field does not end; write {{ for the character");
      depth += text[end] == '{' ? 1 : text[end] == '}' ? -1 : 0;
      if (depth == 0) break;
    }
    std::size_t name_end = begin;
    for (bool in_brackets = false; name_end < end; ++name_end) {
      const char c = text[name_end];
      if (c == '[') in_brackets = true;
      if (c == ']') in_brackets = false;
      if (!in_brackets && (c == '!' || c == ':')) break;
    }
    Value value = find_field(text.substr(begin, name_end - begin));
    std::size_t at = name_end;
    if (at < end && text[at] == '!') {
      value = converted(value, at + 1 < end ? text[at + 1] : '\0');
      at += 2;
      if (at < end && text[at] != ':') fail_format("a : is expected after a conversion");
    }
    TextPointer specification = make_text("");
    if (at < end) specification = write(*slice_text(pattern, at + 1, end), levels - 1).take();
    if (whole_->markup && value.is_text() && value.text()->markup) {
      if (!specification->bytes.empty()) fail_format("Markup takes no specification");
      out.append(*value.text());
    } else if (whole_->markup) {
      TextBuilder plain;
      format_value(value, *specification, plain);
      out.append(*escape_html(Value(plain.take())));
    } else {
      format_value(value, *specification, out);
    }
    return end + 1;
  }

  static TextPointer slice_text(const Text& text, std::size_t begin, std::size_t end) {
    TextBuilder builder;
    builder.append(text, begin, end);
    return builder.take();
  }

  static Value converted(const Value& value, char conversion) {
    if (conversion == 's') return to_text(value);
    if (conversion != 'r' && conversion != 'a') fail_format("conversions are !s, !r and !a");
    TextBuilder shown;
    represent(value, shown);
    return shown.take();
  }

  static bool is_number(const std::string& name) {
    return !name.empty() && name.find_first_not_of("0123456789") == std::string::npos;
  }

  // "", "0", "name", each followed by .attribute and [key].
  Value find_field(const std::string& field) {
    std::size_t at = std::min(field.find_first_of(".["), field.size());
    if (at == 0 && !field.empty()) fail_format("a field begins with an attribute or a key; write its number in front");
    Value value = find_argument(field.substr(0, at));
    while (at < field.size()) {
      if (field[at] == '.') {
        const std::size_t end = std::min(field.find_first_of(".[", at + 1), field.size());
        if (end == at + 1) fail_format("a field has an empty attribute");
        value = get_attribute(value, std::string_view(field).substr(at + 1, end - at - 1));
        at = end;
        continue;
      }
      const std::size_t end = field.find(']', at);
      if (field[at] != '[' || end == std::string::npos || end == at + 1) fail_format("a field has a wrong key");
      const std::string key = field.substr(at + 1, end - at - 1);
      value = is_number(key) && key.size() < 18 ? get_item(value, Value(std::int64_t{std::stoll(key)}))
                                                : get_item(value, Value(std::string_view(key)));
      at = end + 1;
    }
    return value;
  }

  Value find_argument(const std::string& name) {
    if (name.empty() || is_number(name)) {
      bool& this_way = name.empty() ? counted_ : numbered_;
      this_way = true;
      if (counted_ && numbered_) fail_format("fields with and without numbers are mixed");
      const std::size_t i = name.empty() ? next_++ : name.size() < 10 ? std::stoul(name) : SIZE_MAX;
      if (i >= arguments_.positional.size()) fail_format("the pattern takes more values than there are");
      return arguments_.positional[i];
    }
    for (const auto& [key, value] : arguments_.named)
      if (key == name) return value;
    fail_format(fmt::format("no value is called {}", quote(name, 60)));
  }

  TextPointer whole_;
  const Arguments& arguments_;
  std::size_t next_ = 0;
  bool counted_ = false, numbered_ = false;
};

}  // namespace

Value format_percent(const TextPointer& pattern, const Value& values) { return PercentFormat(pattern, values).run(); }
Value format_braces(const TextPointer& pattern, const Arguments& arguments) {
  return BraceFormat(pattern, arguments).run();
}

void format_value(const Value& value, const Text& specification, TextBuilder& out) {
  if (specification.bytes.empty()) return out.append(*to_text(value));
  if (!value.is_text() && !value.number()) fail_format(fmt::format("{} takes no specification", described(value)));
  const Specification spec = parse_specification(specification.bytes);
  if (value.is_text()) return format_text(value.text(), spec, out);
  const bool as_float =
      value.is_float() || (spec.type && std::string_view("eEfFgG%").find(spec.type) != std::string_view::npos);
  if (as_float) return format_real(*value.number(), spec, out);
  format_integer(*value.integer(), spec, out);
}

}  // namespace weft::jinja
