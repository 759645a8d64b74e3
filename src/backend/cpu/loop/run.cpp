// Runs loop bytecode.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <new>

#include "backend/cpu/loop/accumulators.hpp"
#include "backend/cpu/loop/code.hpp"
#include "backend/cpu/scratch_block.hpp"
#include "backend/cpu/transpose.hpp"
#include "base/threads.hpp"
#include "tensor/element.hpp"
#include "weft/error.hpp"

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace weft::cpu {
namespace {

/// Copies bytes, past the caches if `streams`, while the lines of `next` (if not null) are on their way: requests that go out
/// between the stores do not wait for each other.
void copy_row(const char* from, char* to, Extent bytes, bool streams, const char* next) {
  Extent i = 0;
  if (streams && reinterpret_cast<std::uintptr_t>(to) % 64 == 0) {
    tile_table().copy_lines(from, to, bytes / 64, next);
    i = bytes / 64 * 64;
    if (i == bytes) return;
  }
#if defined(__SSE2__)
  if (streams && reinterpret_cast<std::uintptr_t>(to) % 16 == 0) {
    for (; i + 64 <= bytes; i += 64) {
      if (next != nullptr) __builtin_prefetch(next + i, 0, 2);
      for (Extent k = i; k < i + 64; k += 16)
        _mm_stream_si128(reinterpret_cast<__m128i*>(to + k),
                         _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + k)));
    }
  }
#endif
  if (next != nullptr)
    for (Extent line = i; line < bytes; line += 64) __builtin_prefetch(next + line, 0, 2);
  std::memcpy(to + i, from + i, static_cast<std::size_t>(bytes - i));
}

}  // namespace

/// One thread's run through blocks of one program.
class LoopRunner {
 public:
  using Code = LoopProgram::Code;
  LoopRunner(const Code& code, const LoopBinding& binding) : code_(code), binding_(binding) {
    thread_local ScratchBlock frame;  // the registers of the loop that this thread runs
    const auto slots = static_cast<Extent>(code.values.size() * sizeof(Slot));
    frame_ = frame.as<char>(code.frame_bytes + slots + 64);
    slots_ = reinterpret_cast<Slot*>(frame_ + code.frame_bytes);
    for (std::size_t v = 0; v < code.values.size(); ++v)
      if (code.values[v].place == Place::constant)
        slots_[v] = {const_cast<char*>(code.constants.data()) + code.values[v].offset, 0};
  }

  void set_block(Extent begin, Extent end) {
    outer_begin_ = begin;
    outer_end_ = end;
    (code_.columns ? f0_ : s0_) = begin;
    (code_.columns ? fast_ : slow_) = end - begin;
    (code_.columns ? s0_ : f0_) = 0;
    (code_.columns ? slow_ : fast_) = 1;
    for (const int v : code_.outer_registers) place_register(v);
  }
  void set_chunk(Extent begin, Extent end) {
    (code_.columns ? s0_ : f0_) = begin;
    (code_.columns ? slow_ : fast_) = end - begin;
  }

  void outer_code(const Phase& phase) {
    for (const int v : phase.outer_memory) place_memory(v);
    for (const LoopInstruction& in : phase.outer) execute(in);
  }
  void inner_code(const Phase& phase) {
    for (const int v : phase.inner_registers) place_register(v);
    for (const int v : phase.inner_memory) place_memory(v);
    const auto count = static_cast<Extent>(phase.inner.size());
    for (Extent i = 0; i < count; ++i) {
      // The next tile is prefetched in portions, so that the requests do not wait for each other.
      for (const int v : phase.ahead) ask_for_next(v, i, count);
      execute(phase.inner[static_cast<std::size_t>(i)]);
    }
  }
  void chunks(const Phase& phase, Extent begin, Extent end) {
    if (phase.inner.empty()) return;
    first_ = begin;
    for (Extent at = begin; at < end;) {
      const Extent run_end = (at / code_.fast_run + 1) * code_.fast_run,
                   next = std::min({at + code_.chunk, run_end, end});
      set_chunk(at, next);
      inner_code(phase);
      at = next;
    }
  }

