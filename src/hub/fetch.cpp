#include <fmt/format.h>

#include <algorithm>

#include "base/file.hpp"
#include "base/json.hpp"
#include "base/processors.hpp"
#include "base/quote.hpp"
#include "hub/addressed_file.hpp"
#include "hub/cache.hpp"
#include "hub/client.hpp"
#include "hub/download.hpp"
#include "hub/listing.hpp"
#include "hub/meter.hpp"
#include "hub/names.hpp"
#include "hub/partial_file.hpp"
#include "weft/error.hpp"
#include "weft/hub.hpp"

namespace weft::hub {
namespace fs = std::filesystem;
namespace {

constexpr std::uint64_t kListBytesMax = std::uint64_t{64} << 20, kIndexBytesMax = std::uint64_t{64} << 20;
constexpr std::size_t kNearMax = 5;

/// A model of the hub.
class HubModel {
 public:
  HubModel(const ModelName& name, const Settings& settings, const FetchOptions& options)
      : name_(name),
        settings_(settings),
        options_(options),
        client_(settings, options),
        folder_(repository_folder(settings.cache, name.repository)) {}

  FetchPlan plan() {
    look_up();
    FetchPlan plan{.name = name_, .commit = listing_.commit, .path = path()};
    for (std::size_t i = 0; i < chosen_.files.size(); ++i) {
      ListedFile& file = chosen_.files[i];
      identify(file);
      PlannedFile planned{.name = file.name, .bytes = file.bytes, .is_weights = chosen_.are_weights[i]};
      planned.is_here = is_here(file);
      plan.bytes += file.bytes;
      if (planned.is_weights) plan.weight_bytes += file.bytes;
      if (!planned.is_here) {
        const std::uint64_t part = file.sha256.empty() ? 0 : size_of_file(blob_path(file).string() + ".incomplete");
        plan.missing_bytes += file.bytes - std::min(part, file.bytes);
      }
      plan.files.push_back(std::move(planned));
    }
    plan.disk_free = free_on_disk(folder_);
    plan.memory_free = free_memory();
    return plan;
  }

  FetchedModel run() {
    const FetchPlan plan = this->plan();
    if (options_.on_plan) options_.on_plan(plan);
    check_room(folder_, plan.missing_bytes, "HF_HUB_CACHE");
    std::uint64_t total = 0, before = 0;
    for (const PlannedFile& file : plan.files)
      if (!file.is_here) total += file.bytes;
    Meter meter(options_, total);
    for (std::size_t i = 0; i < chosen_.files.size(); ++i) {
      const ListedFile& file = chosen_.files[i];
      fetch_file(file, [&](std::uint64_t bytes) { meter.show(file.name, before + bytes); });
      if (!plan.files[i].is_here) before += file.bytes;
    }
    if (name_.revision != listing_.commit) {
      const fs::path ref = folder_ / "refs" / name_.revision;
      make_folders(ref.parent_path());
      write_file_atomically(ref, listing_.commit);
    }
    return {.path = path(), .commit = listing_.commit, .bytes = plan.bytes, .fetched_bytes = fetched_};
  }

 private:
  fs::path snapshot() const { return folder_ / "snapshots" / listing_.commit; }
  fs::path path() const { return chosen_.main.empty() ? snapshot() : snapshot() / chosen_.main; }
  fs::path blob_path(const ListedFile& file) const { return folder_ / "blobs" / file.blob; }
  std::string address_of(const ListedFile& file) const {
    return fmt::format("{}/{}/resolve/{}/{}", settings_.endpoint, name_.repository, listing_.commit,
                       escaped(file.name));
  }
  std::string what(const ListedFile& file) const { return fmt::format("hf:{}: {}", name_.repository, file.name); }

  void look_up() {
    const std::string address = fmt::format("{}/api/models/{}/revision/{}?blobs=true", settings_.endpoint,
                                            name_.repository, escaped(name_.revision, false));
    const HttpReply reply = client_.get_text(name_.to_string(), address, kListBytesMax);
    if (reply.status / 100 != 2) throw FileError(refusal_text(name_, settings_, reply, near_names(reply)));
    std::string unsafe;
    listing_ = read_listing(reply.body, name_.to_string(), unsafe);
    if (!unsafe.empty())
      throw FileError(
          fmt::format("{}: the repository has a file with the name {}, which leads out of a folder; nothing was "
                      "fetched",
                      name_.to_string(), quote(unsafe)));
    chosen_ = choose_files(listing_, name_, [this](const ListedFile& given) {
      ListedFile file = given;
      identify(file);
      fetch_file(file, {});
      return read_text_file(snapshot() / file.name, kIndexBytesMax);
    });
  }

