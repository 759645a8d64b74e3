#include "weft/train/generate.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/file.hpp"
#include "base/philox.hpp"
#include "base/utf8.hpp"
#include "weft/error.hpp"
#include "weft/ops.hpp"
#include "weft/train/checkpoint.hpp"

namespace weft::train {
namespace {

// Passes on whole characters of a text that arrives byte by byte.
class Utf8Pieces {
 public:
  std::string take(std::string_view bytes) {
    pending_ += bytes;
    std::string out;
    while (!pending_.empty()) {
      if (const std::size_t length = utf8_sequence_length(pending_)) {
        out.append(pending_, 0, length);
        pending_.erase(0, length);
      } else if (may_become_whole()) {
        break;
      } else {
        out += "\xEF\xBF\xBD";
        pending_.erase(0, 1);
      }
    }
    return out;
  }
  std::string rest() {
    std::string out;
    for (std::size_t i = 0; i < pending_.size(); ++i) out += "\xEF\xBF\xBD";
    pending_.clear();
    return out;
  }

 private:
  bool may_become_whole() const {
    const auto first = static_cast<unsigned char>(pending_[0]);
    const std::size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
    if (first < 0xC2 || first > 0xF4 || pending_.size() >= length) return false;
    return std::all_of(pending_.begin() + 1, pending_.end(),
                       [](char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; });
  }
  std::string pending_;
};

constexpr Extent kSmallestWindow = 16;

}  // namespace

Generator::Generator(nn::GPT& model, const Alphabet& vocabulary)
    : model_(model), vocabulary_(vocabulary), forward_([this](std::span<const Tensor> arguments) {
        // The head needs only the row of the last token.
        const Tensor hidden = model_.hidden(arguments[0]);
        const Tensor rows = reshape(hidden, {hidden.dim(1), hidden.dim(2)});
        return std::vector<Tensor>{model_.head(embedding(rows, arguments[1]))};
      }) {
  model_.eval();
}

std::vector<float> Generator::logits(std::span<const Token> tokens) {
  if (tokens.empty()) throw UsageError("generate: no tokens to go on from");
  const Extent context = model_.config().context;
  if (static_cast<Extent>(tokens.size()) > context) tokens = tokens.last(static_cast<std::size_t>(context));
  const auto count = static_cast<Extent>(tokens.size());
  Extent window = std::min(kSmallestWindow, context);
  while (window < count) window = std::min(window * 2, context);

  // Padding after the last token does not affect it, because attention is causal.
  std::vector<Token> padded(tokens.begin(), tokens.end());
  padded.resize(static_cast<std::size_t>(window), 0);
  const Tensor arguments[] = {tensor<Token>(padded, {1, window}), tensor<Token>({static_cast<Token>(count - 1)})};
  std::vector<float> all = forward_(arguments)[0].to_vector<float>();
  all.resize(static_cast<std::size_t>(vocabulary_.size()));  // drops rows of the model that no token uses
  return all;
}

void Generator::generate(std::string_view prompt, std::int64_t count, const SampleOptions& options,
                         const std::function<bool(std::string_view)>& sink) {
  options.check();
  std::vector<Token> tokens = vocabulary_.encode(prompt);
  if (tokens.empty()) {
    // The model needs a first token: a new line, if the vocabulary has one.
    const std::vector<Token> start =
        vocabulary_.kind() == Alphabet::Kind::bytes || vocabulary_.characters().find('\n') != std::string::npos
            ? vocabulary_.encode("\n")
            : std::vector<Token>{0};
    tokens = start;
  }
  const auto context = static_cast<std::size_t>(model_.config().context);
  const philox::Key key = {static_cast<std::uint32_t>(options.seed), static_cast<std::uint32_t>(options.seed >> 32)};
  Utf8Pieces pieces;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto index = static_cast<std::uint64_t>(i);
    const philox::Block words =
        philox::block(key, {static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32), 0,
                            static_cast<std::uint32_t>(philox::Use::sampling)});
    const Token next = draw_token(logits(tokens), options, philox::to_unit_double(words[0], words[1]));
    if (tokens.size() >= 2 * context) tokens.erase(tokens.begin(), tokens.end() - static_cast<std::ptrdiff_t>(context));
    tokens.push_back(next);
    const std::string text = pieces.take(vocabulary_.piece(next));
    if (!text.empty() && !sink(text)) return;
  }
  if (const std::string rest = pieces.rest(); !rest.empty()) sink(rest);
}

std::string Generator::generate(std::string_view prompt, std::int64_t count, const SampleOptions& options) {
  std::string text;
  generate(prompt, count, options, [&](std::string_view piece) {
    text += piece;
    return true;
  });
  return text;
}

LoadedModel load_model(const std::filesystem::path& run_or_file) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  fs::path path = run_or_file;
  if (fs::is_directory(path, ignored)) {
    auto has = [&](const char* name) {
      return fs::exists(path / name, ignored) || fs::exists(previous_path(path / name), ignored);
    };
    if (!has(kBestCheckpoint) && !has(kLastCheckpoint))
      throw FileError(
          fmt::format("{}: holds no checkpoint ({} or {}) and no language model (config.json with tokenizer.json); "
                      "train one with `weft train text --out {}`",
                      path.string(), kBestCheckpoint, kLastCheckpoint, path.string()));
    path /= has(kBestCheckpoint) ? kBestCheckpoint : kLastCheckpoint;
  } else if (!fs::exists(path, ignored)) {
    throw FileError(fmt::format(
        "{}: no such run or checkpoint; give the folder that `weft train text --out` wrote, a checkpoint in "
        "it, or a language model",
        path.string()));
  }
  LoadedModel loaded;
  Checkpoint checkpoint = load_checkpoint_or_previous(path, &loaded.warning);
  loaded.model = std::make_unique<nn::GPT>(checkpoint.config.model);
  try {
    loaded.model->load_state_dict(checkpoint.model);
  } catch (const UsageError& error) {
    throw FileError(fmt::format("{}: {}", path.string(), error.what()));
  }
  loaded.vocabulary = std::move(checkpoint.vocabulary);
  loaded.path = path;
  loaded.step = checkpoint.step;
  return loaded;
}

}  // namespace weft::train
