// Which files of a repository make a model.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <optional>
#include <set>

#include "base/json.hpp"
#include "base/quote.hpp"
#include "base/split_name.hpp"
#include "hub/listing.hpp"
#include "hub/names.hpp"
#include "weft/error.hpp"

namespace weft::hub {
namespace {

constexpr std::string_view kUsualType = "Q4_K_M";
constexpr std::size_t kShownMax = 12;
constexpr std::uint64_t kSmallBytesMax = std::uint64_t{64} << 20;  // configurations and vocabularies

bool is_gguf(std::string_view name) { return lower(name).ends_with(".gguf"); }

/// The towers of images of llama.cpp, which are not models of their own.
bool is_projector(std::string_view name) {
  return lower(name.substr(name.rfind('/') + 1)).find("mmproj") != std::string::npos;
}

/// Whether a file's name has a word, as Q4_K_M in "model-q4_k_m.gguf" and "Q4_K_M/model.gguf".
bool has_word(std::string_view name, std::string_view word) {
  const std::string text = lower(name), wanted = lower(word);
  const auto is_in_word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; };
  for (std::size_t at = text.find(wanted); at != std::string::npos; at = text.find(wanted, at + 1)) {
    const std::size_t end = at + wanted.size();
    if ((at == 0 || !is_in_word(text[at - 1])) && (end == text.size() || !is_in_word(text[end]))) return true;
  }
  return false;
}

/// "1_Pooling/config.json".
bool is_in_module(const std::string& name) {
  const std::size_t slash = name.find('/'), digits = name.find_first_not_of("0123456789");
  return slash != std::string::npos && name.find('/', slash + 1) == std::string::npos && digits > 0 && digits < slash &&
         name[digits] == '_';
}

class Chooser {
 public:
  Chooser(const Listing& listing, const ModelName& name, const std::function<std::string(const ListedFile&)>& read)
      : name_(name), read_(read) {
    for (const ListedFile& file : listing.files) by_name_.emplace(file.name, &file);
  }

  Chosen choose() {
    if (!name_.choice.empty()) {
      if (const ListedFile* file = find(name_.choice)) return one_file(*file);
      return of_type(name_.choice);
    }
    if (find("config.json") && has_safetensors()) return folder();
    const std::vector<const ListedFile*> models = gguf_models();
    if (models.size() == 1) return one_file(*models[0]);
    if (!models.empty()) return of_type(kUsualType);
    if (const ListedFile* voice = only_with_ending(".onnx")) return with_companion(*voice);
    refuse_folder();
  }

 private:
  const ListedFile* find(const std::string& name) const {
    const auto found = by_name_.find(name);
    return found == by_name_.end() ? nullptr : found->second;
  }

  /// Files with this ending, not in folders.
  std::vector<const ListedFile*> outer_files(std::string_view ending) const {
    std::vector<const ListedFile*> files;
    for (const auto& [name, file] : by_name_)
      if (name.ends_with(ending) && name.find('/') == std::string::npos) files.push_back(file);
    return files;
  }
  const ListedFile* only_with_ending(std::string_view ending) const {
    const auto files = outer_files(ending);
    return files.size() == 1 ? files[0] : nullptr;
  }
  bool has_safetensors() const { return !outer_files(".safetensors").empty(); }

  /// A file for each GGUF model: of a split one, the first part.
  std::vector<const ListedFile*> gguf_models() const {
    std::vector<const ListedFile*> models;
    for (const auto& [name, file] : by_name_) {
      const auto part = split_name(name);
      if (is_gguf(name) && !is_projector(name) && (!part || part->number == 1)) models.push_back(file);
    }
    return models;
  }

  Chosen one_file(const ListedFile& file) const {
    Chosen chosen;
    const auto part = is_gguf(file.name) ? split_name(file.name) : std::nullopt;
    if (!part || part->count < 2) {
      chosen.files = {file};
    } else {
      for (int i = 1; i <= part->count; ++i) {
        const std::string name = fmt::format("{}-{:05}-of-{:05}{}", part->before, i, part->count, part->after);
        const ListedFile* each = find(name);
        if (!each)
          throw FileError(fmt::format("{}: part {} of {} is missing in the repository: there is no {}",
                                      name_.to_string(), i, part->count, quote(name)));
        chosen.files.push_back(*each);
      }
    }
    chosen.are_weights.assign(chosen.files.size(), true);
    chosen.main = chosen.files[0].name;
    return chosen;
  }

  /// A voice of Piper has its configuration beside it.
  Chosen with_companion(const ListedFile& file) const {
    Chosen chosen = one_file(file);
    if (const ListedFile* config = find(file.name + ".json")) {
      chosen.files.push_back(*config);
      chosen.are_weights.push_back(false);
    }
    return chosen;
  }

  Chosen of_type(std::string_view type) const {
    std::vector<const ListedFile*> models = gguf_models(), found;
    for (const ListedFile* each : models)
      if (has_word(each->name, type)) found.push_back(each);
    if (found.size() == 1) return one_file(*found[0]);
    if (models.empty())
      throw UsageError(fmt::format("{}: there is no file {} in the repository, and no GGUF file; it has {}",
                                   name_.to_string(), quote(type), list(all_files())));
    const std::string hub_name = fmt::format("hf:{}", name_.repository);
    if (found.empty())
      throw UsageError(fmt::format("{}: {}; name one of its files, as in {}:{}\n{}", name_.to_string(),
                                   name_.choice.empty() ? std::string("the repository has several models")
                                                        : fmt::format("there is no file or type {}", quote(type)),
                                   hub_name, models[0]->name, table(models)));
    throw UsageError(fmt::format("{}: several files are of type {}; name one, as in {}:{}\n{}", name_.to_string(),
                                 quote(type), hub_name, found[0]->name, table(found)));
  }

