// GIF files, by giflib: the first frame.
#include <fmt/format.h>

#include <array>
#include <cstring>

#include "image/codecs.hpp"
#include "weft/error.hpp"

#ifdef WEFT_HAS_GIF
#include <gif_lib.h>
#endif

namespace weft::image {

bool is_gif(std::span<const std::byte> file) {
  return file.size() >= 6 && (std::memcmp(file.data(), "GIF87a", 6) == 0 || std::memcmp(file.data(), "GIF89a", 6) == 0);
}

#ifdef WEFT_HAS_GIF
namespace {

class GifReader {
 public:
  GifReader(std::span<const std::byte> file, const std::string& name) : left_(file), name_(name) {
    int error = 0;
    gif_ = DGifOpen(
        this,
        [](GifFileType* gif, GifByteType* out, int count) {
          auto& left = static_cast<GifReader*>(gif->UserData)->left_;
          const std::size_t taken = std::min(left.size(), static_cast<std::size_t>(std::max(count, 0)));
          if (taken > 0) std::memcpy(out, left.data(), taken);
          left = left.subspan(taken);
          return static_cast<int>(taken);
        },
        &error);
    if (!gif_) fail(GifErrorString(error));
  }
  ~GifReader() {
    int error = 0;
    DGifCloseFile(gif_, &error);
  }
  GifReader(const GifReader&) = delete;

  Pixels read(const Limits& limits) {
    check_size(side(gif_->SHeight), side(gif_->SWidth), limits, name_);
    int clear = NO_TRANSPARENT_COLOR;
    for (;;) {
      GifRecordType type = UNDEFINED_RECORD_TYPE;
      check(DGifGetRecordType(gif_, &type));
      if (type == TERMINATE_RECORD_TYPE) fail("it has no image");
      if (type == EXTENSION_RECORD_TYPE) read_extension(clear);
      if (type == IMAGE_DESC_RECORD_TYPE) return read_frame(clear);
    }
  }

 private:
  [[noreturn]] void fail(const char* fact) const {
    throw FileError(
        fmt::format("{}: damaged GIF file: {}; fetch or write it again", name_, fact ? fact : "it cannot be read"));
  }
  void check(int result) const {
    if (result == GIF_ERROR) fail(GifErrorString(gif_->Error));
  }
  /// Sizes are 16 bits in the file and may be 0.
  static std::uint64_t side(int size) { return static_cast<std::uint64_t>(std::max(size, 0)); }

  void read_extension(int& clear) {
    int code = 0;
    GifByteType* block = nullptr;
    check(DGifGetExtension(gif_, &code, &block));
    while (block) {
      GraphicsControlBlock control;
      if (code == GRAPHICS_EXT_FUNC_CODE && DGifExtensionToGCB(block[0], block + 1, &control) == GIF_OK)
        clear = control.TransparentColor;
      check(DGifGetExtensionNext(gif_, &block));
    }
  }

  Pixels read_frame(int clear) {
    check(DGifGetImageDesc(gif_));
    const GifImageDesc& frame = gif_->Image;
    if (frame.Left < 0 || frame.Top < 0 || frame.Width < 1 || frame.Height < 1 ||
        frame.Left + frame.Width > gif_->SWidth || frame.Top + frame.Height > gif_->SHeight)
      fail("a frame lies outside of its canvas");
    const ColorMapObject* const colors = frame.ColorMap ? frame.ColorMap : gif_->SColorMap;
    if (!colors) fail("it has no colours");
    const auto put = [&](std::uint8_t* pixel, int index) {
      if (index < 0 || index >= colors->ColorCount) fail("a pixel has a colour that there is not");
      const GifColorType& color = colors->Colors[index];
      pixel[0] = color.Red, pixel[1] = color.Green, pixel[2] = color.Blue;
    };
    Pixels image{gif_->SHeight, gif_->SWidth, 3, {}};
    image.values.resize(static_cast<std::size_t>(image.height) * image.row_size());
    if (frame.Width < gif_->SWidth || frame.Height < gif_->SHeight)
      for (std::size_t i = 0; i < image.values.size(); i += 3)
        put(image.values.data() + i, clear >= 0 && clear < colors->ColorCount ? clear : 0);
    std::vector<GifPixelType> line(static_cast<std::size_t>(frame.Width));
    const auto read_line = [&](int y) {
      check(DGifGetLine(gif_, line.data(), frame.Width));
      std::uint8_t* const row = image.values.data() + static_cast<std::size_t>(frame.Top + y) * image.row_size() +
                                std::size_t{3} * static_cast<std::size_t>(frame.Left);
      for (std::size_t x = 0; x < line.size(); ++x) put(row + 3 * x, line[x]);
    };
    if (!frame.Interlace) {
      for (int y = 0; y < frame.Height; ++y) read_line(y);
    } else {
      constexpr std::array<std::array<int, 2>, 4> kPasses = {{{0, 8}, {4, 8}, {2, 4}, {1, 2}}};  // first row, step
      for (const auto& [first, step] : kPasses)
        for (int y = first; y < frame.Height; y += step) read_line(y);
    }
    return image;
  }

  std::span<const std::byte> left_;
  const std::string& name_;
  GifFileType* gif_ = nullptr;
};

}  // namespace

Pixels decode_gif(std::span<const std::byte> file, const std::string& name, const Limits& limits) {
  return GifReader(file, name).read(limits);
}

#else

Pixels decode_gif(std::span<const std::byte>, const std::string& name, const Limits&) {
  throw UsageError(name +
                   ": this build of Weft reads no GIF files; install giflib (Debian: libgif-dev) and build again");
}

#endif

}  // namespace weft::image
