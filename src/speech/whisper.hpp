// Whisper on its device: the encoder, and passes of the decoder over tokens. Keys and values of the encoder's states are computed once
// a window; those of tokens are kept in caches. Several texts of one window are written side by side: each is a sequence with rows of
// its own in the caches of tokens.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "speech/weights.hpp"
#include "speech/whisper_config.hpp"
#include "weft/compile.hpp"
#include "weft/speech.hpp"

namespace weft::speech::detail {

struct SequenceCopy {
  Extent from = 0, to = 0;
};

/// What the heads of alignment see of a text: where in the window each token was heard.
struct HeadScores {
  Extent heads = 0, tokens = 0, states = 0;
  std::vector<float> scores;               ///< [heads, tokens, states], before the softmax
  std::vector<float> probability_of_next;  ///< of the token behind each token but the last, among the tokens of text
};

class WhisperEngine {
 public:
  WhisperEngine(const std::filesystem::path& folder, const LoadOptions& options);

  const WhisperConfig& config() const { return config_; }
  const WhisperTokens& tokens() const { return tokens_; }
  const llm::Tokenizer& tokenizer() const { return tokenizer_; }
  const std::vector<std::string>& languages() const { return languages_; }
  const std::vector<AlignmentHead>& alignment_heads() const { return alignment_heads_; }
  Device device() const { return device_; }
  std::uint64_t weight_bytes() const { return weight_bytes_; }

  /// [mels, frames] -> [frames / 2, width]. Later passes are about this window.
  Tensor encode(const Tensor& features);
  /// Writes tokens into the caches from a position on, and gives the logits after the tokens at `rows` (of this call, at most two;
  /// `every`: after each token), row by row.
  std::vector<float> pass(std::span<const std::int32_t> tokens, Extent position, std::span<const Extent> rows);
  std::vector<float> all_logits(std::span<const std::int32_t> tokens);

  // Texts side by side. `pass` writes sequence 0.

  /// Makes room for this many sequences. Those that there are lose their tokens if there was less room.
  void reserve_sequences(Extent count);
  /// One more token of each sequence, all at one position; -1: none. Gives the logits of each, [sequences, vocabulary]; what the
  /// sequences without a token get is of no meaning.
  std::vector<float> step(std::span<const std::int32_t> token_of_sequence, Extent position);
  /// Makes the first `length` tokens of one sequence those of another. No sequence may be both a source and a target.
  void copy_sequences(std::span<const SequenceCopy> copies, Extent length);

  /// Writes these tokens as sequence 0, and gives what the heads of alignment see.
  HeadScores head_scores(std::span<const std::int32_t> tokens);

 private:
  struct Norm {
    Tensor weight, bias;
  };
  struct Projection {
    Tensor weight, bias;
  };
  struct Attention {
    Projection q, k, v, out;
    Norm norm;
  };
  struct Layer {
    Attention self;
    std::optional<Attention> cross;  // of decoders
    Projection up, down;
    Norm norm;
    Variable keys, values;              // of tokens, [sequences * target positions, width]
    Variable cross_keys, cross_values;  // of the encoder's states, [source positions, width]
  };
  enum class LogitsOf : std::uint8_t { rows, every };
  /// The tokens of a pass with padding behind them, whose position is -1 and whose length is 0.
  struct Batch {
    explicit Batch(std::size_t size)
        : tokens(size, 0), positions(size, -1), rows(size, -1), first(size, 0), length(size, 0) {}
    void put(std::size_t at, std::int32_t token, std::int32_t position, std::int32_t first_row) {
      tokens[at] = token, positions[at] = position, rows[at] = first_row + position;
      first[at] = first_row, length[at] = position + 1;
    }
    std::vector<std::int32_t> tokens, positions;
    std::vector<std::int32_t> rows, first, length;  // in the caches: its own row, and those that it sees
  };

  Attention load_attention(Weights& weights, const std::string& name, const std::string& norm) const;
  Layer load_layer(Weights& weights, const std::string& name, Extent inner, bool is_decoder) const;
  Norm load_norm(Weights& weights, const std::string& name) const;
  Tensor encoder(const Tensor& features);
  /// Scores of the heads of alignment are added to `scores`, unless it is null.
  Tensor decoder(std::span<const Tensor> arguments, std::vector<Tensor>* scores = nullptr);
  Tensor cross_scores(std::size_t layer, const Tensor& q) const;
  void make_caches(Layer& layer, Extent sequences) const;
  std::size_t padded(std::size_t tokens) const;
  Batch one_sequence(std::span<const std::int32_t> tokens, Extent position) const;
  std::vector<Tensor> arguments_of(const Batch& batch) const;
  Tensor feed_forward(const Layer& layer, const Tensor& x) const;
  Tensor run(const Batch& batch, std::span<const Extent> rows, LogitsOf wanted);

  WhisperConfig config_;
  llm::Tokenizer tokenizer_;
  WhisperTokens tokens_;
  std::vector<std::string> languages_;
  std::vector<AlignmentHead> alignment_heads_;
  Device device_;
  std::uint64_t weight_bytes_ = 0;
  Tensor stem_weight_[2], stem_bias_[2];
  Tensor encoder_positions_, decoder_positions_, table_, head_;
  std::vector<Layer> encoder_layers_, decoder_layers_;
  Norm encoder_norm_, decoder_norm_;
  std::optional<Compiled> encode_;
  std::map<std::pair<std::size_t, std::size_t>, Compiled> passes_;  // by tokens and rows; 0 rows: every
  std::optional<Compiled> align_, copy_;                            // traced for each size
  Extent sequences_ = 1;
  bool has_window_ = false;
};

}  // namespace weft::speech::detail
