#include "serve/multipart.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "base/quote.hpp"
#include "serve/openai.hpp"

namespace weft::serve {
namespace {

constexpr std::size_t kPartsMax = 256, kBoundaryMax = 200, kHeadMax = 8192;

[[noreturn]] void refuse_form(std::string_view fact) { throw OpenAiError(400, fmt::format("the form {}", fact)); }

bool equal_ignoring_case(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
}

std::string_view trim(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

/// A parameter of a header such as: form-data; name="file"; filename="a.wav". A backslash takes the next character as it is.
std::string parameter(std::string_view header, std::string_view name) {
  std::size_t at = std::min(header.find(';'), header.size());
  while (at < header.size()) {
    ++at;
    const std::size_t equals = header.find('=', at);
    if (equals == std::string_view::npos) return {};
    const std::string_view key = trim(header.substr(at, equals - at));
    std::string value;
    at = equals + 1;
    while (at < header.size() && header[at] == ' ') ++at;
    if (at < header.size() && header[at] == '"') {
      for (++at; at < header.size() && header[at] != '"'; ++at) {
        if (header[at] == '\\' && at + 1 < header.size()) ++at;
        value += header[at];
      }
      at = std::min(header.find(';', at), header.size());
    } else {
      const std::size_t end = std::min(header.find(';', at), header.size());
      value = trim(header.substr(at, end - at));
      at = end;
    }
    if (equal_ignoring_case(key, name)) return value;
  }
  return {};
}

/// Name and file name from the headers of a part.
FormPart part_of(std::string_view head, std::string_view content) {
  FormPart part{.name = {}, .file_name = {}, .content = content};
  for (std::size_t at = 0; at < head.size();) {
    const std::size_t end = std::min(head.find("\r\n", at), head.size());
    const std::string_view line = head.substr(at, end - at);
    const std::size_t colon = line.find(':');
    if (colon == std::string_view::npos) refuse_form("has a part with a header that has no colon");
    if (equal_ignoring_case(trim(line.substr(0, colon)), "content-disposition")) {
      const std::string_view value = trim(line.substr(colon + 1));
      part.name = parameter(value, "name");
      part.file_name = parameter(value, "filename");
    }
    at = end + 2;
  }
  if (part.name.empty()) refuse_form("has a part without a name");
  return part;
}

}  // namespace

std::vector<FormPart> parse_form(std::string_view type, std::string_view body) {
  if (!equal_ignoring_case(trim(type.substr(0, type.find(';'))), "multipart/form-data"))
    throw OpenAiError(415, fmt::format("the body is of the type {}; send multipart/form-data", quote(type, 60)));
  const std::string boundary = parameter(type, "boundary");
  if (boundary.empty() || boundary.size() > kBoundaryMax)
    refuse_form(fmt::format("has a boundary of {} bytes; it must have 1 to {}", boundary.size(), kBoundaryMax));
  const std::string mark = "--" + boundary, inner = "\r\n" + mark;
  if (!body.starts_with(mark) && !body.starts_with(inner)) refuse_form("does not begin with its boundary");
  std::vector<FormPart> parts;
  std::size_t at = body.find(mark) + mark.size();
  while (true) {
    const std::string_view rest = body.substr(at);
    if (rest.starts_with("--")) return parts;
    if (!rest.starts_with("\r\n")) refuse_form("has a boundary without an end of its line");
    if (parts.size() == kPartsMax) refuse_form(fmt::format("has more than {} parts", kPartsMax));
    const std::size_t head = at + 2, head_end = body.substr(0, head + kHeadMax).find("\r\n\r\n", head);
    if (head_end == std::string_view::npos) refuse_form("has a part whose headers do not end");
    const std::size_t content = head_end + 4, end = body.find(inner, content - 2);
    if (end == std::string_view::npos) refuse_form("ends before its last boundary");
    parts.push_back(
        part_of(body.substr(head, head_end - head), body.substr(content, std::max(end, content) - content)));
    at = end + inner.size();
  }
}

const FormPart* find_part(std::span<const FormPart> parts, std::string_view name) {
  const auto found =
      std::find_if(parts.rbegin(), parts.rend(), [&](const FormPart& part) { return part.name == name; });
  return found == parts.rend() ? nullptr : &*found;
}

}  // namespace weft::serve
