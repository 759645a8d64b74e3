// Generations side by side, each in a sequence of the cache.
#include <fmt/format.h>

#include <algorithm>

#include "llm/run.hpp"
#include "weft/error.hpp"

namespace weft::llm {

using text::TokenId;

namespace detail {

struct BatchState {
  using Clock = std::chrono::steady_clock;

  struct Sequence {
    Batch::Id id;
    int slot;
    GenerateOptions options;
    std::uint64_t seed;
    Prompt prompt;                // keeps its images while they may be needed
    std::vector<TokenId> tokens;  // the last is not in the cache
    Reply reply;
    std::optional<Constraint> constraint;
    bool has_started = false, is_reading = true, has_ended = false;

    Sequence(Batch::Id id, int slot, Engine& engine, Prompt given_prompt, GenerateOptions given)
        : id(id),
          slot(slot),
          options(std::move(given)),
          seed(seed_of(options.sampling)),
          prompt(std::move(given_prompt)),
          tokens(prompt.tokens()),
          reply(engine, options, static_cast<Extent>(tokens.size())) {
      if (options.grammar) constraint.emplace(engine.constraints(), options);
    }
    Sequence(const Sequence&) = delete;  // the reply refers to the options
  };

  std::shared_ptr<Engine> engine;
  std::vector<std::unique_ptr<Sequence>> sequences;  // by slot; null: free
  Batch::Id next_id = 1;
  std::size_t next_reader = 0;  // the slot that reads next

  explicit BatchState(std::shared_ptr<Engine> given) : engine(std::move(given)) {
    if (engine->busy)
      throw UsageError("llm: another generation of this model is under way; finish or destroy it first");
    engine->busy = true;
    sequences.resize(static_cast<std::size_t>(engine->slots()));
  }
  ~BatchState() { engine->busy = false; }

  std::vector<int> free_slots() const {
    std::vector<int> slots;
    for (std::size_t s = 0; s < sequences.size(); ++s)
      if (!sequences[s]) slots.push_back(static_cast<int>(s));
    return slots;
  }

  // The free sequence whose cache begins with most of the prompt; among equals the one with the least in its cache.
  int best_slot(std::span<const TokenId> prompt) const {
    int best = -1;
    std::size_t most = 0, least = 0;
    for (const int slot : free_slots()) {
      const auto& held = engine->cached(slot);
      const auto common = static_cast<std::size_t>(
          std::mismatch(held.begin(), held.end(), prompt.begin(), prompt.end()).first - held.begin());
      if (best >= 0 && (common < most || (common == most && held.size() >= least))) continue;
      best = slot;
      most = common;
      least = held.size();
    }
    return best;
  }

  Sequence& at(Batch::Id id) const {
    for (const auto& each : sequences)
      if (each && each->id == id) return *each;
    throw UsageError(fmt::format("llm: the batch has no generation {}; it may have been removed", id));
  }

  // Runs what makes a sequence go on; an error ends it alone.
  template <class Work>
  static bool guarded(Sequence& sequence, Batch::Progress& progress, const Work& work) {
    try {
      work();
      return true;
    } catch (const UsageError& error) {
      progress.error = error.what();
      progress.has_ended = sequence.has_ended = true;
      return false;
    }
  }

  // A part of the prompt of the next sequence that reads one.
  void read(std::vector<Batch::Progress>& all) {
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      const std::size_t slot = (next_reader + i) % sequences.size();
      Sequence* s = sequences[slot].get();
      if (!s || s->has_ended || !s->is_reading) continue;
      next_reader = slot + 1;
      Batch::Progress& progress = all[slot];
      const auto begin = Clock::now();
      guarded(*s, progress, [&] {
        auto& held = engine->cached(s->slot);
        if (!s->has_started) {
          s->has_started = true;
          s->reply.result.reused_tokens = engine->reuse(s->slot, s->tokens);
        }
        const auto rest = std::span<const TokenId>(s->tokens).subspan(held.size());
        const auto part = rest.first(engine->part_of(rest.first(rest.size() - 1), Engine::kStepsMax));
        if (!part.empty()) {
          engine->read(positioned(part, static_cast<Extent>(held.size()), s->slot));
          held.insert(held.end(), part.begin(), part.end());
          engine->keep_states(s->slot);
        }
        s->is_reading = part.size() + 1 < rest.size();
      });
      s->reply.result.prompt_seconds += std::chrono::duration<double>(Clock::now() - begin).count();
      return;
    }
  }

