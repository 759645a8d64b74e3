#include "weft/train/checkpoint.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/file.hpp"
#include "base/mutations.hpp"
#include "io/safetensors.hpp"
#include "weft/error.hpp"

namespace weft::train {
namespace {

namespace fs = std::filesystem;

class CheckpointTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("weft_checkpoint_test_" + std::to_string(getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  fs::path path() const { return folder_ / "last.safetensors"; }

  static nn::NamedArray array(const std::string& name, DType type, const Shape& shape) {
    nn::NamedArray a{name, type, shape,
                     std::vector<std::byte>(static_cast<std::size_t>(shape.numel()) * size_bytes(type))};
    for (std::size_t i = 0; i < a.bytes.size(); ++i) a.bytes[i] = static_cast<std::byte>(i * 37 % 251);
    return a;
  }
  static Checkpoint sample(std::int64_t step) {
    Checkpoint c;
    c.config.data = "text.txt";
    c.config.steps = 100;
    c.config.model = {
        .vocabulary = 4, .context = 4, .layers = 1, .heads = 1, .width = 4};  // as large as the array below allows
    c.vocabulary = Alphabet::characters_of("abc\n");
    c.step = step;
    c.elapsed_seconds = 0.1;
    c.best_loss = 1.0 / 3;
    c.best_step = step;
    c.model = {array("w", DType::f32, {3, 4})};
    c.optimizer = {array("moment_1.w", DType::f32, {3, 4}), array("step", DType::i32, {})};
    c.random_state = array("random_state", DType::u32, {2});
    return c;
  }
  static void expect_equal(const Checkpoint& a, const Checkpoint& b) {
    EXPECT_EQ(a.config, b.config);
    EXPECT_EQ(a.vocabulary, b.vocabulary);
    EXPECT_EQ(a.step, b.step);
    EXPECT_EQ(a.elapsed_seconds, b.elapsed_seconds);
    EXPECT_EQ(a.best_loss, b.best_loss);
    EXPECT_EQ(a.random_state, b.random_state);
    for (const auto& [have, want] : {std::pair(&a.model, &b.model), std::pair(&a.optimizer, &b.optimizer)}) {
      ASSERT_EQ(have->size(), want->size());
      for (const nn::NamedArray& array : *want) {
        const nn::NamedArray* found = nn::find(*have, array.name);
        ASSERT_NE(found, nullptr) << array.name;
        EXPECT_EQ(*found, array);
      }
    }
  }
  static std::string bytes_of(const fs::path& p) { return read_text_file(p); }
  static void put(const fs::path& p, const std::string& bytes) {
    std::ofstream(p, std::ios::binary | std::ios::trunc) << bytes;
  }

  fs::path folder_;
};

TEST_F(CheckpointTest, GoesRoundAndKeepsThePrevious) {
  save_checkpoint(path(), sample(3));
  expect_equal(load_checkpoint(path()), sample(3));
  save_checkpoint(path(), sample(4));
  expect_equal(load_checkpoint(path()), sample(4));
  expect_equal(load_checkpoint(previous_path(path())), sample(3));
}

TEST_F(CheckpointTest, EveryTruncationAndEveryFlippedBitIsFound) {
  save_checkpoint(path(), sample(3));
  const std::string good = bytes_of(path());
  test::for_each_mutation(good, good.size(), 400, [&](const std::string& mutated, const std::string& what) {
    put(path(), mutated);
    try {
      const test::MemoryLimit limit(std::size_t{64} << 20);
      load_checkpoint(path());
      ADD_FAILURE() << what;
    } catch (const FileError& error) {
      EXPECT_NE(std::string(error.what()).find("last.safetensors"), std::string::npos) << what << ": " << error.what();
    }
  });
}

TEST_F(CheckpointTest, ADamagedOneFallsBackToThePrevious) {
  save_checkpoint(path(), sample(3));
  save_checkpoint(path(), sample(4));
  put(path(), bytes_of(path()).substr(0, 200));
  std::string warning;
  expect_equal(load_checkpoint_or_previous(path(), &warning), sample(3));
  EXPECT_NE(warning.find("last.safetensors.previous"), std::string::npos) << warning;
  EXPECT_NE(warning.find("step 3"), std::string::npos) << warning;
  fs::remove(path());
  warning.clear();
  expect_equal(load_checkpoint_or_previous(path(), &warning), sample(3));
  EXPECT_FALSE(warning.empty());
  put(previous_path(path()), "no file of ours");
  EXPECT_THROW(load_checkpoint_or_previous(path(), &warning), FileError);
}

// Its hash is right, so that it was written like this.
TEST_F(CheckpointTest, AVocabularyLargerThanTheModelsIsRefused) {
  Checkpoint c = sample(3);
  c.config.model.vocabulary = c.vocabulary.size();
  save_checkpoint(path(), c);
  expect_equal(load_checkpoint(path()), c);
  c.config.model.vocabulary = c.vocabulary.size() - 1;
  save_checkpoint(path(), c);
  try {
    load_checkpoint(path());
    ADD_FAILURE() << "no error";
  } catch (const FileError& error) {
    EXPECT_NE(std::string(error.what()).find("its vocabulary is larger than its model's"), std::string::npos)
        << error.what();
  }
}

TEST_F(CheckpointTest, ForeignFilesAreRefusedByName) {
  io::write_safetensors(path(), {}, {{"format", "pt"}});
  try {
    load_checkpoint(path());
    FAIL();
  } catch (const FileError& error) {
    EXPECT_NE(std::string(error.what()).find("its format is \"pt\""), std::string::npos) << error.what();
  }
  EXPECT_THROW(load_checkpoint(folder_ / "missing"), FileError);
}

}  // namespace
}  // namespace weft::train
