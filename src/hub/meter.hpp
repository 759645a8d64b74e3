// How fast files come, and whether the disk has room for them.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "weft/hub.hpp"

namespace weft::hub {

/// 0 if it cannot be read.
std::uint64_t size_of_file(const std::filesystem::path& path);
/// Of the disk that holds a folder, which need not exist yet. 0 if the system does not tell.
std::uint64_t free_on_disk(std::filesystem::path place);
/// FileError if the disk of a folder has not that much room; `variable` names another folder.
void check_room(const std::filesystem::path& folder, std::uint64_t needed, std::string_view variable);

/// Bytes per second over the last seconds, and calls of `on_progress` that are not too many.
class Meter {
 public:
  Meter(const FetchOptions& options, std::uint64_t total) : options_(options), total_(total) {}

  void show(const std::string& file, std::uint64_t done) {
    if (!options_.on_progress) return;
    const auto now = std::chrono::steady_clock::now();
    const double seconds = std::chrono::duration<double>(now - last_).count();
    if (started_ && seconds < 0.2 && done < total_) return;
    if (started_ && seconds > 0 && done > done_) {
      const double rate = static_cast<double>(done - done_) / seconds;
      const double weight = std::min(1.0, seconds / 2);
      rate_ = rate_ > 0 ? rate_ + weight * (rate - rate_) : rate;
    }
    started_ = true;
    last_ = now;
    done_ = done;
    options_.on_progress({.file = file, .done = done, .total = std::max(total_, done), .bytes_per_second = rate_});
  }

 private:
  const FetchOptions& options_;
  std::uint64_t total_, done_ = 0;
  bool started_ = false;
  double rate_ = 0;
  std::chrono::steady_clock::time_point last_;
};

}  // namespace weft::hub
