// How the constants of a model are carried from one kind of file to the other: what each tensor that is written is made of.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "llm/convert.hpp"
#include "llm/ir.hpp"
#include "llm/weights.hpp"

namespace weft::llm {

/// How a kind of file writes a constant.
struct Layout {
  double offset = 0;  // is added when the model runs
  Extent heads = 0;   // of rows that turn with the position
  bool neighbours = false;
  Extent rows = 1;      // of norms of groups of channels: the groups
  bool is_log = false;  // of rates of states: r, where the scan takes -exp(r)
};

/// How a graph's kind of file writes its constants, by their names; those that are missing are written as they are.
std::unordered_map<std::string, Layout> layouts_of(const ModelGraph& graph);

/// Rows of a constant, and what they are multiplied with on the way.
struct RowFactor {
  Extent rows = 0;
  double factor = 1;
};

/// A constant during its conversion.
struct Move {
  std::string name;
  std::vector<const io::SourceTensor*> from;
  std::vector<std::string> to;
  Shape shape;  // as the graph has it; of the first of several axes, the experts
  bool from_transposed = false, to_transposed = false;
  std::optional<Cut> to_cut;  // of the tensor that all of `to` name
  Layout from_layout, to_layout;
  BlockType type = BlockType::f32;
  bool is_bias = false;
  bool is_exact = false;                // never rounded on the way to a GGUF file
  std::vector<RowFactor> factors = {};  // of its rows, one behind the other; empty: none

  bool turns_rows() const { return from_layout.heads > 0 && from_layout.neighbours != to_layout.neighbours; }
};

/// A tensor that is written: a part of one constant, or several constants that are parts of it.
struct Output {
  std::string name;
  Shape shape;
  BlockType type;
  const Move* move = nullptr;
  std::size_t part = 0;
  std::vector<const Move*> cuts = {};
};

/// The constants of both graphs. The parts of tensors that they name live in `names`.
std::vector<Move> moves_of(const ModelGraph& from, const ModelGraph& to, const TensorNames& names,
                           const ConvertOptions& options);
/// The tensors to write, which refer to the moves.
std::vector<Output> outputs_of(const std::vector<Move>& moves);

/// Gives the data of the tensor to `sink`, in pieces; returns the bytes that were read for it. FileError for values that the type
/// does not hold.
std::uint64_t write_output(const Output& output, const io::TensorSource& source, Extent rope_dims,
                           const std::function<void(std::span<const std::byte>)>& sink);

}  // namespace weft::llm
