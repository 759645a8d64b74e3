#include "weft/train/checkpoint.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/checked.hpp"
#include "base/file.hpp"
#include "base/json.hpp"
#include "base/quote.hpp"
#include "io/content_hash.hpp"
#include "io/safetensors.hpp"
#include "nn/state_views.hpp"
#include "weft/error.hpp"

namespace weft::train {
namespace {

constexpr const char* kFormat = "weft-checkpoint-1";
constexpr const char* kModel = "model.";
constexpr const char* kOptimizer = "optimizer.";
constexpr const char* kLossScale = "loss_scale.";
constexpr const char* kRandom = "random_state";

[[noreturn]] void foreign(const std::string& source, const std::string& fact) {
  throw FileError(fmt::format("{}: {}; only checkpoints that `weft train` wrote can be used here", source, fact));
}

const std::string& text_of(const io::SafetensorsFile& file, const std::string& key) {
  const auto it = file.metadata().find(key);
  if (it == file.metadata().end()) foreign(file.source(), fmt::format("its metadata lacks \"{}\"", key));
  return it->second;
}

template <class T>
T number_of(const io::SafetensorsFile& file, const std::string& key) {
  const std::string& text = text_of(file, key);
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !(value >= 0))
    foreign(file.source(), fmt::format("its metadata has {} for \"{}\"", quote(text), key));
  return value;
}

}  // namespace

void save_checkpoint(const std::filesystem::path& path, const Checkpoint& c) {
  io::SafetensorsMetadata metadata = {{"format", kFormat},
                                      {"config", to_json(c.config)},
                                      {"vocabulary", std::string(name_of(c.vocabulary.kind()))},
                                      {"characters", c.vocabulary.characters()},
                                      {"step", fmt::format("{}", c.step)},
                                      {"elapsed_seconds", fmt::format("{}", c.elapsed_seconds)},
                                      {"best_step", fmt::format("{}", c.best_step)}};
  if (c.best_loss) metadata["best_loss"] = fmt::format("{}", *c.best_loss);

  std::vector<io::TensorView> views;
  std::uint64_t bytes = 1 << 16;
  auto add = [&](const char* prefix, const nn::NamedArray& a) {
    views.push_back(nn::view_of(a, prefix));
    bytes += a.bytes.size();
  };
  for (const nn::NamedArray& a : c.model) add(kModel, a);
  for (const nn::NamedArray& a : c.optimizer) add(kOptimizer, a);
  for (const nn::NamedArray& a : c.loss_scale) add(kLossScale, a);
  if (c.random_state) {
    views.push_back(nn::view_of(*c.random_state));
    views.back().name = kRandom;
  }
  io::add_content_hash(metadata, views);
  io::write_safetensors(path, views, metadata, {.keep_previous = true, .expected_bytes = bytes});
}

namespace {

/// A model is as large as the configuration says. What the file cannot fill is refused before it is built.
void check_extents(const Checkpoint& c, std::string_view source) {
  Extent held = 0;
  for (const nn::NamedArray& array : c.model) held += static_cast<Extent>(array.bytes.size());
  const nn::GptConfig& model = c.config.model;
  const auto fits = [&](Extent rows) {
    const auto numbers = try_multiply(rows, model.width);
    return numbers && *numbers <= held;
  };
  if (model.layers > static_cast<Extent>(c.model.size()) || !fits(model.vocabulary) || !fits(model.context))
    throw FileError(fmt::format(
        "{}: {} layers of width {}, with a vocabulary of {} and a context of {}, are asked for, but the file has {} "
        "tensors of {} bytes; is it whole?",
        source, model.layers, model.width, model.vocabulary, model.context, c.model.size(), held));
}

}  // namespace

Checkpoint load_checkpoint(const std::filesystem::path& path) {
  const io::SafetensorsFile file = io::SafetensorsFile::open(path);
  const auto format = file.metadata().find("format");
  if (format == file.metadata().end() || format->second != kFormat)
    foreign(file.source(), format == file.metadata().end()
                               ? "a safetensors file of another program, without a format of its own"
                               : fmt::format("its format is {}, not \"{}\"", quote(format->second), kFormat));
  io::check_content_hash(file, "use another copy");

  Checkpoint c;
  c.config = run_config_from_json(text_of(file, "config"), file.source());
  if (alphabet_kind(text_of(file, "vocabulary")) == Alphabet::Kind::bytes)
    c.vocabulary = Alphabet::bytes();
  else
    c.vocabulary = Alphabet::characters_of(text_of(file, "characters"), file.source());
  if (c.vocabulary.size() > c.config.model.vocabulary)
    foreign(file.source(), "its vocabulary is larger than its model's");
  c.step = number_of<std::int64_t>(file, "step");
  c.elapsed_seconds = number_of<double>(file, "elapsed_seconds");
  c.best_step = number_of<std::int64_t>(file, "best_step");
  if (file.metadata().contains("best_loss")) c.best_loss = number_of<double>(file, "best_loss");
  for (const io::TensorView& view : file.tensors()) {
    nn::NamedArray named = nn::named_array(view, file.source());
    if (view.name == kRandom) {
      c.random_state = std::move(named);
      continue;
    }
    const std::pair<std::string_view, nn::StateDict*> parts[] = {
        {kModel, &c.model}, {kOptimizer, &c.optimizer}, {kLossScale, &c.loss_scale}};
    const auto part =
        std::find_if(std::begin(parts), std::end(parts), [&](const auto& p) { return view.name.starts_with(p.first); });
    if (part == std::end(parts)) foreign(file.source(), fmt::format("it holds a tensor {}", quote(view.name)));
    named.name.erase(0, part->first.size());
    part->second->push_back(std::move(named));
  }
  check_extents(c, file.source());
  return c;
}

Checkpoint load_checkpoint_or_previous(const std::filesystem::path& path, std::string* warning) {
  try {
    return load_checkpoint(path);
  } catch (const FileError& error) {
    const std::filesystem::path previous = previous_path(path);
    std::error_code ignored;
    if (!std::filesystem::exists(previous, ignored)) throw;
    const std::string reason = error.what();
    try {
      Checkpoint c = load_checkpoint(previous);
      if (warning)
        *warning = fmt::format("{}\n  using the one before it, {}, of step {}", reason, previous.string(), c.step);
      return c;
    } catch (const FileError& second) {
      throw FileError(fmt::format("{}\n  and the one before it: {}", reason, second.what()));
    }
  }
}

}  // namespace weft::train