  void start_reductions(const Phase& phase) {
    for (const int r : phase.reductions) {
      const ReductionInfo& info = code_.reductions[static_cast<std::size_t>(r)];
      std::fill_n(accumulators(info), outer_end_ - outer_begin_, empty_value(info.reduction, info.from));
      if (info.is_squares) std::fill_n(means(info), outer_end_ - outer_begin_, 0.0);
      if (info.gives_position()) std::fill_n(positions(info), outer_end_ - outer_begin_, std::int64_t{-1});
    }
  }
  double* accumulators(const ReductionInfo& info) const {
    return reinterpret_cast<double*>(frame_ + info.accumulators);
  }
  double* means(const ReductionInfo& info) const { return reinterpret_cast<double*>(frame_ + info.positions); }
  std::int64_t* positions(const ReductionInfo& info) const {
    return reinterpret_cast<std::int64_t*>(frame_ + info.positions);
  }
  /// Converts accumulators to outer-level values.
  void finish_reductions(const Phase& phase) {
    for (const int r : phase.reductions) {
      const ReductionInfo& info = code_.reductions[static_cast<std::size_t>(r)];
      const Value& value = code_.values[static_cast<std::size_t>(info.value)];
      const Extent count = outer_end_ - outer_begin_;
      if (value.type == DType::f32) {
        auto* out = reinterpret_cast<float*>(frame_ + value.offset);
        const double* from = accumulators(info);
        for (Extent i = 0; i < count; ++i) out[i] = static_cast<float>(from[i]);
        continue;
      }
      char* to = frame_ + value.offset;
      const std::size_t size = size_bytes(value.type);
      for (Extent i = 0; i < count; ++i, to += size) {
        if (info.gives_position())
          write_element(value.type, static_cast<double>(std::max<std::int64_t>(positions(info)[i], 0)), to);
        else if (carries_bits(value.type))
          std::memcpy(to, accumulators(info) + i, size);
        else
          write_element(value.type, accumulators(info)[i], to);
      }
    }
  }
  void last_code() {
    if (code_.last.inner.empty()) return;
    (code_.columns ? s0_ : f0_) = 0;
    (code_.columns ? slow_ : fast_) = 1;
    for (const LoopInstruction& in : code_.last.inner) execute(in);
  }
  void whole_block(Extent begin, Extent end) {
    set_block(begin, end);
    for (const Phase& phase : code_.phases) {
      outer_code(phase);
      start_reductions(phase);
      chunks(phase, 0, code_.inner);
      finish_reductions(phase);
    }
    last_code();
  }
  void fence() const {
#if defined(__SSE2__)
    if (code_.streams) _mm_sfence();
#endif
  }

 private:
  struct Slot {
    char* data;
    Extent stride;  // bytes, along slow
  };

  void place_register(int v) const {
    const Value& value = code_.values[static_cast<std::size_t>(v)];
    Slot* slot = &slots_[v];
    const auto size = static_cast<Extent>(size_bytes(value.type));
    const bool kept = value.place == Place::kept && !value.outer;
    if (!value.fast) {
      *slot = {frame_ + value.offset + (kept ? s0_ * size : 0), size};
    } else if (code_.columns) {
      *slot = {frame_ + value.offset + (kept ? (value.slow ? s0_ * fast_ : 0) * size : 0), fast_ * size};
    } else {
      *slot = {frame_ + value.offset + (kept ? f0_ * size : 0), (kept ? code_.inner : fast_) * size};
    }
  }
  void place_memory(int v) const {
    const Value& value = code_.values[static_cast<std::size_t>(v)];
    const auto size = static_cast<Extent>(size_bytes(value.type));
    const bool is_product = value.place == Place::memory && value.operand < 0;
    const Extent slow_stride =
        is_product && binding_.product_row > 0 ? binding_.product_row : value.access.slow_stride();
    const Extent row = is_product ? value.access.offset + s0_ * slow_stride : value.access.row_offset(s0_);
    const char* base = value.place == Place::output ? binding_.outputs[static_cast<std::size_t>(value.operand)]
                       : value.operand < 0          ? binding_.product
                                                    : binding_.inputs[static_cast<std::size_t>(value.operand)];
    slots_[v] = {const_cast<char*>(base) + (row + value.access.fast_offset(f0_)) * size, slow_stride * size};
  }

  /// Portion `part` of `parts` of the cache lines that follow this tile of a value in memory.
  void ask_for_next(int v, Extent part, Extent parts) const {
    const Value& value = code_.values[static_cast<std::size_t>(v)];
    const Extent row = fast_ * static_cast<Extent>(size_bytes(value.type));
    const Extent lines = (value.slow ? slow_ : 1) * row / 64;
    const char* next = slots_[v].data + (value.slow ? slow_ - 1 : 0) * slots_[v].stride + row;
    for (Extent line = lines * part / parts; line < lines * (part + 1) / parts; ++line)
      __builtin_prefetch(next + line * 64);
  }

  /// An operand for an instruction that runs over both axes, or over a row made of the slow one.
  TileArg source(const Source& from, bool column) const {
    const Slot& slot = slots_[from.value];
    if (column) return {slot.data, 0, !from.slow};
    return {slot.data, from.slow ? slot.stride : 0, !from.fast};
  }

