// Qwen3-Next, Qwen3.5 and Llama 4 in GGUF files, as llama.cpp's converter writes them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "io/gguf.hpp"
#include "llm/config.hpp"
#include "llm/config_write.hpp"
#include "llm/transformers_cases.hpp"
#include "weft/llm.hpp"

namespace weft::llm::newer_gguf {
namespace {

using test::TemporaryFolder;

std::vector<float> logits_of(const std::filesystem::path& path) {
  std::vector<std::int32_t> tokens;
  for (int i = 0; i < 30; ++i) tokens.push_back((i * 11 + 3 * (i % 5)) % 48);
  return load(path, {.context = 64}).forward(tokens);
}
void expect_near(const std::vector<float>& found, const std::vector<float>& wanted, double most) {
  ASSERT_EQ(found.size(), wanted.size());
  for (std::size_t i = 0; i < wanted.size(); ++i) ASSERT_NEAR(found[i], wanted[i], most) << i;
}

/// The rows of a matrix or vector in another order.
test::TinyTensor rows_of(const test::TinyTensor& tensor, const std::vector<Extent>& order) {
  const Extent width = tensor.shape.numel() / tensor.shape[0];
  test::TinyTensor made = tensor;
  made.shape[0] = static_cast<Extent>(order.size());
  made.values.clear();
  for (const Extent row : order)
    made.values.insert(made.values.end(), tensor.values.begin() + row * width,
                       tensor.values.begin() + (row + 1) * width);
  return made;
}
test::TinyTensor turned_over(const test::TinyTensor& tensor) {
  const Extent rows = tensor.shape[0], columns = tensor.shape[1];
  test::TinyTensor made = tensor;
  made.shape = {columns, rows};
  for (Extent r = 0; r < rows; ++r)
    for (Extent c = 0; c < columns; ++c)
      made.values[static_cast<std::size_t>(c * rows + r)] = tensor.values[static_cast<std::size_t>(r * columns + c)];
  return made;
}

/// Models of the gated delta rule as llama.cpp's converter writes them: norms around 1, rates, the parts of joined products apart, and
/// for Qwen3.5 the heads of values of all heads of keys in turn.
class DeltaGguf {
 public:
  explicit DeltaGguf(const test::TinyModel& model) : c_(model.config), is_next_(c_["model_type"] == "qwen3_next") {
    for (const auto& [key, tensor] : model.tensors) put(key, tensor);
    const bool has_experts = c_.contains("num_experts");
    const std::string kind = is_next_ ? "qwen3next" : has_experts ? "qwen35moe" : "qwen35";
    m_.set("general.architecture", kind);
    const auto set = [&](const char* key, Extent value) {
      m_.set(kind + "." + key, static_cast<std::uint32_t>(value));
    };
    set("embedding_length", c_["hidden_size"]);
    set("block_count", c_["num_hidden_layers"]);
    set("context_length", c_["max_position_embeddings"]);
    set("feed_forward_length", c_["intermediate_size"]);
    set("attention.head_count", c_["num_attention_heads"]);
    set("attention.head_count_kv", c_["num_key_value_heads"]);
    set("attention.key_length", c_["head_dim"]);
    set("attention.value_length", c_["head_dim"]);
    set("rope.dimension_count", c_["head_dim"].get<Extent>() / 4);
    set("ssm.inner_size", heads_ * width_);
    set("ssm.state_size", keys_);
    set("ssm.conv_kernel", c_["linear_conv_kernel_dim"]);
    set("ssm.time_step_rank", heads_);
    set("ssm.group_count", groups_);
    set("full_attention_interval", 4);
    if (has_experts) {
      set("expert_count", c_["num_experts"]);
      set("expert_used_count", c_["num_experts_per_tok"]);
      set("expert_feed_forward_length", c_["moe_intermediate_size"]);
      set("expert_shared_feed_forward_length", c_["shared_expert_intermediate_size"]);
    }
    m_.set(kind + ".attention.layer_norm_rms_epsilon", 1e-6f);
    m_.set("tokenizer.ggml.model", std::string("llama"));
    std::vector<std::string> tokens;
    for (int i = 0; i < 48; ++i) tokens.push_back("w" + std::to_string(i));
    m_.set("tokenizer.ggml.tokens", io::GgufArray(tokens));
    m_.set("tokenizer.ggml.scores", io::GgufArray(std::vector<float>(48, 0.0f)));
    m_.set("tokenizer.ggml.token_type", io::GgufArray(std::vector<std::int32_t>(48, 1)));
  }
  void write(const std::filesystem::path& file) const {
    std::vector<io::GgufTensor> all;
    for (const auto& [name, tensor] : tensors_)
      all.push_back({name, tensor.shape, BlockType::f32, std::as_bytes(std::span(tensor.values))});
    io::write_gguf(file, m_, all);
  }

