#include "schema/uri.hpp"

#include <algorithm>

#include "base/utf8.hpp"
#include "schema/formats.hpp"

namespace weft::schema {
namespace {

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_digit_of_uri(char c) { return c >= '0' && c <= '9'; }
int hex_of(char c) {
  if (is_digit_of_uri(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// RFC 3986, 5.2.4.
std::string without_dots(std::string_view in) {
  std::string out;
  while (!in.empty()) {
    if (in.starts_with("../")) {
      in.remove_prefix(3);
    } else if (in.starts_with("./")) {
      in.remove_prefix(2);
    } else if (in.starts_with("/./")) {
      in.remove_prefix(2);
    } else if (in == "/.") {
      in = "/";
    } else if (in.starts_with("/../") || in == "/..") {
      in = in == "/.." ? std::string_view("/") : in.substr(3);
      const auto slash = out.rfind('/');
      out.resize(slash == std::string::npos ? 0 : slash);
    } else if (in == "." || in == "..") {
      in = {};
    } else {
      const auto next = in.find('/', 1);
      out += in.substr(0, next);
      in = next == std::string_view::npos ? std::string_view{} : in.substr(next);
    }
  }
  return out;
}

// Characters of a part: letters, digits, those of `others`, %XX, and with `international` what is not ASCII.
bool consists_of(std::string_view text, std::string_view others, bool international) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '%') {
      if (i + 2 >= text.size() || hex_of(text[i + 1]) < 0 || hex_of(text[i + 2]) < 0) return false;
      i += 2;
    } else if (static_cast<unsigned char>(c) >= 0x80) {
      if (!international) return false;
    } else if (!is_letter(c) && !is_digit_of_uri(c) && others.find(c) == std::string_view::npos) {
      return false;
    }
  }
  return true;
}

bool is_authority(std::string_view text, bool international) {
  constexpr std::string_view kName = "-._~!$&'()*+,;=";
  if (const auto at = text.rfind('@'); at != std::string_view::npos) {
    if (!consists_of(text.substr(0, at), "-._~!$&'()*+,;=:", international)) return false;
    text.remove_prefix(at + 1);
  }
  std::string_view port;
  if (text.starts_with('[')) {
    const auto close = text.find(']');
    if (close == std::string_view::npos) return false;
    const std::string_view host = text.substr(1, close - 1);
    if (!is_ipv6(host) &&
        !(host.size() > 3 && (host[0] == 'v' || host[0] == 'V') && host.find('.') != std::string_view::npos))
      return false;
    text.remove_prefix(close + 1);
    if (!text.empty() && text[0] != ':') return false;
    port = text.empty() ? text : text.substr(1);
  } else {
    const auto colon = text.find(':');
    if (!consists_of(text.substr(0, colon), kName, international)) return false;
    if (colon != std::string_view::npos) port = text.substr(colon + 1);
  }
  return std::all_of(port.begin(), port.end(), is_digit_of_uri);
}

}  // namespace

Uri Uri::parse(std::string_view text) {
  Uri uri;
  if (const auto hash = text.find('#'); hash != std::string_view::npos) {
    uri.fragment = text.substr(hash + 1);
    text = text.substr(0, hash);
  }
  if (const auto mark = text.find('?'); mark != std::string_view::npos) {
    uri.query = text.substr(mark + 1);
    text = text.substr(0, mark);
  }
  if (const auto end = text.find_first_of(":/");
      end != std::string_view::npos && text[end] == ':' && end > 0 && is_letter(text[0])) {
    const std::string_view scheme = text.substr(0, end);
    if (std::all_of(scheme.begin(), scheme.end(),
                    [](char c) { return is_letter(c) || is_digit_of_uri(c) || c == '+' || c == '-' || c == '.'; })) {
      uri.scheme = scheme;
      text = text.substr(end + 1);
    }
  }
  if (text.starts_with("//")) {
    const auto slash = text.find('/', 2);
    uri.authority = text.substr(2, slash == std::string_view::npos ? slash : slash - 2);
    text = slash == std::string_view::npos ? std::string_view{} : text.substr(slash);
  }
  uri.path = text;
  return uri;
}

std::string Uri::to_string() const {
  std::string text;
  if (scheme) text += *scheme + ":";
  if (authority) text += "//" + *authority;
  text += path;
  if (query) text += "?" + *query;
  if (fragment) text += "#" + *fragment;
  return text;
}

Uri resolve(const Uri& base, const Uri& reference) {
  Uri target;
  target.fragment = reference.fragment;
  if (reference.scheme) {
    target.scheme = reference.scheme;
    target.authority = reference.authority;
    target.path = without_dots(reference.path);
    target.query = reference.query;
    return target;
  }
  target.scheme = base.scheme;
  if (reference.authority) {
    target.authority = reference.authority;
    target.path = without_dots(reference.path);
    target.query = reference.query;
    return target;
  }
  target.authority = base.authority;
  if (reference.path.empty()) {
    target.path = base.path;
    target.query = reference.query ? reference.query : base.query;
    return target;
  }
  target.query = reference.query;
  if (reference.path.starts_with('/')) {
    target.path = without_dots(reference.path);
  } else {
    const auto slash = base.path.rfind('/');
    std::string merged = base.authority && base.path.empty() ? "/"
                         : slash == std::string::npos        ? ""
                                                             : base.path.substr(0, slash + 1);
    target.path = without_dots(merged + reference.path);
  }
  return target;
}

std::string percent_decoded(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size() && hex_of(text[i + 1]) >= 0 && hex_of(text[i + 2]) >= 0) {
      out += static_cast<char>(hex_of(text[i + 1]) * 16 + hex_of(text[i + 2]));
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

bool is_uri(std::string_view text, bool relative, bool international) {
  if (find_invalid_utf8(text)) return false;
  const Uri uri = Uri::parse(text);
  if (!uri.scheme) {
    if (!relative) return false;
    // A first segment with a colon would be a scheme.
    if (!uri.authority && uri.path.substr(0, uri.path.find('/')).find(':') != std::string::npos) return false;
  }
  constexpr std::string_view kPath = "-._~!$&'()*+,;=:@/";
  constexpr std::string_view kQuery = "-._~!$&'()*+,;=:@/?";
  return (!uri.authority || is_authority(*uri.authority, international)) &&
         (uri.authority || !uri.path.starts_with("//")) && consists_of(uri.path, kPath, international) &&
         (!uri.query || consists_of(*uri.query, kQuery, international)) &&
         (!uri.fragment || consists_of(*uri.fragment, kQuery, international));
}

}  // namespace weft::schema
