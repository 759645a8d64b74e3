// Images and sounds as operations: files as bytes and on the machine, rights, limits, errors.
#include <gtest/gtest.h>

#include <cmath>

#include "base/temporary_folder.hpp"
#include "operations/code_of.hpp"
#include "weft/audio.hpp"
#include "weft/catalogue.hpp"
#include "weft/image.hpp"
#include "weft/ops.hpp"

namespace weft::operations::media_test {
namespace {

using test::code_of;
Value members(std::initializer_list<ValueObject::Member> list) { return Value::object(list); }
Tensor file_tensor(const std::vector<std::byte>& bytes) {
  return tensor_from_bytes(bytes.data(), {static_cast<Extent>(bytes.size())}, DType::u8);
}

struct MediaOperations : testing::Test {
  MediaOperations() {
    set_default_device(parse_device("cpu"));
    for (int i = 0; i < 6 * 8 * 3; ++i) values.push_back(static_cast<std::uint8_t>(29 * i));
    picture = tensor<std::uint8_t>(values, {6, 8, 3});
    for (int i = 0; i < 800; ++i) tone.samples.push_back(0.5f * static_cast<float>(std::sin(0.2 * i)));
    tone.rate = 8000;
  }
  test::TemporaryFolder folder;
  std::vector<std::uint8_t> values;
  Tensor picture;
  audio::Sound tone;
  std::shared_ptr<Registry> registry = std::make_shared<Registry>();
  Catalogue catalogue{registry,
                      {.read_folders = {folder.path()}, .write_folders = {folder.path()}, .tensor_bytes_max = 1 << 20}};
  Exchange exchange{registry};
  CallOptions owner{.identity = registry->owner()};

