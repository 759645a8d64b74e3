#include "llm/read_config.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/python_json.hpp"
#include "llm/config_gemma.hpp"
#include "llm/guess.hpp"
#include "vision/preprocess.hpp"
#include "weft/error.hpp"

namespace weft::llm {
namespace {

// Of models they have some kilobytes.
constexpr JsonLimits kConfigLimits{.max_bytes = std::uint64_t{8} << 20, .max_values = 200'000};

/// A graph is as large as the configuration says. What the file cannot fill is refused before it is built.
void check_count(const ModelConfig& config, const io::TensorSource& source) {
  const auto with_experts = config.expert_layers.empty()
                                ? config.layers
                                : std::count(config.expert_layers.begin(), config.expert_layers.end(), true);
  // Some families have one tensor for all experts of a layer.
  const auto joined =
      std::count_if(source.tensors().begin(), source.tensors().end(), [](const io::SourceTensor& tensor) {
        return tensor.name.ends_with(".experts.gate_up_proj") || tensor.name.ends_with(".input_linear.weight");
      });
  const bool joins = config.from_gguf || config.architecture == "gpt_oss" || joined >= with_experts;
  const Extent apart = joins ? 1 : std::max<Extent>(config.experts, 1);
  if (std::max(with_experts * apart, config.layers) > static_cast<Extent>(source.tensors().size()))
    throw FileError(fmt::format(
        "{}: {} layers{} are asked for, but the file has {} tensors; is it whole, and of this model?", config.source,
        config.layers, apart > 1 ? fmt::format(" of {} experts", apart) : "", source.tensors().size()));
}

}  // namespace

void take_factors(ModelConfig& config, const std::function<std::vector<double>(const char* name)>& factors_of) {
  RopeScaling& s = config.rope_scaling;
  if (auto list = factors_of("rope_freqs.weight");
      !list.empty() && !(config.architecture == "gemma4" && take_gguf_gemma4_factors(config, list))) {
    s = {};
    s.kind = RopeScaling::Kind::longrope;
    s.attention_factor = 1;
    s.short_factors = s.long_factors = std::move(list);
  }
  if (auto list = factors_of("rope_factors_long.weight"); !list.empty()) {
    s.kind = RopeScaling::Kind::longrope;
    s.long_factors = std::move(list);
    s.short_factors = factors_of("rope_factors_short.weight");
    if (s.original_context > 0)
      s.factor = static_cast<double>(config.context) / static_cast<double>(s.original_context);
  }
  check(config);
}

bool makes_head(const io::TensorSource& source) {
  const io::SourceTensor* head = source.find("lm_head.weight");
  return head && head->make;
}

ModelConfig read_config(const io::TensorSource& source, const TensorNames& names, const ModelHints& hints) {
  ModelConfig config;
  if (source.gguf()) {
    const io::SourceTensor* table = source.find("token_embd.weight");
    config = config_from_gguf(source.gguf()->metadata(), table && table->shape.rank() == 2 ? table->shape[0] : 0);
    take_factors(config, [&](const char* name) {
      std::vector<double> list;
      if (const io::SourceTensor* tensor = names.find(name)) {
        std::vector<float> values(static_cast<std::size_t>(tensor->shape.numel()));
        source.read_f32(*tensor, values);
        list.assign(values.begin(), values.end());
      }
      return list;
    });
  } else {
    const auto file = source.path() / "config.json";
    std::error_code ignored;
    const bool is_described = source.kind() == io::SourceKind::folder && std::filesystem::exists(file, ignored);
    config = is_described
                 ? config_from_json(read_python_json_file(file, kConfigLimits), file.string())
                 : config_from_json(guessed_config(names, hints), source.path().string() + " (from its tensors)");
  }
  if (config.reads_images && !vision::ImageProcessor::is_in(source.path())) {
    config.reads_images = config.sees_images_whole = false;
    config.image_layers = 0;
    config.lacks_image_settings = true;
  }
  if (makes_head(source)) config.tied = false;
  check_count(config, source);
  return config;
}

}  // namespace weft::llm
