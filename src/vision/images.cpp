#include "vision/images.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "weft/error.hpp"
#include "weft/ops.hpp"

namespace weft::vision {

Json read_model_config(const std::filesystem::path& folder) {
  // Of models it has some kilobytes.
  return read_json_file(folder / "config.json", {.max_bytes = std::uint64_t{8} << 20, .max_values = 200'000});
}

std::filesystem::path tokenizer_file(const std::filesystem::path& folder) {
  auto file = folder / "tokenizer.json";
  if (!std::filesystem::exists(file))
    throw FileError(
        fmt::format("{}: the folder has no tokenizer.json, which text is read with; download it beside the weights",
                    folder.string()));
  return file;
}

Tensor tower_pixels(const Tensor& image, const ImageProcessor& processor, Extent side, Device device) {
  if (image.defined() && image.dtype() == DType::f32 && image.shape() == Shape{3, side, side}) return image.to(device);
  if (image.defined() && image.dtype() == DType::f32)
    throw UsageError(fmt::format("vision: an image f32 {}; give u8 [height, width, 3], or f32 [3, {}, {}], normalised",
                                 image.shape().to_string(), side, side));
  const PreparedImage prepared = processor.prepare(image::pixels_of(image, "vision"));
  const image::Pixels& tile = prepared.tiles.back();
  if (tile.height != side || tile.width != side)
    throw FileError(
        fmt::format("vision: preprocessor_config.json makes images of {} x {}, and config.json has image_size {}; do "
                    "the files belong "
                    "to one model?",
                    tile.height, tile.width, side));
  return tensor_from_bytes(processor.normalized(tile).data(), {3, side, side}, DType::f32, device);
}

std::vector<std::size_t> pass_sizes(std::size_t count, Extent tokens) {
  // A pass over this many tokens keeps a device busy. Larger ones would only take more memory.
  constexpr Extent kPassTokens = 4096;
  constexpr std::size_t kImagesMax = 8;
  const std::size_t most = std::min(
      kImagesMax,
      std::bit_floor(static_cast<std::size_t>(std::max<Extent>(kPassTokens / std::max<Extent>(tokens, 1), 1))));
  std::vector<std::size_t> sizes;
  for (; count > 0; count -= sizes.back()) sizes.push_back(std::min(most, std::bit_floor(count)));
  return sizes;
}

std::vector<float> in_passes(std::span<const Tensor> images, const ImageProcessor& processor, Extent side,
                             Extent tokens, Device device, const std::function<Tensor(const Tensor&)>& run) {
  std::vector<float> rows;
  for (const std::size_t size : pass_sizes(images.size(), tokens)) {
    std::vector<Tensor> pixels;
    for (const Tensor& image : images.first(size))
      pixels.push_back(reshape(tower_pixels(image, processor, side, device), {1, 3, side, side}));
    const std::vector<float> made = run(size == 1 ? pixels[0] : concat(pixels, 0)).to_vector<float>();
    rows.insert(rows.end(), made.begin(), made.end());
    images = images.subspan(size);
  }
  return rows;
}

}  // namespace weft::vision
