#include "hub/addressed_file.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/cache_folder.hpp"
#include "base/file.hpp"
#include "base/json.hpp"
#include "base/processors.hpp"
#include "base/xxh64.hpp"
#include "hub/download.hpp"
#include "hub/meter.hpp"
#include "hub/names.hpp"
#include "hub/partial_file.hpp"
#include "weft/error.hpp"

namespace weft::hub {
namespace fs = std::filesystem;
namespace {

/// The ETag that a part of an earlier fetch had; empty if there is none.
std::string validator_in(const fs::path& source) {
  std::error_code ignored;
  if (!fs::exists(source, ignored)) return "";
  try {
    const Json json = read_json_file(source, {.max_bytes = 1 << 20});
    const std::string tag = json.is_object() && json.contains("etag") && json["etag"].is_string() ? json["etag"] : "";
    return tag.find_first_of("\r\n") == std::string::npos ? tag : "";
  } catch (const FileError&) {
    return "";
  }
}

}  // namespace

AddressedFile::AddressedFile(const ModelName& name, const Settings& settings, const FetchOptions& options)
    : name_(name), options_(options), client_(settings, options), path_(place(name)) {
  if (path_.empty()) throw UsageError("there is no folder for models: set WEFT_CACHE_DIR to one, or HOME");
}

fs::path AddressedFile::place(const ModelName& name) {
  const fs::path cache = default_cache_folder();
  if (cache.empty()) return {};
  const std::string address = name.address.substr(0, name.address.find('#'));
  const std::string path = address.substr(0, address.find('?'));
  std::string host = origin_of(address).substr(origin_of(address).find("://") + 3);
  std::replace_if(
      host.begin(), host.end(), [](char c) { return c == ':' || c == '[' || c == ']'; }, '_');
  return cache / "models" / fmt::format("{}-{:016x}", host, xxh64(address)) / path.substr(path.rfind('/') + 1);
}

FetchPlan AddressedFile::plan() {
  FetchPlan plan{.name = name_, .path = path_};
  PlannedFile file{.name = path_.filename().string(), .bytes = size_of_file(path_), .is_weights = true};
  file.is_here = file.bytes > 0;
  if (!file.is_here) {
    const HttpReply reply = client_.persist(
        name_.address, [&](bool&) { return client_.get({.address = name_.address, .only_headers = true}); });
    if (reply.status == 404 || reply.status == 410)  // others may refuse this request, and not the one for the file
      throw FileError(fmt::format("{}: the server answered {}: there is no such file", name_.address, reply.status));
    const std::string size = reply.header("content-length");
    if (reply.status == 200 && size.size() < 16 && !size.empty() &&
        size.find_first_not_of("0123456789") == std::string::npos)
      file.bytes = std::stoull(size);
    plan.missing_bytes = file.bytes;
  }
  plan.bytes = plan.weight_bytes = file.bytes;
  plan.files = {std::move(file)};
  plan.disk_free = free_on_disk(path_.parent_path());
  plan.memory_free = free_memory();
  return plan;
}

FetchedModel AddressedFile::run() {
  const FetchPlan plan = this->plan();
  if (options_.on_plan) options_.on_plan(plan);
  const fs::path folder = path_.parent_path();
  make_folders(folder);
  const FileLock lock(path_.string() + ".lock", options_.stop, [&] {
    if (options_.on_delay) options_.on_delay(fmt::format("{}: another program fetches it; waiting", name_.address));
  });
  client_.check_stop();
  FetchedModel model{.path = path_};
  if (std::error_code ignored; fs::exists(path_, ignored)) {
    check_hash();
    model.bytes = size_of_file(path_);
    return model;
  }
  const fs::path source = path_.string() + ".source";
  const std::string shown = name_.address.substr(0, name_.address.find_first_of("?#"));  // a query may hold secrets
  Meter meter(options_, plan.bytes);
  model.fetched_bytes =
      download(client_, {.what = name_.address,
                         .address = name_.address,
                         .path = path_,
                         .sha256 = options_.sha256,
                         .validator = validator_in(source),
                         .is_gguf = true,
                         .on_bytes = [&](std::uint64_t bytes) { meter.show(path_.filename().string(), bytes); },
                         .on_head =
                             [&](std::uint64_t bytes, const std::string& validator) {
                               check_room(folder, bytes - std::min(bytes, size_of_file(path_.string() + ".incomplete")),
                                          "WEFT_CACHE_DIR");
                               write_file_atomically(source, Json{{"address", shown}, {"etag", validator}}.dump());
                             }});
  model.bytes = size_of_file(path_);
  return model;
}

void AddressedFile::check_hash() const {
  if (options_.sha256.empty()) return;
  const MappedFile file(path_);
  Sha256 hash;
  hash.add(file.bytes());
  if (const std::string found = hash.finish(); found != lower(options_.sha256))
    throw FileError(
        fmt::format("{}: the SHA-256 of the file that is here is {}, and should be {}; remove it, and fetch it again",
                    path_.string(), found, lower(options_.sha256)));
}

}  // namespace weft::hub
