#include "backend/cpu/state_scan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "backend/cpu/loop/tile.hpp"
#include "backend/cpu/state_rows.hpp"
#include "base/threads.hpp"
#include "compile/call_attributes.hpp"
#include "graph/state_scan.hpp"
#include "weft/error.hpp"

namespace weft::cpu {
namespace {

constexpr Extent kPartsMax = 16;  // shares of a group's channels that have sums of their own for b and c

/// Extents and operands that the way forward and the way back have in common.
template <class T>
class StateScanSpace {
 protected:
  explicit StateScanSpace(const kernel::CallKernel& kernel)
      : kernel_(kernel),
        batch_(kernel.shapes[0][0]),
        steps_(kernel.shapes[0][1]),
        heads_(kernel.shapes[0][2]),
        width_(kernel.shapes[0][3]),
        groups_(kernel.shapes[3][2]),
        states_(kernel.shapes[3][3]),
        shares_rate_(kernel.shapes[2][1] == 1) {}

  /// Channels [first, end) have one group, and one head unless heads have one channel.
  struct Block {
    Extent first, end;
  };
  std::vector<Block> blocks_of(Extent first_head, Extent end_head) const {
    std::vector<Block> blocks;
    const Extent unit = width_ == 1 ? end_head - first_head : width_;
    for (Extent from = first_head * width_; from < end_head * width_; from += unit)
      for (Extent c = from; c < from + unit; c += kStateChannels)
        blocks.push_back({c, std::min(c + kStateChannels, from + unit)});
    return blocks;
  }
  Extent channels() const { return heads_ * width_; }
  Extent heads_each() const { return heads_ / groups_; }

  template <class Run>
  void set(Run& run, const Block& block) const {
    const bool are_heads = width_ == 1;
    run.channels = block.end - block.first;
    run.states = states_;
    run.x_step = channels();
    run.dt_step = heads_;
    run.b_step = groups_ * states_;
    run.dt_channel = are_heads ? 1 : 0;
    run.a_channel = are_heads ? (shares_rate_ ? 1 : states_) : 0;
    run.shares_rate = shares_rate_;
    run.a = a_ + block.first / width_ * (shares_rate_ ? 1 : states_);
  }
  /// The places of step t.
  template <class Run>
  void move(Run& run, const Block& block, Extent sequence, Extent t) const {
    const Extent head = block.first / width_, row = sequence * steps_ + t;
    run.steps = std::min(kStateSteps, steps_ - t);
    run.x = x_ + row * channels() + block.first;
    run.dt = dt_ + row * heads_ + head;
    const Extent at = (row * groups_ + head / heads_each()) * states_;
    run.b = b_ + at;
    run.c = c_ + at;
  }
  void bind_operands(const Memory& memory) {
    x_ = read(memory, 0);
    dt_ = read(memory, 1);
    a_ = read(memory, 2);
    b_ = read(memory, 3);
    c_ = read(memory, 4);
    state_ = read(memory, 5);
  }
  const T* read(const Memory& memory, std::size_t i) const {
    return reinterpret_cast<const T*>(memory.at(kernel_.reads[i]));
  }
  T* out(const Memory& memory, std::size_t i) const { return reinterpret_cast<T*>(memory.at(kernel_.outs[i])); }

  const kernel::CallKernel kernel_;
  const Extent batch_, steps_, heads_, width_, groups_, states_;
  const bool shares_rate_;
  const T *x_ = nullptr, *dt_ = nullptr, *a_ = nullptr, *b_ = nullptr, *c_ = nullptr, *state_ = nullptr;
};

template <class T>
class StateScanForward final : public SequenceTasks, StateScanSpace<T> {
  using Space = StateScanSpace<T>;
  using Block = typename Space::Block;

 public:
  explicit StateScanForward(const kernel::CallKernel& kernel)
      : SequenceTasks(CacheCopy(kernel, 5, kernel::attributes_of<graph::StateScanAttributes>(kernel).cached)),
        Space(kernel),
        cached_(kernel::attributes_of<graph::StateScanAttributes>(kernel).cached) {
    for (Extent g = 0; g < this->groups_; ++g)
      for (const Block& block : this->blocks_of(g * this->heads_each(), (g + 1) * this->heads_each()))
        blocks_.push_back(block);
    const Extent work = kStateChannels * this->states_ * this->steps_;
    each_ = std::max<Extent>(1, kStateTaskWork / std::max<Extent>(work, 1));
    parts_ = (static_cast<Extent>(blocks_.size()) + each_ - 1) / each_;
  }