  /// Names of the hub that are like this one; none if it does not tell.
  std::vector<std::string> near_names(const HttpReply& refused) {
    std::vector<std::string> names;
    const std::string code = refused.header("x-error-code");
    if ((refused.status != 404 && refused.status != 401) || (!code.empty() && code != "RepoNotFound")) return names;
    const std::string model = name_.repository.substr(name_.repository.find('/') + 1);
    try {
      const HttpReply reply =
          client_.get({.address = fmt::format("{}/api/models?search={}&limit={}", settings_.endpoint,
                                              escaped(model, false), kNearMax)});
      if (reply.status != 200) return names;
      for (const Json& each : parse_json(reply.body, "the hub's search"))
        if (each.is_object() && each.contains("id") && each["id"].is_string())
          if (const std::string id = each["id"]; is_repository(id) && names.size() < kNearMax)
            names.push_back("hf:" + id);
    } catch (const Error&) {  // the first error is the one that matters
    } catch (const Json::exception&) {
    }
    return names;
  }

  /// Asks for what a list without hashes does not say.
  void identify(ListedFile& file) {
    if (!file.blob.empty()) return;
    const HttpReply reply = client_.persist(
        what(file), [&](bool&) { return client_.get({.address = address_of(file), .only_headers = true}); });
    std::string tag = reply.header("x-linked-etag").empty() ? reply.header("etag") : reply.header("x-linked-etag");
    if (tag.starts_with("W/")) tag.erase(0, 2);
    std::erase(tag, '"');
    if (reply.status / 100 != 2 || !is_blob_name(tag))
      throw FileError(fmt::format("{}: the hub does not tell its hash (status {}, ETag {})", what(file), reply.status,
                                  quote(tag, 80)));
    file.blob = tag;
    const std::string size = reply.header(reply.header("x-linked-size").empty() ? "content-length" : "x-linked-size");
    if (file.bytes == 0 && !size.empty() && size.size() < 16 &&
        size.find_first_not_of("0123456789") == std::string::npos)
      file.bytes = std::stoull(size);
    if (tag.size() == 64 && tag.find_first_not_of("0123456789abcdef") == std::string::npos) file.sha256 = tag;
  }

  bool is_here(const ListedFile& file) const {
    std::error_code ignored;
    for (const fs::path& place : {snapshot() / file.name, blob_path(file)})
      if (fs::is_regular_file(place, ignored) && (file.bytes == 0 || fs::file_size(place, ignored) == file.bytes))
        return true;
    return false;
  }

  void fetch_file(const ListedFile& file, const std::function<void(std::uint64_t)>& on_bytes) {
    client_.check_stop();
    if (is_here(file)) return link(file);
    make_folders(folder_ / "blobs");
    const FileLock lock(settings_.cache / ".locks" / folder_.filename() / (file.blob + ".lock"), options_.stop, [&] {
      if (options_.on_delay) options_.on_delay(fmt::format("{}: another program fetches it; waiting", what(file)));
    });
    client_.check_stop();
    if (!is_here(file))
      fetched_ +=
          download(client_, {.what = what(file),
                             .address = address_of(file),
                             .path = blob_path(file),
                             .bytes = file.bytes > 0 || !file.sha256.empty() ? std::optional(file.bytes) : std::nullopt,
                             .sha256 = file.sha256,
                             .is_gguf = file.name.ends_with(".gguf"),
                             .on_bytes = on_bytes});
    link(file);
  }

  /// The name of the blob in the snapshot.
  void link(const ListedFile& file) const {
    const fs::path name = snapshot() / file.name;
    std::error_code error;
    if (fs::exists(name, error) &&
        (fs::equivalent(name, blob_path(file), error) || !fs::exists(blob_path(file), error)))
      return;
    make_folders(name.parent_path());
    fs::path target = "../..";
    for (const char c : file.name)
      if (c == '/') target /= "..";
    const fs::path temporary = name.string() + ".tmp-link";
    fs::remove(temporary, error);
    fs::create_symlink(target / "blobs" / file.blob, temporary, error);
    // On a file system without links the file itself goes there.
    if (error)
      fs::rename(blob_path(file), name, error);
    else
      fs::rename(temporary, name, error);
    if (error)
      throw FileError(
          fmt::format("cannot write '{}': {}; choose another folder (HF_HUB_CACHE)", name.string(), error.message()));
  }

