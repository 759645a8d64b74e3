// The draw of the next token. Candidates come from a heap, most probable first, only as many as the filters need: sorting a
// whole vocabulary would take longer than a layer of the model.
#include "backend/cpu/sample.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/philox.hpp"
#include "base/threads.hpp"

namespace weft::cpu {
namespace {

struct Settings {
  float temperature, top_k, typical, top_p, min_p, repetition, frequency, presence, log_probability;
};
static_assert(sizeof(Settings) == 9 * sizeof(float));

struct Candidate {
  float weight = 0;  // exp(-distance), not normalised
  std::int32_t id = 0;
  float logit = 0;
};
// Compares logits, because rounding can make different weights equal. So every device ranks alike.
bool precedes(const Candidate& x, const Candidate& y) { return x.logit != y.logit ? x.logit > y.logit : x.id < y.id; }

class Row {
 public:
  Row(const float* logits, Extent count) : raw_(logits), count_(count), logits_(logits, logits + count) {}

  void add_bias(const std::int32_t* tokens, const float* bias, Extent count) {
    for (Extent i = 0; i < count; ++i)
      if (tokens[i] >= 0 && tokens[i] < count_) logits_[static_cast<std::size_t>(tokens[i])] += bias[i];
  }
  void penalise(const Settings& s, const std::int32_t* history, Extent count) {
    if (s.repetition == 1 && s.frequency == 0 && s.presence == 0) return;
    std::vector<std::int32_t> seen;
    for (Extent i = 0; i < count; ++i)
      if (history[i] >= 0 && history[i] < count_) seen.push_back(history[i]);
    std::sort(seen.begin(), seen.end());
    for (std::size_t i = 0; i < seen.size();) {
      std::size_t end = i;
      while (end < seen.size() && seen[end] == seen[i]) ++end;
      float& l = logits_[static_cast<std::size_t>(seen[i])];
      l = l > 0 ? l / s.repetition : l * s.repetition;
      l -= s.frequency * static_cast<float>(end - i) + s.presence;
      i = end;
    }
  }

  std::int32_t draw(const Settings& s, double unit) {
    std::int32_t best = 0;
    for (Extent i = 0; i < count_; ++i) {
      const float l = logits_[static_cast<std::size_t>(i)];
      if (std::isnan(l)) return -1;
      if (l > logits_[static_cast<std::size_t>(best)]) best = static_cast<std::int32_t>(i);
    }
    const float top = logits_[static_cast<std::size_t>(best)];
    if (!(s.temperature > 0) || std::isinf(top)) return best;
    all_.resize(static_cast<std::size_t>(count_));
    double total = 0;
    for (Extent i = 0; i < count_; ++i) {
      const float l = logits_[static_cast<std::size_t>(i)], weight = std::exp((l - top) / s.temperature);
      all_[static_cast<std::size_t>(i)] = {weight, static_cast<std::int32_t>(i), l};
      total += weight;
    }
    const bool ranked = s.top_k > 0 || s.typical < 1 || s.top_p < 1;
    if (!ranked && s.min_p > 0)
      std::erase_if(all_,
                    [&](const Candidate& c) { return c.weight < std::min(s.min_p, 1.0f); });  // the largest's is 1
    if (!ranked) return pick(all_, unit);
    return pick(filtered(s, top, total), unit);
  }

  float log_probability(std::int32_t token) const {
    float top = -std::numeric_limits<float>::infinity();
    for (Extent i = 0; i < count_; ++i) top = std::max(top, raw_[i]);
    double total = 0;
    for (Extent i = 0; i < count_; ++i) total += std::exp(raw_[i] - top);
    return raw_[token] - top - static_cast<float>(std::log(total));
  }

 private:
  /// The most probable, in order, until `enough(candidate, mass before it)`.
  template <class Enough>
  std::vector<Candidate> most_probable(Enough enough) {
    const auto later = [](const Candidate& x, const Candidate& y) { return precedes(y, x); };
    std::make_heap(all_.begin(), all_.end(), later);
    std::vector<Candidate> kept;
    double mass = 0;
    while (!all_.empty() && (kept.empty() || !enough(kept.size(), mass))) {
      std::pop_heap(all_.begin(), all_.end(), later);
      kept.push_back(all_.back());
      mass += all_.back().weight;
      all_.pop_back();
    }
    return kept;
  }
  static double mass_of(const std::vector<Candidate>& list) {
    double mass = 0;
    for (const Candidate& c : list) mass += c.weight;
    return mass;
  }

