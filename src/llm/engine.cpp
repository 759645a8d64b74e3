// Passes of tokens through the stages. engine_load.cpp makes an engine, engine_draw.cpp draws tokens, engine_images.cpp sees
// images, and engine_reuse.cpp knows what the caches hold.
#include "llm/engine.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "llm/placement.hpp"
#include "weft/error.hpp"

namespace weft::llm::detail {
namespace {

// Tokens of a pass. A pass of every size is compiled once, when it is first needed.
constexpr std::size_t kSizes[] = {1, 2, 4, 8, 16, 64, 256, 512};
static_assert(Engine::kStepsMax == kPassTokensMax);

std::size_t smallest_size(std::size_t steps) { return *std::lower_bound(std::begin(kSizes), std::end(kSizes), steps); }

/// The largest pass over a prompt. Half of all that fits is as quick on a CPU, and takes half the memory. On several devices,
/// smaller passes let more of them work at the same time.
std::size_t largest_pass(const Pipeline::Stages& stages) {
  const bool is_whole = stages.size() == 1 && stages[0]->device().kind != Device::Kind::cpu;
  return is_whole ? Engine::kStepsMax : Engine::kStepsMax / 2;
}

/// How many tokens the next pass takes from a long prompt. Padding costs as much as tokens.
std::size_t next_size(std::size_t steps, std::size_t most) {
  if (steps <= 16) return smallest_size(steps);
  std::size_t size = 16;
  for (const std::size_t each : kSizes)
    if (each <= std::min(steps, most)) size = each;
  return steps > 3 * size ? smallest_size(std::min(steps, most)) : size;
}

/// Whether all tokens are of one sequence. Of a model with states they are that, or each is of another: a state takes the steps
/// of its sequence one after another, and a pass has one way to do so.
bool is_one_sequence(std::span<const PositionedToken> batch) {
  std::set<int> slots;
  for (const PositionedToken& token : batch) slots.insert(token.slot);
  if (slots.size() != 1 && slots.size() != batch.size())
    throw InternalError(
        fmt::format("llm: a pass over {} tokens of {} sequences with states", batch.size(), slots.size()));
  return slots.size() == 1;
}

}  // namespace

std::uint64_t Engine::planned_pass_bytes(std::size_t stage) {
  return stages_[stage]->planned_pass_bytes(1) + stages_[stage]->planned_pass_bytes(largest_pass(stages_));
}

std::uint64_t Engine::scratch_bytes() const {
  std::uint64_t bytes = 0;
  for (const auto& stage : stages_) bytes += stage->scratch_bytes();
  return bytes;
}

std::uint64_t Engine::weight_bytes(std::size_t stage) const {
  return stages_[stage]->weights().bytes + (stage == 0 && image_reader_ ? image_reader_->bytes() : 0);
}

std::uint64_t Engine::weight_bytes() const {
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < stages_.size(); ++i) bytes += weight_bytes(i);
  return bytes;
}

std::uint64_t Engine::cache_bytes() const {
  std::uint64_t bytes = 0;
  for (const auto& stage : stages_) bytes += stage->cache_bytes();
  return bytes;
}

std::vector<ModelPart> Engine::parts() const {
  std::vector<ModelPart> parts;
  for (std::size_t i = 0; i < stages_.size(); ++i) {
    const Stage& stage = *stages_[i];
    parts.push_back({stage.device(), stage.first_layer(), stage.layer_count(), weight_bytes(i), stage.cache_bytes()});
  }
  return parts;
}

const std::filesystem::path& Engine::packed_file() const {
  const auto mapped = [](const auto& stage) { return !stage->weights().packed_file.empty(); };
  const auto found = std::find_if(stages_.begin(), stages_.end(), mapped);
  return (found == stages_.end() ? stages_.front() : *found)->weights().packed_file;
}

