#include "io/safetensors_index.hpp"

#include <fmt/format.h>

#include <set>
#include <system_error>

#include "base/json.hpp"
#include "base/quote.hpp"
#include "weft/error.hpp"

namespace weft::io {
namespace {

bool is_plain_name(const std::string& name) {
  constexpr std::string_view kSuffix = ".safetensors";
  if (name.size() <= kSuffix.size() || !name.ends_with(kSuffix) || name.front() == '.') return false;
  for (const char c : name)
    if (c == '/' || c == '\\' || c == ':' || static_cast<unsigned char>(c) < 0x20 || c == 0x7F) return false;
  return true;
}

/// FileError if the file does not exist. It may be a link to any place: Hugging Face's caches keep shards elsewhere and link to
/// them, and anyone who can put a link into a folder can also put a file there.
std::filesystem::path shard_in(const std::filesystem::path& folder, const std::string& name) {
  std::error_code error;
  const auto path = folder / name;
  if (!std::filesystem::exists(path, error))
    throw FileError(fmt::format("{}: the index names the shard {}, which cannot be found ({}); fetch it",
                                folder.string(), quote(name),
                                error ? error.message() : "no such file, or a broken link"));
  return path;
}

}  // namespace

SafetensorsIndex read_safetensors_index(const std::filesystem::path& path) {
  const Json root = read_json_file(path, {.max_depth = 8});
  const std::string source = path.string();
  if (!root.is_object()) throw FileError(fmt::format("{}: the index is not an object", source));
  const auto map = root.find("weight_map");
  if (map == root.end())
    throw FileError(fmt::format("{}: weight_map is missing; it says which file holds which tensor", source));
  if (!map->is_object()) throw FileError(fmt::format("{}: weight_map is not an object of file names", source));
  SafetensorsIndex index;
  std::set<std::string> files;
  for (const auto& [tensor, file] : map->items()) {
    if (!file.is_string()) throw FileError(fmt::format("{}: weight_map {} is not a file name", source, quote(tensor)));
    const std::string name = file.get<std::string>();
    if (!is_plain_name(name))
      throw FileError(
          fmt::format("{}: weight_map {} names {}; only plain names of files in the same folder that end in "
                      ".safetensors are allowed",
                      source, quote(tensor), quote(name)));
    index.weight_map[tensor] = name;
    files.insert(name);
  }
  index.files.assign(files.begin(), files.end());
  return index;
}

SafetensorsFolder SafetensorsFolder::open(const std::filesystem::path& folder) {
  SafetensorsFolder result;
  const auto single = folder / "model.safetensors";
  const auto index_path = folder / "model.safetensors.index.json";
  std::error_code ignored;
  if (std::filesystem::exists(single, ignored)) {
    result.files_.push_back(SafetensorsFile::open(single));
    for (const TensorView& tensor : result.files_.back().tensors()) result.tensors_[tensor.name] = tensor;
    return result;
  }
  if (!std::filesystem::exists(index_path, ignored))
    throw FileError(fmt::format("'{}' holds neither model.safetensors nor model.safetensors.index.json; check the path",
                                folder.string()));
  const SafetensorsIndex index = read_safetensors_index(index_path);
  for (const std::string& name : index.files) {
    result.files_.push_back(SafetensorsFile::open(shard_in(folder, name)));
    for (const TensorView& tensor : result.files_.back().tensors()) {
      const auto listed = index.weight_map.find(tensor.name);
      if (listed == index.weight_map.end())
        throw FileError(fmt::format("{}: {} holds tensor {}, which the index does not list", folder.string(),
                                    quote(name), quote(tensor.name)));
      if (listed->second != name)
        throw FileError(fmt::format("{}: tensor {} is in {}, but the index puts it in {}", folder.string(),
                                    quote(tensor.name), quote(name), quote(listed->second)));
      result.tensors_[tensor.name] = tensor;
    }
  }
  for (const auto& [tensor, name] : index.weight_map)
    if (!result.tensors_.contains(tensor))
      throw FileError(fmt::format("{}: the index puts tensor {} in {}, which does not hold it", folder.string(),
                                  quote(tensor), quote(name)));
  return result;
}

}  // namespace weft::io
