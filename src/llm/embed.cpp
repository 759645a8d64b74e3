// Sentence embeddings: the states of a text's tokens before the head, pooled to one row.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "llm/run.hpp"
#include "weft/error.hpp"
#include "weft/tensor.hpp"

namespace weft::llm {
namespace {

// Each row divided by its length, so that products of rows are cosines.
void normalize_rows(std::vector<double>& rows, std::size_t width) {
  for (std::size_t at = 0; at < rows.size(); at += width) {
    double squares = 0;
    for (std::size_t i = 0; i < width; ++i) squares += rows[at + i] * rows[at + i];
    const double length = std::max(std::sqrt(squares), 1e-12);
    for (std::size_t i = 0; i < width; ++i) rows[at + i] /= length;
  }
}

}  // namespace

Extent Model::width() const { return engine_->config().hidden; }

Tensor Model::embed(std::span<const std::string> texts, const EmbedOptions& options) const {
  if (engine_->busy) throw UsageError("llm: a generation of this model is under way; finish or destroy it first");
  std::vector<int> slots(static_cast<std::size_t>(engine_->slots()));
  std::iota(slots.begin(), slots.end(), 0);
  return detail::embed(*engine_, texts, options, slots);
}

namespace detail {

Tensor embed(Engine& engine, std::span<const std::string> texts, const EmbedOptions& options,
             std::span<const int> slots) {
  if (engine.has_states()) slots = slots.first(1);  // the tokens of a pass are of one sequence
  std::vector<std::vector<text::TokenId>> tokens;
  for (const std::string& each : texts) {
    tokens.push_back(engine.text().tokenizer->encode(each, {.add_special = options.add_special}));
    const std::size_t i = tokens.size() - 1, count = tokens[i].size();
    if (count == 0) throw UsageError(fmt::format("llm: text {} has no tokens, and so no embedding", i));
    if (count > static_cast<std::size_t>(engine.context()))
      throw UsageError(
          fmt::format("llm: text {} has {} tokens, and the context is {}; load with a larger one, or cut the text", i,
                      count, engine.context()));
  }
  const auto columns = static_cast<std::size_t>(engine.config().hidden);
  std::vector<double> rows(texts.size() * columns, 0);
  // As many texts at a time as the cache has sequences; their tokens share passes.
  for (std::size_t first = 0; first < texts.size(); first += slots.size()) {
    struct Owner {
      std::size_t text;
      bool is_last;
    };
    std::vector<PositionedToken> batch;
    std::vector<Owner> owners;
    for (std::size_t text = first; text < std::min(first + slots.size(), texts.size()); ++text) {
      const int slot = slots[text - first];
      engine.cached(slot).clear();
      engine.grow(slot, static_cast<Extent>(tokens[text].size()));
      for (std::size_t t = 0; t < tokens[text].size(); ++t) {
        batch.push_back({tokens[text][t], static_cast<Extent>(t), slot});
        owners.push_back({text, t + 1 == tokens[text].size()});
      }
    }
    for (std::size_t at = 0; at < batch.size(); at += Engine::kStepsMax) {
      const auto part = std::span(batch).subspan(at, std::min(Engine::kStepsMax, batch.size() - at));
      const std::vector<float> states = engine.states(part).to_vector<float>();
      for (std::size_t t = 0; t < part.size(); ++t) {
        const auto [text, is_last] = owners[at + t];
        if (options.pooling == Pooling::last && !is_last) continue;
        for (std::size_t i = 0; i < columns; ++i) rows[text * columns + i] += states[t * columns + i];
      }
    }
  }
  if (options.pooling == Pooling::mean)
    for (std::size_t text = 0; text < texts.size(); ++text)
      for (std::size_t i = 0; i < columns; ++i) rows[text * columns + i] /= static_cast<double>(tokens[text].size());
  if (options.normalize) normalize_rows(rows, columns);
  const std::vector<float> result(rows.begin(), rows.end());
  return tensor_from_bytes(result.data(), {static_cast<Extent>(texts.size()), engine.config().hidden}, DType::f32,
                           kCpu);
}

}  // namespace detail

}  // namespace weft::llm
