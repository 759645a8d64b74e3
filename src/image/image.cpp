// The face of images: tensors in, tensors out.
#include "weft/image.hpp"

#include <fmt/format.h>

#include "base/file.hpp"
#include "base/quote.hpp"
#include "image/codecs.hpp"
#include "weft/error.hpp"

namespace weft::image {
namespace {

template <class T>
Tensor tensor_of(const Raster<T>& image) {
  return tensor_from_bytes(image.values.data(), {image.height, image.width, image.channels}, dtype_of<T>, kCpu);
}

/// The image of a tensor of rank 3, or 2 for one channel.
template <class T>
Raster<T> raster_of(const Tensor& image) {
  Raster<T> raster{image.dim(0), image.dim(1), image.rank() == 3 ? image.dim(2) : 1, {}};
  raster.values = image.to_vector<T>();
  return raster;
}

void check_image(const Tensor& image, std::string_view caller) {
  if (image.defined() && image.rank() == 3 && image.numel() > 0 &&
      (image.dtype() == DType::u8 || image.dtype() == DType::f32))
    return;
  throw UsageError(
      fmt::format("image::{}: {}; give u8 or f32 [height, width, channels] with pixels", caller,
                  image.defined() ? fmt::format("the image is {} {}", name_of(image.dtype()), image.shape().to_string())
                                  : "there is no image"));
}

void check_target(Extent height, Extent width, std::string_view caller) {
  const Extent most = Limits().side_max;
  if (height < 1 || width < 1 || height > most || width > most)
    throw UsageError(
        fmt::format("image::{}: a size of {} x {}; each must be from 1 to {}", caller, height, width, most));
}

template <class Change>
Tensor changed(const Tensor& image, const Change& change) {
  return image.dtype() == DType::u8 ? tensor_of(change(raster_of<std::uint8_t>(image)))
                                    : tensor_of(change(raster_of<float>(image)));
}

}  // namespace

void check_size(std::uint64_t height, std::uint64_t width, const Limits& limits, const std::string& name) {
  const auto side = static_cast<std::uint64_t>(limits.side_max);
  if (height >= 1 && width >= 1 && height <= side && width <= side && height * width <= limits.pixels_max) return;
  throw FileError(
      fmt::format("{}: the image has {} x {} pixels (height x width); Weft reads 1 to {} on a side and {} in "
                  "all; make it smaller",
                  name, height, width, side, limits.pixels_max));
}

Pixels decode_pixels(std::span<const std::byte> file, const std::string& name, const Limits& limits) {
  if (file.size() > limits.file_bytes_max)
    throw FileError(
        fmt::format("{}: the file has {} bytes; at most {} are read", name, file.size(), limits.file_bytes_max));
  if (is_png(file)) return decode_png(file, name, limits);
  if (is_jpeg(file)) return decode_jpeg(file, name, limits);
  if (is_webp(file)) return decode_webp(file, name, limits);
  if (is_gif(file)) return decode_gif(file, name, limits);
  if (is_bmp(file)) return decode_bmp(file, name, limits);
  throw FileError(fmt::format("{}: not a PNG, JPEG, WebP, GIF or BMP file; convert the image to one of these", name));
}

Pixels pixels_of(const Tensor& image, std::string_view caller) {
  if (!image.defined() || image.rank() != 3 || image.dim(2) != 3 || image.dtype() != DType::u8 || image.numel() == 0)
    throw UsageError(fmt::format(
        "{}: {}; give u8 [height, width, 3]", caller,
        image.defined() ? fmt::format("the image is {} {}", name_of(image.dtype()), image.shape().to_string())
                        : "there is no image"));
  return raster_of<std::uint8_t>(image);
}

Tensor read(const std::filesystem::path& path, const Limits& limits) {
  return decode(read_file(path, limits.file_bytes_max), path.string(), limits);
}
Tensor decode(std::span<const std::byte> file, const std::string& name, const Limits& limits) {
  return tensor_of(decode_pixels(file, name, limits));
}

namespace {

/// What may be written. `caller` opens the message.
Pixels writable(const Tensor& image, std::string_view caller) {
  const bool is_grey = image.defined() && image.rank() == 2;
  if (!image.defined() || image.dtype() != DType::u8 || (!is_grey && (image.rank() != 3 || image.dim(2) != 3)) ||
      image.numel() == 0)
    throw UsageError(fmt::format(
        "image::{}: {}; give u8 [height, width, 3], or [height, width] for grey", caller,
        image.defined() ? fmt::format("the image is {} {}", name_of(image.dtype()), image.shape().to_string())
                        : "there is no image"));
  return raster_of<std::uint8_t>(image);
}

void write_bytes(const std::filesystem::path& path, const std::vector<std::byte>& file) {
  write_file_atomically(path, [&](AtomicFile& out) { out.write(file); });
}

}  // namespace

std::vector<std::byte> encode_png(const Tensor& image) { return encode_png(writable(image, "write_png")); }
void write_png(const std::filesystem::path& path, const Tensor& image) { write_bytes(path, encode_png(image)); }

std::vector<std::byte> encode_jpeg(const Tensor& image, int quality) {
  constexpr Extent kSideMax = 65500;  // of the format, as libjpeg has it
  const Pixels pixels = writable(image, "write_jpeg");
  if (quality < 1 || quality > 100)
    throw UsageError(fmt::format("image::write_jpeg: a quality of {}; it is 1 to 100", quality));
  if (pixels.height > kSideMax || pixels.width > kSideMax)
    throw UsageError(
        fmt::format("image::write_jpeg: {} x {} pixels; a side has at most {}", pixels.height, pixels.width, kSideMax));
  return encode_jpeg(pixels, quality);
}
void write_jpeg(const std::filesystem::path& path, const Tensor& image, int quality) {
  write_bytes(path, encode_jpeg(image, quality));
}

std::vector<std::byte> encode(const Tensor& image, std::string_view format, int quality) {
  if (format == "png") return encode_png(image);
  if (format == "jpeg") return encode_jpeg(image, quality);
  throw UsageError(fmt::format("image::encode: the format {}; images are written as png or jpeg", quote(format)));
}
void write(const std::filesystem::path& path, const Tensor& image, int quality) {
  const std::string suffix = path.extension().string();
  if (suffix != ".png" && suffix != ".jpg" && suffix != ".jpeg")
    throw UsageError(
        fmt::format("image::write: {} ends in neither .png, .jpg nor .jpeg", quote(path.filename().string())));
  write_bytes(path, encode(image, suffix == ".png" ? "png" : "jpeg", quality));
}

Filter filter(std::string_view name) {
  constexpr std::pair<std::string_view, Filter> kNames[] = {{"nearest", Filter::nearest},
                                                            {"bilinear", Filter::bilinear},
                                                            {"bicubic", Filter::bicubic},
                                                            {"lanczos", Filter::lanczos}};
  for (const auto& [known, filter] : kNames)
    if (name == known) return filter;
  throw UsageError(
      fmt::format("image: there is no filter {}; known are nearest, bilinear, bicubic and lanczos", quote(name)));
}

Tensor resize(const Tensor& image, Extent height, Extent width, Filter filter) {
  check_image(image, "resize");
  check_target(height, width, "resize");
  return changed(image, [&](const auto& raster) { return resized(raster, height, width, filter); });
}
Tensor center_crop(const Tensor& image, Extent height, Extent width) {
  check_image(image, "center_crop");
  check_target(height, width, "center_crop");
  return changed(image, [&](const auto& raster) { return center_cropped(raster, height, width); });
}

}  // namespace weft::image
