// Readers and writers of image files, one file for each format. A build may lack some of the libraries that they use.
#pragma once

#include "image/pixels.hpp"

namespace weft::image {

/// FileError unless the size is within the limits. To be called before pixels are allocated.
void check_size(std::uint64_t height, std::uint64_t width, const Limits& limits, const std::string& name);

bool is_png(std::span<const std::byte> file);
bool is_jpeg(std::span<const std::byte> file);
bool is_webp(std::span<const std::byte> file);
bool is_gif(std::span<const std::byte> file);
bool is_bmp(std::span<const std::byte> file);
Pixels decode_png(std::span<const std::byte> file, const std::string& name, const Limits& limits);
Pixels decode_jpeg(std::span<const std::byte> file, const std::string& name, const Limits& limits);
Pixels decode_webp(std::span<const std::byte> file, const std::string& name, const Limits& limits);
Pixels decode_gif(std::span<const std::byte> file, const std::string& name, const Limits& limits);
Pixels decode_bmp(std::span<const std::byte> file, const std::string& name, const Limits& limits);
/// Of 1 or 3 channels.
std::vector<std::byte> encode_png(const Pixels& image);
std::vector<std::byte> encode_jpeg(const Pixels& image, int quality);

/// The orientation (1 to 8) that the Exif data of a JPEG file gives, from the body of its APP1 segment. 1 for anything else.
int exif_orientation(std::span<const std::byte> segment);
/// The image turned and mirrored, so that it is seen as it was taken.
Pixels oriented(const Pixels& image, int orientation);

}  // namespace weft::image
