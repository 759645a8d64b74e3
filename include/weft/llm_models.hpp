// The language models in folders of this machine, and the packed weights that the cache folder keeps of them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "weft/llm_fit.hpp"

namespace weft::llm {

/// A model on the disk. Only its configuration and the names, types and shapes of its tensors were read.
struct StoredModel {
  std::string name;  ///< as `model_name` gives it
  std::filesystem::path path;
  std::string format;                        ///< "GGUF" or "folder"
  std::string family;                        ///< architecture, as the file names it
  std::string type;                          ///< of most bytes of weights
  Extent parameters = 0, context = 0;        ///< context 0: not a language model, but one of speech, voices or images
  std::uint64_t bytes = 0;                   ///< of its files
  std::uint64_t packed_bytes = 0;            ///< of its packed weights in the cache folder
  std::vector<std::filesystem::path> files;  ///< its own, and the packed ones
  std::string problem;                       ///< why it cannot be loaded; empty if nothing is known
};

/// The name of a model at a path: of the file without its ending, or of the folder. A folder that was fetched from a hub is
/// "hf:OWNER/NAME", with @COMMIT if it is not the newest that was fetched.
std::string model_name(const std::filesystem::path& path);

/// $WEFT_MODELS (folders with colons between), `models` in the cache folder, what was fetched from a hub ($HF_HUB_CACHE), and where the
/// scripts keep what they fetch ($WEFT_DATA_DIR, else .cache/data); those that exist.
std::vector<std::filesystem::path> model_folders();

/// GGUF files (of a split one, the first) and Hugging Face folders below these folders, at most five folders deep, by name. Links
/// to folders are not followed. A file that cannot be read is listed with its problem.
/// Errors: FileError for a folder that does not exist.
std::vector<StoredModel> stored_models(std::span<const std::filesystem::path> folders);

/// The model of a name, or of a name's beginning if only one begins so, in `model_folders`; nothing if there is none.
/// Errors: UsageError that lists the models if several fit.
std::optional<std::filesystem::path> find_model(const std::string& name);

/// Removes the files of a model and its packed weights, and in a hub's cache what no other revision has; of a folder, the files of `StoredModel::files` and then the folder if it is
/// empty. Errors: FileError for a file that cannot be removed.
void remove_model(const StoredModel& model);

/// What the cache folder holds of models.
struct ModelStorage {
  std::filesystem::path folder;    ///< that holds the packed weights; empty if this machine has no cache folder
  std::uint64_t packed_bytes = 0;  ///< of all packed weights
  std::uint64_t orphan_bytes = 0;  ///< of those whose model is gone
  std::size_t packed_files = 0, orphans = 0;
  std::uint64_t disk_free = 0, disk_size = 0;
};
ModelStorage model_storage();
/// Removes packed weights whose model is gone; gives their bytes.
std::uint64_t remove_orphans();

}  // namespace weft::llm
