// Decoders written out plainly in f64, token by token, from the keys of config.json and the tensors' names in such
// folders. Shares nothing with the code under test.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "llm/tiny_model.hpp"

namespace weft::test {

using Row = std::vector<double>;

class ReferenceModel {
 public:
  explicit ReferenceModel(const TinyModel& model) : model_(model), c_(model.config) {}

  /// Logits after each token.
  std::vector<Row> forward(const std::vector<std::int32_t>& tokens) {
    return c_["model_type"] == "gpt2" ? gpt2(tokens) : decoder(tokens);
  }

 private:
  const TinyTensor& at(const std::string& name) const { return model_.tensors.at(name); }

  /// W x, W [out, in].
  Row times(const std::string& name, const Row& x, Extent begin = 0, Extent count = -1) const {
    const TinyTensor& w = at(name);
    if (count < 0) count = w.shape[0];
    Row y(static_cast<std::size_t>(count), 0.0);
    for (Extent o = 0; o < count; ++o)
      for (std::size_t i = 0; i < x.size(); ++i)
        y[static_cast<std::size_t>(o)] += w.values[static_cast<std::size_t>(begin + o) * x.size() + i] * x[i];
    return y;
  }
  void add(Row& x, const Row& y) const {
    for (std::size_t i = 0; i < x.size(); ++i) x[i] += y[i];
  }
  void add_bias(Row& x, const std::string& name) const {
    for (std::size_t i = 0; i < x.size(); ++i) x[i] += at(name).values[i];
  }
  Row rms(const std::string& name, const Row& x, std::size_t part = 0) const {
    if (part == 0) part = x.size();
    const double one = c_["model_type"].get<std::string>().starts_with("gemma") ? 1 : 0, eps = c_["rms_norm_eps"];
    Row y(x.size());
    for (std::size_t begin = 0; begin < x.size(); begin += part) {
      double squares = 0;
      for (std::size_t i = 0; i < part; ++i) squares += x[begin + i] * x[begin + i];
      for (std::size_t i = 0; i < part; ++i)
        y[begin + i] = x[begin + i] / std::sqrt(squares / static_cast<double>(part) + eps) * (at(name).values[i] + one);
    }
    return y;
  }
  static double silu(double x) { return x / (1 + std::exp(-x)); }
  static double gelu_tanh(double x) {
    return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
  }

  /// Turns each head in halves.
  void turn(Row& x, std::size_t heads, Extent position, bool local) const {
    const std::size_t width = x.size() / heads;
    const double partial = c_.value("partial_rotary_factor", 1.0);
    const auto dims = static_cast<std::size_t>(std::lround(partial * static_cast<double>(width)));
    const bool gemma3 = c_["model_type"] == "gemma3_text";
    const double base = gemma3 && local ? c_["rope_local_base_freq"].get<double>() : c_["rope_theta"].get<double>();
    double magnitude = 1;
    for (std::size_t h = 0; h < heads; ++h)
      for (std::size_t d = 0; d < dims / 2; ++d) {
        double f = std::pow(base, -2.0 * static_cast<double>(d) / static_cast<double>(dims));
        if (c_.contains("rope_scaling") && !(gemma3 && local)) {
          const Json& s = c_["rope_scaling"];
          const std::string kind = s.contains("rope_type") ? s["rope_type"] : s["type"];
          if (kind == "linear") f /= s["factor"].get<double>();
          if (kind == "llama3") {
            const double factor = s["factor"], low = s["low_freq_factor"], high = s["high_freq_factor"],
                         original = s["original_max_position_embeddings"], wave = 2 * M_PI / f;
            const double smooth = std::clamp((original / wave - low) / (high - low), 0.0, 1.0);
            f = (1 - smooth) * f / factor + smooth * f;
          }
          if (kind == "longrope") {  // the test's text is longer than the original context
            f /= s["long_factor"][d].get<double>();
            const double context = c_["max_position_embeddings"], original = c_["original_max_position_embeddings"];
            magnitude = std::sqrt(1 + std::log(context / original) / std::log(original));
          }
        }
        double &a = x[h * width + d], &b = x[h * width + d + dims / 2];
        const double angle = static_cast<double>(position) * f, cosine = magnitude * std::cos(angle),
                     sine = magnitude * std::sin(angle);
        const double turned = a * cosine - b * sine;
        b = b * cosine + a * sine;
        a = turned;
      }
  }

