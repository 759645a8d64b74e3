#include "encoder/sentence_modules.hpp"

#include <fmt/format.h>

#include "base/quote.hpp"
#include "io/config_keys.hpp"
#include "weft/error.hpp"
#include "weft/ops.hpp"

namespace weft::encoder {
namespace {

namespace fs = std::filesystem;

constexpr JsonLimits kLimits{.max_bytes = std::uint64_t{1} << 20, .max_values = 20'000};

/// The last part of a class's name: its folders changed with the library's versions.
std::string_view last_part(std::string_view name) { return name.substr(name.rfind('.') + 1); }

/// A path in modules.json, which may not leave the folder.
fs::path inside(const fs::path& folder, const io::ConfigKeys& keys) {
  const fs::path relative = keys.text({"path"}, "");
  for (const fs::path& part : relative)
    if (relative.is_absolute() || part == "..") keys.fail("path", "leaves the folder of the model");
  return relative.empty() ? folder : folder / relative;
}

struct Module {
  std::string kind;
  fs::path folder;
};
std::vector<Module> listed(const fs::path& folder) {
  const fs::path file = folder / "modules.json";
  if (!fs::exists(file)) return {};
  const Json json = read_json_file(file, kLimits);
  const std::string source = file.string();
  if (!json.is_array()) throw FileError(fmt::format("{}: is not a list of modules", source));
  std::vector<Module> modules;
  for (std::size_t i = 0; i < json.size(); ++i) {
    const io::ConfigKeys keys(json[i], source, fmt::format("[{}]", i));
    const std::string type = keys.text({"type"});
    modules.push_back({std::string(last_part(type)), inside(folder, keys)});
    std::string& kind = modules.back().kind;
    if (kind == "MLMTransformer") kind = "Transformer";
    if (kind != "Transformer" && kind != "Pooling" && kind != "Dense" && kind != "Normalize" && kind != "SpladePooling")
      keys.fail("type", fmt::format("is {}; Weft has Transformer, Pooling, Dense, Normalize and SpladePooling",
                                    quote(type, 100)));
  }
  return modules;
}

std::vector<Pooling> read_poolings(const fs::path& folder, bool& pools_prompts) {
  const fs::path file = folder / "config.json";
  const Json json = read_json_file(file, kLimits);
  const std::string source = file.string();
  const io::ConfigKeys keys(json, source);
  pools_prompts = keys.flag("include_prompt", true);
  static constexpr std::pair<const char*, Pooling> kModes[] = {{"cls", Pooling::first},
                                                               {"cls_token", Pooling::first},
                                                               {"max", Pooling::max},
                                                               {"max_tokens", Pooling::max},
                                                               {"mean", Pooling::mean},
                                                               {"mean_tokens", Pooling::mean},
                                                               {"mean_sqrt_len_tokens", Pooling::scaled_sum},
                                                               {"weightedmean", Pooling::weighted_mean},
                                                               {"weightedmean_tokens", Pooling::weighted_mean},
                                                               {"lasttoken", Pooling::last}};
  std::vector<Pooling> poolings;
  const auto add = [&](const std::string& name) {
    for (const auto& [known, pooling] : kModes)
      if (name == known) return poolings.push_back(pooling);
    keys.fail("pooling_mode", fmt::format("is {}, which Weft does not have", quote(name, 60)));
  };
  if (const Json* mode = keys.find({"pooling_mode"})) {
    if (mode->is_string())
      add(mode->get<std::string>());
    else if (mode->is_array())
      for (const Json& each : *mode) add(each.is_string() ? each.get<std::string>() : each.dump());
    else
      keys.fail("pooling_mode", "is not a name");
  } else {
    for (const auto& [known, pooling] : kModes) {
      const std::string key = std::string("pooling_mode_") + known;
      if (keys.flag(key.c_str(), false)) poolings.push_back(pooling);
    }
  }
  if (poolings.empty()) throw FileError(fmt::format("{}: names no pooling mode", source));
  return poolings;
}

SentenceModules::Splade read_splade(const fs::path& folder) {
  const fs::path file = folder / "config.json";
  const Json json = read_json_file(file, kLimits);
  const std::string source = file.string();
  const io::ConfigKeys keys(json, source);
  const std::string pooling = keys.text({"pooling_strategy"}, "max"),
                    activation = keys.text({"activation_function"}, "relu");
  if (pooling != "max" && pooling != "sum")
    keys.fail("pooling_strategy", fmt::format("is {}; known are max and sum", quote(pooling, 40)));
  if (activation != "relu" && activation != "log1p_relu")
    keys.fail("activation_function", fmt::format("is {}; known are relu and log1p_relu", quote(activation, 40)));
  return {pooling == "sum", activation == "log1p_relu"};
}

void read_prompts(const fs::path& folder, SentenceModules& modules) {
  const fs::path file = folder / "config_sentence_transformers.json";
  if (!fs::exists(file)) return;
  const Json json = read_json_file(file, kLimits);
  const std::string source = file.string();
  const io::ConfigKeys keys(json, source);
  if (const Json* prompts = keys.find({"prompts"})) {
    if (!prompts->is_object()) keys.fail("prompts", "is not an object of texts by name");
    for (const auto& [name, prompt] : prompts->items()) {
      if (!prompt.is_string()) keys.fail("prompts", fmt::format("has no text for {}", quote(name, 60)));
      modules.prompts[name] = prompt.get<std::string>();
    }
  }
  if (keys.find({"default_prompt_name"})) {
    modules.default_prompt = keys.text({"default_prompt_name"});
    if (!modules.prompts.contains(*modules.default_prompt))
      keys.fail("default_prompt_name",
                fmt::format("is {}, which prompts does not have", quote(*modules.default_prompt, 60)));
  }
}

/// The op of a class of torch.nn.
std::string activation_of(const io::ConfigKeys& keys) {
  const std::string name = keys.text({"activation_function"}, "torch.nn.modules.activation.Tanh");
  static constexpr std::pair<std::string_view, const char*> kOps[] = {
      {"Identity", ""}, {"Tanh", "tanh"}, {"ReLU", "relu"}, {"GELU", "gelu"}, {"SiLU", "silu"}, {"Sigmoid", "sigmoid"}};
  for (const auto& [known, op] : kOps)
    if (last_part(name) == known) return op;
  keys.fail("activation_function", fmt::format("is {}, which Weft does not have", quote(name, 80)));
}

}  // namespace

SentenceModules read_sentence_modules(const fs::path& folder) {
  SentenceModules modules;
  read_prompts(folder, modules);
  bool has_pooling = false;
  for (const Module& module : listed(folder)) {
    if (module.kind == "Transformer")
      modules.transformer = fs::relative(module.folder, folder);
    else if (fs::is_directory(module.folder))
      modules.folders.push_back(fs::relative(module.folder, folder).string());
    if (module.kind == "SpladePooling") modules.splade = read_splade(module.folder);
    if (module.kind != "Pooling") continue;
    if (has_pooling) throw FileError(fmt::format("{}: has two Pooling modules", (folder / "modules.json").string()));
    has_pooling = true;
    modules.poolings = read_poolings(module.folder, modules.pools_prompts);
  }
  if (const fs::path file = folder / modules.transformer / "sentence_bert_config.json"; fs::exists(file)) {
    const Json json = read_json_file(file, kLimits);
    const std::string source = file.string();
    modules.length = io::ConfigKeys(json, source).size({"max_seq_length"}, 0);
  }
  return modules;
}

SentenceModules read_sentence_modules(const io::GgufMetadata& metadata) {
  const std::string key = metadata.get_or<std::string>("general.architecture", "") + ".pooling_type";
  SentenceModules modules;
  // Numbers of llama.cpp; 0 stands for none, where models are embedded by their mean too.
  switch (const auto type = metadata.get_or<std::int64_t>(key, 0)) {
    case 0:
    case 1: break;
    case 2:
    case kRankPooling: modules.poolings = {Pooling::first}; break;
    case 3: modules.poolings = {Pooling::last}; break;
    default:
      throw FileError(
          fmt::format("{}: {} is {}; known are 0 to 4 (none, mean, cls, last, rank)", metadata.source(), key, type));
  }
  return modules;
}

void read_products(const fs::path& folder, Extent hidden, Device device, SentenceModules& modules,
                   std::uint64_t& bytes) {
  Extent width = modules.width(hidden);
  for (const Module& module : listed(folder)) {
    if (module.kind != "Dense") continue;
    const fs::path file = module.folder / "config.json";
    const Json json = read_json_file(file, kLimits);
    const std::string source = file.string();
    const io::ConfigKeys keys(json, source);
    const Extent in = keys.size({"in_features"}), out = keys.size({"out_features"});
    if (in != width || out < 1)
      keys.fail("in_features", fmt::format("is {}, and what stands before is {} wide", in, width));
    const io::TensorSource files = io::TensorSource::open(module.folder / "model.safetensors");
    layers::ModelWeights weights(files, device);
    modules.products.push_back({linear_of(weights, "linear", out, in, keys.flag("bias", true)), out,
                                activation_of(keys), fs::relative(module.folder, folder).string()});
    weights.require_all();
    bytes += weights.bytes();
    width = out;
  }
}

Tensor SentenceModules::embedded(const Tensor& states, const Padded& texts) const {
  std::vector<Tensor> parts;
  for (const Pooling each : poolings) parts.push_back(pooled(states, texts, each));
  Tensor x = parts.size() == 1 ? parts[0] : concat(parts, 1);
  for (const Dense& dense : products) {
    x = dense.product(x);
    if (!dense.activation.empty()) x = elementwise(dense.activation, {x});
  }
  return x;
}

Tensor SentenceModules::sparse(const Tensor& scores, const Padded& texts) const {
  const Extent n = texts.texts(), length = texts.length(), words = scores.dim(1);
  const Tensor places = reshape(arange(length, DType::i32, scores.device()), {1, length, 1}),
               is_within = less(places, reshape(texts.lengths, {n, 1, 1}));
  Tensor x = where(is_within, maximum(reshape(scores, {n, length, words}), 0.0),
                   full({1, 1, 1}, 0.0, DType::f32, scores.device()));
  x = log1p(x);
  if (splade->is_twice) x = log1p(x);
  return splade->sums ? sum(x, {1}) : amax(x, {1});
}

Extent SentenceModules::width(Extent hidden) const {
  if (!products.empty()) return products.back().width;
  return hidden * static_cast<Extent>(poolings.size());
}

}  // namespace weft::encoder
