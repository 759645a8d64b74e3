// Constants that are a part of a tensor in a file: gates and ups of experts that take turns in one tensor, the products for keys
// and those for values that lie head by head in another.
#pragma once

#include <string>
#include <vector>

#include "io/tensor_source.hpp"
#include "weft/shape.hpp"

namespace weft::llm {

/// Some rows, or some columns, of every group of a tensor that is seen as [groups, rows, columns].
struct Cut {
  Shape file;  // the tensor's own shape
  Extent groups = 1, rows = 1, columns = 1;
  bool of_columns = false;
  Extent begin = 0, step = 1, count = 0;  // of rows, or of columns
  bool transposed = false;                // the constant has the columns of the part as its rows

  bool operator==(const Cut&) const = default;
  Extent part_rows() const { return of_columns ? rows : count; }
  Extent part_columns() const { return of_columns ? count : columns; }
  /// Elements of the part of a group, and the place of the i-th of them in the group.
  Extent numel() const { return part_rows() * part_columns(); }
  Extent place(Extent i) const;
};

/// The part of groups [first, first + count) as a tensor of that shape, which is made when its data is asked for. Blocks are not
/// unpacked: rows of whole blocks are copied. FileError if a part divides blocks.
io::SourceTensor cut_from(const io::SourceTensor& whole, const Cut& cut, Extent first, Extent count, Shape shape);

}  // namespace weft::llm