  /// Attention of position t over what was seen.
  Row attend(const Row& q, const std::vector<Row>& keys, const std::vector<Row>& values, std::size_t heads,
             std::size_t kv, double scale, Extent window, double cap) const {
    const std::size_t width = q.size() / heads, t = keys.size() - 1;
    const std::size_t begin =
        window > 0 && t + 1 > static_cast<std::size_t>(window) ? t + 1 - static_cast<std::size_t>(window) : 0;
    Row out(q.size(), 0.0);
    for (std::size_t h = 0; h < heads; ++h) {
      const std::size_t g = h / (heads / kv);
      Row weights;
      double total = 0;
      for (std::size_t j = begin; j <= t; ++j) {
        double score = 0;
        for (std::size_t d = 0; d < width; ++d) score += q[h * width + d] * keys[j][g * width + d];
        score *= scale;
        if (cap > 0) score = cap * std::tanh(score / cap);
        weights.push_back(std::exp(score));
        total += weights.back();
      }
      for (std::size_t j = begin; j <= t; ++j)
        for (std::size_t d = 0; d < width; ++d)
          out[h * width + d] += weights[j - begin] / total * values[j][g * width + d];
    }
    return out;
  }

  std::vector<Row> decoder(const std::vector<std::int32_t>& tokens) {
    const std::string type = c_["model_type"];
    const Extent hidden = c_["hidden_size"], heads = c_["num_attention_heads"], kv = c_["num_key_value_heads"],
                 dim = c_.value("head_dim", hidden / heads), wide = c_["intermediate_size"];
    const int layers = c_["num_hidden_layers"];
    const bool gemma = type.starts_with("gemma"), after = type == "gemma2" || type == "gemma3_text";
    std::vector<std::vector<Row>> keys(static_cast<std::size_t>(layers)), values = keys;
    std::vector<Row> logits;
    for (std::size_t t = 0; t < tokens.size(); ++t) {
      Row x;
      for (Extent i = 0; i < hidden; ++i)
        x.push_back(at("model.embed_tokens.weight").values[static_cast<std::size_t>(tokens[t] * hidden + i)] *
                    (gemma ? std::sqrt(static_cast<double>(hidden)) : 1));
      for (int i = 0; i < layers; ++i) {
        const std::string l = "model.layers." + std::to_string(i) + ".";
        const Row h = rms(l + "input_layernorm.weight", x);
        Row q, k, v;
        if (type == "phi3") {
          const std::string w = l + "self_attn.qkv_proj.weight";
          q = times(w, h, 0, heads * dim);
          k = times(w, h, heads * dim, kv * dim);
          v = times(w, h, (heads + kv) * dim, kv * dim);
        } else {
          q = times(l + "self_attn.q_proj.weight", h);
          k = times(l + "self_attn.k_proj.weight", h);
          v = times(l + "self_attn.v_proj.weight", h);
        }
        if (type == "qwen2")
          add_bias(q, l + "self_attn.q_proj.bias"), add_bias(k, l + "self_attn.k_proj.bias"),
              add_bias(v, l + "self_attn.v_proj.bias");
        if (type == "qwen3" || type == "gemma3_text") {
          q = rms(l + "self_attn.q_norm.weight", q, static_cast<std::size_t>(dim));
          k = rms(l + "self_attn.k_norm.weight", k, static_cast<std::size_t>(dim));
        }
        bool local = type == "mistral";
        if (type == "gemma2") local = i % 2 == 0;
        if (type == "gemma3_text") local = (i + 1) % c_["sliding_window_pattern"].get<int>() != 0;
        const bool turns = type != "smollm3" || (i + 1) % c_["no_rope_layer_interval"].get<int>() != 0;
        if (turns) {
          turn(q, static_cast<std::size_t>(heads), static_cast<Extent>(t), local);
          turn(k, static_cast<std::size_t>(kv), static_cast<Extent>(t), local);
        }
        auto &ks = keys[static_cast<std::size_t>(i)], &vs = values[static_cast<std::size_t>(i)];
        ks.push_back(k);
        vs.push_back(v);
        const double scale = 1 / std::sqrt(c_.value("query_pre_attn_scalar", static_cast<double>(dim)));
        Row a = attend(q, ks, vs, static_cast<std::size_t>(heads), static_cast<std::size_t>(kv), scale,
                       local ? c_["sliding_window"].get<Extent>() : 0, c_.value("attn_logit_softcapping", 0.0));
        a = times(l + "self_attn.o_proj.weight", a);
        if (after) a = rms(l + "post_attention_layernorm.weight", a);
        add(x, a);
        const Row m = rms(l + (after ? "pre_feedforward_layernorm.weight" : "post_attention_layernorm.weight"), x);
        Row y;
        if (type == "mixtral") {
          y = experts(l, m);
        } else {
          const bool fused = type == "phi3";
          Row gate = fused ? times(l + "mlp.gate_up_proj.weight", m, 0, wide) : times(l + "mlp.gate_proj.weight", m);
          const Row up =
              fused ? times(l + "mlp.gate_up_proj.weight", m, wide, wide) : times(l + "mlp.up_proj.weight", m);
          for (std::size_t j = 0; j < gate.size(); ++j) gate[j] = (gemma ? gelu_tanh(gate[j]) : silu(gate[j])) * up[j];
          y = times(l + "mlp.down_proj.weight", gate);
        }
        if (after) y = rms(l + "post_feedforward_layernorm.weight", y);
        add(x, y);
      }
      x = rms("model.norm.weight", x);
      Row out = times(c_["tie_word_embeddings"] ? "model.embed_tokens.weight" : "lm_head.weight", x);
      if (const double cap = c_.value("final_logit_softcapping", 0.0); cap > 0)
        for (double& y : out) y = cap * std::tanh(y / cap);
      logits.push_back(std::move(out));
    }
    return logits;
  }

