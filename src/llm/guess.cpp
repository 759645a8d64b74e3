#include "llm/guess.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "weft/error.hpp"

namespace weft::llm {
namespace {

/// A family by the tensor of layer 0 that no family above it in the table has.
struct Sign {
  const char *tensor, *architecture;
};
constexpr Sign kSigns[] = {
    {"backbone.layers.0.mixer.dt_bias", "mamba2"},
    {"backbone.layers.0.mixer.x_proj.weight", "mamba"},
    {"h.0.attn.c_attn.weight", "gpt2"},
    {"transformer.h.0.self_attention.query_key_value.bias", "bloom"},
    {"transformer.blocks.0.attn.Wqkv.weight", "mpt"},
    {"model.layers.0.self_attn.sinks", "gpt_oss"},
    {"model.layers.0.self_attn.kv_a_proj_with_mqa.weight",
     "deepseek_v2"},  // or deepseek_v3, whose routers are corrected
    {"model.layers.0.block_sparse_moe.gate.weight", "mixtral"},
    {"model.layers.0.self_attn.qkv_proj.weight", "phi3"},
    {"model.layers.0.pre_feedforward_layernorm.weight", "gemma2"},  // or gemma3_text, with norms of heads
    {"model.layers.0.self_attn.q_norm.weight", "qwen3"},
    {"model.layers.0.self_attn.q_proj.bias", "qwen2"},
    {"model.layers.0.self_attn.q_proj.weight", "llama"},
};

class Guess {
 public:
  Guess(const TensorNames& names, const ModelHints& hints) : names_(names), hints_(hints) {}

  Json config() {
    const std::string type = architecture();
    json_ = {{"model_type", type}};
    if (type == "gpt2")
      read_gpt2();
    else if (type.starts_with("mamba"))
      read_mamba(type == "mamba2");
    else if (type == "bloom" || type == "mpt")
      read_by_distance(type == "bloom");
    else if (type == "gpt_oss")
      read_gpt_oss();
    else if (type.starts_with("deepseek"))
      read_deepseek(type == "deepseek_v3");
    else
      read_decoder(type);
    if (hints_.rope_base > 0) json_["rope_theta"] = hints_.rope_base;
    if (hints_.context > 0) json_[type == "gpt2" ? "n_positions" : "max_position_embeddings"] = hints_.context;
    return std::move(json_);
  }

 private:
  const io::SourceTensor* find(const std::string& name) const { return names_.find(name); }
  [[noreturn]] void unknown(const std::string& what, const char* hint) const {
    throw FileError(fmt::format("{}: a config.json cannot be made of the tensors, which do not tell {}; give it as {}",
                                names_.source().path().string(), what, hint));
  }
  Extent extent(const std::string& name, int axis) const {
    const io::SourceTensor* tensor = find(name);
    if (!tensor || tensor->shape.rank() <= axis)
      throw FileError(
          fmt::format("{}: a config.json cannot be made: without the tensor {}{} the sizes of the model are not known",
                      names_.source().path().string(), name, tensor ? " of more axes" : ""));
    return tensor->shape[axis];
  }
  Extent layers(const char* pattern) const {
    Extent count = 0;
    while (find(fmt::format(fmt::runtime(pattern), count))) ++count;
    return count;
  }

  std::string architecture() const {
    if (!hints_.architecture.empty()) return hints_.architecture;
    for (const auto& [tensor, name] : kSigns)
      if (find(tensor) && std::string(name) == "deepseek_v2")
        return corrects_routers() ? "deepseek_v3" : name;
      else if (find(tensor))
        return std::string(name) == "gemma2" && find("model.layers.0.self_attn.q_norm.weight") ? "gemma3_text" : name;
    unknown("what family it is of", "the architecture, a model_type of transformers");
  }

  /// Heads of `rows` rows, and the size of one: from norms of heads or from the hint.
  std::pair<Extent, Extent> heads_of(Extent rows) const {
    Extent heads = hints_.heads, width = 0;
    if (const io::SourceTensor* norm = find("model.layers.0.self_attn.q_norm.weight"); norm && norm->shape.rank() == 1)
      width = norm->shape[0];
    if (width > 0) {
      if (rows % width != 0 || (heads > 0 && heads != rows / width))
        throw UsageError(fmt::format("{}: {} heads are given, and norms of {} channels make {} heads of {} rows",
                                     names_.source().path().string(), heads, width, rows / width, rows));
      return {rows / width, width};
    }
    if (heads == 0)
      unknown(fmt::format("into how many heads the {} rows of queries are divided", rows), "the number of heads");
    if (heads < 0 || rows % heads != 0)
      throw UsageError(fmt::format("{}: {} heads do not divide the {} rows of queries", names_.source().path().string(),
                                   heads, rows));
    return {heads, rows / heads};
  }

