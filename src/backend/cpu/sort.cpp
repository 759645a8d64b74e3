// Elements become integer keys with their positions, so that every order is that of unsigned integers and ties keep the
// order of positions. Where few ranks are kept, only the elements that can have them are sorted: a pass with a bound finds
// the first ranks of a line, and a histogram of the leading digits any ranks of a long line.
#include "backend/cpu/sort.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <concepts>
#include <functional>
#include <limits>
#include <tuple>
#include <utility>
#include <vector>

#include "backend/cpu/backend.hpp"
#include "base/threads.hpp"
#include "compile/call_attributes.hpp"
#include "graph/order.hpp"
#include "weft/error.hpp"

namespace weft::cpu {
namespace {

/// The integer of the same order: -0 equals 0, and a NaN is larger than all else.
template <class T>
auto order_key(T x) {
  if constexpr (std::floating_point<T>) {
    using Key = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
    constexpr int kSignPlace = 8 * sizeof(T) - 1;
    const Key bits = std::bit_cast<Key>(x == 0 ? T{0} : x);
    const Key negative = Key{0} - (bits >> kSignPlace);  // all ones or none, as a branch would be taken at random
    const Key ordered = bits ^ (negative | Key{1} << kSignPlace);
    return x != x ? static_cast<Key>(~Key{0}) : ordered;
  } else {
    using Key = std::make_unsigned_t<T>;
    constexpr Key kSign = std::signed_integral<T> ? Key{1} << (8 * sizeof(T) - 1) : Key{0};
    return static_cast<Key>(static_cast<Key>(x) ^ kSign);
  }
}

/// A key and its position. Items compare by both, so that no two are equal.
struct NarrowItem {
  using Key = std::uint32_t;
  std::uint64_t bits;
  NarrowItem() = default;
  NarrowItem(Key key, std::uint32_t position) : bits(std::uint64_t{key} << 32 | position) {}
  Key key() const { return static_cast<Key>(bits >> 32); }
  std::uint32_t position() const { return static_cast<std::uint32_t>(bits); }
  bool operator<(const NarrowItem& other) const { return bits < other.bits; }
};
struct WideItem {
  using Key = std::uint64_t;
  Key key_;
  std::uint32_t position_;
  WideItem() = default;
  WideItem(Key key, std::uint32_t position) : key_(key), position_(position) {}
  Key key() const { return key_; }
  std::uint32_t position() const { return position_; }
  bool operator<(const WideItem& other) const {
    return key_ != other.key_ ? key_ < other.key_ : position_ < other.position_;
  }
};
template <class T>
using ItemOf = std::conditional_t<sizeof(T) == 4, NarrowItem, WideItem>;

constexpr int kDigitBits = 8, kDigits = 1 << kDigitBits;
using Counts = std::array<std::uint32_t, kDigits>;

template <class Item>
std::size_t digit(const Item& item, int pass) {
  return static_cast<std::size_t>(item.key() >> (kDigitBits * pass)) & (kDigits - 1);
}

/// Memory for items that are written before they are read.
template <class Item>
class Items {
 public:
  explicit Items(std::size_t count) : buffer_(allocate_memory(count * sizeof(Item), "keys of sort")) {}
  Item* data() { return reinterpret_cast<Item*>(memory_of(*buffer_).data()); }