  void execute(const LoopInstruction& in) {
    switch (in.action) {
      case Action::map: return map(in);
      case Action::reduce: return reduce(in);
      case Action::store: return store(in);
      case Action::chain: return chain(in);
      case Action::fetch:
      case Action::gather:
      case Action::index: break;
    }
    if (in.packed_bits != 0) return in.action == Action::gather ? gather_packed(in) : fetch_packed(in);
    switch (in.out_bytes) {
      case 8: return in.action == Action::gather ? gather<double>(in) : fetch<double>(in);
      case 4:
        if (in.action == Action::index) return index(in);
        return in.action == Action::gather ? gather<std::uint32_t>(in) : fetch<std::uint32_t>(in);
      case 2: return in.action == Action::gather ? gather<std::uint16_t>(in) : fetch<std::uint16_t>(in);
      default: return in.action == Action::gather ? gather<std::uint8_t>(in) : fetch<std::uint8_t>(in);
    }
  }

  /// Calls the instruction; a whole tile without gaps is one long row.
  void call(const LoopInstruction& in, TileCall& call) const {
    if (call.slow > 1 && call.out_stride == call.fast * in.out_bytes) {
      bool dense = true;
      for (int i = 0; i < in.arg_count; ++i) {
        const TileArg& arg = call.args[i];
        dense = dense && arg.slow_stride == (arg.broadcast ? 0 : call.fast * in.args[i].bytes);
      }
      if (dense) call.fast *= call.slow, call.slow = 1;
    }
    in.map(call);
  }
  void map(const LoopInstruction& in) {
    const Slot& out = slots_[in.out];
    TileCall tile;
    tile.out = out.data;
    const bool column = in.slow && !in.fast;
    tile.slow = in.slow && in.fast ? slow_ : 1;
    tile.fast = column ? slow_ : in.fast ? fast_ : 1;
    tile.out_stride = out.stride;
    for (int i = 0; i < in.arg_count; ++i) tile.args[i] = source(in.args[i], column);
    call(in, tile);
  }
  void moments(const LoopInstruction& in, const ReductionInfo& info) const {
    TileMoments tile;
    tile.arg = source(in.args[0], false);
    tile.slow = slow_;
    tile.fast = fast_;
    tile.sums = accumulators(code_.reductions[static_cast<std::size_t>(in.sum)]);
    tile.means = means(info);
    tile.squares = accumulators(info);
    tile.before = (code_.columns ? s0_ : f0_) - first_;
    in.moments(tile);
  }
  void reduce(const LoopInstruction& in) {
    const ReductionInfo& info = code_.reductions[static_cast<std::size_t>(in.out)];
    if (info.is_squares) return moments(in, info);
    TileReduction tile;
    tile.arg = source(in.args[0], false);
    tile.slow = slow_;
    tile.fast = fast_;
    tile.accumulators = accumulators(info);
    tile.positions = positions(info);
    tile.base = code_.columns ? s0_ : f0_;
    in.reduce(tile);
  }

