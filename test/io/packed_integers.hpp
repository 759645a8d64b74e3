// Matrices of integers with scales for groups of inputs, packed as GPTQ, AWQ and MLX lay them out, bit by bit.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/half.hpp"
#include "base/philox.hpp"
#include "base/temporary_folder.hpp"
#include "io/safetensors.hpp"

namespace weft::test {

/// A matrix of n outputs and k inputs: s (q - z), or s q + b where `offset` is not empty.
struct IntegerMatrix {
  Extent n = 0, k = 0, group = 32;
  int bits = 4;
  std::vector<int> q;                // [n, k]
  std::vector<float> scale, offset;  // [n, groups]; values of f16
  std::vector<int> zero;             // [n, groups]
  std::vector<int> group_of;         // [k]; empty: in order

  Extent groups() const { return (k + group - 1) / group; }
  std::size_t group_at(Extent row, Extent column) const {
    const Extent g = group_of.empty() ? column / group : group_of[static_cast<std::size_t>(column)];
    return static_cast<std::size_t>(row * groups() + g);
  }
  std::vector<float> values() const {
    std::vector<float> all;
    for (Extent r = 0; r < n; ++r)
      for (Extent c = 0; c < k; ++c) {
        const std::size_t at = group_at(r, c);
        const int whole = q[static_cast<std::size_t>(r * k + c)];
        all.push_back(offset.empty() ? scale[at] * static_cast<float>(whole - zero[at])
                                     : scale[at] * static_cast<float>(whole) + offset[at]);
      }
    return all;
  }
};

/// Random integers over the whole range. `zero`: of all groups; -1: random ones.
inline IntegerMatrix random_integers(Extent n, Extent k, int bits, Extent group, int zero, std::uint32_t seed = 1) {
  IntegerMatrix m{n, k, group, bits, {}, {}, {}, {}, {}};
  std::uint32_t count = 0;
  const auto draw = [&](int most) {
    return static_cast<int>(philox::block({seed, 7}, {count++, 0, 0, 0})[0] % static_cast<std::uint32_t>(most + 1));
  };
  for (Extent i = 0; i < n * k; ++i) m.q.push_back(draw((1 << bits) - 1));
  for (Extent i = 0; i < n * m.groups(); ++i) {
    m.scale.push_back(f32_from_f16(f16_from_f32(0.01f + 0.0001f * static_cast<float>(draw(400)))));
    m.zero.push_back(zero >= 0 ? zero : draw((1 << bits) - 1));
  }
  return m;
}

/// The integers s q + b of MLX.
inline IntegerMatrix with_offsets(IntegerMatrix m) {
  for (std::size_t i = 0; i < m.scale.size(); ++i)
    m.offset.push_back(f32_from_f16(f16_from_f32(-m.scale[i] * static_cast<float>(m.zero[i]) - 0.003f)));
  return m;
}

/// Tensors of files, which own their bytes.
class PackedTensors {
 public:
  void add(const std::string& name, const std::string& type, const Shape& shape, std::vector<std::byte> bytes) {
    tensors_[name] = {type, shape, std::move(bytes)};
  }
  template <class T>
  void add(const std::string& name, const std::string& type, const Shape& shape, const std::vector<T>& values) {
    const auto bytes = std::as_bytes(std::span(values));
    add(name, type, shape, std::vector<std::byte>(bytes.begin(), bytes.end()));
  }
  void erase(const std::string& name) { tensors_.erase(name); }
  void write(const std::filesystem::path& file) const {
    std::vector<io::TensorView> views;
    for (const auto& [name, t] : tensors_) views.push_back({name, t.type, t.shape, t.bytes});
    io::write_safetensors(file, views);
  }

