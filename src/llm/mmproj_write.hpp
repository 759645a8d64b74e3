// The part of a folder's model that sees, as an mmproj file (mmproj_layout.hpp).
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "llm/convert.hpp"
#include "llm/image_files.hpp"
#include "llm/mmproj_layout.hpp"

namespace weft::llm::detail {

/// Planned when it is made, so that what a file cannot express is known before anything is written.
class MmprojFile {
 public:
  /// `source` is the folder, which must outlive this; `model` its language model. FileError for files that are missing or malformed, and
  /// for a tower that such a file cannot express, with what would differ.
  MmprojFile(const io::TensorSource& source, const ModelConfig& model, const ConvertOptions& options);
  /// The number of tensors written. FileError as GgufWriter.
  std::size_t write(const std::filesystem::path& file, const ConvertOptions& options) const;
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  /// A tensor of the file: rows or frames of one of the folder.
  struct Move {
    std::string name;
    Shape shape;
    BlockType type = BlockType::f32;
    const io::SourceTensor* from = nullptr;
    std::size_t part = 0, parts = 1;  ///< of the first axis, or of the frames
    bool is_frame = false;
    bool turns = false;  ///< rows of heads become neighbours
    float add = 0;
  };
  void describe(const ModelConfig& model);
  void plan(const ConvertOptions& options);
  void add_break_token(const ConvertOptions& options);
  void check_same();
  Move move_of(std::string name, const io::SourceTensor& from, const ConvertOptions& options) const;
  std::vector<float> values_of(const Move& move) const;
  [[noreturn]] void refuse(const std::string& fact) const;

  const io::TensorSource& source_;
  ImageFiles files_;
  const MmprojLayout* layout_ = nullptr;
  Extent layers_ = 0, heads_ = 0;
  std::vector<Extent> taken_;  ///< Qwen3-VL: layers whose states have mergers of their own
  io::GgufMetadata metadata_;
  std::vector<Move> moves_;
  std::vector<std::string> notes_;
};

}  // namespace weft::llm::detail
