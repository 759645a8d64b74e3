// Images as tensors u8 [height, width, 3]: read from PNG, JPEG, WebP, GIF and BMP files, written as PNG and JPEG, resized and cropped.
//
//   Tensor photo = image::read("cat.jpg");
//   image::write("small.png", image::resize(photo, 224, 224));
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weft/tensor.hpp"

namespace weft::image {

/// Limits on what a file may need. Sizes are checked against these limits before any pixel is allocated.
struct Limits {
  std::uint64_t file_bytes_max = std::uint64_t{64} << 20;
  std::uint64_t pixels_max = std::uint64_t{1} << 26;
  Extent side_max = 1 << 15;
};

/// The image in a PNG, JPEG, WebP, GIF or BMP file, as RGB; of an animation the first frame. The format is found from the bytes, not
/// from the name.
/// Transparency is dropped, 16 bits are rounded to 8, grey and palettes become RGB. A JPEG file is rotated and mirrored as its Exif
/// orientation says. Pixels of the canvas that the first frame of an animation does not cover are black (WebP), or have the colour of
/// the transparent index, or else of index 0 (GIF).
///
/// Shapes    u8 [height, width, 3] on the CPU
/// Errors    FileError: another format, damage, a file that ends too early, a CMYK JPEG, a size over a limit. UsageError: a
///           format that this build of Weft was made without
[[nodiscard]] Tensor read(const std::filesystem::path& path, const Limits& limits = {});
/// The same from bytes in memory; `name` opens the messages of errors.
[[nodiscard]] Tensor decode(std::span<const std::byte> file, const std::string& name = "image",
                            const Limits& limits = {});

/// A PNG file of an image u8 [height, width, 3], or [height, width] for grey. Errors: UsageError for another shape or dtype;
/// FileError as AtomicFile.
void write_png(const std::filesystem::path& path, const Tensor& image);
[[nodiscard]] std::vector<std::byte> encode_png(const Tensor& image);
/// The same as JPEG, with colours at half the resolution below a quality of 90. Errors: also UsageError for a quality outside of
/// 1 to 100, and sides above 65500.
void write_jpeg(const std::filesystem::path& path, const Tensor& image, int quality = 90);
[[nodiscard]] std::vector<std::byte> encode_jpeg(const Tensor& image, int quality = 90);
/// As "png" or "jpeg". Errors: also UsageError for another name.
[[nodiscard]] std::vector<std::byte> encode(const Tensor& image, std::string_view format, int quality = 90);
/// As the suffix says: .png, .jpg or .jpeg. Errors: also UsageError for another one.
void write(const std::filesystem::path& path, const Tensor& image, int quality = 90);

enum class Filter : std::uint8_t {
  nearest,   ///< the pixel at floor((i + 1/2) scale)
  bilinear,  ///< a triangle, as wide as a pixel of the result where the image shrinks
  bicubic,   ///< cubic convolution with a = -1/2, widened in the same way
  lanczos,   ///< sinc(x) sinc(x / 3) for |x| < 3, widened in the same way
};

/// The filter of a name: "nearest", "bilinear", "bicubic", "lanczos". Errors: UsageError.
Filter filter(std::string_view name);

/// The image in another size: y_i = sum_j w((j + 1/2 - c_i) / s) x_j / sum_j w((j + 1/2 - c_i) / s) along each axis, where c_i
/// is the centre of pixel i of the result and s the larger of 1 and the scale (antialiasing). Columns first, then rows, with
/// u8 rounded after each. The result has the bytes of Pillow up to version 12; f32 images agree with torchvision's
/// antialias=True.
///
/// Shapes    u8 or f32 [height, width, channels] -> [new height, new width, channels], on the CPU
/// Errors    UsageError: another shape or dtype, sizes below 1 or above Limits::side_max
[[nodiscard]] Tensor resize(const Tensor& image, Extent height, Extent width, Filter filter = Filter::bicubic);
/// The middle of an image, with zeros around an image that is smaller.
/// Shapes u8 or f32 [h, w, c] -> [height, width, c]. Errors: as `resize`.
[[nodiscard]] Tensor center_crop(const Tensor& image, Extent height, Extent width);

}  // namespace weft::image
