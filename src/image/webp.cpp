// WebP files, by libwebp; of an animation the first frame.
#include <fmt/format.h>

#include <cstring>
#include <memory>

#include "image/codecs.hpp"
#include "weft/error.hpp"

#ifdef WEFT_HAS_WEBP
#include <webp/decode.h>
#include <webp/demux.h>
#endif

namespace weft::image {

bool is_webp(std::span<const std::byte> file) {
  return file.size() >= 12 && std::memcmp(file.data(), "RIFF", 4) == 0 && std::memcmp(file.data() + 8, "WEBP", 4) == 0;
}

#ifdef WEFT_HAS_WEBP

Pixels decode_webp(std::span<const std::byte> file, const std::string& name, const Limits& limits) {
  const auto fail = [&](std::string_view fact) {
    throw FileError(fmt::format("{}: damaged WebP file: {}; fetch or write it again", name, fact));
  };
  const auto* const bytes = reinterpret_cast<const std::uint8_t*>(file.data());
  WebPBitstreamFeatures features;
  if (WebPGetFeatures(bytes, file.size(), &features) != VP8_STATUS_OK) fail("its header cannot be read");
  check_size(static_cast<std::uint64_t>(features.height), static_cast<std::uint64_t>(features.width), limits, name);
  const WebPData data{bytes, file.size()};
  const std::unique_ptr<WebPDemuxer, void (*)(WebPDemuxer*)> demuxer(WebPDemux(&data), WebPDemuxDelete);
  if (!demuxer) fail("it ends too early, or its parts do not fit");
  // Frames may lie anywhere on the canvas.
  const auto height = static_cast<Extent>(WebPDemuxGetI(demuxer.get(), WEBP_FF_CANVAS_HEIGHT)),
             width = static_cast<Extent>(WebPDemuxGetI(demuxer.get(), WEBP_FF_CANVAS_WIDTH));
  check_size(static_cast<std::uint64_t>(height), static_cast<std::uint64_t>(width), limits, name);
  struct Frame : WebPIterator {
    Frame() : WebPIterator() {}
    ~Frame() { WebPDemuxReleaseIterator(this); }
  } frame;
  if (!WebPDemuxGetFrame(demuxer.get(), 1, &frame) || !frame.complete) fail("it has no whole frame");
  if (frame.x_offset < 0 || frame.y_offset < 0 || frame.width < 1 || frame.height < 1 ||
      frame.x_offset + Extent{frame.width} > width || frame.y_offset + Extent{frame.height} > height)
    fail("a frame lies outside of its canvas");
  // The size that the frame's own header gives is what the decoder writes.
  if (WebPGetFeatures(frame.fragment.bytes, frame.fragment.size, &features) != VP8_STATUS_OK ||
      features.width != frame.width || features.height != frame.height)
    fail("a frame has another size than it says");
  Pixels image{height, width, 3, {}};
  image.values.resize(static_cast<std::size_t>(height) * image.row_size());
  const std::size_t at = static_cast<std::size_t>(frame.y_offset) * image.row_size() +
                         std::size_t{3} * static_cast<std::size_t>(frame.x_offset);
  if (!WebPDecodeRGBInto(frame.fragment.bytes, frame.fragment.size, image.values.data() + at, image.values.size() - at,
                         static_cast<int>(image.row_size())))
    fail("its pixels cannot be read");
  return image;
}

#else

Pixels decode_webp(std::span<const std::byte>, const std::string& name, const Limits&) {
  throw UsageError(name +
                   ": this build of Weft reads no WebP files; install libwebp (Debian: libwebp-dev) and build again");
}

#endif

}  // namespace weft::image
