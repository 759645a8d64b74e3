#include "weft/llm_models.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <map>

#include "base/cache_folder.hpp"
#include "base/quote.hpp"
#include "base/split_name.hpp"
#include "hub/cache.hpp"
#include "hub/settings.hpp"
#include "io/model_type.hpp"
#include "io/tensor_source.hpp"
#include "llm/mmproj.hpp"
#include "llm/packed_file.hpp"
#include "llm/read_config.hpp"
#include "weft/error.hpp"

namespace weft::llm {
namespace fs = std::filesystem;
namespace {

constexpr int kDepthMax = 5;
constexpr std::size_t kEntriesMax = 100'000;

std::uint64_t size_of_file(const fs::path& path) {
  std::error_code error;
  const std::uint64_t bytes = fs::file_size(path, error);
  return error ? 0 : bytes;
}

bool is_model_folder(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path / "config.json", ignored) && (fs::exists(path / "model.safetensors", ignored) ||
                                                       fs::exists(path / "model.safetensors.index.json", ignored));
}

/// Whether the file is a part of a split model, but not the first.
bool is_later_part(const fs::path& path) {
  const auto part = split_name(path.filename().string());
  return part && part->number != 1;
}

/// The model_type of a folder that holds speech, a voice, or a tower for images, which other commands load; else empty.
std::string other_kind(const fs::path& folder) {
  const std::string type = io::model_type_of(folder);
  for (const std::string_view other : {"whisper", "moonshine", "wav2vec2", "hubert", "vits", "clip", "siglip", "vit"})
    if (type == other) return type;
  return "";
}

/// Packed files by the model that they were made of.
std::map<fs::path, std::vector<fs::path>> packed_by_model() {
  std::map<fs::path, std::vector<fs::path>> packed;
  for (const auto& [file, model] : packed_files(usual_packed_files().folder)) packed[model].push_back(file);
  return packed;
}

StoredModel described(const fs::path& path, const std::map<fs::path, std::vector<fs::path>>& packed) {
  std::error_code ignored;
  const bool is_folder = fs::is_directory(path, ignored);
  StoredModel model{.name = model_name(path), .path = path, .format = is_folder ? "folder" : "GGUF"};
  if (is_folder) {
    for (fs::directory_iterator it(path, ignored), end; !ignored && it != end; it.increment(ignored))
      if (it->is_regular_file()) model.files.push_back(it->path());
  } else {
    model.files.push_back(path);
  }
  try {
    const io::TensorSource source = io::TensorSource::open(path);
    if (!is_folder) {
      model.files.clear();
      for (const MappedFile& file : source.files()) model.files.push_back(file.path());
    }
    std::map<std::string, std::uint64_t> by_type;
    for (const io::SourceTensor& tensor : source.tensors()) {
      model.parameters += tensor.shape.numel();
      by_type[std::string(tensor.type_name)] += tensor.size_bytes();
    }
    const auto most = std::max_element(by_type.begin(), by_type.end(),
                                       [](const auto& a, const auto& b) { return a.second < b.second; });
    if (most != by_type.end()) model.type = most->first;
    if (source.gguf() && detail::is_mmproj(source.gguf()->metadata())) {
      model.family = "mmproj";
    } else if (std::string other = is_folder ? other_kind(path) : std::string(); !other.empty()) {
      model.family = std::move(other);
    } else {
      const TensorNames names(source);
      const ModelConfig config = read_config(source, names);
      model.family = config.architecture;
      model.context = config.context;
    }
  } catch (const Error& error) {
    const std::string_view text = error.what();
    model.problem = text.substr(0, text.find('\n'));
  }
  for (const fs::path& file : model.files) model.bytes += size_of_file(file);
  const std::vector<fs::path> links = model.files;
  for (const fs::path& link : links)
    if (auto blob = hub::blob_to_remove(link)) model.files.push_back(*std::move(blob));
  for (const auto& [of, files] : packed) {
    const bool is_mine = fs::equivalent(of, path, ignored) ||
                         std::any_of(model.files.begin(), model.files.end(), [&](const fs::path& file) {
                           std::error_code error;
                           return fs::equivalent(of, file, error);
                         });
    if (!is_mine) continue;
    for (const fs::path& file : files) {
      model.packed_bytes += size_of_file(file);
      model.files.push_back(file);
    }
  }
  std::sort(model.files.begin(), model.files.end());
  return model;
}

std::vector<fs::path> paths_of_models(std::span<const fs::path> folders) {
  std::vector<fs::path> found;
  for (const fs::path& folder : folders) {
    std::error_code error;
    if (is_model_folder(folder) || fs::is_regular_file(folder, error)) {
      found.push_back(folder);
      continue;
    }
    if (!fs::is_directory(folder, error)) throw FileError(fmt::format("{}: there is no such folder", folder.string()));
    std::size_t entries = 0;
    fs::recursive_directory_iterator it(folder, fs::directory_options::skip_permission_denied, error), end;
    for (; !error && it != end && ++entries < kEntriesMax; it.increment(error)) {
      std::error_code ignored;
      if (it->is_directory(ignored)) {
        const bool is_model = is_model_folder(it->path());
        if (is_model) found.push_back(it->path());
        const std::string name = it->path().filename().string();
        const bool is_of_cache = name == "blobs" || name == ".locks";  // of a hub's cache: files without their names
        if (is_model || is_of_cache || it.depth() + 1 >= kDepthMax) it.disable_recursion_pending();
      } else if (it->path().extension() == ".gguf" && it->is_regular_file(ignored) && !is_later_part(it->path())) {
        found.push_back(it->path());
      }
    }
  }
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return found;
}

}  // namespace

