// From an image of any size to the pixels that a tower reads, as preprocessor_config.json says.
#pragma once

#include <array>
#include <filesystem>
#include <vector>

#include "base/json.hpp"
#include "image/pixels.hpp"
#include "weft/tensor.hpp"

namespace weft::vision {

/// An image as one or several pictures of bytes. An image that was cut has its parts in rows, and the whole image behind them.
struct PreparedImage {
  std::vector<image::Pixels> tiles = {};
  Extent rows = 0, columns = 0;   ///< of parts; 0: it was not cut
  std::vector<float> ready = {};  ///< in place of tiles: pixels that the caller has normalised, f32 [3, side, side]
};

class ImageProcessor {
 public:
  /// From preprocessor_config.json, or the entry image_processor of processor_config.json. FileError for a folder without them, and
  /// for settings that Weft does not have.
  static ImageProcessor from_folder(const std::filesystem::path& folder);
  static ImageProcessor from_json(const Json& json, const std::string& source);

  /// Resized, cut and cropped. Does not use a device; thread safe.
  PreparedImage prepare(const image::Pixels& image) const;
  /// f32 [3, height, width]: (pixel factor - mean) / deviation for each channel.
  std::vector<float> normalized(const image::Pixels& tile) const;
  /// What `normalized` makes of the value of a byte.
  float normalized(std::uint8_t value, int channel) const { return table_[static_cast<std::size_t>(channel)][value]; }
  /// Side of every tile; 0: as the image and the settings decide.
  Extent side() const;
  bool cuts() const { return fit_ == Fit::tiles; }

 private:
  enum class Fit : std::uint8_t {
    none,      // as it is
    stretch,   // to height_ x width_
    shortest,  // the shorter side to height_
    tiles,     // the longer side to longest_, then cut into squares of height_
  };
  image::Pixels fitted(const image::Pixels& image) const;
  PreparedImage cut(const image::Pixels& image) const;

  Fit fit_ = Fit::none;
  Extent height_ = 0, width_ = 0, longest_ = 0;
  bool splits_ = true;
  image::Filter filter_ = image::Filter::bicubic;
  Extent crop_height_ = 0, crop_width_ = 0;  // 0: no crop
  std::array<std::array<float, 256>, 3> table_ = {};
};

}  // namespace weft::vision
