// Embeddings of texts by encoders of random weights: milliseconds for all texts, beside PyTorch.
//   bench_encoder [PYTHON [DEVICE]]     PYTHON: an interpreter with PyTorch (default /usr/bin/python3), run right after, on as many
//                                       threads, or with CUDA if DEVICE (default cpu) is a GPU
// Both get the same texts, as tokens of the same number: words of one token each.
#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "base/file.hpp"
#include "base/json.hpp"
#include "base/threads.hpp"
#include "figure.hpp"
#include "io/safetensors.hpp"
#include "peer.hpp"
#include "runtime/devices.hpp"
#include "weft/encoder.hpp"
#include "weft/weft.hpp"

using namespace weft;
namespace fs = std::filesystem;

namespace {

struct Layers {
  const char* name;
  Extent layers, width, heads, inner;
};
constexpr Layers kShapes[] = {{"all-MiniLM-L6's shape", 6, 384, 12, 1536}, {"BERT base's shape", 12, 768, 12, 3072}};
constexpr Extent kWords = 1000;

/// Texts of a corpus: short and long ones, mixed; or long ones.
std::vector<std::size_t> lengths_of(bool all_long) {
  if (all_long) return std::vector<std::size_t>(8, 510);
  std::vector<std::size_t> lengths;
  for (std::size_t i = 0; i < 64; ++i) lengths.push_back(8 + (i * 37) % 120);
  return lengths;
}

fs::path put_model(const Layers& s, const fs::path& folder) {
  fs::create_directories(folder);
  const Json config = {{"model_type", "bert"},          {"architectures", Json::array({"BertModel"})},
                       {"vocab_size", kWords},          {"hidden_size", s.width},
                       {"num_hidden_layers", s.layers}, {"num_attention_heads", s.heads},
                       {"intermediate_size", s.inner},  {"max_position_embeddings", 512},
                       {"type_vocab_size", 2}};
  Json words = Json::object({{"[PAD]", 0}, {"[UNK]", 1}, {"[CLS]", 2}, {"[SEP]", 3}});
  for (Extent i = 4; i < kWords; ++i) words["w" + std::to_string(i)] = i;
  const auto special = [](const char* content, int id) {
    return Json{{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
                {"rstrip", false}, {"normalized", false}, {"special", true}};
  };
  const Json tokenizer = {
      {"version", "1.0"},
      {"added_tokens", Json::array({special("[CLS]", 2), special("[SEP]", 3)})},
      {"pre_tokenizer", {{"type", "WhitespaceSplit"}}},
      {"post_processor",
       {{"type", "BertProcessing"}, {"cls", Json::array({"[CLS]", 2})}, {"sep", Json::array({"[SEP]", 3})}}},
      {"model", {{"type", "WordLevel"}, {"vocab", words}, {"unk_token", "[UNK]"}}}};
  write_file_atomically(folder / "config.json", config.dump());
  write_file_atomically(folder / "tokenizer.json", tokenizer.dump());
  std::vector<std::pair<std::string, Shape>> parts = {{"embeddings.word_embeddings.weight", {kWords, s.width}},
                                                      {"embeddings.position_embeddings.weight", {512, s.width}},
                                                      {"embeddings.token_type_embeddings.weight", {2, s.width}}};
  const auto both = [&](const std::string& name, const Shape& shape) {
    parts.push_back({name + ".weight", shape});
    parts.push_back({name + ".bias", Shape{shape[0]}});
  };
  both("embeddings.LayerNorm", {s.width});
  for (Extent i = 0; i < s.layers; ++i) {
    const std::string layer = fmt::format("encoder.layer.{}.", i);
    for (const char* part :
         {"attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense"})
      both(layer + part, {s.width, s.width});
    both(layer + "attention.output.LayerNorm", {s.width});
    both(layer + "intermediate.dense", {s.inner, s.width});
    both(layer + "output.dense", {s.width, s.inner});
    both(layer + "output.LayerNorm", {s.width});
  }
  std::vector<std::vector<float>> values;
  std::vector<io::TensorView> views;
  std::mt19937 draw(1);
  for (const auto& [name, shape] : parts) {
    std::uniform_real_distribution<float> spread(-0.05f, 0.05f);
    std::vector<float>& made = values.emplace_back(static_cast<std::size_t>(shape.numel()));
    for (float& each : made) each = spread(draw) + (shape.rank() == 1 && name.ends_with("weight") ? 1.0f : 0.0f);
  }
  for (std::size_t i = 0; i < parts.size(); ++i)
    views.push_back({parts[i].first, "F32", parts[i].second, std::as_bytes(std::span(values[i]))});
  io::write_safetensors(folder / "model.safetensors", views);
  return folder;
}

}  // namespace

int main(int count, char** arguments) {
  const Device device = parse_device(count > 2 ? arguments[2] : "cpu");
  const bool on_gpu = device.kind != Device::Kind::cpu;
  set_default_device(device);
  const std::string python = count > 1 ? arguments[1] : "/usr/bin/python3";
  const std::string machine = on_gpu ? runtime::backend_of(device).describe().hardware : std::string();
  const fs::path place = fs::temp_directory_path() / "weft-bench-encoder";
  // Halves pay where there are tensor cores.
  const std::vector<DType> types = on_gpu ? std::vector{DType::f32, DType::f16} : std::vector{DType::f32};
  for (const Layers& shape : kShapes)
    for (const DType type : types) {
      const encoder::Model model = encoder::load(put_model(shape, place), {.device = device, .precision = type});
      fs::remove_all(place);
      for (const bool all_long : {false, true}) {
        const std::vector<std::size_t> lengths = lengths_of(all_long);
        std::vector<std::string> texts;
        std::string list;
        for (const std::size_t length : lengths) {
          std::string text;
          for (std::size_t i = 0; i < length; ++i) text += fmt::format("w{} ", 4 + (i * 31 + length) % 900);
          texts.push_back(text);
          list += fmt::format("{}{}", list.empty() ? "" : ",", length + 2);
        }
        const double ms = bench::best_ms([&] { (void)model.embed(texts); });
        const double peer =
            bench::printed_by(fmt::format("{} {}/bench/torch_encoder.py {} {} {} {} {} {} {} {}", python,
                                          WEFT_SOURCE_FOLDER, shape.layers, shape.width, shape.heads, shape.inner, list,
                                          thread_count(), on_gpu ? "cuda" : "cpu", weft::name_of(type)))
                .first;
        const std::string work = fmt::format("{}, {}, {} texts of {}", shape.name, weft::name_of(type), texts.size(),
                                             all_long ? "512 tokens" : "10 to 129 tokens");
        fmt::print("{}: {:.2f} ms (PyTorch {:.2f}, {:.2f}x)\n", work, ms, peer, peer / ms);
        std::fflush(stdout);
        figures::keep({"embeddings of texts", work, "ms", ms, peer > 0 ? "PyTorch" : "", peer, machine});
      }
    }
}
