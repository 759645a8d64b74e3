#include "serve/image_url.hpp"

#include <fmt/format.h>

#include "base/quote.hpp"
#include "catalogue/wire.hpp"
#include "text/character_map.hpp"
#include "weft/error.hpp"

namespace weft::serve {

Tensor image_of_url(std::string_view url, const image::Limits& limits) {
  constexpr std::string_view kScheme = "data:", kCoding = ";base64";
  const std::size_t comma = url.find(',');
  if (!url.starts_with(kScheme) || comma == std::string_view::npos || !url.substr(0, comma).ends_with(kCoding))
    throw UsageError(
        fmt::format("{} is not a data: URL in base64; nothing is fetched from elsewhere, so send the image itself: "
                    "data:image/png;base64,...",
                    quote(url.substr(0, 60))));
  const std::string_view data = url.substr(comma + 1);
  if (data.size() / 4 * 3 > limits.file_bytes_max + 2)
    throw FileError(
        fmt::format("the image has some {} bytes; at most {} are read", data.size() / 4 * 3, limits.file_bytes_max));
  std::string file;
  try {
    file = text::decode_base64(data);
  } catch (const UsageError&) {
    throw UsageError("the image's data is not base64");
  }
  return image::decode(std::as_bytes(std::span(file)), "the image", limits);
}

std::string url_of_image(const Tensor& image) {
  const std::vector<std::byte> file = image::encode_png(image);
  return "data:image/png;base64," +
         operations::encode_base64({reinterpret_cast<const char*>(file.data()), file.size()});
}

}  // namespace weft::serve