  /// The rows of an instruction that writes a register: calls row(s, fast index, count, destination).
  template <class Word, class Row>
  void each_row(const LoopInstruction& in, Row row) const {
    const Slot& out = slots_[in.out];
    const Extent rows = in.slow ? slow_ : 1, count = in.fast ? fast_ : 1;
    for (Extent s = 0; s < rows; ++s)
      row(s0_ + s, in.fast ? f0_ : 0, count, reinterpret_cast<Word*>(out.data + (in.slow ? s * out.stride : 0)));
  }
  const Access& access_of(const LoopInstruction& in) const {
    return code_.accesses[static_cast<std::size_t>(in.access)];
  }
  /// Whether memory runs along the slow axis: then the walk follows that axis, a cache line at a time.
  bool is_turned(const LoopInstruction& in) const {
    const Access& access = access_of(in);
    return in.slow && in.fast && access.plain_slow() && access.plain_fast() && access.slow_stride() == 1;
  }
  template <class Word>
  void fetch(const LoopInstruction& in) const {
    const Access& access = access_of(in);
    const char* base = in.operand < 0 ? binding_.product : binding_.inputs[static_cast<std::size_t>(in.operand)];
    const Word* from = reinterpret_cast<const Word*>(base);
    if (is_turned(in)) {
      const Slot& out = slots_[in.out];
      const Extent stride = Access::stride(access.fast), row = out.stride / static_cast<Extent>(sizeof(Word));
      transpose(from + access.row_offset(s0_) + access.fast_offset(f0_), stride, reinterpret_cast<Word*>(out.data), row,
                slow_, fast_);
      return;
    }
    if constexpr (sizeof(Word) >= 4)
      if (code_.columns && in.slow && in.fast && access.plain_slow() && access.plain_fast() &&
          Access::stride(access.fast) == 1)
        return copy_columns(access, from, reinterpret_cast<Word*>(slots_[in.out].data), slots_[in.out].stride);
    const bool reversed =
        !code_.columns && in.fast && access.plain_slow() && access.plain_fast() && Access::stride(access.fast) == -1;
    each_row<Word>(in, [&](Extent s, Extent f, Extent count, Word* to) {
      if (reversed) {
        // Prefetchers that guess what comes next go upwards.
        const Word* const at = from + access.row_offset(s) + access.fast_offset(f);
        const Word* const next = f + count < code_.inner ? at - count
                                 : s + 1 < code_.outer   ? from + access.row_offset(s + 1)
                                                         : nullptr;
        return copy_reversed(at, to, count, next);
      }
      if (is_of_pairs(access, f, count)) return copy_pairs(access, s, f, count, from, to);
      walk_row(
          access, s, f, count,
          [&](Extent i, Extent at, Extent stride, Extent n) { copy_strided(from + at, stride, to + i, 1, n); },
          [&](Extent i, Extent n) { std::fill_n(to + i, n, Word{}); });
    });
  }
  /// Some neighbouring columns, whose rows lie apart: memory cannot guess which line follows. `to_row` is in bytes.
  template <class Word>
  void copy_columns(const Access& access, const Word* from, Word* to, Extent to_row) const {
    constexpr Extent kAhead = 24, kLine = 64 / static_cast<Extent>(sizeof(Word));  // rows
    const Extent row = access.slow_stride();
    const Word* at = from + access.row_offset(s0_) + access.fast_offset(f0_);
    char* out = reinterpret_cast<char*>(to);
    for (Extent s = 0; s < slow_; ++s, at += row, out += to_row) {
      const Extent later = s0_ + s + kAhead;
      // After the last rows, those of the next block; at the end, this row, which is in the cache.
      const Word* const next = later < code_.inner        ? at + kAhead * row
                               : outer_end_ < code_.outer ? at + (kAhead - code_.inner) * row + fast_
                                                          : at;
      Extent c = 0;
      for (; c + kLine <= fast_; c += kLine) {
        __builtin_prefetch(next + c, 0, 2);
        std::memcpy(reinterpret_cast<Word*>(out) + c, at + c, 64);
      }
      if (c < fast_)
        std::memcpy(reinterpret_cast<Word*>(out) + c, at + c, static_cast<std::size_t>(fast_ - c) * sizeof(Word));
    }
  }
  /// Like `fetch`, for a packed type: codes, a byte each.
  void fetch_packed(const LoopInstruction& in) const {
    const Access& access = access_of(in);
    const char* from = binding_.inputs[static_cast<std::size_t>(in.operand)];
    each_row<std::uint8_t>(in, [&](Extent s, Extent f, Extent count, std::uint8_t* to) {
      walk_row(
          access, s, f, count,
          [&](Extent i, Extent at, Extent stride, Extent n) {
            unpack_codes(in.packed_bits, from, at, stride, to + i, n);
          },
          [&](Extent i, Extent n) { std::fill_n(to + i, n, std::uint8_t{0}); });
    });
  }
  void gather_packed(const LoopInstruction& in) const {
    const Access& access = access_of(in);
    const char* from = binding_.inputs[static_cast<std::size_t>(in.operand)];
    const Source& chosen = in.args[0];
    const Slot& slot = slots_[chosen.value];
    each_row<std::uint8_t>(in, [&](Extent s, Extent f, Extent count, std::uint8_t* to) {
      const auto* indices =
          reinterpret_cast<const std::int32_t*>(slot.data + (chosen.slow ? (s - s0_) * slot.stride : 0));
      std::fill_n(to, count, std::uint8_t{0});
      const auto take = [&](std::int32_t index, Extent i, Extent at, Extent stride, Extent n) {
        if (index >= 0 && index < in.axis_extent)
          unpack_codes(in.packed_bits, from, at + index * in.axis_stride, stride, to + i, n);
      };
      walk_row(
          access, s, f, count,
          [&](Extent i, Extent at, Extent stride, Extent n) {
            if (!chosen.fast) return take(*indices, i, at, stride, n);
            for (Extent k = 0; k < n; ++k) take(indices[i + k], i + k, at + k * stride, 0, 1);
          },
          [](Extent, Extent) {});
    });
  }
  void index(const LoopInstruction& in) const {
    const Access& access = access_of(in);
    each_row<std::uint32_t>(in, [&](Extent s, Extent f, Extent count, std::uint32_t* to) {
      walk_row(
          access, s, f, count,
          [&](Extent i, Extent at, Extent stride, Extent n) {
            for (Extent k = 0; k < n; ++k) to[i + k] = static_cast<std::uint32_t>(at + k * stride);
          },
          [&](Extent i, Extent n) { std::fill_n(to + i, n, 0u); });
    });
  }
  /// Element k is at from[k * stride + indices[k] * axis_stride], or zero if its index is outside.
  template <class Word>
  static void take_elements(const LoopInstruction& in, const Word* from, Extent stride, const std::int32_t* indices,
                            Word* to, Extent count) {
    const auto extent = static_cast<std::uint32_t>(in.axis_extent);
    std::uint32_t signs = 0;  // the highest bit: of an index that is negative or too large
    for (Extent k = 0; k < count; ++k) {
      const auto index = static_cast<std::uint32_t>(indices[k]);
      signs |= index | (extent - 1 - index);
    }
    if (in.axis_extent == 0 || in.axis_extent > INT32_MAX || signs >> 31 != 0) {
      for (Extent k = 0; k < count; ++k) {
        const std::int32_t index = indices[k];
        to[k] = index < 0 || index >= in.axis_extent ? Word{} : from[k * stride + index * in.axis_stride];
      }
    } else if (in.axis_stride == 1 && stride == 0) {
      for (Extent k = 0; k < count; ++k) to[k] = from[indices[k]];
    } else {
      for (Extent k = 0; k < count; ++k, from += stride) to[k] = from[indices[k] * in.axis_stride];
    }
  }
  /// Words of one row, by index; asks for as large a share of the next row.
  void take_from_row(const LoopInstruction& in, const std::uint32_t* row, Extent s, Extent f,
                     const std::int32_t* indices, std::uint32_t* to, Extent count) const {
    constexpr Extent kRowBytes = 256 << 10;  // longer rows do not stay in the cache
    TakeCall call{row,
                  static_cast<std::uint32_t>(in.axis_extent),
                  reinterpret_cast<const std::uint32_t*>(indices),
                  to,
                  count,
                  in.streams,
                  nullptr,
                  0};
    const Extent bytes = in.axis_extent * 4;
    if (s + 1 < code_.outer && bytes <= kRowBytes && !code_.columns) {
      const auto share = [&](Extent column) { return bytes * column / code_.inner; };
      call.next =
          binding_.inputs[static_cast<std::size_t>(in.operand)] + access_of(in).row_offset(s + 1) * 4 + share(f);
      call.next_bytes = share(f + count) - share(f);
    }
    tile_table().take(call);
  }

