// Memory that a thread keeps: it grows to the largest size asked for, in huge pages where these fit.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace weft::cpu {

class ScratchBlock {
 public:
  /// At least `bytes`, aligned to pages. True if the block is new: the old content is gone.
  bool grow(std::int64_t bytes) {
    if (bytes_ >= bytes) return false;
    data_.reset();
    bytes_ = 0;
    constexpr std::int64_t kHugePage = 2 * 1024 * 1024;
    const std::int64_t page = bytes >= kHugePage ? kHugePage : 4096;
    const std::int64_t rounded = (bytes + page - 1) / page * page;
    data_.reset(std::aligned_alloc(static_cast<std::size_t>(page), static_cast<std::size_t>(rounded)));
    if (!data_) throw std::bad_alloc();
#if defined(__linux__)
    if (page == kHugePage) madvise(data_.get(), static_cast<std::size_t>(rounded), MADV_HUGEPAGE);
#endif
    bytes_ = rounded;
    return true;
  }
  void* data() const { return data_.get(); }

  /// The block as `count` elements.
  template <class T>
  T* as(std::int64_t count) {
    grow(count * static_cast<std::int64_t>(sizeof(T)));
    return static_cast<T*>(data_.get());
  }

 private:
  struct Free {
    void operator()(void* p) const { std::free(p); }
  };
  std::unique_ptr<void, Free> data_;
  std::int64_t bytes_ = 0;
};

}  // namespace weft::cpu
