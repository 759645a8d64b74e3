// Slow references of products of groups of rows.
#pragma once

#include "compile/call_attributes.hpp"
#include "graph/grouped.hpp"
#include "reference/values.hpp"

namespace weft::reference {

/// The group of each of n rows: the first whose end, or one before it, is beyond the row; the number of groups if there is none.
inline std::vector<Extent> groups_of_rows(const kernel::CallKernel& k, Extent n, std::vector<Values>& buffers) {
  const Extent groups = k.shapes[2][0];
  std::vector<Extent> result;
  for (Extent r = 0; r < n; ++r) {
    Extent g = 0;
    while (g < groups && read(k.reads[2], g, buffers) <= static_cast<double>(r)) ++g;
    result.push_back(g);
  }
  return result;
}

inline void run_grouped_matmul(const kernel::CallKernel& k, std::vector<Values>& buffers) {
  const bool transposed = kernel::attributes_of<graph::GroupedAttributes>(k).transposed;
  const Extent n = k.shape()[0], m = k.shape()[1], depth = k.shapes[0][1], groups = k.shapes[2][0];
  const std::vector<Extent> group = groups_of_rows(k, n, buffers);
  for (Extent r = 0; r < n; ++r)
    for (Extent c = 0; c < m; ++c) {
      double sum = 0;
      const Extent g = group[static_cast<std::size_t>(r)];
      for (Extent i = 0; g < groups && i < depth; ++i) {
        const Extent at = transposed ? (g * m + c) * depth + i : (g * depth + i) * m + c;
        sum += read(k.reads[0], r * depth + i, buffers) * read(k.reads[1], at, buffers);
      }
      write(k.out(), r * m + c, to_type(sum, k.out().type), buffers);
    }
}

inline void run_grouped_outer(const kernel::CallKernel& k, std::vector<Values>& buffers) {
  const Extent groups = k.shape()[0], depth = k.shape()[1], m = k.shape()[2], n = k.shapes[0][0];
  const std::vector<Extent> group = groups_of_rows(k, n, buffers);
  for (Extent g = 0; g < groups; ++g)
    for (Extent i = 0; i < depth; ++i)
      for (Extent c = 0; c < m; ++c) {
        double sum = 0;
        for (Extent r = 0; r < n; ++r)
          if (group[static_cast<std::size_t>(r)] == g)
            sum += read(k.reads[0], r * depth + i, buffers) * read(k.reads[1], r * m + c, buffers);
        write(k.out(), (g * depth + i) * m + c, to_type(sum, k.out().type), buffers);
      }
}

}  // namespace weft::reference
