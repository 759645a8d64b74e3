// What tests of kernels that only move elements share.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <new>
#include <string>
#include <vector>

#include "backend/cpu/isa.hpp"
#include "backend/cpu/keep_settings.hpp"
#include "base/threads.hpp"
#include "weft/shape.hpp"

namespace weft::cpu {

/// Memory that begins at a cache line, as that of tensors does.
template <class T>
struct LineAllocator {
  using value_type = T;
  static constexpr std::align_val_t kLine{64};

  T* allocate(std::size_t count) { return static_cast<T*>(::operator new(count * sizeof(T), kLine)); }
  void deallocate(T* data, std::size_t) { ::operator delete(data, kLine); }
  bool operator==(const LineAllocator&) const = default;
};

/// Memory of a result with elements in front of it and behind it that nobody may write.
template <class Word>
struct GuardedResult {
  using Words = std::vector<Word, LineAllocator<Word>>;
  static constexpr Extent kGuard = 16;
  static constexpr Word kUntouched = 0x5a5a5a5a;
  Extent offset;
  Words words;

  GuardedResult(Extent offset, Extent count)
      : offset(offset), words(static_cast<std::size_t>(offset + count + kGuard), kUntouched) {}
  Word at(Extent i) const { return words[static_cast<std::size_t>(offset + i)]; }
  void expect_guards(const std::string& kernel) const {
    const auto untouched = [](auto begin, auto end) {
      return std::all_of(begin, end, [](Word word) { return word == kUntouched; });
    };
    EXPECT_TRUE(untouched(words.begin(), words.begin() + offset)) << kernel;
    EXPECT_TRUE(untouched(words.end() - kGuard, words.end())) << kernel;
  }
};

/// Calls run() with each instruction set of this processor, and with one thread and several.
template <class Run>
void for_each_setting(Run run) {
  const KeepSettings keep;
  for (const Isa i : {Isa::baseline, Isa::avx2, Isa::avx512}) {
    if (i > best_isa()) continue;
    set_isa(i);
    for (const int threads : {1, 4}) {
      set_thread_count(threads);
      run();
    }
  }
}

}  // namespace weft::cpu
