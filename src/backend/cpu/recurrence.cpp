#include "backend/cpu/recurrence.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "backend/cpu/gemm.hpp"
#include "backend/cpu/loop/tile.hpp"
#include "base/threads.hpp"
#include "compile/call_attributes.hpp"
#include "graph/recurrence.hpp"
#include "weft/error.hpp"

namespace weft::cpu {
namespace {

using graph::RecurrenceAttributes;
using graph::RecurrentCell;

// Sequences of a task: enough rows for the tiles of a product, and at least two tasks.
Extent tasks_of(Extent sequences) {
  return sequences < 8 ? std::min<Extent>(sequences, 1) : std::clamp<Extent>(sequences / 16, 2, sequences);
}

template <class T>
class Cells {
 public:
  Cells(const kernel::CallKernel& kernel, std::span<char* const> reads, const Shape& states)
      : a_(kernel::attributes_of<RecurrenceAttributes>(kernel)),
        reads_(reads),
        parts_(recurrent_parts<T>()),
        steps_(states[0]),
        sequences_(states[1]),
        width_(states[2]),
        rows_(graph::gates_of(a_.cell) * states[2]) {}

 protected:
  const T* next(bool given = true) { return given ? reinterpret_cast<const T*>(reads_[at_++]) : nullptr; }
  bool is_lstm() const { return a_.cell == RecurrentCell::lstm; }
  bool is_gru() const { return a_.cell == RecurrentCell::gru; }
  bool is_relu() const { return a_.cell == RecurrentCell::relu_rnn; }
  Extent step(Extent i) const { return a_.reverse ? steps_ - 1 - i : i; }
  /// Row n of step t of an array with rows of `columns`.
  Extent at(Extent t, Extent n, Extent columns) const { return (t * sequences_ + n) * columns; }
  bool has_step(Extent t, Extent n) const { return !lengths_ || t < lengths_[n]; }

  template <class Run>
  void each_task(Run run) const {
    const Extent tasks = tasks_of(sequences_);
    parallel_for(tasks, [&](Extent task) { run(task * sequences_ / tasks, (task + 1) * sequences_ / tasks); });
  }

  const RecurrenceAttributes a_;
  std::span<char* const> reads_;
  std::size_t at_ = 0;
  const RecurrentParts<T>& parts_;
  const SmallGemm<T> gemm_;
  const Extent steps_, sequences_, width_, rows_;
  const std::int32_t* lengths_ = nullptr;
};

template <class T>
class Forward : Cells<T> {
  using Base = Cells<T>;

 public:
  Forward(const kernel::CallKernel& kernel, std::span<char* const> reads, std::span<char* const> outs)
      : Base(kernel, reads, kernel.out_shapes[0]) {
    gates_ = this->next();
    h_ = this->next();
    c_ = this->next(this->is_lstm());
    weight_ = this->next();
    bias_ = this->next(this->a_.bias);
    this->lengths_ = reinterpret_cast<const std::int32_t*>(this->next(this->a_.lengths));
    all_h_ = reinterpret_cast<T*>(outs[0]);
    if (this->is_lstm()) all_c_ = reinterpret_cast<T*>(outs[1]);
    if (outs.size() > 1) saved_ = reinterpret_cast<T*>(outs.back());
  }

  void run() {
    std::vector<T> packed(static_cast<std::size_t>(this->gemm_.packed_size(this->width_, this->rows_)));
    this->gemm_.pack_transposed(this->width_, this->rows_, weight_, this->width_, packed.data());
    this->each_task([&](Extent first, Extent last) { sequences(first, last, packed.data()); });
  }

 private:
  void sequences(Extent first, Extent last, const T* packed) const {
    const Extent width = this->width_, rows = this->rows_;
    std::vector<T> products(static_cast<std::size_t>((last - first) * rows));
    for (Extent i = 0; i < this->steps_; ++i) {
      const Extent t = this->step(i);
      const T* h_before = i == 0 ? h_ : all_h_ + this->at(this->step(i - 1), 0, width);
      const T* c_before = i == 0 || !c_ ? c_ : all_c_ + this->at(this->step(i - 1), 0, width);
      this->gemm_.multiply_packed(last - first, rows, width, h_before + first * width, width, packed, products.data(),
                                  rows);
      for (Extent n = first; n < last; ++n) {
        const T *x = gates_ + this->at(t, n, rows), *product = products.data() + (n - first) * rows;
        T* h = all_h_ + this->at(t, n, width);
        T* saved = saved_ ? saved_ + this->at(t, n, 4 * width) : nullptr;
        T* c = all_c_ ? all_c_ + this->at(t, n, width) : nullptr;
        if (!this->has_step(t, n)) {
          std::copy_n(h_before + n * width, width, h);
          if (c) std::copy_n(c_before + n * width, width, c);
          if (saved) std::fill_n(saved, 4 * width, T{0});
        } else if (this->is_lstm()) {
          this->parts_.lstm(width, x, product, c_before + n * width, saved, c, h);
        } else if (this->is_gru()) {
          this->parts_.gru(width, x, product, bias_, h_before + n * width, saved, h);
        } else {
          this->parts_.rnn(width, this->is_relu(), x, product, h);
        }
      }
    }
  }

  const T *gates_, *h_, *c_, *weight_, *bias_;
  T *all_h_, *all_c_ = nullptr, *saved_ = nullptr;
};

template <class T>
class Backward : Cells<T> {
  using Base = Cells<T>;

