// Small products in the calling thread.
#include <algorithm>

#include "backend/cpu/gemm.hpp"
#include "backend/cpu/gemm_kernels.hpp"
#include "backend/cpu/gemm_split.hpp"

namespace weft::cpu {

using blocked::ceil_divide;
using std::int64_t;

template <class T>
SmallGemm<T>::SmallGemm(const GemmKernels<T>& kernels) : kernels_(&kernels), strip_(kernels.lanes * kGemmVectors) {}
template <class T>
SmallGemm<T>::SmallGemm() : SmallGemm(gemm_kernels_in_use<T>()) {}
template <class T>
std::optional<SmallGemm<T>> SmallGemm<T>::of_pairs() {
#if defined(__x86_64__)
  if constexpr (std::is_same_v<T, float>)
    if (isa() >= Isa::avx512_bf16) return SmallGemm(avx512::kGemmBf16);
#elif defined(__aarch64__)
  if constexpr (std::is_same_v<T, float>)
    if (isa() == Isa::neon_bf16) return SmallGemm(neon::kGemmBf16);
#endif
  return std::nullopt;
}

template <class T>
void SmallGemm<T>::pack_transposed(int64_t depth, int64_t columns, const T* from, int64_t row, T* to) const {
  for (int64_t j = 0; j < columns; j += strip_, to += strip_ * depth)
    kernels_->pack_transposed(depth, static_cast<int>(std::min(strip_, columns - j)), from + j * row, row, to,
                              static_cast<int>(strip_));
}

template <class T>
void SmallGemm<T>::multiply(int64_t m, int64_t n, int64_t k, const T* a, int64_t a_row, int64_t a_column, const T* b,
                            int64_t b_row, T* c, int64_t c_row, bool accumulate) const {
  run(m, n, k, a, a_row, a_column, b, b_row, strip_, c, c_row, accumulate);
}

template <class T>
void SmallGemm<T>::multiply_packed(int64_t m, int64_t n, int64_t k, const T* a, int64_t a_row, const T* b, T* c,
                                   int64_t c_row) const {
  run(m, n, k, a, a_row, 1, b, strip_, strip_ * k, c, c_row, false);
}

template <class T>
void SmallGemm<T>::run(int64_t m, int64_t n, int64_t k, const T* a, int64_t a_row, int64_t a_column, const T* b,
                       int64_t b_row, int64_t b_strip, T* c, int64_t c_row, bool accumulate) const {
  const int64_t panels = ceil_divide(m, kernels_->rows), lanes = kernels_->lanes;
  const auto& tiles = a_column == 1 ? kernels_->by_row : kernels_->by_depth;
  for (int64_t panel = 0; panel < panels; ++panel) {
    const int64_t begin = m * panel / panels, rows = m * (panel + 1) / panels - begin;
    for (int64_t j = 0, s = 0; j < n; j += strip_, s += b_strip) {
      const int64_t count = std::min(strip_, n - j), vectors = ceil_divide(count, lanes);
      const auto last = static_cast<int>(count - (vectors - 1) * lanes);
      tiles[last == lanes][rows - 1][vectors - 1](k, a + begin * a_row, a_column == 1 ? a_row : a_column, b + s, b_row,
                                                  c + begin * c_row + j, c_row, last, accumulate);
    }
  }
}

template class SmallGemm<float>;
template class SmallGemm<double>;

}  // namespace weft::cpu
