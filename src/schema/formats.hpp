// The formats of JSON Schema: which texts are dates, addresses, references and so on.
#pragma once

#include <string_view>

namespace weft::schema {

/// Tests whether a text has a format.
using FormatTest = bool (*)(std::string_view text);
/// Null for a format that is not known.
FormatTest find_format(std::string_view name);

bool is_ipv4(std::string_view text);
bool is_ipv6(std::string_view text);
bool is_hostname(std::string_view text);
bool is_json_pointer(std::string_view text);

}  // namespace weft::schema
