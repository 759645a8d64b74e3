// Making tensors: ranges, diagonals, windows of signals.
// Errors  ShapeError for a negative extent
#pragma once

#include <optional>

#include "weft/ops.hpp"

namespace weft {

/// start, start + step, ... before stop. Without a dtype i32 where all three are whole numbers, else f32.
/// Errors    UsageError for a step of 0, or numbers that are not finite
[[nodiscard]] Tensor arange(double start, double stop, double step = 1, std::optional<DType> type = {},
                            Device device = default_device());
/// `count` numbers from start to stop, both included, at equal distances.
[[nodiscard]] Tensor linspace(double start, double stop, Extent count, DType type = DType::f32,
                              Device device = default_device());
/// base^e for the e of linspace.
[[nodiscard]] Tensor logspace(double start, double stop, Extent count, double base = 10, DType type = DType::f32,
                              Device device = default_device());
/// 1 on the diagonal, 0 elsewhere. Columns -1: as many as rows.
[[nodiscard]] Tensor eye(Extent rows, Extent columns = -1, DType type = DType::f32, Device device = default_device());
/// Rows and columns of the elements of a lower (upper) triangle, row by row; `offset` moves its edge to the right.
/// Shapes    -> [2, elements], i32
[[nodiscard]] Tensor tril_indices(Extent rows, Extent columns, Extent offset = 0, Device device = default_device());
[[nodiscard]] Tensor triu_indices(Extent rows, Extent columns, Extent offset = 0, Device device = default_device());
/// `value` in the shape, dtype and device of `like`.
[[nodiscard]] Tensor full_like(const Tensor& like, double value);

// Windows of n samples, with formulas of the sample's place i. `periodic` ones are for spectra: n samples of a window of n + 1.
// Other ones have n - 1 in the place of n. Of one sample: 1.

/// 0.5 - 0.5 cos(2 pi i / n).
[[nodiscard]] Tensor hann_window(Extent n, bool periodic = true, DType type = DType::f32,
                                 Device device = default_device());
/// 0.54 - 0.46 cos(2 pi i / n).
[[nodiscard]] Tensor hamming_window(Extent n, bool periodic = true, DType type = DType::f32,
                                    Device device = default_device());
/// 0.42 - 0.5 cos(2 pi i / n) + 0.08 cos(4 pi i / n).
[[nodiscard]] Tensor blackman_window(Extent n, bool periodic = true, DType type = DType::f32,
                                     Device device = default_device());
/// 1 - |2 i / n - 1|.
[[nodiscard]] Tensor bartlett_window(Extent n, bool periodic = true, DType type = DType::f32,
                                     Device device = default_device());
/// I0(beta sqrt(1 - (2 i / n - 1)^2)) / I0(beta), with the modified Bessel function of order 0.
/// Errors    UsageError for a beta that is negative or not finite
[[nodiscard]] Tensor kaiser_window(Extent n, bool periodic = true, double beta = 12, DType type = DType::f32,
                                   Device device = default_device());

}  // namespace weft
