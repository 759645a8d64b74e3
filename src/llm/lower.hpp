// From a model graph to Weft's graph: one pass over T tokens, caches written on the way.
#pragma once

#include <map>
#include <optional>

#include "llm/ir.hpp"
#include "llm/weights.hpp"
#include "llm/whole_attention.hpp"
#include "weft/inference.hpp"

namespace weft::llm {

/// What a pass is given, all i32 on the device. Rows of padding have a place of -1 and length 0.
struct PassInputs {
  Tensor tokens;     // [T]; in a graph that begins behind other layers, their states, f32 [T, hidden]
  Tensor positions;  // [T], in their sequences
  Tensor length;     // [T], positions that they see
  struct Places {
    Tensor at;     // [T], rows of the caches
    Tensor first;  // [T], first row of their sequence in the caches
  };
  Places all, ring;  // in caches of all positions, and in those that are rings
  /// Where there are layers with states: the sequence of each token, -1 for padding; 1 for the first token of a sequence, whose
  /// state is zero; and how many tokens there are [1]. Either all tokens are of one sequence, or each is of another.
  struct States {
    Tensor sequence, is_first, count;
    bool is_one_sequence = false;
  } states;
  Tensor factors;  // [T], rows of the frequencies; undefined: there is one
  Tensor rows;     // [R], tokens whose logits are wanted; undefined: of all T
  // Rows of images in place of tokens. Undefined: the pass has none.
  Tensor is_image;       // [T], 1 for those
  Tensor image_rows;     // f32 [T, hidden or more], zero for tokens
  Tensor height, width;  // [T], with axes of positions: places in height and width; `positions` is that in time
  // With images that see themselves whole: what layers with a window see instead, [T] first rows in the caches and lengths.
  Tensor window_first, window_length;
  bool stops_before_head = false;  // gives the states of all tokens instead of logits
  /// Whole rows of texts, which use no caches: only tokens, positions and factors are given beside them. Products are those that have
  /// gradients, with weights in blocks unpacked for each.
  std::optional<WholeRows> whole = {};
};

struct LowerContext {
  const ModelGraph& graph;
  const Weights& weights;
  std::map<std::string, Variable>& caches;
  CacheType cache_type = CacheType::f32;
  Extent ring = 0;                        // rows of a sequence in layers with a window; 0: all positions
  bool exact = false;                     // products with packed weights take activations as f32
  Tensor frequencies, local_frequencies;  // [1 or more, dims / 2]
  double magnitude = 1;
  Tensor axes;  // f32 [3, dims / 2], 1 for the pairs that turn by time, height, width; undefined: all turn by time
  // Of whole rows:
  const std::map<std::string, Tensor>* trained = nullptr;  // constants with other values than the weights'
  double adapter_dropout = 0;                              // probability that an input of A becomes 0
  bool recomputes = false;                                 // layers are computed again for gradients
  std::vector<Tensor>* router_logits = nullptr;            // gets those of each layer with experts, [T, E]
};

/// The logits [R, vocabulary], or the states [T, width]; the caches are assigned.
Tensor lower(const LowerContext& context, const PassInputs& inputs);

}  // namespace weft::llm