 private:
  backend::BufferPtr buffer_;
};

/// Sorts items on this thread. The result is in `items`, or in `spare`, which has room for as many; gives where.
template <class Item>
Item* sort_alone(Item* items, Item* spare, std::size_t n) {
  constexpr std::size_t kComparedMax = 512;
  if (n <= kComparedMax) {
    std::sort(items, items + n);
    return items;
  }
  constexpr int kPasses = sizeof(typename Item::Key);
  std::array<Counts, kPasses> counts{};
  for (std::size_t i = 0; i < n; ++i)
    for (int pass = 0; pass < kPasses; ++pass) ++counts[static_cast<std::size_t>(pass)][digit(items[i], pass)];
  for (int pass = 0; pass < kPasses; ++pass) {
    Counts& at = counts[static_cast<std::size_t>(pass)];
    if (at[digit(items[0], pass)] == n) continue;  // all have this digit
    std::uint32_t total = 0;
    for (std::uint32_t& place : at) total += std::exchange(place, total);
    for (std::size_t i = 0; i < n; ++i) spare[at[digit(items[i], pass)]++] = items[i];
    std::swap(items, spare);
  }
  return items;
}

constexpr std::size_t kChunk = std::size_t{1} << 17;  // items of a task

/// The same on all threads: each task counts and then moves its own items.
template <class Item>
Item* sort_together(Item* items, Item* spare, std::size_t n) {
  const std::size_t chunks = (n + kChunk - 1) / kChunk;
  std::vector<Counts> counts(chunks);
  const auto for_chunks = [&](auto work) {
    parallel_for(static_cast<Extent>(chunks), [&](Extent task) {
      const auto chunk = static_cast<std::size_t>(task);
      work(counts[chunk], chunk * kChunk, std::min(n, (chunk + 1) * kChunk));
    });
  };
  for (int pass = 0; pass < static_cast<int>(sizeof(typename Item::Key)); ++pass) {
    for_chunks([&](Counts& of, std::size_t begin, std::size_t end) {
      Counts mine{};
      for (std::size_t i = begin; i < end; ++i) ++mine[digit(items[i], pass)];
      of = mine;
    });
    std::uint32_t total = 0;
    bool moves = true;
    for (std::size_t d = 0; d < kDigits; ++d) {
      const std::uint32_t before = total;
      for (Counts& of : counts) total += std::exchange(of[d], total);
      if (total - before == n) moves = false;
    }
    if (!moves) continue;
    for_chunks([&](Counts& of, std::size_t begin, std::size_t end) {
      Counts at = of;
      for (std::size_t i = begin; i < end; ++i) spare[at[digit(items[i], pass)]++] = items[i];
    });
    std::swap(items, spare);
  }
  return items;
}

/// A line of n elements, of whose order the ranks [first, first + count) are wanted.
struct Ranks {
  std::size_t n = 0, first = 0, count = 0;
};

constexpr int kSelectBits = 16;
template <class Key>
std::size_t leading(Key key) {
  return static_cast<std::size_t>(key >> (8 * sizeof(Key) - kSelectBits));
}

/// Which keys can have the wanted ranks, by their leading digits: `width` of them from `low` on; and how many keys are less.
struct Span {
  std::size_t low = 0, width = std::size_t{1} << kSelectBits, below = 0;
  template <class Key>
  bool has(Key key) const {
    return leading(key) - low < width;
  }
};
Span span_of(const std::vector<std::uint32_t>& counts, const Ranks& ranks) {
  Span span;
  std::size_t before = 0, bin = 0;
  while (before + counts[bin] <= ranks.first) before += counts[bin++];
  span.low = bin;
  span.below = before;
  while (before + counts[bin] < ranks.first + ranks.count) before += counts[bin++];
  span.width = bin - span.low + 1;
  return span;
}

template <class T>
class LineSort {
 public:
  using Item = ItemOf<T>;
  using Key = typename Item::Key;
  LineSort(const Ranks& ranks, bool descending) : ranks_(ranks), flip_(descending ? ~Key{0} : Key{0}) {}

  /// The line on this thread, with `room` for twice its items.
  void alone(const T* x, T* values, std::int32_t* positions, Item* room) const {
    if (takes_first()) {
      const std::size_t count = first_items(x, room);
      return write(x, sort_alone(room, room + count, count) + ranks_.first, 0, ranks_.count, values, positions);
    }
    const Span span = selects() ? span_of(count_leading(x, 0, ranks_.n), ranks_) : Span{};
    std::size_t count = 0;
    for (std::size_t i = 0; i < ranks_.n; ++i)
      if (const Key k = key(x[i]); span.has(k)) room[count++] = Item(k, static_cast<std::uint32_t>(i));
    const Item* sorted = sort_alone(room, room + count, count);
    write(x, sorted + ranks_.first - span.below, 0, ranks_.count, values, positions);
  }

