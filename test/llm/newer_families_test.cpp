// The families of 2025 beyond the logits of transformers_test.cpp: texts in pieces, batches, caches of every type, GGUF files, and
// settings that are refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/message_of.hpp"
#include "io/gguf.hpp"
#include "llm/transformers_cases.hpp"
#include "weft/error.hpp"
#include "weft/llm.hpp"

namespace weft::llm::newer {
namespace {

using test::message_of;
using test::TemporaryFolder;

const char* const kNewer[] = {"qwen3-next",   "qwen3.5",       "qwen3.5-moe",  "glm4-moe",
                              "ernie4_5-moe", "hunyuan-dense", "hunyuan-moe",  "falcon-h1",
                              "nemotron-h",   "jamba",         "falcon-mamba", "granite-moe-hybrid",
                              "minimax-m2",   "apertus",       "ministral3",   "llama4"};

std::vector<std::int32_t> text_of(std::size_t count, std::size_t step) {
  std::vector<std::int32_t> tokens;
  for (std::size_t i = 0; i < count; ++i) tokens.push_back(static_cast<std::int32_t>((i * step + 3 * (i % 5)) % 48));
  return tokens;
}
GenerateOptions greedily(Extent tokens) { return {.max_tokens = tokens, .sampling = {.temperature = 0}}; }
std::vector<std::int32_t> ids_of(const Result& result) {
  std::vector<std::int32_t> ids;
  for (const GeneratedToken& token : result.tokens) ids.push_back(token.id);
  return ids;
}
double apart(const std::vector<float>& a, const std::vector<float>& b) {
  double worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i) worst = std::max(worst, std::abs(double{a[i]} - double{b[i]}));
  return worst;
}

TEST(NewerFamilies, TokensOneByOneGiveWhatWholeTextsGive) {
  for (const char* name : kNewer) {
    SCOPED_TRACE(name);
    test::TransformersCase c = test::transformers_case(name);
    c.json["config"]["max_position_embeddings"] = 512;
    const TemporaryFolder folder;
    test::put(c.model(), folder);
    const Model model = load(folder.path(), {.context = 512});
    // Passes of 256 and 44 tokens, and then single ones.
    std::vector<std::int32_t> text = text_of(300, 29);
    const std::vector<std::int32_t> made = ids_of(model.generate(text, greedily(20)).result());
    ASSERT_EQ(made.size(), 20u);
    text.insert(text.end(), made.begin(), made.end());
    const std::vector<float> logits = model.forward(text);
    for (std::size_t t = 0; t < made.size(); ++t) {
      const float* row = logits.data() + (299 + t) * 48;
      EXPECT_EQ(std::max_element(row, row + 48) - row, made[t]) << t;
    }
  }
}

TEST(NewerFamilies, BatchesGiveTheTextsOfEachPromptAlone) {
  for (const char* name : kNewer) {
    SCOPED_TRACE(name);
    const TemporaryFolder folder;
    test::put(test::transformers_case(name).model(), folder);
    const Model model = load(folder.path(), {.context = 64, .sequences = 3}),
                alone = load(folder.path(), {.context = 64});
    Batch batch(model);
    std::vector<std::vector<std::int32_t>> prompts = {text_of(9, 7), text_of(1, 5), text_of(21, 11)};
    std::vector<Batch::Id> ids;
    for (const auto& prompt : prompts) ids.push_back(batch.add(prompt, greedily(8)));
    for (int i = 0; i < 12; ++i) (void)batch.step();
    for (std::size_t i = 0; i < prompts.size(); ++i)
      EXPECT_EQ(ids_of(batch.result(ids[i])), ids_of(alone.generate(prompts[i], greedily(8)).result())) << i;
  }
}

TEST(NewerFamilies, CachesOfEveryTypeGiveNearlyTheSameLogits) {
  for (const char* name : kNewer) {
    SCOPED_TRACE(name);
    const test::TransformersCase c = test::transformers_case(name);
    const TemporaryFolder folder;
    test::put(c.model(), folder);
    const std::vector<std::int32_t> text = text_of(40, 11);
    const std::vector<float> exact = load(folder.path(), {.context = 64}).forward(text);
    EXPECT_LT(apart(load(folder.path(), {.context = 64, .cache = CacheType::f16}).forward(text), exact), 0.02);
    const Json& config = c.json["config"];
    const Extent heads = config.value("num_key_value_heads", 0), width = config.value("head_dim", 0);
    if (heads > 0 && width > 0 && width % 32 == 0) {
      EXPECT_LT(apart(load(folder.path(), {.context = 64, .cache = CacheType::q8}).forward(text), exact), 0.3);
    }
  }
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

TEST(NewerFamilies, GgufFilesOfTheDeltaRuleGiveTheSameLogits) {
  for (const char* name : {"qwen3-next", "qwen3.5", "qwen3.5-moe"}) {
    SCOPED_TRACE(name);
    const TemporaryFolder folder;
    const test::TinyModel model = test::transformers_case(name).model();
    test::put(model, folder);
    DeltaGguf(model).write(folder / "model.gguf");
    const std::vector<std::int32_t> text = text_of(30, 11);
    const std::vector<float> wanted = load(folder.path(), {.context = 64}).forward(text);
    EXPECT_LT(apart(load(folder / "model.gguf", {.context = 64}).forward(text), wanted), 5e-4);
  }
}

// Files of Qwen3.5 have the gates and ups of all experts in one tensor.
TEST(NewerFamilies, ExpertsInOneTensorAreThoseApart) {
  test::TinyModel model = test::transformers_case("qwen3.5-moe").model();
  const TemporaryFolder apart_folder, joined_folder;
  test::put(model, apart_folder);
  const Extent experts = model.config["num_experts"];
  for (Extent layer = 0; layer < model.config["num_hidden_layers"].get<Extent>(); ++layer) {
    const std::string prefix = "model.layers." + std::to_string(layer) + ".mlp.experts.";
    test::TinyTensor both, down;
    for (Extent e = 0; e < experts; ++e) {
      const auto take = [&](const char* part, test::TinyTensor& to) {
        const auto found = model.tensors.find(prefix + std::to_string(e) + "." + part + "_proj.weight");
        to.values.insert(to.values.end(), found->second.values.begin(), found->second.values.end());
        const Shape shape = found->second.shape;
        model.tensors.erase(found);
        return shape;
      };
      const Shape gate = take("gate", both);
      (void)take("up", both);
      both.shape = {experts, 2 * gate[0], gate[1]};
      const Shape back = take("down", down);
      down.shape = {experts, back[0], back[1]};
    }
    model.tensors[prefix + "gate_up_proj"] = both;
    model.tensors[prefix + "down_proj"] = down;
  }
  test::put(model, joined_folder);
  const std::vector<std::int32_t> text = text_of(30, 11);
  EXPECT_EQ(load(joined_folder.path(), {.context = 64}).forward(text),
            load(apart_folder.path(), {.context = 64}).forward(text));
}

TEST(NewerFamilies, BadSettingsAreRefused) {
  struct Case {
    const char* name;
    Json changes;
    const char* part;
  };
  const Case cases[] = {
      {"qwen3-next", {{"linear_num_value_heads", 5}}, "2 groups do not divide 5 heads"},
      {"qwen3-next",
       {{"layer_types", nullptr}, {"full_attention_interval", 0}},
       "full_attention_interval is 0; it must be above 0"},
      {"qwen3-next",
       {{"layer_types", {"full_attention", "sliding", "full_attention", "full_attention"}}},
       "has \"sliding\"; known are"},
      {"glm4-moe", {{"n_group", 4}}, "2 experts of a token are chosen in 1 of 4 groups of 6 experts"},
      {"ernie4_5-moe", {{"moe_layer_interval", 0}}, "moe_layer_interval is 0; it must be above 0"},
      {"hunyuan-moe", {{"moe_topk", {2, 1, 2}}}, "moe_topk differs from layer to layer"},
      {"hunyuan-dense-alpha",
       {{"rope_parameters", {{"rope_type", "dynamic"}, {"factor", 2.0}}}},
       "rope_type is \"dynamic\""},
      {"minimax-m2", {{"scoring_func", "softmax"}}, "scoring_func is not \"sigmoid\""},
      {"jamba", {{"attn_layer_period", 0}}, "attn_layer_period is 0; it must be above 0"},
      {"jamba", {{"expert_layer_period", 0}}, "expert_layer_period is 0; it must be above 0"},
      {"nemotron-h",
       {{"layers_block_type", {"mamba", "moe", "attention", "mlp", "mamba"}}},
       "has \"moe\"; Weft runs Nemotron-H of layers"},
      {"falcon-h1", {{"ssm_multipliers", {1.0, 2.0}}}, "ssm_multipliers is not a list of 5 numbers"},
      {"apertus", {{"hidden_act", "silu"}}, "hidden_act is \"silu\", and Weft runs Apertus with xielu"},
      {"llama4", {{"moe_layers", {1, 7}}}, "moe_layers names the layer 7 of 4"},
  };
  for (const Case& each : cases) {
    test::TransformersCase c = test::transformers_case(each.name);
    c.json["config"].update(each.changes);
    const TemporaryFolder folder;
    test::put(c.model(), folder);
    const std::string message = message_of<FileError>([&] { (void)load(folder.path(), {.context = 64}); });
    EXPECT_NE(message.find(each.part), std::string::npos) << each.name << ": " << message;
  }
}

/// WEFT_DEVICE names a GPU: prompts, and tokens one by one.
TEST(NewerFamilies, ADeviceGivesWhatTheCpuGives) {
  const Device device = default_device();
  if (device.kind == Device::Kind::cpu) GTEST_SKIP() << "WEFT_DEVICE names no GPU";
  for (const char* name : {"qwen3.5", "llama4"}) {
    SCOPED_TRACE(name);
    const TemporaryFolder folder;
    test::put(test::transformers_case(name).model(), folder);
    const Model there = load(folder.path(), {.context = 64, .device = device}),
                here = load(folder.path(), {.context = 64, .device = kCpu});
    const std::vector<std::int32_t> text = text_of(12, 11);
    EXPECT_LT(apart(there.forward(text), here.forward(text)), 2e-4);
    EXPECT_EQ(ids_of(there.generate(text, greedily(3)).result()), ids_of(here.generate(text, greedily(3)).result()));
  }
}

}  // namespace
}  // namespace weft::llm::newer
