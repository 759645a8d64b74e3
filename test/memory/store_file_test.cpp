// Memories whose changes are appended: what a crash, damage and other programs leave of them.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "base/faulty_file_system.hpp"
#include "base/file.hpp"
#include "base/message_of.hpp"
#include "base/power_loss.hpp"
#include "base/temporary_folder.hpp"
#include "memory/journal.hpp"
#include "weft/error.hpp"
#include "weft/memory.hpp"
#include "weft/metatensor.hpp"

namespace weft::memory::store_file_test {
namespace {

namespace fs = std::filesystem;
using test::message_of;

const std::vector<float> kEast = {1, 0}, kNorth = {0, 1}, kBetween = {3, 4};

/// What a store holds, to compare with.
std::string shown(const Store& store) {
  std::string text;
  for (const Entry& entry : store.entries()) {
    text += entry.id + ":" + entry.name_space + ":" + entry.text + ":" + entry.metadata.to_json();
    const std::vector<float> query = kBetween;
    for (const Match& match : store.search(query, {.top_k = 100}))
      if (match.entry.id == entry.id) text += ":" + std::to_string(match.similarity);
    text += "\n";
  }
  return text;
}
std::string loaded(const fs::path& path) { return shown(Store::load(path)); }
void put_file(const fs::path& path, std::string_view bytes) { std::ofstream(path, std::ios::binary) << bytes; }

struct MemoryFile : testing::Test {
  test::TemporaryFolder folder;
  const fs::path path = folder.path() / "m.metatensor", journal = journal_path(path);

  /// Three commits; what the file holds after each, the empty one first.
  std::vector<std::string> fill() const {
    StoreFile file = StoreFile::open(path, 2);
    std::vector<std::string> states = {shown(file.store())};
    const auto commit = [&] {
      file.commit();
      states.push_back(shown(file.store()));
    };
    file.add({.id = "a", .text = "east"}, kEast);
    commit();
    file.add({.id = "b", .name_space = "far", .text = "north \xc3\xa4", .metadata = Value::object({{"n", 1}})}, kNorth);
    file.add({.id = "c", .text = "between"}, kBetween);
    EXPECT_TRUE(file.remove("a"));
    commit();
    file.add({.id = "d", .text = "east again"}, kEast);
    EXPECT_TRUE(file.remove("c"));
    EXPECT_FALSE(file.remove("c"));
    commit();
    return states;
  }
};

TEST_F(MemoryFile, ChangesAreAppendedAndReadAgain) {
  const std::vector<std::string> states = fill();
  EXPECT_EQ(states.back(), "d::east again:{}:0.600000\nb:far:north \xc3\xa4:{\"n\":1}:0.800000\n");
  EXPECT_EQ(loaded(path), states.back());
  const std::string before = read_text_file(path);
  {
    StoreFile again = StoreFile::open(path);
    EXPECT_EQ(shown(again.store()), states.back());
    const std::uint64_t bytes = again.journal_bytes();
    const std::string id = again.add({.text = "more"}, kNorth);
    again.commit();
    EXPECT_GT(again.journal_bytes(), bytes);
    EXPECT_LT(again.journal_bytes(), bytes + 200);
    EXPECT_NE(loaded(path).find(id), std::string::npos);
    again.add({.id = "lost", .text = "without a commit"}, kEast);
  }
  EXPECT_EQ(loaded(path).find("lost"), std::string::npos);
  EXPECT_EQ(read_text_file(path), before);  // the file itself was not written
}

TEST_F(MemoryFile, ACutJournalHasWholeCommits) {
  const std::vector<std::string> states = fill();
  const std::string whole = read_text_file(journal);
  std::map<std::string, int> seen;
  for (std::size_t left = 0; left <= whole.size(); ++left) {
    put_file(journal, whole.substr(0, left));
    const std::string state = loaded(path);
    ASSERT_NE(std::find(states.begin(), states.end(), state), states.end()) << left;
    ++seen[state];
  }
  EXPECT_EQ(seen.size(), states.size());
  // What follows is written behind the last whole commit.
  put_file(journal, whole.substr(0, whole.size() - 1));
  {
    StoreFile file = StoreFile::open(path);
    EXPECT_EQ(shown(file.store()), states[2]);
    file.add({.id = "e", .text = "after the crash"}, kNorth);
    file.commit();
    EXPECT_EQ(loaded(path), shown(file.store()));
  }
}

TEST_F(MemoryFile, DamageBeforeWholeCommitsIsAnError) {
  const std::vector<std::string> states = fill();
  const std::string whole = read_text_file(journal);
  int refused = 0, earlier = 0;
  for (std::size_t bit = 8 * 32; bit < 8 * whole.size(); bit += 5) {
    std::string damaged = whole;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));
    put_file(journal, damaged);
    try {
      const std::string state = loaded(path);
      EXPECT_EQ(state, states[2]) << bit;  // the last commit cannot be told from a torn one
      ++earlier;
    } catch (const FileError& error) {
      EXPECT_NE(std::string(error.what()).find("whole ones follow"), std::string::npos);
      ++refused;
    }
  }
  EXPECT_GT(refused, 100);
  EXPECT_GT(earlier, 100);
}

