// The tensors of an mmproj file by the names of a folder, and in its layout.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "llm/mmproj.hpp"
#include "weft/error.hpp"

namespace weft::llm::detail {
namespace {

using io::SourceTensor;

bool is_of_qwen(MmprojKind kind) {
  return kind == MmprojKind::qwen2 || kind == MmprojKind::qwen2_5 || kind == MmprojKind::qwen3;
}

/// The values of several tensors, in their own type if all have the same, which keeps 16 bits and blocks; else in f32.
struct Parts {
  std::vector<SourceTensor> all;

  BlockType type() const {
    const auto is_equal = [&](const SourceTensor& t) { return t.type == all[0].type; };
    return std::all_of(all.begin(), all.end(), is_equal) ? *all[0].type : BlockType::f32;
  }
  std::vector<std::byte> bytes(std::size_t i) const {
    const BlockType wanted = type();
    if (all[i].type == wanted) return {all[i].data.begin(), all[i].data.end()};
    std::vector<std::byte> bytes(static_cast<std::size_t>(all[i].shape.numel()) * sizeof(float));
    std::vector<float> values(static_cast<std::size_t>(all[i].shape.numel()));
    dequantise(*all[i].type, all[i].data, values);
    std::memcpy(bytes.data(), values.data(), bytes.size());
    return bytes;
  }
};

SourceTensor made_tensor(std::string name, Shape shape, BlockType type,
                         std::function<void(std::span<std::byte>)> make) {
  return {std::move(name), std::move(shape), std::string(file_name_of(type)), type, {}, std::move(make)};
}

/// Queries, keys and values below each other.
SourceTensor stacked(std::string name, Parts parts) {
  Shape shape = parts.all[0].shape;
  shape[0] *= 3;
  const BlockType type = parts.type();
  return made_tensor(std::move(name), shape, type, [parts = std::move(parts)](std::span<std::byte> out) {
    for (std::size_t i = 0, at = 0; i < parts.all.size(); ++i) {
      const std::vector<std::byte> bytes = parts.bytes(i);
      std::copy(bytes.begin(), bytes.end(), out.begin() + static_cast<std::ptrdiff_t>(at));
      at += bytes.size();
    }
  });
}

/// The weights of the patches of each frame, [hidden, 3, p, p], as those of all, [hidden, 3, frames, p, p].
SourceTensor with_frames(std::string name, Parts parts) {
  const Shape& one = parts.all[0].shape;
  const auto frames = static_cast<Extent>(parts.all.size());
  const auto planes = static_cast<std::size_t>(one[0] * one[1]);
  const Shape shape{one[0], one[1], frames, one[2], one[3]};
  const BlockType type = parts.type();
  return made_tensor(std::move(name), shape, type, [parts = std::move(parts), planes](std::span<std::byte> out) {
    const std::size_t count = parts.all.size(), plane = out.size() / (planes * count);
    for (std::size_t frame = 0; frame < count; ++frame) {
      const std::vector<std::byte> bytes = parts.bytes(frame);
      for (std::size_t i = 0; i < planes; ++i)
        std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(i * plane), plane,
                    out.begin() + static_cast<std::ptrdiff_t>((i * count + frame) * plane));
    }
  });
}

/// Rows 2i and 2i + 1 of a head turn together in a file, rows i and i + D / 2 in a folder.
SourceTensor with_halves(std::string name, const SourceTensor& tensor, Extent heads) {
  const Extent rows = tensor.shape[0], head = rows / heads, half = head / 2;
  return made_tensor(std::move(name), tensor.shape, *tensor.type, [=](std::span<std::byte> out) {
    const auto row = static_cast<Extent>(out.size()) / rows;
    for (Extent to = 0; to < rows; ++to) {
      const Extent in = to % head, from = to - in + (in < half ? 2 * in : 2 * (in - half) + 1);
      std::copy_n(tensor.data.begin() + from * row, row, out.begin() + to * row);
    }
  });
}

}  // namespace

bool Mmproj::has_swapped_mlp() const {
  // The first files called the two matrices of an MLP the other way round.
  const Extent hidden = number("embedding_length", 1 << 16);
  const SourceTensor* down = find("v.blk.0.ffn_down.weight");
  return layout_->kind != MmprojKind::qwen3 && layout_->kind != MmprojKind::pixtral && down &&
         down->shape.rank() == 2 && down->shape[1] == hidden && down->shape[0] != hidden;
}

io::TensorSource Mmproj::tensors() const {
  const MmprojKind kind = layout_->kind;
  const Extent heads = number("attention.head_count", 1 << 10);
  const bool is_swapped = has_swapped_mlp(), joins = kind == MmprojKind::qwen2 || kind == MmprojKind::qwen2_5;
  const std::vector<Extent> taken = taken_layers();
  std::vector<SourceTensor> all;
  for (SourceTensor tensor : source_.tensors()) {
    std::string& name = tensor.name;
    if (is_swapped) {
      constexpr std::string_view kUp = ".ffn_up.", kDown = ".ffn_down.";
      if (const std::size_t up = name.find(kUp); up != std::string::npos)
        name.replace(up, kUp.size(), kDown);
      else if (const std::size_t down = name.find(kDown); down != std::string::npos)
        name.replace(down, kDown.size(), kUp);
    }
    if (kind == MmprojKind::qwen3 && name.starts_with("v.deepstack."))
      for (std::size_t i = 0; i < taken.size(); ++i)
        if (const std::string own = fmt::format("v.deepstack.{}.", taken[i]); name.starts_with(own)) {
          name = fmt::format("v.deepstack.{}.{}", i, name.substr(own.size()));
          break;
        }
    const auto folder = folder_name_of_mmproj(*layout_, name);
    if (!folder) continue;
    const bool turns =
        kind == MmprojKind::pixtral && (name.ends_with(".attn_q.weight") || name.ends_with(".attn_k.weight"));
    if (turns && tensor.shape.rank() == 2 && tensor.shape[0] % (2 * heads) == 0)
      tensor = with_halves(*folder, tensor, heads);
    else
      tensor.name = *folder;
    all.push_back(std::move(tensor));
  }
  const auto joined = [&](std::initializer_list<std::string> names) -> std::optional<Parts> {
    Parts parts;
    for (const std::string& each : names) {
      const SourceTensor* found = find(each);
      if (!found || (!parts.all.empty() && found->shape != parts.all[0].shape)) return {};
      parts.all.push_back(*found);
    }
    return parts;
  };
  if (joins)
    for (Extent layer = 0; layer < number("block_count", 1 << 10); ++layer)
      for (const char* end : {"weight", "bias"}) {
        const auto name = [&](char which) { return fmt::format("v.blk.{}.attn_{}.{}", layer, which, end); };
        if (auto parts = joined({name('q'), name('k'), name('v')}))
          all.push_back(stacked(fmt::format("visual.blocks.{}.attn.qkv.{}", layer, end), std::move(*parts)));
      }
  if (is_of_qwen(kind)) {
    constexpr const char *kFirst = "v.patch_embd.weight", *kSecond = "v.patch_embd.weight.1";
    auto parts = find(kSecond) ? joined({kFirst, kSecond}) : joined({kFirst});
    if (parts && parts->all[0].shape.rank() == 4)
      all.push_back(with_frames("visual.patch_embed.proj.weight", std::move(*parts)));
  }
  return io::TensorSource::of(source_.path(), io::SourceKind::gguf, std::move(all), source_.files(), {},
                              source_.notes());
}

}  // namespace weft::llm::detail
