#include "train/run_folder.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>

#include "base/file.hpp"
#include "weft/error.hpp"

namespace weft::train {
namespace {

namespace fs = std::filesystem;

bool stands(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

}  // namespace

bool RunFolder::has_checkpoint() const { return stands(last()) || stands(previous_path(last())); }
bool RunFolder::has_run() const { return has_checkpoint() || stands(config()); }

FolderLock::FolderLock(const fs::path& folder)
    : descriptor_(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  if (descriptor_ < 0 || ::flock(descriptor_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return;
  ::close(descriptor_);
  throw UsageError(fmt::format("--out {}: another process is training there; wait for its end, or name another folder",
                               folder.string()));
}
FolderLock::~FolderLock() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

RunFolder open_run_folder(const TrainRequest& request) {
  if (request.out.empty()) throw UsageError("no place for the run: give --out FOLDER");
  const RunFolder folder{request.out};
  if (stands(folder.path) && !fs::is_directory(folder.path))
    throw UsageError(fmt::format("--out {}: is a file; name a folder", folder.path.string()));
  if (request.resume && !folder.has_run())
    throw UsageError(
        fmt::format("--resume: there is no run in {}; leave --resume out to begin one", folder.path.string()));
  if (!request.resume && folder.has_run())
    throw UsageError(fmt::format("--out {}: holds a run already; add --resume to go on with it, or name another folder",
                                 folder.path.string()));
  std::error_code error;
  fs::create_directories(folder.path, error);
  if (error)
    throw FileError(fmt::format("--out {}: cannot be made: {}; name a folder that can be written", folder.path.string(),
                                error.message()));
  return folder;
}

}  // namespace weft::train
