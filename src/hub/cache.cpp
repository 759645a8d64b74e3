#include "hub/cache.hpp"

#include <algorithm>
#include <fstream>

#include "hub/names.hpp"

namespace weft::hub {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kModels = "models--";
constexpr std::size_t kFilesMax = 20'000;

/// Whether a link below `snapshots` leads to this blob, but for the link `other`.
bool is_linked(const fs::path& snapshots, const fs::path& blob, const fs::path& other) {
  std::error_code error;
  fs::recursive_directory_iterator each(snapshots, error), end;
  for (std::size_t count = 0; !error && each != end && ++count < kFilesMax; each.increment(error)) {
    std::error_code ignored;
    if (each->is_symlink(ignored) && each->path() != other && fs::equivalent(each->path(), blob, ignored)) return true;
  }
  return false;
}

}  // namespace

fs::path repository_folder(const fs::path& cache, std::string_view repository) {
  std::string name(kModels);
  for (const char c : repository) name += c == '/' ? std::string("--") : std::string(1, c);
  return cache / name;
}

std::optional<SnapshotPlace> snapshot_of(const fs::path& path) {
  std::error_code ignored;
  fs::path at = fs::absolute(path, ignored);
  if (!at.has_filename()) at = at.parent_path();
  for (; at.has_relative_path(); at = at.parent_path()) {
    const fs::path snapshots = at.parent_path(), folder = snapshots.parent_path();
    const std::string name = folder.filename().string();
    if (snapshots.filename() != "snapshots" || !name.starts_with(kModels)) continue;
    std::string repository = name.substr(kModels.size());
    if (const std::size_t joint = repository.find("--"); joint != std::string::npos) repository.replace(joint, 2, "/");
    if (!is_repository(repository) || !is_commit(at.filename().string())) return std::nullopt;
    return SnapshotPlace{std::move(repository), at.filename().string(), folder};
  }
  return std::nullopt;
}

std::optional<std::string> known_commit(const fs::path& folder, const std::string& revision) {
  if (is_commit(revision)) return revision;
  if (!is_revision(revision)) return std::nullopt;
  std::ifstream file(folder / "refs" / revision);
  std::string commit(40, '\0');
  file.read(commit.data(), 40);
  return is_commit(commit) ? std::optional(commit) : std::nullopt;
}

std::vector<std::pair<std::string, std::uint64_t>> files_of_snapshot(const fs::path& snapshot) {
  std::vector<std::pair<std::string, std::uint64_t>> files;
  std::error_code error;
  fs::recursive_directory_iterator each(snapshot, error), end;
  for (std::size_t count = 0; !error && each != end && ++count < kFilesMax; each.increment(error)) {
    std::error_code ignored;
    if (!each->is_regular_file(ignored)) continue;  // follows the link: a blob may be gone
    const std::uint64_t bytes = each->file_size(ignored);
    if (!ignored) files.emplace_back(each->path().lexically_relative(snapshot).generic_string(), bytes);
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::optional<fs::path> blob_to_remove(const fs::path& link) {
  std::error_code error;
  const auto place = snapshot_of(link);
  if (!place || !fs::is_symlink(link, error)) return std::nullopt;
  const fs::path target = fs::read_symlink(link, error);
  if (error || target.is_absolute()) return std::nullopt;
  const fs::path blob = (fs::absolute(link, error).parent_path() / target).lexically_normal();
  // Only what is in the blobs of this repository: a link could lead anywhere.
  if (blob.parent_path() != (place->folder / "blobs").lexically_normal() || !fs::is_regular_file(blob, error))
    return std::nullopt;
  if (is_linked(place->folder / "snapshots", blob, link)) return std::nullopt;
  return blob;
}

void remove_empty_folders(const SnapshotPlace& place) {
  std::error_code ignored;
  std::vector<fs::path> folders;
  for (fs::recursive_directory_iterator each(place.folder / "snapshots" / place.commit, ignored), end;
       !ignored && each != end; each.increment(ignored))
    if (each->is_directory(ignored) && !each->is_symlink(ignored)) folders.push_back(each->path());
  std::sort(folders.rbegin(), folders.rend());  // inner ones before outer ones
  for (const char* name : {"snapshots", "blobs"}) folders.push_back(place.folder / name);
  folders.insert(folders.end() - 2, place.folder / "snapshots" / place.commit);
  for (const fs::path& folder : folders)
    if (fs::is_empty(folder, ignored) && !ignored) fs::remove(folder, ignored);
  // References, and notes of files that a commit lacks, say nothing once the last snapshot is gone.
  if (!fs::exists(place.folder / "snapshots", ignored) && !fs::exists(place.folder / "blobs", ignored)) {
    for (const char* name : {"refs", ".no_exist"}) fs::remove_all(place.folder / name, ignored);
    fs::remove(place.folder, ignored);
  }
}

}  // namespace weft::hub
