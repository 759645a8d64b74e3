// How an engine draws tokens from logits.
#include <algorithm>
#include <bit>
#include <limits>

#include "llm/engine.hpp"
#include "llm/most_probable.hpp"
#include "runtime/devices.hpp"
#include "weft/ops.hpp"
#include "weft/ops/indexing.hpp"

namespace weft::llm::detail {
namespace {

constexpr Extent kHistory = 256;

}  // namespace

std::vector<Draw> Engine::draw(const Tensor& logits, std::span<const DrawRequest> requests) {
  return finish(start_draw(logits, requests), requests.size());
}

Drawing Engine::start_draw(const Tensor& logits, std::span<const DrawRequest> requests) {
  const Device device = output_device();
  const auto rows = logits.dim(0);
  std::size_t biased = 1;
  for (const DrawRequest& r : requests) biased = std::max(biased, std::bit_ceil(r.sampling->logit_bias.size()));
  const auto count = static_cast<std::size_t>(rows);
  std::vector<float> settings(count * kSampleSettings, 0), bias(count * biased, 0);
  std::vector<std::int32_t> history(count * kHistory, -1), bias_tokens(count * biased, -1);
  std::vector<std::uint32_t> state(count * 4, 0);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const DrawRequest& r = requests[i];
    const Sampling& s = *r.sampling;
    const double values[] = {s.temperature,
                             static_cast<double>(s.top_k),
                             s.typical,
                             s.top_p,
                             s.min_p,
                             s.repetition_penalty,
                             s.frequency_penalty,
                             s.presence_penalty,
                             r.log_probability ? 1.0 : 0.0};
    for (std::size_t j = 0; j < kSampleSettings; ++j) settings[i * kSampleSettings + j] = static_cast<float>(values[j]);
    const bool is_penalised = s.repetition_penalty != 1 || s.frequency_penalty != 0 || s.presence_penalty != 0;
    const std::size_t window =
        is_penalised ? std::min({r.history.size(), static_cast<std::size_t>(s.penalty_window), std::size_t{kHistory}})
                     : 0;
    // Rows of images are not tokens, and so cannot come again.
    std::transform(r.history.end() - static_cast<std::ptrdiff_t>(window), r.history.end(),
                   history.begin() + static_cast<std::ptrdiff_t>(i * kHistory),
                   [](text::TokenId id) { return std::max(id, text::kNoToken); });
    for (std::size_t j = 0; j < s.logit_bias.size(); ++j) {
      bias_tokens[i * biased + j] = s.logit_bias[j].first;
      bias[i * biased + j] = static_cast<float>(s.logit_bias[j].second);
    }
    const std::uint64_t words[] = {r.seed, r.position};
    for (std::size_t j = 0; j < 4; ++j) state[i * 4 + j] = static_cast<std::uint32_t>(words[j / 2] >> (j % 2 * 32));
  }
  if (!sampler_)
    sampler_.emplace([](std::span<const Tensor> a) {
      return std::vector<Tensor>{sample_token(a[0], a[1], a[2], a[3], a[4], a[5])};
    });
  const Extent b = rows, m = static_cast<Extent>(biased), v = logits.dim(1);
  std::vector<Tensor> arguments = {logits,
                                   settings_of_draws_.of(std::move(settings), {b, kSampleSettings}, device),
                                   history_.of(std::move(history), {b, kHistory}, device),
                                   bias_tokens_.of(std::move(bias_tokens), {b, m}, device),
                                   bias_.of(std::move(bias), {b, m}, device),
                                   on_device(state, {b, 4}, device)};
  const auto is_masked = [](const DrawRequest& r) { return r.allowed != nullptr; };
  Drawing drawing;
  if (std::any_of(requests.begin(), requests.end(), is_masked)) {
    // Forbidden tokens are out before bias, penalties and filters.
    std::vector<std::uint8_t> forbidden(count * static_cast<std::size_t>(v), 0);
    for (std::size_t i = 0; i < requests.size(); ++i)
      for (std::size_t token = 0; requests[i].allowed && token < static_cast<std::size_t>(v); ++token)
        forbidden[i * static_cast<std::size_t>(v) + token] = !(*requests[i].allowed)[token];
    arguments.push_back(tensor_from_bytes(forbidden.data(), {b, v}, DType::boolean, device));
    if (!masked_sampler_)
      masked_sampler_.emplace([](std::span<const Tensor> a) {
        const Tensor left = masked_fill(a[0], a[6], -std::numeric_limits<double>::infinity());
        return std::vector<Tensor>{sample_token(left, a[1], a[2], a[3], a[4], a[5])};
      });
    drawing.drawn = (*masked_sampler_)(arguments)[0];
  } else {
    drawing.drawn = (*sampler_)(arguments)[0];
  }
  backend::Backend& backend = runtime::backend_of(device);
  drawing.readback = backend.start_download(*runtime::buffer_of(*drawing.drawn.node()), 0, drawing.drawn.numel());
  bool needs_logits = false;
  for (const DrawRequest& r : requests) {
    drawing.tops.push_back(r.top);
    needs_logits = needs_logits || r.top > 0 || (r.log_probability && is_masked(r));
  }
  if (needs_logits) {
    drawing.logits = logits;
    drawing.logits_readback = backend.start_download(*runtime::buffer_of(*logits.node()), 0,
                                                     static_cast<Extent>(requests.size()) * logits.dim(1));
  }
  return drawing;
}

std::vector<Draw> Engine::finish(Drawing drawing, std::size_t count) const {
  std::vector<std::int32_t> drawn(static_cast<std::size_t>(drawing.drawn.numel()));
  if (drawing.readback)
    drawing.readback->finish(drawn.data());
  else
    drawing.drawn.copy_to(drawn.data(), drawn.size() * sizeof drawn[0]);
  std::vector<Draw> draws;
  for (std::size_t i = 0; i < count; ++i) {
    draws.push_back({drawn[2 * i], std::bit_cast<float>(drawn[2 * i + 1]), {}});
  }
  if (drawing.logits.defined()) {
    const auto vocabulary = static_cast<std::size_t>(drawing.logits.dim(1));
    std::vector<float> logits(count * vocabulary);
    if (drawing.logits_readback)
      drawing.logits_readback->finish(logits.data());
    else
      runtime::backend_of(output_device())
          .download(*runtime::buffer_of(*drawing.logits.node()), 0, static_cast<Extent>(logits.size()), DType::f32,
                    logits.data());
    for (std::size_t i = 0; i < count; ++i) {
      const auto row = std::span<const float>(logits).subspan(i * vocabulary, vocabulary);
      const double total = log_total(row);
      if (draws[i].token < 0) continue;
      draws[i].top = most_probable(row, drawing.tops[i], total);
      // The same sum, so that the token has the same log-probability in the list.
      draws[i].log_probability = static_cast<float>(row[static_cast<std::size_t>(draws[i].token)] - total);
    }
  }
  return draws;
}

}  // namespace weft::llm::detail
