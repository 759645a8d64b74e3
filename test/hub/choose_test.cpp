// Which files of a repository make a model, and lists that lie.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "hub/listing.hpp"
#include "weft/error.hpp"

namespace weft::hub {
namespace {

struct ChooseCase {
  const char* name;
  std::vector<const char*> listed;
  const char* choice;
  std::vector<std::string> chosen;  // empty: an error
  const char* main;                 // or what the error says
};

std::string name_of_case(const testing::TestParamInfo<ChooseCase>& info) { return info.param.name; }

class ChooseTest : public testing::TestWithParam<ChooseCase> {};

TEST_P(ChooseTest, Files) {
  const ChooseCase& c = GetParam();
  Listing listing;
  for (const char* name : c.listed) listing.files.push_back({.name = name, .bytes = 10});
  const auto read = [](const ListedFile&) -> std::string {
    return R"({"weight_map": {"a": "model-00002-of-00002.safetensors", "b": "model-00001-of-00002.safetensors"}})";
  };
  const ModelName name{.repository = "acme/tiny", .choice = c.choice};
  try {
    const Chosen chosen = choose_files(listing, name, read);
    std::vector<std::string> names;
    for (const ListedFile& file : chosen.files) names.push_back(file.name);
    EXPECT_EQ(names, c.chosen);
    EXPECT_EQ(chosen.main, c.main);
    EXPECT_EQ(chosen.are_weights.size(), names.size());
  } catch (const Error& error) {
    EXPECT_TRUE(c.chosen.empty()) << error.what();
    EXPECT_NE(std::string(error.what()).find(c.main), std::string::npos) << error.what();
  }
}

const ChooseCase kChoices[] = {
    {"folder",
     {"README.md", "config.json", "model.safetensors", "tokenizer.json", "other/x.json"},
     "",
     {"config.json", "tokenizer.json", "model.safetensors"},
     ""},
    {"shards",
     {"config.json", "consolidated.safetensors", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
      "model.safetensors.index.json"},
     "",
     {"config.json", "model.safetensors.index.json", "model-00001-of-00002.safetensors",
      "model-00002-of-00002.safetensors"},
     ""},
    {"shard_missing",
     {"config.json", "model-00001-of-00002.safetensors", "model.safetensors.index.json"},
     "",
     {},
     "which the repository does not have"},
    {"modules_of_sentence_transformers",
     {"config.json", "model.safetensors", "modules.json", "1_Pooling/config.json", "2_Dense/config.json",
      "2_Dense/model.safetensors", "2_Dense/pytorch_model.bin", "onnx/model.json", "1_x/2_y/config.json"},
     "",
     {"config.json", "modules.json", "model.safetensors", "1_Pooling/config.json", "2_Dense/config.json",
      "2_Dense/model.safetensors"},
     ""},
    {"one_of_another_name", {"config.json", "weights.safetensors"}, "", {"config.json", "weights.safetensors"}, ""},
    {"two_without_an_index", {"config.json", "a.safetensors", "b.safetensors"}, "", {}, "no index says"},
    {"folder_before_blocks",
     {"config.json", "model.safetensors", "m-Q8_0.gguf"},
     "",
     {"config.json", "model.safetensors"},
     ""},
    {"blocks_beside_a_configuration", {"config.json", "m-Q8_0.gguf"}, "", {"m-Q8_0.gguf"}, "m-Q8_0.gguf"},
    {"usual_type", {"m-Q8_0.gguf", "m-Q4_K_M.gguf"}, "", {"m-Q4_K_M.gguf"}, "m-Q4_K_M.gguf"},
    {"no_usual_type", {"m-Q8_0.gguf", "m-Q6_K.gguf"}, "", {}, "several models"},
    {"case", {"m.q8_0.gguf", "m.q4_0.GGUF"}, "Q4_0", {"m.q4_0.GGUF"}, "m.q4_0.GGUF"},
    {"whole_words", {"m-IQ4_XS.gguf", "m-Q4_K_S.gguf", "m-Q4_K.gguf"}, "Q4_K", {"m-Q4_K.gguf"}, "m-Q4_K.gguf"},
    {"first_of_two_words", {"Q4_0/m.gguf", "Q4_0_4_4/m.gguf"}, "Q4_0", {"Q4_0/m.gguf"}, "Q4_0/m.gguf"},
    {"parts",
     {"m-F16-00001-of-00003.gguf", "m-F16-00002-of-00003.gguf", "m-F16-00003-of-00003.gguf",
      "m-F16-00001-of-00002.txt"},
     "F16",
     {"m-F16-00001-of-00003.gguf", "m-F16-00002-of-00003.gguf", "m-F16-00003-of-00003.gguf"},
     "m-F16-00001-of-00003.gguf"},
    {"any_part_by_name",
     {"m-00001-of-00002.gguf", "m-00002-of-00002.gguf"},
     "m-00002-of-00002.gguf",
     {"m-00001-of-00002.gguf", "m-00002-of-00002.gguf"},
     "m-00001-of-00002.gguf"},
    {"projector", {"mmproj-m-F16.gguf", "m-F16.gguf"}, "F16", {"m-F16.gguf"}, "m-F16.gguf"},
    {"projector_by_name",
     {"mmproj-m-F16.gguf", "m-F16.gguf"},
     "mmproj-m-F16.gguf",
     {"mmproj-m-F16.gguf"},
     "mmproj-m-F16.gguf"},
    {"any_file", {"config.json", "model.safetensors"}, "config.json", {"config.json"}, "config.json"},
    {"voice", {"en.onnx", "en.onnx.json", "README.md"}, "", {"en.onnx", "en.onnx.json"}, "en.onnx"},
    {"pickle", {"config.json", "pytorch_model.bin"}, "", {}, "may hold code"},
    {"nothing", {}, "", {}, "it has no files"},
};
INSTANTIATE_TEST_SUITE_P(Cases, ChooseTest, testing::ValuesIn(kChoices), name_of_case);

constexpr const char* kCommit = R"("sha": "0123456789abcdef0123456789abcdef01234567")";

Listing listing_of(const std::string& siblings, std::string& unsafe) {
  return read_listing(std::string("{") + kCommit + ", \"siblings\": [" + siblings + "]}", "the hub", unsafe);
}

TEST(ListingTest, ReadsLargeAndSmallFiles) {
  std::string unsafe;
  const std::string hash(64, 'A');
  const Listing listing = listing_of(
      R"({"rfilename": "a", "size": 3, "blobId": "f00"}, {"rfilename": "b", "size": 1, "blobId": "f01", "lfs": {"sha256": ")" +
          hash + R"(", "size": 12345678901}}, {"rfilename": "c"})",
      unsafe);
  ASSERT_EQ(listing.files.size(), 3u);
  EXPECT_EQ(listing.files[0].blob, "f00");
  EXPECT_EQ(listing.files[0].sha256, "");
  EXPECT_EQ(listing.files[1].bytes, 12345678901u);
  EXPECT_EQ(listing.files[1].blob, std::string(64, 'a'));
  EXPECT_EQ(listing.files[2].blob, "");
  EXPECT_EQ(unsafe, "");
}

