// BMP files: those of Windows and OS/2, with palettes, bit fields and run lengths. There is no kept library for them alone.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>

#include "image/codecs.hpp"
#include "weft/error.hpp"

namespace weft::image {

bool is_bmp(std::span<const std::byte> file) {
  return file.size() >= 2 && file[0] == std::byte{'B'} && file[1] == std::byte{'M'};
}

namespace {

enum BmpCoding : std::uint32_t { kPlain = 0, kRuns8 = 1, kRuns4 = 2, kMasks = 3, kAlphaMasks = 6 };

/// A colour in some bits of a pixel.
struct BmpMask {
  std::uint32_t mask = 0;
  std::uint8_t of(std::uint32_t pixel) const {
    if (mask == 0) return 0;
    const int shift = std::countr_zero(mask);
    const std::uint64_t most = mask >> shift;
    return static_cast<std::uint8_t>(((pixel & mask) >> shift) * 255 / most);
  }
  bool is_one_run() const {
    return mask == 0 || std::has_single_bit((std::uint64_t{mask} >> std::countr_zero(mask)) + 1);
  }
};

class BmpReader {
 public:
  BmpReader(std::span<const std::byte> file, const std::string& name) : file_(file), name_(name) {}

  Pixels read(const Limits& limits) {
    read_header(limits);
    image_ = {height_, width_, 3, {}};
    const bool has_runs = coding_ == kRuns8 || coding_ == kRuns4;
    // Bits of rows that are multiples of 4 bytes. Sides are within the limits, so nothing overflows.
    const std::size_t row = (static_cast<std::size_t>(width_) * bits_ + 31) / 32 * 4;
    if (!has_runs && (begin_ > file_.size() || file_.size() - begin_ < row * static_cast<std::size_t>(height_)))
      fail(fmt::format("{} rows of {} bytes are announced, and {} bytes follow", height_, row,
                       file_.size() - std::min(begin_, file_.size())));
    image_.values.resize(static_cast<std::size_t>(height_) * image_.row_size());
    if (has_runs) {
      if (!palette_.empty())
        for (Extent y = 0; y < height_; ++y)
          for (Extent x = 0; x < width_; ++x) put_index(x, y, 0);
      read_runs();
    } else {
      for (Extent y = 0; y < height_; ++y) read_row(file_.subspan(begin_ + row * static_cast<std::size_t>(y), row), y);
    }
    return std::move(image_);
  }

 private:
  [[noreturn]] void fail(const std::string& fact) const {
    throw FileError(fmt::format("{}: damaged BMP file: {}; fetch or write it again", name_, fact));
  }
  std::uint32_t number(std::size_t at, std::size_t size) const {
    if (at > file_.size() || file_.size() - at < size) fail("it ends too early");
    std::uint32_t value = 0;
    for (std::size_t i = size; i-- > 0;) value = value << 8 | std::to_integer<std::uint32_t>(file_[at + i]);
    return value;
  }

  void read_header(const Limits& limits) {
    constexpr std::size_t kInfo = 14;  // behind the header of the file
    begin_ = number(10, 4);
    const std::size_t size = number(kInfo, 4);
    const bool is_core = size == 12;
    if (!is_core && (size < 40 || size > 256)) fail(fmt::format("a header of {} bytes is not known", size));
    const auto signed_at = [&](std::size_t at) { return Extent{static_cast<std::int32_t>(number(at, 4))}; };
    width_ = is_core ? number(kInfo + 4, 2) : signed_at(kInfo + 4);
    const Extent rows = is_core ? number(kInfo + 6, 2) : signed_at(kInfo + 8);
    is_top_down_ = rows < 0;
    height_ = is_top_down_ ? -rows : rows;
    check_size(static_cast<std::uint64_t>(height_), static_cast<std::uint64_t>(std::max<Extent>(0, width_)), limits,
               name_);
    bits_ = number(kInfo + (is_core ? 10 : 14), 2);
    coding_ = is_core ? kPlain : number(kInfo + 16, 4);
    std::size_t colors = is_core ? 0 : number(kInfo + 32, 4);
    const bool has_masks = coding_ == kMasks || coding_ == kAlphaMasks;
    const bool is_known = coding_ == kPlain
                              ? bits_ == 1 || bits_ == 4 || bits_ == 8 || bits_ == 16 || bits_ == 24 || bits_ == 32
                          : coding_ == kRuns8 ? bits_ == 8
                          : coding_ == kRuns4 ? bits_ == 4
                                              : has_masks && (bits_ == 16 || bits_ == 32);
    if (!is_known)
      throw FileError(
          fmt::format("{}: a BMP file of {} bits in the coding {}; convert the image to PNG", name_, bits_, coding_));
    masks_ = bits_ == 16 ? std::array<BmpMask, 3>{{{0x7c00}, {0x03e0}, {0x001f}}}
                         : std::array<BmpMask, 3>{{{0xff0000}, {0x00ff00}, {0x0000ff}}};
    if (has_masks)
      for (std::size_t i = 0; i < 3; ++i) {
        masks_[i].mask = number(kInfo + 40 + 4 * i, 4);
        if (!masks_[i].is_one_run()) fail("a mask of a colour has gaps");
      }
    if (bits_ > 8) return;
    const std::size_t most = std::size_t{1} << bits_, entry = is_core ? 3 : 4, first = kInfo + size;
    if (colors == 0 || colors > most) colors = most;
    // Some writers count a full palette, and store fewer colours.
    if (begin_ > first) colors = std::min(colors, (begin_ - first) / entry);
    if (colors == 0) fail("it has no colours");
    for (std::size_t i = 0; i < colors; ++i) {
      const std::uint32_t color = number(first + entry * i, 3);
      palette_.push_back({static_cast<std::uint8_t>(color >> 16), static_cast<std::uint8_t>(color >> 8),
                          static_cast<std::uint8_t>(color)});
    }
  }