  const ModelName& name_;
  const Settings& settings_;
  const FetchOptions& options_;
  Client client_;
  fs::path folder_;
  Listing listing_;
  Chosen chosen_;
  std::uint64_t fetched_ = 0;
};

template <class Result, class Work>
Result with_model(const ModelName& name, const FetchOptions& options, const Work& work) {
  const Settings settings = settings_of(options);
  if (!options.sha256.empty() && (name.address.empty() || options.sha256.size() != 64 ||
                                  lower(options.sha256).find_first_not_of("0123456789abcdef") != std::string::npos))
    throw UsageError(
        "a SHA-256 has 64 hexadecimal digits, and belongs to an address; the hub tells those of its files itself");
  if (options.retries < 0 || options.timeout.count() < 1 || options.timeout.count() > 86'400)
    throw UsageError("a fetch has 0 retries or more, and a timeout of 1 second to a day");
  if (!name.address.empty()) {
    AddressedFile file(name, settings, options);
    return work(file);
  }
  HubModel model(name, settings, options);
  return work(model);
}

[[noreturn]] void refuse_offline(const ModelName& name, const Settings& settings) {
  throw FileError(
      fmt::format("{}: it is not in '{}', and the network is not to be used (HF_HUB_OFFLINE); fetch it first",
                  name.to_string(), settings.cache.string()));
}

}  // namespace

FetchedModel fetch(const ModelName& name, const FetchOptions& options) {
  if (const Settings settings = settings_of(options); settings.offline) {
    const auto path = find_fetched(name, options);
    if (!path) refuse_offline(name, settings);
    const auto place = snapshot_of(*path);
    return {.path = *path, .commit = place ? place->commit : ""};
  }
  try {
    return with_model<FetchedModel>(name, options, [](auto& model) { return model.run(); });
  } catch (const Stopped&) {
    return {.stopped = true};
  }
}

FetchPlan plan_fetch(const ModelName& name, const FetchOptions& options) {
  if (const Settings settings = settings_of(options); settings.offline) refuse_offline(name, settings);
  try {
    return with_model<FetchPlan>(name, options, [](auto& model) { return model.plan(); });
  } catch (const Stopped&) {
    throw FileError(fmt::format("{}: the fetch was stopped", name.to_string()));
  }
}

std::optional<fs::path> find_fetched(const ModelName& name, const FetchOptions& options) {
  std::error_code ignored;
  if (!name.address.empty()) {
    const fs::path path = AddressedFile::place(name);
    return fs::is_regular_file(path, ignored) ? std::optional(path) : std::nullopt;
  }
  const Settings settings = settings_of(options);
  const fs::path folder = repository_folder(settings.cache, name.repository);
  const auto commit = known_commit(folder, name.revision);
  if (!commit) return std::nullopt;
  const fs::path snapshot = folder / "snapshots" / *commit;
  Listing listing{.commit = *commit};
  for (auto& [file, bytes] : files_of_snapshot(snapshot)) listing.files.push_back({.name = file, .bytes = bytes});
  try {
    const Chosen chosen = choose_files(
        listing, name, [&](const ListedFile& file) { return read_text_file(snapshot / file.name, kIndexBytesMax); });
    return chosen.main.empty() ? snapshot : snapshot / chosen.main;
  } catch (const Error&) {  // a part of it is missing
    return std::nullopt;
  }
}

std::string FetchPlan::to_string() const {
  std::string text = fmt::format("{}: {} file{}", name.to_string(), files.size(), files.size() == 1 ? "" : "s");
  if (bytes > 0) text += fmt::format(", {}", bytes_text(bytes));
  if (missing_bytes == 0 && bytes > 0)
    text += ", all here";
  else if (missing_bytes < bytes)
    text += fmt::format(", of which {} are here", bytes_text(bytes - missing_bytes));
  constexpr std::uint64_t kUnknown = std::uint64_t{1} << 60;
  if (weight_bytes == 0 || memory_free >= kUnknown) return text;
  if (fits())
    return text + fmt::format("; the weights fit into the free memory ({} of {})", bytes_text(weight_bytes),
                              bytes_text(memory_free));
  return text +
         fmt::format("; the weights ({}) do not fit into the free memory ({}): a smaller type may, or several devices",
                     bytes_text(weight_bytes), bytes_text(memory_free));
}

}  // namespace weft::hub
