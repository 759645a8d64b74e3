// Hybrids of states and attention in GGUF files, as llama.cpp's converter writes them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/message_of.hpp"
#include "io/gguf.hpp"
#include "llm/transformers_cases.hpp"
#include "weft/error.hpp"
#include "weft/llm.hpp"

namespace weft::llm::hybrid_gguf {
namespace {

using test::TemporaryFolder;
using test::TinyTensor;

TinyTensor times(TinyTensor tensor, double factor) {
  for (float& value : tensor.values) value = static_cast<float>(value * factor);
  return tensor;
}
/// Rows [begin, begin + count) of the matrix, or of each of several matrices.
TinyTensor some_rows(const TinyTensor& tensor, Extent begin, Extent count) {
  const int at = tensor.shape.rank() - 2;
  const Extent rows = tensor.shape[at], columns = tensor.shape[at + 1], groups = at == 1 ? tensor.shape[0] : 1;
  TinyTensor made = tensor;
  made.shape[at] = count;
  made.values.clear();
  for (Extent g = 0; g < groups; ++g) {
    const auto from = tensor.values.begin() + (g * rows + begin) * columns;
    made.values.insert(made.values.end(), from, from + count * columns);
  }
  return made;
}

class HybridGguf {
 public:
  HybridGguf(const test::TinyModel& model, std::string kind) : c_(model.config), kind_(std::move(kind)) {
    for (const auto& [key, tensor] : model.tensors) put(key, tensor);
    m_.set("general.architecture", kind_);
    set("embedding_length", c_["hidden_size"]);
    set("context_length", c_["max_position_embeddings"]);
    set("attention.head_count", c_["num_attention_heads"]);
    set("ssm.conv_kernel", c_.value("mamba_d_conv", c_.value("conv_kernel", 4)));
    set("ssm.state_size", c_.value("mamba_d_state", c_.value("ssm_state_size", 0)));
    m_.set(kind_ + ".attention.layer_norm_rms_epsilon", c_.value("rms_norm_eps", c_.value("layer_norm_epsilon", 0.0f)));
    m_.set("tokenizer.ggml.model", std::string("llama"));
    std::vector<std::string> tokens;
    for (int i = 0; i < 48; ++i) tokens.push_back("w" + std::to_string(i));
    m_.set("tokenizer.ggml.tokens", io::GgufArray(tokens));
    m_.set("tokenizer.ggml.scores", io::GgufArray(std::vector<float>(48, 0.0f)));
    m_.set("tokenizer.ggml.token_type", io::GgufArray(std::vector<std::int32_t>(48, 1)));
    describe();
  }
  void write(const std::filesystem::path& file) const {
    std::vector<io::GgufTensor> all;
    for (const auto& [name, tensor] : tensors_)
      all.push_back({name, tensor.shape, BlockType::f32, std::as_bytes(std::span(tensor.values))});
    io::write_gguf(file, m_, all);
  }
  io::GgufMetadata& metadata() { return m_; }

 private:
  void set(const char* key, Extent value) { m_.set(kind_ + "." + key, static_cast<std::uint32_t>(value)); }
  void set_list(const char* key, const std::vector<std::int32_t>& list) {
    m_.set(kind_ + "." + key, io::GgufArray(list));
  }