  void read_decoder(const std::string& type) {
    const Extent hidden = extent("model.embed_tokens.weight", 1);
    json_["vocab_size"] = extent("model.embed_tokens.weight", 0);
    json_["hidden_size"] = hidden;
    json_["num_hidden_layers"] = layers("model.layers.{}.input_layernorm.weight");
    json_["tie_word_embeddings"] = find("lm_head.weight") == nullptr;
    const std::string layer = "model.layers.0.";
    if (type == "phi3") {
      const Extent rows = extent(layer + "self_attn.o_proj.weight", 1),
                   all = extent(layer + "self_attn.qkv_proj.weight", 0);
      const auto [heads, width] = heads_of(rows);
      set_heads(heads, width, (all - rows) / 2);
      json_["intermediate_size"] = extent(layer + "mlp.gate_up_proj.weight", 0) / 2;
    } else {
      const auto [heads, width] = heads_of(extent(layer + "self_attn.q_proj.weight", 0));
      set_heads(heads, width, extent(layer + "self_attn.k_proj.weight", 0));
      json_["intermediate_size"] = type == "mixtral" ? extent(layer + "block_sparse_moe.experts.0.w1.weight", 0)
                                                     : extent(layer + "mlp.gate_proj.weight", 0);
    }
    if (type == "mixtral") {
      json_["num_local_experts"] = extent(layer + "block_sparse_moe.gate.weight", 0);
      set_experts_per_token();
    }
    if (type.starts_with("gemma")) {
      json_["hidden_activation"] = "gelu_pytorch_tanh";
      json_["query_pre_attn_scalar"] = json_["head_dim"];
    }
    if (type == "gemma2") {
      json_["attn_logit_softcapping"] = 50.0;
      json_["final_logit_softcapping"] = 30.0;
      json_["sliding_window"] = 4096;
    }
    if (type == "gemma3_text") json_["sliding_window"] = 512;
    if (type == "qwen2" || type == "qwen3" || type == "gemma3_text" || type == "mixtral") json_["rope_theta"] = 1e6;
  }
  void set_heads(Extent heads, Extent width, Extent key_rows) {
    if (key_rows % width != 0)
      throw UsageError(fmt::format("{}: with {} heads of {} channels the {} rows of keys are not whole heads",
                                   names_.source().path().string(), heads, width, key_rows));
    json_["num_attention_heads"] = heads;
    json_["head_dim"] = width;
    json_["num_key_value_heads"] = key_rows / width;
  }

  void read_gpt2() {
    json_["vocab_size"] = extent("wte.weight", 0);
    json_["n_embd"] = extent("wte.weight", 1);
    json_["n_positions"] = extent("wpe.weight", 0);
    json_["n_layer"] = layers("h.{}.ln_1.weight");
    json_["n_inner"] = extent("h.0.mlp.c_fc.weight", 1);
    json_["n_head"] = heads_of(extent("wte.weight", 1)).first;
    json_["layer_norm_epsilon"] = 1e-5;
    json_["tie_word_embeddings"] = find("lm_head.weight") == nullptr;
  }

  /// BLOOM and MPT.
  void read_by_distance(bool is_bloom) {
    const std::string table = is_bloom ? "transformer.word_embeddings.weight" : "transformer.wte.weight";
    const Extent hidden = extent(table, 1);
    json_["vocab_size"] = extent(table, 0);
    json_[is_bloom ? "hidden_size" : "d_model"] = hidden;
    json_[is_bloom ? "n_layer" : "n_layers"] =
        layers(is_bloom ? "transformer.h.{}.input_layernorm.weight" : "transformer.blocks.{}.norm_1.weight");
    json_[is_bloom ? "n_head" : "n_heads"] = heads_of(hidden).first;
    json_["layer_norm_epsilon"] = 1e-5;
    json_["tie_word_embeddings"] = find("lm_head.weight") == nullptr;
    if (!is_bloom) {
      const Extent wide = extent("transformer.blocks.0.ffn.up_proj.weight", 0);
      json_["expansion_ratio"] = static_cast<double>(wide) / static_cast<double>(std::max<Extent>(hidden, 1));
    }
  }

