// A loaded text encoder.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "encoder/heads.hpp"
#include "encoder/passes.hpp"
#include "encoder/sentence_modules.hpp"
#include "encoder/tokens.hpp"
#include "weft/compile.hpp"
#include "weft/encoder.hpp"

namespace weft::encoder::detail {

struct ModelState {
  ModelState(const std::filesystem::path& path, const LoadOptions& options);
  ModelState(const ModelState&) = delete;

  Device device;
  std::filesystem::path path;
  SentenceModules modules;
  std::filesystem::path transformer;  // the path itself, or the folder in it where sentence-transformers put the model
  io::TensorSource files;
  Json json;  // config.json; null for a GGUF file
  EncoderConfig config;
  DType precision;
  layers::ModelWeights weights;
  Network network;
  Task task;
  ClassHead class_head;
  TokenHead token_head;
  MaskHead mask_head;
  text::Tokenizer tokenizer;
  std::string mask;
  Extent length;
  std::uint64_t bytes = 0;
  std::optional<Compiled> embed_pass, class_pass, token_pass, mask_pass, states_pass;

  /// UsageError unless the model has this head.
  void require(Task wanted) const;
  bool has_types() const { return config.types > 1; }
  /// The tokens of a text, or of a pair. UsageError for too many, unless they may be cut, and for none.
  TokenText tokens_of(std::string_view text, const std::string* pair, TooLong too_long,
                      bool parse_special = false) const;
  /// What a compiled function of tokens, lengths (and types, where there are any) gives for each pass: [rows, ...].
  void run(Compiled& pass, const std::vector<TokenText>& texts,
           const std::function<void(const Pass& pass, const Tensor& made)>& take) const;
};

}  // namespace weft::encoder::detail