  void describe() {
    const Extent hidden = c_["hidden_size"], layers = c_.contains("num_hidden_layers")
                                                          ? c_["num_hidden_layers"].get<Extent>()
                                                          : static_cast<Extent>(c_["layers_block_type"].size());
    const std::int32_t keys = c_["num_key_value_heads"], width = c_["intermediate_size"];
    set("block_count", layers);
    std::vector<std::int32_t> heads, widths;
    for (Extent i = 0; i < layers; ++i) {
      const auto at = static_cast<std::size_t>(i);
      const std::string type = kind_ == "jamba"        ? (i % 2 == 1 ? "full_attention" : "linear_attention")
                               : kind_ == "nemotron_h" ? c_["layers_block_type"][at].get<std::string>()
                               : kind_ == "falcon-h1"  ? std::string("full_attention")
                                                       : c_["layer_types"][at].get<std::string>();
      heads.push_back(type == "full_attention" ? keys : 0);
      widths.push_back(type == "mlp" ? width : 0);
    }
    set_list("attention.head_count_kv", heads);
    if (kind_ == "nemotron_h")
      set_list("feed_forward_length", widths);
    else
      set("feed_forward_length", width);
    if (c_.contains("head_dim")) {
      set("attention.key_length", c_["head_dim"]);
      set("attention.value_length", c_["head_dim"]);
    }
    if (kind_ == "jamba") {
      set("ssm.inner_size", 2 * hidden);
      set("ssm.time_step_rank", c_["mamba_dt_rank"]);
      set("expert_count", c_["num_experts"]);
    } else {
      const bool is_nemotron = kind_ == "nemotron_h";
      const Extent count = c_[is_nemotron ? "mamba_num_heads" : "mamba_n_heads"],
                   each = c_[is_nemotron ? "mamba_head_dim" : "mamba_d_head"];
      set("ssm.inner_size", count * each);
      set("ssm.time_step_rank", count);
      set("ssm.group_count", c_[is_nemotron ? "n_groups" : "mamba_n_groups"]);
    }
    if (kind_ == "jamba" || kind_ == "granitehybrid") set("expert_used_count", c_["num_experts_per_tok"]);
    if (kind_ != "granitehybrid") return;
    set("expert_count", c_["num_local_experts"]);
    set("expert_shared_feed_forward_length", c_["shared_intermediate_size"]);
    for (const auto& [key, from] : {std::pair("embedding_scale", "embedding_multiplier"),
                                    {"residual_scale", "residual_multiplier"},
                                    {"attention.scale", "attention_multiplier"},
                                    {"logit_scale", "logits_scaling"}})
      m_.set(kind_ + "." + key, c_[from].get<float>());
    m_.set(kind_ + ".rope.scaling.finetuned", false);
  }

  std::string renamed(std::string name) const {
    const std::pair<std::string, std::string> names[] = {{"model.embed_tokens", "token_embd"},
                                                         {"backbone.embeddings", "token_embd"},
                                                         {"model.norm.", "output_norm."},
                                                         {"model.final_layernorm", "output_norm"},
                                                         {"backbone.norm_f", "output_norm"},
                                                         {"lm_head", "output"},
                                                         {"model.layers.", "blk."},
                                                         {"backbone.layers.", "blk."},
                                                         {".input_layernorm", ".attn_norm"},
                                                         {".pre_ff_layernorm", ".ffn_norm"},
                                                         {".post_attention_layernorm", ".ffn_norm"},
                                                         {".self_attn.q_proj", ".attn_q"},
                                                         {".self_attn.k_proj", ".attn_k"},
                                                         {".self_attn.v_proj", ".attn_v"},
                                                         {".self_attn.o_proj", ".attn_output"},
                                                         {".mixer.q_proj", ".attn_q"},
                                                         {".mixer.k_proj", ".attn_k"},
                                                         {".mixer.v_proj", ".attn_v"},
                                                         {".mixer.o_proj", ".attn_output"},
                                                         {".mixer.up_proj", ".ffn_up"},
                                                         {".mixer.down_proj", ".ffn_down"},
                                                         {".mixer.", ".mamba."},
                                                         {".mamba.in_proj", ".ssm_in"},
                                                         {".mamba.out_proj", ".ssm_out"},
                                                         {".mamba.conv1d", ".ssm_conv1d"},
                                                         {".mamba.x_proj", ".ssm_x"},
                                                         {".mamba.dt_proj", ".ssm_dt"},
                                                         {".mamba.dt_bias", ".ssm_dt.bias"},
                                                         {".mamba.A_log", ".ssm_a"},
                                                         {".mamba.D", ".ssm_d"},
                                                         {".mamba.norm", ".ssm_norm"},
                                                         {".mamba.dt_layernorm", ".ssm_dt_norm"},
                                                         {".mamba.b_layernorm", ".ssm_b_norm"},
                                                         {".mamba.c_layernorm", ".ssm_c_norm"},
                                                         {".norm.", ".attn_norm."},
                                                         {".feed_forward.gate_proj", ".ffn_gate"},
                                                         {".feed_forward.up_proj", ".ffn_up"},
                                                         {".feed_forward.down_proj", ".ffn_down"},
                                                         {".feed_forward.router", ".ffn_gate_inp"},
                                                         {".block_sparse_moe.router.layer", ".ffn_gate_inp"},
                                                         {".block_sparse_moe.output_linear", ".ffn_down_exps"},
                                                         {".shared_mlp.output_linear", ".ffn_down_shexp"}};
    for (const auto& [from, to] : names)
      if (const auto at = name.find(from); at != std::string::npos) name.replace(at, from.size(), to);
    return name;
  }