 private:
  struct Each {
    std::string type;
    Shape shape;
    std::vector<std::byte> bytes;
  };
  std::map<std::string, Each> tensors_;
};

/// Bits of integers, one after another, in words of 32.
inline void put_bits(std::vector<std::uint32_t>& words, std::size_t first, std::size_t stride, std::size_t index,
                     int bits, std::uint32_t value) {
  for (int b = 0; b < bits; ++b) {
    const std::size_t bit = index * static_cast<std::size_t>(bits) + static_cast<std::size_t>(b);
    words[first + bit / 32 * stride] |= (value >> b & 1u) << bit % 32;
  }
}

inline std::vector<std::uint16_t> halves_of(const IntegerMatrix& m, const std::vector<float>& of, bool by_group) {
  const Extent groups = m.groups();
  std::vector<std::uint16_t> halves(of.size());
  for (Extent r = 0; r < m.n; ++r)
    for (Extent g = 0; g < groups; ++g)
      halves[static_cast<std::size_t>(by_group ? g * m.n + r : r * groups + g)] =
          f16_from_f32(of[static_cast<std::size_t>(r * groups + g)]);
  return halves;
}

inline void put_gptq(PackedTensors& tensors, const std::string& name, const IntegerMatrix& m, bool v2) {
  const Extent groups = m.groups(), rows = m.k * m.bits / 32, width = m.n * m.bits / 32;
  std::vector<std::uint32_t> codes(static_cast<std::size_t>(rows * m.n)),
      zeros(static_cast<std::size_t>(groups * width));
  std::vector<std::int32_t> order;
  for (Extent r = 0; r < m.n; ++r) {
    for (Extent c = 0; c < m.k; ++c)
      put_bits(codes, static_cast<std::size_t>(r), static_cast<std::size_t>(m.n), static_cast<std::size_t>(c), m.bits,
               static_cast<std::uint32_t>(m.q[static_cast<std::size_t>(r * m.k + c)]));
    for (Extent g = 0; g < groups; ++g)
      put_bits(zeros, static_cast<std::size_t>(g * width), 1, static_cast<std::size_t>(r), m.bits,
               static_cast<std::uint32_t>(m.zero[static_cast<std::size_t>(r * groups + g)] - (v2 ? 0 : 1)));
  }
  for (Extent c = 0; c < m.k; ++c)
    order.push_back(m.group_of.empty() ? static_cast<std::int32_t>(c / m.group)
                                       : m.group_of[static_cast<std::size_t>(c)]);
  tensors.add(name + ".qweight", "I32", {rows, m.n}, codes);
  tensors.add(name + ".qzeros", "I32", {groups, width}, zeros);
  tensors.add(name + ".scales", "F16", {groups, m.n}, halves_of(m, m.scale, true));
  tensors.add(name + ".g_idx", "I32", {m.k}, order);
}

inline void put_awq(PackedTensors& tensors, const std::string& name, const IntegerMatrix& m) {
  constexpr Extent kOrder[8] = {0, 2, 4, 6, 1, 3, 5, 7};
  const Extent groups = m.groups(), width = m.n / 8;
  std::vector<std::uint32_t> codes(static_cast<std::size_t>(m.k * width)),
      zeros(static_cast<std::size_t>(groups * width));
  for (Extent w = 0; w < width; ++w)
    for (int place = 0; place < 8; ++place) {
      const Extent r = 8 * w + kOrder[place];
      for (Extent c = 0; c < m.k; ++c)
        codes[static_cast<std::size_t>(c * width + w)] |=
            static_cast<std::uint32_t>(m.q[static_cast<std::size_t>(r * m.k + c)]) << 4 * place;
      for (Extent g = 0; g < groups; ++g)
        zeros[static_cast<std::size_t>(g * width + w)] |=
            static_cast<std::uint32_t>(m.zero[static_cast<std::size_t>(r * groups + g)]) << 4 * place;
    }
  tensors.add(name + ".qweight", "I32", {m.k, width}, codes);
  tensors.add(name + ".qzeros", "I32", {groups, width}, zeros);
  tensors.add(name + ".scales", "F16", {groups, m.n}, halves_of(m, m.scale, true));
}

inline void put_mlx(PackedTensors& tensors, const std::string& name, const IntegerMatrix& m) {
  const Extent groups = m.groups(), width = m.k * m.bits / 32;
  std::vector<std::uint32_t> codes(static_cast<std::size_t>(m.n * width));
  for (Extent r = 0; r < m.n; ++r)
    for (Extent c = 0; c < m.k; ++c)
      put_bits(codes, static_cast<std::size_t>(r * width), 1, static_cast<std::size_t>(c), m.bits,
               static_cast<std::uint32_t>(m.q[static_cast<std::size_t>(r * m.k + c)]));
  tensors.add(name + ".weight", "U32", {m.n, width}, codes);
  tensors.add(name + ".scales", "F16", {m.n, groups}, halves_of(m, m.scale, false));
  tensors.add(name + ".biases", "F16", {m.n, groups}, halves_of(m, m.offset, false));
}

}  // namespace weft::test