TEST_F(MemoryFile, RecordsThatAreNoChangesAreErrors) {
  fill();
  const std::string whole = read_text_file(journal);
  const std::vector<float> row = {1, 0};
  const auto with = [&](const Value::Array& changes, std::span<const float> rows) {
    const std::vector<std::byte> record = journal_record(changes, rows);
    put_file(journal, whole + std::string(reinterpret_cast<const char*>(record.data()), record.size()));
    return message_of<FileError>([&] { loaded(path); });
  };
  const Value entry = Value::object({{"id", "z"}, {"namespace", ""}, {"text", ""}, {"metadata", Value::Object()}});
  EXPECT_EQ(with({entry}, row), "no error");
  EXPECT_NE(with({entry}, {}).find("an entry has no row"), std::string::npos);
  EXPECT_NE(with({}, row).find("rows without entries"), std::string::npos);
  EXPECT_NE(with({entry, entry}, std::vector<float>{1, 0, 0, 1}).find("\"z\" is taken"), std::string::npos);
  EXPECT_NE(with({Value::object({{"remove", "nobody"}})}, {}).find("removes nobody"), std::string::npos);
  EXPECT_NE(with({Value("text")}, {}).find("damaged at byte"), std::string::npos);
  EXPECT_NE(with({entry}, std::vector<float>{0, 0}).find("is zero"), std::string::npos);
}

TEST_F(MemoryFile, SurvivesALossOfPower) {
  test::RecordingFileSystem recorder;
  std::vector<std::string> states;
  std::vector<std::size_t> events;  // after the commit of each state
  {
    const test::TemporaryFolder place;
    const ScopedFileSystem scope(recorder);
    StoreFile file = StoreFile::open(place.path() / "m.metatensor", 2);
    states.push_back(shown(file.store()));
    events.push_back(recorder.event_count());
    for (const char* id : {"a", "b", "c"}) {
      file.add({.id = id, .text = std::string(300, *id)}, kNorth);
      if (*id == 'c') file.remove("a");
      file.commit();
      states.push_back(shown(file.store()));
      events.push_back(recorder.event_count());
    }
  }
  std::size_t lost = 0;
  for (std::size_t count = events[0]; count <= events.back(); ++count)
    for (unsigned seed = 0; seed < 40; ++seed) {
      const test::TemporaryFolder after;
      for (const auto& [name, content] : recorder.after_power_loss(count, seed)) put_file(after.path() / name, content);
      const std::string state = loaded(after.path() / "m.metatensor");
      const auto at = static_cast<std::size_t>(std::find(states.begin(), states.end(), state) - states.begin());
      ASSERT_LT(at, states.size()) << count << " " << seed;
      // What was committed before the power went is there.
      const auto least =
          static_cast<std::size_t>(std::upper_bound(events.begin(), events.end(), count) - events.begin()) - 1;
      EXPECT_GE(at, least) << count << " " << seed;
      lost += at == least ? 1 : 0;
    }
  EXPECT_GT(lost, 0u);
}