  void bind(const Memory& memory) override {
    this->bind_operands(memory);
    copy_.bind(memory);
    after_ = this->out(memory, 0);
    y_ = this->out(memory, 1);
    if (cached_) rows_.bind(this->kernel_, memory, 5);
  }
  std::string to_string() const override { return call_text(this->kernel_); }

 private:
  Extent count() const override { return this->batch_ * parts_; }
  void run_part(Extent task) override {
    const Extent sequence = task / parts_, part = task % parts_, row = rows_.row(sequence);
    const Extent end = std::min(static_cast<Extent>(blocks_.size()), (part + 1) * each_);
    std::vector<T> dropped(row < 0 ? static_cast<std::size_t>(kStateChannels * this->states_) : 0);
    for (Extent i = part * each_; i < end; ++i) {
      const Block& block = blocks_[static_cast<std::size_t>(i)];
      StateScanRun<T> run;
      this->set(run, block);
      const Extent count = run.channels * this->states_, at = (row * this->channels() + block.first) * this->states_;
      run.state = row < 0 ? dropped.data() : after_ + at;
      if (!rows_.has_state(sequence))
        std::fill_n(run.state, count, T{0});
      else if (row >= 0 && after_ != this->state_)
        std::copy_n(this->state_ + at, count, run.state);
      for (Extent t = 0; t < this->steps_; t += run.steps) {
        this->move(run, block, sequence, t);
        run.y = y_ + (run.x - this->x_);
        state_scan_parts<T>().forward(run);
      }
    }
  }

  const bool cached_;
  std::vector<Block> blocks_;
  Extent each_ = 1, parts_ = 1;  // blocks of a task, tasks of a sequence
  SequenceRows rows_;
  T *after_ = nullptr, *y_ = nullptr;
};

template <class T>
class StateScanBackward final : public Prepared, StateScanSpace<T> {
  using Space = StateScanSpace<T>;
  using Block = typename Space::Block;

 public:
  explicit StateScanBackward(const kernel::CallKernel& kernel)
      : Space(kernel),
        rates_(this->shares_rate_ ? 1 : this->states_),
        // Heads with several channels stay whole, because the gradients of their steps are sums over these channels.
        parts_(std::clamp<Extent>(this->heads_each() * this->width_ / kStateChannels, 1,
                                  std::min(kPartsMax, this->heads_each()))),
        tasks_(this->batch_ * this->groups_ * parts_) {}

  void bind(const Memory& memory) override {
    this->bind_operands(memory);
    d_state_ = this->read(memory, 6);
    d_y_ = this->read(memory, 7);
    d_x_ = this->out(memory, 0);
    d_dt_ = this->out(memory, 1);
    d_a_ = this->out(memory, 2);
    d_b_ = this->out(memory, 3);
    d_c_ = this->out(memory, 4);
    first_ = this->out(memory, 5);
  }
  void run() override {
    start();
    for (int stage = 0; stage < stages(); ++stage) parallel_for(tasks(stage), [&](Extent i) { run_task(stage, i); });
  }
  int stages() const override { return 2; }
  Extent tasks(int stage) const override { return stage == 0 ? tasks_ : this->batch_ * this->groups_ + 1; }
  void start() override {
    sums_.resize(static_cast<std::size_t>(2 * tasks_ * this->steps_ * this->states_));
    rates_of_sequences_.resize(static_cast<std::size_t>(this->batch_ * this->heads_ * rates_));
  }
  void run_task(int stage, Extent task) override {
    if (stage == 0)
      scan_back(task);
    else if (task < this->batch_ * this->groups_)
      add_parts(task);
    else
      add_sequences();
  }
  std::size_t scratch_bytes() const override {
    return sizeof(T) * static_cast<std::size_t>(2 * tasks_ * this->steps_ * this->states_);
  }
  std::string to_string() const override { return call_text(this->kernel_); }

 private:
  T* sums_of(Extent task, bool of_c) {
    return sums_.data() + (2 * task + (of_c ? 1 : 0)) * this->steps_ * this->states_;
  }

