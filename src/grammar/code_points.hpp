// Sets of characters, and the byte sequences of their UTF-8.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <vector>

namespace weft::grammar {

struct CodePointRange {
  char32_t first, last;  ///< both included
  bool operator==(const CodePointRange&) const = default;
};

inline constexpr char32_t kLastCodePoint = 0x10FFFF, kFirstSurrogate = 0xD800, kLastSurrogate = 0xDFFF;

/// A set of code points as ranges in order, which neither touch nor overlap. Copies share them.
class CodePoints {
 public:
  CodePoints() = default;
  CodePoints(std::initializer_list<CodePointRange> ranges);
  explicit CodePoints(std::vector<CodePointRange> ranges);
  static CodePoints one(char32_t c) { return {{c, c}}; }
  /// All Unicode scalar values: no surrogates.
  static CodePoints any() { return {{0, kFirstSurrogate - 1}, {kLastSurrogate + 1, kLastCodePoint}}; }

  const std::vector<CodePointRange>& ranges() const;
  bool empty() const { return ranges().empty(); }
  bool contains(char32_t c) const;
  /// All scalar values that are not in the set.
  CodePoints complement() const;
  bool operator==(const CodePoints& other) const { return ranges() == other.ranges(); }

 private:
  std::shared_ptr<const std::vector<CodePointRange>> ranges_;  // null: none
};

CodePoints unite(const CodePoints& a, const CodePoints& b);
CodePoints intersect(const CodePoints& a, const CodePoints& b);
/// Code points of a that are not in b.
CodePoints subtract(const CodePoints& a, const CodePoints& b);

struct ByteRange {
  std::uint8_t first, last;
};
/// One to four ranges, one for each byte of a sequence.
using ByteSequence = std::vector<ByteRange>;
/// The UTF-8 of a set of scalar values: a sequence of bytes belongs to the set if it fits one of the results.
std::vector<ByteSequence> utf8_of(const CodePoints& set);

}  // namespace weft::grammar
