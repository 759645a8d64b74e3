#include "grammar/code_points.hpp"

#include <algorithm>

namespace weft::grammar {
namespace {

// Sorts ranges, and joins those that touch.
std::vector<CodePointRange> normal(std::vector<CodePointRange> ranges) {
  std::sort(ranges.begin(), ranges.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<CodePointRange> joined;
  for (const CodePointRange& range : ranges) {
    if (range.first > range.last) continue;
    if (!joined.empty() && range.first <= joined.back().last + 1)
      joined.back().last = std::max(joined.back().last, range.last);
    else
      joined.push_back(range);
  }
  return joined;
}

constexpr char32_t kLastOfLength[] = {0x7F, 0x7FF, 0xFFFF, kLastCodePoint};

// Appends the sequences of a range, cut until each byte varies independently of the others.
void split(char32_t first, char32_t last, std::vector<ByteSequence>& out) {
  for (const char32_t end : kLastOfLength)
    if (first <= end && end < last) {
      split(first, end, out);
      split(end + 1, last, out);
      return;
    }
  const int length = first <= 0x7F ? 1 : first <= 0x7FF ? 2 : first <= 0xFFFF ? 3 : 4;
  for (int i = 1; i < length; ++i) {
    const char32_t low = (char32_t{1} << (6 * i)) - 1;  // the bits of the last i bytes
    if ((first & ~low) == (last & ~low)) continue;
    if ((first & low) != 0) {
      split(first, first | low, out);
      split((first | low) + 1, last, out);
      return;
    }
    if ((last & low) != low) {
      split(first, (last & ~low) - 1, out);
      split(last & ~low, last, out);
      return;
    }
  }
  constexpr std::uint8_t kLead[] = {0, 0, 0xC0, 0xE0, 0xF0};
  ByteSequence sequence;
  for (int i = length - 1; i >= 0; --i) {
    const bool leads = i == length - 1;
    const auto byte = [&](char32_t c) {
      const char32_t bits = c >> (6 * i);
      return static_cast<std::uint8_t>(leads ? bits | kLead[length] : (bits & 0x3F) | 0x80);
    };
    sequence.push_back({byte(first), byte(last)});
  }
  out.push_back(std::move(sequence));
}

}  // namespace

CodePoints::CodePoints(std::initializer_list<CodePointRange> ranges)
    : CodePoints(std::vector<CodePointRange>(ranges)) {}
CodePoints::CodePoints(std::vector<CodePointRange> ranges)
    : ranges_(std::make_shared<const std::vector<CodePointRange>>(normal(std::move(ranges)))) {}

const std::vector<CodePointRange>& CodePoints::ranges() const {
  static const std::vector<CodePointRange> kNone;
  return ranges_ ? *ranges_ : kNone;
}

bool CodePoints::contains(char32_t c) const {
  const std::vector<CodePointRange>& all = ranges();
  const auto after =
      std::upper_bound(all.begin(), all.end(), c, [](char32_t x, const auto& range) { return x < range.first; });
  return after != all.begin() && c <= std::prev(after)->last;
}

CodePoints CodePoints::complement() const { return subtract(any(), *this); }

CodePoints unite(const CodePoints& a, const CodePoints& b) {
  std::vector<CodePointRange> all = a.ranges();
  all.insert(all.end(), b.ranges().begin(), b.ranges().end());
  return CodePoints(std::move(all));
}

CodePoints intersect(const CodePoints& a, const CodePoints& b) {
  std::vector<CodePointRange> common;
  auto x = a.ranges().begin(), y = b.ranges().begin();
  while (x != a.ranges().end() && y != b.ranges().end()) {
    const CodePointRange both{std::max(x->first, y->first), std::min(x->last, y->last)};
    if (both.first <= both.last) common.push_back(both);
    if (x->last < y->last)
      ++x;
    else
      ++y;
  }
  // Most often one set is a part of the other, and is shared.
  if (common == a.ranges()) return a;
  if (common == b.ranges()) return b;
  return CodePoints(std::move(common));
}

CodePoints subtract(const CodePoints& a, const CodePoints& b) {
  std::vector<CodePointRange> left;
  for (CodePointRange range : a.ranges()) {
    bool remains = true;
    for (const CodePointRange& hole : b.ranges()) {
      if (hole.last < range.first) continue;
      if (hole.first > range.last) break;
      if (hole.first > range.first) left.push_back({range.first, hole.first - 1});
      if (hole.last >= range.last) {
        remains = false;
        break;
      }
      range.first = hole.last + 1;
    }
    if (remains) left.push_back(range);
  }
  return CodePoints(std::move(left));
}

std::vector<ByteSequence> utf8_of(const CodePoints& set) {
  std::vector<ByteSequence> sequences;
  for (const CodePointRange& range : set.ranges()) split(range.first, range.last, sequences);
  return sequences;
}

}  // namespace weft::grammar
