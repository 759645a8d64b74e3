// PNG files, by libpng.
#include <fmt/format.h>

#include <array>
#include <csetjmp>
#include <cstring>

#include "image/codecs.hpp"
#include "weft/error.hpp"

#ifdef WEFT_HAS_PNG
#include <png.h>
#endif

namespace weft::image {

bool is_png(std::span<const std::byte> file) {
  constexpr std::array<unsigned char, 8> kSignature = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
  return file.size() >= kSignature.size() && std::memcmp(file.data(), kSignature.data(), kSignature.size()) == 0;
}

#ifdef WEFT_HAS_PNG
namespace {

// libpng reports errors by longjmp, which runs no destructors. So functions that call it hold nothing that has one, and the
// message and the buffers are here.
struct PngState {
  std::span<const std::byte> file;
  std::size_t place = 0;
  std::vector<std::byte> written;
  char message[160] = "";
};

[[noreturn]] void png_failed(png_structp png, png_const_charp message) {
  auto* state = static_cast<PngState*>(png_get_error_ptr(png));
  std::strncpy(state->message, message, sizeof state->message - 1);
  png_longjmp(png, 1);
}
void png_warned(png_structp, png_const_charp) {}

void read_png_bytes(png_structp png, png_bytep out, png_size_t count) {
  auto* state = static_cast<PngState*>(png_get_io_ptr(png));
  if (count > state->file.size() - state->place) png_error(png, "the file ends too early");
  std::memcpy(out, state->file.data() + state->place, count);
  state->place += count;
}

void write_png_bytes(png_structp png, png_bytep bytes, png_size_t count) {
  auto* state = static_cast<PngState*>(png_get_io_ptr(png));
  bool fits = true;
  try {
    const auto* from = reinterpret_cast<const std::byte*>(bytes);
    state->written.insert(state->written.end(), from, from + count);
  } catch (const std::bad_alloc&) {
    fits = false;
  }
  if (!fits) png_error(png, "out of memory");
}
void flush_png(png_structp) {}

struct PngReader {
  PngState state;
  png_structp png = nullptr;
  png_infop info = nullptr;

  explicit PngReader(std::span<const std::byte> file) {
    state.file = file;
    png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &state, png_failed, png_warned);
    if (png) info = png_create_info_struct(png);
    if (!info) throw std::bad_alloc();
    png_set_read_fn(png, &state, read_png_bytes);
  }
  ~PngReader() { png_destroy_read_struct(&png, &info, nullptr); }
  PngReader(const PngReader&) = delete;

  /// The header, and what rows will be: three bytes a pixel. False after an error.
  bool read_header(png_uint_32& height, png_uint_32& width) {
    if (setjmp(png_jmpbuf(png))) return false;
    png_set_user_limits(png, PNG_UINT_31_MAX, PNG_UINT_31_MAX);  // `check_size` says it better
    png_set_chunk_cache_max(png, 64);
    png_set_chunk_malloc_max(png, 8 << 20);
    png_read_info(png, info);
    width = png_get_image_width(png, info);
    height = png_get_image_height(png, info);
    return true;
  }
  bool prepare() {
    if (setjmp(png_jmpbuf(png))) return false;
    png_set_expand(png);
    png_set_scale_16(png);
    png_set_strip_alpha(png);
    const int color = png_get_color_type(png, info);
    if (color == PNG_COLOR_TYPE_GRAY || color == PNG_COLOR_TYPE_GRAY_ALPHA) png_set_gray_to_rgb(png);
    png_set_interlace_handling(png);
    png_read_update_info(png, info);
    return png_get_rowbytes(png, info) == std::size_t{3} * png_get_image_width(png, info);
  }
  bool read_rows(png_bytep* rows) {
    if (setjmp(png_jmpbuf(png))) return false;
    png_read_image(png, rows);
    png_read_end(png, nullptr);
    return true;
  }
};

struct PngWriter {
  PngState state;
  png_structp png = nullptr;
  png_infop info = nullptr;

  PngWriter() {
    png = png_create_write_struct(PNG_LIBPNG_VER_STRING, &state, png_failed, png_warned);
    if (png) info = png_create_info_struct(png);
    if (!info) throw std::bad_alloc();
    png_set_write_fn(png, &state, write_png_bytes, flush_png);
  }
  ~PngWriter() { png_destroy_write_struct(&png, &info); }
  PngWriter(const PngWriter&) = delete;

  bool write(const Pixels* image) {
    if (setjmp(png_jmpbuf(png))) return false;
    png_set_IHDR(png, info, static_cast<png_uint_32>(image->width), static_cast<png_uint_32>(image->height), 8,
                 image->channels == 1 ? PNG_COLOR_TYPE_GRAY : PNG_COLOR_TYPE_RGB, PNG_INTERLACE_NONE,
                 PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
    png_write_info(png, info);
    for (Extent y = 0; y < image->height; ++y)
      png_write_row(png, image->values.data() + static_cast<std::size_t>(y) * image->row_size());
    png_write_end(png, nullptr);
    return true;
  }
};

}  // namespace

Pixels decode_png(std::span<const std::byte> file, const std::string& name, const Limits& limits) {
  PngReader reader(file);
  const auto fail = [&] {
    throw FileError(fmt::format("{}: damaged PNG file: {}; fetch or write it again", name,
                                reader.state.message[0] ? reader.state.message : "its rows have another size"));
  };
  png_uint_32 height = 0, width = 0;
  if (!reader.read_header(height, width)) fail();
  check_size(height, width, limits, name);
  if (!reader.prepare()) fail();
  Pixels image{static_cast<Extent>(height), static_cast<Extent>(width), 3,
               std::vector<std::uint8_t>(std::size_t{3} * height * width)};
  std::vector<png_bytep> rows(height);
  for (std::size_t y = 0; y < rows.size(); ++y) rows[y] = image.values.data() + y * image.row_size();
  if (!reader.read_rows(rows.data())) fail();
  return image;
}

std::vector<std::byte> encode_png(const Pixels& image) {
  PngWriter writer;
  if (!writer.write(&image)) throw UsageError(fmt::format("image::write_png: {}", writer.state.message));
  return std::move(writer.state.written);
}

#else

namespace {
[[noreturn]] void no_png(const std::string& name) {
  throw UsageError(name +
                   ": this build of Weft reads no PNG files; install libpng (Debian: libpng-dev) and build again");
}
}  // namespace

Pixels decode_png(std::span<const std::byte>, const std::string& name, const Limits&) { no_png(name); }
std::vector<std::byte> encode_png(const Pixels&) { no_png("image::write_png"); }

#endif

}  // namespace weft::image
