#include "schema/formats.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include "base/utf8.hpp"
#include "schema/regex.hpp"
#include "schema/uri.hpp"

namespace weft::schema {
namespace {

bool digit(char c) { return c >= '0' && c <= '9'; }
bool hex_digit(char c) { return digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }
bool letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

// Reads a text from its start; every function gives false where the text goes on otherwise.
struct Reader {
  std::string_view text;
  bool done() const { return text.empty(); }
  bool take(char c) {
    if (text.empty() || text[0] != c) return false;
    text.remove_prefix(1);
    return true;
  }
  bool take_any(std::string_view chars, char* taken = nullptr) {
    if (text.empty() || chars.find(text[0]) == std::string_view::npos) return false;
    if (taken) *taken = text[0];
    text.remove_prefix(1);
    return true;
  }
  // Exactly `count` digits.
  bool number(int count, int& value) {
    value = 0;
    for (int i = 0; i < count; ++i) {
      if (text.empty() || !digit(text[0])) return false;
      value = value * 10 + (text[0] - '0');
      text.remove_prefix(1);
    }
    return true;
  }
  bool digits() {
    const auto end = std::find_if_not(text.begin(), text.end(), digit);
    const auto count = static_cast<std::size_t>(end - text.begin());
    text.remove_prefix(count);
    return count > 0;
  }
};

bool read_date(Reader& in) {
  int year = 0, month = 0, day = 0;
  if (!in.number(4, year) || !in.take('-') || !in.number(2, month) || !in.take('-') || !in.number(2, day)) return false;
  constexpr int kDays[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
  const bool leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
  return month >= 1 && month <= 12 && day >= 1 && day <= kDays[month - 1] + (month == 2 && leap);
}

bool read_time(Reader& in) {
  int hour = 0, minute = 0, second = 0, offset_hour = 0, offset_minute = 0;
  if (!in.number(2, hour) || !in.take(':') || !in.number(2, minute) || !in.take(':') || !in.number(2, second))
    return false;
  if (in.take('.') && !in.digits()) return false;
  char sign = '+';
  if (!in.take_any("Zz")) {
    if (!in.take_any("+-", &sign) || !in.number(2, offset_hour) || !in.take(':') || !in.number(2, offset_minute))
      return false;
  }
  if (hour > 23 || minute > 59 || second > 60 || offset_hour > 23 || offset_minute > 59) return false;
  if (second < 60) return true;
  // A leap second is the last of a day in UTC.
  const int shift = (offset_hour * 60 + offset_minute) * (sign == '+' ? -1 : 1);
  return ((hour * 60 + minute + shift) % 1440 + 1440) % 1440 == 1439;
}

bool is_date(std::string_view text) {
  Reader in{text};
  return read_date(in) && in.done();
}
bool is_time(std::string_view text) {
  Reader in{text};
  return read_time(in) && in.done();
}
bool is_date_time(std::string_view text) {
  Reader in{text};
  return read_date(in) && in.take_any("Tt") && read_time(in) && in.done();
}

// RFC 3339, appendix A: P, then weeks alone, or a date whose units follow each other, then T and a time of the same kind.
bool is_duration(std::string_view text) {
  Reader in{text};
  if (!in.take('P')) return false;
  const auto units = [&](std::string_view order) {
    std::size_t next = std::string_view::npos;
    int count = 0;
    while (!in.done() && in.text[0] != 'T') {
      char unit = 0;
      if (!in.digits() || !in.take_any(order, &unit)) return -1;
      const std::size_t place = order.find(unit);
      if (next != std::string_view::npos && place != next) return -1;
      next = place + 1;
      ++count;
    }
    return count;
  };
  if (text.find('W') != std::string_view::npos) return in.digits() && in.take('W') && in.done();
  const int date = units("YMD");
  if (date < 0 || (date == 0 && in.done())) return false;
  if (in.done()) return true;
  return in.take('T') && units("HMS") > 0 && in.done();
}

bool is_uuid(std::string_view text) {
  if (text.size() != 36) return false;
  for (std::size_t i = 0; i < 36; ++i) {
    const bool dash = i == 8 || i == 13 || i == 18 || i == 23;
    if (dash ? text[i] != '-' : !hex_digit(text[i])) return false;
  }
  return true;
}

bool is_mailbox(std::string_view text, bool international) {
  const auto at = text.rfind('@');
  if (at == std::string_view::npos || at == 0 || at > 64) return false;
  const std::string_view local = text.substr(0, at), domain = text.substr(at + 1);
  const auto allowed = [&](char c) {
    if (static_cast<unsigned char>(c) >= 0x80) return international;
    return letter(c) || digit(c) || std::string_view("!#$%&'*+-/=?^_`{|}~").find(c) != std::string_view::npos;
  };
  if (local.size() >= 2 && local.front() == '"' && local.back() == '"') {
    for (std::size_t i = 1; i + 1 < local.size(); ++i) {
      const auto c = static_cast<unsigned char>(local[i]);
      if (c == '"' || c < 0x20 || c == 0x7f || (c >= 0x80 && !international)) return false;
      if (c == '\\' && ++i + 1 >= local.size()) return false;
    }
  } else {
    if (local.front() == '.' || local.back() == '.' || local.find("..") != std::string_view::npos) return false;
    if (!std::all_of(local.begin(), local.end(), [&](char c) { return c == '.' || allowed(c); })) return false;
  }
  if (domain.starts_with('[') && domain.ends_with(']')) {
    const std::string_view literal = domain.substr(1, domain.size() - 2);
    return literal.starts_with("IPv6:") ? is_ipv6(literal.substr(5)) : is_ipv4(literal);
  }
  if (!international) return is_hostname(domain);
  return !domain.empty() && !find_invalid_utf8(text) && domain.find('@') == std::string_view::npos &&
         std::none_of(domain.begin(), domain.end(), [](char c) { return static_cast<unsigned char>(c) <= 0x20; });
}
bool is_email(std::string_view text) { return is_mailbox(text, false); }
bool is_idn_email(std::string_view text) { return is_mailbox(text, true); }

bool is_absolute_uri(std::string_view text) { return is_uri(text, false, false); }
bool is_uri_reference(std::string_view text) { return is_uri(text, true, false); }
bool is_iri(std::string_view text) { return is_uri(text, false, true); }
bool is_iri_reference(std::string_view text) { return is_uri(text, true, true); }

bool is_relative_json_pointer(std::string_view text) {
  Reader in{text};
  const bool zero = !text.empty() && text[0] == '0';
  const std::size_t before = text.size();
  if (!in.digits() || (zero && before - in.text.size() > 1)) return false;
  return in.text == "#" || is_json_pointer(in.text);
}

// RFC 6570: literals and {expressions} of an operator and variables with modifiers.
bool is_uri_template(std::string_view text) {
  if (find_invalid_utf8(text)) return false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '}' || c == '"' || c == '<' || c == '>' || c == '\\' || c == '^' || c == '`' || c == '|' || c == ' ' ||
        c == '\'')
      return false;
    if (static_cast<unsigned char>(c) < 0x20) return false;
    if (c == '%' && (i + 2 >= text.size() || !hex_digit(text[i + 1]) || !hex_digit(text[i + 2]))) return false;
    if (c != '{') continue;
    const auto close = text.find('}', i);
    if (close == std::string_view::npos) return false;
    Reader in{text.substr(i + 1, close - i - 1)};
    in.take_any("+#./;?&=,!@|");
    bool more = true;
    while (more) {
      std::size_t length = 0;
      while (!in.done() &&
             (letter(in.text[0]) || digit(in.text[0]) || in.text[0] == '_' || in.text[0] == '.' || in.text[0] == '%')) {
        in.text.remove_prefix(1);
        ++length;
      }
      if (length == 0) return false;
      if (in.take(':') && !in.digits()) return false;
      in.take('*');
      more = in.take(',');
    }
    if (!in.done()) return false;
    i = close;
  }
  return true;
}

bool is_regex(std::string_view text) {
  try {
    Regex regex(text);
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

bool is_ipv4(std::string_view text) {
  for (int part = 0; part < 4; ++part) {
    if (part && !(text.starts_with('.') && (text.remove_prefix(1), true))) return false;
    std::size_t length = 0;
    int value = 0;
    while (length < text.size() && length < 3 && digit(text[length])) value = value * 10 + (text[length++] - '0');
    if (length == 0 || value > 255 || (length > 1 && text[0] == '0')) return false;
    text.remove_prefix(length);
  }
  return text.empty();
}

bool is_ipv6(std::string_view text) {
  int groups = 0;
  bool gap = false;
  if (text.starts_with("::")) {
    gap = true;
    text.remove_prefix(2);
  }
  while (!text.empty()) {
    if (text.find('.') != std::string_view::npos && text.find(':') == std::string_view::npos) {
      if (!is_ipv4(text)) return false;
      groups += 2;
      return gap ? groups <= 7 : groups == 8;
    }
    std::size_t length = 0;
    while (length < text.size() && length < 5 && hex_digit(text[length])) ++length;
    if (length == 0 || length > 4) return false;
    ++groups;
    text.remove_prefix(length);
    if (text.empty()) break;
    if (text.starts_with("::")) {
      if (gap) return false;
      gap = true;
      text.remove_prefix(2);
      continue;
    }
    if (text[0] != ':' || text.size() == 1) return false;
    text.remove_prefix(1);
  }
  return gap ? groups <= 7 : groups == 8;
}

bool is_hostname(std::string_view text) {
  if (text.empty() || text.size() > 253) return false;
  while (true) {
    const auto dot = text.find('.');
    const std::string_view label = text.substr(0, dot);
    if (label.empty() || label.size() > 63 || label.front() == '-' || label.back() == '-') return false;
    if (!std::all_of(label.begin(), label.end(), [](char c) { return letter(c) || digit(c) || c == '-'; }))
      return false;
    if (label.size() >= 4 && label[2] == '-' && label[3] == '-' && label.substr(0, 2) != "xn" &&
        label.substr(0, 2) != "XN")
      return false;
    if (dot == std::string_view::npos) return true;
    text.remove_prefix(dot + 1);
  }
}

bool is_json_pointer(std::string_view text) {
  if (!text.empty() && text[0] != '/') return false;
  for (std::size_t i = 0; i < text.size(); ++i)
    if (text[i] == '~' && (i + 1 >= text.size() || (text[i + 1] != '0' && text[i + 1] != '1'))) return false;
  return true;
}

FormatTest find_format(std::string_view name) {
  struct Row {
    std::string_view name;
    FormatTest test;
  };
  static constexpr Row kRows[] = {
      {"date-time", is_date_time},
      {"date", is_date},
      {"time", is_time},
      {"duration", is_duration},
      {"email", is_email},
      {"idn-email", is_idn_email},
      {"hostname", is_hostname},
      {"ipv4", is_ipv4},
      {"ipv6", is_ipv6},
      {"uri", is_absolute_uri},
      {"uri-reference", is_uri_reference},
      {"iri", is_iri},
      {"iri-reference", is_iri_reference},
      {"uuid", is_uuid},
      {"uri-template", is_uri_template},
      {"json-pointer", is_json_pointer},
      {"relative-json-pointer", is_relative_json_pointer},
      {"regex", is_regex},
  };
  for (const Row& row : kRows)
    if (row.name == name) return row.test;
  return nullptr;
}

}  // namespace weft::schema
