#include "tune/checkpoint.hpp"

#include <fmt/format.h>

#include "base/file.hpp"
#include "io/content_hash.hpp"
#include "io/safetensors.hpp"
#include "nn/state_views.hpp"
#include "weft/error.hpp"

namespace weft::tune {
namespace {

constexpr const char* kFormat = "weft-tune-1";

Json number_or_null(const std::optional<double>& value) { return value ? Json(*value) : Json(nullptr); }

}  // namespace

void save_checkpoint(const std::filesystem::path& path, const Checkpoint& checkpoint) {
  const Json place = {{"step", checkpoint.step},
                      {"seconds", checkpoint.seconds},
                      {"first_validation", number_or_null(checkpoint.first_validation)},
                      {"best_validation", number_or_null(checkpoint.best_validation)}};
  io::SafetensorsMetadata metadata = {{"format", kFormat}, {"run", checkpoint.run.dump()}, {"place", place.dump()}};
  std::vector<io::TensorView> views;
  std::uint64_t bytes = 1 << 16;
  for (const nn::NamedArray& array : checkpoint.state) {
    views.push_back(nn::view_of(array));
    bytes += array.bytes.size();
  }
  io::add_content_hash(metadata, views);
  io::write_safetensors(path, views, metadata, {.keep_previous = true, .expected_bytes = bytes});
}

Checkpoint load_checkpoint(const std::filesystem::path& path) {
  const io::SafetensorsFile file = io::SafetensorsFile::open(path);
  const auto text = [&](const std::string& key) {
    const auto found = file.metadata().find(key);
    return found == file.metadata().end() ? std::string() : found->second;
  };
  if (text("format") != kFormat)
    throw FileError(fmt::format("{}: no checkpoint of weft tune; give the folder of such a run", path.string()));
  io::check_content_hash(file, fmt::format("to go on from the checkpoint before it, rename {} to {}",
                                           previous_path(path).string(), path.string()));
  Checkpoint checkpoint;
  checkpoint.run = parse_json(text("run"), path.string());
  const Json place = parse_json(text("place"), path.string());
  checkpoint.step = place.at("step").get<std::int64_t>();
  checkpoint.seconds = place.at("seconds").get<double>();
  const auto number = [&](const char* key) {
    return place.at(key).is_null() ? std::nullopt : std::optional(place.at(key).get<double>());
  };
  checkpoint.first_validation = number("first_validation");
  checkpoint.best_validation = number("best_validation");
  for (const io::TensorView& view : file.tensors()) checkpoint.state.push_back(nn::named_array(view, file.source()));
  return checkpoint;
}

}  // namespace weft::tune
