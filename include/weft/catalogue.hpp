// The operations that Weft itself offers: tensor ops, tensors by handle, gradient checks, files of tensors, language models,
// training runs, volumetric networks, vector memories, images, sounds, vision and speech models, checkpoints and data sets.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weft/operations.hpp"

namespace weft::operations {

struct CatalogueOptions {
  /// Folders in which operations may read files, and folders in which they may write. Without `any_files` all other paths are
  /// refused.
  std::vector<std::filesystem::path> read_folders = {}, write_folders = {};
  bool any_files = false;  ///< for the owner of the process
  /// Whether `model.fetch` may open the network; callers need the scope and the right, too.
  bool may_fetch = false;
  std::uint64_t tensor_bytes_max = std::uint64_t{1} << 30;   ///< limit for one result of a tensor op
  std::size_t handles_max = 10'000;                          ///< limit for the tensors of one identity
  std::uint64_t handle_bytes_max = std::uint64_t{4} << 30;   ///< limit for the bytes of these tensors together
  std::size_t networks_max = 1000;                           ///< limit for the volumetric networks of all
  std::size_t memories_max = 1000;                           ///< limit for the vector memories of all
  std::size_t memory_entries_max = 1'000'000;                ///< limit for the entries of one of them
  std::uint64_t network_bytes_max = std::uint64_t{1} << 30;  ///< limit for the f32 parameters of one of them
};

/// Tensors that clients hold by name. A handle belongs to the id of the identity that made it; for others it does not exist.
/// Thread safety: any thread may call any function.
class Handles {
 public:
  explicit Handles(const CatalogueOptions& options = {});
  ~Handles();
  /// Computes the value and keeps it until `free`, or until its session (`CallOptions::session`) ends. Errors: OperationError
  /// HANDLE_LIMIT beyond what one identity may hold.
  std::string put(Tensor tensor, std::string_view owner, std::string_view session = {});
  /// Nothing if there is no such handle, or it belongs to another owner.
  std::optional<Tensor> find(std::string_view handle, std::string_view owner);
  bool free(std::string_view handle, std::string_view owner);
  /// The handles of an owner, in the order in which they were made.
  std::vector<std::string> list(std::string_view owner) const;
  /// Frees all handles of an owner that has gone.
  void free_all_of(std::string_view owner);
  /// Frees the handles of a session that has ended.
  void free_session(std::string_view session);
  /// Frees handles that were not used for this time.
  void free_unused_for(std::chrono::seconds age);
  std::size_t size() const;
  std::uint64_t bytes() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Everything that Weft offers, in a registry. It must live as long as the registry's calls.
///
/// | namespace | operations | scopes and resources |
/// |---|---|---|
/// | `tensor` | every op of the table of ops, by its name | `tensor:run` |
/// | `handle` | `create`, `read`, `free`, `list` | `tensor:run` |
/// | `gradient` | `check` | `tensor:run` |
/// | `weights` | `list`, `read`, `write` | `files:read`, `files:write`; action `read` or `write` on `weights:PATH` |
/// | `model` | `load`, `list`, `describe`, `generate`, `chat`, `tokenize`, `detokenize`, `unload` | `model:load`; actions on `model:NAME` |
/// | `model` | `fetch`, if `may_fetch` | `model:fetch`; action `fetch` on `model:NAME`, where the name is that of the input |
/// | `training` | `start`, `observe`, `stop`, `list` | `training:run`, `training:read` |
/// | `grid` | `create`, `load`, `save`, `list`, `describe`, `remove`, `forward`, `train`, `train_step`, `reset_optimizer`, `read_parameters`, `write_parameters`, `morph`, `dna`, `compare`, `splice`, `mutate`, `evolve` | `grid:create`, `grid:run`, `grid:train`; actions `create`, `read`, `run` and `train` on `network:NAME`; for files also those of `weights` |
/// | `memory` | `create`, `load`, `save`, `drop`, `describe`, `add`, `remove`, `search`, `recall` | `memory:create`, `memory:run`; actions `create`, `read` and `write` on `memory:NAME`; for files and models also those of `weights` and `model` |
/// | `image` | `decode`, `read`, `encode`, `write`, `resize`, `center_crop` | `media:run`; for files also those of `weights` |
/// | `audio` | `decode`, `read`, `encode`, `write`, `mono`, `resample`, `stft`, `istft`, `mel_filters`, `log_mel_spectrogram` | `media:run`; for files also those of `weights` |
/// | `encoder` | `load`, `list`, `describe`, `unload`, `embed`, `rerank`, `classify`, `label`, `fill` | `encoder:load`; actions `load`, `describe` and `run` on `encoder:NAME`; to load also those of `weights` |
/// | `vision` | `load`, `list`, `describe`, `unload`, `embed`, `compare`, `classify` | `vision:load`; actions `load`, `describe` and `run` on `vision:NAME`; to load also those of `weights` |
/// | `speech` | `load`, `list`, `describe`, `unload`, `transcribe`, `stream`, `detect_language`, `speak` | `speech:load`; actions `load`, `describe` and `run` on `speech:NAME`; to load also those of `weights` |
/// | `checkpoint` | `describe` | `files:read` |
/// | `dataset` | `describe` | `files:read` |
class Catalogue {
 public:
  explicit Catalogue(std::shared_ptr<Registry> registry, const CatalogueOptions& options = {});
  ~Catalogue();
  Catalogue(const Catalogue&) = delete;
  Catalogue& operator=(const Catalogue&) = delete;
  Handles& handles();
  /// Loads a language model, as `model.load` does, from anywhere. Errors: OperationError MODEL_EXISTS; as llm::load.
  void load_model(const std::string& name, const std::filesystem::path& path);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace weft::operations
