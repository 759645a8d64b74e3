// Images in data: URLs (RFC 2397), as messages carry them.
#pragma once

#include <string>
#include <string_view>

#include "weft/image.hpp"

namespace weft::serve {

/// The image in "data:image/png;base64,...", PNG or JPEG, whatever type it names. UsageError for another URL, and for text that is
/// not base64; FileError as image::decode.
Tensor image_of_url(std::string_view url, const image::Limits& limits = {});
/// A PNG file of the image, in a URL.
std::string url_of_image(const Tensor& image);

}  // namespace weft::serve
