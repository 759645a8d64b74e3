#include "encoder/state.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <utility>

#include "io/tensor_source.hpp"
#include "text/chat_template.hpp"
#include "weft/autocast.hpp"
#include "weft/error.hpp"
#include "weft/ops.hpp"

namespace weft::encoder::detail {
namespace {

namespace fs = std::filesystem;

constexpr Extent kTokensOnGpu = 16384, kTokensOnCpu = 2048;  // enough rows for products, and what stays in caches
constexpr std::size_t kPassesAhead = 4;                      // begun before the results of the first are waited for

// A layer's ten kernels take 50 us on a GPU however few tokens there are, and products some 40 TFLOP/s, or 120 in halves.
Extent pass_tokens_of(const EncoderConfig& c, Device device, DType precision) {
  if (device == kCpu) return 16;
  const double rate = precision == DType::f32 ? 40e12 : 120e12;
  const auto layer = 2.0 * static_cast<double>(c.hidden * (4 * c.hidden + 2 * c.intermediate));
  return static_cast<Extent>(50e-6 * rate / layer);
}

Json config_json(const fs::path& path, const io::TensorSource& files) {
  return files.gguf() ? Json() : read_json_file(path / "config.json", kConfigLimits);
}

EncoderConfig config_of(const Json& json, const fs::path& path, const io::TensorSource& files) {
  if (files.gguf()) return read_config(files.gguf()->metadata(), path.string());
  return read_config(json, (path / "config.json").string());
}

SentenceModules modules_of(const fs::path& path) {
  return fs::is_directory(path) ? read_sentence_modules(path) : SentenceModules();
}

DType checked_precision(DType type) {
  if (type == DType::f32 || type == DType::f16 || type == DType::bf16) return type;
  throw UsageError(fmt::format("encoder: a precision of {}; choose f32, f16 or bf16", weft::name_of(type)));
}

layers::ModelWeights weights_of(const io::TensorSource& files, const LoadOptions& options) {
  layers::ModelWeights weights(files, options.device);
  weights.use_matrices_of(options.precision);
  return weights;
}

std::string mask_of(const fs::path& path, const text::Tokenizer& tokenizer) {
  std::string mask;
  if (fs::is_directory(path))
    if (const auto tokens = text::ChatTemplate::tokens_of(path);
        tokens.contains("mask_token") && tokens.at("mask_token").is_string())
      mask = tokens.at("mask_token").get<std::string>();
  for (const char* usual : {"[MASK]", "<mask>"})
    if (mask.empty() && tokenizer.id_of(usual) != text::kNoToken) mask = usual;
  return mask;
}

}  // namespace

ModelState::ModelState(const fs::path& whole, const LoadOptions& options)
    : device(options.device),
      path(whole),
      modules(modules_of(whole)),
      transformer(modules.transformer == "." ? whole : whole / modules.transformer),
      files(io::TensorSource::open(transformer)),
      json(config_json(transformer, files)),
      config(config_of(json, transformer, files)),
      precision(checked_precision(options.precision)),
      weights(weights_of(files, options)),
      network(config, names_of(config, files), weights),
      task(task_of(json, config, files)),
      tokenizer(tokenizer_of(whole, transformer)) {
  if (files.gguf()) modules = read_sentence_modules(files.gguf()->metadata());
  if (files.gguf() && task == Task::classify && config.class_names.empty())
    for (Extent i = 0; i < files.at("cls.output.weight").shape[0]; ++i)
      config.class_names.push_back(fmt::format("LABEL_{}", i));
  const auto classes = static_cast<Extent>(config.class_names.size());
  if ((task == Task::classify || task == Task::label_tokens) && classes == 0)
    throw FileError(
        fmt::format("{}: id2label is missing; without names of classes the head has no size", config.source));
  if (task == Task::classify) class_head = ClassHead(config, names_of(config, files), classes, weights);
  if (task == Task::label_tokens) token_head = TokenHead(config, classes, weights);
  if (task == Task::answer) token_head = TokenHead::of_answers(config, weights);
  if (task == Task::fill_masks) mask_head = MaskHead(config, network.words(), weights);
  weights.require_all();
  bytes = weights.bytes();
  if (fs::is_directory(whole)) read_products(whole, config.hidden, device, modules, bytes);
  mask = mask_of(transformer, tokenizer);
  length = modules.length > 0 ? std::min(modules.length, config.length) : config.length;
  if (options.length < 0 || options.length > config.length)
    throw UsageError(
        fmt::format("encoder: a length of {} tokens; the model reads at most {}", options.length, config.length));
  if (options.length > 0) length = options.length;

  // Of tokens, lengths, and types where there are any; what a function gives for them arrives in f32.
  const auto pass = [this](auto function) {
    return [this, function](std::span<const Tensor> a) {
      const Autocast scope(precision);
      const Padded texts{a[0], has_types() ? a[2] : Tensor(), a[1]};
      return std::vector<Tensor>{cast(function(texts, network.states(texts), a.back()), DType::f32)};
    };
  };
  if (modules.splade && task != Task::fill_masks)
    throw FileError(fmt::format("{}: SpladePooling reads the scores of the vocabulary, and {} has no head for masks",
                                (whole / "modules.json").string(), config.source));
  embed_pass.emplace(pass([this](const Padded& texts, const Tensor& states, const Tensor&) {
    return modules.splade ? modules.sparse(cast(mask_head(states), DType::f32), texts)
                          : modules.embedded(states, texts);
  }));
  states_pass.emplace(pass([this](const Padded& texts, const Tensor& states, const Tensor&) {
    return reshape(states, {texts.texts(), texts.length(), config.hidden});
  }));
  class_pass.emplace(
      pass([this](const Padded& texts, const Tensor& states, const Tensor&) { return class_head(states, texts); }));
  token_pass.emplace(pass([this](const Padded& texts, const Tensor& states, const Tensor&) {
    const Tensor scores = token_head(states);
    return reshape(scores, {texts.texts(), texts.length(), scores.dim(1)});
  }));
  // The places of the masks come last.
  mask_pass.emplace(pass([this](const Padded&, const Tensor& states, const Tensor& places) {
    return mask_head(embedding(states, places));
  }));
}

void ModelState::require(Task wanted) const {
  if (task == wanted) return;
  throw UsageError(fmt::format("encoder: {} is a model to {}, and has no head to {}", path.string(), name_of(task),
                               name_of(wanted)));
}

TokenText ModelState::tokens_of(std::string_view text, const std::string* pair, TooLong too_long,
                                bool parse_special) const {
  return encoder::tokens_of(tokenizer, config, length, text, pair, too_long, parse_special);
}

void ModelState::run(Compiled& pass, const std::vector<TokenText>& texts,
                     const std::function<void(const Pass& pass, const Tensor& made)>& take) const {
  PassNeeds needs{.tokens_max = device == kCpu ? kTokensOnCpu : kTokensOnGpu,
                  .pass_tokens = pass_tokens_of(config, device, precision),
                  .length_max = config.length};
  if (modules.splade) needs.tokens_max /= 8;  // scores of a vocabulary are some ten times as many numbers as states
  std::deque<std::pair<Pass, Tensor>> begun;
  const auto take_first = [&] {
    take(begun.front().first, begun.front().second);
    begun.pop_front();
  };
  for (Pass& each : passes_of(texts, needs)) {
    const Padded given = padded(each, texts, has_types(), device);
    std::vector<Tensor> arguments{given.tokens, given.lengths};
    if (given.types.defined()) arguments.push_back(given.types);
    begun.emplace_back(std::move(each), pass(arguments)[0]);
    if (begun.size() == kPassesAhead) take_first();
  }
  while (!begun.empty()) take_first();
}

}  // namespace weft::encoder::detail
