// Records what one folder's files are asked to store and tells what may be left of it after a loss of power: everything
// that fsync covered, and any part of the rest (POSIX promises no order between unsynced writes, renames and links).
#pragma once

#include <fcntl.h>

#include <filesystem>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "base/file_system.hpp"

namespace weft::test {

class RecordingFileSystem : public FileSystem {
 public:
  int open(const char* path, int flags, mode_t mode) override {
    const int fd = FileSystem::open(path, flags, mode);
    if (fd < 0) return fd;
    if (flags & O_DIRECTORY) {
      open_[fd] = {kFolder, 0};
    } else {
      const std::string name = name_of(path);
      if ((flags & O_CREAT) && !names_.contains(name)) {
        names_[name] = next_inode_++;
        events_.push_back({Event::kLink, names_[name], 0, name, {}});
      }
      if (names_.contains(name)) open_[fd] = {names_[name], 0};
    }
    return fd;
  }
  ssize_t write(int fd, const void* bytes, std::size_t count) override {
    const ssize_t put = FileSystem::write(fd, bytes, count);
    if (put > 0 && open_.contains(fd)) {
      auto& [inode, at] = open_[fd];
      events_.push_back({Event::kWrite, inode, at, {}, std::string(static_cast<const char*>(bytes), put)});
      at += static_cast<std::size_t>(put);
    }
    return put;
  }
  int fsync(int fd) override {
    const int result = FileSystem::fsync(fd);
    if (result == 0 && open_.contains(fd)) events_.push_back({Event::kSync, open_[fd].first, 0, {}, {}});
    return result;
  }
  int close(int fd) override {
    open_.erase(fd);
    return FileSystem::close(fd);
  }
  int rename(const char* from, const char* to) override {
    const int result = FileSystem::rename(from, to);
    const std::string source = name_of(from), target = name_of(to);
    if (result == 0 && names_[source] != names_[target]) {  // between links of one file rename does nothing
      names_[target] = names_[source];
      names_.erase(source);
      events_.push_back({Event::kRename, names_[target], 0, target, source});
    }
    return result;
  }
  int link(const char* from, const char* to) override {
    const int result = FileSystem::link(from, to);
    if (result == 0) {
      names_[name_of(to)] = names_[name_of(from)];
      events_.push_back({Event::kLink, names_[name_of(to)], 0, name_of(to), {}});
    }
    return result;
  }
  int unlink(const char* path) override {
    const int result = FileSystem::unlink(path);
    if (result == 0) {
      names_.erase(name_of(path));
      events_.push_back({Event::kUnlink, 0, 0, name_of(path), {}});
    }
    return result;
  }

  std::size_t event_count() const { return events_.size(); }

  /// Name -> content after power is lost after the first `count` events, with the unsynced ones kept, torn or dropped
  /// by the seed.
  std::map<std::string, std::string> after_power_loss(std::size_t count, unsigned seed) const {
    std::mt19937 random(seed);
    std::map<int, std::size_t> last_sync;
    for (std::size_t i = 0; i < count; ++i)
      if (events_[i].kind == Event::kSync) last_sync[events_[i].inode] = i;
    const auto durable = [&](int inode, std::size_t i) { return last_sync.contains(inode) && i < last_sync[inode]; };
    std::map<int, std::string> contents;
    std::map<std::string, int> names;
    for (std::size_t i = 0; i < count; ++i) {
      const Event& event = events_[i];
      if (event.kind == Event::kSync) continue;
      const bool certain = durable(event.kind == Event::kWrite ? event.inode : kFolder, i);
      if (!certain && random() % 2) continue;
      if (event.kind == Event::kWrite) {
        std::string& content = contents[event.inode];
        const std::size_t kept = certain || random() % 2 ? event.bytes.size() : random() % (event.bytes.size() + 1);
        if (content.size() < event.at + kept) content.resize(event.at + kept, '\0');
        content.replace(event.at, kept, event.bytes, 0, kept);
      } else if (event.kind == Event::kUnlink) {
        names.erase(event.name);
      } else {
        names[event.name] = event.inode;
        if (event.kind == Event::kRename) names.erase(event.bytes);
      }
    }
    std::map<std::string, std::string> result;
    for (const auto& [name, inode] : names) result[name] = contents[inode];
    return result;
  }

 private:
  static constexpr int kFolder = -1;
  struct Event {
    enum Kind { kLink, kWrite, kSync, kRename, kUnlink } kind;
    int inode;
    std::size_t at;
    std::string name;   // the name made or removed
    std::string bytes;  // of a write; the old name of a rename
  };
  static std::string name_of(const char* path) { return std::filesystem::path(path).filename().string(); }

  std::map<int, std::pair<int, std::size_t>> open_;  // descriptor -> inode, position
  std::map<std::string, int> names_;
  int next_inode_ = 1;  // 0 is what a name without a file maps to
  std::vector<Event> events_;
};

}  // namespace weft::test