  Chosen folder() const {
    Chosen chosen;
    for (const auto& [name, file] : by_name_) {
      if (name.find('/') != std::string::npos || file->bytes > kSmallBytesMax) continue;
      const bool is_text = name.ends_with(".json") || name.ends_with(".jinja") || name == "merges.txt" ||
                           name == "vocab.txt" || name.ends_with(".model");
      if (!is_text || name.ends_with(".index.json")) continue;
      chosen.files.push_back(*file);
      chosen.are_weights.push_back(false);
    }
    const auto add = [&](const ListedFile& file, bool weights) {
      chosen.files.push_back(file);
      chosen.are_weights.push_back(weights);
    };
    if (const ListedFile* whole = find("model.safetensors")) {
      add(*whole, true);
    } else if (const ListedFile* index = find("model.safetensors.index.json")) {
      add(*index, false);
      for (const std::string& shard : shards_of(*index)) {
        const ListedFile* file = find(shard);
        if (!file || !is_safe_file_name(shard))
          throw FileError(fmt::format("{}: {} names {}, which the repository does not have", name_.to_string(),
                                      index->name, quote(shard)));
        add(*file, true);
      }
    } else {
      const auto files = outer_files(".safetensors");
      if (files.size() != 1)
        throw UsageError(
            fmt::format("{}: no index says which safetensors files belong together; name one, as in hf:{}:{}\n{}",
                        name_.to_string(), name_.repository, files[0]->name, table(files)));
      add(*files[0], true);
    }
    // sentence-transformers has a folder for each module behind the model: "1_Pooling", "2_Dense".
    if (find("modules.json"))
      for (const auto& [name, file] : by_name_) {
        if (!is_in_module(name)) continue;
        if (name.ends_with("/model.safetensors")) add(*file, true);
        if (name.ends_with(".json") && file->bytes <= kSmallBytesMax) add(*file, false);
      }
    return chosen;
  }

  std::set<std::string> shards_of(const ListedFile& index) const {
    const std::string source = fmt::format("{}: {}", name_.to_string(), index.name);
    const Json json = parse_json(read_(index), source);
    const auto map = json.is_object() ? json.find("weight_map") : json.end();
    if (!json.is_object() || map == json.end() || !map->is_object() || map->empty())
      throw FileError(fmt::format("{}: it has no weight_map", source));
    std::set<std::string> shards;
    for (const Json& shard : *map) {
      if (!shard.is_string()) throw FileError(fmt::format("{}: a file of weight_map is not a text", source));
      shards.insert(shard.get<std::string>());
    }
    return shards;
  }

  [[noreturn]] void refuse_folder() const {
    for (const std::string_view ending : {".bin", ".pt", ".pth", ".ckpt"})
      if (const auto files = outer_files(ending); !files.empty())
        throw FileError(
            fmt::format("{}: its weights are {}, which may hold code and is not opened; look for a repository with "
                        "safetensors or GGUF files, or name a file, as in hf:{}:{}",
                        name_.to_string(), quote(files[0]->name), name_.repository, files[0]->name));
    throw FileError(
        fmt::format("{}: the repository has no weights in safetensors with a config.json, and no GGUF file; it has {}",
                    name_.to_string(), list(all_files())));
  }

  std::vector<const ListedFile*> all_files() const {
    std::vector<const ListedFile*> files;
    for (const auto& [name, file] : by_name_) files.push_back(file);
    return files;
  }
  static std::string list(const std::vector<const ListedFile*>& files) {
    std::vector<std::string> names;
    for (std::size_t i = 0; i < std::min(files.size(), kShownMax); ++i) names.push_back(quote(files[i]->name));
    std::string text = names.empty() ? "no files" : fmt::format("{}", fmt::join(names, ", "));
    if (files.size() > kShownMax) text += fmt::format(" and {} more", files.size() - kShownMax);
    return text;
  }
  /// A line for each model, with the bytes of all of its parts.
  std::string table(const std::vector<const ListedFile*>& models) const {
    std::string text;
    for (std::size_t i = 0; i < std::min(models.size(), kShownMax); ++i) {
      std::uint64_t bytes = 0;
      const auto part = split_name(models[i]->name);
      for (const auto& [name, file] : by_name_) {
        const auto other = split_name(name);
        if (name == models[i]->name || (part && other && other->before == part->before && other->count == part->count))
          bytes += file->bytes;
      }
      text += fmt::format("  {:>9}  {}\n", bytes_text(bytes), models[i]->name);
    }
    if (models.size() > kShownMax) text += fmt::format("  and {} more\n", models.size() - kShownMax);
    text.pop_back();
    return text;
  }

  const ModelName& name_;
  const std::function<std::string(const ListedFile&)>& read_;
  std::map<std::string, const ListedFile*> by_name_;
};

}  // namespace

Chosen choose_files(const Listing& listing, const ModelName& name,
                    const std::function<std::string(const ListedFile&)>& read) {
  return Chooser(listing, name, read).choose();
}

}  // namespace weft::hub
