// Models by name: they are fetched from a hub of models, into the cache that programs of that hub share, or from an address.
// Nothing else in Weft opens the network by itself.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

namespace weft::hub {

/// A model of a hub, hf:OWNER/NAME[@REVISION][:CHOICE], or one GGUF file at an https address.
struct ModelName {
  std::string repository = {};    ///< "OWNER/NAME"; empty for an address
  std::string revision = "main";  ///< a branch, a tag or a commit
  std::string choice = {};        ///< a file of the repository, or a type of GGUF file such as Q4_K_M; empty: the model
  std::string address = {};       ///< of one file, outside of the hub

  /// "hf:OWNER/NAME:Q4_K_M", or the address.
  std::string to_string() const;
};

/// Whether a text is a name, and not a path: it begins with hf:, https:// or http://.
bool is_model_name(std::string_view text);

/// Reads a name. The prefix hf: may be missing. An address below the hub's own becomes a name of the hub.
/// Errors: UsageError for anything else, for an address that is not https (http is taken for this machine alone), and for one that does
/// not end in .gguf.
ModelName parse_model_name(std::string_view text);

struct PlannedFile {
  std::string name;         ///< in the repository
  std::uint64_t bytes = 0;  ///< 0 for a file at an address whose server does not tell
  bool is_here = false;     ///< in the cache already
  bool is_weights = false;
};

/// What a fetch takes, as far as that is known before it.
struct FetchPlan {
  ModelName name;
  std::string commit;          ///< 40 hexadecimal digits; empty for an address
  std::filesystem::path path;  ///< where the model will be: a file, or a folder
  std::vector<PlannedFile> files;
  std::uint64_t bytes = 0, missing_bytes = 0, weight_bytes = 0;
  std::uint64_t disk_free = 0, memory_free = 0;

  /// Whether the weights fit into the memory that is free. The cache of keys and values comes on top; `llm::fit` tells once the
  /// model is here.
  bool fits() const { return weight_bytes <= memory_free; }
  /// "3 files, 1.2 GB, of which 0.4 GB are here; ...".
  std::string to_string() const;
};

struct FetchProgress {
  std::string file;
  std::uint64_t done = 0, total = 0;  ///< bytes of all files that are fetched
  double bytes_per_second = 0;        ///< of the last seconds
};

struct FetchOptions {
  /// The hub: $HF_ENDPOINT, else the public one. Empty: that.
  std::string endpoint = {};
  /// Sent to the hub, and to nobody else. Unset: $HF_TOKEN, or the file at $HF_TOKEN_PATH, or `token` in the hub's folder, if there
  /// is one. Empty: none.
  std::optional<std::string> token = {};
  /// Where fetched models are. Empty: $HF_HUB_CACHE, or $HF_HOME/hub, or huggingface/hub in $XDG_CACHE_HOME or ~/.cache. Files from
  /// an address go into `models` in Weft's cache folder.
  std::filesystem::path cache = {};
  /// Takes what the cache has, and does not open the network. $HF_HUB_OFFLINE=1 says the same.
  bool offline = false;
  /// Of a file at an address: the hash that it must have, 64 hexadecimal digits.
  std::string sha256 = {};
  int retries = 5;  ///< attempts after one that got no byte; a server that is busy says how long to wait
  std::chrono::seconds timeout{30};  ///< without a byte, before a new attempt
  std::stop_token stop = {};         ///< checked at least once a second; what was fetched stays for the next time

  /// Called before the first byte of weights.
  std::function<void(const FetchPlan&)> on_plan = {};
  /// Called some times a second while files come.
  std::function<void(const FetchProgress&)> on_progress = {};
  /// Called with what delays the work: an attempt that failed, another program that fetches the same file.
  std::function<void(std::string_view)> on_delay = {};
};

struct FetchedModel {
  std::filesystem::path path;  ///< a GGUF file (of a split one, the first), or a folder; empty if it was stopped
  std::string commit;
  std::uint64_t bytes = 0;          ///< of the model's files
  std::uint64_t fetched_bytes = 0;  ///< that came over the network
  bool stopped = false;
};

/// Looks a model up and fetches what is missing of it: of a repository with safetensors the configuration, the tokenizer and the
/// weights; else one GGUF file with all of its parts. A file that a killed fetch has begun goes on where it ended. Each file
/// appears whole or not at all; SHA-256 of large files is checked. Several processes may fetch one model.
///
/// Errors: UsageError for a choice that the repository does not have, with those that it has. FileError for everything that the
/// network, the server and the disk can do: no such model, a model that wants a consent or a token, no room, a hash that
/// differs, a server that sends names that lead out of the folder.
FetchedModel fetch(const ModelName& name, const FetchOptions& options = {});

/// The same without fetching more than the list of files. Errors as `fetch`.
FetchPlan plan_fetch(const ModelName& name, const FetchOptions& options = {});

/// The path of a model that the cache has whole; nothing otherwise. Does not open the network, and so does not know of a newer
/// revision.
std::optional<std::filesystem::path> find_fetched(const ModelName& name, const FetchOptions& options = {});

}  // namespace weft::hub
