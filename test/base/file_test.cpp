// Reading, mapping, atomic writing and appending, with faults at every system call, lost power and killed writers.
#include "base/file.hpp"
#include "base/message_of.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <random>
#include <set>
#include <thread>

#include "base/cache_folder.hpp"
#include "base/faulty_file_system.hpp"
#include "base/power_loss.hpp"
#include "base/temporary_folder.hpp"
#include "weft/error.hpp"

namespace weft {
namespace {

using test::FaultyFileSystem;
using test::message_of;
using test::TemporaryFolder;

std::string error_of(const std::function<void()>& call) { return message_of<FileError>(call); }

#define EXPECT_HAS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

TEST(File, ReadsWhatWasWritten) {
  const TemporaryFolder folder;
  const std::string text("line\n\0binary\xff", 13);
  write_file_atomically(folder / "a", text);
  EXPECT_EQ(read_text_file(folder / "a"), text);
  EXPECT_EQ(read_file(folder / "a").size(), text.size());
  const MappedFile mapped(folder / "a");
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(mapped.bytes().data()), mapped.bytes().size()), text);
}

TEST(File, EmptyFileReadsAndMaps) {
  const TemporaryFolder folder;
  write_file_atomically(folder / "empty", "");
  EXPECT_EQ(read_text_file(folder / "empty"), "");
  EXPECT_TRUE(MappedFile(folder / "empty").bytes().empty());
}

TEST(File, MappingOutlivesCopiesAndReplacement) {
  const TemporaryFolder folder;
  write_file_atomically(folder / "a", "old");
  auto first = std::make_unique<MappedFile>(folder / "a");
  const MappedFile second = *first;
  first.reset();
  write_file_atomically(folder / "a", "new and longer");
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(second.bytes().data()), 3), "old");
}

TEST(File, LargeWritesKeepTheirOrder) {
  const TemporaryFolder folder;
  std::string expected;
  write_file_atomically(folder / "a", [&](AtomicFile& file) {
    for (int i = 0; i < 40; ++i) {
      const std::string piece(i % 7 == 0 ? (3u << 19) : 100 + i, static_cast<char>('a' + i % 26));
      file.write(piece);
      expected += piece;
    }
    EXPECT_EQ(file.bytes_written(), expected.size());
  });
  EXPECT_TRUE(read_text_file(folder / "a") == expected);
}

TEST(File, ErrorsNameThePathTheFactAndTheCure) {
  const TemporaryFolder folder;
  const auto file = folder.put("file", "12345");
  ::mkfifo((folder / "pipe").c_str(), 0600);
  EXPECT_HAS(error_of([&] { read_file(folder / "none"); }), "none': there is no such file or folder; check the path");
  EXPECT_HAS(error_of([&] { read_file(file / "x"); }), "a part of the path is a file");
  EXPECT_HAS(error_of([&] { read_file(folder.path()); }), "it is a folder; name a file");
  EXPECT_HAS(error_of([&] { read_file(folder / "pipe"); }), "it is not a regular file");
  EXPECT_HAS(error_of([&] { MappedFile(folder.path()); }), "it is a folder; name a file");
  EXPECT_HAS(error_of([&] { read_file(file, 4); }), "holds 5 bytes, over the limit of 4");
  EXPECT_HAS(error_of([&] { read_text_file("/proc/self/status"); }), "the system does not tell its size");
  EXPECT_HAS(error_of([&] { write_file_atomically(folder / "no" / "a", ""); }),
             "does not exist; create it first (mkdir -p");
  EXPECT_HAS(error_of([&] { write_file_atomically(file / "a", ""); }), "a part of the path is a file");
  EXPECT_HAS(error_of([&] { write_file_atomically(folder.path(), ""); }), "it exists and is a folder");
  EXPECT_HAS(error_of([&] { write_file_atomically(folder / "pipe", ""); }), "it exists and is not a regular file");
  EXPECT_HAS(error_of([&] { write_file_atomically(folder / "", ""); }), "it names no file");
  EXPECT_HAS(error_of([&] { write_file_atomically("/dev/null", ""); }), "not a regular file");
  EXPECT_HAS(error_of([&] { write_file_atomically(folder / std::string(300, 'x'), ""); }), "the name is too long");
  EXPECT_HAS(error_of([&] { find_leftovers(folder / "none"); }), "cannot list");
  EXPECT_HAS(error_of([&] { append_line(folder / "no" / "log", "x"); }), "cannot append to");
  EXPECT_HAS(error_of([&] { append_line(folder.path(), "x"); }), "it is a folder");
  EXPECT_HAS(message_of<UsageError>([&] { append_line(folder / "log", "a\nb"); }), "holds a newline");
}

