// One file over the network, with attempts that go on where the last one ended.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "hub/client.hpp"

namespace weft::hub {

struct Download {
  std::string what;  // in messages
  std::string address;
  std::filesystem::path path;
  std::optional<std::uint64_t> bytes = {};
  std::string sha256 = {};     // empty: not known
  std::string validator = {};  // of the bytes of an earlier fetch: an ETag; empty: none
  bool is_gguf = false;        // the file begins with its magic
  /// Called with the bytes of the file so far.
  std::function<void(std::uint64_t bytes)> on_bytes = {};
  /// Called when the server tells the size and the ETag of a file.
  std::function<void(std::uint64_t bytes, const std::string& validator)> on_head = {};
};

/// Gives the bytes that came over the network. A part that was there is continued if its hash is known (which then decides), or if the
/// server says that the file has not changed.
/// Errors: FileError as `Client::persist`; for a size or a hash that differs; for a page in place of a model. Throws Stopped.
std::uint64_t download(Client& client, const Download& download);

}  // namespace weft::hub