PassNumbers Engine::numbers_of(std::span<const PositionedToken> batch, std::size_t size, LogitsOf wanted) {
  // Lists of numbers, as a stage takes them.
  const bool has_images = std::any_of(batch.begin(), batch.end(), [](const auto& t) { return is_image_row(t.token); });
  const bool has_states = settings_.has_states;
  const Extent context = settings_.context, ring = settings_.ring;
  const std::size_t lists_of_places = ring > 0 ? 6 : 4, list_of_images = settings_.lists(),
                    lists = list_of_images + (has_images ? settings_.lists_of_images() : 0), width = row_width();
  PassNumbers pass{.kind = {size, wanted, has_images, has_states && is_one_sequence(batch)},
                   .tokens = std::vector<std::int32_t>(size, 0),
                   .lists = std::vector<std::int32_t>(lists * size, 0),
                   .last = static_cast<std::int32_t>(batch.size()) - 1,
                   .image_rows = std::vector<float>(has_images ? size * width : 0, 0)};
  for (std::size_t t = 0; t < size; ++t) {
    const auto put = [&](std::size_t list, Extent value) {
      pass.lists[list * size + t] = static_cast<std::int32_t>(value);
    };
    if (t >= batch.size()) {
      for (std::size_t list = 2; list < lists_of_places; list += 2) put(list, -1);
      if (has_states) put(lists_of_places, -1);
      continue;
    }
    const PositionedToken& token = batch[t];
    const bool is_image = is_image_row(token.token);
    if (wanted != LogitsOf::drawn && !is_image && (token.token < 0 || token.token >= config().vocabulary))
      throw UsageError(
          fmt::format("llm: token {} is outside of the vocabulary of {}", token.token, config().vocabulary));
    if (token.position >= context)
      throw UsageError(fmt::format(
          "llm: the text has more tokens than the context of {}; load with a larger one, or shorten it", context));
    Extent& written = cached_[static_cast<std::size_t>(token.slot)].written;
    if (has_states && token.position != 0 && token.position != written)
      throw InternalError(
          fmt::format("llm: position {} of a sequence whose state has seen {}", token.position, written));
    written = token.position == 0 ? 1 : std::max(written, token.position + 1);
    if (!has_window(token.slot, token.position))
      throw InternalError(
          fmt::format("llm: position {} of a sequence whose ring was written up to {}", token.position, written));
    if (is_image) {
      copy_image_row(token.token, std::span(pass.image_rows).subspan(t * width, width));
      put(list_of_images, 1);
    } else {
      pass.tokens[t] = token.token;
    }
    const std::array<Extent, 3> places = places_of(token);
    put(0, places[0]);
    std::size_t list_of_more = list_of_images + 1;
    if (has_images && has_axes())
      for (const std::size_t axis : {std::size_t{1}, std::size_t{2}}) put(list_of_more++, places[axis]);
    Extent seen = token.position + 1;
    if (has_images && sees_images_whole()) {
      if (is_image) seen = end_of_image(token, batch);
      const Extent begin = config().window > 0 ? std::max<Extent>(token.position + 1 - config().window, 0) : 0;
      put(list_of_more, token.slot * context + begin);
      put(list_of_more + 1, seen - begin);
    }
    put(1, seen);
    const auto put_places = [&](std::size_t list, Extent rows) {
      put(list, token.slot * rows + token.position % rows);
      put(list + 1, token.slot * rows);
    };
    put_places(2, context);
    if (ring > 0) put_places(4, ring);
    if (has_states) {
      put(lists_of_places, token.slot);
      put(lists_of_places + 1, token.position == 0 ? 1 : 0);
    }
    if (short_positions_) put(list_of_images - 1, cached_[static_cast<std::size_t>(token.slot)].is_long ? 1 : 0);
  }
  if (has_states) pass.lists[(lists_of_places + 2) * size] = static_cast<std::int32_t>(batch.size());
  return pass;
}

template <class Work>
auto Engine::guarded(const Work& work) {
  try {
    return work();
  } catch (...) {
    pipeline_.clear();
    if (stages_.size() > 1)
      for (Cached& each : cached_) each.tokens.clear();
    throw;
  }
}

Tensor Engine::pass(std::span<const PositionedToken> batch, std::size_t size, LogitsOf wanted, const Tensor& drawn,
                    std::string* profile) {
  PassNumbers numbers = numbers_of(batch, size, wanted);
  numbers.drawn = drawn;
  return guarded([&] { return pipeline_.run(std::move(numbers), profile); });
}

std::string Engine::profile(std::span<const PositionedToken> batch) {
  std::string profile;
  pass(batch, smallest_size(batch.size()), LogitsOf::last, {}, &profile);
  return profile;
}

template <class Work>
void Engine::in_passes(std::span<const PositionedToken> batch, const Work& run) const {
  if (batch.empty()) throw UsageError("llm: no tokens; give at least one");
  while (!batch.empty()) {
    std::size_t size = next_size(batch.size(), largest_pass(stages_)), taken = std::min(size, batch.size());
    if (const std::size_t whole = sees_images_whole() ? whole_images(batch, taken) : taken; whole != taken) {
      taken = whole;
      size = smallest_size(taken);
    }
    run(batch.first(taken), size, taken == batch.size());
    batch = batch.subspan(taken);
  }
}

Tensor Engine::last_logits(std::span<const PositionedToken> batch) {
  see_images(batch);
  Tensor logits;
  in_passes(batch, [&](std::span<const PositionedToken> part, std::size_t size, bool is_last) {
    if (is_last)
      logits = pass(part, size, LogitsOf::last);
    else
      read_pass(part, size);
  });
  return logits;
}

void Engine::read(std::span<const PositionedToken> batch) {
  see_images(batch);
  in_passes(batch, [&](std::span<const PositionedToken> part, std::size_t size, bool) { read_pass(part, size); });
}

void Engine::read_pass(std::span<const PositionedToken> part, std::size_t size) {
  PassNumbers numbers = numbers_of(part, size, LogitsOf::last);
  guarded([&] { pipeline_.feed(std::move(numbers)); });
}

void Engine::finish_reading() {
  guarded([&] { pipeline_.drain(); });
}

Tensor Engine::all_logits(std::span<const PositionedToken> batch) { return whole_pass(batch, LogitsOf::every); }
Tensor Engine::states(std::span<const PositionedToken> batch) { return whole_pass(batch, LogitsOf::none); }
Tensor Engine::whole_pass(std::span<const PositionedToken> batch, LogitsOf wanted) {
  if (batch.empty() || batch.size() > kStepsMax)
    throw InternalError(fmt::format("llm: a pass over {} tokens", batch.size()));
  see_images(batch);
  return pass(batch, smallest_size(batch.size()), wanted);
}

Tensor Engine::next_logits(const Drawing& token, Extent position, int slot) {
  const PositionedToken nothing{text::kNoToken, position, slot};
  return pass({&nothing, 1}, 1, LogitsOf::drawn, token.drawn);
}

}  // namespace weft::llm::detail
