#include "llm/run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "weft/error.hpp"

namespace weft::llm::detail {
namespace {

using Clock = std::chrono::steady_clock;
using text::TokenId;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

/// Runs the part of a prompt that the cache lacks, except for the last token. Looks for a stop request between pieces.
void read_prompt(Engine& engine, std::span<const TokenId> rest, Extent place, int slot, const std::stop_token& cancel) {
  auto& held = engine.cached(slot);
  for (std::size_t at = 0; at + 1 < rest.size() && !cancel.stop_requested();) {
    const auto left = rest.subspan(at, rest.size() - 1 - at),
               part = left.first(engine.part_of(left, Engine::kStepsMax));
    engine.read(positioned(part, place + static_cast<Extent>(at), slot));
    held.insert(held.end(), part.begin(), part.end());
    engine.keep_states(slot);
    at += part.size();
  }
  engine.finish_reading();
}

}  // namespace

std::vector<PositionedToken> positioned(std::span<const TokenId> tokens, Extent first_position, int slot) {
  std::vector<PositionedToken> batch;
  for (std::size_t i = 0; i < tokens.size(); ++i)
    batch.push_back({tokens[i], first_position + static_cast<Extent>(i), slot});
  return batch;
}

void check_prompt(const std::vector<TokenId>& prompt, const Engine& engine) {
  if (prompt.empty()) throw UsageError("llm: the prompt has no tokens; give some text");
  if (static_cast<Extent>(prompt.size()) >= engine.context())
    throw UsageError(
        fmt::format("llm: the prompt has {} tokens, and the context {} positions; shorten it, or load the model "
                    "with a larger context",
                    prompt.size(), engine.context()));
}

void check(const GenerateOptions& o, const Engine& engine) {
  const Sampling& s = o.sampling;
  const auto require = [](bool good, std::string_view name, double value, std::string_view range) {
    if (!good) throw UsageError(fmt::format("llm: {} is {}, not {}", name, value, range));
  };
  require(o.max_tokens >= 0, "max_tokens", static_cast<double>(o.max_tokens), "0 or more");
  require(s.temperature >= 0 && std::isfinite(s.temperature), "temperature", s.temperature, "0 or more");
  require(s.top_k >= 0, "top_k", static_cast<double>(s.top_k), "0 or more");
  require(s.top_p > 0 && s.top_p <= 1, "top_p", s.top_p, "above 0 and at most 1");
  require(s.min_p >= 0 && s.min_p <= 1, "min_p", s.min_p, "between 0 and 1");
  require(s.typical > 0 && s.typical <= 1, "typical", s.typical, "above 0 and at most 1");
  require(s.repetition_penalty > 0 && std::isfinite(s.repetition_penalty), "repetition_penalty", s.repetition_penalty,
          "above 0");
  require(std::isfinite(s.frequency_penalty), "frequency_penalty", s.frequency_penalty, "a number");
  require(std::isfinite(s.presence_penalty), "presence_penalty", s.presence_penalty, "a number");
  require(s.penalty_window >= 0 && s.penalty_window <= 256, "penalty_window", static_cast<double>(s.penalty_window),
          "between 0 and 256");
  require(o.top_log_probabilities >= 0 && o.top_log_probabilities <= 20, "top_log_probabilities",
          static_cast<double>(o.top_log_probabilities), "between 0 and 20");
  require(o.draft >= 0 && o.draft <= 15, "draft", static_cast<double>(o.draft), "between 0 and 15");
  require(o.draft == 0 || !engine.has_states(), "draft", static_cast<double>(o.draft),
          "0: the layers of this model keep states, from which wrong guesses cannot be taken back");
  require(s.logit_bias.size() <= 1024, "the number of logit biases", static_cast<double>(s.logit_bias.size()),
          "at most 1024");
  for (const auto& [token, bias] : s.logit_bias) {
    require(token >= 0 && token < engine.config().vocabulary, "the token of a logit bias", token,
            fmt::format("one of the {} of the vocabulary", engine.config().vocabulary));
    require(!std::isnan(bias), "a logit bias", bias, "a number");
    require(!o.grammar || bias < std::numeric_limits<double>::infinity(), "a logit bias beside a grammar", bias,
            "below infinity");
  }
  if (!o.grammar && (!o.grammar_after.empty() || o.grammar_is_optional))
    throw UsageError("llm: grammar_after and grammar_is_optional are given without a grammar");
}

std::uint64_t seed_of(const Sampling& sampling) {
  if (sampling.seed) return *sampling.seed;
  std::random_device device;
  return std::uint64_t{device()} << 32 | device();
}

// ---- Reply -------------------------------------------------------------------------------------------------------------

Reply::Reply(const Engine& engine, const GenerateOptions& options, Extent prompt_tokens)
    : engine_(engine),
      options_(options),
      decoder_(*engine.text().tokenizer, !options.keep_special),
      stop_(options.stop) {
  result.prompt_tokens = prompt_tokens;
  tokens_max_ = std::min(options.max_tokens, engine.context() - prompt_tokens);
}

bool Reply::take(const Draw& draw, std::string& piece) {
  if (ended_) return false;
  if (draw.token < 0)
    throw UsageError("llm: the model gave logits that are NaN; its weights or its context are out of range");
  if (static_cast<Extent>(result.tokens.size()) >= tokens_max_) {
    end(Finish::length, piece);
    return false;
  }
  const auto& ends = engine_.text().end_tokens;
  if (std::find(ends.begin(), ends.end(), draw.token) != ends.end()) {
    end(Finish::end_of_text, piece);
    return false;
  }
  result.tokens.push_back({draw.token, draw.log_probability, draw.top});
  const std::string certain = stop_.put(decoder_.put(draw.token));
  piece += certain;
  result.text += certain;
  if (stop_.stopped())
    end(Finish::stop_text, piece);
  else if (static_cast<Extent>(result.tokens.size()) >= tokens_max_)
    end(Finish::length, piece);
  return !ended_;
}

void Reply::end(Finish finish, std::string& piece) {
  if (ended_) return;
  ended_ = true;
  result.finish = finish;
  std::string rest;
  if (!stop_.stopped()) {
    rest = stop_.put(decoder_.finish());
    if (stop_.stopped())
      result.finish = Finish::stop_text;
    else
      rest += stop_.finish();
  }
  piece += rest;
  result.text += rest;
  result.stop_text = stop_.found();
}

// ---- Run ---------------------------------------------------------------------------------------------------------------

Run::Run(std::shared_ptr<Engine> engine, Prompt prompt, GenerateOptions options)
    : engine_(std::move(engine)),
      options_(std::move(options)),
      prompt_(std::move(prompt)),
      tokens_((check(options_, *engine_), check_prompt(prompt_.tokens(), *engine_), prompt_.tokens())),
      seed_(seed_of(options_.sampling)),
      reply_(*engine_, options_, static_cast<Extent>(tokens_.size())) {
  if (engine_->busy) throw UsageError("llm: another generation of this model is under way; finish or destroy it first");
  if (options_.grammar) constraint_.emplace(engine_->constraints(), options_);
  engine_->busy = true;
}

Run::~Run() { release(); }

void Run::release() {
  if (released_) return;
  released_ = true;
  drawing_.reset();
  engine_->busy = false;
}

DrawRequest Run::request(std::size_t drawn, std::span<const TokenId> history) const {
  return {
      &options_.sampling, seed_, drawn, options_.log_probabilities, options_.top_log_probabilities, nullptr, history};
}

bool Run::next(std::string& piece) {
  piece.clear();
  while (piece.empty() && !reply_.ended()) {
    if (options_.cancel.stop_requested())
      reply_.cancel(piece);
    else if (!started_)
      start();
    if (reply_.ended()) break;
    const Sampling& s = options_.sampling;
    const bool looks_back = s.repetition_penalty != 1 || s.frequency_penalty != 0 || s.presence_penalty != 0;
    // A grammar must know the token before it tells which may follow.
    // A state that has seen the token after the end could not be reused.
    if (engine_->runs_beside_host() && options_.draft == 0 && !looks_back && !constraint_ && !engine_->has_states())
      step_beside_device(piece);
    else
      step(piece);
  }
  if (reply_.ended()) release();  // the next generation need not wait until this one is destroyed
  return !piece.empty();
}

/// All of the prompt but its last token, which the first step takes.
void Run::start() {
  const auto begin = Clock::now();
  started_ = true;
  const Extent reused = engine_->reuse(0, tokens_);
  reply_.result.reused_tokens = reused;
  const auto rest = std::span<const TokenId>(tokens_).subspan(static_cast<std::size_t>(reused));
  read_prompt(*engine_, rest, reused, 0, options_.cancel);
  reply_.result.prompt_seconds = seconds_since(begin);
}

/// Runs the last token together with guesses of the next ones, and keeps the drawn tokens as far as the guesses were right.
void Run::step(std::string& piece) {
  if (options_.cancel.stop_requested()) return reply_.cancel(piece);
  const auto begin = Clock::now();
  engine_->grow(0, static_cast<Extent>(tokens_.size()));
  const std::vector<TokenId> guesses = guess();
  std::vector<TokenId> ahead = {tokens_.back()};
  ahead.insert(ahead.end(), guesses.begin(), guesses.end());
  const auto batch = positioned(ahead, static_cast<Extent>(tokens_.size()) - 1, 0);
  const Tensor logits = guesses.empty() ? engine_->last_logits(batch) : engine_->all_logits(batch);
  std::vector<TokenId> history = tokens_;
  history.insert(history.end(), guesses.begin(), guesses.end());
  std::vector<DrawRequest> requests;
  std::vector<grammar::TokenMask> masks;
  if (constraint_) masks.reserve(ahead.size());
  std::optional<Constraint> follows = constraint_;
  for (std::size_t i = 0; i < ahead.size(); ++i) {
    requests.push_back(
        request(reply_.result.tokens.size() + i, std::span<const TokenId>(history).first(tokens_.size() + i)));
    if (!follows) continue;
    if (i > 0) follows->accept(ahead[i]);
    if (const grammar::TokenMask* allowed = follows->allowed()) requests.back().allowed = &masks.emplace_back(*allowed);
  }
  const std::vector<Draw> draws = engine_->draw(logits, requests);
  reply_.result.drafted_tokens += static_cast<Extent>(guesses.size());
  auto& held = engine_->cached(0);
  for (std::size_t i = 0; i < draws.size(); ++i) {
    held.push_back(ahead[i]);
    engine_->keep_states_sometimes(0);
    const bool more = goes_on(draws[i], piece);
    if (more) tokens_.push_back(draws[i].token);
    if (!more || i >= guesses.size() || guesses[i] != draws[i].token) break;
    ++reply_.result.accepted_tokens;
  }
  reply_.result.seconds += seconds_since(begin);
}

/// Takes a token; false at the end.
bool Run::goes_on(const Draw& draw, std::string& piece) {
  if (constraint_) constraint_->require(draw.token);
  if (!reply_.take(draw, piece)) return false;
  if (!constraint_) return true;
  constraint_->accept(draw.token);
  if (!constraint_->is_finished()) return true;
  reply_.finish(piece);
  return false;
}

/// One token. The device is given the pass after it, with the token that it has drawn, before the host knows which; so it
/// never waits for the host. What it computes too much at the end is written beyond what the cache is known to hold.
void Run::step_beside_device(std::string& piece) {
  if (options_.cancel.stop_requested()) return reply_.cancel(piece);
  const auto begin = Clock::now();
  const auto place = static_cast<Extent>(tokens_.size());
  const auto start_draw = [&](const Tensor& logits, std::size_t ahead) {
    const DrawRequest wanted = request(reply_.result.tokens.size() + ahead, tokens_);
    return engine_->start_draw(logits, {&wanted, 1});
  };
  if (!drawing_) {
    engine_->grow(0, place);
    drawing_ = start_draw(engine_->last_logits(positioned({&tokens_.back(), 1}, place - 1, 0)), 0);
  }
  Drawing drawing = std::move(*drawing_);
  drawing_.reset();
  if (reply_.room() > 1 && !engine_->turns_anew(0, place + 1))
    drawing_ = start_draw(engine_->next_logits(drawing, place, 0), 1);
  const Draw draw = engine_->finish(std::move(drawing), 1)[0];
  engine_->cached(0).push_back(tokens_.back());
  if (reply_.take(draw, piece)) tokens_.push_back(draw.token);
  reply_.result.seconds += seconds_since(begin);
}

/// What followed the last time that the text ended as it does now.
std::vector<TokenId> Run::guess() const {
  const auto length = static_cast<Extent>(tokens_.size());
  Extent room = std::min({options_.draft, engine_->context() - length,
                          options_.max_tokens - static_cast<Extent>(reply_.result.tokens.size()) - 1});
  while (room > 0 && engine_->turns_anew(0, length + room)) --room;
  if (room <= 0) return {};
  constexpr std::size_t kLongest = 4, kShortest = 2;
  for (std::size_t n = kLongest; n >= kShortest; --n) {
    if (tokens_.size() <= n) continue;
    const auto end = tokens_.end() - static_cast<std::ptrdiff_t>(n);
    const auto found = std::find_end(tokens_.begin(), tokens_.end() - 1, end, tokens_.end());
    if (found == tokens_.end() - 1) continue;
    const auto from = found + static_cast<std::ptrdiff_t>(n);
    const auto count = std::min<std::ptrdiff_t>(room, tokens_.end() - from);
    // No image follows a text by itself.
    std::vector<TokenId> guesses(from, std::find_if(from, from + count, is_image_row));
    return constraint_ ? constraint_->fitting(guesses) : guesses;
  }
  return {};
}

}  // namespace weft::llm::detail
