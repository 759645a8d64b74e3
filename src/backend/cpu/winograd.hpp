// Convolutions of 3 x 3 windows, one beside the other, by Winograd's F(2 x 2, 3 x 3) (Lavin and Gray 2016, arXiv:1509.09308):
// 16 multiplications for four results, which need 36 one by one.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "backend/cpu/gemm.hpp"
#include "backend/cpu/gemm_kernels.hpp"
#include "backend/cpu/window_weights.hpp"

namespace weft::cpu {

/// Y = A^T [sum over channels of (G g G^T) * (B^T d B)] A for each tile d of 4 x 4 elements, which gives 2 x 2 results. At each
/// of the 16 places the sum over channels is a product of matrices. Going back to the weights it is a sum over tiles:
/// dg = G^T [sum of (A dY A^T) * (B^T d B)] G.
///
/// Numbers   sums in f32; the error of a result is at most that of its tile: of the order of 2^-24 of the sum of the magnitudes
///           in all of the tile. All numbers must be finite, which `run` checks.
class Winograd {
 public:
  /// An axis of the image: windows begin at coordinates `start` and following ones, and elements outside [lo, hi) are 0.
  struct Axis {
    std::int64_t windows, start, lo, hi;
    std::int64_t tiles() const { return (windows + kWinogradResults - 1) / kWinogradResults; }
  };
  /// Element (c, y, x) of image i is at data[at[i] + c * channel + y * row + x], if coordinates start + y and start + x are
  /// inside their axes.
  struct Image {
    const float* data;
    std::vector<std::int64_t> at;
    std::int64_t channels, channel, row;
    Axis y, x;
    std::int64_t tiles() const { return static_cast<std::int64_t>(at.size()) * y.tiles() * x.tiles(); }
  };

  /// C[m, windows] of each image = A[m, (channel, y, x)] times the windows, or, if `is_gradient`, C[m, (channel, y, x)] =
  /// A[m, (image, window)] times the windows. Empty if A is not stored as that needs, or if the transforms would cost more than
  /// the multiplications that they save. `after_block` of a gradient is the caller's.
  static std::optional<Winograd> of(const GemmArgs<float>& args, const GemmKernels<float>& kernels, Image image,
                                    bool is_gradient);

  /// Does nothing, and returns false, if a number is not finite.
  bool run() const { return is_gradient_ ? run_gradient() : run_forward(); }

 private:
  struct Range {
    std::int64_t begin, end;
    std::int64_t size() const { return end - begin; }
  };
  /// Tiles side by side: `first` of the tiles of a block is the first of them.
  struct Segment {
    std::int64_t image, y, x, tiles, first;
  };
  struct Block {
    std::vector<Segment> segments;
    std::int64_t tiles;
  };
  /// Where transformed tiles are: channel c of tile t at c % width + c / width * strip + t * tile, and its places further on.
  struct Layout {
    std::int64_t tile, place, strip;
  };

  Winograd(const GemmArgs<float>& args, const GemmKernels<float>& kernels, Image image, bool is_gradient)
      : args_(args), kernels_(kernels), image_(std::move(image)), is_gradient_(is_gradient) {}
  bool describe_gradient();
  bool pays() const;

  std::int64_t width() const { return kGemmVectors * kernels_.lanes; }
  std::int64_t strips_of(std::int64_t channels) const { return (channels + width() - 1) / width(); }
  std::int64_t vectors_of(std::int64_t channels) const { return (channels + kernels_.lanes - 1) / kernels_.lanes; }
  float* place_of(std::int64_t vector, Layout layout, float* to) const {
    return to + vector / kGemmVectors * layout.strip + vector % kGemmVectors * kernels_.lanes;
  }
  std::vector<Block> blocks_of(std::int64_t tiles) const;
  bool is_finite() const;
  void read_row(std::int64_t image, std::int64_t y, std::int64_t x, std::int64_t count, std::int64_t vector,
                float* to) const;
  void transform_image(const Block& block, std::int64_t vector, Layout layout, float* to) const;
  void transform_gradient(const Block& block, std::int64_t vector, Layout layout, float* to) const;

  bool run_forward() const;
  std::int64_t weight_place() const { return image_.channels * width() + kernels_.lanes; }
  bool transform_weights(const WindowWeights& given, std::int64_t strip, Range channels, float* to) const;
  void multiply(const Block& block, Range strips, Layout layout, const float* images, const float* weights) const;
  void store(const Block& block, std::int64_t strip, const float* sums, std::int64_t place) const;

  bool run_gradient() const;
  void store_weights(std::int64_t strip, std::int64_t of_image, const float* sums) const;

  const GemmArgs<float>& args_;
  const GemmKernels<float>& kernels_;
  const Image image_;
  const bool is_gradient_;
  // The gradient of the results: where its first image, the channels of an image, and its images are.
  std::int64_t a_offset_ = 0, a_row_ = 0;
  std::vector<std::int64_t> a_images_;
};

}  // namespace weft::cpu