TEST_F(MemoryFile, AFailedCommitLeavesTheOldStateAndCanBeTriedAgain) {
  for (const test::Fault& fault : test::kFaults)
    for (int call = 1; call < 20; ++call) {
      const test::TemporaryFolder place;
      const fs::path file_path = place.path() / "m.metatensor";
      StoreFile file = StoreFile::open(file_path, 2);
      file.add({.id = "a", .text = "first"}, kEast);
      file.commit();
      const std::string before = loaded(file_path);
      file.add({.id = "b", .text = "second"}, kNorth);
      bool failed = false, reached = false;
      {
        test::FaultyFileSystem faulty(call, fault);
        const ScopedFileSystem scope(faulty);
        try {
          file.commit();
        } catch (const FileError&) {
          failed = true;
        }
        reached = faulty.failed();
      }
      if (!reached) break;
      // Where even the cut fails, what is left may be the whole commit.
      if (failed && fault.lasting) continue;
      if (failed) {
        EXPECT_EQ(loaded(file_path), before) << fault.name << " " << call;
        file.commit();
      }
      EXPECT_EQ(loaded(file_path), shown(file.store())) << fault.name << " " << call;
    }
}

TEST_F(MemoryFile, AGrownJournalIsWorkedIn) {
  StoreFile file = StoreFile::open(path, 2);
  const std::string text(20'000, 'x');
  std::uint64_t largest = 0;
  int shrunk = 0;
  for (int i = 0; i < 150; ++i) {
    const std::uint64_t before = file.journal_bytes();
    file.add({.id = std::to_string(i), .text = text}, kEast);
    file.commit();
    largest = std::max(largest, file.journal_bytes());
    shrunk += file.journal_bytes() < before ? 1 : 0;
  }
  EXPECT_GE(shrunk, 1);
  EXPECT_LE(shrunk, 3);  // the file grows, and so does the journal that it waits for
  EXPECT_GT(largest, 1'000'000u);
  EXPECT_EQ(Store::load(path).size(), 150u);
  const std::string old = read_text_file(journal);
  file.compact();
  EXPECT_EQ(file.journal_bytes(), 32u);
  const std::string state = loaded(path);
  put_file(journal, old);  // as after a crash between the two: it is of an older file
  EXPECT_EQ(loaded(path), state);
}

TEST_F(MemoryFile, OneProgramAppendsAtATime) {
  fill();
  StoreFile file = StoreFile::open(path);
  EXPECT_NE(message_of<FileError>([&] { StoreFile::open(path); }).find("another program does"), std::string::npos);
  Store::load(path);  // readers may
  // Replaced meanwhile: nothing of this one is written.
  Store other(2);
  other.add({.id = "other", .text = "other"}, kEast);
  other.save(path);
  EXPECT_FALSE(fs::exists(journal));
  file.add({.id = "late", .text = "late"}, kEast);
  EXPECT_NE(message_of<FileError>([&] { file.commit(); }).find("has replaced the memory"), std::string::npos);
  EXPECT_NE(message_of<FileError>([&] { file.compact(); }).find("has replaced the memory"), std::string::npos);
  EXPECT_EQ(loaded(path), shown(other));
}

TEST_F(MemoryFile, OldFilesAndWrongOnes) {
  EXPECT_NE(message_of<FileError>([&] { StoreFile::open(path); }).find("give the width"), std::string::npos);
  // A file of before there were journals.
  const std::vector<float> rows = {0, 1};
  metatensor::Writer()
      .tensor("embeddings", DType::f32, {1, 2}, [&](const auto& put) { put(std::as_bytes(std::span(rows))); })
      .blob("entries", std::vector<std::string>{R"({"id": "old", "namespace": "", "text": "old", "metadata": {}})"})
      .metadata("weft.memory", "1")
      .save(path);
  put_file(journal, "whatever this is");
  EXPECT_EQ(Store::load(path).size(), 1u);
  EXPECT_THROW(StoreFile::open(path, 3), UsageError);
  {
    StoreFile file = StoreFile::open(path, 2);
    file.add({.id = "new", .text = "new"}, kEast);
    file.commit();
  }
  const Store again = Store::load(path);
  EXPECT_TRUE(again.find("old") && again.find("new"));
}

}  // namespace
}  // namespace weft::memory::store_file_test