  /// The line on all threads.
  void together(const T* x, T* values, std::int32_t* positions) const {
    const std::size_t chunks = (ranks_.n + kChunk - 1) / kChunk;
    const auto for_chunks = [&](auto work) {
      parallel_for(static_cast<Extent>(chunks), [&](Extent task) {
        const std::size_t begin = static_cast<std::size_t>(task) * kChunk;
        work(static_cast<std::size_t>(task), begin, std::min(ranks_.n, begin + kChunk));
      });
    };
    if (!selects()) {
      Items<Item> items(ranks_.n), spare(ranks_.n);
      Item* const keys = items.data();
      for_chunks([&](std::size_t, std::size_t begin, std::size_t end) {
        for (std::size_t i = begin; i < end; ++i) keys[i] = Item(key(x[i]), static_cast<std::uint32_t>(i));
      });
      return write_together(x, sort_together(items.data(), spare.data(), ranks_.n) + ranks_.first, values, positions);
    }
    const Span span = select(x);
    std::vector<std::vector<Item>> parts(chunks);
    for_chunks([&](std::size_t c, std::size_t begin, std::size_t end) {
      std::vector<Item> part;
      for (std::size_t i = begin; i < end; ++i)
        if (const Key k = key(x[i]); span.has(k)) part.emplace_back(k, static_cast<std::uint32_t>(i));
      parts[c] = std::move(part);
    });
    std::vector<std::size_t> at{0};
    for (const auto& part : parts) at.push_back(at.back() + part.size());
    const std::size_t count = at.back();
    Items<Item> items(count), spare(count);
    for_chunks([&](std::size_t c, std::size_t, std::size_t) {
      std::copy(parts[c].begin(), parts[c].end(), items.data() + at[c]);
    });
    const Item* sorted = count < 2 * kChunk ? sort_alone(items.data(), spare.data(), count)
                                            : sort_together(items.data(), spare.data(), count);
    write_together(x, sorted + ranks_.first - span.below, values, positions);
  }

  std::size_t room() const { return 2 * ranks_.n; }

 private:
  Key key(T x) const { return order_key(x) ^ flip_; }
  // Counting costs as much as a pass, and its 2^16 counters are worth it for long lines only.
  bool selects() const { return ranks_.n >= (std::size_t{1} << kSelectBits) && ranks_.count <= ranks_.n / 4; }

  // The first ranks of a line are found in one pass.
  bool takes_first() const { return ranks_.n >= 4 * kGroup && ranks_.first + ranks_.count <= ranks_.n / 8; }
  static constexpr std::size_t kGroup = 16;

  /// A key that comes after those of the wanted ranks; 0 if none is found. The line is dealt out to lanes: as many elements as
  /// are wanted, each the first of its lane, come before or are the last of these, so nothing that comes after it is wanted.
  Key first_bound(const T* x) const {
    constexpr std::size_t kLeast = 64, kMost = 1024, kBlock = 32;
    const std::size_t wanted = ranks_.first + ranks_.count, lanes = std::max(kLeast, std::bit_ceil(4 * wanted));
    if (lanes > kMost || ranks_.n < 4 * lanes) return 0;
    constexpr bool is_float = std::floating_point<T>;
    constexpr T kHigh = is_float ? std::numeric_limits<T>::infinity() : std::numeric_limits<T>::max();
    constexpr T kLow = is_float ? -std::numeric_limits<T>::infinity() : std::numeric_limits<T>::lowest();
    const bool descending = flip_ != 0;
    std::array<T, kMost> best;
    for (std::size_t block = 0; block < lanes; block += kBlock) {
      T m[kBlock];
      std::fill_n(m, kBlock, descending ? kLow : kHigh);
      for (const T* from = x + block; from + lanes <= x + block + ranks_.n / lanes * lanes;
           from += lanes) {  // skips NaN
        if (descending)
          for (std::size_t k = 0; k < kBlock; ++k) m[k] = from[k] > m[k] ? from[k] : m[k];
        else
          for (std::size_t k = 0; k < kBlock; ++k) m[k] = from[k] < m[k] ? from[k] : m[k];
      }
      std::copy_n(m, kBlock, best.data() + block);
    }
    T* const last = best.data() + wanted - 1;
    if (descending)
      std::nth_element(best.data(), last, best.data() + lanes, std::greater<T>());
    else
      std::nth_element(best.data(), last, best.data() + lanes);
    if (*last == kHigh || *last == kLow) return 0;  // maybe of a lane of NaN
    // Zero has two keys, of which elements have one.
    return static_cast<Key>(key(*last) + (is_float && *last == 0 ? 2 : 1));
  }

