// How a language model sees images: a tower over the patches, and a connector that makes rows of it, which take the place of
// tokens in a prompt.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "io/tensor_source.hpp"
#include "text/tokenizer.hpp"
#include "vision/preprocess.hpp"
#include "vision/tower.hpp"
#include "weft/compile.hpp"

namespace weft::llm::detail {

class ImageReader {
 public:
  /// Of a folder with a config.json of a model that reads images. `width`: of the language model's rows. FileError for files that are missing or do
  /// not fit.
  ImageReader(const std::filesystem::path& folder, const io::TensorSource& files, const text::Tokenizer& tokenizer,
              Extent width, Device device);

  /// An image u8 [height, width, 3], resized and cut; or f32 [3, side, side], which is ready. Uses no device, thread safe.
  /// UsageError for another shape or dtype.
  vision::PreparedImage prepare(const Tensor& image) const;
  /// The rows of an image, and the text that a prompt has in its place: the marker for each row, and what the model was trained
  /// with around it.
  Extent rows_of(const vision::PreparedImage& image) const;
  std::string text_of(const vision::PreparedImage& image) const;
  /// The text that a chat template writes for an image, and its token.
  const std::string& marker() const { return marker_; }
  text::TokenId marker_token() const { return marker_token_; }

  /// Rows of each tile, one tile after another.
  Extent tile_rows() const { return tile_rows_; }
  /// The rows [tile_rows(), width] of a tile, row-major, on the host.
  std::vector<float> see(const vision::PreparedImage& image, std::size_t tile);
  std::uint64_t bytes() const { return bytes_; }

 private:
  Tensor connected(const Tensor& pixels) const;
  void read_llava(const Json& config, const std::string& source, vision::ModelWeights& weights, Extent width);
  void read_idefics3(const Json& config, const std::string& source, vision::ModelWeights& weights, Extent width);

  vision::ImageProcessor processor_;
  bool cuts_ = false;  // Idefics3: several tiles of an image, each with fewer rows than patches
  std::unique_ptr<vision::Tower> tower_;
  std::vector<Extent> layers_;      // LLaVA: numbers of layers after which states are taken
  bool drops_class_token_ = false;  // LLaVA
  Extent shuffle_ = 1;              // Idefics3: patches on a side of the square that becomes a row
  vision::Linear first_, second_;
  vision::Activation activation_ = vision::Activation::gelu;
  Extent side_ = 0, tile_rows_ = 0;
  std::string marker_;
  text::TokenId marker_token_ = text::kNoToken;
  std::uint64_t bytes_ = 0;
  Device device_;
  std::unique_ptr<Compiled> pass_;
};

}  // namespace weft::llm::detail