TEST(ListingTest, TellsNamesThatLeadElsewhere) {
  for (const char* name : {"../x", "/x", "a/../x", "a//x", "x\\\\y", "x\\u0000", ""}) {
    std::string unsafe = name[0] ? "" : "empty";
    const Listing listing = listing_of(std::string(R"({"rfilename": "good"}, {"rfilename": ")") + name + "\"}", unsafe);
    EXPECT_EQ(listing.files.size(), 1u) << name;
    EXPECT_NE(unsafe, "") << name;
  }
}

TEST(ListingTest, RefusesLies) {
  std::string unsafe;
  for (const char* text : {"", "[]", "{}", R"({"sha": "main", "siblings": []})", R"({"sha": 3, "siblings": []})"})
    EXPECT_THROW(read_listing(text, "the hub", unsafe), FileError) << text;
  for (const char* siblings : {R"({"rfilename": "a", "size": -1})", R"({"rfilename": "a", "size": 1.5})",
                               R"({"rfilename": "a", "size": 1e30})", R"({"rfilename": "a", "blobId": "../x"})",
                               R"({"rfilename": "a", "blobId": ".x"})", R"({"rfilename": "a", "lfs": {}})",
                               R"({"rfilename": "a", "lfs": {"sha256": "../../x", "size": 1}})"})
    EXPECT_THROW(listing_of(siblings, unsafe), FileError) << siblings;
}

}  // namespace
}  // namespace weft::hub
