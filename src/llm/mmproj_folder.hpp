// From an mmproj file (mmproj_layout.hpp) and the language model beside it back to a folder: the way back of mmproj_write.hpp.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "llm/convert.hpp"
#include "llm/mmproj.hpp"

namespace weft::llm::detail {

/// What a folder of a model that sees has more than, or other than, that of its language model.
class SeeingFolder {
 public:
  /// `text`: the config.json of the language model alone. FileError for a file that contradicts itself or the language model, whose
  /// GGUF file has this metadata.
  SeeingFolder(const Mmproj& file, const ModelConfig& model, const io::GgufMetadata& metadata, const Json& text,
               const ConvertOptions& options);

  /// config.json and preprocessor_config.json.
  const Json& config() const { return config_; }
  const Json& processor() const { return processor_; }
  /// What the folder calls a tensor of the language model.
  std::string name_of_text(std::string_view name) const;

  /// A tensor of the tower or the projector.
  struct Part {
    std::string name;
    const io::SourceTensor* from = nullptr;
    BlockType type = BlockType::f32;
    float add = 0;
  };
  const std::vector<Part>& parts() const { return parts_; }
  /// Gives its values in its type to `put`.
  void put(const Part& part, const std::function<void(std::span<const std::byte>)>& put) const;

 private:
  void complete(const Json& text, const ModelConfig& joined, const text::Tokenizer& tokenizer);
  std::string name_of_part(std::string_view name) const;

  MmprojKind kind_;
  ImageFiles files_;
  Json config_, processor_;
  std::vector<Part> parts_;
};

}  // namespace weft::llm::detail
