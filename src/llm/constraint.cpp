#include "llm/constraint.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/quote.hpp"
#include "weft/error.hpp"

namespace weft::llm::detail {

Constraints::Kept& Constraints::kept(const Grammar& grammar) {
  if (!trie_) {
    const auto size = static_cast<std::size_t>(tokenizer_->vocabulary_size());
    std::vector<std::string> bytes(size);
    for (std::size_t i = 0; i < size; ++i) {
      const auto id = static_cast<text::TokenId>(i);
      if (!is_end(id) && !tokenizer_->is_special(id)) bytes[i] = tokenizer_->token_bytes(id);
    }
    trie_ = std::make_shared<const grammar::TokenTrie>(std::move(bytes));
  }
  const auto found =
      std::find_if(kept_.begin(), kept_.end(), [&](const Kept& kept) { return kept.grammar == grammar.shared(); });
  Kept kept;
  if (found != kept_.end()) {
    kept = std::move(*found);
    kept_.erase(found);
  }
  if (!kept.matcher || kept.matcher->memory_bytes() > kReusedBytesMax) {
    kept.grammar = grammar.shared();
    kept.matcher = std::make_shared<grammar::TokenMatcher>(*grammar.shared(), trie_, end_tokens_);
  }
  kept_.insert(kept_.begin(), std::move(kept));
  if (kept_.size() > kMatchersMax) kept_.pop_back();
  return kept_.front();
}

std::shared_ptr<grammar::TokenMatcher> Constraints::matcher(const Grammar& grammar) { return kept(grammar).matcher; }

std::shared_ptr<const Constraints::Unfit> Constraints::unfit(const Grammar& grammar, const std::string& mark) {
  Kept& kept = this->kept(grammar);
  auto& known = kept.unfit[mark];
  if (known) return known;
  Unfit unfit(mark.size());
  for (text::TokenId token = 0; token < tokenizer_->vocabulary_size(); ++token) {
    const std::string bytes = tokenizer_->token_bytes(token);
    for (std::size_t k = 0; k < mark.size(); ++k) {
      const std::string_view part = std::string_view(mark).substr(k == 0 ? 0 : mark.size() - k);
      const std::size_t at = k == 0 ? bytes.find(part) : bytes.starts_with(part) ? 0 : std::string::npos;
      if (at == std::string::npos) continue;
      grammar::TokenMatcher::State state;
      if (!kept.matcher->accept_bytes(state, behind_mark(std::string_view(bytes).substr(at + part.size()))))
        unfit[k].push_back(token);
    }
  }
  return known = std::make_shared<const Unfit>(std::move(unfit));
}

std::string_view Constraints::behind_mark(std::string_view rest) {
  return rest.find_first_not_of(" \t\r\n") == std::string_view::npos ? std::string_view() : rest;
}

const grammar::TokenMask& Constraints::all_but_ends() {
  if (all_but_ends_.size() == 0) {
    all_but_ends_ = grammar::TokenMask(static_cast<std::size_t>(tokenizer_->vocabulary_size()), true);
    for (const text::TokenId id : end_tokens_) all_but_ends_.forbid(static_cast<std::size_t>(id));
  }
  return all_but_ends_;
}

bool Constraints::is_end(text::TokenId token) const {
  return std::find(end_tokens_.begin(), end_tokens_.end(), token) != end_tokens_.end();
}

Constraint::Constraint(Constraints& shared, const GenerateOptions& options)
    : shared_(&shared),
      matcher_(shared.matcher(*options.grammar)),
      after_(options.grammar_after),
      is_optional_(options.grammar_is_optional) {
  if (!after_.empty()) unfit_ = shared.unfit(*options.grammar, after_);
}

const grammar::TokenMask* Constraint::allowed() {
  if (!after_.empty()) {
    before_ = is_optional_ ? grammar::TokenMask(shared_->all_but_ends().size(), true) : shared_->all_but_ends();
    for (std::size_t k = 0; k < after_.size(); ++k)
      if (k == 0 || tail_.ends_with(std::string_view(after_).substr(0, after_.size() - k)))
        for (const text::TokenId token : (*unfit_)[k]) before_.forbid(static_cast<std::size_t>(token));
    return &before_;
  }
  const grammar::TokenMask& mask = matcher_->allowed(state_);
  if (!mask.any())
    throw UsageError(
        "llm: the vocabulary has no token that the grammar allows here; the grammar may need characters that the model "
        "cannot write");
  return &mask;
}

bool Constraint::read(text::TokenId token) {
  if (after_.empty()) return matcher_->accept(state_, token);
  tail_ += shared_->tokenizer().token_bytes(token);
  const std::size_t at = tail_.find(after_);
  if (at == std::string::npos) {
    tail_.erase(0, tail_.size() - std::min(tail_.size(), after_.size() - 1));
    return true;
  }
  const std::string text = tail_;
  const std::string_view rest = Constraints::behind_mark(std::string_view(text).substr(at + after_.size()));
  after_.clear();
  tail_.clear();
  return matcher_->accept_bytes(state_, rest);
}

void Constraint::require(text::TokenId token) const {
  if (token < 0) return;  // NaN, which is another error
  const bool ends_before = !after_.empty() && shared_->is_end(token);
  const bool fits = after_.empty() ? matcher_->allows(state_, token)
                    : ends_before  ? is_optional_
                                   : Constraint(*this).read(token);
  if (!fits)
    throw UsageError(
        "llm: no token that fits the grammar has a probability above 0; biases, or the model, forbid all of them");
}

void Constraint::accept(text::TokenId token) {
  if (!read(token))
    throw UsageError(
        fmt::format("llm: the text {} does not fit the grammar", quote(shared_->tokenizer().token_bytes(token), 40)));
}

bool Constraint::is_finished() const { return after_.empty() && matcher_->must_end(state_); }

std::vector<text::TokenId> Constraint::fitting(std::span<const text::TokenId> tokens) const {
  Constraint ahead = *this;
  std::vector<text::TokenId> fit;
  for (const text::TokenId token : tokens) {
    if (!ahead.read(token) || ahead.is_finished()) break;
    fit.push_back(token);
  }
  return fit;
}

}  // namespace weft::llm::detail