  /// Puts the items of the first ranks, and maybe others, into `room`; gives how many. Most elements come after as many as are
  /// wanted, which a comparison with the last of these shows for a group of elements at once.
  std::size_t first_items(const T* x, Item* room) const {
    constexpr std::size_t kMore = 64;
    const std::size_t wanted = ranks_.first + ranks_.count, capacity = 2 * wanted + kMore;
    std::size_t count = 0;
    Key bound = first_bound(x);
    bool is_bounded = bound != 0;
    T bound_value = is_bounded ? value_of(bound) : T{0};
    const auto add = [&](std::size_t i) {
      const Key k = key(x[i]);
      if (is_bounded && k >= bound) return;  // of equal keys the earlier come first
      room[count++] = Item(k, static_cast<std::uint32_t>(i));
      if (count < capacity) return;
      Item* const copies =
          room + capacity;  // the items stay in the order of positions, which a sort by keys alone needs
      std::copy_n(room, count, copies);
      std::nth_element(copies, copies + wanted - 1, copies + count);
      const Item last = copies[wanted - 1];
      static_cast<void>(std::remove_if(room, room + count, [&](const Item& item) { return last < item; }));
      count = wanted;
      is_bounded = true;
      bound = last.key();
      bound_value = value_of(bound);
    };
    const auto may_come_first = [&](const T* group) {  // true for NaN
      int any = 0;
      if (flip_ != 0)
        for (std::size_t i = 0; i < kGroup; ++i) any |= !(group[i] <= bound_value);
      else
        for (std::size_t i = 0; i < kGroup; ++i) any |= !(group[i] >= bound_value);
      return any != 0;
    };
    std::size_t i = 0;
    for (; i + kGroup <= ranks_.n; i += kGroup)
      if (!is_bounded || may_come_first(x + i))
        for (std::size_t k = 0; k < kGroup; ++k) add(i + k);
    for (; i < ranks_.n; ++i) add(i);
    return count;
  }

  /// The keys that can have the wanted ranks.
  Span select(const T* x) const {
    // Few histograms: each is larger than a cache of the first level.
    const std::size_t groups = std::min<std::size_t>((ranks_.n + kChunk - 1) / kChunk, 16);
    const std::size_t each = (ranks_.n + groups - 1) / groups;
    std::vector<std::vector<std::uint32_t>> counts(groups);
    parallel_for(static_cast<Extent>(groups), [&](Extent task) {
      const auto g = static_cast<std::size_t>(task);
      counts[g] = count_leading(x, g * each, std::min(ranks_.n, (g + 1) * each));
    });
    for (std::size_t g = 1; g < groups; ++g)
      for (std::size_t bin = 0; bin < counts[0].size(); ++bin) counts[0][bin] += counts[g][bin];
    return span_of(counts[0], ranks_);
  }
  std::vector<std::uint32_t> count_leading(const T* x, std::size_t begin, std::size_t end) const {
    std::vector<std::uint32_t> counts(std::size_t{1} << kSelectBits);
    for (std::size_t i = begin; i < end; ++i) ++counts[leading(key(x[i]))];
    return counts;
  }