  void put(const std::string& key, TinyTensor tensor) {
    const std::string name = renamed(key);
    if (const auto at = name.find(".feed_forward.experts."); at != std::string::npos) {
      const std::string part = name.find("gate") != name.npos ? "gate" : name.find("up_") != name.npos ? "up" : "down";
      TinyTensor& all = tensors_[name.substr(0, at) + ".ffn_" + part + "_exps.weight"];
      all.values.insert(all.values.end(), tensor.values.begin(), tensor.values.end());
      all.shape = {all.shape.rank() == 3 ? all.shape[0] + 1 : 1, tensor.shape[0], tensor.shape[1]};
      return;
    }
    for (const auto& [from, kind] :
         {std::pair(".block_sparse_moe.input_linear", "_exps"), {".shared_mlp.input_linear", "_shexp"}})
      if (const auto at = name.find(from); at != std::string::npos) {
        const Extent half = tensor.shape[tensor.shape.rank() - 2] / 2;
        tensors_[name.substr(0, at) + ".ffn_gate" + kind + ".weight"] = some_rows(tensor, 0, half);
        tensors_[name.substr(0, at) + ".ffn_up" + kind + ".weight"] = some_rows(tensor, half, half);
        return;
      }
    const Extent first = tensor.shape[0];
    if (name.ends_with("ssm_conv1d.weight")) tensor.shape = {first, tensor.shape[2]};
    if (name.ends_with("ssm_a"))
      for (float& value : tensor.values) value = static_cast<float>(-std::exp(double{value}));
    if (kind_ != "jamba") {
      if (name.ends_with("ssm_a") || name.ends_with("ssm_d")) tensor.shape = {first, 1};
      const Extent groups = c_.value("n_groups", c_.value("mamba_n_groups", 1));
      if (name.ends_with("ssm_norm.weight")) tensor.shape = {groups, first / groups};
    }
    if (kind_ == "falcon-h1" && name.ends_with("ffn_norm.weight"))  // as llama.cpp has it
      tensors_[name.substr(0, name.rfind('.'))] = tensor;
    else
      tensors_[name] = kind_ == "falcon-h1" ? with_factors(name, std::move(tensor)) : tensor;
  }
  /// Falcon-H1's factors go into the weights.
  TinyTensor with_factors(const std::string& name, TinyTensor tensor) const {
    const auto number = [&](const char* key) { return c_[key].get<double>(); };
    if (name == "token_embd.weight") return times(tensor, number("embedding_multiplier"));
    if (name == "output.weight") return times(tensor, number("lm_head_multiplier"));
    if (name.ends_with("ffn_gate.weight")) return times(tensor, c_["mlp_multipliers"][0].get<double>());
    if (name.ends_with("ffn_down.weight")) return times(tensor, c_["mlp_multipliers"][1].get<double>());
    if (name.ends_with("attn_q.weight") || name.ends_with("attn_v.weight"))
      return times(tensor, number("attention_in_multiplier"));
    if (name.ends_with("attn_k.weight"))
      return times(tensor, number("attention_in_multiplier") * number("key_multiplier"));
    if (name.ends_with("attn_output.weight")) return times(tensor, number("attention_out_multiplier"));
    if (name.ends_with("ssm_out.weight")) return times(tensor, number("ssm_out_multiplier"));
    if (!name.ends_with("ssm_in.weight")) return tensor;
    const Extent inner = c_["mamba_d_ssm"],
                 shared = c_["mamba_n_groups"].get<Extent>() * c_["mamba_d_state"].get<Extent>();
    Extent row = 0;
    const Extent parts[] = {inner, inner, shared, shared, c_["mamba_n_heads"]};
    for (std::size_t part = 0; part < 5; ++part)
      for (Extent i = 0; i < parts[part]; ++i, ++row)
        for (Extent k = 0; k < tensor.shape[1]; ++k)
          tensor.values[static_cast<std::size_t>(row * tensor.shape[1] + k)] *=
              static_cast<float>(number("ssm_in_multiplier") * c_["ssm_multipliers"][part].get<double>());
    return tensor;
  }

