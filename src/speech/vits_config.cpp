#include "speech/vits_config.hpp"

#include <fmt/format.h>

#include <cmath>
#include <numeric>

#include "base/json.hpp"
#include "base/quote.hpp"
#include "io/config_keys.hpp"
#include "weft/error.hpp"

namespace weft::speech {
namespace {

constexpr JsonLimits kVitsLimits{.max_bytes = std::uint64_t{8} << 20, .max_values = 200'000};

std::vector<Extent> sizes_of(const io::ConfigKeys& keys, const char* key, const Json& list) {
  std::vector<Extent> sizes;
  if (!list.is_array() || list.empty() || list.size() > 16) keys.fail(key, "is not a list of 1 to 16 whole numbers");
  for (const Json& each : list) {
    if (!each.is_number_integer() || each < 1 || each > 4096)
      keys.fail(key, fmt::format("has {}, not a whole number from 1 to 4096", each.dump()));
    sizes.push_back(each.get<Extent>());
  }
  return sizes;
}

std::vector<Extent> sizes(const io::ConfigKeys& keys, const char* key, std::vector<Extent> fallback) {
  const Json* list = keys.find({key});
  return list ? sizes_of(keys, key, *list) : std::move(fallback);
}

}  // namespace

Extent VitsConfig::frame_samples() const {
  return std::accumulate(rates.begin(), rates.end(), Extent{1}, std::multiplies<>());
}

VitsConfig read_vits_config(const std::filesystem::path& folder) {
  const std::string source = (folder / "config.json").string();
  const Json json = read_json_file(source, kVitsLimits);
  const io::ConfigKeys keys(json, source);
  if (const std::string type = keys.text({"model_type"}); type != "vits")
    keys.fail("model_type", fmt::format("is {}; voices are of the type \"vits\"", quote(type)));
  VitsConfig c;
  // Values that are left out are those of the transformers library.
  c.vocabulary = keys.size({"vocab_size"}, 38);
  c.width = keys.size({"hidden_size"}, 192);
  c.layers = keys.size({"num_hidden_layers"}, 6);
  c.heads = keys.size({"num_attention_heads"}, 2);
  c.window = keys.size({"window_size"}, 0);
  c.has_bias = keys.flag("use_bias", true);
  c.inner = keys.size({"ffn_dim"}, 768);
  c.inner_kernel = keys.size({"ffn_kernel_size"}, 3);
  c.flow = keys.size({"flow_size"}, 192);
  c.activation = keys.text({"hidden_act"}, "relu");
  c.eps = keys.number({"layer_norm_eps"}, 1e-5);
  c.draws_durations = keys.flag("use_stochastic_duration_prediction", true);
  c.speakers = keys.size({"num_speakers"}, 1);
  c.speaker_width = keys.size({"speaker_embedding_size"}, 0);
  c.first_channels = keys.size({"upsample_initial_channel"}, 512);
  c.rates = sizes(keys, "upsample_rates", {8, 8, 2, 2});
  c.kernels = sizes(keys, "upsample_kernel_sizes", {16, 16, 4, 4});
  c.block_kernels = sizes(keys, "resblock_kernel_sizes", {3, 7, 11});
  c.block_dilations.assign(c.block_kernels.size(), {1, 3, 5});
  if (const Json* lists = keys.find({"resblock_dilation_sizes"})) {
    c.block_dilations.clear();
    if (!lists->is_array()) keys.fail("resblock_dilation_sizes", "is not a list of lists");
    for (const Json& list : *lists) c.block_dilations.push_back(sizes_of(keys, "resblock_dilation_sizes", list));
  }
  c.slope = keys.number({"leaky_relu_slope"}, 0.1);
  const Extent separable_channels = keys.size({"depth_separable_channels"}, 2);
  c.separable_layers = keys.size({"depth_separable_num_layers"}, 3);
  c.bins = keys.size({"duration_predictor_flow_bins"}, 10);
  c.tail = keys.number({"duration_predictor_tail_bound"}, 5.0);
  c.duration_kernel = keys.size({"duration_predictor_kernel_size"}, 3);
  c.duration_flows = keys.size({"duration_predictor_num_flows"}, 4);
  c.duration_channels = keys.size({"duration_predictor_filter_channels"}, 256);
  c.flows = keys.size({"prior_encoder_num_flows"}, 4);
  c.flow_layers = keys.size({"prior_encoder_num_wavenet_layers"}, 4);
  c.wave_kernel = keys.size({"wavenet_kernel_size"}, 5);
  c.wave_dilation = keys.size({"wavenet_dilation_rate"}, 1);
  c.rate = keys.number({"speaking_rate"}, 1.0);
  c.noise = keys.number({"noise_scale"}, 0.667);
  c.duration_noise = keys.number({"noise_scale_duration"}, 0.8);
  c.samples = static_cast<int>(keys.size({"sampling_rate"}, 16000));

  if (c.activation != "relu" && c.activation != "gelu")
    keys.fail("hidden_act", fmt::format("is {}; known are relu and gelu", quote(c.activation)));
  if (separable_channels != 2)
    keys.fail("depth_separable_channels", fmt::format("is {}; it must be 2", separable_channels));
  struct Size {
    const char* key;
    Extent value, least, most;
  };
  for (const Size& s : {Size{"vocab_size", c.vocabulary, 1, 1 << 20},
                        Size{"hidden_size", c.width, 1, 1 << 13},
                        Size{"num_hidden_layers", c.layers, 1, 256},
                        Size{"num_attention_heads", c.heads, 1, c.width},
                        Size{"window_size", c.window, 0, 1024},
                        Size{"ffn_dim", c.inner, 1, 1 << 15},
                        Size{"ffn_kernel_size", c.inner_kernel, 1, 64},
                        Size{"flow_size", c.flow, 2, 1 << 13},
                        Size{"num_speakers", c.speakers, 1, 1 << 16},
                        Size{"speaker_embedding_size", c.speaker_width, 0, 1 << 13},
                        Size{"upsample_initial_channel", c.first_channels, 1, 1 << 13},
                        Size{"depth_separable_num_layers", c.separable_layers, 1, 8},
                        Size{"duration_predictor_flow_bins", c.bins, 2, 100},
                        Size{"duration_predictor_kernel_size", c.duration_kernel, 1, 16},
                        Size{"duration_predictor_num_flows", c.duration_flows, 1, 64},
                        Size{"duration_predictor_filter_channels", c.duration_channels, 1, 1 << 13},
                        Size{"prior_encoder_num_flows", c.flows, 1, 64},
                        Size{"prior_encoder_num_wavenet_layers", c.flow_layers, 1, 64},
                        Size{"wavenet_kernel_size", c.wave_kernel, 1, 64},
                        Size{"wavenet_dilation_rate", c.wave_dilation, 1, 8},
                        Size{"sampling_rate", c.samples, 1, 768'000}})
    if (s.value < s.least || s.value > s.most)
      keys.fail(s.key, fmt::format("is {}; it must be in [{}, {}]", s.value, s.least, s.most));
  if (c.width % c.heads != 0)
    keys.fail("hidden_size", fmt::format("is {}, which {} heads do not divide", c.width, c.heads));
  if (c.flow % 2 != 0) keys.fail("flow_size", fmt::format("is {}; it must be even", c.flow));
  if (c.wave_kernel % 2 == 0 || c.duration_kernel % 2 == 0)
    keys.fail("wavenet_kernel_size", "and duration_predictor_kernel_size must be odd");
  if (c.speakers > 1 && c.speaker_width == 0)
    keys.fail("speaker_embedding_size", "is 0 in a model with several speakers");
  if (c.kernels.size() != c.rates.size()) keys.fail("upsample_kernel_sizes", "and upsample_rates differ in length");
  if (c.block_dilations.size() != c.block_kernels.size())
    keys.fail("resblock_dilation_sizes", "and resblock_kernel_sizes differ in length");
  for (std::size_t i = 0; i < c.rates.size(); ++i)
    if (c.kernels[i] < c.rates[i] || (c.kernels[i] - c.rates[i]) % 2 != 0)
      keys.fail("upsample_kernel_sizes",
                fmt::format("has {} for a rate of {}; they must differ by an even number", c.kernels[i], c.rates[i]));
  if (c.first_channels >> c.rates.size() < 1)
    keys.fail("upsample_initial_channel",
              fmt::format("is {}, which cannot be halved {} times", c.first_channels, c.rates.size()));
  if (c.frame_samples() > 1 << 16) keys.fail("upsample_rates", "multiply to more than 65536");
  if (!(c.rate > 0 && c.noise >= 0 && c.duration_noise >= 0 && c.tail > 0 && c.eps > 0))
    keys.fail("speaking_rate",
              "noise_scale, noise_scale_duration, duration_predictor_tail_bound or layer_norm_eps is not positive");
  return c;
}

}  // namespace weft::speech