 private:
  /// Rows [begin, begin + count) of every one of `groups` of `each` rows.
  static std::vector<Extent> part(Extent groups, Extent each, Extent begin, Extent count) {
    std::vector<Extent> rows;
    for (Extent g = 0; g < groups; ++g)
      for (Extent i = 0; i < count; ++i) rows.push_back(g * each + begin + i);
    return rows;
  }
  /// Rows of heads of values, `width` each, behind the first `before` rows.
  std::vector<Extent> in_turn(Extent width, Extent before = 0) const {
    std::vector<Extent> rows;
    for (Extent i = 0; i < before; ++i) rows.push_back(i);
    const Extent each = heads_ / groups_;
    for (Extent h = 0; h < heads_; ++h) {
      const Extent head = is_next_ ? h : h % groups_ * each + h / groups_;
      for (Extent i = 0; i < width; ++i) rows.push_back(before + head * width + i);
    }
    return rows;
  }

  void put(const std::string& key, test::TinyTensor tensor) {
    const std::pair<std::string, std::string> names[] = {{"model.embed_tokens", "token_embd"},
                                                         {"model.norm", "output_norm"},
                                                         {"lm_head", "output"},
                                                         {"model.layers.", "blk."},
                                                         {".input_layernorm", ".attn_norm"},
                                                         {".post_attention_layernorm", ".post_attention_norm"},
                                                         {".self_attn.q_proj", ".attn_q"},
                                                         {".self_attn.k_proj", ".attn_k"},
                                                         {".self_attn.v_proj", ".attn_v"},
                                                         {".self_attn.o_proj", ".attn_output"},
                                                         {".self_attn.q_norm", ".attn_q_norm"},
                                                         {".self_attn.k_norm", ".attn_k_norm"},
                                                         {".linear_attn.norm", ".ssm_norm"},
                                                         {".linear_attn.A_log", ".ssm_a"},
                                                         {".linear_attn.dt_bias", ".ssm_dt.bias"},
                                                         {".linear_attn.conv1d", ".ssm_conv1d"},
                                                         {".linear_attn.out_proj", ".ssm_out"},
                                                         {".linear_attn.in_proj_ba", ".ssm_ba"},
                                                         {".linear_attn.in_proj_qkv.", ".attn_qkv."},
                                                         {".linear_attn.in_proj_z", ".attn_gate"},
                                                         {".linear_attn.in_proj_b", ".ssm_beta"},
                                                         {".linear_attn.in_proj_a", ".ssm_alpha"},
                                                         {".mlp.shared_expert_gate", ".ffn_gate_inp_shexp"},
                                                         {".mlp.shared_expert.gate_proj", ".ffn_gate_shexp"},
                                                         {".mlp.shared_expert.up_proj", ".ffn_up_shexp"},
                                                         {".mlp.shared_expert.down_proj", ".ffn_down_shexp"},
                                                         {".mlp.gate_proj", ".ffn_gate"},
                                                         {".mlp.up_proj", ".ffn_up"},
                                                         {".mlp.down_proj", ".ffn_down"},
                                                         {".mlp.gate.", ".ffn_gate_inp."}};
    std::string name = key;
    for (const auto& [from, to] : names)
      if (const auto at = name.find(from); at != std::string::npos) name.replace(at, from.size(), to);
    const Extent of_keys = groups_ * keys_, each = heads_ / groups_ * width_;
    if (name.ends_with("norm.weight") && !name.ends_with("ssm_norm.weight"))
      for (float& value : tensor.values) value += 1;
    if (const auto at = name.find(".mlp.experts."); at != std::string::npos) return put_expert(name, at, tensor);
    if (const auto at = name.find(".linear_attn.in_proj_qkvz"); at != std::string::npos) {
      std::vector<Extent> rows;
      for (const auto& [begin, count] :
           {std::pair{Extent{0}, keys_}, std::pair{keys_, keys_}, std::pair{2 * keys_, each}})
        for (const Extent row : part(groups_, 2 * keys_ + 2 * each, begin, count)) rows.push_back(row);
      tensors_[name.substr(0, at) + ".attn_qkv.weight"] = rows_of(tensor, rows);
      tensors_[name.substr(0, at) + ".attn_gate.weight"] =
          rows_of(tensor, part(groups_, 2 * keys_ + 2 * each, 2 * keys_ + each, each));
      return;
    }
    if (name.ends_with("ssm_a")) {
      for (float& value : tensor.values) value = static_cast<float>(-std::exp(double{value}));
      tensor = rows_of(tensor, in_turn(1));
    }
    if (name.ends_with("ssm_conv1d.weight")) {
      tensor = rows_of(tensor, in_turn(width_, 2 * of_keys));
      tensor.shape = {tensor.shape[0], tensor.shape[2]};
    }
    if (name.ends_with("ssm_dt.bias") || name.ends_with("ssm_beta.weight") || name.ends_with("ssm_alpha.weight"))
      tensor = rows_of(tensor, in_turn(1));
    if (name.ends_with("attn_gate.weight")) tensor = rows_of(tensor, in_turn(width_));
    if (name.ends_with("attn_qkv.weight")) tensor = rows_of(tensor, in_turn(width_, 2 * of_keys));
    if (name.ends_with("ssm_out.weight")) tensor = turned_over(rows_of(turned_over(tensor), in_turn(width_)));
    if (name.ends_with("ffn_gate_inp_shexp.weight")) tensor.shape = {tensor.shape[1]};
    tensors_[name] = tensor;
  }
  /// Experts one behind another; keys come in their order.
  void put_expert(const std::string& name, std::size_t at, const test::TinyTensor& tensor) {
    const std::string kind = name.find("gate_proj") != name.npos ? "gate"
                             : name.find("up_proj") != name.npos ? "up"
                                                                 : "down";
    test::TinyTensor& all = tensors_[name.substr(0, at) + ".ffn_" + kind + "_exps.weight"];
    all.values.insert(all.values.end(), tensor.values.begin(), tensor.values.end());
    all.shape = {all.shape.rank() == 3 ? all.shape[0] + 1 : 1, tensor.shape[0], tensor.shape[1]};
  }

