// From an image of any size to the pixels that a tower reads, as preprocessor_config.json says.
#pragma once

#include <array>
#include <filesystem>
#include <vector>

#include "base/json.hpp"
#include "image/pixels.hpp"
#include "weft/tensor.hpp"

namespace weft::io {
class ConfigKeys;
}

namespace weft::vision {

/// An image as one or several pictures of bytes. An image that was cut into rows of parts has the whole image behind them, or in front
/// where its parts are padded; one of which crops were taken has the whole image in front.
struct PreparedImage {
  std::vector<image::Pixels> tiles = {};
  Extent rows = 0, columns = 0;   ///< of parts; 0: it was not cut
  Extent height = 0, width = 0;   ///< of the image before, where its parts are padded
  std::vector<float> ready = {};  ///< in place of tiles: pixels that the caller has normalised, f32 [3, height, width]
  Extent ready_height = 0, ready_width = 0;
};

class ImageProcessor {
 public:
  static constexpr Extent kSideMax = 4096;  // of an image that is cut, before it is cut; and of every size in a file
  static constexpr Extent kPartsMax = 16;   // of an image that is cut, on a side; models have up to 6

  /// From preprocessor_config.json, or the entry image_processor of processor_config.json. FileError for a folder without them, and
  /// for settings that Weft does not have.
  static ImageProcessor from_folder(const std::filesystem::path& folder);
  /// Whether the folder has one of these files.
  static bool is_in(const std::filesystem::path& folder);
  static ImageProcessor from_json(const Json& json, const std::string& source);

  /// Resized, cut and cropped. Does not use a device; thread safe.
  PreparedImage prepare(const image::Pixels& image) const;
  /// f32 [3, height, width]: (pixel factor - mean) / deviation for each channel.
  std::vector<float> normalized(const image::Pixels& tile) const;
  /// What `normalized` makes of the value of a byte.
  float normalized(std::uint8_t value, int channel) const { return table_[static_cast<std::size_t>(channel)][value]; }
  /// Side of every tile; 0: as the image and the settings decide.
  Extent side() const;
  /// How an image becomes several squares.
  enum class Cut : std::uint8_t {
    none,
    whole_behind,   // rows of parts of the image as it was made larger, then the whole; an image of one part stays one
    padded,         // the whole, then rows of parts of the image in its proportions, black around it
    nearest_shape,  // rows of parts of the image stretched to the nearest shape, then the whole
  };
  Cut cut() const {
    return fit_ == Fit::tiles    ? Cut::whole_behind
           : fit_ == Fit::padded ? Cut::padded
           : fit_ == Fit::canvas ? Cut::nearest_shape
                                 : Cut::none;
  }
  /// Of parts that are padded, the sizes (height, width) of which the best is chosen for an image.
  const std::vector<std::array<Extent, 2>>& sizes() const { return sizes_; }
  /// Whether images keep their proportions, with sides that are multiples of a step.
  bool keeps_proportions() const { return fit_ == Fit::area || fit_ == Fit::within; }
  /// Sets that step, which other files of a model say.
  void set_step(Extent step) { step_ = step; }
  /// Whether both make the same pixels of every image.
  bool operator==(const ImageProcessor&) const = default;
  /// Of images that keep their proportions, the least and the most pixels; of others that are cut or fitted, the longer side.
  Extent least_pixels() const { return height_; }
  Extent longest() const { return longest_; }
  const std::vector<float>& mean() const { return mean_; }
  const std::vector<float>& deviation() const { return deviation_; }

 private:
  enum class Fit : std::uint8_t {
    none,      // as it is
    stretch,   // to height_ x width_
    shortest,  // the shorter side to height_
    tiles,     // the longer side to longest_, then cut into squares of height_
    padded,    // into the best of sizes_, then cut into squares of height_
    canvas,    // to the shape of least_parts_ to most_parts_ squares of height_ that is nearest to its own
    area,      // near to its size, with height_ to longest_ pixels in all
    within,    // no side above longest_, which stands for both
  };
  /// Crops of long images, beside the whole.
  struct PanAndScan {
    bool is_on = false;
    Extent least_side = 256, crops_max = 4;
    double least_ratio = 1.2;
    bool operator==(const PanAndScan&) const = default;
  };
  image::Pixels fitted(const image::Pixels& image) const;
  PreparedImage in_tiles(const image::Pixels& image) const;
  PreparedImage in_padded(const image::Pixels& image) const;
  PreparedImage in_canvas(const image::Pixels& image) const;
  void read_tiles(const io::ConfigKeys& keys, const Json* size, Extent usual);
  void read_padded(const io::ConfigKeys& keys, const Json* size, Extent usual);
  void read_canvas(const io::ConfigKeys& keys, const Json* size, Extent usual);
  std::vector<image::Pixels> crops_of(const image::Pixels& image) const;

  Fit fit_ = Fit::none;
  Extent height_ = 0, width_ = 0, longest_ = 0;
  Extent step_ = 1;
  bool splits_ = true;
  std::vector<std::array<Extent, 2>> sizes_;
  Extent least_parts_ = 1, most_parts_ = 1;
  PanAndScan pan_and_scan_;
  image::Filter filter_ = image::Filter::bicubic;
  Extent crop_height_ = 0, crop_width_ = 0;  // 0: no crop
  std::vector<float> mean_, deviation_;      // of red, green and blue
  std::array<std::array<float, 256>, 3> table_ = {};
};

}  // namespace weft::vision
