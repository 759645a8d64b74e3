// From the prior to latents, and from latents to samples.
#include "speech/vits.hpp"
#include "weft/ops.hpp"
#include "weft/ops/convolution.hpp"

namespace weft::speech::detail {

Tensor VitsEngine::of_speaker(const Conv& conv, Extent speaker) const {
  return conv1d(reshape(select(speakers_, 0, speaker), {1, config_.speaker_width, 1}), conv.weight, conv.bias);
}

// Gated convolutions; each layer adds to what the next one reads, and to the result.
Tensor VitsEngine::wave(const WaveNet& net, Tensor x, Extent speaker) const {
  const Extent width = config_.width;
  Tensor condition, sum;
  if (speakers_.defined()) condition = of_speaker(net.speaker, speaker);
  Extent dilation = 1;
  for (std::size_t i = 0; i < net.in.size(); ++i) {
    Tensor h = conv1d(x, net.in[i].weight, net.in[i].bias,
                      {.padding = dilation * (config_.wave_kernel - 1) / 2, .dilation = dilation});
    if (condition.defined()) h = h + narrow(condition, 1, static_cast<Extent>(i) * 2 * width, 2 * width);
    h = elementwise("tanh", {narrow(h, 1, 0, width)}) * elementwise("sigmoid", {narrow(h, 1, width, width)});
    h = conv1d(h, net.out[i].weight, net.out[i].bias);
    const bool is_last = i + 1 == net.in.size();
    if (!is_last) x = x + narrow(h, 1, 0, width);
    const Tensor part = is_last ? h : narrow(h, 1, width, width);
    sum = sum.defined() ? sum + part : part;
    dilation *= config_.wave_dilation;
  }
  return sum;
}

Tensor VitsEngine::generate(const Tensor& latents, Extent speaker) const {
  const Generator& g = generator_;
  Tensor x = conv1d(latents, g.pre.weight, g.pre.bias, {.padding = 3});
  if (speakers_.defined()) x = x + of_speaker(g.speaker, speaker);
  const auto leaky = [](const Tensor& y, double slope) { return elementwise("leaky_relu", {y}, {slope}); };
  const std::size_t kinds = config_.block_kernels.size();
  for (std::size_t i = 0; i < g.rise.size(); ++i) {
    const Extent rate = config_.rates[i];
    x = conv_transpose1d(leaky(x, config_.slope), g.rise[i].weight, g.rise[i].bias,
                         {.stride = rate, .padding = (config_.kernels[i] - rate) / 2});
    Tensor sum;
    for (std::size_t k = 0; k < kinds; ++k) {
      const Block& block = g.blocks[i * kinds + k];
      Tensor y = x;
      for (std::size_t d = 0; d < block.dilations.size(); ++d) {
        const Extent dilation = block.dilations[d];
        Tensor h = conv1d(leaky(y, config_.slope), block.first[d].weight, block.first[d].bias,
                          {.padding = dilation * (block.kernel - 1) / 2, .dilation = dilation});
        h = conv1d(leaky(h, config_.slope), block.second[d].weight, block.second[d].bias,
                   {.padding = (block.kernel - 1) / 2});
        y = y + h;
      }
      sum = sum.defined() ? sum + y : y;
    }
    x = sum * (1 / static_cast<double>(kinds));
  }
  return elementwise("tanh", {conv1d(leaky(x, 0.01), g.last, {}, {.padding = 3})});
}

Tensor VitsEngine::sound(const Tensor& prior, Extent speaker) const {
  Tensor z = unsqueeze(transpose(prior), 0);
  const Extent half = config_.flow / 2;
  for (auto coupling = flow_.rbegin(); coupling != flow_.rend(); ++coupling) {
    z = flip(z, {1});
    const Tensor first = narrow(z, 1, 0, half);
    const Tensor h = wave(coupling->body, conv1d(first, coupling->pre.weight, coupling->pre.bias), speaker);
    const Tensor mean = conv1d(h, coupling->post.weight, coupling->post.bias);
    z = concat({first, narrow(z, 1, half, half) - mean}, 1);
  }
  const Tensor samples = generate(z, speaker);
  return reshape(samples, {samples.numel()});
}

}  // namespace weft::speech::detail
