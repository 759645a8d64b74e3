// How a language model sees images: a tower over the patches, and a connector that makes rows of it, which take the place of
// tokens in a prompt.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "llm/image_files.hpp"
#include "text/tokenizer.hpp"
#include "weft/compile.hpp"

namespace weft::llm::detail {

/// Rows of an image that have places on two axes; 0: they have one place after another, as tokens do.
struct RowGrid {
  Extent height = 0, width = 0;
};

class ImageReader {
 public:
  virtual ~ImageReader() = default;

  /// An image u8 [height, width, 3], resized and cut; or f32 [3, height, width], which is ready. Uses no device, thread safe.
  /// UsageError for another shape or dtype.
  virtual vision::PreparedImage prepare(const Tensor& image) const = 0;
  /// Rows that `see` makes of each tile of the image.
  virtual Extent tile_rows(const vision::PreparedImage& image) const = 0;
  static Extent tiles_of(const vision::PreparedImage& image) {
    return image.ready.empty() ? static_cast<Extent>(image.tiles.size()) : 1;
  }
  /// Rows of the image in a prompt, and where each is among those of its tiles: one tile after another, unless a model has them in
  /// another order.
  struct RowPlace {
    Extent tile, row;
  };
  virtual Extent rows_of(const vision::PreparedImage& image) const { return tile_rows(image) * tiles_of(image); }
  virtual RowPlace place_of(const vision::PreparedImage& image, Extent row) const {
    return {row / tile_rows(image), row % tile_rows(image)};
  }
  /// The text that a prompt has in the place of the image: the token of rows for each row, and what the model was trained with
  /// around it.
  virtual std::string text_of(const vision::PreparedImage& image) const = 0;
  virtual RowGrid grid_of(const vision::PreparedImage&) const { return {}; }
  /// Tiles of one shape can be seen together.
  struct Tile {
    const vision::PreparedImage* image;
    std::size_t index;
  };
  virtual RowGrid shape_of(const vision::PreparedImage& image) const = 0;
  /// The rows [tile_rows, width] of each of some tiles of one shape, row-major, on the host. Several go through the tower in one
  /// pass.
  virtual std::vector<std::vector<float>> see(std::span<const Tile> tiles) = 0;

  /// The text that a chat template writes for an image, and the token that stands for a row.
  const std::string& marker() const { return marker_; }
  text::TokenId row_token() const { return row_token_; }
  std::uint64_t bytes() const { return bytes_; }

 protected:
  std::string marker_, row_text_;
  text::TokenId row_token_ = text::kNoToken;
  std::uint64_t bytes_ = 0;
};

/// What a reader is made of. `hidden`: width of the language model. A reader that `is_planned` has no weights: it knows their bytes,
/// and sees nothing.
struct ImageReaderInput {
  const ImageFiles& files;
  const text::Tokenizer& tokenizer;
  Extent hidden = 0;
  Device device;
  bool is_planned = false;
};
/// FileError for files that do not fit each other, the tokenizer or the width.
std::unique_ptr<ImageReader> make_image_reader(const ImageReaderInput& input);

}  // namespace weft::llm::detail
