#include "speech/beams.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/philox.hpp"
#include "speech/decoding.hpp"

namespace weft::speech {
namespace {

double score_of(const Hypothesis& text, const std::optional<double>& length_penalty) {
  const auto length = static_cast<double>(std::max<std::size_t>(text.tokens.size(), 1));
  return text.log_probability / (length_penalty ? std::pow((5 + length) / 6, *length_penalty) : length);
}

/// A way on from a beam.
struct Candidate {
  std::size_t beam = 0;
  std::int32_t token = -1;
  double log_probability = 0;  // of the whole text
};

/// The `count` most probable ways on from each beam, the most probable ones of all first. `row_of_beam` finds a beam's logits.
template <class RowOfBeam>
std::vector<Candidate> ways_on(std::span<const Hypothesis> beams, const RowOfBeam& row_of_beam, std::size_t count,
                               const WhisperTokens& tokens, bool timestamps) {
  std::vector<Candidate> all;
  for (std::size_t b = 0; b < beams.size(); ++b) {
    const std::span<float> logits = row_of_beam(b);
    apply_rules(logits, beams[b].tokens, tokens, timestamps);
    for (const Choice& choice : best_choices(logits, count))
      all.push_back({b, choice.token, beams[b].log_probability + choice.log_probability});
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const Candidate& a, const Candidate& b) { return a.log_probability > b.log_probability; });
  return all;
}

Hypothesis extended(const Hypothesis& beam, const Candidate& by, bool ends) {
  Hypothesis text{beam.tokens, by.log_probability, ends};
  if (!ends) text.tokens.push_back(by.token);
  return text;
}

}  // namespace

double uniform_draw(std::uint64_t seed, std::uint64_t i, std::uint32_t text) {
  const auto words = philox::block({static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)},
                                   {static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(i >> 32), text,
                                    static_cast<std::uint32_t>(philox::Use::sampling)});
  return philox::to_unit_double(words[0], words[1]);
}

const Hypothesis& best_of(std::span<const Hypothesis> texts, const std::optional<double>& length_penalty) {
  return *std::max_element(texts.begin(), texts.end(), [&](const Hypothesis& a, const Hypothesis& b) {
    return score_of(a, length_penalty) < score_of(b, length_penalty);
  });
}

BeamPlaces place_beams(std::span<const Extent> sources, Extent count) {
  BeamPlaces places{std::vector<Extent>(sources.size(), -1), {}};
  std::vector<bool> is_taken(static_cast<std::size_t>(count), false);
  for (std::size_t b = 0; b < sources.size(); ++b)
    if (const auto source = static_cast<std::size_t>(sources[b]); !is_taken[source]) {
      is_taken[source] = true;
      places.sequence_of_beam[b] = sources[b];
    }
  Extent free = 0;
  for (std::size_t b = 0; b < sources.size(); ++b) {
    if (places.sequence_of_beam[b] >= 0) continue;
    while (is_taken[static_cast<std::size_t>(free)]) ++free;
    places.sequence_of_beam[b] = free;
    places.copies.push_back({sources[b], free++});
  }
  return places;
}

Hypothesis search_beams(detail::WhisperEngine& engine, TextStart start, const DecodeOptions& options) {
  const WhisperTokens& special = engine.tokens();
  const auto width = static_cast<std::size_t>(options.beam_size);
  const auto vocabulary = static_cast<std::size_t>(engine.config().vocabulary);
  const auto enough = static_cast<std::size_t>(std::nearbyint(static_cast<double>(width) * options.patience));
  std::vector<Hypothesis> beams(1), whole;
  std::vector<Extent> sequences = {0};  // of the beams
  std::vector<float> logits = std::move(start.logits);
  for (Extent n = 0; n < start.most && !options.cancel.stop_requested(); ++n) {
    const auto row = [&](std::size_t b) {
      return std::span(logits).subspan(static_cast<std::size_t>(sequences[b]) * vocabulary, vocabulary);
    };
    // One more than there are beams: each may end once.
    const std::vector<Candidate> ways = ways_on(beams, row, width + 1, special, options.timestamps);
    std::vector<Hypothesis> next;
    std::vector<Extent> sources;
    for (const Candidate& way : ways) {
      if (way.token == special.end) {
        if (whole.size() < enough) whole.push_back(extended(beams[way.beam], way, true));
        continue;
      }
      next.push_back(extended(beams[way.beam], way, false));
      sources.push_back(sequences[way.beam]);
      if (next.size() == width) break;
    }
    beams = std::move(next);
    if (whole.size() >= enough || beams.empty() || n + 1 == start.most) break;
    const Extent position = static_cast<Extent>(start.prompt.size()) + n;
    const BeamPlaces places = place_beams(sources, options.beam_size);
    engine.copy_sequences(places.copies, position);
    sequences = places.sequence_of_beam;
    std::vector<std::int32_t> tokens(width, -1);
    for (std::size_t b = 0; b < beams.size(); ++b)
      tokens[static_cast<std::size_t>(sequences[b])] = beams[b].tokens.back();
    logits = engine.step(tokens, position);
  }
  // Beams are in the order of their probabilities.
  for (const Hypothesis& beam : beams)
    if (whole.size() < width) whole.push_back(beam);
  return best_of(whole, options.length_penalty);
}

Hypothesis draw_texts(detail::WhisperEngine& engine, TextStart start, const DecodeOptions& options) {
  const WhisperTokens& special = engine.tokens();
  const auto count = static_cast<std::size_t>(options.best_of);
  const auto vocabulary = static_cast<std::size_t>(engine.config().vocabulary);
  std::vector<Hypothesis> texts(count);
  std::vector<float> logits;
  for (std::size_t i = 0; i < count; ++i) logits.insert(logits.end(), start.logits.begin(), start.logits.end());
  std::vector<detail::SequenceCopy> copies;
  for (Extent i = 1; i < options.best_of; ++i) copies.push_back({0, i});
  engine.copy_sequences(copies, static_cast<Extent>(start.prompt.size()));
  for (Extent n = 0; n < start.most && !options.cancel.stop_requested(); ++n) {
    std::vector<std::int32_t> tokens(count, -1);
    for (std::size_t i = 0; i < count; ++i) {
      Hypothesis& text = texts[i];
      if (text.has_ended) continue;
      const std::span<float> row = std::span(logits).subspan(i * vocabulary, vocabulary);
      apply_rules(row, text.tokens, special, options.timestamps);
      const double uniform =
          uniform_draw(options.seed, options.draw + static_cast<std::uint64_t>(n), static_cast<std::uint32_t>(i));
      const Choice choice = choose(row, options.temperature, uniform);
      text.log_probability += choice.log_probability;
      text.has_ended = choice.token == special.end;
      if (text.has_ended) continue;
      text.tokens.push_back(choice.token);
      tokens[i] = choice.token;
    }
    const bool all_have_ended =
        std::all_of(texts.begin(), texts.end(), [](const Hypothesis& text) { return text.has_ended; });
    if (all_have_ended || n + 1 == start.most) break;
    logits = engine.step(tokens, static_cast<Extent>(start.prompt.size()) + n);
  }
  return best_of(texts, options.length_penalty);
}

}  // namespace weft::speech
