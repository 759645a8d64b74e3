// Products with windows of an image: a convolution, and the gradient of its weights. The windows are read where they are, and
// not packed.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "backend/cpu/gemm.hpp"
#include "backend/cpu/gemm_kernels.hpp"
#include "backend/cpu/window_weights.hpp"
#include "backend/cpu/winograd.hpp"

namespace weft::cpu {

/// C[m, n] = A[m, k] W[k, n], where W holds windows: one of k and n counts the positions of the windows, the other the elements
/// of a window. Both are coordinates of an image, so that the element's place is a sum of two numbers, and a kernel needs no
/// more than a table of them.
///
/// A kernel goes along runs of elements: the channels of an element of the window, if there are many, or its neighbours along x;
/// in a gradient, neighbouring positions. A block of the image is copied, with zeros where windows reach into padding, and with
/// the channels of a place side by side if runs are along them. The copy fits the L2 cache: it holds each element once, where
/// 3 x 3 windows would hold it nine times. Other windows without padding are read from the image itself. Where it takes fewer
/// multiplications, and all numbers are finite, the product is that of `Winograd`.
class WindowProduct {
 public:
  /// Empty if W is not such windows, or the product is too small or too narrow to gain.
  static std::optional<WindowProduct> of(const GemmArgs<float>& args, const GemmKernels<float>& kernels);

  void run() const;

 private:
  /// A coordinate of k or n. An image's axis that may be padded has a number; others have -1.
  struct Dim {
    std::int64_t extent, stride;  // in memory
    int axis = -1;
    std::int64_t step = 0;    // along the axis
    std::int64_t staged = 0;  // stride in the copy
  };
  /// An axis of the image that may be padded: coordinate v is at v * stride, from lo to hi.
  struct Axis {
    std::int64_t stride = 0, lo = 0, hi = 0;
    std::int64_t start = 0;             // the first position's coordinate of the first element
    std::int64_t before = 0, size = 0;  // of a block: coordinates before that of the first position, and all
    std::int64_t pitch = 0;             // stride in the copy
  };
  /// Positions that are computed together: an image (or a part of one) by a band of rows.
  struct Block {
    std::int64_t batch, outer, y, rows;
  };
  /// Windows that reach into the padding of the first and last rows need only a part of their elements.
  struct Range {
    std::int64_t begin, end;
    bool operator==(const Range&) const = default;
  };

  WindowProduct(const GemmArgs<float>& args, const GemmKernels<float>& kernels) : args_(args), kernels_(kernels) {}
  bool describe();
  void add_axes();
  bool lay_out();

  std::int64_t width() const { return kGemmVectors * kernels_.lanes; }
  std::int64_t strips() const { return (args_.m + width() - 1) / width(); }
  const Dim& x() const { return positions_.back(); }
  /// The rows of positions: one if there is a single coordinate.
  Dim y() const { return positions_.size() > 1 ? positions_[positions_.size() - 2] : Dim{1, 0}; }
  Block block(std::int64_t i) const;
  std::int64_t in_memory(const Block& block) const;
  std::int64_t coordinate(int axis, const Block& block) const;
  void stage(const Block& block, Range channels, float* to) const;
  void stage_channels_last(const Block& block, float* to) const;
  void copy_block(const Block& block, float* to) const;
  /// The first element of the first window of a block that was copied to `copy`.
  const float* start_of(const Block& block, const float* copy) const;
  Range elements_inside(std::int64_t position) const;
  void pack_a(std::int64_t strip, Range depth, float* to) const;
  /// Positions of a block that are rows of a tile, and which of the lists of runs they need.
  struct Panel {
    std::int64_t begin, end;
    std::size_t runs;
  };
  /// What all tasks of a convolution share.
  struct Convolution {
    std::vector<std::int32_t> places;        // of the positions of a block
    std::vector<std::vector<Panel>> panels;  // of each band
    std::vector<Range> parts;                // of the elements that lie inside the image,
    std::vector<std::vector<GemmRun>> runs;  // and the runs of each
    const float* packed = nullptr;           // A, unless each task packs its strips
    const float* copies = nullptr;           // of all blocks, if each is read by several tasks
  };
  std::vector<GemmRun> runs_within(Range part) const;
  Convolution plan() const;
  std::int64_t channels_of_chunk() const;
  void pack_chunk(const WindowWeights& weights, std::int64_t strip, Range channels, float* to) const;
  void pack_weights(float* to) const;
  const float* packed_strip(std::int64_t strip, const Convolution& shared) const;
  void run_convolution() const;
  void convolve(Range blocks, Range strips, const Convolution& shared) const;
  void run_gradient() const;
  std::optional<Winograd> winograd() const;

  const GemmArgs<float>& args_;
  const GemmKernels<float>& kernels_;
  bool positions_are_k_ = false;           // a gradient: it sums over positions
  std::vector<Dim> positions_, elements_;  // of windows, outermost first
  std::vector<Axis> axes_;
  std::int64_t offset_ = 0;  // of the first element of the first window
  std::int64_t channels_ = 1, channel_pitch_ = 0, copy_size_ = 0;
  bool channels_last_ = false;  // in the copy
  std::size_t inner_ = 0;       // the element's coordinate that runs go along
  std::int64_t bands_ = 1, band_rows_ = 1, outer_ = 1;
  int row_part_ = -1;  // the coordinate of a window along y, if there is one; its elements may lie outside
};

}  // namespace weft::cpu
