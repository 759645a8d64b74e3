// JPEG files, by libjpeg (libjpeg-turbo).
#include <fmt/format.h>

#include <csetjmp>
#include <cstdio>
#include <cstdlib>

#include "image/codecs.hpp"
#include "weft/error.hpp"

#ifdef WEFT_HAS_JPEG
#include <jpeglib.h>

#include <jerror.h>
#endif

namespace weft::image {

bool is_jpeg(std::span<const std::byte> file) {
  return file.size() >= 3 && file[0] == std::byte{0xff} && file[1] == std::byte{0xd8} && file[2] == std::byte{0xff};
}

#ifdef WEFT_HAS_JPEG
namespace {

// A progressive file may repeat scans of a large image: a kilobyte can ask for hours of work. Encoders write about ten.
constexpr int kScansMax = 100;
constexpr int kExifMarker = JPEG_APP0 + 1;

// libjpeg reports errors by a function that must not return: longjmp, which runs no destructors. So functions that call it hold
// nothing that has one.
struct JpegReader {
  jpeg_decompress_struct jpeg = {};
  jpeg_error_mgr errors = {};
  jpeg_progress_mgr progress = {};
  std::jmp_buf place = {};
  char message[JMSG_LENGTH_MAX] = "";

  JpegReader() {
    jpeg.err = jpeg_std_error(&errors);
    jpeg.client_data = this;
    errors.error_exit = [](j_common_ptr info) {
      auto* reader = static_cast<JpegReader*>(info->client_data);
      info->err->format_message(info, reader->message);
      std::longjmp(reader->place, 1);
    };
    errors.output_message = [](j_common_ptr) {};
    errors.emit_message = [](j_common_ptr info, int level) {
      // Bytes between segments do no harm; other warnings mean pixels that were made up.
      if (level < 0 && info->err->msg_code != JWRN_EXTRANEOUS_DATA) info->err->error_exit(info);
    };
    progress.progress_monitor = [](j_common_ptr info) {
      auto* reader = static_cast<JpegReader*>(info->client_data);
      if (reader->jpeg.input_scan_number <= kScansMax) return;
      std::snprintf(reader->message, sizeof reader->message, "it has more than %d scans", kScansMax);
      std::longjmp(reader->place, 1);
    };
  }
  ~JpegReader() { jpeg_destroy_decompress(&jpeg); }
  JpegReader(const JpegReader&) = delete;

  bool read_header(const unsigned char* bytes, unsigned long count) {
    if (setjmp(place)) return false;
    jpeg_create_decompress(&jpeg);
    jpeg.client_data = this;
    jpeg.progress = &progress;
    jpeg_mem_src(&jpeg, bytes, count);
    jpeg_save_markers(&jpeg, kExifMarker, 0xffff);
    jpeg_read_header(&jpeg, TRUE);
    return true;
  }
  bool start() {
    if (setjmp(place)) return false;
    jpeg.out_color_space = JCS_RGB;
    jpeg_start_decompress(&jpeg);
    return jpeg.output_components == 3;
  }
  bool read_rows(unsigned char* out) {
    if (setjmp(place)) return false;
    while (jpeg.output_scanline < jpeg.output_height) {
      JSAMPROW row = out + std::size_t{3} * jpeg.output_width * jpeg.output_scanline;
      jpeg_read_scanlines(&jpeg, &row, 1);
    }
    jpeg_finish_decompress(&jpeg);
    return true;
  }
};

struct JpegWriter {
  jpeg_compress_struct jpeg = {};
  jpeg_error_mgr errors = {};
  std::jmp_buf place = {};
  char message[JMSG_LENGTH_MAX] = "";
  unsigned char* bytes = nullptr;
  unsigned long count = 0;

  JpegWriter() {
    jpeg.err = jpeg_std_error(&errors);
    errors.error_exit = [](j_common_ptr info) {
      auto* writer = static_cast<JpegWriter*>(info->client_data);
      info->err->format_message(info, writer->message);
      std::longjmp(writer->place, 1);
    };
    errors.output_message = [](j_common_ptr) {};
  }
  ~JpegWriter() {
    jpeg_destroy_compress(&jpeg);
    std::free(bytes);
  }
  JpegWriter(const JpegWriter&) = delete;

  bool write(const Pixels* image, int quality) {
    if (setjmp(place)) return false;
    jpeg_create_compress(&jpeg);
    jpeg.client_data = this;
    jpeg_mem_dest(&jpeg, &bytes, &count);
    jpeg.image_height = static_cast<JDIMENSION>(image->height);
    jpeg.image_width = static_cast<JDIMENSION>(image->width);
    jpeg.input_components = static_cast<int>(image->channels);
    jpeg.in_color_space = image->channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    jpeg_set_defaults(&jpeg);
    jpeg_set_quality(&jpeg, quality, TRUE);
    constexpr int kFullColorQuality = 90;
    if (quality >= kFullColorQuality) jpeg.comp_info[0].h_samp_factor = jpeg.comp_info[0].v_samp_factor = 1;
    jpeg_start_compress(&jpeg, TRUE);
    while (jpeg.next_scanline < jpeg.image_height) {
      JSAMPROW row = const_cast<JSAMPROW>(image->values.data()) + image->row_size() * jpeg.next_scanline;
      jpeg_write_scanlines(&jpeg, &row, 1);
    }
    jpeg_finish_compress(&jpeg);
    return true;
  }
};

}  // namespace

std::vector<std::byte> encode_jpeg(const Pixels& image, int quality) {
  JpegWriter writer;
  if (!writer.write(&image, quality)) throw UsageError(fmt::format("image::write_jpeg: {}", writer.message));
  const auto* const begin = reinterpret_cast<const std::byte*>(writer.bytes);
  return {begin, begin + writer.count};
}

Pixels decode_jpeg(std::span<const std::byte> file, const std::string& name, const Limits& limits) {
  JpegReader reader;
  const auto fail = [&] {
    throw FileError(fmt::format("{}: damaged JPEG file: {}; fetch or write it again", name, reader.message));
  };
  if (!reader.read_header(reinterpret_cast<const unsigned char*>(file.data()), file.size())) fail();
  check_size(reader.jpeg.image_height, reader.jpeg.image_width, limits, name);
  if (reader.jpeg.num_components != 1 && reader.jpeg.num_components != 3)
    throw FileError(fmt::format("{}: a JPEG file of {} colours, such as CMYK; convert the image to RGB", name,
                                reader.jpeg.num_components));
  int orientation = 1;
  for (const jpeg_marker_struct* m = reader.jpeg.marker_list; m && orientation == 1; m = m->next)
    if (m->marker == kExifMarker)
      orientation = exif_orientation(std::as_bytes(std::span(m->data, static_cast<std::size_t>(m->data_length))));
  if (!reader.start()) fail();
  Pixels image{static_cast<Extent>(reader.jpeg.output_height), static_cast<Extent>(reader.jpeg.output_width), 3, {}};
  image.values.resize(static_cast<std::size_t>(image.height) * image.row_size());
  if (!reader.read_rows(image.values.data())) fail();
  return oriented(image, orientation);
}

#else

namespace {
[[noreturn]] void no_jpeg(const std::string& name) {
  throw UsageError(
      name + ": this build of Weft knows no JPEG files; install libjpeg (Debian: libjpeg62-turbo-dev) and build again");
}
}  // namespace

Pixels decode_jpeg(std::span<const std::byte>, const std::string& name, const Limits&) { no_jpeg(name); }
std::vector<std::byte> encode_jpeg(const Pixels&, int) { no_jpeg("image::write_jpeg"); }

#endif

}  // namespace weft::image
