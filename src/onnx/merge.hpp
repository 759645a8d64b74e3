// From records of a function at several extents to one model.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "onnx/record.hpp"
#include "onnx/trace_points.hpp"
#include "onnx/writer.hpp"

namespace weft::onnx {

/// An extent that may change, and an input that tells it.
struct Symbol {
  std::string name, input;
  int axis = 0;
};

/// Whether the records have the same steps but for numbers.
bool has_same_steps(const Record& a, const Record& b);

/// Adds the quotients that the records declare and the points do not know. Whether there are any: then the points may be too few
/// to tell them apart.
bool find_quotients(std::span<const Record> records, TracePoints& points);

/// Writes the steps, which are the same in all records but for numbers. Numbers that differ are computed from the symbols.
/// Without symbols there is one record.
/// Errors  UsageError: the records have different steps, or numbers that are no polynomials of the symbols; the message names
///         the op and the user's line.
void write_records(std::span<const Record> records, const TracePoints& points, std::span<const Symbol> symbols,
                   GraphWriter& writer);

/// A shape that a model declares, with these extents at the points: numbers, names, or neither where no polynomial fits.
std::vector<GraphWriter::Dim> declared(std::span<const Shape> shapes, const TracePoints& points,
                                       std::span<const Symbol> symbols);

}  // namespace weft::onnx
