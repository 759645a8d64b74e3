// A model, or the part of it that one device has: layers with their weights and caches, and the passes compiled for them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/contract.hpp"
#include "llm/adapter.hpp"
#include "llm/lower.hpp"
#include "llm/weights.hpp"
#include "weft/compile.hpp"

namespace weft::llm::detail {

enum class LogitsOf : std::uint8_t {
  last,
  every,
  drawn,
  none
};  // whose logits; of `drawn`, the tokens come as a Drawing has them; `none`: the states before the head

/// What a pass is compiled for.
struct PassKind {
  std::size_t size;
  LogitsOf wanted;
  bool has_images;
  bool is_one_sequence;  // of models with states; else false
  auto operator<=>(const PassKind&) const = default;
};

/// The numbers of a pass, as the host has them.
struct PassNumbers {
  PassKind kind;
  std::vector<std::int32_t> tokens;
  Tensor drawn;                        // in place of `tokens`, [1, 2]
  std::vector<std::int32_t> lists;     // some lists, each with a number for every token
  std::int32_t last = 0;               // the row whose logits are wanted
  std::vector<float> image_rows = {};  // [size, hidden or more] where there are images
};

/// What all stages of a model agree on.
struct StageSettings {
  Extent context = 0;  // positions of a sequence
  Extent ring = 0;     // rows of a sequence in caches of layers with a window; 0: as many as in all others
  int slots = 1;
  CacheType cache_type = CacheType::f32;
  bool exact = false;
  bool has_states = false;
  bool has_two_factors = false;  // of longrope: the tokens of a pass say which they turn by
  std::vector<float> frequencies, local_frequencies;
  Shape frequencies_shape{0, 0}, local_frequencies_shape{0, 0};
  double magnitude = 1;
  std::vector<float> axes;  // as in LowerContext; empty: positions have one axis
  bool sees_images_whole = false;

  /// Lists of numbers that a pass takes, but for that of images.
  std::size_t lists() const { return (ring > 0 ? 6u : 4u) + (has_states ? 3u : 0u) + (has_two_factors ? 1u : 0u); }
  /// Lists more that a pass with rows of images takes.
  std::size_t lists_of_images() const { return 1u + (axes.empty() ? 0u : 2u) + (sees_images_whole ? 2u : 0u); }
  /// Rows of a sequence in a cache or a state, of this many positions.
  Extent rows_of(const TensorDesc& tensor, Extent positions) const;
};

template <class T>
Tensor on_device(const std::vector<T>& values, const Shape& shape, Device device) {
  return tensor_from_bytes(values.data(), shape, dtype_of<T>, device);
}
/// Returns freed memory to the system, because compiling a graph leaves megabytes of holes in the heap.
void return_free_memory();

class Stage {
 public:
  /// The part of a model that `graph` is. `is_first`: it reads tokens. `is_last`: it gives logits.
  Stage(ModelGraph graph, Device device, bool is_first, bool is_last);
  Stage(const Stage&) = delete;

  void load(const TensorNames& names, const LoadProgress& progress, const PackedFileRules& rules);
  /// Weights that passes can be planned with, and nothing can be run with.
  void plan_weights(const TensorNames& names);
  /// The values of adapters whose products the graph has, those of other parts left out.
  void load_adapters(std::span<const LowRank> changes);
  /// Sets the settings and makes the caches, without memory if they are only planned with.
  void make_caches(const StageSettings& settings, bool is_planned);

  /// Runs a pass. `states` are those that the stage before gave, on this device; the first stage takes none. Gives states
  /// [size, hidden], or what the last stage is asked for. With `profile`, kernels are timed, and a table is added to it.
  Tensor run(const PassNumbers& numbers, const Tensor& states = {}, std::string* profile = nullptr);
  /// Compiles a pass over `size` tokens, and gives its scratch and its results in bytes.
  std::uint64_t planned_pass_bytes(std::size_t size);
  /// Scratch of all passes that were compiled so far.
  std::uint64_t scratch_bytes() const;

  /// Whether layers of the part keep keys and values.
  bool has_keys() const;
  /// The states of layers of the part: how many there are, and a copy of each of a sequence, [1, width].
  std::size_t state_count() const { return state_names_.size(); }
  std::vector<Tensor> states_of(int slot);
  /// Sets them to such copies.
  void set_states(int slot, std::span<const Tensor> states);

  const ModelGraph& graph() const { return graph_; }
  Device device() const { return device_; }
  /// Whether the device works while the host does something else.
  bool runs_beside_host() const;
  const Weights& weights() const { return weights_; }
  std::uint64_t cache_bytes() const;
  /// Layers of the part: the first, and how many.
  Extent first_layer() const;
  Extent layer_count() const;
  /// Bytes of one position of every sequence in all caches, and of all states. Rings make the first only less.
  std::uint64_t position_bytes(int slots, CacheType type) const;
  std::uint64_t state_bytes(int slots) const;

 private:
  std::vector<Tensor> arguments(const PassNumbers& numbers, const Tensor& states) const;
  PassKind own(PassKind kind) const;
  Compiled& compiled(const PassKind& kind);

  ModelGraph graph_;
  Device device_;
  bool is_first_, is_last_, reads_images_;
  Weights weights_;
  StageSettings settings_;
  std::map<std::string, Variable> caches_;
  std::vector<std::string> state_names_;
  Tensor frequencies_, local_frequencies_, axes_;
  std::optional<Compiled> save_states_, restore_states_;
  std::map<PassKind, Compiled> passes_;
};

}  // namespace weft::llm::detail
