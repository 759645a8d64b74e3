// One generation: reads a prompt, then makes token after token and hands out text as it becomes certain.
#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "llm/engine.hpp"
#include "llm/stop_texts.hpp"

namespace weft::llm::detail {

/// The text and the end of one sequence, wherever its tokens come from.
class Reply {
 public:
  Reply(const Engine& engine, const GenerateOptions& options, Extent prompt_tokens);

  /// Takes the next token; false once the sequence has ended. `piece` receives the text that became certain.
  bool take(const Draw& draw, std::string& piece);
  /// How many more tokens it takes at most.
  Extent room() const { return tokens_max_ - static_cast<Extent>(result.tokens.size()); }
  void cancel(std::string& piece) { end(Finish::cancelled, piece); }
  /// Ends the text where its grammar lets nothing follow.
  void finish(std::string& piece) { end(Finish::end_of_text, piece); }
  bool ended() const { return ended_; }

  Result result;

 private:
  void end(Finish finish, std::string& piece);

  const Engine& engine_;
  const GenerateOptions& options_;
  text::StreamDecoder decoder_;
  StopTexts stop_;
  Extent tokens_max_;
  bool ended_ = false;
};

class Run {
 public:
  Run(std::shared_ptr<Engine> engine, Prompt prompt, GenerateOptions options);
  ~Run();

  /// Runs until there is text or the end; false at the end.
  bool next(std::string& piece);
  const Result& result() const { return reply_.result; }

 private:
  void start();
  void release();
  void take(std::span<const Draw> draws, std::string& piece);
  void step(std::string& piece);
  void step_beside_device(std::string& piece);
  std::vector<text::TokenId> guess() const;
  DrawRequest request(std::size_t drawn, std::span<const text::TokenId> history) const;
  bool goes_on(const Draw& draw, std::string& piece);

  std::shared_ptr<Engine> engine_;
  GenerateOptions options_;
  Prompt prompt_;                      // keeps its images while they may be needed
  std::vector<text::TokenId> tokens_;  // prompt and what came after; the last is not in the cache
  std::uint64_t seed_;
  bool started_ = false, released_ = false;
  Reply reply_;
  std::optional<Constraint> constraint_;
  std::optional<Drawing> drawing_;  // of the token after tokens_
};

/// Checks the options of a generation. Errors: UsageError.
void check(const GenerateOptions& options, const Engine& engine);
std::uint64_t seed_of(const Sampling& sampling);
/// Errors: UsageError for an empty prompt, or one that does not fit the context.
void check_prompt(const std::vector<text::TokenId>& prompt, const Engine& engine);
/// As Model::embed, in these sequences of the cache.
Tensor embed(Engine& engine, std::span<const std::string> texts, const EmbedOptions& options,
             std::span<const int> slots);
std::vector<PositionedToken> positioned(std::span<const text::TokenId> tokens, Extent first_position, int slot);

}  // namespace weft::llm::detail