 public:
  Backward(const kernel::CallKernel& kernel, std::span<char* const> reads, std::span<char* const> outs)
      : Base(kernel, reads, kernel.shapes[0]) {
    all_h_ = this->next();
    all_c_ = this->next(this->is_lstm());
    saved_ = this->next(this->is_lstm() || this->is_gru());
    h_ = this->next();
    c_ = this->next(this->is_lstm());
    weight_ = this->next();
    this->lengths_ = reinterpret_cast<const std::int32_t*>(this->next(this->a_.lengths));
    d_h_ = this->next();
    d_c_ = this->next(this->a_.d_c);
    d_gates_ = reinterpret_cast<T*>(outs[0]);
    first_d_h_ = reinterpret_cast<T*>(outs[1]);
    if (this->is_gru()) d_products_ = reinterpret_cast<T*>(outs[2]);
    if (this->is_lstm()) first_d_c_ = reinterpret_cast<T*>(outs[2]);
  }

  void run() {
    // The product is with the weight itself, and packing wants its transpose.
    const Extent width = this->width_, rows = this->rows_;
    std::vector<T> turned(static_cast<std::size_t>(rows * width));
    for (Extent k = 0; k < rows; ++k)
      for (Extent j = 0; j < width; ++j) turned[static_cast<std::size_t>(j * rows + k)] = weight_[k * width + j];
    std::vector<T> packed(static_cast<std::size_t>(this->gemm_.packed_size(rows, width)));
    this->gemm_.pack_transposed(rows, width, turned.data(), rows, packed.data());
    this->each_task([&](Extent first, Extent last) { sequences(first, last, packed.data()); });
  }

 private:
  void sequences(Extent first, Extent last, const T* packed) const {
    const Extent width = this->width_, rows = this->rows_, count = last - first;
    // The gradient of h that comes from the step after, and of c; the latter is complete at the end.
    std::vector<T> carry(static_cast<std::size_t>(count * width), T{0}), product(carry);
    std::vector<T> carry_c(this->is_lstm() ? carry.size() : 0, T{0});
    for (Extent i = this->steps_; i-- > 0;) {
      const Extent t = this->step(i);
      const T* h_before = i == 0 ? h_ : all_h_ + this->at(this->step(i - 1), 0, width);
      const T* c_before = i == 0 || !c_ ? c_ : all_c_ + this->at(this->step(i - 1), 0, width);
      for (Extent n = first; n < last; ++n) {
        T* of_h = carry.data() + (n - first) * width;
        T* of_c = this->is_lstm() ? carry_c.data() + (n - first) * width : nullptr;
        const T* d_h = d_h_ + this->at(t, n, width);
        T* d_gates = d_gates_ + this->at(t, n, rows);
        T* d_products = d_products_ ? d_products_ + this->at(t, n, rows) : nullptr;
        if (d_c_)
          for (Extent j = 0; j < width; ++j) of_c[j] += d_c_[this->at(t, n, width) + j];
        if (!this->has_step(t, n)) {
          std::fill_n(d_gates, rows, T{0});
          if (d_products) std::fill_n(d_products, rows, T{0});
          for (Extent j = 0; j < width; ++j) of_h[j] += d_h[j];
          continue;
        }
        const T* saved = saved_ ? saved_ + this->at(t, n, 4 * width) : nullptr;
        if (this->is_lstm())
          this->parts_.lstm_back(width, saved, all_c_ + this->at(t, n, width), c_before + n * width, d_h, of_h, of_c,
                                 d_gates);
        else if (this->is_gru())
          this->parts_.gru_back(width, saved, h_before + n * width, d_h, of_h, d_gates, d_products);
        else
          this->parts_.rnn_back(width, this->is_relu(), all_h_ + this->at(t, n, width), d_h, of_h, d_gates);
      }
      const T* from = (d_products_ ? d_products_ : d_gates_) + this->at(t, first, rows);
      this->gemm_.multiply_packed(count, width, rows, from, rows, packed, product.data(), width);
      for (Extent n = first; n < last; ++n) {
        T* of_h = carry.data() + (n - first) * width;
        const T* more = product.data() + (n - first) * width;
        const bool adds = this->is_gru() || !this->has_step(t, n);  // to what goes past the gates
        if (adds)
          for (Extent j = 0; j < width; ++j) of_h[j] += more[j];
        else
          std::copy_n(more, width, of_h);
      }
    }
    std::copy(carry.begin(), carry.end(), first_d_h_ + first * width);
    if (first_d_c_) std::copy(carry_c.begin(), carry_c.end(), first_d_c_ + first * width);
  }

  const T *all_h_, *all_c_, *saved_, *h_, *c_, *weight_, *d_h_, *d_c_;
  T *d_gates_, *first_d_h_, *d_products_ = nullptr, *first_d_c_ = nullptr;
};

template <template <class> class Pass>
void run_pass(const kernel::CallKernel& kernel, std::span<char* const> reads, std::span<char* const> outs) {
  if (kernel.types[0] == DType::f32)
    Pass<float>(kernel, reads, outs).run();
  else if (kernel.types[0] == DType::f64)
    Pass<double>(kernel, reads, outs).run();
  else
    throw DTypeError(fmt::format("{}: there is no kernel for {}; cast to f32", kernel.name, name_of(kernel.types[0])));
}

}  // namespace

void run_recurrence(const kernel::CallKernel& kernel, std::span<char* const> reads, std::span<char* const> outs) {
  run_pass<Forward>(kernel, reads, outs);
}
void run_recurrence_backward(const kernel::CallKernel& kernel, std::span<char* const> reads,
                             std::span<char* const> outs) {
  run_pass<Backward>(kernel, reads, outs);
}

}  // namespace weft::cpu
