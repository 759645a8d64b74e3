// What random programs must know of a row beside the table: whether its results jump, and whether they are exact.
#pragma once

#include <span>
#include <vector>

#include "graph/op.hpp"

namespace weft::test {

/// Results or gradients may jump where an input changes a little: such a row gets inputs that have the same bits everywhere.
bool may_jump(const graph::OpRow& row);
/// The results are some of the inputs' elements, or positions of such: same bits in, same bits out.
bool selects(const graph::OpRow& row);
/// Sums, differences and products only: exact for numbers of few bits.
bool is_exact_for_few_bits(const graph::OpRow& row);
/// Whether all numbers are multiples of a power of two, and small enough that sums of them in `type` are exact.
bool has_few_bits(std::span<const double> numbers, DType type);
/// An elementwise row that may jump does not do so near these columns of numbers, one for each operand.
bool is_smooth_near(const ops::ElementwiseRow& row, const std::vector<std::vector<double>>& columns);

/// The cases of a row that random programs choose from: its own small ones, or made-up ones if it has none that is small.
std::vector<graph::OpCase> drawn_cases(const graph::OpRow& row);

}  // namespace weft::test
