// Grammars by the texts that they were made from.
#pragma once

#include <functional>
#include <list>
#include <mutex>
#include <string>
#include <utility>

#include "weft/grammar.hpp"

namespace weft::serve {

/// Keeps the last few grammars, because clients send the same schema with each request, and a model remembers masks of tokens for a
/// grammar that it has seen. Thread safety: any thread may call it.
class GrammarCache {
 public:
  llm::Grammar of(const std::string& key, const std::function<llm::Grammar()>& make) {
    {
      const std::lock_guard lock(mutex_);
      for (auto it = kept_.begin(); it != kept_.end(); ++it)
        if (it->first == key) {
          kept_.splice(kept_.begin(), kept_, it);
          return it->second;
        }
    }
    llm::Grammar grammar = make();  // others need not wait for it
    const std::lock_guard lock(mutex_);
    kept_.emplace_front(key, grammar);
    if (kept_.size() > kGrammarsMax) kept_.pop_back();
    return grammar;
  }

 private:
  static constexpr std::size_t kGrammarsMax = 8;
  std::mutex mutex_;
  std::list<std::pair<std::string, llm::Grammar>> kept_;  // the last used first
};

}  // namespace weft::serve
