// What the faces of vision models share: their files, and images on the way to a tower.
#pragma once

#include <filesystem>
#include <functional>
#include <span>
#include <vector>

#include "base/json.hpp"
#include "vision/preprocess.hpp"
#include "weft/device.hpp"

namespace weft::vision {

/// The config.json of a folder. FileError if it is missing or malformed.
Json read_model_config(const std::filesystem::path& folder);
/// FileError if the folder has no tokenizer.json.
std::filesystem::path tokenizer_file(const std::filesystem::path& folder);

/// f32 [3, side, side] on the device: of an image u8 [height, width, 3], prepared; or of one that is ready, f32 [3, side, side].
/// UsageError for another shape or dtype; FileError if the folder's settings make an image of another size than the tower reads.
Tensor tower_pixels(const Tensor& image, const ImageProcessor& processor, Extent side, Device device);

/// How many of `count` images, which are `tokens` tokens each in a tower, each pass takes. The numbers are powers of two, so that
/// few plans are compiled.
std::vector<std::size_t> pass_sizes(std::size_t count, Extent tokens);
/// What `run` gives for f32 [N, 3, side, side], [N, columns], of all images, row-major.
std::vector<float> in_passes(std::span<const Tensor> images, const ImageProcessor& processor, Extent side,
                             Extent tokens, Device device, const std::function<Tensor(const Tensor& pixels)>& run);

}  // namespace weft::vision