  std::string path(const char* name) const { return (folder.path() / name).string(); }
  Value call(std::string_view id, Value input) { return exchange.call(id, std::move(input), owner).data; }
  std::string code(std::string_view id, Value input) {
    return code_of([&] { call(id, std::move(input)); });
  }
};

TEST_F(MediaOperations, ImagesAreReadWrittenAndResized) {
  const Tensor png = call("image.encode", members({{"image", picture}}))["file"].tensor();
  EXPECT_EQ(call("image.decode", members({{"file", png}}))["image"].tensor().to_vector<std::uint8_t>(), values);
  const Tensor small =
      call("image.resize", members({{"image", picture}, {"height", 3}, {"width", 2}, {"filter", "lanczos"}}))["image"]
          .tensor();
  const std::vector<std::uint8_t> wanted =
      image::resize(picture, 3, 2, image::Filter::lanczos).to_vector<std::uint8_t>();
  EXPECT_EQ(small.to_vector<std::uint8_t>(), wanted);
  // Every operation takes the bytes of a file as an image.
  EXPECT_EQ(call("image.resize", members({{"image", png}, {"height", 3}, {"width", 2}, {"filter", "lanczos"}}))["image"]
                .tensor()
                .to_vector<std::uint8_t>(),
            wanted);
  EXPECT_EQ(call("image.center_crop", members({{"image", png}, {"height", 2}, {"width", 2}}))["image"]
                .tensor()
                .to_vector<std::uint8_t>(),
            image::center_crop(picture, 2, 2).to_vector<std::uint8_t>());
  call("image.write", members({{"image", picture}, {"path", path("a.png")}}));
  EXPECT_EQ(call("image.read", members({{"path", path("a.png")}}))["image"].tensor().to_vector<std::uint8_t>(), values);
  const Value fine = call("image.encode", members({{"image", picture}, {"format", "jpeg"}, {"quality", 100}}));
  const Value rough = call("image.encode", members({{"image", picture}, {"format", "jpeg"}, {"quality", 1}}));
  EXPECT_LT(rough["file"].tensor().numel(), fine["file"].tensor().numel());
}

TEST_F(MediaOperations, SoundsAreReadWrittenAndChanged) {
  const Tensor wav = file_tensor(audio::wav_bytes(tone, audio::SampleFormat::f32));
  const Value read = call("audio.decode", members({{"file", wav}}));
  EXPECT_EQ(read["sound"].tensor().shape(), (Shape{1, 800}));
  EXPECT_EQ(read["sound"].tensor().to_vector<float>(), tone.samples);
  EXPECT_EQ(read["rate"], Value(8000));
  const std::vector<float> wanted = audio::resample(tone, 16000).samples;
  for (const Value& sound :
       {members({{"sound", wav}, {"to", 16000}}), members({{"sound", read["sound"]}, {"rate", 8000}, {"to", 16000}})})
    EXPECT_EQ(call("audio.resample", sound)["sound"].tensor().to_vector<float>(), wanted);
  call("audio.write", members({{"sound", read["sound"]}, {"rate", 8000}, {"path", path("a.wav")}, {"format", "f32"}}));
  EXPECT_EQ(call("audio.read", members({{"path", path("a.wav")}}))["sound"].tensor().to_vector<float>(), tone.samples);
  EXPECT_EQ(
      call("audio.encode", members({{"sound", wav}, {"format", "f32"}}))["file"].tensor().to_vector<std::uint8_t>(),
      wav.to_vector<std::uint8_t>());
  const Tensor stereo = stack({ones({4}), zeros({4})}, 0);
  EXPECT_EQ(call("audio.mono", members({{"sound", stereo}, {"rate", 8000}}))["sound"].tensor().to_vector<float>(),
            (std::vector<float>(4, 0.5f)));
  const Tensor x = read["sound"].tensor();
  const Value spectrum = call("audio.stft", members({{"x", x}, {"size", 64}, {"hop", 16}, {"window", "hamming"}}));
  EXPECT_EQ(spectrum["real"].tensor().to_vector<float>(),
            audio::stft(x, {.size = 64, .hop = 16, .window = audio::WindowKind::hamming}).real.to_vector<float>());
  const Tensor back = call("audio.istft", members({{"real", spectrum["real"]},
                                                   {"imaginary", spectrum["imaginary"]},
                                                   {"length", 800},
                                                   {"size", 64},
                                                   {"hop", 16},
                                                   {"window", "hamming"}}))["x"]
                          .tensor();
  EXPECT_LT(amax(abs(back - x)).item<float>(), 1e-5);
  EXPECT_EQ(call("audio.mel_filters", members({{"mels", 20}, {"scale", "htk"}}))["filters"].tensor().to_vector<float>(),
            audio::mel_filters({.mels = 20, .scale = audio::MelScale::htk}).to_vector<float>());
  EXPECT_EQ(
      call("audio.log_mel_spectrogram", members({{"x", x}, {"mels", 16}}))["features"].tensor().to_vector<float>(),
      audio::log_mel_spectrogram(x, 16).to_vector<float>());
}

TEST_F(MediaOperations, WrongInputsHaveTheirCodes) {
  const Tensor noise = tensor<std::uint8_t>({1, 2, 3}, {3});
  EXPECT_EQ(code("image.decode", members({{"file", noise}})), "FILE_ERROR");
  EXPECT_EQ(code("image.decode", members({{"file", picture}})), "USAGE_ERROR");
  EXPECT_EQ(code("image.decode", members({{"file", ones({3})}})), "VALIDATION_ERROR");
  EXPECT_EQ(code("image.resize", members({{"image", picture}, {"height", 0}, {"width", 2}})), "VALIDATION_ERROR");
  EXPECT_EQ(code("image.resize", members({{"image", picture}, {"height", 1000}, {"width", 1000}})), "TENSOR_TOO_LARGE");
  EXPECT_EQ(code("image.encode", members({{"image", ones({2, 2})}})), "USAGE_ERROR");
  EXPECT_EQ(code("image.write", members({{"image", picture}, {"path", path("a.gif")}})), "USAGE_ERROR");
  EXPECT_EQ(code("image.read", members({{"path", path("none.png")}})), "FILE_ERROR");
  EXPECT_EQ(code("audio.decode", members({{"file", noise}})), "FILE_ERROR");
  EXPECT_EQ(code("audio.mono", members({{"sound", ones({3})}})), "USAGE_ERROR");  // samples without a rate
  EXPECT_EQ(code("audio.mono", members({{"sound", ones({1, 1, 3})}, {"rate", 8000}})), "SHAPE_ERROR");
  // Two samples a second, for a second and a half: a small input for a large result.
  EXPECT_EQ(code("audio.resample", members({{"sound", zeros({2000})}, {"rate", 1}, {"to", 768000}})), "USAGE_ERROR");
  EXPECT_EQ(code("audio.stft", members({{"x", ones({3})}})), "SHAPE_ERROR");
}

TEST_F(MediaOperations, NeedRights) {
  const auto as = [&](std::vector<std::string> scopes, std::map<std::string, std::vector<std::string>> resources,
                      std::string_view id, Value input) {
    return code_of([&] {
      exchange.call(id, std::move(input), {.identity = Identity{"ann", std::move(scopes), std::move(resources)}});
    });
  };
  call("image.write", members({{"image", picture}, {"path", path("a.png")}}));
  const Value encode = members({{"image", picture}}), read = members({{"path", path("a.png")}});
  const Value write = members({{"image", picture}, {"path", path("b.png")}});
  EXPECT_EQ(as({}, {}, "image.encode", encode), "ACCESS_DENIED");
  EXPECT_EQ(as({"media:run"}, {}, "image.encode", encode), "none");
  EXPECT_EQ(as({"media:run", "files:read"}, {}, "image.read", read), "ACCESS_DENIED");
  EXPECT_EQ(as({"media:run"}, {{"weights:*", {"read"}}}, "image.read", read), "ACCESS_DENIED");
  EXPECT_EQ(as({"media:run", "files:read"}, {{"weights:*", {"read"}}}, "image.read", read), "none");
  EXPECT_EQ(as({"media:run", "files:read"}, {{"weights:*", {"read"}}}, "image.write", write), "ACCESS_DENIED");
  EXPECT_EQ(as({"media:run", "files:write"}, {{"weights:*", {"write"}}}, "image.write", write), "none");
  // Outside of the catalogue's folders there are no files, whatever the rights.
  EXPECT_EQ(code("image.read", members({{"path", "/etc/hostname"}})), "ACCESS_DENIED");
  EXPECT_EQ(code("audio.write", members({{"sound", ones({3})}, {"rate", 8000}, {"path", path("../x.wav")}})),
            "ACCESS_DENIED");
}

}  // namespace
}  // namespace weft::operations::media_test