  /// The row that a gather of whole rows reads some rows after row `s`, or null: memory cannot guess where it is.
  template <class Word>
  const char* row_ahead(const LoopInstruction& in, Extent s, Extent f, Extent count) const {
    constexpr Extent kBytesAhead = 4096;
    const Access& access = access_of(in);
    const Source& chosen = in.args[0];
    const auto size = static_cast<Extent>(sizeof(Word));
    const Extent ahead = s + std::clamp<Extent>(kBytesAhead / (count * size), 1, 32);
    const Value& index = code_.values[static_cast<std::size_t>(chosen.value)];
    const bool in_memory = index.place == Place::memory && !index.access.by_runs && !access.by_runs;
    if (!chosen.slow || ahead >= (in_memory ? code_.outer : s0_ + slow_)) return nullptr;
    const Slot& slot = slots_[chosen.value];
    const auto at = *reinterpret_cast<const std::int32_t*>(slot.data + (ahead - s0_) * slot.stride);
    if (at < 0 || at >= in.axis_extent) return nullptr;
    return binding_.inputs[static_cast<std::size_t>(in.operand)] +
           (access.row_offset(ahead) + access.fast_offset(f) + at * in.axis_stride) * size;
  }
  template <class Word>
  void gather(const LoopInstruction& in) const {
    const Access& access = access_of(in);
    const Word* from = reinterpret_cast<const Word*>(binding_.inputs[static_cast<std::size_t>(in.operand)]);
    const Source& chosen = in.args[0];
    const Slot& slot = slots_[chosen.value];
    const bool is_of_row =
        access.plain_slow() && access.fast.empty() && in.axis_stride == 1 && in.axis_extent <= INT32_MAX;
    const bool is_plain = access.plain_slow() && access.plain_fast() && Access::stride(access.fast) == 1;
    each_row<Word>(in, [&](Extent s, Extent f, Extent count, Word* to) {
      const auto* indices =
          reinterpret_cast<const std::int32_t*>(slot.data + (chosen.slow ? (s - s0_) * slot.stride : 0));
      const auto outside = [&](std::int32_t index) { return index < 0 || index >= in.axis_extent; };
      const bool one = !chosen.fast;
      if (one && outside(*indices)) {
        std::fill_n(to, count, Word{});
        return;
      }
      const Word* row = one ? from + *indices * in.axis_stride : from;
      if (one && is_plain) {
        const char* const source = reinterpret_cast<const char*>(row + access.row_offset(s) + access.fast_offset(f));
        return copy_row(source, reinterpret_cast<char*>(to), count * static_cast<Extent>(sizeof(Word)), in.streams,
                        row_ahead<Word>(in, s, f, count));
      }
      walk_row(
          access, s, f, count,
          [&](Extent i, Extent at, Extent stride, Extent n) {
            if (one) return copy_strided(row + at, stride, to + i, 1, n);
            if constexpr (sizeof(Word) == 4)
              if (is_of_row) return take_from_row(in, from + at, s, f + i, indices + i, to + i, n);
            take_elements(in, from + at, stride, indices + i, to + i, n);
          },
          [&](Extent i, Extent n) { std::fill_n(to + i, n, Word{}); });
    });
  }