  Row experts(const std::string& l, const Row& x) const {
    const Row scores = times(l + "block_sparse_moe.gate.weight", x);
    std::vector<std::size_t> order(scores.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return scores[a] > scores[b]; });
    order.resize(c_["num_experts_per_tok"].get<std::size_t>());
    double total = 0;
    for (const std::size_t e : order) total += std::exp(scores[e]);
    Row sum(x.size(), 0.0);
    for (const std::size_t e : order) {
      const std::string w = l + "block_sparse_moe.experts." + std::to_string(e) + ".";
      Row gate = times(w + "w1.weight", x);
      const Row up = times(w + "w3.weight", x);
      for (std::size_t i = 0; i < gate.size(); ++i) gate[i] = silu(gate[i]) * up[i];
      const Row y = times(w + "w2.weight", gate);
      for (std::size_t i = 0; i < y.size(); ++i) sum[i] += std::exp(scores[e]) / total * y[i];
    }
    return sum;
  }

  // ---- GPT-2: matrices are [in, out]

  Row through(const std::string& name, const Row& x) const {
    const TinyTensor& w = at(name + ".weight");
    const auto columns = static_cast<std::size_t>(w.shape[1]);
    Row y(at(name + ".bias").values.begin(), at(name + ".bias").values.end());
    for (std::size_t i = 0; i < x.size(); ++i)
      for (std::size_t o = 0; o < columns; ++o) y[o] += x[i] * w.values[i * columns + o];
    return y;
  }
  Row layer_norm(const std::string& name, const Row& x) const {
    const double n = static_cast<double>(x.size());
    const double mean = std::accumulate(x.begin(), x.end(), 0.0) / n;
    double variance = 0;
    for (const double v : x) variance += (v - mean) * (v - mean) / n;
    Row y;
    for (std::size_t i = 0; i < x.size(); ++i)
      y.push_back((x[i] - mean) / std::sqrt(variance + c_["layer_norm_epsilon"].get<double>()) *
                      at(name + ".weight").values[i] +
                  at(name + ".bias").values[i]);
    return y;
  }
  std::vector<Row> gpt2(const std::vector<std::int32_t>& tokens) {
    const auto hidden = c_["n_embd"].get<std::size_t>(), heads = c_["n_head"].get<std::size_t>();
    const int layers = c_["n_layer"];
    std::vector<std::vector<Row>> keys(static_cast<std::size_t>(layers)), values = keys;
    std::vector<Row> logits;
    for (std::size_t t = 0; t < tokens.size(); ++t) {
      Row x;
      for (std::size_t i = 0; i < hidden; ++i)
        x.push_back(double{at("wte.weight").values[static_cast<std::size_t>(tokens[t]) * hidden + i]} +
                    at("wpe.weight").values[t * hidden + i]);
      for (int i = 0; i < layers; ++i) {
        const std::string l = "h." + std::to_string(i) + ".";
        const Row qkv = through(l + "attn.c_attn", layer_norm(l + "ln_1", x));
        const auto part = [&](std::size_t p) {
          return Row(qkv.begin() + static_cast<std::ptrdiff_t>(p * hidden),
                     qkv.begin() + static_cast<std::ptrdiff_t>((p + 1) * hidden));
        };
        auto &ks = keys[static_cast<std::size_t>(i)], &vs = values[static_cast<std::size_t>(i)];
        ks.push_back(part(1));
        vs.push_back(part(2));
        const Row a = attend(part(0), ks, vs, heads, heads, 1 / std::sqrt(static_cast<double>(hidden / heads)), 0, 0);
        add(x, through(l + "attn.c_proj", a));
        Row m = through(l + "mlp.c_fc", layer_norm(l + "ln_2", x));
        for (double& y : m) y = gelu_tanh(y);
        add(x, through(l + "mlp.c_proj", m));
      }
      x = layer_norm("ln_f", x);
      Row out(48, 0.0);
      for (std::size_t o = 0; o < 48; ++o)
        for (std::size_t i = 0; i < hidden; ++i) out[o] += at("wte.weight").values[o * hidden + i] * x[i];
      logits.push_back(std::move(out));
    }
    return logits;
  }

  const TinyModel& model_;
  const Json& c_;
};

}  // namespace weft::test
