#include "operations/names.hpp"

#include <algorithm>

namespace weft::operations {
namespace {

constexpr std::size_t kNameBytesMax = 128;

bool may_begin_name(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool may_be_in_name(char c) { return may_begin_name(c) || (c >= '0' && c <= '9') || c == '-'; }
bool is_name(std::string_view text) {
  return !text.empty() && text.size() <= kNameBytesMax && may_begin_name(text[0]) &&
         std::all_of(text.begin(), text.end(), may_be_in_name);
}

}  // namespace

std::string name_from(std::string_view text) {
  std::string name(text.substr(0, kNameBytesMax - 1));
  for (char& c : name)
    if (!may_be_in_name(c)) c = '_';
  return is_name(name) ? name : "_" + name;
}

std::pair<std::string, std::string> id_from(std::string_view text, std::string_view space) {
  const auto dot = text.find('.');
  if (dot != std::string_view::npos && is_name(text.substr(0, dot)) && is_name(text.substr(dot + 1)))
    return {std::string(text.substr(0, dot)), std::string(text.substr(dot + 1))};
  return {std::string(space), name_from(text)};
}

}  // namespace weft::operations
