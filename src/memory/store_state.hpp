// What a store holds, for its searches and its files.
#pragma once

#include <fmt/format.h>

#include <random>
#include <span>
#include <string>
#include <vector>

#include "base/text_map.hpp"
#include "weft/memory.hpp"

namespace weft::memory {

/// Rows of a block. All blocks have this shape, so that one plan computes every product.
inline constexpr std::size_t kBlockRows = 1024;

struct Store::State {
  /// Up to kBlockRows rows, and the tensor of them with zeros behind; undefined after a change.
  struct Block {
    std::vector<float> rows;
    Tensor tensor;
  };
  Extent width;
  std::vector<Entry> entries;
  std::vector<Block> blocks;
  TextMap<std::size_t> places;  // by id
  std::mt19937_64 random{std::random_device{}()};

  std::span<float> row(std::size_t i) {
    Block& block = blocks[i / kBlockRows];
    return std::span(block.rows)
        .subspan((i % kBlockRows) * static_cast<std::size_t>(width), static_cast<std::size_t>(width));
  }
  /// Adds an entry that was stored before, with the very bits of its row. Errors: as Store::add.
  void restore(Store& store, Entry entry, std::span<const float> row);
  void append(const std::vector<float>& row) {
    if (entries.size() % kBlockRows == 0) blocks.emplace_back();
    Block& block = blocks.back();
    block.rows.insert(block.rows.end(), row.begin(), row.end());
    block.tensor = {};
  }
  const Tensor& tensor_of(Block& block) const {
    if (!block.tensor.defined() || block.tensor.device() != default_device()) {
      std::vector<float> padded = block.rows;
      padded.resize(kBlockRows * static_cast<std::size_t>(width));
      block.tensor = tensor<float>(std::span<const float>(padded), {static_cast<Extent>(kBlockRows), width});
    }
    return block.tensor;
  }
  std::string new_id() {
    std::string id;
    do id = fmt::format("m-{:016x}", random());
    while (places.contains(id));
    return id;
  }
};

}  // namespace weft::memory