  // A token for each sequence that has read its prompt.
  void write(std::vector<Batch::Progress>& all) {
    std::vector<PositionedToken> batch;
    std::vector<DrawRequest> requests;
    std::vector<grammar::TokenMask> masks;
    masks.reserve(sequences.size());
    std::vector<Sequence*> taken;
    for (const auto& each : sequences) {
      Sequence* s = each.get();
      if (!s || s->has_ended || s->is_reading) continue;
      const grammar::TokenMask* allowed = nullptr;
      const bool good = guarded(*s, all[static_cast<std::size_t>(s->slot)], [&] {
        if (s->constraint) allowed = s->constraint->allowed();
        engine->grow(s->slot, static_cast<Extent>(s->tokens.size()));
      });
      if (!good) continue;
      // Sequences with the same grammar share the place of the mask.
      if (allowed) allowed = &masks.emplace_back(*allowed);
      batch.push_back({s->tokens.back(), static_cast<Extent>(s->tokens.size()) - 1, s->slot});
      requests.push_back({&s->options.sampling, s->seed, s->reply.result.tokens.size(), s->options.log_probabilities,
                          s->options.top_log_probabilities, allowed, s->tokens});
      taken.push_back(s);
    }
    if (batch.empty()) return;
    const auto begin = Clock::now();
    const std::vector<Draw> draws = engine->draw(engine->all_logits(batch), requests);
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    for (std::size_t i = 0; i < taken.size(); ++i) {
      Sequence& s = *taken[i];
      Batch::Progress& progress = all[static_cast<std::size_t>(s.slot)];
      guarded(s, progress, [&] {
        engine->cached(s.slot).push_back(s.tokens.back());
        engine->keep_states_sometimes(s.slot);
        s.reply.result.seconds += seconds;
        if (s.constraint) s.constraint->require(draws[i].token);
        if (s.reply.take(draws[i], progress.piece)) {
          if (s.constraint) s.constraint->accept(draws[i].token);
          if (s.constraint && s.constraint->is_finished())
            s.reply.finish(progress.piece);
          else
            s.tokens.push_back(draws[i].token);
        }
        progress.has_ended = s.has_ended = s.reply.ended();
      });
    }
  }
};

}  // namespace detail

Batch::Batch(const Model& model) : state_(std::make_unique<detail::BatchState>(model.engine_)) {}
Batch::~Batch() = default;
Batch::Batch(Batch&&) noexcept = default;

int Batch::room() const { return static_cast<int>(state_->free_slots().size()); }
bool Batch::empty() const { return static_cast<std::size_t>(room()) == state_->sequences.size(); }

Batch::Id Batch::add(Prompt prompt, GenerateOptions options) {
  detail::Engine& engine = *state_->engine;
  detail::check(options, engine);
  detail::check_prompt(prompt.tokens(), engine);
  const int slot = state_->best_slot(prompt.tokens());
  if (slot < 0)
    throw UsageError(fmt::format("llm: all {} sequences are taken; remove one, or load with more", engine.slots()));
  state_->sequences[static_cast<std::size_t>(slot)] = std::make_unique<detail::BatchState::Sequence>(
      state_->next_id, slot, engine, std::move(prompt), std::move(options));
  return state_->next_id++;
}

std::vector<Batch::Progress> Batch::step() {
  auto& sequences = state_->sequences;
  std::vector<Progress> all(sequences.size()), gone_on;
  for (std::size_t slot = 0; slot < sequences.size(); ++slot) {
    detail::BatchState::Sequence* s = sequences[slot].get();
    if (!s || s->has_ended || !s->options.cancel.stop_requested()) continue;
    s->reply.cancel(all[slot].piece);
    all[slot].has_ended = s->has_ended = true;
  }
  state_->read(all);
  state_->write(all);
  for (std::size_t slot = 0; slot < sequences.size(); ++slot) {
    if (!sequences[slot] || (all[slot].piece.empty() && !all[slot].has_ended)) continue;
    all[slot].id = sequences[slot]->id;
    gone_on.push_back(std::move(all[slot]));
  }
  return gone_on;
}

const Result& Batch::result(Id id) const { return state_->at(id).reply.result; }

void Batch::remove(Id id) {
  const int slot = state_->at(id).slot;
  state_->sequences[static_cast<std::size_t>(slot)].reset();
}

Tensor Batch::embed(std::span<const std::string> texts, const EmbedOptions& options) {
  const std::vector<int> slots = state_->free_slots();
  if (slots.empty())
    throw UsageError("llm: all sequences of the batch are taken; embed texts when one has ended, or load with more");
  return detail::embed(*state_->engine, texts, options, slots);
}

}  // namespace weft::llm
