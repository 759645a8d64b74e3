// Writing text with a trained model.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weft/compile.hpp"
#include "weft/nn/gpt.hpp"
#include "weft/train/text.hpp"

namespace weft::train {

/// How the next token is drawn from softmax(logits / temperature).
struct SampleOptions {
  double temperature = 0.8;  // 0: always the likeliest
  int top_k = 0;             // only the k likeliest; 0: all
  double top_p = 1;          // only the likeliest that together reach this probability
  std::uint64_t seed = 1;    // token i is drawn by Philox on (seed, i)
  /// Errors  UsageError: a number out of its range.
  void check() const;
};

/// Draws one token; `uniform` in [0, 1). Equal logits rank in the order of their tokens.
/// Errors  UsageError: no logits, or one that is NaN.
Token draw_token(std::span<const float> logits, const SampleOptions& options, double uniform);

/// Continues texts. The model sees at most `context` tokens; its windows grow by powers of two, each traced once.
class Generator {
 public:
  /// `model` must outlive this object; the model is put into evaluation mode.
  Generator(nn::GPT& model, const Alphabet& vocabulary);
  /// Logits of the token after `tokens` (the last `context` of them), one for each entry of the vocabulary.
  std::vector<float> logits(std::span<const Token> tokens);
  /// Draws `count` tokens after the prompt and passes the text of each to `sink`, as UTF-8 cut between characters; bytes that
  /// are not UTF-8 become U+FFFD. Ends early when `sink` returns false.
  /// Errors  UsageError: a character of the prompt that the vocabulary lacks.
  void generate(std::string_view prompt, std::int64_t count, const SampleOptions& options,
                const std::function<bool(std::string_view)>& sink);
  std::string generate(std::string_view prompt, std::int64_t count, const SampleOptions& options = {});

 private:
  nn::GPT& model_;
  const Alphabet& vocabulary_;
  Compiled forward_;
};

/// A model and its vocabulary, from a run's folder (its best checkpoint, or the last if there is none yet) or a file.
struct LoadedModel {
  std::unique_ptr<nn::GPT> model;
  Alphabet vocabulary;
  std::filesystem::path path;  // of the checkpoint
  std::int64_t step = 0;
  std::string warning;  // if a damaged checkpoint was skipped
};
/// Errors  FileError: no such folder or file, no checkpoint in it, or damaged ones.
LoadedModel load_model(const std::filesystem::path& run_or_file);

}  // namespace weft::train
