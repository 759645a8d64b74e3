// The folders of fetched models, laid out as the hub's other programs do it:
//
//   models--OWNER--NAME/refs/main                 the commit that a revision was
//   models--OWNER--NAME/blobs/HASH                a file, by the hash that the hub gives for it
//   models--OWNER--NAME/snapshots/COMMIT/FILE     a link to its blob
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace weft::hub {

std::filesystem::path repository_folder(const std::filesystem::path& cache, std::string_view repository);

/// A snapshot's repository and commit, from its path; nothing if the path is not that of a snapshot or of a file in one.
struct SnapshotPlace {
  std::string repository, commit;
  std::filesystem::path folder;  // models--OWNER--NAME
};
std::optional<SnapshotPlace> snapshot_of(const std::filesystem::path& path);

/// The commit that a revision is, as far as the cache knows.
std::optional<std::string> known_commit(const std::filesystem::path& repository_folder, const std::string& revision);

/// Names and sizes of the files of a snapshot that are there, in order.
std::vector<std::pair<std::string, std::uint64_t>> files_of_snapshot(const std::filesystem::path& snapshot);

/// What goes with a file of a snapshot when it is removed: its blob, if no other snapshot has it.
std::optional<std::filesystem::path> blob_to_remove(const std::filesystem::path& link);
/// Removes folders that became empty: of the snapshot and above, up to the repository's.
void remove_empty_folders(const SnapshotPlace& place);

}  // namespace weft::hub
