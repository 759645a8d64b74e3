#include "llm/merge_folder.hpp"

#include <fmt/format.h>

#include "base/file.hpp"
#include "base/folder_in_making.hpp"
#include "base/json.hpp"
#include "base/python_json.hpp"
#include "base/quote.hpp"
#include "io/convert_model.hpp"
#include "llm/adapter_file.hpp"
#include "llm/adapter_tensors.hpp"
#include "llm/magnitudes.hpp"
#include "llm/model_folder.hpp"
#include "llm/read_config.hpp"
#include "weft/error.hpp"

namespace weft::llm {
namespace {

namespace fs = std::filesystem;

bool holds_weights(const std::string& name) {
  for (const char* ending :
       {".safetensors", ".safetensors.index.json", ".bin", ".bin.index.json", ".gguf", ".pth", ".pt"})
    if (name.ends_with(ending)) return true;
  return false;
}

}  // namespace

io::TensorSource with_adapters(const io::TensorSource& source, std::span<const AdapterUse> adapters) {
  if (adapters.empty()) return source;
  const io::TensorSource saved = with_saved_tensors(source, adapters).value_or(source);
  const TensorNames names(saved);
  const ModelGraph graph = graph_of_text(saved, names);
  std::vector<std::vector<LowRank>> all;
  for (const AdapterUse& use : adapters)
    make_gains(all.emplace_back(read_adapter(use.path, use.scale, graph)), graph, names);
  return merged(saved, joined(graph, all), graph);
}

std::optional<io::TensorSource> with_changed_tensors(const io::TensorSource& source, const LoadOptions& options) {
  if (options.adapters.empty()) return std::nullopt;
  return options.merge_adapters ? with_adapters(source, options.adapters)
                                : with_saved_tensors(source, options.adapters);
}

Converted write_folder(const io::TensorSource& source, const fs::path& folder, const ConvertOptions& options) {
  std::error_code error;
  if (fs::equivalent(source.path(), folder, error))
    throw FileError(fmt::format("{}: the model would be written over itself; choose another folder", folder.string()));
  const FolderRest rest = rest_of_folder(folder, [](std::string_view name) { return name == "model.safetensors"; });
  if (!rest.weights.empty())
    throw FileError(
        fmt::format("{}: the folder has files that would be taken for parts of this model: {}; remove them, "
                    "or choose another folder",
                    folder.string(), quote(rest.weights.front(), 80)));
  FolderInMaking making(folder);
  io::ConvertOptions tensors;
  tensors.type = options.type;
  tensors.progress = [&](const io::SourceTensor& tensor, std::uint64_t done, std::uint64_t total) {
    if (options.progress) options.progress(tensor.name, done, total);
  };
  io::convert_model(source, folder / "model.safetensors", tensors);
  Json config = read_python_json_file(source.path() / "config.json", {});
  config.erase("quantization_config");
  config.erase("quantization");
  if (makes_head(source)) {
    config["tie_word_embeddings"] = false;
    if (const auto text = config.find("text_config"); text != config.end() && text->contains("tie_word_embeddings"))
      (*text)["tie_word_embeddings"] = false;
  }
  for (const auto& entry : fs::directory_iterator(source.path())) {
    const std::string name = entry.path().filename().string();
    if (!entry.is_regular_file() || holds_weights(name) || name == "config.json") continue;
    if (!options.with_tokenizer && name.starts_with("tokenizer")) continue;
    write_file_atomically(folder / name, read_text_file(entry.path(), std::uint64_t{1} << 30));
  }
  write_file_atomically(folder / "config.json", config.dump(2) + "\n");
  making.keep();
  return {source.tensors().size(), source.notes()};
}

}  // namespace weft::llm
