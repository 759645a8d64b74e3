#include "weft/nn/gpt.hpp"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "weft/autocast.hpp"
#include "weft/checkpoint.hpp"
#include "weft/elementwise.hpp"
#include "weft/ops.hpp"
#include "weft/ops/attention.hpp"

namespace weft::nn {
namespace {

// 16-bit elements of a row that devices read, write and multiply at once. In rows that end elsewhere, each is handled alone.
constexpr Extent kWholeRow = 8;

const GptConfig& checked_config(const GptConfig& config) {
  config.check();
  return config;
}

LinearOptions inner(const GptConfig& config) { return {config.bias, Init::normal(config.deviation()), Init::zeros()}; }

// Each of 2 * layers projections adds to the residual stream; scaled so that its variance does not grow with depth.
LinearOptions residual(const GptConfig& config) {
  return {config.bias, Init::normal(config.deviation() / std::sqrt(2.0 * static_cast<double>(config.layers))),
          Init::zeros()};
}

double total_flops(const Module& module) {
  double flops = module.own_flops();
  for (const auto& [name, child] : module.children()) flops += total_flops(*child);
  return flops;
}

}  // namespace

double GptConfig::deviation() const {
  return init_deviation > 0 ? init_deviation : 0.02 * std::sqrt(768.0 / static_cast<double>(width));
}

void GptConfig::check() const {
  const std::pair<const char*, Extent> extents[] = {
      {"vocabulary", vocabulary}, {"context", context}, {"layers", layers}, {"heads", heads}, {"width", width}};
  for (const auto& [name, extent] : extents)
    if (extent < 1 || extent > (Extent{1} << 31) - 1)
      throw UsageError(fmt::format("GPT: {} is {}; it must be in [1, 2^31)", name, extent));
  if (width % heads != 0)
    throw UsageError(fmt::format(
        "GPT: {} heads do not divide the width {}; choose a width that is a multiple of the heads", heads, width));
  if (!(dropout >= 0 && dropout < 1)) throw UsageError(fmt::format("GPT: dropout {} must be in [0, 1)", dropout));
  if (!(init_deviation >= 0) || std::isinf(init_deviation))
    throw UsageError(fmt::format("GPT: initial deviation {} must be a positive number", init_deviation));
}

CausalSelfAttention::CausalSelfAttention(const GptConfig& config)
    : heads_(config.heads),
      width_(config.width),
      context_(config.context),
      dropped_shares_(config.dropout),
      qkv_(config.width, 3 * config.width, inner(config)),
      output_(config.width, config.width, residual(config)),
      dropout_(config.dropout) {
  add("qkv", qkv_);
  add("output", output_);
  add("dropout", dropout_);
}

Tensor CausalSelfAttention::operator()(const Tensor& given) const {
  return with_hooks(given, [&](const Tensor& x) {
    const Extent B = x.dim(0), T = x.dim(1), H = heads_, D = width_ / heads_;
    const Tensor qkv = permute(reshape(qkv_(x), {B, T, 3, H, D}), {2, 0, 3, 1, 4});
    const Tensor mixed = attention(select(qkv, 0, 0), select(qkv, 0, 1), select(qkv, 0, 2),
                                   {.dropout = is_training() ? dropped_shares_ : 0});
    return dropout_(output_(reshape(permute(mixed, {0, 2, 1, 3}), {B, T, width_})));
  });
}

std::string CausalSelfAttention::describe() const { return fmt::format("Attention, {} x {}", heads_, width_ / heads_); }

// q k^T and the product with v each take 2 C for every visible position: half the context on average.
double CausalSelfAttention::own_flops() const {
  return 4.0 * static_cast<double>(width_) * (static_cast<double>(context_) + 1) / 2;
}

MLP::MLP(const GptConfig& config)
    : up_(config.width, 4 * config.width, inner(config)),
      down_(4 * config.width, config.width, residual(config)),
      dropout_(config.dropout) {
  add("up", up_);
  add("down", down_);
  add("dropout", dropout_);
}

Tensor MLP::operator()(const Tensor& given) const {
  return with_hooks(given, [&](const Tensor& x) { return dropout_(down_(elementwise("gelu_tanh", {up_(x)}))); });
}

Block::Block(const GptConfig& config)
    : norm_1_(config.width, config.bias), attention_(config), norm_2_(config.width, config.bias), mlp_(config) {
  add("norm_1", norm_1_);
  add("attention", attention_);
  add("norm_2", norm_2_);
  add("mlp", mlp_);
}

Tensor Block::operator()(const Tensor& given) const {
  return with_hooks(given, [&](const Tensor& x) {
    const Tensor mixed = x + attention_(norm_1_(x));
    return mixed + mlp_(norm_2_(mixed));
  });
}

GPT::GPT(const GptConfig& config)
    : config_(checked_config(config)),
      token_embedding_(config.vocabulary, config.width, Init::normal(config.deviation())),
      position_embedding_(config.context, config.width, Init::normal(config.deviation())),
      dropout_(config.dropout),
      norm_(config.width, config.bias) {
  add("token_embedding", token_embedding_);
  add("position_embedding", position_embedding_);
  add("dropout", dropout_);
  add("blocks", blocks_);
  for (Extent i = 0; i < config.layers; ++i) blocks_.emplace(config_);
  add("norm", norm_);
  if (!config.tied) {
    head_.emplace(config.width, config.vocabulary, LinearOptions{false, Init::normal(config.deviation()), {}});
    add("head", *head_);
  }
}

Tensor GPT::embed(const Tensor& tokens, Where where) const {
  if (tokens.rank() != 2 || tokens.dim(1) < 1 || tokens.dim(1) > config_.context)
    throw ShapeError(
        fmt::format("GPT: tokens must be [batch, positions] with 1 to {} positions (the context), given {} {}\n  "
                    "called at {}:{} ({})",
                    config_.context, name_of(tokens.dtype()), tokens.shape().to_string(), where.file_name(),
                    where.line(), where.function_name()));
  if (tokens.dtype() != DType::i32)
    throw DTypeError(fmt::format("GPT: tokens must be i32, given {}; cast them", name_of(tokens.dtype())));
  return dropout_(token_embedding_(tokens) + narrow(position_embedding_.weight(), 0, 0, tokens.dim(1)));
}

Tensor GPT::run_blocks(const Tensor& given, Extent first, Extent last) const {
  Tensor x = given;
  for (auto i = static_cast<std::size_t>(first); i < static_cast<std::size_t>(last); ++i) {
    const auto block = [&](std::span<const Tensor> inputs) { return blocks_[i](inputs[0]); };
    x = recompute_ ? checkpoint(block, {x}) : blocks_[i](x);
  }
  return x;
}

Tensor GPT::hidden(const Tensor& tokens, Where where) const {
  return norm_(run_blocks(embed(tokens, where), 0, config_.layers));
}

Tensor GPT::head(const Tensor& hidden) const {
  return head_ ? (*head_)(hidden) : linear(hidden, token_embedding_.weight());
}

Tensor GPT::operator()(const Tensor& given, Where where) const {
  return with_hooks(given, [&](const Tensor& tokens) { return head(hidden(tokens, where)); });
}

bool GPT::pads_head() const { return autocast_type() != DType::f32 && config_.vocabulary % kWholeRow != 0; }

Tensor GPT::loss(const Tensor& tokens, const Tensor& targets, int ignore_index, Where where) const {
  if (!pads_head()) return cross_entropy(operator()(tokens, where), targets, ignore_index, where);
  return padded_loss(hidden(tokens, where), targets, ignore_index, where);
}

Tensor GPT::loss_behind_blocks(const Tensor& x, const Tensor& targets, int ignore_index, Where where) const {
  if (!pads_head()) return cross_entropy(head(norm_(x)), targets, ignore_index, where);
  return padded_loss(norm_(x), targets, ignore_index, where);
}

Tensor GPT::padded_loss(const Tensor& hidden, const Tensor& targets, int ignore_index, Where where) const {
  const Tensor weight = head_ ? head_->weight() : token_embedding_.weight();
  const Extent classes = weight.dim(0), more = kWholeRow - classes % kWholeRow;
  const Tensor rows =
      concat({cast(weight, autocast_type()), zeros({more, weight.dim(1)}, autocast_type(), weight.device())}, 0, where);
  const Tensor logits = cast(linear(hidden, rows), DType::f32);
  const Tensor is_class = arange(classes + more, DType::i32, weight.device()) < static_cast<double>(classes);
  return cross_entropy(weft::where(is_class, logits, -std::numeric_limits<double>::infinity()), targets, ignore_index,
                       where);
}

std::string GPT::describe() const {
  return fmt::format("GPT, {} layers, width {}, {} heads, context {}, vocabulary {}", config_.layers, config_.width,
                     config_.heads, config_.context, config_.vocabulary);
}

// The tied head; a separate head counts its own.
double GPT::own_flops() const {
  return config_.tied ? 2.0 * static_cast<double>(config_.width) * static_cast<double>(config_.vocabulary) : 0;
}

double GPT::training_flops_per_token() const { return 3 * total_flops(*this); }

}  // namespace weft::nn
