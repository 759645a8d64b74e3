#include "llm/builder.hpp"

#include <fmt/format.h>

#include <cmath>

#include "weft/error.hpp"

namespace weft::llm {
namespace {

constexpr NameRow kCommonNames[] = {
    {"embed.weight", "token_embd.weight", "model.embed_tokens.weight"},
    {"final_norm.weight", "output_norm.weight", "model.norm.weight"},
    {"final_norm.bias", "output_norm.bias", "model.norm.bias"},
    {"lm_head.weight", "output.weight", "lm_head.weight"},
    {"lm_head.bias", "output.bias", "lm_head.bias"},
    {"layer{}.norm1.bias", "blk.{}.attn_norm.bias", "model.layers.{}.input_layernorm.bias"},
    {"layer{}.norm2.bias", "blk.{}.ffn_norm.bias", "model.layers.{}.post_attention_layernorm.bias"},
    {"layer{}.norm1.weight", "blk.{}.attn_norm.weight", "model.layers.{}.input_layernorm.weight"},
    {"layer{}.norm2.weight", "blk.{}.ffn_norm.weight", "model.layers.{}.post_attention_layernorm.weight"},
    {"layer{}.q.weight", "blk.{}.attn_q.weight", "model.layers.{}.self_attn.q_proj.weight"},
    {"layer{}.k.weight", "blk.{}.attn_k.weight", "model.layers.{}.self_attn.k_proj.weight"},
    {"layer{}.v.weight", "blk.{}.attn_v.weight", "model.layers.{}.self_attn.v_proj.weight"},
    {"layer{}.o.weight", "blk.{}.attn_output.weight", "model.layers.{}.self_attn.o_proj.weight"},
    {"layer{}.q.bias", "blk.{}.attn_q.bias", "model.layers.{}.self_attn.q_proj.bias"},
    {"layer{}.k.bias", "blk.{}.attn_k.bias", "model.layers.{}.self_attn.k_proj.bias"},
    {"layer{}.v.bias", "blk.{}.attn_v.bias", "model.layers.{}.self_attn.v_proj.bias"},
    {"layer{}.o.bias", "blk.{}.attn_output.bias", "model.layers.{}.self_attn.o_proj.bias"},
    {"layer{}.qkv.weight", "blk.{}.attn_qkv.weight", "model.layers.{}.self_attn.qkv_proj.weight"},
    {"layer{}.q_norm.weight", "blk.{}.attn_q_norm.weight", "model.layers.{}.self_attn.q_norm.weight"},
    {"layer{}.k_norm.weight", "blk.{}.attn_k_norm.weight", "model.layers.{}.self_attn.k_norm.weight"},
    {"layer{}.gate.weight", "blk.{}.ffn_gate.weight", "model.layers.{}.mlp.gate_proj.weight"},
    {"layer{}.up.weight", "blk.{}.ffn_up.weight", "model.layers.{}.mlp.up_proj.weight"},
    {"layer{}.down.weight", "blk.{}.ffn_down.weight", "model.layers.{}.mlp.down_proj.weight"},
    {"layer{}.gate.bias", "blk.{}.ffn_gate.bias", "model.layers.{}.mlp.gate_proj.bias"},
    {"layer{}.up.bias", "blk.{}.ffn_up.bias", "model.layers.{}.mlp.up_proj.bias"},
    {"layer{}.down.bias", "blk.{}.ffn_down.bias", "model.layers.{}.mlp.down_proj.bias"},
};

void replace(std::string& text, std::string_view mark, Extent with) {
  if (const auto at = text.find(mark); at != std::string::npos) text.replace(at, mark.size(), std::to_string(with));
}

}  // namespace

std::vector<NameRow> names_of(const Family& family) {
  std::vector<NameRow> rows = family.names;
  rows.insert(rows.end(), std::begin(kCommonNames), std::end(kCommonNames));
  return rows;
}

std::string key_of(const NameRow& row, bool gguf, Extent layer, Extent expert) {
  std::string key(gguf ? row.gguf : row.hf);
  replace(key, "{}", layer);
  replace(key, "{e}", expert);
  return key;
}

OpType activation_of(const ModelConfig& config, std::string_view fallback) {
  const std::string_view name = config.activation.empty() ? fallback : std::string_view(config.activation);
  return name == "gelu"        ? OpType::gelu
         : name == "gelu_tanh" ? OpType::gelu_tanh
         : name == "relu2"     ? OpType::relu2
                               : OpType::silu;
}

GraphBuilder::GraphBuilder(const BuildInput& input) : input_(input) {
  graph_.family = input.family.name;
  graph_.config = input.config;
  graph_.tensors.push_back({graph_.input, {Symbol::tokens}, Element::i32});
  graph_.tensors.push_back({graph_.positions, {Symbol::tokens}, Element::i32});
  if (config().reads_images)
    graph_.tensors.push_back({graph_.image_rows, {Symbol::tokens, config().hidden * (1 + config().image_layers)}});
}

std::string GraphBuilder::full(std::string_view name) const {
  return layer_ < 0 ? std::string(name) : fmt::format("layer{}.{}", layer_, name);
}

const NameRow* GraphBuilder::row_of(std::string_view name) const {
  const std::string wanted = layer_ < 0 ? std::string(name) : "layer{}." + std::string(name);
  const NameRow* found = nullptr;
  // A family may have several names for a tensor, of which a file has one.
  for (const NameRow& row : input_.family.names) {
    if (row.name != wanted) continue;
    if (!found || input_.has(key_of(row, config().from_gguf, layer_))) found = &row;
  }
  if (found) return found;
  for (const NameRow& row : kCommonNames)
    if (row.name == wanted) return &row;
  return nullptr;
}

bool GraphBuilder::has(std::string_view name) const {
  const NameRow* row = row_of(name);
  return row && input_.has(key_of(*row, config().from_gguf, layer_));
}

std::string GraphBuilder::node(std::string_view id, OpType op, std::vector<std::string> inputs, std::vector<Dim> shape,
                               std::map<std::string, Attribute> attributes) {
  const std::string name = layer_ < 0 ? std::string(id) : fmt::format("layer{}_{}", layer_, id);
  graph_.tensors.push_back({name, std::move(shape)});
  graph_.nodes.push_back({name, op, std::move(inputs), name, std::move(attributes), layer_});
  return name;
}

std::string GraphBuilder::constant(std::string_view name, std::vector<Dim> shape, Element element, bool transposed) {
  const std::string whole = full(name);
  if (graph_.find(whole)) return whole;
  const NameRow* row = row_of(name);
  if (!row) throw InternalError(fmt::format("llm: the family {} has no name for {}", input_.family.name, whole));
  TensorDesc tensor{whole, std::move(shape), element, TensorStorage::constant};
  tensor.transposed = transposed;
  const bool apart = !input_.config.from_gguf && row->hf.find("{e}") != std::string_view::npos;
  for (Extent e = 0; e < (apart ? input_.config.experts : 1); ++e)
    tensor.keys.push_back(key_of(*row, config().from_gguf, layer_, e));
  graph_.tensors.push_back(std::move(tensor));
  return whole;
}

std::string GraphBuilder::part(std::string_view name, std::vector<Dim> shape, const Cut& cut, Element element) {
  const bool is_known = graph_.find(full(name)) != nullptr;
  const bool by_group = shape.size() == 3 && shape[0].value == cut.groups;
  std::string whole = constant(name, std::move(shape), element);
  if (is_known) return whole;
  TensorDesc& tensor = graph_.tensors.back();
  tensor.cut = cut;
  tensor.keys.resize(by_group ? static_cast<std::size_t>(cut.groups) : 1, tensor.keys.front());
  return whole;
}

std::string GraphBuilder::embedding(double factor) {
  const Extent rows = config().vocabulary, width = config().hidden;
  const std::string table =
      config().table_rows > rows
          ? part("embed.weight", {rows, width},
                 {.file = {config().table_rows, width}, .rows = config().table_rows, .columns = width, .count = rows})
          : constant("embed.weight", {rows, width});
  std::string x = node("embed", OpType::embedding, {table, graph_.input}, {Symbol::tokens, config().hidden});
  if (factor != 1) x = unary("embed_scaled", OpType::scale, x, {{"factor", factor}});
  return config().reads_images ? binary("images", OpType::insert, x, graph_.image_rows) : x;
}

std::string GraphBuilder::rows_of_tokens(std::string_view name, Extent rows, Extent width) {
  return node(name, OpType::embedding, {constant(fmt::format("{}.weight", name), {rows, width}), graph_.input},
              {Symbol::tokens, width}, {{"known", rows < config().vocabulary ? rows : 0}});
}

std::string GraphBuilder::add_image_rows(const std::string& x, Extent part) {
  return node("images", OpType::add_image, {x, graph_.image_rows}, shape_of(x), {{"begin", part * config().hidden}});
}

std::string GraphBuilder::rms_norm(std::string_view id, const std::string& x, double offset, Extent width, double eps) {
  const std::vector<Dim> shape = shape_of(x);
  if (width == 0) width = shape[1].value;
  return node(id, OpType::rms_norm, {x, constant(fmt::format("{}.weight", id), {width}, Element::f32)}, shape,
              {{"eps", eps > 0 ? eps : config().norm_eps}, {"weight_offset", offset}, {"width", width}});
}

std::string GraphBuilder::unit_norm(std::string_view id, const std::string& x, double eps, Extent width) {
  return unary(id, OpType::unit_norm, x, {{"eps", eps}, {"width", width > 0 ? width : shape_of(x)[1].value}});
}

std::string GraphBuilder::group_norm(std::string_view id, const std::string& x, Extent groups) {
  const std::vector<Dim> shape = shape_of(x);
  return node(id, OpType::rms_norm, {x, constant(fmt::format("{}.weight", id), {shape[1]}, Element::f32)}, shape,
              {{"eps", config().norm_eps}, {"weight_offset", 0.0}, {"width", shape[1].value / groups}});
}

std::string GraphBuilder::layer_norm(std::string_view id, const std::string& x, double offset, Bias bias) {
  const std::vector<Dim> shape = shape_of(x);
  std::vector<std::string> inputs = {x, constant(fmt::format("{}.weight", id), {shape[1]}, Element::f32)};
  const std::string bias_name = fmt::format("{}.bias", id);
  if (bias == Bias::required || has(bias_name)) inputs.push_back(constant(bias_name, {shape[1]}, Element::f32));
  return node(id, OpType::layer_norm, std::move(inputs), shape,
              {{"eps", config().norm_eps}, {"weight_offset", offset}});
}
std::string GraphBuilder::centred_norm(std::string_view id, const std::string& x) {
  return node(id, OpType::layer_norm, {x}, shape_of(x), {{"eps", config().norm_eps}});
}

std::string GraphBuilder::linear(std::string_view id, const std::string& x, Extent rows, Bias bias, bool transposed) {
  const std::vector<Dim> shape = shape_of(x);
  std::vector<std::string> inputs = {
      x, constant(fmt::format("{}.weight", id), {rows, shape[1]}, Element::weight, transposed)};
  const std::string bias_name = fmt::format("{}.bias", id);
  if (bias == Bias::required || (bias == Bias::if_present && has(bias_name)))
    inputs.push_back(constant(bias_name, {rows}, Element::f32));
  return node(id, OpType::matmul, std::move(inputs), {shape[0], rows});
}

GraphBuilder::QueriesKeysValues GraphBuilder::queries_keys_values(const std::string& x, Bias bias) {
  const ModelConfig& c = config();
  return {linear("q", x, c.heads * c.head_dim, bias), linear("k", x, c.kv_heads * c.head_dim, bias),
          linear("v", x, c.kv_heads * c.head_dim, bias)};
}

std::string GraphBuilder::linear_part(std::string_view id, const std::string& x, Extent rows, const Cut& cut) {
  std::vector<std::string> inputs = {x, part(fmt::format("{}.weight", id), {rows, shape_of(x)[1]}, cut)};
  const std::string bias = fmt::format("{}.bias", id);
  if (has(bias)) {
    Cut of_bias = cut;
    of_bias.file = {cut.file[0]};
    of_bias.columns = 1;
    inputs.push_back(part(bias, {rows}, of_bias, Element::f32));
  }
  return node(id, OpType::matmul, std::move(inputs), {shape_of(x)[0], rows});
}

std::string GraphBuilder::columns(std::string_view id, const std::string& x, Extent begin, Extent count) {
  return node(id, OpType::columns, {x}, {shape_of(x)[0], count}, {{"begin", begin}, {"count", count}});
}

std::string GraphBuilder::group_columns(std::string_view id, const std::string& x, Extent groups, Extent begin,
                                        Extent count) {
  return node(id, OpType::group_columns, {x}, {shape_of(x)[0], groups * count},
              {{"groups", groups}, {"begin", begin}, {"count", count}});
}

std::string GraphBuilder::group_concat(std::string_view id, const std::string& x, const std::string& y, Extent groups) {
  const std::vector<Dim> shape = shape_of(x);
  return node(id, OpType::group_concat, {x, y}, {shape[0], shape[1].value + shape_of(y)[1].value},
              {{"groups", groups}});
}

std::string GraphBuilder::unary(std::string_view id, OpType op, const std::string& x,
                                std::map<std::string, Attribute> attributes) {
  return node(id, op, {x}, shape_of(x), std::move(attributes));
}
std::string GraphBuilder::xielu(std::string_view id, const std::string& x) {
  if (const auto& given = config().xielu; !given.empty()) {
    const auto& [a, b, beta, eps] = given[static_cast<std::size_t>(layer_)];
    return node(id, OpType::xielu, {x}, shape_of(x), {{"a", a}, {"b", b}, {"beta", beta}, {"eps", eps}});
  }
  std::vector<std::string> inputs = {x};
  for (const char* name : {"a", "b"}) inputs.push_back(constant(fmt::format("{}.{}", id, name), {1}, Element::f32));
  for (const char* name : {"beta", "eps"}) inputs.push_back(constant(fmt::format("{}.{}", id, name), {}, Element::f32));
  return node(id, OpType::xielu, std::move(inputs), shape_of(x));
}
std::string GraphBuilder::binary(std::string_view id, OpType op, const std::string& x, const std::string& y) {
  return node(id, op, {x, y}, shape_of(x));
}

std::string GraphBuilder::attention(std::string q, std::string k, const std::string& v,
                                    const AttentionOptions& options) {
  const ModelConfig& c = config();
  const auto norm_heads = [&] {
    q = rms_norm("q_norm", q, *options.head_norms, options.norms_all_heads ? 0 : c.head_dim);
    k = rms_norm("k_norm", k, *options.head_norms, options.norms_all_heads ? 0 : c.head_dim);
  };
  if (options.head_norms && !options.norms_turned) norm_heads();
  if (options.rope && c.rope_dims > 0) {
    const bool local_base = options.local && c.rope_local_base > 0;
    q = turned("q_rope", q, c.heads, options.pairs, local_base);
    k = turned("k_rope", k, c.kv_heads, options.pairs, local_base);
  }
  if (options.head_norms && options.norms_turned) norm_heads();
  if (options.unit_norms > 0) {
    q = unit_norm("q_unit", q, options.unit_norms, c.head_dim);
    k = unit_norm("k_unit", k, options.unit_norms, c.head_dim);
  }
  if (options.grows && c.query_growth.factor > 0)
    q = unary("q_grown", OpType::grow, q,
              {{"each", c.query_growth.each}, {"offset", c.query_growth.offset}, {"factor", c.query_growth.factor}});
  const double scale = options.scale > 0 ? options.scale : 1 / std::sqrt(static_cast<double>(c.head_dim));
  std::string y = attend(q, k, v, c.heads, c.kv_heads, scale, options);
  if (!options.gate.empty()) y = binary("attn_gated", OpType::mul, y, options.gate);
  return linear("o", y, c.hidden, options.output_bias, options.output_transposed);
}

std::string GraphBuilder::turned(std::string_view id, const std::string& x, Extent heads, RopePairs pairs, bool local) {
  return node(id, OpType::rope, {x}, shape_of(x),
              {{"heads", heads},
               {"dims", local && config().rope_local_dims > 0 ? config().rope_local_dims : config().rope_dims},
               {"pairs", std::string(pairs == RopePairs::halves ? "halves" : "neighbours")},
               {"local", Extent{local}}});
}

std::string GraphBuilder::attend(const std::string& q, const std::string& k, const std::string& v, Extent heads,
                                 Extent kv_heads, double scale, const AttentionOptions& options) {
  const Extent width = shape_of(k)[1].value, window = options.local ? config().window : 0;
  std::vector<std::string> inputs = {q, k, v};
  const bool is_shared = options.keys_of >= 0;
  for (const char* name : {"k_cache", "v_cache"}) {
    if (inputs.size() == 4 && k == v) {
      inputs.push_back(inputs.back());
      break;
    }
    if (is_shared) {
      inputs.push_back(fmt::format("layer{}.{}", options.keys_of, name));
      continue;
    }
    inputs.push_back(full(name));
    graph_.tensors.push_back({inputs.back(),
                              {window > 0 ? Symbol::recent : Symbol::length, width},
                              Element::cache,
                              TensorStorage::kv_cache});
  }
  if (options.sinks) inputs.push_back(constant("sinks", {heads}, Element::f32));
  std::map<std::string, Attribute> attributes = {
      {"heads", heads}, {"kv_heads", kv_heads}, {"scale", scale}, {"window", window}, {"soft_cap", options.soft_cap}};
  if (is_shared) attributes.insert({"shared", Extent{1}});
  if (options.chunk > 0) attributes.insert({"chunk", options.chunk});
  if (options.alibi > 0) attributes.insert({{"alibi", options.alibi}, {"slope_factor", options.slope_factor}});
  return node("attn", OpType::attention, std::move(inputs), shape_of(q), std::move(attributes));
}

std::string GraphBuilder::state(std::string_view name, Extent width) {
  graph_.tensors.push_back({full(name), {Symbol::sequences, width}, Element::f32, TensorStorage::state});
  return full(name);
}

std::string GraphBuilder::short_convolution(std::string_view id, const std::string& x) {
  const std::vector<Dim> shape = shape_of(x);
  const Extent kernel = config().state_space.kernel;
  // Files of transformers have an axis more, for the one input of each channel.
  const std::vector<Dim> weight =
      config().from_gguf ? std::vector<Dim>{shape[1], kernel} : std::vector<Dim>{shape[1], 1, kernel};
  std::vector<std::string> inputs = {x, constant(fmt::format("{}.weight", id), weight, Element::f32),
                                     state(fmt::format("{}_state", id), (kernel - 1) * shape[1].value)};
  const std::string bias = fmt::format("{}.bias", id);
  if (has(bias)) inputs.push_back(constant(bias, {shape[1]}, Element::f32));
  return node(id, OpType::short_conv, std::move(inputs), shape, {{"kernel", kernel}});
}

std::string GraphBuilder::selective_scan(const std::string& x, const std::string& dt, const std::string& b,
                                         const std::string& c) {
  const StateSpace& s = config().state_space;
  return node("ssm_scan", OpType::selective_scan,
              {x, dt, constant("ssm_a", {s.inner, s.states}, Element::f32), b, c,
               constant("ssm_d", {s.inner}, Element::f32), state("ssm_state", s.inner * s.states)},
              shape_of(x), {{"log", Extent{!config().from_gguf}}});
}

std::string GraphBuilder::state_space_scan(const std::string& x, const std::string& dt, const std::string& b,
                                           const std::string& c) {
  const StateSpace& s = config().state_space;
  // GGUF files have an axis more.
  const std::vector<Dim> each = config().from_gguf ? std::vector<Dim>{s.heads, 1} : std::vector<Dim>{s.heads};
  return node("ssm_scan", OpType::state_space_scan,
              {x, dt, constant("ssm_a", each, Element::f32), b, c, constant("ssm_d", each, Element::f32),
               state("ssm_state", s.inner * s.states), constant("ssm_dt.bias", {s.heads}, Element::f32)},
              shape_of(x),
              {{"heads", s.heads},
               {"groups", s.groups},
               {"log", Extent{!config().from_gguf}},
               {"dt_least", s.dt_least},
               {"dt_most", s.dt_most}});
}

std::string GraphBuilder::delta_scan(const std::string& q, const std::string& k, const std::string& v,
                                     const std::string& dt, const std::string& beta) {
  const StateSpace& s = config().state_space;
  return node("delta_scan", OpType::delta_scan,
              {q, k, v, dt, constant("ssm_a", {s.heads}, Element::f32), beta, state("ssm_state", s.inner * s.states),
               constant("ssm_dt.bias", {s.heads}, Element::f32)},
              shape_of(v),
              {{"heads", s.heads},
               {"groups", s.groups},
               {"turns", Extent{s.takes_turns}},
               {"log", Extent{!config().from_gguf}}});
}

std::string GraphBuilder::gated_mlp(const std::string& x, OpType activation, Bias bias) {
  const std::string gate = linear("gate", x, config().intermediate, bias),
                    up = linear("up", x, config().intermediate, bias);
  return gate_and_up(gate, up, activation, bias);
}
std::string GraphBuilder::gate_and_up(std::string gate, const std::string& up, OpType activation, Bias bias) {
  gate = unary("act", activation, gate);
  return linear("down", binary("glu", OpType::mul, gate, up), config().hidden, bias);
}

ModelGraph GraphBuilder::finish(const std::string& x) {
  layer_ = -1;
  const std::string rows = node("picked", OpType::pick, {x}, {Symbol::rows, config().hidden});
  // A tied model may store the table once or twice. If the head has a tensor, the graph uses that tensor.
  const bool tied = config().tied || !has("lm_head.weight");
  const std::string head = tied ? "embed.weight" : constant("lm_head.weight", {config().vocabulary, config().hidden});
  std::vector<std::string> inputs = {rows, head};
  if (has("lm_head.bias")) inputs.push_back(constant("lm_head.bias", {config().vocabulary}, Element::f32));
  std::string logits = node("lm_head", OpType::matmul, std::move(inputs), {Symbol::rows, config().vocabulary});
  if (config().logit_scale != 1)
    logits = unary("logits_scaled", OpType::scale, logits, {{"factor", config().logit_scale}});
  if (config().logit_soft_cap > 0)
    logits = unary("capped", OpType::soft_cap, logits, {{"cap", config().logit_soft_cap}});
  graph_.output = logits;
  graph_.validate();
  return std::move(graph_);
}

}  // namespace weft::llm
