// Sharded models: what an index may name.
#include "io/safetensors_index.hpp"
#include "base/message_of.hpp"

#include <gtest/gtest.h>

#include "base/temporary_folder.hpp"
#include "weft/error.hpp"

namespace weft::io {
namespace {

using test::message_of;
using test::TemporaryFolder;

void put_tensor(const std::filesystem::path& path, const std::string& name, const std::string& data) {
  const std::vector<TensorView> tensors = {
      {name, "U8", {static_cast<Extent>(data.size())}, std::as_bytes(std::span(data))}};
  write_safetensors(path, tensors);
}

std::string index_text(const std::string& map) {
  return "{\"metadata\": {\"total_size\": 8}, \"weight_map\": " + map + "}";
}

TEST(SafetensorsFolder, SingleFileAndShardsGiveTheSameTensors) {
  const TemporaryFolder folder;
  put_tensor(folder / "one.safetensors", "a", "1234");
  put_tensor(folder / "two.safetensors", "b", "56");
  folder.put("model.safetensors.index.json", index_text(R"({"a": "one.safetensors", "b": "two.safetensors"})"));
  const SafetensorsFolder model = SafetensorsFolder::open(folder.path());
  ASSERT_EQ(model.tensors().size(), 2u);
  EXPECT_EQ(model.tensors().at("b").data.size(), 2u);
  EXPECT_EQ(model.tensors().at("a").data[3], std::byte{'4'});
  put_tensor(folder / "model.safetensors", "c", "7");  // a single file wins
  EXPECT_EQ(SafetensorsFolder::open(folder.path()).tensors().count("c"), 1u);
}

TEST(SafetensorsFolder, UntrustedFileNamesAreRefused) {
  const TemporaryFolder folder;
  for (const char* name :
       {"../x.safetensors", "/etc/x.safetensors", "a/b.safetensors", "a\\\\b.safetensors", ".safetensors", "..", "",
        "x.bin", "x.safetensors\\u0000", "c:x.safetensors", ".hidden.safetensors", "a\\nb.safetensors"}) {
    const auto path = folder.put("i.json", index_text("{\"a\": \"" + std::string(name) + "\"}"));
    EXPECT_NE(message_of<FileError>([&] {
                read_safetensors_index(path);
              }).find("only plain names of files in the same folder"),
              std::string::npos)
        << name;
  }
}

TEST(SafetensorsFolder, BadIndexes) {
  struct Case {
    const char* text;
    const char* message;
  };
  const TemporaryFolder folder;
  for (const Case& c : {Case{"[]", "the index is not an object"}, Case{"{}", "weight_map is missing"},
                        Case{"{\"weight_map\": []}", "weight_map is not an object"},
                        Case{"{\"weight_map\": {\"a\": 1}}", "weight_map \"a\" is not a file name"},
                        Case{"{\"weight_map\": {\"a\": \"x\", \"a\": \"y\"}}", "key \"a\" occurs twice"},
                        Case{"{", "not valid JSON"}}) {
    const auto path = folder.put("i.json", c.text);
    EXPECT_NE(message_of<FileError>([&] { read_safetensors_index(path); }).find(c.message), std::string::npos)
        << c.text;
  }
}

TEST(SafetensorsFolder, ShardsMustMatchTheIndex) {
  const TemporaryFolder folder;
  const auto error_of = [&](const std::string& map) {
    folder.put("model.safetensors.index.json", index_text(map));
    return message_of<FileError>([&] { SafetensorsFolder::open(folder.path()); });
  };
  EXPECT_NE(message_of<FileError>([&] {
              SafetensorsFolder::open(folder.path());
            }).find("holds neither model.safetensors nor"),
            std::string::npos);
  put_tensor(folder / "one.safetensors", "a", "1");
  put_tensor(folder / "two.safetensors", "b", "1");
  std::filesystem::create_symlink("nowhere", folder / "link.safetensors");
  EXPECT_NE(error_of(R"({"a": "link.safetensors"})").find("which cannot be found"), std::string::npos);
  EXPECT_NE(error_of(R"({"a": "none.safetensors"})").find("which cannot be found"), std::string::npos);
  EXPECT_NE(error_of(R"({"a": "one.safetensors", "c": "one.safetensors"})")
                .find("tensor \"c\" in \"one.safetensors\", which does not hold it"),
            std::string::npos);
  EXPECT_NE(error_of(R"({"b": "one.safetensors"})").find("holds tensor \"a\", which the index does not list"),
            std::string::npos);
  EXPECT_NE(error_of(R"({"a": "two.safetensors", "b": "one.safetensors"})").find("but the index puts it in"),
            std::string::npos);
}

// As the caches of Hugging Face lay out a model: snapshots/REVISION/NAME -> ../../blobs/HASH.
TEST(SafetensorsFolder, ShardsMayBeLinksToElsewhere) {
  const TemporaryFolder cache;
  const auto blobs = cache / "blobs", snapshot = cache.path() / "snapshots" / "1234";
  std::filesystem::create_directories(blobs);
  std::filesystem::create_directories(snapshot);
  put_tensor(blobs / "0a", "a", "1");
  put_tensor(blobs / "0b", "b", "2");
  cache.put("blobs/0c", index_text(R"({"a": "model-1.safetensors", "b": "model-2.safetensors"})"));
  for (const auto& [name, blob] :
       {std::pair("model-1.safetensors", "0a"), {"model-2.safetensors", "0b"}, {"model.safetensors.index.json", "0c"}})
    std::filesystem::create_symlink(std::filesystem::path("../../blobs") / blob, snapshot / name);
  EXPECT_EQ(SafetensorsFolder::open(snapshot).tensors().size(), 2u);
}

}  // namespace
}  // namespace weft::io
