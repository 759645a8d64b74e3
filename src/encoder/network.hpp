// The layers of a text encoder: from tokens to states.
#pragma once

#include <vector>

#include "encoder/config.hpp"
#include "encoder/names.hpp"

namespace weft::encoder {

/// Texts of a pass, each filled up to the same length.
struct Padded {
  Tensor tokens;   ///< i32 [texts, length]
  Tensor types;    ///< i32 [texts, length]; undefined where the model has none
  Tensor lengths;  ///< i32 [texts]

  Extent texts() const { return tokens.dim(0); }
  Extent length() const { return tokens.dim(1); }
};

/// How layers are computed.
struct PassMode {
  bool drops_out = false;   ///< with the probabilities of the configuration
  bool recomputes = false;  ///< layers once more for gradients, so that of each only its input is kept
};

class Network {
 public:
  Network(const EncoderConfig& config, const EncoderNames& names, layers::ModelWeights& weights);
  /// The states of all tokens, f32 [texts length, hidden]. Those behind the end of a text have no meaning.
  Tensor states(const Padded& texts, PassMode mode = {}) const;
  /// The embeddings of tokens, [vocabulary, embedding], which heads of masked tokens share.
  const Tensor& words() const { return words_; }

 private:
  struct Layer {
    layers::Linear qkv, q, k, v, o;
    layers::Linear gate_up, gate, up, down;
    layers::Norm norm1, norm2, norm1_after, norm2_after, q_norm, k_norm;
    layers::Linear position_key, position_query;
    bool is_local = false;
  };
  /// q, k or v: [texts, heads, length, head width].
  struct Heads {
    Tensor q, k, v;
  };

  layers::Norm load_norm(const std::string& name, Extent width, layers::NormKind kind,
                         layers::ModelWeights& weights) const;
  Layer load_layer(const EncoderNames& names, const std::string& prefix, Extent index,
                   layers::ModelWeights& weights) const;
  Tensor embedded(const Padded& texts, const Dropouts& dropouts) const;
  Heads heads_of(const Layer& layer, const Tensor& x, const Padded& texts) const;
  Tensor attended(const Layer& layer, const Tensor& x, const Padded& texts, const Tensor& distances,
                  const Dropouts& dropouts) const;
  Tensor mlp(const Layer& layer, const Tensor& x, const Dropouts& dropouts) const;
  Tensor layered(const Layer& layer, const Tensor& x, const Padded& texts, const Tensor& distances,
                 const Dropouts& dropouts) const;
  /// What attention adds to its scores for distances: the same for all layers, or of DeBERTa's rows of distances.
  Tensor distance_rows(Extent length) const;
  Tensor bucket_scores(const Tensor& rows, Extent length) const;
  Tensor disentangled_scores(const Layer& layer, const Heads& heads, const Tensor& rows) const;

  EncoderConfig config_;
  Device device_;
  Tensor words_, positions_, types_, distances_;
  layers::Norm embedding_norm_, distance_norm_, last_norm_;
  layers::Linear embedding_product_;
  std::vector<Layer> layers_;
};

}  // namespace weft::encoder