  std::vector<Candidate> filtered(const Settings& s, float top, double total) {
    const auto k = s.top_k > 0 ? static_cast<std::size_t>(s.top_k) : all_.size();
    const bool only_top_p = s.typical >= 1;
    std::vector<Candidate> kept;
    if (only_top_p && s.top_k <= 0)
      kept = most_probable([&](std::size_t, double mass) { return mass >= s.top_p * total; });
    else if (s.top_k > 0)
      kept = most_probable([&](std::size_t count, double) { return count >= k; });
    else
      kept = std::move(all_);
    if (s.typical < 1) {
      // -log p = x + log(mass) with x = (top - logit) / temperature. So its distance from its mean (the entropy) is the
      // distance of x from the mean of x.
      const auto x = [&](const Candidate& c) { return static_cast<double>((top - c.logit) / s.temperature); };
      const double mass = mass_of(kept);
      double mean = 0;
      for (const Candidate& c : kept)
        if (c.weight > 0) mean += c.weight / mass * x(c);
      const auto distance = [&](const Candidate& c) {
        return c.weight > 0 ? std::abs(x(c) - mean) : std::numeric_limits<double>::infinity();
      };
      std::vector<std::pair<double, Candidate>> by_distance;
      for (const Candidate& c : kept) by_distance.emplace_back(distance(c), c);
      std::sort(by_distance.begin(), by_distance.end(), [](const auto& x, const auto& y) {
        return x.first != y.first ? x.first < y.first : precedes(x.second, y.second);
      });
      kept.clear();
      double gathered = 0;
      for (const auto& [d, c] : by_distance) {
        kept.push_back(c);
        gathered += c.weight;
        if (gathered >= s.typical * mass) break;
      }
      std::sort(kept.begin(), kept.end(), precedes);
    }
    if (s.top_p < 1 && !(only_top_p && s.top_k <= 0)) {
      const double mass = mass_of(kept);
      double gathered = 0;
      std::size_t count = 0;
      while (count < kept.size() && (count == 0 || gathered < s.top_p * mass)) gathered += kept[count++].weight;
      kept.resize(count);
    }
    if (s.min_p > 0) {
      const float least = std::min(s.min_p, 1.0f) * kept[0].weight;
      std::erase_if(kept, [&](const Candidate& c) { return c.weight < least; });
    }
    return kept;
  }

  static std::int32_t pick(const std::vector<Candidate>& kept, double unit) {
    const double goal = unit * mass_of(kept);
    double mass = 0;
    for (const Candidate& c : kept) {
      mass += c.weight;
      if (goal < mass) return c.id;
    }
    return kept.back().id;
  }

  const float* raw_;
  Extent count_;
  std::vector<float> logits_;
  std::vector<Candidate> all_;
};

}  // namespace

void run_sample_token(const kernel::CallKernel& kernel, std::span<char* const> reads, std::span<char* const> outs) {
  const Extent rows = kernel.shapes[0][0], vocabulary = kernel.shapes[0][1], window = kernel.shapes[2][1],
               biased = kernel.shapes[3][1];
  parallel_for(rows, [&](Extent b) {
    Settings s;
    std::memcpy(&s, reads[1] + b * static_cast<Extent>(sizeof s), sizeof s);
    const auto at = [&](int operand, Extent columns) {
      return reads[static_cast<std::size_t>(operand)] + b * columns * 4;
    };
    Row row(reinterpret_cast<const float*>(at(0, vocabulary)), vocabulary);
    row.add_bias(reinterpret_cast<const std::int32_t*>(at(3, biased)), reinterpret_cast<const float*>(at(4, biased)),
                 biased);
    row.penalise(s, reinterpret_cast<const std::int32_t*>(at(2, window)), window);
    std::uint32_t d[4];
    std::memcpy(d, at(5, 4), sizeof d);
    const philox::Block words =
        philox::block({d[0], d[1]}, {d[2], d[3], 0, static_cast<std::uint32_t>(philox::Use::sampling)});
    const std::int32_t token = row.draw(s, philox::to_unit_double(words[0], words[1]));
    const float log_probability = s.log_probability != 0 && token >= 0 ? row.log_probability(token) : 0;
    const std::int32_t result[] = {token, std::bit_cast<std::int32_t>(log_probability)};
    std::memcpy(outs[0] + b * static_cast<Extent>(sizeof result), result, sizeof result);
  });
}

}  // namespace weft::cpu
