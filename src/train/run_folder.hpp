// The folder of a run, and its files.
#pragma once

#include <filesystem>

#include "weft/train/checkpoint.hpp"
#include "weft/train/config.hpp"

namespace weft::train {

struct RunFolder {
  std::filesystem::path path;
  std::filesystem::path last() const { return path / kLastCheckpoint; }
  std::filesystem::path best() const { return path / kBestCheckpoint; }
  std::filesystem::path config() const { return path / "config.json"; }
  std::filesystem::path metrics() const { return path / "metrics.jsonl"; }
  std::filesystem::path samples() const { return path / "samples.txt"; }
  std::filesystem::path curve() const { return path / "loss.svg"; }
  std::filesystem::path profile() const { return path / "profile.json"; }
  std::filesystem::path trace() const { return path / "trace.json"; }

  bool has_checkpoint() const;
  bool has_run() const;
};

/// Prevents other processes from training in a folder while it exists; the lock ends with the process. File systems without
/// locks are not guarded. Errors: UsageError if another run holds it.
class FolderLock {
 public:
  explicit FolderLock(const std::filesystem::path& folder);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int descriptor_ = -1;
};

/// The folder of the run, made if necessary. Errors: UsageError, FileError, before any work is done.
RunFolder open_run_folder(const TrainRequest& request);

}  // namespace weft::train