/// Fails every call of one kind.
struct Refusing : FileSystem {
  int open_error = 0, write_error = 0, link_error = 0, fsync_folder_error = 0;
  std::uint64_t free = std::uint64_t{1} << 40;
  std::set<int> folders;
  int open(const char* path, int flags, mode_t mode) override {
    if (open_error && (flags & O_CREAT)) return errno = open_error, -1;
    const int fd = FileSystem::open(path, flags, mode);
    folders.erase(fd);  // numbers are used again
    if (flags & O_DIRECTORY) folders.insert(fd);
    return fd;
  }
  ssize_t write(int fd, const void* bytes, std::size_t count) override {
    return write_error ? (errno = write_error, -1) : FileSystem::write(fd, bytes, count);
  }
  int link(const char* from, const char* to) override {
    return link_error ? (errno = link_error, -1) : FileSystem::link(from, to);
  }
  int fsync(int fd) override {
    return fsync_folder_error && folders.contains(fd) ? (errno = fsync_folder_error, -1) : FileSystem::fsync(fd);
  }
  int statvfs(const char* path, struct ::statvfs* result) override {
    if (FileSystem::statvfs(path, result) != 0) return -1;
    result->f_frsize = 1;
    result->f_bavail = free;
    return 0;
  }
};

TEST(File, UnwritableFolderIsReportedBeforeAnyWork) {
  const TemporaryFolder folder;
  Refusing system;
  const ScopedFileSystem use(system);
  bool called = false;
  for (const auto& [error, text] : {std::pair{EACCES, "permission denied; change the permissions"},
                                    std::pair{EROFS, "the file system is read-only"},
                                    std::pair{EMFILE, "too many files are open; raise the limit"}}) {
    system.open_error = error;
    EXPECT_HAS(error_of([&] { write_file_atomically(folder / "a", [&](AtomicFile&) { called = true; }); }), text);
  }
  EXPECT_FALSE(called);
}

TEST(File, ShortSpaceIsReportedWithBothNumbersBeforeTheFirstByte) {
  const TemporaryFolder folder;
  Refusing system;
  system.free = 999;
  const ScopedFileSystem use(system);
  const std::string message = error_of([&] { write_file_atomically(folder / "a", std::string(1000, 'x')); });
  EXPECT_HAS(message, (folder / "a").string());
  EXPECT_HAS(message, "1000 bytes are needed and 999 are free");
  EXPECT_HAS(message, "free some space or choose another place");
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  write_file_atomically(folder / "a", std::string(999, 'x'));
}