  void scan_back(Extent task) {
    const Extent part = task % parts_, group = task / parts_ % this->groups_, sequence = task / parts_ / this->groups_,
                 each = this->heads_each(), steps = this->steps_, states = this->states_,
                 runs = (steps + kStateSteps - 1) / kStateSteps;
    const Extent first_head = group * each + part * each / parts_, end_head = group * each + (part + 1) * each / parts_;
    std::fill_n(sums_of(task, false), 2 * steps * states, T{0});
    T* const rates = rates_of_sequences_.data() + sequence * this->heads_ * rates_;
    std::fill(rates + first_head * rates_, rates + end_head * rates_, T{0});
    for (Extent t = 0; t < steps; ++t) {
      T* const row = d_dt_ + (sequence * steps + t) * this->heads_;
      std::fill(row + first_head, row + end_head, T{0});
    }
    const auto run_elements = static_cast<std::size_t>(4 * states * (kStateSteps + 1));
    std::vector<T> scratch(2 * run_elements), starts(static_cast<std::size_t>(runs * kStateChannels * states));
    for (const Block& block : this->blocks_of(first_head, end_head)) {
      const Extent head = block.first / this->width_, count = (block.end - block.first) * states,
                   at = (sequence * this->channels() + block.first) * states;
      keep_starts(block, sequence, starts.data(), count);
      StateScanBackRun<T> run;
      this->set(run, block);
      run.states_of_steps = scratch.data();
      run.kept_of_steps = scratch.data() + run_elements;
      run.d_a = rates + head * rates_;
      run.carry = first_ + at;
      std::copy_n(d_state_ + at, count, run.carry);
      for (Extent k = runs; k-- > 0;) {
        const Extent t = k * kStateSteps;
        this->move(run, block, sequence, t);
        run.state = starts.data() + k * count;
        run.d_y = d_y_ + (run.x - this->x_);
        run.d_x = d_x_ + (run.x - this->x_);
        run.d_dt = d_dt_ + (run.dt - this->dt_);
        run.d_b = sums_of(task, false) + t * states;
        run.d_c = sums_of(task, true) + t * states;
        state_scan_parts<T>().backward(run);
      }
    }
  }

  /// The states before every run of steps.
  void keep_starts(const Block& block, Extent sequence, T* starts, Extent count) const {
    StateScanRun<T> run;
    this->set(run, block);
    std::copy_n(this->state_ + (sequence * this->channels() + block.first) * this->states_, count, starts);
    for (Extent t = 0; t + kStateSteps < this->steps_; t += kStateSteps, starts += count) {
      this->move(run, block, sequence, t);
      run.y = d_x_ + (run.x - this->x_);  // written anew on the way back
      run.state = std::copy_n(starts, count, starts + count) - count;
      state_scan_parts<T>().forward(run);
    }
  }

  /// The parts of a group's channels, in order.
  void add_parts(Extent sequence_and_group) {
    const Extent sequence = sequence_and_group / this->groups_, group = sequence_and_group % this->groups_;
    for (const bool of_c : {false, true}) {
      T* const to = of_c ? d_c_ : d_b_;
      for (Extent t = 0; t < this->steps_; ++t) {
        T* const row = to + ((sequence * this->steps_ + t) * this->groups_ + group) * this->states_;
        for (Extent part = 0; part < parts_; ++part) {
          const T* from = sums_of(sequence_and_group * parts_ + part, of_c) + t * this->states_;
          if (part == 0)
            std::copy_n(from, this->states_, row);
          else
            for (Extent n = 0; n < this->states_; ++n) row[n] += from[n];
        }
      }
    }
  }
  void add_sequences() {
    const Extent count = this->heads_ * rates_;
    std::fill_n(d_a_, count, T{0});
    for (Extent s = 0; s < this->batch_; ++s)
      for (Extent i = 0; i < count; ++i) d_a_[i] += rates_of_sequences_[static_cast<std::size_t>(s * count + i)];
  }

  const Extent rates_;  // of a head
  const Extent parts_;  // of the channels of a group
  const Extent tasks_;
  std::vector<T> sums_, rates_of_sequences_;
  const T *d_state_ = nullptr, *d_y_ = nullptr;
  T *d_x_ = nullptr, *d_dt_ = nullptr, *d_a_ = nullptr, *d_b_ = nullptr, *d_c_ = nullptr, *first_ = nullptr;
};

template <class T>
class StateConvolution final : public SequenceTasks {
 public:
  explicit StateConvolution(const kernel::CallKernel& kernel)
      : SequenceTasks(CacheCopy(kernel, 3, kernel::attributes_of<graph::StateConvolutionAttributes>(kernel).cached)),
        kernel_(kernel),
        cached_(kernel::attributes_of<graph::StateConvolutionAttributes>(kernel).cached),
        batch_(kernel.shapes[0][0]),
        steps_(kernel.shapes[0][1]),
        width_(kernel.shapes[0][2]),
        size_(kernel.shapes[1][1]),
        each_(std::clamp<Extent>(kStateTaskWork / std::max<Extent>(steps_ * size_, 1) / kColumns, 1, 16) * kColumns),
        parts_((width_ + each_ - 1) / each_) {}

