#include "backend/cpu/delta_scan.hpp"

#include <algorithm>
#include <vector>

#include "backend/cpu/loop/tile.hpp"
#include "backend/cpu/state_rows.hpp"
#include "compile/call_attributes.hpp"
#include "graph/delta_scan.hpp"

namespace weft::cpu {
namespace {

constexpr Extent kFewSteps = 16;      // for which a pass of some tokens gets the bits of each token alone
constexpr Extent kDeltaColumns = 64;  // of a task's part of a head: with 128 keys these are 32 KB of f32

template <class T>
class DeltaScanForward final : public SequenceTasks {
 public:
  explicit DeltaScanForward(const kernel::CallKernel& kernel)
      : SequenceTasks(CacheCopy(kernel, 5, kernel::attributes_of<graph::DeltaScanAttributes>(kernel).cached)),
        kernel_(kernel),
        cached_(kernel::attributes_of<graph::DeltaScanAttributes>(kernel).cached),
        batch_(kernel.shapes[0][0]),
        steps_(kernel.shapes[0][1]),
        groups_(kernel.shapes[0][2]),
        keys_(kernel.shapes[0][3]),
        heads_(kernel.shapes[2][2]),
        width_(kernel.shapes[2][3]),
        by_chunks_(steps_ > kFewSteps),
        columns_(by_chunks_ ? std::max<Extent>(width_, 1)
                            : kDeltaColumns),  // products of keys are made once for all of a head
        of_head_((width_ + columns_ - 1) / columns_) {
    const Extent work = columns_ * keys_ * steps_;
    each_ = std::max<Extent>(1, kStateTaskWork / std::max<Extent>(work, 1));
    parts_ = (heads_ * of_head_ + each_ - 1) / each_;
  }

  void bind(const Memory& memory) override {
    const auto values = [&](std::size_t i) { return reinterpret_cast<const T*>(memory.at(kernel_.reads[i])); };
    q_ = values(0), k_ = values(1), v_ = values(2), decay_ = values(3), beta_ = values(4), before_ = values(5);
    after_ = reinterpret_cast<T*>(memory.at(kernel_.outs[0]));
    y_ = reinterpret_cast<T*>(memory.at(kernel_.outs[1]));
    copy_.bind(memory);
    if (cached_) rows_.bind(kernel_, memory, 5);
  }
  std::string to_string() const override { return call_text(kernel_); }

 private:
  Extent count() const override { return batch_ * parts_; }
  void run_part(Extent task) override {
    const Extent sequence = task / parts_, part = task % parts_, row = rows_.row(sequence),
                 end = std::min(heads_ * of_head_, (part + 1) * each_);
    std::vector<T> scratch(by_chunks_ ? static_cast<std::size_t>(delta_scratch(keys_, width_)) : 0);
    std::vector<T> dropped(row < 0 ? static_cast<std::size_t>(keys_ * width_) : 0);
    for (Extent i = part * each_; i < end; ++i) {
      const Extent head = i / of_head_, first = i % of_head_ * columns_, columns = std::min(columns_, width_ - first),
                   at = (row * heads_ + head) * keys_ * width_ + first;
      T* const state = row < 0 ? dropped.data() + first : after_ + at;
      for (Extent n = 0; n < keys_; ++n) {
        if (!rows_.has_state(sequence))
          std::fill_n(state + n * width_, columns, T{0});
        else if (after_ != before_)
          std::copy_n(before_ + at + n * width_, columns, state + n * width_);
      }
      DeltaScanRun<T> run{.keys = keys_,
                          .columns = columns,
                          .key_step = groups_ * keys_,
                          .value_step = heads_ * width_,
                          .head_step = heads_,
                          .state_row = width_,
                          .state = state,
                          .scratch = scratch.data()};
      for (Extent t = 0; t < steps_; t += run.steps) {
        const Extent step = sequence * steps_ + t, key = (step * groups_ + head / (heads_ / groups_)) * keys_,
                     value = (step * heads_ + head) * width_ + first;
        run.steps = by_chunks_ ? steps_ : std::min(kStateSteps, steps_ - t);
        run.q = q_ + key, run.k = k_ + key, run.v = v_ + value, run.y = y_ + value;
        run.decay = decay_ + step * heads_ + head, run.beta = beta_ + step * heads_ + head;
        by_chunks_ ? state_scan_parts<T>().delta_chunks(run) : state_scan_parts<T>().delta(run);
      }
    }
  }

  const kernel::CallKernel kernel_;
  const bool cached_;
  const Extent batch_, steps_, groups_, keys_, heads_, width_;
  const bool by_chunks_;
  const Extent columns_, of_head_;  // of a part of a head; parts
  Extent each_ = 1, parts_ = 1;     // parts of a task, tasks of a sequence
  SequenceRows rows_;
  const T *q_ = nullptr, *k_ = nullptr, *v_ = nullptr, *decay_ = nullptr, *beta_ = nullptr, *before_ = nullptr;
  T *after_ = nullptr, *y_ = nullptr;
};

}  // namespace

std::unique_ptr<Prepared> prepare_delta_scan(const kernel::CallKernel& kernel) {
  return prepare_for_type<DeltaScanForward>(kernel);
}

}  // namespace weft::cpu