  const Json c_;
  const bool is_next_;
  const Extent groups_ = c_["linear_num_key_heads"], heads_ = c_["linear_num_value_heads"],
               keys_ = c_["linear_key_head_dim"], width_ = c_["linear_value_head_dim"];
  io::GgufMetadata m_{"delta"};
  std::map<std::string, test::TinyTensor> tensors_;
};

TEST(NewerGguf, FilesOfTheDeltaRuleGiveTheSameLogits) {
  for (const char* name : {"qwen3-next", "qwen3.5", "qwen3.5-moe"}) {
    SCOPED_TRACE(name);
    const TemporaryFolder folder;
    const test::TinyModel model = test::transformers_case(name).model();
    test::put(model, folder);
    DeltaGguf(model).write(folder / "model.gguf");
    expect_near(logits_of(folder / "model.gguf"), logits_of(folder.path()), 5e-4);
  }
}

TEST(NewerGguf, FilesOfLlama4GiveTheSameLogits) {
  test::TransformersCase c = test::transformers_case("llama4");
  // What GGUF has no keys for.
  c.json["config"].update({{"attention_chunk_size", 8192}, {"floor_scale", 8192}, {"attn_scale", 0.1}});
  const test::TinyModel model = c.model();
  const TemporaryFolder folder;
  test::put(model, folder);
  const std::pair<std::string, std::string> names[] = {{"model.embed_tokens", "token_embd"},
                                                       {"model.norm", "output_norm"},
                                                       {"lm_head", "output"},
                                                       {"model.layers.", "blk."},
                                                       {".input_layernorm", ".attn_norm"},
                                                       {".post_attention_layernorm", ".ffn_norm"},
                                                       {".self_attn.q_proj", ".attn_q"},
                                                       {".self_attn.k_proj", ".attn_k"},
                                                       {".self_attn.v_proj", ".attn_v"},
                                                       {".self_attn.o_proj", ".attn_output"},
                                                       {".feed_forward.shared_expert.gate_proj", ".ffn_gate_shexp"},
                                                       {".feed_forward.shared_expert.up_proj", ".ffn_up_shexp"},
                                                       {".feed_forward.shared_expert.down_proj", ".ffn_down_shexp"},
                                                       {".feed_forward.gate_proj", ".ffn_gate"},
                                                       {".feed_forward.up_proj", ".ffn_up"},
                                                       {".feed_forward.down_proj", ".ffn_down"},
                                                       {".feed_forward.router", ".ffn_gate_inp"}};
  std::map<std::string, test::TinyTensor> tensors;
  for (const auto& [key, tensor] : model.tensors) {
    std::string name = key;
    for (const auto& [from, to] : names)
      if (const auto at = name.find(from); at != std::string::npos) name.replace(at, from.size(), to);
    const auto at = name.find(".feed_forward.experts.");
    if (at == std::string::npos) {
      tensors[name] = tensor;
      continue;
    }
    // Each expert's matrices turned over, and gates and ups apart.
    const Extent experts = tensor.shape[0], rows = tensor.shape[1], columns = tensor.shape[2];
    const bool is_down = name.ends_with("down_proj");
    for (Extent e = 0; e < experts; ++e) {
      test::TinyTensor one{{rows, columns}, {}};
      const auto from = tensor.values.begin() + e * rows * columns;
      one.values.assign(from, from + rows * columns);
      one = turned_over(one);
      for (int half = 0; half < (is_down ? 1 : 2); ++half) {
        const char* const part = is_down ? "down" : half == 0 ? "gate" : "up";
        const Extent count = columns / (is_down ? 1 : 2);
        std::vector<Extent> order;
        for (Extent i = 0; i < count; ++i) order.push_back(half * count + i);
        const test::TinyTensor piece = rows_of(one, order);
        test::TinyTensor& all = tensors[name.substr(0, at) + ".ffn_" + part + "_exps.weight"];
        all.values.insert(all.values.end(), piece.values.begin(), piece.values.end());
        all.shape = {experts, count, rows};
      }
    }
  }
  io::GgufMetadata m("llama4");
  m.set("general.architecture", std::string("llama4"));
  const auto set = [&](const char* key, const char* from) {
    m.set(std::string("llama4.") + key, model.config.at(from).get<std::uint32_t>());
  };
  for (const auto& [key, from] : {std::pair("embedding_length", "hidden_size"),
                                  {"block_count", "num_hidden_layers"},
                                  {"context_length", "max_position_embeddings"},
                                  {"feed_forward_length", "intermediate_size_mlp"},
                                  {"attention.head_count", "num_attention_heads"},
                                  {"attention.head_count_kv", "num_key_value_heads"},
                                  {"attention.key_length", "head_dim"},
                                  {"attention.value_length", "head_dim"},
                                  {"expert_count", "num_local_experts"},
                                  {"expert_used_count", "num_experts_per_tok"},
                                  {"expert_feed_forward_length", "intermediate_size"},
                                  {"interleave_moe_layer_step", "interleave_moe_layer_step"}})
    set(key, from);
  m.set("llama4.attention.layer_norm_rms_epsilon", 1e-5f);
  m.set("llama4.rope.freq_base", 5e5f);
  m.set("tokenizer.ggml.model", std::string("llama"));
  std::vector<std::string> words;
  for (int i = 0; i < 48; ++i) words.push_back("w" + std::to_string(i));
  m.set("tokenizer.ggml.tokens", io::GgufArray(words));
  m.set("tokenizer.ggml.scores", io::GgufArray(std::vector<float>(48, 0.0f)));
  m.set("tokenizer.ggml.token_type", io::GgufArray(std::vector<std::int32_t>(48, 1)));
  std::vector<io::GgufTensor> all;
  for (const auto& [name, tensor] : tensors)
    all.push_back({name, tensor.shape, BlockType::f32, std::as_bytes(std::span(tensor.values))});
  io::write_gguf(folder / "model.gguf", m, all);
  expect_near(logits_of(folder / "model.gguf"), logits_of(folder.path()), 2e-5);
}

// The numbers of its activation are lists in the metadata, not tensors.
TEST(NewerGguf, ApertusIsReadAsItsFolder) {
  const TemporaryFolder folder;
  const test::TinyModel model = test::transformers_case("apertus").model();
  test::put(model, folder);
  std::map<std::string, std::vector<float>> numbers;  // by layers, which are in order
  std::map<std::string, test::TinyTensor> tensors;
  for (const auto& [key, tensor] : model.tensors) {
    if (const std::size_t at = key.find("act_fn."); at != std::string::npos) {
      numbers[key.substr(at + 7)].push_back(tensor.values[0]);
      continue;
    }
    std::string name = key;
    const std::pair<std::string, std::string> names[] = {{"model.embed_tokens", "token_embd"},
                                                         {"model.norm", "output_norm"},
                                                         {"lm_head", "output"},
                                                         {"model.layers.", "blk."},
                                                         {".attention_layernorm", ".attn_norm"},
                                                         {".feedforward_layernorm", ".ffn_norm"},
                                                         {".mlp.up_proj", ".ffn_up"},
                                                         {".mlp.down_proj", ".ffn_down"},
                                                         {".self_attn.q_norm", ".attn_q_norm"},
                                                         {".self_attn.k_norm", ".attn_k_norm"},
                                                         {".self_attn.q_proj", ".attn_q"},
                                                         {".self_attn.k_proj", ".attn_k"},
                                                         {".self_attn.v_proj", ".attn_v"},
                                                         {".self_attn.o_proj", ".attn_output"}};
    for (const auto& [from, to] : names)
      if (const std::size_t at = name.find(from); at != std::string::npos) name.replace(at, from.size(), to);
    tensors[name] = tensor;
  }
  const Json& config = model.config;
  io::GgufMetadata m("apertus");
  m.set("general.architecture", std::string("apertus"));
  for (const auto& [key, from] : {std::pair("embedding_length", "hidden_size"),
                                  {"block_count", "num_hidden_layers"},
                                  {"context_length", "max_position_embeddings"},
                                  {"feed_forward_length", "intermediate_size"},
                                  {"attention.head_count", "num_attention_heads"},
                                  {"attention.head_count_kv", "num_key_value_heads"},
                                  {"attention.key_length", "head_dim"},
                                  {"attention.value_length", "head_dim"}})
    m.set(std::string("apertus.") + key, config.at(from).get<std::uint32_t>());
  m.set("apertus.attention.layer_norm_rms_epsilon", config.at("rms_norm_eps").get<float>());
  m.set("apertus.rope.freq_base", config.at("rope_parameters").at("rope_theta").get<float>());
  for (const auto& [name, list] : numbers) m.set("xielu." + name, io::GgufArray(list));
  m.set("tokenizer.ggml.model", std::string("llama"));
  std::vector<std::string> words;
  for (int i = 0; i < 48; ++i) words.push_back("w" + std::to_string(i));
  m.set("tokenizer.ggml.tokens", io::GgufArray(words));
  m.set("tokenizer.ggml.scores", io::GgufArray(std::vector<float>(48, 0.0f)));
  m.set("tokenizer.ggml.token_type", io::GgufArray(std::vector<std::int32_t>(48, 1)));
  const std::vector<double> slowing = slowing_of(config_from_json(config, "apertus"));
  tensors["rope_freqs.weight"] = {{static_cast<Extent>(slowing.size())}, {slowing.begin(), slowing.end()}};
  std::vector<io::GgufTensor> all;
  for (const auto& [name, tensor] : tensors)
    all.push_back({name, tensor.shape, BlockType::f32, std::as_bytes(std::span(tensor.values))});
  io::write_gguf(folder / "model.gguf", m, all);
  expect_near(logits_of(folder / "model.gguf"), logits_of(folder.path()), 2e-5);
}

}  // namespace
}  // namespace weft::llm::newer_gguf
