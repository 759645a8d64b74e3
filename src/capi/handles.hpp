// Handles of the C interface: numbers that say which place of a table they mean, and which of the objects that have been there.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

namespace weft::capi {

enum class HandleKind : std::uint8_t { tensor = 1, variable, function, archive };

/// The objects of one kind. Thread safety: any thread may call any function; an object that is released while another thread
/// uses it lives until that use ends.
template <class T, HandleKind kKind>
class Handles {
 public:
  std::uint64_t add(T value) {
    auto object = std::make_shared<T>(std::move(value));
    const std::lock_guard lock(mutex_);
    std::uint32_t index = 0;
    if (free_.empty()) {
      index = static_cast<std::uint32_t>(slots_.size());
      slots_.emplace_back();
    } else {
      index = free_.back();
      free_.pop_back();
    }
    slots_[index].object = std::move(object);
    return id_of(index, slots_[index].generation);
  }
  /// Null if the number names no object of this kind.
  std::shared_ptr<T> find(std::uint64_t id) {
    const std::lock_guard lock(mutex_);
    Slot* slot = slot_of(id);
    return slot ? slot->object : nullptr;
  }
  bool remove(std::uint64_t id) {
    std::shared_ptr<T> last;  // destroyed after the lock
    const std::lock_guard lock(mutex_);
    Slot* slot = slot_of(id);
    if (!slot) return false;
    last = std::move(slot->object);
    // A place whose generations are used up is not used again.
    if (++slot->generation < kGenerations) free_.push_back(index_of(id));
    return true;
  }
  std::size_t size() {
    const std::lock_guard lock(mutex_);
    std::size_t count = 0;
    for (const Slot& slot : slots_) count += slot.object != nullptr;
    return count;
  }

 private:
  static constexpr std::uint32_t kGenerations = 1u << 24;
  struct Slot {
    std::shared_ptr<T> object;
    std::uint32_t generation = 1;
  };
  static std::uint64_t id_of(std::uint32_t index, std::uint32_t generation) {
    return std::uint64_t{static_cast<std::uint8_t>(kKind)} << 56 | std::uint64_t{generation} << 32 | index;
  }
  static std::uint32_t index_of(std::uint64_t id) { return static_cast<std::uint32_t>(id); }
  Slot* slot_of(std::uint64_t id) {
    if (index_of(id) >= slots_.size()) return nullptr;
    Slot& slot = slots_[index_of(id)];
    return slot.object && id == id_of(index_of(id), slot.generation) ? &slot : nullptr;
  }
  std::mutex mutex_;
  std::deque<Slot> slots_;
  std::vector<std::uint32_t> free_;
};

}  // namespace weft::capi
