// A text encoder whose weights are Variables: its head, the passes that train it, and the folder that it is written to.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "encoder/heads.hpp"
#include "encoder/sentence_modules.hpp"
#include "encoder/tokens.hpp"
#include "weft/nn/state.hpp"

namespace weft::encoder {

/// The head that is to train.
struct TunedHead {
  Task task = Task::embed;                ///< embed, classify or label_tokens
  std::vector<std::string> classes = {};  ///< by id; of a head for numbers one
  const char* problem = nullptr;          ///< problem_type of config.json; null: none
};

/// The network is built anew in each function that is compiled, over the Variables' values.
class TunedModel {
 public:
  /// Reads the weights, in f32. A head that the files do not have, or with other classes, begins with random values: of its matrices
  /// normal with config.json's initializer_range, its norms with 1, its biases with 0.
  /// `length` is the most tokens of a text, if the model reads as many; 0: as its files say.
  /// Errors: FileError; UsageError for GGUF files, and for a family without such a head.
  TunedModel(const std::filesystem::path& path, Device device, Extent length, TunedHead head, std::uint64_t seed);

  std::vector<Variable> variables() const;
  std::vector<nn::NamedVariable> named() const;
  std::int64_t count() const;
  bool has_new_head() const { return has_new_head_; }
  bool has_types() const { return config_.types > 1; }
  Device device() const { return device_; }
  Extent length() const { return length_; }
  const EncoderConfig& config() const { return config_; }
  const text::Tokenizer& tokenizer() const { return tokenizer_; }

  /// Rows of texts, f32 [texts, width]; scores of classes of texts, f32 [texts, classes], and of tokens, f32 [texts length, classes].
  Tensor embedded(const Padded& texts, PassMode mode) const;
  Tensor class_scores(const Padded& texts, PassMode mode) const;
  Tensor token_scores(const Padded& texts, PassMode mode) const;

  /// A folder of the model in f32 that transformers and sentence-transformers load, with all files of the first one that are not weights.
  /// FileError.
  void save(const std::filesystem::path& folder) const;

 private:
  struct Passes {
    Network network;
    SentenceModules modules;
    ClassHead class_head;
    TokenHead token_head;
  };
  Passes passes() const;
  Tensor value_of(const std::string& name, const Shape& shape);
  Tensor first_value(const std::string& name, const Shape& shape) const;
  Json saved_config() const;
  std::string saved_name(const std::string& name) const;
  void save_weights(const std::filesystem::path& folder) const;

  const std::filesystem::path path_;
  const Device device_;
  const TunedHead head_;
  SentenceModules modules_;
  std::filesystem::path transformer_;
  io::TensorSource files_;
  Json json_;
  EncoderConfig config_;
  EncoderNames names_;
  text::Tokenizer tokenizer_;
  Extent length_ = 0;
  bool has_new_head_ = false;
  double spread_ = 0.02;  // of the values that a head begins with
  mutable layers::ModelWeights loader_;
  std::vector<std::string> order_;
  std::map<std::string, Variable> variables_;
};

}  // namespace weft::encoder