  void store(const LoopInstruction& in) {
    const Access& access = access_of(in);
    const Source& value = in.args[0];
    char* base = binding_.outputs[static_cast<std::size_t>(in.operand)];
    const Extent size = value.bytes;
    const Extent rows = in.slow ? slow_ : 1, count = in.fast ? fast_ : 1;
    if (in.map != nullptr) {
      TileCall tile;
      const Extent slow_stride = access.slow_stride();
      tile.out = base + (access.row_offset(s0_) + access.fast_offset(f0_)) * size;
      tile.out_stride = slow_stride * size;
      const bool column = in.slow && !in.fast;
      tile.slow = column ? 1 : rows;
      tile.fast = column ? rows : count;
      tile.args[0] = source(in.args[0], column);
      call(in, tile);
      return;
    }
    const Slot& slot = slots_[value.value];
    if (in.packed_bits != 0) {
      for (Extent s = 0; s < rows; ++s) {
        const auto* from = reinterpret_cast<const std::uint8_t*>(slot.data + (value.slow ? s * slot.stride : 0));
        walk_row(
            access, s0_ + s, f0_, count,
            [&](Extent i, Extent at, Extent stride, Extent n) {
              pack_codes(in.packed_bits, from + (value.fast ? i : 0), value.fast ? 1 : 0, base, at, stride, n);
            },
            [](Extent, Extent) {});
      }
      return;
    }
    const auto scatter = [&]<class Word>(Word) {
      if (is_turned(in)) {
        const Extent stride = Access::stride(access.fast), row = value.slow ? slot.stride / size : 0;
        Word* const to = reinterpret_cast<Word*>(base) + access.row_offset(s0_) + access.fast_offset(f0_);
        const Word* const source = reinterpret_cast<const Word*>(slot.data);
        if (value.slow && value.fast) return transpose(source, row, to, stride, count, rows);
        for (Extent f = 0; f < count; ++f) copy_strided(source + (value.fast ? f : 0), row, to + f * stride, 1, rows);
        return;
      }
      for (Extent s = 0; s < rows; ++s) {
        const Word* from = reinterpret_cast<const Word*>(slot.data + (value.slow ? s * slot.stride : 0));
        Word* to = reinterpret_cast<Word*>(base);
        walk_row(
            access, s0_ + s, f0_, count,
            [&](Extent i, Extent at, Extent stride, Extent n) {
              copy_strided(from + (value.fast ? i : 0), value.fast ? 1 : 0, to + at, stride, n);
            },
            [](Extent, Extent) {});
      }
    };
    if (size == 8)
      scatter(double{});
    else if (size == 4)
      scatter(std::uint32_t{});
    else if (size == 2)
      scatter(std::uint16_t{});
    else
      scatter(std::uint8_t{});
  }

  /// This tile's place in the next block; in the last block, this tile, which is in the cache.
  ChainCall::Place next_block_of(const Value& value) const {
    const Extent row = outer_end_ < code_.outer ? outer_end_ + s0_ - outer_begin_ : s0_;
    const char* base = binding_.inputs[static_cast<std::size_t>(value.operand)];
    return {const_cast<char*>(base) +
                (value.access.row_offset(row) + value.access.fast_offset(f0_)) * static_cast<Extent>(sizeof(float)),
            value.access.slow_stride() * static_cast<Extent>(sizeof(float))};
  }

