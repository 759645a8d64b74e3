// The mmproj file of a model: what the caller names, or one that lies beside the model.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <tuple>

#include "base/quote.hpp"
#include "llm/mmproj.hpp"
#include "weft/error.hpp"

namespace weft::llm::detail {
namespace {

namespace fs = std::filesystem;

std::string in_lower_case(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

struct Neighbours {
  /// With "mmproj" in their names. Those first that have the model's name in theirs; then those of 16 bits, which have the smallest
  /// towers without losses; then by name.
  std::vector<fs::path> towers;
  bool has_other_models = false;
};

Neighbours neighbours_of(const fs::path& model) {
  Neighbours found;
  std::error_code error;
  const fs::path folder = model.has_parent_path() ? model.parent_path() : fs::path(".");
  for (fs::directory_iterator each(folder, error), end; !error && each != end; each.increment(error)) {
    const std::string name = in_lower_case(each->path().filename().string());
    std::error_code ignored;
    if (!name.ends_with(".gguf") || !each->is_regular_file(ignored) || fs::equivalent(each->path(), model, ignored))
      continue;
    if (name.find("mmproj") != std::string::npos)
      found.towers.push_back(each->path());
    else
      found.has_other_models = true;
  }
  const std::string stem = in_lower_case(model.stem().string());
  const auto rank = [&](const fs::path& path) {
    const std::string name = in_lower_case(path.filename().string());
    return std::tuple(name.find(stem) == std::string::npos, name.find("f32") != std::string::npos, name);
  };
  std::sort(found.towers.begin(), found.towers.end(),
            [&](const fs::path& a, const fs::path& b) { return rank(a) < rank(b); });
  return found;
}

std::string first_line(std::string_view text) { return std::string(text.substr(0, text.find('\n'))); }

}  // namespace

std::optional<Mmproj> mmproj_of_model(const io::TensorSource& model, const ModelConfig& config, const fs::path& wanted,
                                      std::vector<std::string>& notes) {
  if (wanted == "none") return {};
  if (!model.gguf()) {
    if (wanted.empty()) return {};
    throw UsageError(
        fmt::format("llm::load: {} is for GGUF files; the model {} is a folder or a file of another kind, which has "
                    "its tower itself if it sees; leave mmproj out",
                    wanted.string(), model.path().string()));
  }
  const io::GgufMetadata& metadata = model.gguf()->metadata();
  if (!wanted.empty()) {
    Mmproj file = Mmproj::open(wanted);
    if (const std::string reason = file.why_not(config, metadata); !reason.empty())
      throw FileError(
          fmt::format("{}: is of another model than {}: {}", wanted.string(), model.path().string(), reason));
    return file;
  }
  std::vector<std::string> reasons;
  const Neighbours neighbours = neighbours_of(model.path());
  for (const fs::path& each : neighbours.towers) {
    try {
      Mmproj file = Mmproj::open(each);
      std::string reason = file.why_not(config, metadata);
      // Nothing but the width of its rows says which model a file of LLaVA belongs to.
      if (reason.empty() && neighbours.has_other_models && !file.knows(metadata))
        reason = "it may belong to another model of the folder; name it as mmproj if it is this one's";
      if (reason.empty()) {
        notes.push_back(fmt::format("images are read by {}, which lies beside the model; mmproj \"none\" leaves it out",
                                    quote(each.filename().string())));
        return file;
      }
      reasons.push_back(fmt::format("{} beside the model is not used: {}", quote(each.filename().string()), reason));
    } catch (const Error& error) {
      reasons.push_back(fmt::format("{} beside the model is not used: {}", quote(each.filename().string()),
                                    first_line(error.what())));
    }
  }
  // A folder may hold the files of many models.
  if (reasons.size() == 1) notes.push_back(reasons[0]);
  return {};
}

}  // namespace weft::llm::detail
