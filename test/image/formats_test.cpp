// WebP, GIF and BMP against Pillow, JPEG as it is written, damage and limits.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <random>

#include "base/message_of.hpp"
#include "base/mutations.hpp"
#include "base/temporary_folder.hpp"
#include "image/image_cases.hpp"
#include "weft/error.hpp"
#include "weft/image.hpp"
#include "weft/ops.hpp"

namespace weft::image::formats_test {
namespace {

using test::bytes_of;
using test::message_of;
using test::view;

const Json& formats() {
  static const Json json = read_json_file(WEFT_TEST_FORMATS);
  return json;
}
std::vector<std::uint8_t> file_of(const std::string& name) {
  for (const Json& c : formats()["files"])
    if (c["name"] == name) return bytes_of(c["file"]);
  throw std::out_of_range(name);
}
std::string decoded(const std::vector<std::uint8_t>& file, const Limits& limits = {}) {
  return message_of([&] { (void)decode(view(file), "it", limits); });
}

TEST(ImageFormats, FilesHaveThePixelsThatPillowReads) {
  ASSERT_GE(formats()["files"].size(), 24u);
  for (const Json& c : formats()["files"]) {
    SCOPED_TRACE(c["name"].get<std::string>());
    const Tensor image = decode(view(bytes_of(c["file"])));
    EXPECT_EQ(image.shape(), Shape({c["height"].get<Extent>(), c["width"].get<Extent>(), 3}));
    EXPECT_EQ(image.to_vector<std::uint8_t>(), bytes_of(c["pixels"]));
  }
}

TEST(ImageFormats, CutFilesAndSizesOverTheLimitsAreRefused) {
  for (const Json& c : formats()["files"]) {
    SCOPED_TRACE(c["name"].get<std::string>());
    const std::vector<std::uint8_t> file = bytes_of(c["file"]);
    std::vector<std::uint8_t> half(file.begin(), file.begin() + static_cast<std::ptrdiff_t>(file.size() / 2));
    // What is cut off an animation may be its later frames.
    if (!c["name"].get<std::string>().ends_with("animated")) {
      EXPECT_NE(decoded(half).find("damaged"), std::string::npos);
    }
    EXPECT_NE(decoded(file, {.pixels_max = 20}).find("and 20 in all"), std::string::npos);
    EXPECT_NE(decoded(file, {.side_max = 4}).find("1 to 4 on a side"), std::string::npos);
  }
}

// Headers that promise much more than there is.
TEST(ImageFormats, HugeSizesAreRefusedBeforeTheyAreAllocated) {
  const test::MemoryLimit limit(std::size_t{64} << 20);
  std::vector<std::uint8_t> gif = file_of("gif-16"), bmp = file_of("bmp-24"), runs = file_of("bmp-runs-8");
  for (const std::size_t at : {7, 9}) gif[at] = 0xff;  // of width and height
  EXPECT_NE(decoded(gif).find("pixels (height x width)"), std::string::npos);
  for (const std::size_t at : {19, 23}) bmp[at] = 0x10;
  EXPECT_NE(decoded(bmp).find("are announced"), std::string::npos);
  for (const std::size_t at : {21, 25}) runs[at] = 0x7f;
  EXPECT_NE(decoded(runs).find("pixels (height x width)"), std::string::npos);
  std::vector<std::uint8_t> lowest = file_of("bmp-24");
  for (const std::size_t at : {22, 23, 24}) lowest[at] = 0;
  lowest[25] = 0x80;  // a height of -2^31
  EXPECT_NE(decoded(lowest).find("pixels (height x width)"), std::string::npos);
}

TEST(ImageFormats, ErrorsOfBmpSayWhatIsWrong) {
  const auto changed = [](const char* name, std::size_t at, std::uint8_t value) {
    std::vector<std::uint8_t> file = file_of(name);
    file[at] = value;
    return decoded(file);
  };
  EXPECT_EQ(changed("bmp-24", 30, 4), "it: a BMP file of 24 bits in the coding 4; convert the image to PNG");
  EXPECT_EQ(changed("bmp-24", 28, 23), "it: a BMP file of 23 bits in the coding 0; convert the image to PNG");
  EXPECT_EQ(changed("bmp-16-565", 54, 5), "it: damaged BMP file: a mask of a colour has gaps; fetch or write it again");
  EXPECT_EQ(changed("bmp-24", 14, 13),
            "it: damaged BMP file: a header of 13 bytes is not known; fetch or write it again");
  std::vector<std::uint8_t> runs = file_of("bmp-runs-8");
  runs[runs.size() - 6] = 200;  // a run of 200 pixels in a row of 7
  EXPECT_EQ(decoded(runs), "it: damaged BMP file: a run leaves the image; fetch or write it again");
}

// Five pixels of 4 bits take three bytes, and one to fill the word; Pillow takes two.
TEST(ImageFormats, OddRunsOfHalfBytes) {
  std::vector<std::uint8_t> file = file_of("bmp-runs-4");
  const std::uint8_t even[] = {0, 4, 0x12, 0x3a, 3, 0x99}, odd[] = {0, 5, 0x12, 0x3a, 0x90, 0, 2, 0x99};
  const auto at = std::search(file.begin(), file.end(), std::begin(even), std::end(even));
  ASSERT_NE(at, file.end());
  const std::vector<std::uint8_t> wanted = decode(view(file)).to_vector<std::uint8_t>();
  file.insert(file.erase(at, at + std::ssize(even)), std::begin(odd), std::end(odd));
  EXPECT_EQ(decode(view(file)).to_vector<std::uint8_t>(), wanted);
}

TEST(ImageFormats, SurvivesDamage) {
  std::vector<std::vector<std::uint8_t>> files;
  for (const Json& c : formats()["files"]) files.push_back(bytes_of(c["file"]));
  const test::MemoryLimit limit(std::size_t{256} << 20);
  const int rounds = test::every_mutation() ? 1'000'000 : 6'000;
  std::mt19937_64 random(11);
  int taken = 0;
  for (int i = 0; i < rounds; ++i) {
    try {
      (void)decode(view(test::damaged(files[random() % files.size()], random)), "damaged", {.pixels_max = 1 << 20});
      ++taken;
    } catch (const FileError&) {
    }
  }
  EXPECT_GT(taken, 0);
  EXPECT_LT(taken, rounds);
}

TEST(ImageFormats, JpegIsWritten) {
  const test::TemporaryFolder folder;
  constexpr Extent kHeight = 40, kWidth = 56;
  std::vector<std::uint8_t> values;
  for (int y = 0; y < kHeight; ++y)
    for (int x = 0; x < kWidth; ++x)
      for (int c = 0; c < 3; ++c)
        values.push_back(static_cast<std::uint8_t>(127 + 100 * std::sin(0.2 * x + c) * std::cos(0.1 * y)));
  const Tensor image = tensor<std::uint8_t>(values, {kHeight, kWidth, 3});
  const auto error_of = [&](const Tensor& other) {
    return sqrt(mean(square(cast(other, DType::f32) - cast(image, DType::f32)))).item<float>();
  };
  std::size_t last = 1 << 20;
  double error = 0;
  for (const int quality : {100, 90, 50, 5}) {
    const std::vector<std::byte> file = encode_jpeg(image, quality);
    EXPECT_LT(file.size(), last) << quality;
    EXPECT_GT(error_of(decode(file)), error) << quality;
    last = file.size();
    error = error_of(decode(file));
    EXPECT_LT(error, quality >= 90 ? 2 : 100) << quality;
  }
  write(folder / "image.jpg", image, 95);
  EXPECT_LT(error_of(read(folder / "image.jpg")), 2);
  write(folder / "image.png", image);
  EXPECT_EQ(read(folder / "image.png").to_vector<std::uint8_t>(), values);
  const Tensor grey = tensor<std::uint8_t>(std::vector<std::uint8_t>(64, 77), {8, 8});
  EXPECT_EQ(decode(encode(grey, "jpeg")).to_vector<std::uint8_t>(), std::vector<std::uint8_t>(192, 77));
  EXPECT_EQ(message_of([&] { write(folder / "image.gif", image); }),
            "image::write: \"image.gif\" ends in neither .png, .jpg nor .jpeg");
  EXPECT_EQ(message_of([&] { (void)encode(image, "webp"); }),
            "image::encode: the format \"webp\"; images are written as png or jpeg");
  EXPECT_EQ(message_of([&] { (void)encode_jpeg(image, 0); }), "image::write_jpeg: a quality of 0; it is 1 to 100");
  EXPECT_EQ(message_of([&] {
              (void)encode_jpeg(zeros({1, 65501, 3}, DType::u8));
            }),
            "image::write_jpeg: 1 x 65501 pixels; a side has at most 65500");
  EXPECT_EQ(message_of([] { (void)filter("box"); }),
            "image: there is no filter \"box\"; known are nearest, bilinear, bicubic and lanczos");
}

}  // namespace
}  // namespace weft::image::formats_test
