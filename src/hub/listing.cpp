#include "hub/listing.hpp"

#include <fmt/format.h>

#include "base/json.hpp"
#include "base/quote.hpp"
#include "hub/names.hpp"
#include "weft/error.hpp"

namespace weft::hub {
namespace {

constexpr std::size_t kListedFilesMax = 100'000;
constexpr std::uint64_t kFileBytesMax = std::uint64_t{1} << 50;

std::string text_of(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

std::uint64_t size_of(const Json& object, std::string_view source, std::string_view file) {
  const auto found = object.find("size");
  if (found == object.end() || found->is_null()) return 0;
  if (!found->is_number_unsigned() || found->get<std::uint64_t>() > kFileBytesMax)
    throw FileError(fmt::format("{}: the size of {} is {}", source, quote(file), quote(found->dump(), 40)));
  return found->get<std::uint64_t>();
}

}  // namespace

Listing read_listing(std::string_view json, std::string_view source, std::string& unsafe) {
  const auto refuse = [&](std::string_view fact) {
    throw FileError(fmt::format("{}: {}; is HF_ENDPOINT the address of a hub?", source, fact));
  };
  const Json answer = parse_json(json, source, {.max_depth = 32, .max_values = 2'000'000});
  if (!answer.is_object()) refuse("the answer is not an object");
  Listing listing{.commit = text_of(answer, "sha")};
  if (!is_commit(listing.commit)) refuse("the answer names no commit of 40 hexadecimal digits");
  const auto files = answer.find("siblings");
  if (files == answer.end() || !files->is_array()) refuse("the answer lists no files");
  if (files->size() > kListedFilesMax) refuse(fmt::format("the answer lists {} files", files->size()));
  for (const Json& each : *files) {
    ListedFile file{.name = each.is_object() ? text_of(each, "rfilename") : ""};
    if (!is_safe_file_name(file.name)) {
      if (unsafe.empty()) unsafe = file.name;
      continue;
    }
    file.bytes = size_of(each, source, file.name);
    file.blob = text_of(each, "blobId");
    if (const auto large = each.find("lfs"); large != each.end() && large->is_object()) {
      file.sha256 = lower(text_of(*large, "sha256"));
      if (file.sha256.size() != 64 || file.sha256.find_first_not_of("0123456789abcdef") != std::string::npos)
        throw FileError(fmt::format("{}: the SHA-256 of {} is {}", source, quote(file.name), quote(file.sha256, 80)));
      file.bytes = size_of(*large, source, file.name);
      file.blob = file.sha256;
    }
    if (!file.blob.empty() && !is_blob_name(file.blob))
      throw FileError(fmt::format("{}: the hash of {} is {}", source, quote(file.name), quote(file.blob, 80)));
    listing.files.push_back(std::move(file));
  }
  return listing;
}

}  // namespace weft::hub
