// From an image of any size to the pixels that a tower reads, as preprocessor_config.json says.
#pragma once

#include <array>
#include <filesystem>
#include <vector>

#include "base/json.hpp"
#include "image/pixels.hpp"
#include "weft/tensor.hpp"

namespace weft::vision {

/// An image as one or several pictures of bytes. An image that was cut into rows of parts has the whole image behind them; one of
/// which crops were taken has the whole image in front.
struct PreparedImage {
  std::vector<image::Pixels> tiles = {};
  Extent rows = 0, columns = 0;   ///< of parts; 0: it was not cut
  std::vector<float> ready = {};  ///< in place of tiles: pixels that the caller has normalised, f32 [3, height, width]
  Extent ready_height = 0, ready_width = 0;
};

class ImageProcessor {
 public:
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
  bool cuts() const { return fit_ == Fit::tiles; }
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
  PreparedImage cut(const image::Pixels& image) const;
  std::vector<image::Pixels> crops_of(const image::Pixels& image) const;

  Fit fit_ = Fit::none;
  Extent height_ = 0, width_ = 0, longest_ = 0;
  Extent step_ = 1;
  bool splits_ = true;
  PanAndScan pan_and_scan_;
  image::Filter filter_ = image::Filter::bicubic;
  Extent crop_height_ = 0, crop_width_ = 0;  // 0: no crop
  std::vector<float> mean_, deviation_;      // of red, green and blue
  std::array<std::array<float, 256>, 3> table_ = {};
};

}  // namespace weft::vision