  void chain(const LoopInstruction& in) const {
    const LoopChain& chain = code_.chains[static_cast<std::size_t>(in.chain)];
    if (!chain.reduces_columns) return chain_rows(in, chain, 0, slow_);
    // f32 sums stay short before they widen, as in `reduce_slow`.
    constexpr Extent kGroup = 32;
    const auto each_reduction = [&](auto visit) {
      for (const LoopChain::Place& place : chain.places)
        if (place.reduction >= 0) visit(code_.reductions[static_cast<std::size_t>(place.reduction)]);
    };
    for (Extent first = 0; first < slow_; first += kGroup) {
      each_reduction([&](const ReductionInfo& info) {
        std::fill_n(partials(info), fast_, static_cast<float>(empty_value(info.reduction, DType::f32)));
      });
      chain_rows(in, chain, first, std::min(kGroup, slow_ - first));
      each_reduction([&](const ReductionInfo& info) {
        TileReduction one;
        one.arg.data = partials(info);
        one.fast = fast_;
        one.accumulators = accumulators(info);
        tile_table().reduce_slow[static_cast<std::size_t>(info.reduction)][static_cast<std::size_t>(DType::f32)](one);
      });
    }
  }
  float* partials(const ReductionInfo& info) const { return reinterpret_cast<float*>(frame_ + info.partials); }
  /// Some rows of the tile.
  void chain_rows(const LoopInstruction& in, const LoopChain& chain, Extent first, Extent rows) const {
    const bool column = in.slow && !in.fast;
    const Extent lanes = column ? slow_ : in.fast ? fast_ : 1;
    ChainCall call;
    call.rows = in.slow && in.fast ? rows : 1;
    bool dense = call.rows > 1 && chain.folds.empty() && !chain.reduces_columns, aligned = true;
    std::size_t i = 0;
    for (const LoopChain::Place& place : chain.places) {
      ChainCall::Place& to = call.places[i++];
      bool varies = true;
      if (place.is_next) {
        to = next_block_of(code_.values[static_cast<std::size_t>(place.value.value)]);
      } else if (place.reduction >= 0) {
        to = {reinterpret_cast<char*>(partials(code_.reductions[static_cast<std::size_t>(place.reduction)])), 0};
      } else if (place.access >= 0) {
        const Access& access = code_.accesses[static_cast<std::size_t>(place.access)];
        to.data = binding_.outputs[static_cast<std::size_t>(place.output)] +
                  (access.row_offset(s0_) + access.fast_offset(f0_)) * place.value.bytes;
        to.row = access.slow_stride() * place.value.bytes;
        if (place.streams)
          aligned =
              aligned && (reinterpret_cast<std::uintptr_t>(to.data) | static_cast<std::uintptr_t>(to.row)) % 64 == 0;
      } else {
        const Slot& slot = slots_[place.value.value];
        to.data = slot.data;
        to.row = place.value.slow ? slot.stride : 0;
        varies = column ? place.value.slow : place.value.fast;
      }
      to.data += first * to.row;
      dense = dense && to.row == (varies ? lanes * place.value.bytes : 0);
    }
    const Extent count = dense ? lanes * call.rows : lanes;
    if (dense) call.rows = 1;
    call.whole = count / kChainLanes * kChainVectorBytes;
    call.fours = count / (4 * kChainLanes) * 4 * kChainVectorBytes;
    call.rest = (1 << count % kChainLanes) - 1;
    for (std::size_t f = 0; f < chain.folds.size(); ++f)
      call.folds[f] = accumulators(code_.reductions[static_cast<std::size_t>(chain.folds[f])]);
    (aligned || !chain.unaligned ? chain.code : *chain.unaligned).run(call);
  }

  const Code& code_;
  const LoopBinding& binding_;
  char* frame_ = nullptr;
  Slot* slots_ = nullptr;
  Extent outer_begin_ = 0, outer_end_ = 0;
  Extent s0_ = 0, slow_ = 1, f0_ = 0, fast_ = 1;
  Extent first_ = 0;  // of the inner axis, in this run through a phase
};

int LoopProgram::stages() const { return totals_ ? static_cast<int>(totals_->phases.size()) : 1; }

Extent LoopProgram::tasks(int) const {
  const Code& code = *code_;
  const Extent blocks = code.blocks();
  return totals_ ? blocks * totals_->parts : (blocks + code.blocks_per_task - 1) / code.blocks_per_task;
}

void LoopProgram::start() const {
  if (totals_) totals_->ended.store(0, std::memory_order_relaxed);
}

void LoopProgram::run_task(const LoopBinding& binding, int stage, Extent task) const {
  if (totals_) return run_part(binding, stage, task);
  const Code& code = *code_;
  LoopRunner runner(code, binding);
  const Extent end = std::min((task + 1) * code.blocks_per_task, code.blocks());
  for (Extent b = task * code.blocks_per_task; b < end; ++b) {
    const Code::Range rows = code.block_range(b);
    runner.whole_block(rows.begin, rows.end);
  }
  runner.fence();
}

