// References to resources (RFC 3986): split into parts, and resolved against a base.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace weft::schema {

/// The parts of "scheme://authority/path?query#fragment". A part that is not there differs from an empty one.
struct Uri {
  std::optional<std::string> scheme, authority, query, fragment;
  std::string path;

  static Uri parse(std::string_view text);
  std::string to_string() const;
};

/// `reference` as seen from `base` (RFC 3986, 5.2).
Uri resolve(const Uri& base, const Uri& reference);

/// The text with %XX replaced by bytes; other text stays.
std::string percent_decoded(std::string_view text);

/// Whether a text is a URI, or with `relative` a URI or relative reference; with `international` an IRI (RFC 3987).
bool is_uri(std::string_view text, bool relative, bool international);

}  // namespace weft::schema
