// Damaged files of text encoders through the doors that users have: they load and are used, or are refused by name.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "base/hostile_files.hpp"
#include "base/message_of.hpp"
#include "encoder/tiny_encoder.hpp"
#include "encoder/tiny_gguf.hpp"
#include "layers/rows.hpp"
#include "weft/error.hpp"

namespace weft::encoder {
namespace {

using test::Outcome;
using test::TemporaryFolder;

constexpr std::size_t kFew = 20;

/// Loads the model and does what its head is for. What is refused names a file of the folder, or one that two files name together.
Outcome use(const std::filesystem::path& model) {
  return test::outcome_of(model.string(), {"the configuration asks for", "missing: "}, [&](Outcome& outcome) {
    const Model loaded = load(model, {.device = kCpu});
    outcome.loaded = true;
    const std::vector<std::string> texts{"w7 w9", "w8"};
    (void)loaded.embed(texts, {.too_long = TooLong::cut});
    switch (loaded.task()) {
      case Task::embed: break;
      case Task::classify: (void)loaded.rerank("w7", texts); break;
      case Task::label_tokens: (void)loaded.entities("w7 w9"); break;
      case Task::fill_masks: (void)loaded.fill_masks("w7 " + loaded.mask()); break;
    }
  });
}

class HostileEncoder : public testing::Test {
 protected:
  void put(const std::string& name) {
    case_ = test::encoder_case(name);
    test::put_encoder(case_, name, folder_.path());
  }
  void damage(const std::string& file, std::size_t end) {
    test::expect_damage_is_survived(folder_, file, read_text_file(folder_ / file), end, kFew,
                                    [&] { return use(folder_.path()); });
  }
  /// All of a file of JSON.
  void damage(const std::string& file) { damage(file, read_text_file(folder_ / file).size()); }
  /// The head of a safetensors file.
  void damage_head(const std::string& file) {
    const std::string good = read_text_file(folder_ / file);
    std::uint64_t head = 0;
    std::memcpy(&head, good.data(), sizeof head);
    damage(file, sizeof head + head);
  }
  TemporaryFolder folder_;
  Json case_;
};

TEST_F(HostileEncoder, FilesOfSentenceTransformers) {
  put("bert-mean");
  for (const auto& [file, contents] : case_["files"].items()) damage(file);
  for (const char* file : {"model.safetensors", "2_Dense/model.safetensors"}) damage_head(file);
}

TEST_F(HostileEncoder, Heads) {
  for (const char* name : {"bert-masks", "bert-tokens", "deberta-v3-classes"}) {
    put(name);
    damage("config.json");
    damage_head("model.safetensors");
  }
}

TEST_F(HostileEncoder, Gguf) {
  const std::filesystem::path file = folder_ / "m.gguf";
  test::put_gguf("bert", "bert", file);
  std::uint64_t data = 0;
  const io::GgufFile whole = io::GgufFile::open(file);
  for (const io::GgufTensor& tensor : whole.tensors()) data += tensor.data.size();
  const std::string good = read_text_file(file);
  test::expect_damage_is_survived(folder_, "m.gguf", good, good.size() - data, kFew, [&] { return use(file); });
}

// Each value of a configuration is replaced by what it is not, in every family: by all of these in the long tier, otherwise
// by another one for every third key.
TEST_F(HostileEncoder, ConfigOfEveryFamily) {
  const Json others[] = {Json(),  Json(-1),      Json(0),     Json(1),   Json(2),
                         Json(3), Json(1 << 24), Json(1e300), Json("x"), Json::array({1})};
  std::size_t turn = 0;
  for (const std::string& name : test::encoder_names()) {
    SCOPED_TRACE(name);
    const TemporaryFolder folder;
    const Json c = test::encoder_case(name), config = c["files"]["config.json"];
    test::put_encoder(c, name, folder.path());
    for (const auto& [key, value] : config.items())
      for (std::size_t i = 0; i < std::size(others); ++i, ++turn) {
        if (!test::every_mutation() && turn % (3 * std::size(others) + 1) != 0) continue;
        Json changed = config;
        changed[key] = others[i];
        folder.put("config.json", changed.dump());
        EXPECT_EQ(use(folder.path()).complaint, "") << key << ": " << others[i].dump();
      }
  }
}

// Distances behind the middle bucket are placed by a logarithm that has to grow.
TEST_F(HostileEncoder, BucketsThatDoNotFitTheirDistance) {
  put("deberta-v3-classes");
  for (const auto& [buckets, distance] : {std::pair(1, 64), std::pair(8, 5), std::pair(64, 33), std::pair(2, 1)}) {
    Json changed = case_["files"]["config.json"];
    changed["position_buckets"] = buckets;
    changed["max_relative_positions"] = distance;
    folder_.put("config.json", changed.dump());
    EXPECT_NE(test::message_of([&] {
                (void)load(folder_.path(), {.device = kCpu});
              }).find(fmt::format("{} buckets of positions do not fit a distance of {}", buckets, distance)),
              std::string::npos);
  }
}

TEST(HostileScores, NumbersThatAreNoneComeLast) {
  const double none = std::nan("");
  const std::vector<double> values{none, 1, none, 3, 1};
  EXPECT_EQ(layers::places_of_largest(std::span(values), 9), (std::vector<std::size_t>{3, 1, 4, 0, 2}));
  EXPECT_EQ(layers::places_of_largest(std::span(values), 2), (std::vector<std::size_t>{3, 1}));
}

// Weights that are not numbers give results that are none either, and not a crash.
TEST_F(HostileEncoder, WeightsThatAreNotNumbers) {
  for (const char* name : {"bert", "bert-masks", "bert-tokens", "deberta-v3-classes"}) {
    put(name);
    const std::string good = read_text_file(folder_ / "model.safetensors");
    std::uint64_t head = 0;
    std::memcpy(&head, good.data(), sizeof head);
    folder_.put("model.safetensors",
                good.substr(0, sizeof head + head) + std::string(good.size() - sizeof head - head, '\xff'));
    EXPECT_EQ(use(folder_.path()).complaint, "") << name;
  }
}

}  // namespace
}  // namespace weft::encoder
