#include "hub/names.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "base/quote.hpp"
#include "base/utf8.hpp"
#include "hub/settings.hpp"
#include "weft/error.hpp"
#include "weft/hub.hpp"

namespace weft::hub {
namespace {

constexpr std::size_t kNameBytesMax = 1024, kPartBytesMax = 240;
constexpr std::string_view kPrefix = "hf:";

bool is_letter_or_digit(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; }

/// Letters, digits and ". _ -", of which none but the last two begins it; no "..".
bool is_plain(std::string_view text, std::size_t bytes_max) {
  return !text.empty() && text.size() <= bytes_max && text[0] != '.' && text.find("..") == std::string_view::npos &&
         std::all_of(text.begin(), text.end(),
                     [](char c) { return is_letter_or_digit(c) || c == '.' || c == '_' || c == '-'; });
}

[[noreturn]] void refuse(std::string_view text, std::string_view fact) {
  throw UsageError(
      fmt::format("{}: {}; write hf:OWNER/NAME, hf:OWNER/NAME:Q4_K_M, hf:OWNER/NAME@REVISION:FILE, or the "
                  "https address of a GGUF file",
                  quote(text), fact));
}

/// The name in an address of the hub's pages, such as HUB/OWNER/NAME/blob/main/model.gguf; false if it is another page.
bool read_hub_page(std::string_view path, ModelName& name) {
  path = path.substr(0, path.find_first_of("?#"));
  const auto next = [&] {
    const std::size_t end = std::min(path.find('/'), path.size());
    const std::string_view part = path.substr(0, end);
    path.remove_prefix(std::min(end + 1, path.size()));
    return part;
  };
  const std::string_view owner = next(), model = next();
  if (!is_plain(owner, 96) || !is_plain(model, 96)) return false;
  name.repository = fmt::format("{}/{}", owner, model);
  if (path.empty()) return true;
  const std::string_view kind = next();
  if (kind != "blob" && kind != "resolve" && kind != "tree" && kind != "raw") return false;
  name.revision = next();
  name.choice = path;
  return is_revision(name.revision) && (path.empty() || (kind != "tree" && is_safe_file_name(path)));
}

ModelName read_address(std::string_view text) {
  const std::string origin = origin_of(text);
  if (origin.empty()) refuse(text, "not an address without user and password");
  const std::string hub = usual_endpoint();
  ModelName name;
  if (text.size() > hub.size() && text.starts_with(hub) && text[hub.size()] == '/' &&
      read_hub_page(text.substr(hub.size() + 1), name))
    return name;
  if (origin.starts_with("http:") && !is_this_machine(origin))
    throw UsageError(
        fmt::format("{}: what comes over http may have been changed on its way; give an https address", quote(text)));
  const std::string_view path = text.substr(0, text.find_first_of("?#"));
  const std::string_view file = path.substr(path.rfind('/') + 1);
  if (!lower(file).ends_with(".gguf") || !is_safe_file_name(file))
    refuse(text, "an address of a single file ends in .gguf");
  return {.revision = "", .address = std::string(text)};
}

}  // namespace

bool is_safe_file_name(std::string_view name) {
  if (name.empty() || name.size() > kNameBytesMax || find_invalid_utf8(name)) return false;
  if (std::any_of(name.begin(), name.end(),
                  [](char c) { return static_cast<unsigned char>(c) < 32 || c == 127 || c == '\\'; }))
    return false;
  for (std::size_t at = 0; at <= name.size();) {
    const std::size_t end = std::min(name.find('/', at), name.size());
    const std::string_view part = name.substr(at, end - at);
    if (part.empty() || part == "." || part == ".." || part.size() > kPartBytesMax) return false;
    at = end + 1;
  }
  return true;
}

bool is_commit(std::string_view text) {
  return text.size() == 40 && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

bool is_blob_name(std::string_view text) { return is_plain(text, 128) && text[0] != '-' && text[0] != '_'; }

bool is_repository(std::string_view text) {
  const std::size_t slash = text.find('/');
  if (text.find("--") != std::string_view::npos) return false;  // joins the parts in the names of the cache
  if (slash == std::string_view::npos) return is_plain(text, 96);
  return is_plain(text.substr(0, slash), 96) && is_plain(text.substr(slash + 1), 96);
}

bool is_revision(std::string_view text) {
  return is_safe_file_name(text) && text.size() <= 200 && text.find("..") == std::string_view::npos &&
         std::all_of(text.begin(), text.end(), [](char c) {
           return is_letter_or_digit(c) || c == '.' || c == '_' || c == '-' || c == '/' || c == '+';
         });
}

std::string escaped(std::string_view text, bool slashes) {
  std::string result;
  for (const char c : text) {
    if (is_letter_or_digit(c) || c == '.' || c == '_' || c == '-' || c == '~' || (c == '/' && slashes))
      result += c;
    else
      result += fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return result;
}

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return result;
}

std::string bytes_text(std::uint64_t bytes) {
  const auto value = static_cast<double>(bytes);
  if (bytes < 1000) return fmt::format("{} B", bytes);
  if (value < 1e6) return fmt::format("{:.1f} kB", value / 1e3);
  if (value < 1e9) return fmt::format("{:.1f} MB", value / 1e6);
  return fmt::format("{:.2f} GB", value / 1e9);
}

std::string origin_of(std::string_view address) {
  const std::size_t mark = address.find("://");
  if (mark == std::string_view::npos) return "";
  const std::string scheme = lower(address.substr(0, mark));
  if (scheme != "https" && scheme != "http") return "";
  const std::string_view rest = address.substr(mark + 3);
  std::string host = lower(rest.substr(0, rest.find_first_of("/?#")));
  const bool is_plain_host = std::all_of(host.begin(), host.end(), [](char c) {
    return is_letter_or_digit(c) || c == '.' || c == '-' || c == '_' || c == ':' || c == '[' || c == ']';
  });
  if (host.empty() || host[0] == ':' || !is_plain_host) return "";  // also a user, as in user@host
  const std::string usual = scheme == "https" ? ":443" : ":80";
  if (host.ends_with(usual)) host.resize(host.size() - usual.size());
  return scheme + "://" + host;
}

bool is_this_machine(std::string_view origin) {
  std::string_view host = origin.substr(std::min(origin.find("://"), origin.size() - 3) + 3);
  if (host.starts_with('[')) return host.substr(0, host.find(']') + 1) == "[::1]";
  host = host.substr(0, host.find(':'));
  return host == "localhost" || host == "127.0.0.1";
}

bool is_model_name(std::string_view text) {
  const std::string start = lower(text.substr(0, 8));
  return text.starts_with(kPrefix) || start.starts_with("https://") || start.starts_with("http://");
}

ModelName parse_model_name(std::string_view text) {
  if (is_model_name(text) && !text.starts_with(kPrefix)) return read_address(text);
  std::string_view rest = text.starts_with(kPrefix) ? text.substr(kPrefix.size()) : text;
  ModelName name;
  if (const std::size_t colon = rest.find(':'); colon != std::string_view::npos) {
    name.choice = rest.substr(colon + 1);
    if (!is_safe_file_name(name.choice)) refuse(text, "after the colon comes a file of the repository, or a type");
    rest = rest.substr(0, colon);
  }
  if (const std::size_t at = rest.find('@'); at != std::string_view::npos) {
    name.revision = rest.substr(at + 1);
    if (!is_revision(name.revision)) refuse(text, "after the @ comes a branch, a tag or a commit");
    rest = rest.substr(0, at);
  }
  name.repository = rest;
  if (!is_repository(rest)) refuse(text, "not the name of a model");
  return name;
}

std::string ModelName::to_string() const {
  if (!address.empty()) return address;
  return fmt::format("{}{}{}{}{}{}", kPrefix, repository, revision == "main" ? "" : "@",
                     revision == "main" ? "" : revision, choice.empty() ? "" : ":", choice);
}

}  // namespace weft::hub
