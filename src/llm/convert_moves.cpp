#include "llm/convert_moves.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "llm/convert_values.hpp"
#include "weft/error.hpp"

namespace weft::llm {
namespace {

using Sink = std::function<void(std::span<const std::byte>)>;

BlockType type_of(const Move& move, const ConvertOptions& options, bool to_gguf) {
  const auto type = move.from[0]->type;
  // Experts in MXFP4 stay as they are: that is the type that they were trained in.
  if (to_gguf && !options.type && move.shape.rank() == 3 && type == BlockType::mxfp4) return BlockType::mxfp4;
  const bool is_vector = move.to_cut ? move.to_cut->file.rank() == 1 : move.shape.rank() == 1;
  if (to_gguf && (is_vector || move.is_bias || move.is_exact)) return BlockType::f32;
  if (options.type) return *options.type;
  return type == BlockType::f16 || type == BlockType::bf16 ? *type : BlockType::f32;
}

std::vector<float> transposed(const std::vector<float>& values, std::size_t rows, std::size_t columns) {
  std::vector<float> turned(values.size());
  for (std::size_t r = 0; r < rows; ++r)
    for (std::size_t c = 0; c < columns; ++c) turned[c * rows + r] = values[r * columns + c];
  return turned;
}

/// The values of one of the tensors that are written.
std::vector<float> values_of(const io::TensorSource& source, const Move& move, std::size_t part, Extent rope_dims) {
  std::vector<float> values;
  const auto append = [&](const io::SourceTensor& given) {
    const io::LoadedTensor whole = io::TensorSource::loaded(given);
    source.require_finite(whole.tensor);
    const std::size_t before = values.size();
    values.resize(before + static_cast<std::size_t>(given.shape.numel()));
    source.read_f32(whole.tensor, std::span(values).subspan(before));
  };
  if (move.from.size() == 1 && move.to.size() > 1) {
    const io::LoadedTensor whole = io::TensorSource::loaded(*move.from[0]);
    io::SourceTensor slice = whole.tensor;
    const std::size_t bytes = slice.data.size() / move.to.size();
    slice.data = slice.data.subspan(part * bytes, bytes);
    slice.shape = Shape(std::vector<Extent>(slice.shape.begin() + 1, slice.shape.end()));
    append(slice);
  } else if (move.from.size() > 1 && move.to.size() == 1) {
    for (const io::SourceTensor* tensor : move.from) append(*tensor);
  } else {
    append(*move.from[part]);
  }
  std::size_t row = 0;
  for (const RowFactor& each : move.factors) {
    const std::size_t width = values.size() / static_cast<std::size_t>(move.shape[0]);
    for (std::size_t i = row * width; i < (row + static_cast<std::size_t>(each.rows)) * width; ++i)
      values[i] = static_cast<float>(each.factor * double{values[i]});
    row += static_cast<std::size_t>(each.rows);
  }
  if (const double add = move.from_layout.offset - move.to_layout.offset; add != 0)
    for (float& value : values) value = static_cast<float>(value + add);
  if (move.from_layout.is_log != move.to_layout.is_log)
    for (float& value : values)
      value = static_cast<float>(move.to_layout.is_log ? std::log(-double{value}) : -std::exp(double{value}));
  if (move.turns_rows())
    values = with_rows_turned(values, move.from_layout.heads, rope_dims,
                              move.shape.rank() > 1 ? static_cast<std::size_t>(move.shape[1]) : 1,
                              move.to_layout.neighbours);
  if (move.from_transposed != move.to_transposed) {
    const auto rows = static_cast<std::size_t>(move.shape[0]), columns = static_cast<std::size_t>(move.shape[1]);
    values = move.from_transposed ? transposed(values, columns, rows) : transposed(values, rows, columns);
  }
  return values;
}

Shape shape_of_part(const Move& move) {
  Shape shape = move.shape;
  if (move.to.size() > 1) shape = Shape(std::vector<Extent>(shape.begin() + 1, shape.end()));
  if (move.to_transposed) std::swap(shape[0], shape[1]);
  return shape;
}

/// A tensor that several constants are parts of, group by group.
void put_cuts(const Output& output, const io::TensorSource& source, Extent rope_dims, const Sink& sink) {
  const Cut& shape = *output.cuts.front()->to_cut;
  std::vector<std::vector<float>> whole(output.cuts.size());  // of constants that are not made by groups
  for (Extent group = 0; group < shape.groups; ++group) {
    std::vector<float> values(static_cast<std::size_t>(shape.rows * shape.columns));
    for (std::size_t i = 0; i < output.cuts.size(); ++i) {
      const Move& move = *output.cuts[i];
      const bool by_group = move.to.size() > 1;
      if (by_group || group == 0)
        whole[i] = values_of(source, move, by_group ? static_cast<std::size_t>(group) : 0, rope_dims);
      const Cut& cut = *move.to_cut;
      const float* from = whole[i].data() + (by_group ? 0 : group * cut.numel());
      for (Extent e = 0; e < cut.numel(); ++e) values[static_cast<std::size_t>(cut.place(e))] = from[e];
    }
    put_as(output.type, values, source, output.name, sink);
  }
}

}  // namespace

std::unordered_map<std::string, Layout> layouts_of(const ModelGraph& graph) {
  std::unordered_map<std::string, const OpNode*> makers;
  std::unordered_map<std::string, Layout> layouts;
  for (const OpNode& node : graph.nodes) {
    makers[node.output] = &node;
    if (node.op == OpType::rms_norm) {
      Layout& norm = layouts[node.inputs[1]];
      norm.offset = node.real("weight_offset");
      norm.rows = graph.at(node.inputs[1]).shape[0].value / node.integer("width");
    }
    const bool is_scan = node.op == OpType::selective_scan || node.op == OpType::state_space_scan;
    if (is_scan) layouts[node.inputs[2]].is_log = node.integer("log") != 0;
    if (node.op == OpType::delta_scan) layouts[node.inputs[4]].is_log = node.integer("log") != 0;
    if (node.op != OpType::rope) continue;
    const OpNode& maker = *makers.at(node.inputs[0]);
    if (maker.op != OpType::matmul) continue;  // `require_same` compares their pairs
    const bool neighbours = std::get<std::string>(node.attributes.at("pairs")) == "neighbours";
    for (std::size_t i = 1; i < maker.inputs.size(); ++i) {
      layouts[maker.inputs[i]].heads = node.integer("heads");
      layouts[maker.inputs[i]].neighbours = neighbours;
    }
  }
  return layouts;
}

std::vector<Move> moves_of(const ModelGraph& from, const ModelGraph& to, const TensorNames& names,
                           const ConvertOptions& options) {
  const auto from_layouts = layouts_of(from), to_layouts = layouts_of(to);
  const auto layout = [](const auto& layouts, const std::string& name) {
    const auto found = layouts.find(name);
    return found == layouts.end() ? Layout{} : found->second;
  };
  std::vector<Move> moves;
  for (const TensorDesc& target : to.tensors) {
    if (target.keys.empty()) continue;
    const TensorDesc& origin = from.at(target.name);
    Move move;
    move.name = target.name;
    for (std::size_t i = 0; i < origin.keys.size(); ++i) move.from.push_back(&names.part(origin, i));
    move.to = target.keys;
    move.to_cut = target.cut;
    move.is_bias = target.name.ends_with(".bias");
    move.is_exact = target.element == Element::f32;
    for (const Dim& dim : target.shape) move.shape.push_back(dim.value);
    move.from_transposed = origin.transposed;
    move.to_transposed = target.transposed;
    move.from_layout = layout(from_layouts, origin.name);
    move.to_layout = layout(to_layouts, target.name);
    // llama.cpp wants a row for each group.
    if (to.config.from_gguf && move.to_layout.rows > 1)
      move.shape = {move.to_layout.rows, move.shape[0] / move.to_layout.rows};
    move.type = type_of(move, options, to.config.from_gguf);
    moves.push_back(std::move(move));
  }
  return moves;
}

std::vector<Output> outputs_of(const std::vector<Move>& moves) {
  std::vector<Output> outputs;
  for (const Move& move : moves) {
    if (!move.to_cut) {
      for (std::size_t part = 0; part < move.to.size(); ++part)
        outputs.push_back({move.to[part], shape_of_part(move), move.type, &move, part});
      continue;
    }
    auto found = std::find_if(outputs.begin(), outputs.end(), [&](const Output& o) { return o.name == move.to[0]; });
    if (found == outputs.end()) {
      outputs.push_back({move.to[0], move.to_cut->file, move.type});
      found = outputs.end() - 1;
    }
    found->cuts.push_back(&move);
  }
  return outputs;
}

std::uint64_t write_output(const Output& output, const io::TensorSource& source, Extent rope_dims, const Sink& sink) {
  std::uint64_t bytes = 0;
  const auto count = [&](const Move& move) {
    for (const io::SourceTensor* tensor : move.from) bytes += tensor->size_bytes() / (output.move ? move.to.size() : 1);
  };
  for (const Move* move : output.cuts) count(*move);
  if (output.move) count(*output.move);
  if (!output.cuts.empty()) {
    put_cuts(output, source, rope_dims, sink);
  } else if (output.type == BlockType::mxfp4) {
    for (const io::SourceTensor* tensor : output.move->from) sink(io::TensorSource::loaded(*tensor).tensor.data);
  } else {
    put_as(output.type, values_of(source, *output.move, output.part, rope_dims), source, output.name, sink);
  }
  return bytes;
}

}  // namespace weft::llm