  /// Sinks tell the heads. Windows and positions are those of the models that OpenAI made.
  void read_gpt_oss() {
    const std::string layer = "model.layers.0.";
    json_["vocab_size"] = extent("model.embed_tokens.weight", 0);
    json_["hidden_size"] = extent("model.embed_tokens.weight", 1);
    json_["num_hidden_layers"] = layers("model.layers.{}.input_layernorm.weight");
    json_["tie_word_embeddings"] = find("lm_head.weight") == nullptr;
    const Extent heads = extent(layer + "self_attn.sinks", 0), rows = extent(layer + "self_attn.q_proj.weight", 0);
    if (heads < 1 || rows % heads != 0)
      throw UsageError(fmt::format("{}: {} sinks do not divide the {} rows of queries", names_.source().path().string(),
                                   heads, rows));
    set_heads(heads, rows / heads, extent(layer + "self_attn.k_proj.weight", 0));
    json_["num_local_experts"] = extent(layer + "mlp.router.weight", 0);
    json_["intermediate_size"] = extent(layer + "mlp.experts.gate_up_proj_bias", 1) / 2;
    set_experts_per_token();
    json_["sliding_window"] = 128;
    json_["rope_theta"] = 150000.0;
    json_["rope_scaling"] = {{"rope_type", "yarn"}, {"factor", 32.0},    {"beta_fast", 32.0},
                             {"beta_slow", 1.0},    {"truncate", false}, {"original_max_position_embeddings", 4096}};
    json_["max_position_embeddings"] = 131072;
  }
  void set_experts_per_token() {
    if (hints_.experts_per_token == 0)
      unknown("how many of the experts a token uses", "the number of experts of a token");
    json_["num_experts_per_tok"] = hints_.experts_per_token;
  }

  bool corrects_routers() const {
    const auto& tensors = names_.source().tensors();
    return std::any_of(tensors.begin(), tensors.end(), [](const io::SourceTensor& tensor) {
      return tensor.name.ends_with(".mlp.gate.e_score_correction_bias");
    });
  }