  std::uint8_t* pixel(Extent x, Extent y) {
    const Extent row = is_top_down_ ? y : height_ - 1 - y;
    return image_.values.data() + static_cast<std::size_t>((row * width_ + x) * 3);
  }
  void put_index(Extent x, Extent y, std::size_t index) {
    if (index >= palette_.size()) fail("a pixel has a colour that there is not");
    std::copy(palette_[index].begin(), palette_[index].end(), pixel(x, y));
  }

  void read_row(std::span<const std::byte> row, Extent y) {
    const auto byte = [&](std::size_t i) { return std::to_integer<std::uint32_t>(row[i]); };
    for (Extent x = 0; x < width_; ++x) {
      const auto i = static_cast<std::size_t>(x);
      if (bits_ <= 8) {
        const std::size_t bit = i * bits_;
        put_index(x, y, byte(bit / 8) >> (8 - bits_ - bit % 8) & ((1u << bits_) - 1));
        continue;
      }
      std::uint32_t value = 0;
      for (std::size_t k = bits_ / 8; k-- > 0;) value = value << 8 | byte(i * (bits_ / 8) + k);
      for (std::size_t c = 0; c < 3; ++c) pixel(x, y)[c] = masks_[c].of(value);
    }
  }

  // Pairs of bytes: a count and its pixels; or 0 and 0: end of a row, 1: end of the image, 2: a step, else pixels as they are.
  void read_runs() {
    const bool is_half = coding_ == kRuns4;
    Extent x = 0, y = 0;
    std::size_t at = begin_;
    const auto next = [&] { return number(at++, 1); };
    const auto put = [&](std::uint32_t index) {
      if (x >= width_ || y >= height_) fail("a run leaves the image");
      put_index(x++, y, index);
    };
    for (;;) {
      const std::uint32_t count = next(), code = next();
      if (count > 0) {
        for (std::uint32_t i = 0; i < count; ++i) put(!is_half ? code : i % 2 == 0 ? code >> 4 : code & 15);
      } else if (code == 0) {
        x = 0, ++y;
      } else if (code == 1) {
        return;
      } else if (code == 2) {
        x += next();
        y += next();
      } else {
        const std::size_t bytes = is_half ? (code + 1) / 2 : code;
        for (std::uint32_t i = 0; i < code; ++i) {
          const std::uint32_t value = number(at + (is_half ? i / 2 : i), 1);
          put(!is_half ? value : i % 2 == 0 ? value >> 4 : value & 15);
        }
        at += bytes + bytes % 2;
      }
      if (y > height_) fail("a run leaves the image");
    }
  }

  std::span<const std::byte> file_;
  const std::string& name_;
  std::size_t begin_ = 0;
  Extent height_ = 0, width_ = 0;
  bool is_top_down_ = false;
  std::uint32_t bits_ = 0, coding_ = kPlain;
  std::array<BmpMask, 3> masks_ = {};
  std::vector<std::array<std::uint8_t, 3>> palette_;
  Pixels image_;
};

}  // namespace

Pixels decode_bmp(std::span<const std::byte> file, const std::string& name, const Limits& limits) {
  return BmpReader(file, name).read(limits);
}

}  // namespace weft::image
