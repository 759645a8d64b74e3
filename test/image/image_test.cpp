// Images: files and sizes against Pillow, damage of every kind, limits.
#include "weft/image.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>

#include "base/file.hpp"
#include "base/message_of.hpp"
#include "base/mutations.hpp"
#include "base/temporary_folder.hpp"
#include "image/codecs.hpp"
#include "image/image_cases.hpp"
#include "weft/error.hpp"

namespace weft::image {
namespace {

using test::bytes_of;
using test::damaged;
using test::message_of;
using test::view;

const Json& pillow() {
  static const Json json = read_json_file(WEFT_TEST_PILLOW);
  return json;
}

Tensor image_of(const Json& hex, const Json& size) {
  const std::vector<std::uint8_t> bytes = bytes_of(hex);
  return tensor<std::uint8_t>(bytes, {size[0].get<Extent>(), size[1].get<Extent>(), 3});
}

Filter filter_of(const std::string& name) {
  return name == "nearest"    ? Filter::nearest
         : name == "bilinear" ? Filter::bilinear
         : name == "bicubic"  ? Filter::bicubic
                              : Filter::lanczos;
}

TEST(Image, FilesHaveThePixelsThatPillowReads) {
  ASSERT_GE(pillow()["files"].size(), 22u);
  for (const Json& c : pillow()["files"]) {
    SCOPED_TRACE(c["name"].get<std::string>());
    const std::vector<std::uint8_t> file = bytes_of(c["file"]);
    const Tensor image = decode(view(file));
    EXPECT_EQ(image.shape(), Shape({c["height"].get<Extent>(), c["width"].get<Extent>(), 3}));
    EXPECT_EQ(image.to_vector<std::uint8_t>(), bytes_of(c["pixels"]));
  }
}

TEST(Image, SizesHaveThePixelsThatPillowGives) {
  ASSERT_GE(pillow()["resized"].size(), 28u);
  for (const Json& c : pillow()["resized"]) {
    SCOPED_TRACE(c["filter"].get<std::string>() + " " + c["from"].dump() + " to " + c["to"].dump());
    const Tensor small = resize(image_of(c["source"], c["from"]), c["to"][0], c["to"][1], filter_of(c["filter"]));
    EXPECT_EQ(small.to_vector<std::uint8_t>(), bytes_of(c["result"]));
  }
}

TEST(Image, FloatsAgreeWithTorchvision) {
  for (const Json& c : pillow()["floats"]) {
    const Json& source = pillow()["resized"][c["case"].get<std::size_t>()];
    SCOPED_TRACE(c["filter"].get<std::string>() + " " + source["from"].dump() + " to " + c["to"].dump());
    const Tensor image = cast(image_of(source["source"], source["from"]), DType::f32) / 255.0;
    const std::vector<float> values = resize(image, c["to"][0], c["to"][1], filter_of(c["filter"])).to_vector<float>();
    for (std::size_t i = 0; i < c["result"].size(); ++i) EXPECT_NEAR(values[i], c["result"][i].get<float>(), 2e-6) << i;
  }
}

TEST(Image, WhatIsWrittenIsReadBack) {
  const test::TemporaryFolder folder;
  std::vector<std::uint8_t> values;
  for (int i = 0; i < 5 * 7 * 3; ++i) values.push_back(static_cast<std::uint8_t>(37 * i));
  const Tensor image = tensor<std::uint8_t>(values, {5, 7, 3});
  write_png(folder / "image.png", image);
  EXPECT_EQ(read(folder / "image.png").to_vector<std::uint8_t>(), values);
  const Tensor grey = tensor<std::uint8_t>({1, 2, 3, 4, 5, 255}, {2, 3});
  EXPECT_EQ(decode(encode_png(grey)).to_vector<std::uint8_t>(),
            (std::vector<std::uint8_t>{1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4, 5, 5, 5, 255, 255, 255}));
}

TEST(Image, CropsTakeTheMiddle) {
  std::vector<float> values;
  for (int i = 0; i < 4 * 5; ++i) values.push_back(static_cast<float>(i + 1));
  const Tensor image = tensor<float>(values, {4, 5, 1});
  EXPECT_EQ(center_crop(image, 2, 2).to_vector<float>(), (std::vector<float>{7, 8, 12, 13}));
  // As in transformers: the larger part of an odd margin is added in front.
  EXPECT_EQ(center_crop(image, 1, 8).to_vector<float>(), (std::vector<float>{0, 0, 6, 7, 8, 9, 10, 0}));
}

TEST(Image, ErrorsSayWhatIsWrong) {
  const test::TemporaryFolder folder;
  const auto decoded = [](std::string_view text, const Limits& limits = {}) {
    return message_of([&] { (void)decode(std::as_bytes(std::span(text)), "it", limits); });
  };
  EXPECT_EQ(decoded("no image"), "it: not a PNG, JPEG, WebP, GIF or BMP file; convert the image to one of these");
  EXPECT_EQ(decoded(""), "it: not a PNG, JPEG, WebP, GIF or BMP file; convert the image to one of these");
  EXPECT_EQ(decoded("0123456789", {.file_bytes_max = 9}), "it: the file has 10 bytes; at most 9 are read");
  for (const Json& c : pillow()["files"]) {
    const std::vector<std::uint8_t> file = bytes_of(c["file"]);
    const std::string_view whole(reinterpret_cast<const char*>(file.data()), file.size());
    SCOPED_TRACE(c["name"].get<std::string>());
    // Cut off anywhere, a file is refused: no pixel is made up.
    for (const std::size_t left : {file.size() / 2, file.size() - 14})
      EXPECT_NE(decoded(whole.substr(0, left)).find("damaged"), std::string::npos) << left;
    EXPECT_NE(decoded(whole, {.pixels_max = 40}).find("and 40 in all"), std::string::npos);
    EXPECT_NE(decoded(whole, {.side_max = 7}).find("1 to 7 on a side"), std::string::npos);
  }
  EXPECT_THROW((void)read(folder / "none.png"), FileError);
  const Tensor flat = tensor<float>({1, 2, 3});
  EXPECT_EQ(message_of([&] { (void)resize(flat, 2, 2); }),
            "image::resize: the image is f32 [3]; give u8 or f32 [height, width, channels] with pixels");
  EXPECT_EQ(message_of([] { (void)center_crop({}, 2, 2); }),
            "image::center_crop: there is no image; give u8 or f32 [height, width, channels] with pixels");
  const Tensor image = zeros({2, 2, 3}, DType::u8);
  EXPECT_EQ(message_of([&] { (void)resize(image, 0, 2); }),
            "image::resize: a size of 0 x 2; each must be from 1 to 32768");
  EXPECT_EQ(message_of([&] {
              (void)encode_png(zeros({2, 2, 4}, DType::u8));
            }),
            "image::write_png: the image is u8 [2, 2, 4]; give u8 [height, width, 3], or [height, width] for grey");
}

// A header of 20 bytes that promises 2^30 pixels on a side.
TEST(Image, HugeSizesAreRefusedBeforeTheyAreAllocated) {
  std::vector<std::uint8_t> png = bytes_of(pillow()["files"][0]["file"]);
  const test::MemoryLimit limit(std::size_t{64} << 20);
  for (const std::size_t at : {16, 20}) {
    std::vector<std::uint8_t> huge = png;
    huge[at] = 0x40;
    EXPECT_NE(message_of([&] { (void)decode(view(huge)); }), "no error");
  }
  std::vector<std::uint8_t> jpeg = bytes_of(pillow()["files"][8]["file"]);
  const std::uint8_t mark[] = {0xff, 0xc0};
  const auto frame = std::search(jpeg.begin(), jpeg.end(), std::begin(mark), std::end(mark));
  ASSERT_NE(frame, jpeg.end());
  for (const int at : {5, 7}) frame[at] = 0xfa;  // of height and width
  EXPECT_NE(message_of([&] { (void)decode(view(jpeg)); }).find("the image has 64"), std::string::npos);
}

TEST(Image, SurvivesDamage) {
  std::vector<std::vector<std::uint8_t>> files;
  for (const Json& c : pillow()["files"]) files.push_back(bytes_of(c["file"]));
  const test::MemoryLimit limit(std::size_t{256} << 20);
  const int rounds = test::every_mutation() ? 1'000'000 : 6'000;
  std::mt19937_64 random(7);
  int taken = 0;
  for (int i = 0; i < rounds; ++i) {
    try {
      (void)decode(view(damaged(files[random() % files.size()], random)), "damaged", {.pixels_max = 1 << 20});
      ++taken;
    } catch (const FileError&) {
    }
  }
  EXPECT_GT(taken, 0);
  EXPECT_LT(taken, rounds);
}

TEST(Image, ExifOfAnyBytesIsRead) {
  std::mt19937_64 random(9);
  for (int i = 0; i < 20'000; ++i) {
    std::string segment("Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0", 32);
    segment.resize(random() % (segment.size() + 1));
    if (!segment.empty()) segment[random() % segment.size()] = static_cast<char>(random());
    const int orientation = exif_orientation(std::as_bytes(std::span(segment)));
    EXPECT_TRUE(orientation >= 1 && orientation <= 8);
  }
}

}  // namespace
}  // namespace weft::image
