#include "vision/images.hpp"

#include <fmt/format.h>

#include "weft/error.hpp"

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

}  // namespace weft::vision