  const Json c_;
  const std::string kind_;
  io::GgufMetadata m_{"hybrid"};
  std::map<std::string, TinyTensor> tensors_;
};

std::vector<float> logits_of(const std::filesystem::path& path) {
  std::vector<std::int32_t> tokens;
  for (int i = 0; i < 30; ++i) tokens.push_back((i * 11 + 3) % 48);
  return load(path, {.context = 64}).forward(tokens);
}

TEST(HybridGguf, FilesGiveTheSameLogits) {
  for (const auto& [name, kind] : {std::pair("jamba", "jamba"),
                                   {"granite-moe-hybrid", "granitehybrid"},
                                   {"falcon-h1-without-norm", "falcon-h1"},
                                   {"nemotron-h", "nemotron_h"}}) {
    SCOPED_TRACE(name);
    const TemporaryFolder folder;
    test::TinyModel model = test::transformers_case(name).model();
    if (name == std::string("falcon-h1-without-norm")) {  // GGUF has no place for factors of biases
      for (auto it = model.tensors.begin(); it != model.tensors.end();)
        it = it->first.ends_with(".bias") && it->first.find("conv1d") == std::string::npos ? model.tensors.erase(it)
                                                                                           : std::next(it);
      model.config["tie_word_embeddings"] = false;
      model.tensors["lm_head.weight"] = model.tensors.at("model.embed_tokens.weight");
    }
    test::put(model, folder);
    HybridGguf(model, kind).write(folder / "model.gguf");
    const std::vector<float> wanted = logits_of(folder.path()), found = logits_of(folder / "model.gguf");
    ASSERT_EQ(found.size(), wanted.size());
    for (std::size_t i = 0; i < wanted.size(); ++i) ASSERT_NEAR(found[i], wanted[i], 3e-5) << i;
  }
}

TEST(HybridGguf, ListsThatDoNotFitAreRefused) {
  const test::TinyModel model = test::transformers_case("jamba").model();
  const auto error = [&](const std::vector<std::int32_t>& heads) {
    const TemporaryFolder folder;
    HybridGguf file(model, "jamba");
    file.metadata().set("jamba.attention.head_count_kv", io::GgufArray(heads));
    file.write(folder / "model.gguf");
    return test::message_of<FileError>([&] { (void)load(folder / "model.gguf", {.context = 64}); });
  };
  EXPECT_NE(error({0, 2}).find("jamba.attention.head_count_kv has 2 numbers for 4 layers"), std::string::npos);
  EXPECT_NE(error({0, 2, 0, 4}).find("jamba.attention.head_count_kv has 2 and 4; Weft takes layers of one size"),
            std::string::npos);
}

}  // namespace
}  // namespace weft::llm::hybrid_gguf