TEST(File, FullDiskMidwayNamesNeededAndFreeBytes) {
  const TemporaryFolder folder;
  Refusing system;
  const ScopedFileSystem use(system);
  system.write_error = ENOSPC;
  EXPECT_HAS(error_of([&] { write_file_atomically(folder / "a", "12345"); }),
             "the disk is full: 5 bytes are needed and 1099511627776 are free");
  system.write_error = EDQUOT;
  EXPECT_HAS(error_of([&] { write_file_atomically(folder / "a", "12345"); }),
             "the disk quota is used up: 5 bytes are needed");
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(File, UnflushableFolderSaysThatTheFileIsThere) {
  const TemporaryFolder folder;
  Refusing system;
  const ScopedFileSystem use(system);
  system.fsync_folder_error = EIO;
  EXPECT_HAS(error_of([&] { write_file_atomically(folder / "a", "new"); }),
             "is written, but may not survive a loss of power");
  EXPECT_EQ(read_text_file(folder / "a"), "new");
  system.fsync_folder_error = EINVAL;  // file systems that know no fsync on folders
  write_file_atomically(folder / "a", "newer");
  EXPECT_EQ(read_text_file(folder / "a"), "newer");
}

TEST(File, WriterThatThrowsLeavesTheOldFileAndNoLeftover) {
  const TemporaryFolder folder;
  write_file_atomically(folder / "a", "old");
  EXPECT_THROW(write_file_atomically(folder / "a",
                                     [](AtomicFile& file) {
                                       file.write("half");
                                       throw std::runtime_error("stop");
                                     }),
               std::runtime_error);
  EXPECT_EQ(read_text_file(folder / "a"), "old");
  EXPECT_TRUE(find_leftovers(folder.path()).empty());
}

TEST(File, CommittedFileTakesNoMore) {
  const TemporaryFolder folder;
  AtomicFile file(folder / "a");
  file.commit();
  EXPECT_HAS(message_of<UsageError>([&] { file.write("x"); }), "after it was committed");
  EXPECT_HAS(message_of<UsageError>([&] { file.commit(); }), "committed twice");
}

TEST(File, PreviousVersionIsKept) {
  for (const int link_error : {0, EPERM, EOPNOTSUPP}) {
    const TemporaryFolder folder;
    Refusing system;
    system.link_error = link_error;
    const ScopedFileSystem use(system);
    for (const char* version : {"1", "2", "3"}) write_file_atomically(folder / "a", version, {.keep_previous = true});
    EXPECT_EQ(read_text_file(folder / "a"), "3");
    EXPECT_EQ(read_text_file(previous_path(folder / "a")), "2");
    EXPECT_TRUE(find_leftovers(folder.path()).empty());
  }
}

TEST(File, SaveAfterOneThatDiedBehindKeepingThePreviousVersion) {
  const TemporaryFolder folder;
  write_file_atomically(folder / "a", "1");
  std::filesystem::create_hard_link(folder / "a", previous_path(folder / "a"));
  write_file_atomically(folder / "a", "2", {.keep_previous = true});
  EXPECT_EQ(read_text_file(folder / "a"), "2");
  EXPECT_EQ(read_text_file(previous_path(folder / "a")), "1");
  EXPECT_TRUE(find_leftovers(folder.path()).empty());
}

TEST(File, LeftoversAreListedAndNothingElse) {
  const TemporaryFolder folder;
  folder.put("b.tmp-0123456789abcdef", "");
  folder.put("a.tmp-ffffffffffffffff", "");
  for (const char* other : {"a.tmp-", "a.tmp-0123456789abcdeg", "a.tmp-0123456789ABCDEF", "a", "0123456789abcdef"})
    folder.put(other, "");
  const std::vector<std::filesystem::path> expected = {folder / "a.tmp-ffffffffffffffff",
                                                       folder / "b.tmp-0123456789abcdef"};
  EXPECT_EQ(find_leftovers(folder.path()), expected);
}

// After every failure the old file is there whole, and so is its previous version or a newer one; when the call reports
// success, so is the new one.
TEST(FileFaults, EveryCallOfASaveMayFail) {
  const std::string old = "old content", older = "older", fresh(100'000, 'n');
  int cases = 0;
  for (const bool keep : {false, true})
    for (const bool hard_links : {true, false})
      for (const test::Fault& fault : test::kFaults)
        for (int n = 1;; ++n) {
          const TemporaryFolder folder;
          const auto path = folder.put("a", old);
          folder.put("a.previous", older);
          FaultyFileSystem system(n, fault, hard_links);
          std::string message;
          {
            const ScopedFileSystem use(system);
            message = error_of([&] { write_file_atomically(path, fresh, {.keep_previous = keep}); });
          }
          SCOPED_TRACE(testing::Message() << fault.name << " at call " << n << ", keep " << keep << ", links "
                                          << hard_links << ": " << message);
          ++cases;
          const auto content = [](const std::filesystem::path& p) {
            return std::filesystem::exists(p) ? read_text_file(p) : std::string("(missing)");
          };
          const std::string now = content(path), previous = content(previous_path(path));
          ASSERT_FALSE(message.starts_with("another error"));
          if (message == "no error") {
            ASSERT_EQ(now, fresh);
            ASSERT_EQ(previous, keep ? old : older);
          } else if (now == fresh) {
            ASSERT_NE(message.find("may not survive"), std::string::npos);
            ASSERT_EQ(previous, keep ? old : older);
          } else if (now ==
                     "(missing)") {  // only where a rename must stand in for the hard link and nothing works any more
            ASSERT_TRUE(keep && !hard_links && fault.lasting);
            ASSERT_EQ(previous, old);
          } else {
            ASSERT_EQ(now, old);
          }
          if (fault.error == 0) {
            ASSERT_EQ(message, "no error");
          }
          if (!fault.lasting && message != "no error") {
            ASSERT_TRUE(find_leftovers(folder.path()).empty());
          }
          if (!system.failed()) break;
          ASSERT_LT(n, 100);
        }
  EXPECT_GT(cases, 300);
}

TEST(FileFaults, EveryCallOfAReadMayFail) {
  const TemporaryFolder folder;
  const auto path = folder.put("a", std::string(100'000, 'x'));
  for (const bool map : {false, true})
    for (const test::Fault& fault : test::kFaults)
      for (int n = 1;; ++n) {
        FaultyFileSystem system(n, fault);
        const ScopedFileSystem use(system);
        std::size_t size = 0;
        const std::string message =
            error_of([&] { size = map ? MappedFile(path).bytes().size() : read_file(path).size(); });
        SCOPED_TRACE(testing::Message() << fault.name << " at call " << n << ": " << message);
        if (message == "no error") {
          ASSERT_EQ(size, 100'000u);
        } else {
          ASSERT_NE(message.find(path.string()), std::string::npos);
        }
        if (!system.failed()) break;
        ASSERT_LT(n, 200'000);
      }
}

TEST(FileFaults, EveryCallOfAnAppendMayFail) {
  for (const test::Fault& fault : test::kFaults)
    for (int n = 1;; ++n) {
      const TemporaryFolder folder;
      const auto path = folder.put("log", "one\n");
      FaultyFileSystem system(n, fault);
      std::string message;
      {
        const ScopedFileSystem use(system);
        message = error_of([&] { append_line(path, "two"); });
      }
      SCOPED_TRACE(testing::Message() << fault.name << " at call " << n << ": " << message);
      ASSERT_EQ(read_text_file(path), message == "no error" ? "one\ntwo\n" : "one\n");
      if (!system.failed()) break;
      ASSERT_LT(n, 100);
    }
}

/// Takes half a line and then no more, as a disk that fills up.
struct HalfLine : FileSystem {
  int writes = 0;
  ssize_t write(int fd, const void* bytes, std::size_t count) override {
    return ++writes == 1 ? FileSystem::write(fd, bytes, count / 2) : (errno = ENOSPC, -1);
  }
};

TEST(FileFaults, TornLineIsTakenBack) {
  const TemporaryFolder folder;
  const auto path = folder.put("log", "one\n");
  {
    HalfLine system;
    const ScopedFileSystem use(system);
    EXPECT_HAS(error_of([&] { append_line(path, "a long second line"); }), "no space is left on the disk");
  }
  EXPECT_EQ(read_text_file(path), "one\n");
}

TEST(File, AppendedLinesFollowEachOther) {
  const TemporaryFolder folder;
  {
    LineLog log(folder / "log");
    log.append("{\"step\": 1}");
    EXPECT_EQ(read_text_file(folder / "log"), "{\"step\": 1}\n");  // visible at once
    append_line(folder / "log", "other process");
    log.append("");
  }
  EXPECT_EQ(read_text_file(folder / "log"), "{\"step\": 1}\nother process\n\n");
  folder.put("torn", "whole\nto");
  append_line(folder / "torn", "next");
  EXPECT_EQ(read_text_file(folder / "torn"), "whole\nto\nnext\n");
}

std::string version_text(int version) { return std::string(50'000, static_cast<char>('A' + version)); }

TEST(PowerLoss, SavedFileIsAlwaysWhole) {
  constexpr int kVersions = 4, kSeeds = 60;
  for (const bool keep : {false, true}) {
    const TemporaryFolder folder;
    test::RecordingFileSystem recorder;
    std::vector<std::size_t> committed;  // events when the save of a version had returned
    {
      const ScopedFileSystem use(recorder);
      for (int version = 0; version < kVersions; ++version) {
        write_file_atomically(folder / "a", version_text(version), {.keep_previous = keep});
        committed.push_back(recorder.event_count());
      }
    }
    for (std::size_t count = committed[0]; count <= committed.back(); ++count)
      for (unsigned seed = 0; seed < kSeeds; ++seed) {
        auto files = recorder.after_power_loss(count, seed);
        int saved = 0;
        while (saved + 1 < kVersions && committed[saved + 1] <= count) ++saved;
        SCOPED_TRACE(testing::Message() << "event " << count << " seed " << seed << " saved version " << saved);
        ASSERT_TRUE(files.contains("a"));
        ASSERT_TRUE(files["a"] == version_text(saved) ||
                    (saved + 1 < kVersions && files["a"] == version_text(saved + 1)));
        if (keep && saved > 0) {
          ASSERT_TRUE(files.contains("a.previous"));
          ASSERT_TRUE(files["a.previous"] == version_text(saved - 1) || files["a.previous"] == version_text(saved));
        }
      }
  }
}

// The simulation must be able to catch a bad writer: one without fsync loses its file.
TEST(PowerLoss, WriterWithoutFsyncIsCaught) {
  const TemporaryFolder folder;
  test::RecordingFileSystem recorder;
  write_file_atomically(folder / "a", "x");
  for (int version = 0; version < 2; ++version) {
    const auto temporary = folder / "t";
    const int fd = recorder.open(temporary.c_str(), O_WRONLY | O_CREAT, 0600);
    const std::string text = version_text(version);
    ASSERT_EQ(recorder.write(fd, text.data(), text.size()), static_cast<ssize_t>(text.size()));
    recorder.close(fd);
    recorder.rename(temporary.c_str(), (folder / "a").c_str());
  }
  int torn = 0;
  for (unsigned seed = 0; seed < 60; ++seed) {
    auto files = recorder.after_power_loss(recorder.event_count(), seed);
    torn += files.contains("a") && files["a"] != version_text(0) && files["a"] != version_text(1);
  }
  EXPECT_GT(torn, 0);
}

TEST(KilledWriter, LeavesAWholeFile) {
  const TemporaryFolder folder;
  const auto path = folder / "a";
  write_file_atomically(path, version_text(0));
  std::mt19937 random(1);
  int last_seen = 0;
  for (int kill = 0; kill < 30; ++kill) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      for (int version = 0;; version = (version + 1) % 26)
        write_file_atomically(path, version_text(version), {.keep_previous = true});
    }
    std::this_thread::sleep_for(std::chrono::microseconds(500 + random() % 8000));
    ::kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the writer ended by itself";
    for (const auto& name : {path, previous_path(path)}) {
      if (!std::filesystem::exists(name)) continue;
      const std::string text = read_text_file(name);
      ASSERT_EQ(text.size(), 50'000u);
      ASSERT_EQ(text, version_text(text[0] - 'A'));
    }
    last_seen += std::filesystem::exists(previous_path(path));
    ASSERT_TRUE(std::filesystem::exists(path));
  }
  EXPECT_GT(last_seen, 0) << "no writer lived long enough to save once";
  for (const auto& leftover : find_leftovers(folder.path())) std::filesystem::remove(leftover);
  write_file_atomically(path, "after");
  EXPECT_EQ(read_text_file(path), "after");
}

TEST(AtomicFile, AReplacedFileHandsItsPermissionsDown) {
  const TemporaryFolder folder;
  const auto mode_of = [&](const char* name) {
    return static_cast<unsigned>(std::filesystem::status(folder / name).permissions());
  };
  for (const unsigned mode : {0600u, 0640u, 0755u, 0666u}) {
    write_file_atomically(folder / "a", "x");
    ASSERT_EQ(::chmod((folder / "a").c_str(), mode), 0);
    write_file_atomically(folder / "a", "y");
    EXPECT_EQ(mode_of("a"), mode);
    write_file_atomically(folder / "a", "z", {.keep_previous = true});
    EXPECT_EQ(mode_of("a"), mode);
    EXPECT_EQ(mode_of("a.previous"), mode);
  }
  write_file_atomically(folder / "b", "x", {.mode = 0600});
  EXPECT_EQ(mode_of("b"), 0600u);
}

TEST(MappedFile, TrustsOwnFilesOnly) {
  const TemporaryFolder folder;
  write_file_atomically(folder / "a", "x", {.mode = 0600});
  EXPECT_EQ(MappedFile(folder / "a", MappedFile::Trust::own).bytes().size(), 1u);
  for (const unsigned mode : {0620u, 0602u}) {
    ASSERT_EQ(::chmod((folder / "a").c_str(), mode), 0);
    EXPECT_HAS(error_of([&] { MappedFile(folder / "a", MappedFile::Trust::own); }), "may write to it");
    EXPECT_NO_THROW(MappedFile(folder / "a"));
  }
  ASSERT_EQ(::chmod((folder / "a").c_str(), 0600), 0);
  std::filesystem::create_symlink(folder / "a", folder / "link");
  EXPECT_NE(error_of([&] { MappedFile(folder / "link", MappedFile::Trust::own); }), "no error");
  EXPECT_NO_THROW(MappedFile(folder / "link"));
}

TEST(CacheFolder, BecomesPrivate) {
  const TemporaryFolder folder;
  EXPECT_TRUE(make_private_folder(folder / "a/b/c"));
  const auto mode = [&] { return static_cast<unsigned>(std::filesystem::status(folder / "a/b/c").permissions()); };
  EXPECT_EQ(mode(), 0700u);
  ASSERT_EQ(::chmod((folder / "a/b/c").c_str(), 0777), 0);
  EXPECT_TRUE(make_private_folder(folder / "a/b/c"));
  EXPECT_EQ(mode(), 0700u);
  write_file_atomically(folder / "file", "x");
  EXPECT_FALSE(make_private_folder(folder / "file"));
  EXPECT_FALSE(make_private_folder("/proc/nowhere"));
  if (::geteuid() != 0) {
    EXPECT_FALSE(make_private_folder("/usr"));
  }
}

}  // namespace
}  // namespace weft