  void write_together(const T* x, const Item* sorted, T* values, std::int32_t* positions) const {
    const std::size_t blocks = (ranks_.count + kChunk - 1) / kChunk;
    parallel_for(static_cast<Extent>(blocks), [&](Extent task) {
      const std::size_t begin = static_cast<std::size_t>(task) * kChunk;
      write(x, sorted, begin, std::min(ranks_.count, begin + kChunk), values, positions);
    });
  }
  void write(const T* x, const Item* sorted, std::size_t begin, std::size_t end, T* values,
             std::int32_t* positions) const {
    const Key zero = key(T{0}), last = ~Key{0} ^ flip_;
    for (std::size_t i = begin; i < end; ++i) {
      const Item item = sorted[i];
      positions[i] = static_cast<std::int32_t>(item.position());
      // Zeros of both signs share a key, and so do NaNs.
      const bool shared = std::floating_point<T> && (item.key() == zero || item.key() == last);
      values[i] = shared ? x[item.position()] : value_of(item.key());
    }
  }
  T value_of(Key k) const {
    k ^= flip_;
    constexpr Key kSign = Key{1} << (8 * sizeof(T) - 1);
    if constexpr (std::floating_point<T>)
      return std::bit_cast<T>(k & kSign ? k ^ kSign : ~k);
    else
      return static_cast<T>(std::signed_integral<T> ? k ^ kSign : k);
  }

  Ranks ranks_;
  Key flip_;
};

template <class T>
void sort_lines(const Ranks& ranks, bool descending, Extent lines, const char* from, char* to, char* to_positions) {
  const auto* x = reinterpret_cast<const T*>(from);
  auto* values = reinterpret_cast<T*>(to);
  auto* positions = reinterpret_cast<std::int32_t*>(to_positions);
  const LineSort<T> sort(ranks, descending);
  const auto line = [&](Extent l) {
    const auto number = static_cast<std::size_t>(l);
    return std::tuple(x + number * ranks.n, values + number * ranks.count, positions + number * ranks.count);
  };
  if (ranks.n >= 2 * kChunk) {
    for (Extent l = 0; l < lines; ++l) std::apply([&](auto... at) { sort.together(at...); }, line(l));
    return;
  }
  const Extent of_task = std::max<Extent>(1, 4096 / static_cast<Extent>(ranks.n));
  parallel_for((lines + of_task - 1) / of_task, [&](Extent task) {
    Items<ItemOf<T>> room(sort.room());
    const Extent end = std::min(lines, (task + 1) * of_task);
    for (Extent l = task * of_task; l < end; ++l)
      std::apply([&](auto... at) { sort.alone(at..., room.data()); }, line(l));
  });
}

}  // namespace

void run_sort(const kernel::CallKernel& kernel, std::span<char* const> reads, std::span<char* const> outs) {
  const auto a = kernel::attributes_of<graph::SortAttributes>(kernel);
  const Extent n = kernel.shapes[0].dim(-1), count = kernel.shape().dim(-1);
  if (kernel.shape().numel() == 0) return;
  const Extent lines = kernel.shape().numel() / count;
  const Ranks ranks{static_cast<std::size_t>(n), static_cast<std::size_t>(a.first), static_cast<std::size_t>(count)};
  const auto run = [&]<class T>(T) { sort_lines<T>(ranks, a.descending, lines, reads[0], outs[0], outs[1]); };
  switch (kernel.types[0]) {
    case DType::f32: return run(float{});
    case DType::f64: return run(double{});
    case DType::i32: return run(std::int32_t{});
    case DType::u32: return run(std::uint32_t{});
    case DType::i64: return run(std::int64_t{});
    case DType::u64: return run(std::uint64_t{});
    default: break;
  }
  throw DTypeError("sort: there is no kernel for this dtype; cast to f32");
}

}  // namespace weft::cpu
