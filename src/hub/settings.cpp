#include "hub/settings.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "base/file.hpp"
#include "base/quote.hpp"
#include "hub/names.hpp"
#include "weft/error.hpp"

namespace weft::hub {
namespace fs = std::filesystem;
namespace {

std::string variable(const char* name) {
  const char* const text = std::getenv(name);
  return text ? text : "";
}

/// The folder of the hub's programs, with token and hub in it.
fs::path hub_home() {
  if (const std::string home = variable("HF_HOME"); !home.empty()) return home;
  if (const std::string cache = variable("XDG_CACHE_HOME"); !cache.empty()) return fs::path(cache) / "huggingface";
  if (const std::string home = variable("HOME"); !home.empty()) return fs::path(home) / ".cache" / "huggingface";
  return {};
}

std::string trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const std::size_t begin = std::min(text.find_first_not_of(kSpace), text.size());
  return std::string(text.substr(begin, text.find_last_not_of(kSpace) + 1 - begin));
}

std::string usual_token() {
  if (const std::string token = trimmed(variable("HF_TOKEN")); !token.empty()) return token;
  constexpr std::uint64_t kTokenBytesMax = 64 << 10;
  if (const std::string file = variable("HF_TOKEN_PATH"); !file.empty())
    return trimmed(read_text_file(file, kTokenBytesMax));
  const fs::path home = hub_home();
  std::error_code ignored;
  if (home.empty() || !fs::is_regular_file(home / "token", ignored)) return "";
  return trimmed(read_text_file(home / "token", kTokenBytesMax));
}

std::string checked_endpoint(std::string endpoint, std::string_view source) {
  while (endpoint.ends_with('/')) endpoint.pop_back();
  if (origin_of(endpoint).empty() || endpoint.find_first_of("?#") != std::string::npos)
    throw UsageError(fmt::format("{} is {}: give an address such as {}", source, quote(endpoint), kPublicHub));
  return endpoint;
}

}  // namespace

std::string usual_endpoint() {
  const std::string named = variable("HF_ENDPOINT");
  return named.empty() ? std::string(kPublicHub) : checked_endpoint(named, "HF_ENDPOINT");
}

fs::path usual_cache() {
  for (const char* name : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"})
    if (const std::string cache = variable(name); !cache.empty()) return cache;
  const fs::path home = hub_home();
  return home.empty() ? home : home / "hub";
}

Settings settings_of(const FetchOptions& options) {
  Settings settings{
      .endpoint = options.endpoint.empty() ? usual_endpoint() : checked_endpoint(options.endpoint, "the endpoint"),
      .token = options.token ? *options.token : usual_token(),
      .cache = options.cache.empty() ? usual_cache() : options.cache,
      .offline = options.offline};
  const std::string offline = lower(variable("HF_HUB_OFFLINE"));
  if (offline == "1" || offline == "true" || offline == "yes" || offline == "on") settings.offline = true;
  if (std::any_of(settings.token.begin(), settings.token.end(), [](char c) { return c <= 32 || c >= 127; }))
    throw UsageError("the token of the hub (HF_TOKEN) is not a word of printable characters");
  const std::string origin = origin_of(settings.endpoint);
  if (!settings.token.empty() && origin.starts_with("http:") && !is_this_machine(origin))
    throw UsageError(fmt::format(
        "the token of the hub would travel to {} for everybody to read; name an https address, or set HF_TOKEN= and "
        "HF_HOME to a folder without a token",
        origin));
  if (settings.cache.empty()) throw UsageError("there is no folder for models: set HF_HUB_CACHE to one, or HOME");
  return settings;
}

}  // namespace weft::hub
