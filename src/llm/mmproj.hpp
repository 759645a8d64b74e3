// Reading of mmproj files (mmproj_layout.hpp): which model one belongs to, and what a folder of that model would hold.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "io/tensor_source.hpp"
#include "llm/config.hpp"
#include "llm/image_files.hpp"
#include "llm/mmproj_layout.hpp"
#include "text/tokenizer.hpp"

namespace weft::llm::detail {

/// Whether a GGUF file is one of these, and not a language model.
bool is_mmproj(const io::GgufMetadata& metadata);

class Mmproj {
 public:
  /// FileError for a file of another kind, for a projector that Weft does not know, and for keys that are missing or out of range.
  static Mmproj open(const std::filesystem::path& path);
  /// Keys and tensors of a file; `metadata` is that of the file.
  Mmproj(io::TensorSource source, io::GgufMetadata metadata);

  /// Why it is not a part of this language model, whose file has this metadata; "" if nothing speaks against it.
  std::string why_not(const ModelConfig& model, const io::GgufMetadata& metadata) const;
  /// Makes the language model one that reads images. FileError as `check`.
  void join(ModelConfig& model, const io::GgufMetadata& metadata) const;
  /// The token for rows of images if the model's vocabulary lacks it, as those of the first LLaVA models and of some files of Gemma 3
  /// do; else "". The model never reads this token: rows of images take its place.
  std::string missing_token(const io::GgufMetadata& metadata) const;
  /// Whether more than the width of its rows speaks for this language model: its architecture, or its tokens.
  bool knows(const io::GgufMetadata& metadata) const;
  /// What a folder would hold. FileError for a file that contradicts itself.
  ImageFiles files(const ModelConfig& model, const text::Tokenizer& tokenizer) const;
  /// The object vision_config of its config.json, and its preprocessor_config.json.
  Json vision_config() const;
  Json processor_config() const;
  vision::ImageProcessor processor() const;
  MmprojKind kind() const { return layout_->kind; }
  /// Pixtral and Mistral 3: patches on a side of the square that becomes a row.
  Extent merge() const { return number("spatial_merge_size", 16, 1); }

 private:
  Extent number(std::string_view key, Extent max, std::optional<Extent> fallback = {}) const;
  Extent rows_width() const;
  std::vector<Extent> taken_layers() const;
  Json config(const ModelConfig& model, const text::Tokenizer& tokenizer) const;
  io::TensorSource tensors() const;
  bool has_swapped_mlp() const;
  const io::SourceTensor* find(std::string_view name) const { return source_.find(name); }

  io::TensorSource source_;
  io::GgufMetadata metadata_;
  const MmprojLayout* layout_ = nullptr;
};

/// The mmproj file of a model in a GGUF file. `wanted`: of the caller; "none": none; empty: one that lies beside the model, whose
/// name has "mmproj" in it and that fits. What was found, or why nothing was, is added to the notes. FileError for a wanted file
/// that cannot be used; UsageError if one is wanted for a model in a folder.
std::optional<Mmproj> mmproj_of_model(const io::TensorSource& model, const ModelConfig& config,
                                      const std::filesystem::path& wanted, std::vector<std::string>& notes);

}  // namespace weft::llm::detail