/// One phase of one block over a part of the inner axis. The last task of a phase joins the accumulators of all parts, in
/// their order.
void LoopProgram::run_part(const LoopBinding& binding, int stage, Extent task) const {
  const Code& code = *code_;
  Totals& t = *totals_;
  const auto p = static_cast<std::size_t>(t.phases[static_cast<std::size_t>(stage)]);
  const Phase& phase = code.phases[p];
  const Extent blocks = code.blocks(), b = task % blocks, k = task / blocks;
  const auto count = static_cast<std::size_t>(code.outer);
  LoopRunner runner(code, binding);
  // Outer-level code up to a phase, from the totals of those before it.
  const auto begin_block = [&](Extent block, std::size_t last) {
    const auto [begin, end] = code.block_range(block);
    runner.set_block(begin, end);
    for (std::size_t q = 0; q <= last; ++q) {
      runner.outer_code(code.phases[q]);
      if (q == last) break;
      for (const int r : code.phases[q].reductions) {
        const ReductionInfo& info = code.reductions[static_cast<std::size_t>(r)];
        const std::size_t at = static_cast<std::size_t>(r) * count + static_cast<std::size_t>(begin);
        std::copy_n(t.totals.begin() + static_cast<Extent>(at), end - begin, runner.accumulators(info));
        if (info.has_positions())
          std::copy_n(t.total_positions.begin() + static_cast<Extent>(at), end - begin, runner.positions(info));
      }
      runner.finish_reductions(code.phases[q]);
    }
  };
  begin_block(b, p);
  runner.start_reductions(phase);
  runner.chunks(phase, k * t.part, std::min((k + 1) * t.part, code.inner));
  const std::size_t here = phase.reductions.size();
  const Code::Range rows = code.block_range(b);
  const Extent begin = rows.begin, n = rows.end - rows.begin;
  for (std::size_t r = 0; r < here; ++r) {
    const ReductionInfo& info = code.reductions[static_cast<std::size_t>(phase.reductions[r])];
    const Extent at = (k * static_cast<Extent>(here) + static_cast<Extent>(r)) * code.outer + begin;
    std::copy_n(runner.accumulators(info), n, t.partial.begin() + at);
    if (info.has_positions()) std::copy_n(runner.positions(info), n, t.partial_positions.begin() + at);
  }
  runner.fence();

  if (t.ended.fetch_add(1, std::memory_order_acq_rel) + 1 < blocks * t.parts) return;
  t.ended.store(0, std::memory_order_relaxed);
  for (std::size_t r = 0; r < here; ++r) {
    const ReductionInfo& info = code.reductions[static_cast<std::size_t>(phase.reductions[r])];
    const auto index = static_cast<std::size_t>(phase.reductions[r]) * count;
    double* totals = t.totals.data() + index;
    std::int64_t* positions = t.total_positions.data() + index;
    for (std::size_t part = 0; part < static_cast<std::size_t>(t.parts); ++part) {
      const std::size_t at = (part * here + r) * count;
      if (part == 0) {
        std::copy_n(t.partial.data() + at, count, totals);
        if (info.has_positions()) std::copy_n(t.partial_positions.data() + at, count, positions);
      } else {
        const Extent before = static_cast<Extent>(part) * t.part;
        join_accumulators(info, count, totals, positions, t.partial.data() + at, t.partial_positions.data() + at,
                          before, std::min(t.part, code.inner - before));
      }
    }
  }
  if (stage + 1 < stages() || code.last.inner.empty()) return;
  for (Extent block = 0; block < blocks; ++block) {
    begin_block(block, code.phases.size() - 1);
    runner.last_code();
  }
}

void LoopProgram::run(const LoopBinding& binding) const {
  start();
  for (int stage = 0; stage < stages(); ++stage) {
    const Extent count = tasks(stage);
    const auto task = [&](Extent i) { run_task(binding, stage, i); };
    if (count == 1)
      task(0);
    else
      parallel_for(count, task);
  }
}

bool LoopProgram::takes_product_rows(Extent columns) const {
  const Code& code = *code_;
  for (const Value& value : code.values)
    if (value.place == Place::memory && value.operand < 0 &&
        (code.columns || value.access.offset != 0 || Access::stride(value.access.fast) != 1 ||
         Access::stride(value.access.slow) != columns))
      return false;
  const auto none_copied = [](const std::vector<LoopInstruction>& list) {
    return std::none_of(list.begin(), list.end(), [](const LoopInstruction& in) {
      return (in.action == Action::fetch || in.action == Action::gather) && in.operand < 0;
    });
  };
  return none_copied(code.last.inner) && std::all_of(code.phases.begin(), code.phases.end(), [&](const Phase& phase) {
           return none_copied(phase.outer) && none_copied(phase.inner);
         });
}

void LoopProgram::run_rectangle(const LoopBinding& binding, Extent row_begin, Extent row_end, Extent column_begin,
                                Extent column_end) const {
  const Code& code = *code_;
  LoopRunner runner(code, binding);
  const Extent width = std::clamp<Extent>(column_end - column_begin, 1, code.chunk);
  const Extent rows = std::clamp<Extent>(code.tile / width, 1, code.block);
  for (Extent begin = row_begin; begin < row_end; begin += rows) {
    runner.set_block(begin, std::min(begin + rows, row_end));
    runner.outer_code(code.phases[0]);
    runner.chunks(code.phases[0], column_begin, column_end);
  }
  runner.fence();
}

}  // namespace weft::cpu
