// What clients hold by name: language models, volumetric networks. One call at a time uses one; others wait.
#pragma once

#include <fmt/format.h>

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/quote.hpp"
#include "weft/operations.hpp"

namespace weft::operations {

/// A value that one call at a time uses.
template <class T>
class InTurns {
 public:
  explicit InTurns(T value) : value_(std::move(value)) {}

  /// Waits for its turn. Errors: as Context::check.
  template <class Function>
  auto use(Context& call, const Function& function) {
    std::unique_lock lock(mutex_);
    if (!free_.wait(lock, call.stop(), [&] { return !used_; })) {
      lock.unlock();
      call.check();
      throw OperationError(kAborted, "the call has ended");
    }
    used_ = true;
    lock.unlock();
    struct Turn {
      InTurns& of;
      ~Turn() {
        {
          const std::lock_guard guard(of.mutex_);
          of.used_ = false;
        }
        of.free_.notify_one();
      }
    } turn{*this};
    return function(value_);
  }

 private:
  T value_;
  std::mutex mutex_;
  std::condition_variable_any free_;
  bool used_ = false;
};

/// Values by name. `kind` is the noun of messages ("model"), and `code` begins the codes CODE_EXISTS, CODE_NOT_FOUND and
/// CODE_LIMIT. Thread safety: any thread may call any function.
template <class T>
class NamedResources {
 public:
  NamedResources(std::string kind, std::string code, std::size_t most)
      : kind_(std::move(kind)), code_(std::move(code)), most_(most) {}

  /// Errors: OperationError if the name is taken, or there are as many as there may be.
  void add(const std::string& name, T value) {
    const std::lock_guard lock(mutex_);
    refuse_if_taken(name);
    values_.emplace(name, std::make_shared<InTurns<T>>(std::move(value)));
  }
  /// The same errors, before a value is made.
  void check_free(const std::string& name) const {
    const std::lock_guard lock(mutex_);
    refuse_if_taken(name);
  }
  /// Errors: OperationError if there is none of this name.
  std::shared_ptr<InTurns<T>> find(const std::string& name) const {
    const std::lock_guard lock(mutex_);
    const auto found = values_.find(name);
    if (found == values_.end())
      throw OperationError(code_ + "_NOT_FOUND", fmt::format("there is no {} {}", kind_, quote(name)));
    return found->second;
  }
  void remove(const std::string& name) {
    const std::shared_ptr<InTurns<T>> freed = find(name);  // freed behind the lock
    const std::lock_guard lock(mutex_);
    values_.erase(name);
  }
  /// The names for which the caller may do `action`.
  Value names(const Context& call, std::string_view action) const {
    Value::Array all;
    const std::lock_guard lock(mutex_);
    for (const auto& [name, value] : values_)
      if (call.identity() && call.identity()->may(kind_, name, action)) all.emplace_back(name);
    return all;
  }

 private:
  void refuse_if_taken(const std::string& name) const {
    if (values_.contains(name))
      throw OperationError(code_ + "_EXISTS", fmt::format("there already is a {} {}", kind_, quote(name)));
    if (values_.size() >= most_)
      throw OperationError(code_ + "_LIMIT",
                           fmt::format("{} {}s are held, which is the limit; remove one", values_.size(), kind_));
  }

  const std::string kind_, code_;
  const std::size_t most_;
  mutable std::mutex mutex_;
  std::map<std::string, std::shared_ptr<InTurns<T>>> values_;
};

}  // namespace weft::operations
