// A stable sort by radix in workgroup memory, as statements of a shader.
#pragma once

#include <optional>
#include <string>

#include "backend/webgpu/wgsl/sort_shader.hpp"

namespace weft::webgpu {

/// A workgroup sorts the words of a line: for every four bits it counts the digits of each thread's 16 neighbouring words, adds up
/// the counts digit by digit, and moves the words. Words with equal bits keep their order.
class LineRadix {
 public:
  /// The threads that lines of n words take; nothing if there are too many words for a workgroup.
  static std::optional<int> threads_for(Extent n, const Target& target);
  static constexpr Extent kWordsMost = 8192;  // of a line
  static constexpr int kLineEach = 16;        // neighbouring words of a thread

  LineRadix(SortShader& shader, const Target& target, int threads);

  /// Word `i` of the line, a place in workgroup memory. The caller fills all places of the threads before the sort, and there are the
  /// places that the sorted words had behind it; barriers stand around both.
  static std::string word(const std::string& i);
  /// Places of all threads.
  Extent words() const;
  /// Writes the sort by bits [from, from + bits), from the lowest digit to the highest.
  void write(int from, int bits);

 private:
  void each(const std::string& statements);
  std::string counter(const std::string& digit) const;
  void count_digits();
  void add_up();
  void move(const std::string& number);
  void line(const std::string& statement) { shader_.line(statement); }

  SortShader& shader_;
  const Target& target_;
  const int threads_;
};

}  // namespace weft::webgpu
