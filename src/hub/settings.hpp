// What the environment says about the hub, with the names that the hub's other programs use.
#pragma once

#include <filesystem>
#include <string>

#include "weft/hub.hpp"

namespace weft::hub {

/// HF_ENDPOINT without a slash at its end, else the public hub.
/// Errors: UsageError for one that is not an http(s) address.
std::string usual_endpoint();
/// The folder of fetched models; empty if the environment names none and there is no home.
std::filesystem::path usual_cache();

struct Settings {
  std::string endpoint;
  std::string token;  // empty: none
  std::filesystem::path cache;
  bool offline = false;
};
/// The options, with the environment where they say nothing.
/// Errors: UsageError for a token that is not a line of printable ASCII, or that would travel over http to another machine, and
/// without a folder for the cache; FileError for a token's file that cannot be read.
Settings settings_of(const FetchOptions& options);

}  // namespace weft::hub