  /// Shapes tell heads and their parts. Groups of experts, factors and positions are those of the models that DeepSeek made.
  void read_deepseek(bool is_third) {
    const std::string attention = "model.layers.0.self_attn.";
    json_["vocab_size"] = extent("model.embed_tokens.weight", 0);
    json_["hidden_size"] = extent("model.embed_tokens.weight", 1);
    json_["tie_word_embeddings"] = find("lm_head.weight") == nullptr;
    const Extent all = layers("model.layers.{}.input_layernorm.weight");
    Extent own = 0, dense = 0;  // layers behind `own` guess further tokens
    while (own < all && !find(fmt::format("model.layers.{}.enorm.weight", own))) ++own;
    while (dense < own && !find(fmt::format("model.layers.{}.mlp.gate.weight", dense))) ++dense;
    json_["num_hidden_layers"] = own;
    json_["num_nextn_predict_layers"] = all - own;

    const bool is_direct = find(attention + "q_proj.weight") != nullptr;
    const Extent rank = extent(attention + "kv_a_layernorm.weight", 0),
                 turning = extent(attention + "kv_a_proj_with_mqa.weight", 0) - rank,
                 queries = extent(attention + (is_direct ? "q_proj.weight" : "q_b_proj.weight"), 0),
                 both = extent(attention + "kv_b_proj.weight", 0), values = extent(attention + "o_proj.weight", 1);
    // Of all heads: still + turning, still + value, value.
    const Extent turning_rows = queries - (both - values);
    const Extent heads = turning > 0 && turning_rows > 0 ? turning_rows / turning : 0;
    if (heads == 0 || turning_rows % turning != 0 || values % heads != 0 || (both - values) % heads != 0)
      throw UsageError(
          fmt::format("{}: {} rows of queries, {} of keys and values, {} of values and {} turning channels "
                      "are not those of whole heads",
                      names_.source().path().string(), queries, both, values, turning));
    if (hints_.heads > 0 && hints_.heads != heads)
      throw UsageError(fmt::format("{}: {} heads are given, and the shapes make {}", names_.source().path().string(),
                                   hints_.heads, heads));
    json_.update({{"num_attention_heads", heads},
                  {"num_key_value_heads", heads},
                  {"kv_lora_rank", rank},
                  {"q_lora_rank", is_direct ? Json() : Json(extent(attention + "q_a_proj.weight", 0))},
                  {"qk_rope_head_dim", turning},
                  {"qk_nope_head_dim", (both - values) / heads},
                  {"v_head_dim", values / heads},
                  {"first_k_dense_replace", dense},
                  {"rms_norm_eps", 1e-6},
                  {"rope_theta", 10000.0},
                  {"max_position_embeddings", 163840}});
    const double mscale = is_third ? 1 : 0.707;
    json_["rope_scaling"] = {{"rope_type", "yarn"},
                             {"factor", 40.0},
                             {"beta_fast", 32.0},
                             {"beta_slow", 1.0},
                             {"mscale", mscale},
                             {"mscale_all_dim", mscale},
                             {"original_max_position_embeddings", 4096}};
    if (dense > 0) json_["intermediate_size"] = extent("model.layers.0.mlp.gate_proj.weight", 0);
    if (dense == own) {
      json_["n_routed_experts"] = 0;
      return;
    }
    const std::string mlp = fmt::format("model.layers.{}.mlp.", dense);
    const Extent experts = extent(mlp + "gate.weight", 0), wide = extent(mlp + "experts.0.gate_proj.weight", 0);
    if (dense == 0) json_["intermediate_size"] = wide;  // no layer has it
    json_["n_routed_experts"] = experts;
    json_["moe_intermediate_size"] = wide;
    const bool shares = find(mlp + "shared_experts.gate_proj.weight") != nullptr;
    json_["n_shared_experts"] = shares && wide > 0 ? extent(mlp + "shared_experts.gate_proj.weight", 0) / wide : 0;
    set_experts_per_token();
    const bool has_groups = is_third ? experts == 256 : experts == 160;
    json_["norm_topk_prob"] = is_third;
    json_["routed_scaling_factor"] = is_third ? 2.5 : has_groups ? 16.0 : 1.0;
    json_["topk_method"] = is_third ? "noaux_tc" : has_groups ? "group_limited_greedy" : "greedy";
    json_["n_group"] = has_groups ? 8 : 1;
    json_["topk_group"] = !has_groups ? 1 : is_third ? 4 : 3;
  }

  void read_mamba(bool second) {
    const std::string mixer = "backbone.layers.0.mixer.";
    const Extent hidden = extent("backbone.embeddings.weight", 1), inner = extent(mixer + "out_proj.weight", 1);
    json_["vocab_size"] = extent("backbone.embeddings.weight", 0);
    json_["hidden_size"] = hidden;
    json_["num_hidden_layers"] = layers("backbone.layers.{}.norm.weight");
    json_["tie_word_embeddings"] = find("lm_head.weight") == nullptr;
    json_["expand"] = static_cast<double>(inner) / static_cast<double>(std::max<Extent>(hidden, 1));
    json_["conv_kernel"] = extent(mixer + "conv1d.weight", 2);
    if (!second) {
      json_["state_size"] = extent(mixer + "A_log", 1);
      json_["time_step_rank"] = extent(mixer + "dt_proj.weight", 1);
      return;
    }
    const Extent heads = extent(mixer + "dt_bias", 0), shared = (extent(mixer + "conv1d.weight", 0) - inner) / 2;
    // b and c have groups x states channels together.
    if (hints_.groups == 0)
      unknown(fmt::format("how many groups the {} channels of b have", shared), "the number of groups");
    if (hints_.groups < 0 || shared % hints_.groups != 0)
      throw UsageError(fmt::format("{}: {} groups do not divide the {} channels of b", names_.source().path().string(),
                                   hints_.groups, shared));
    json_["num_heads"] = heads;
    json_["head_dim"] = heads > 0 ? inner / heads : 0;
    json_["n_groups"] = hints_.groups;
    json_["state_size"] = shared / hints_.groups;
  }

  const TensorNames& names_;
  const ModelHints& hints_;
  Json json_;
};

}  // namespace

Json guessed_config(const TensorNames& names, const ModelHints& hints) { return Guess(names, hints).config(); }

}  // namespace weft::llm