  void bind(const Memory& memory) override {
    const auto read = [&](std::size_t i) { return memory.at(kernel_.reads[i]); };
    x_ = reinterpret_cast<const T*>(read(0));
    weight_ = reinterpret_cast<const T*>(read(1));
    bias_ = reinterpret_cast<const T*>(read(2));
    before_ = reinterpret_cast<const T*>(read(3));
    after_ = reinterpret_cast<T*>(memory.at(kernel_.outs[0]));
    y_ = reinterpret_cast<T*>(memory.at(kernel_.outs[1]));
    copy_.bind(memory);
    if (!cached_) return;
    rows_.bind(kernel_, memory, 3);
    count_ = reinterpret_cast<const std::int32_t*>(read(6));
  }
  std::string to_string() const override { return call_text(kernel_); }

 private:
  static constexpr Extent kColumns = 64;  // neighbouring channels that a row of x is read for

  Extent count() const override { return batch_ * parts_; }
  void run_part(Extent task) override {
    const Extent sequence = task / parts_, first = task % parts_ * each_, end = std::min(width_, first + each_),
                 kept = size_ - 1, row = rows_.row(sequence);
    const T* const x = x_ + sequence * steps_ * width_;
    const bool has_state = rows_.has_state(sequence);
    std::vector<T> earlier(static_cast<std::size_t>(kept * kColumns)),
        weights(static_cast<std::size_t>(size_ * kColumns));
    std::vector<const T*> rows(static_cast<std::size_t>(kept + steps_));
    for (Extent from = first; from < end; from += kColumns) {
      const Extent count = std::min(kColumns, end - from);
      for (Extent k = 0; k < size_; ++k)
        for (Extent j = 0; j < count; ++j)
          weights[static_cast<std::size_t>(k * count + j)] = weight_[(from + j) * size_ + k];
      // The state is copied, because it may be written in place.
      for (Extent k = 0; k < kept; ++k) {
        T* const copy = earlier.data() + k * count;
        if (has_state)
          std::copy_n(before_ + (row * kept + k) * width_ + from, count, copy);
        else
          std::fill_n(copy, count, T{0});
        rows[static_cast<std::size_t>(k)] = copy;
      }
      for (Extent t = 0; t < steps_; ++t) rows[static_cast<std::size_t>(kept + t)] = x + t * width_ + from;
      state_scan_parts<T>().convolve(rows.data(), steps_, size_, count, weights.data(), bias_ + from,
                                     y_ + sequence * steps_ * width_ + from, width_);
      if (row < 0) continue;
      const Extent counted = count_ ? std::clamp<Extent>(*count_, 0, steps_) : steps_;
      for (Extent k = 0; k < kept; ++k)
        std::copy_n(rows[static_cast<std::size_t>(counted + k)], count, after_ + (row * kept + k) * width_ + from);
    }
  }

  const kernel::CallKernel kernel_;
  const bool cached_;
  const Extent batch_, steps_, width_, size_, each_, parts_;  // channels of a task, tasks of a sequence
  SequenceRows rows_;
  const std::int32_t* count_ = nullptr;
  const T *x_ = nullptr, *weight_ = nullptr, *bias_ = nullptr, *before_ = nullptr;
  T *after_ = nullptr, *y_ = nullptr;
};

}  // namespace

std::unique_ptr<Prepared> prepare_state_scan(const kernel::CallKernel& kernel) {
  return prepare_for_type<StateScanForward>(kernel);
}
std::unique_ptr<Prepared> prepare_state_scan_backward(const kernel::CallKernel& kernel) {
  return prepare_for_type<StateScanBackward>(kernel);
}
std::unique_ptr<Prepared> prepare_state_convolution(const kernel::CallKernel& kernel) {
  return prepare_for_type<StateConvolution>(kernel);
}

}  // namespace weft::cpu