std::string model_name(const fs::path& given) {
  const fs::path path = given.has_filename() ? given : given.parent_path();
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) return path.stem().string();
  const auto place = hub::snapshot_of(path);
  if (!place || path.filename() != place->commit) return path.filename().string();
  const bool is_main = hub::known_commit(place->folder, "main") == place->commit;
  return fmt::format("hf:{}{}", place->repository, is_main ? "" : "@" + place->commit);
}

std::vector<fs::path> model_folders() {
  std::vector<fs::path> folders;
  const auto add = [&](const fs::path& path) {
    std::error_code ignored;
    if (!path.empty() && fs::is_directory(path, ignored)) folders.push_back(path);
  };
  if (const char* list = std::getenv("WEFT_MODELS")) {
    std::string_view rest = list;
    while (!rest.empty()) {
      const std::size_t end = std::min(rest.find(':'), rest.size());
      add(fs::path(rest.substr(0, end)));
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
  }
  if (const fs::path cache = default_cache_folder(); !cache.empty()) add(cache / "models");
  const char* data = std::getenv("WEFT_DATA_DIR");
  add(hub::usual_cache());
  add(data && *data ? fs::path(data) : fs::path(".cache/data"));
  return folders;
}

std::vector<StoredModel> stored_models(std::span<const fs::path> folders) {
  const auto packed = packed_by_model();
  std::vector<StoredModel> models;
  for (const fs::path& path : paths_of_models(folders)) models.push_back(described(path, packed));
  std::stable_sort(models.begin(), models.end(),
                   [](const StoredModel& a, const StoredModel& b) { return a.name < b.name; });
  return models;
}

std::optional<fs::path> find_model(const std::string& name) {
  if (name.empty() || name.find('/') != std::string::npos) return std::nullopt;
  std::vector<fs::path> begin;
  for (const fs::path& path : paths_of_models(model_folders())) {
    if (model_name(path) == name || path.filename() == name) return path;
    if (model_name(path).starts_with(name)) begin.push_back(path);
  }
  if (begin.empty()) return std::nullopt;
  if (begin.size() > 1) {
    std::vector<std::string> names;
    for (const fs::path& path : begin) names.push_back(model_name(path));
    throw UsageError(fmt::format("several models begin with {}: {}; give more of the name", quote(name, 60),
                                 fmt::join(names, ", ")));
  }
  return begin[0];
}

void remove_model(const StoredModel& model) {
  for (const fs::path& file : model.files) {
    std::error_code error;
    fs::remove(file, error);
    if (error) throw FileError(fmt::format("{}: cannot be removed: {}", file.string(), error.message()));
  }
  std::error_code ignored;
  if (const auto place = hub::snapshot_of(model.path)) hub::remove_empty_folders(*place);
  if (fs::is_directory(model.path, ignored) && fs::is_empty(model.path, ignored)) fs::remove(model.path, ignored);
}

ModelStorage model_storage() {
  ModelStorage storage{.folder = usual_packed_files().folder};
  for (const auto& [file, model] : packed_files(storage.folder)) {
    const std::uint64_t bytes = size_of_file(file);
    std::error_code ignored;
    ++storage.packed_files;
    storage.packed_bytes += bytes;
    if (fs::exists(model, ignored)) continue;
    ++storage.orphans;
    storage.orphan_bytes += bytes;
  }
  fs::path place = storage.folder;
  std::error_code error;
  while (!place.empty() && !fs::exists(place, error) && place.has_parent_path() && place != place.parent_path())
    place = place.parent_path();
  if (const fs::space_info space = fs::space(place.empty() ? fs::path(".") : place, error); !error) {
    storage.disk_free = space.available;
    storage.disk_size = space.capacity;
  }
  return storage;
}

std::uint64_t remove_orphans() {
  std::uint64_t removed = 0;
  for (const auto& [file, model] : packed_files(usual_packed_files().folder)) {
    std::error_code ignored, error;
    if (fs::exists(model, ignored)) continue;
    const std::uint64_t bytes = size_of_file(file);
    if (fs::remove(file, error)) removed += bytes;
  }
  return removed;
}

}  // namespace weft::llm
